"""A Hugging Face tokenizer's files as one tokenizer.json, and its special tokens by role."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json

CONTINUED = "##"
PROPHETNET = "prophetnet.tokenizer"
BERT = {"bos": "[CLS]", "eos": "[SEP]", "pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]"}
ROBERTA = {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
T5 = {"bos": "<pad>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<unk>"}
"""Nothing opens its texts, and nothing masks: rows are opened by padding."""
SPECIAL = (BERT, ROBERTA)  # roles of a folder that names none: the first that it all has
ROLES = {
    "bos": "cls_token",
    "eos": "sep_token",
    "pad": "pad_token",
    "unk": "unk_token",
    "mask": "mask_token",
}
_OTHER_ROLES = {"bos": "bos_token", "eos": "eos_token"}  # where there is no cls_token, no sep_token
UNREADABLE = (OSError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError)
"""What reading damaged JSON of a tokenizer raises: other types than are due, infinite numbers."""
_XLM_ROBERTA = ("XLMRobertaTokenizer", "XLMRobertaTokenizerFast")


def added_in(folder: Path) -> dict[str, dict[str, Any]]:
    """{word: it as tokenizer.json has it} of what was added to a tokenizer, as slow tokenizers save
    it beside their pieces. Raises OSError and ValueError."""
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    config = read_object(folder / "tokenizer_config.json").get("added_tokens_decoder") or {}
    tokens = [{**plain, **token, "id": int(number)} for number, token in config.items()]
    for word, number in read_object(folder / "added_tokens.json").items():
        tokens.append({**plain, "content": word, "id": int(number)})
    # Those of the first file say more.
    found = {token["content"]: token for token in reversed(tokens)}
    return dict(sorted(found.items(), key=lambda item: item[1]["id"]))


def with_added(content: bytes, folder: Path) -> bytes:
    """tokenizer.json with the words that the folder's other files add."""
    config = parsed_json(content)
    known = _pieces_in(config)
    # Normalised they would get what a text begins with.
    more = [token | {"normalized": False} for token in added_in(folder).values()]
    more = [token for token in more if token["content"] not in known]
    if not more:
        return content
    tokens = [*(config.get("added_tokens") or ()), *more]
    return json.dumps({**config, "added_tokens": tokens}, ensure_ascii=False).encode()


def content_of(folder: Path, pieces: str = "vocab.txt") -> bytes:
    """tokenizer.json of the folder, or what it would be of `pieces` (WordPiece, one a line) or of
    vocab.json and merges.txt (byte-level BPE), with the words that were added. Raises UserError,
    OSError and ValueError."""
    return with_added(_content_of(folder, pieces), folder)


def _content_of(folder: Path, pieces: str) -> bytes:
    config = read_object(folder / "tokenizer_config.json")
    if (folder / "tokenizer.json").is_file():
        content = (folder / "tokenizer.json").read_bytes()
        # transformers makes this class anew of its pieces and does not heed the rest of the file.
        if config.get("tokenizer_class") in _XLM_ROBERTA:
            return _as_xlm_roberta(content, config.get("add_prefix_space", True))
        return content
    # Pieces go first where both are there: they were asked for by name.
    if (folder / "merges.txt").is_file() and not (folder / pieces).is_file():
        return _byte_level(folder, config)
    if pieces == PROPHETNET:
        # As transformers' ProphetNetTokenizer.
        config.setdefault("do_lower_case", True)
    lines = (folder / pieces).read_text(encoding="utf-8").split("\n")
    # Behind the last end of a line stands no piece; a blank line elsewhere is one.
    if lines[-1] == "":
        lines = lines[:-1]
    return _wordpiece(lines, config, special_of(folder), pieces)


def special_of(folder: Path, content: bytes | None = None) -> dict[str, str]:
    """{role: token}: of transformers' files, else of `content`, else BERT's."""
    named = read_object(folder / "special_tokens_map.json")
    named |= read_object(folder / "tokenizer_config.json")
    special = dict(_usual_special(content))
    # The roles of BERT's kind last, since cls_token is what begins a text where there are both.
    for names in (_OTHER_ROLES, ROLES):
        for role, key in names.items():
            token = named.get(key)
            if isinstance(token, dict):
                token = token.get("content")
            if token:
                special[role] = token
    # Pieces of bytes know every text: none names what is unknown, and nothing becomes it.
    config = parsed_json(content) if content else None
    if config and config["model"]["type"] == "BPE" and special["unk"] not in _pieces_in(config):
        special["unk"] = special["pad"]
    return special


def _usual_special(content: bytes | None) -> dict[str, str]:
    if content is None:
        return BERT
    pieces = _pieces_in(parsed_json(content))
    for usual in SPECIAL:
        if set(usual.values()) <= pieces:
            return usual
    return T5 if set(T5.values()) <= pieces and "<s>" not in pieces else BERT


def _pieces_in(config: dict[str, Any]) -> set[str]:
    added = {token["content"] for token in config.get("added_tokens") or ()}
    return added | pieces_of(config["model"])


def pieces_of(model: dict[str, Any]) -> set[str]:
    vocab = model.get("vocab") or ()
    # Unigram lists [piece, score], the others have a table of ids by piece.
    return {piece for piece, *_ in vocab} if isinstance(vocab, list) else {*vocab}


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; {} where there is no such file. Raises OSError and ValueError."""
    if not path.is_file():
        return {}
    content = parsed_json(path.read_bytes())
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is no JSON object")
    return content


def _as_xlm_roberta(content: bytes, prefix: bool) -> bytes:
    """As transformers 5 makes an XLMRobertaTokenizer of the file: of its pieces, scores and
    normalization table alone, words at white space. Released files (transformers 4's) keep a lone
    "▁" for a space at the end of a text, which SentencePiece, that the models were trained with,
    does not."""
    config = parsed_json(content)
    if config["model"].get("type", "Unigram") != "Unigram":
        return content
    normalizer = config.get("normalizer") or {}
    # SentencePiece's own table; the other steps stand in for what it does with spaces.
    steps = normalizer.get("normalizers", [normalizer])
    tables = [step for step in steps if step.get("type") == "Precompiled"]
    config["normalizer"] = tables[0] if tables else None
    scheme = "always" if prefix else "never"
    words = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    config["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [{"type": "WhitespaceSplit"}, words],
    }
    config["decoder"] = words
    return json.dumps(config, ensure_ascii=False).encode()


def _byte_level(folder: Path, config: dict[str, Any]) -> bytes:
    """tokenizer.json of vocab.json and merges.txt, as transformers' RobertaTokenizer reads them."""
    vocab = read_object(folder / "vocab.json")
    merges = []
    for line in (folder / "merges.txt").read_text(encoding="utf-8").split("\n"):
        # The first line of the files that the library writes.
        if line and not line.startswith("#version"):
            merges.append(tuple(line.split(" ")))
    special = special_of(folder)
    # A folder that names none was given BERT's, and this kind of vocabulary is RoBERTa's.
    if not set(special.values()) <= set(vocab):
        special = ROBERTA
    _check_special(special, vocab, "vocab.json")
    prefix = bool(config.get("add_prefix_space", False))
    made = Tokenizer(models.BPE(vocab, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    made.decoder = decoders.ByteLevel()
    ends = [(special[role], vocab[special[role]]) for role in ("eos", "bos")]
    made.post_processor = processors.RobertaProcessing(*ends, add_prefix_space=prefix)
    for role, token in special.items():
        # <mask> takes the space before it, as RobertaTokenizer's does.
        made.add_special_tokens([AddedToken(token, lstrip=role == "mask", normalized=False)])
    return made.to_str().encode()


def _check_special(special: dict[str, str], pieces: Collection[str], file: str) -> None:
    for token in special.values():
        if token not in pieces:
            raise UserError(f"{file} has no piece {token!r}")


def _wordpiece(
    pieces: list[str], config: dict[str, Any], special: dict[str, str], file: str
) -> bytes:
    """tokenizer.json of BERT's vocab.txt, a piece a line, as transformers' BertTokenizer reads."""
    ids = {piece: i for i, piece in enumerate(pieces)}
    if len(ids) < len(pieces):
        raise UserError(f"{file} has a piece twice")
    _check_special(special, pieces, file)
    # Neither is a safe default: a wrong one cuts words into other pieces, and nothing says so.
    if not isinstance(config.get("do_lower_case"), bool):
        raise UserError(
            f'{file} does not say whether case is folded: put {{"do_lower_case": false}} or true'
            " into tokenizer_config.json beside it"
        )
    made = Tokenizer(models.WordPiece(ids, unk_token=special["unk"], max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),
        lowercase=config["do_lower_case"],
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.add_special_tokens([*special.values()])
    return made.to_str().encode()
