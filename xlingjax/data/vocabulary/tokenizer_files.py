"""The files of a Hugging Face tokenizer as the content of one tokenizer.json, and its special
tokens by role."""

import json
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError

CONTINUED, PROPHETNET = "##", "prophetnet.tokenizer"
BERT = {"bos": "[CLS]", "eos": "[SEP]", "pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]"}
ROBERTA = {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
SPECIAL = (BERT, ROBERTA)
"""Special tokens by role of a folder that names none: the first whose tokens it all has."""
ROLES = {
    "bos": "cls_token",
    "eos": "sep_token",
    "pad": "pad_token",
    "unk": "unk_token",
    "mask": "mask_token",
}
_OTHER_ROLES = {"bos": "bos_token", "eos": "eos_token"}  # where there is no cls_token, no sep_token
_XLM_ROBERTA = ("XLMRobertaTokenizer", "XLMRobertaTokenizerFast")


def content_of(folder: Path, pieces: str = "vocab.txt") -> bytes:
    """tokenizer.json of the folder, or what it would be of `pieces` (WordPiece, one a line) or of
    vocab.json and merges.txt (byte-level BPE). Raises UserError, OSError and ValueError."""
    config = read_object(folder / "tokenizer_config.json")
    if (folder / "tokenizer.json").is_file():
        content = (folder / "tokenizer.json").read_bytes()
        of_class = config.get("tokenizer_class") in _XLM_ROBERTA
        return (
            _as_xlm_roberta(content, config.get("add_prefix_space", True)) if of_class else content
        )
    if (folder / "merges.txt").is_file() and not (folder / pieces).is_file():
        return _byte_level(folder, config)
    if pieces == PROPHETNET:
        config.setdefault("do_lower_case", True)  # as transformers' ProphetNetTokenizer
    lines = (folder / pieces).read_text(encoding="utf-8").split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    return _wordpiece(lines, config, special_of(folder), pieces)


def special_of(folder: Path, content: bytes | None = None) -> dict[str, str]:
    """{role: token}: what vocab.json of ours says, else the files of transformers, else what pieces
    there are in `content`, else BERT's."""
    named = read_object(folder / "special_tokens_map.json") | read_object(
        folder / "tokenizer_config.json"
    )
    special = dict(_usual_special(content))
    for names in (_OTHER_ROLES, ROLES):
        special |= {role: token for role, key in names.items() if (token := _text(named.get(key)))}
    return (
        special | read_object(folder / "vocab.json").get("special", {})
        if _is_ours(folder)
        else special
    )


def _is_ours(folder: Path) -> bool:
    """Whether its vocab.json is ours: a vocabulary of byte-level BPE has a file of that name,
    too."""
    return isinstance(read_object(folder / "vocab.json").get("special"), dict)


def _usual_special(content: bytes | None) -> dict[str, str]:
    if content is None:
        return BERT
    told = json.loads(content)
    added = {token["content"] for token in told.get("added_tokens") or ()}
    vocab = told["model"].get("vocab") or ()
    pieces = {piece[0] for piece in vocab} if isinstance(vocab, list) else {*vocab}
    return next((usual for usual in SPECIAL if {*usual.values()} <= pieces | added), BERT)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; {} where there is no such file. Raises OSError and ValueError."""
    told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return told if isinstance(told, dict) else {}


def _text(token: Any) -> str | None:
    return token.get("content") if isinstance(token, dict) else token


def _as_xlm_roberta(content: bytes, prefix: bool) -> bytes:
    """As transformers 5 makes an XLMRobertaTokenizer of the file: of its pieces, scores and
    normalization table alone, words at white space. Released files (transformers 4's) keep a lone
    "▁" for a space at the end of a text, which SentencePiece, that the models were trained with,
    does not."""
    told = json.loads(content)
    if told["model"].get("type", "Unigram") != "Unigram":
        return content
    steps = told.get("normalizer")
    steps = steps.get("normalizers", [steps]) if isinstance(steps, dict) else []
    tables = [step for step in steps if step["type"] == "Precompiled"]
    scheme = "always" if prefix else "never"
    words = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    told["normalizer"] = tables[0] if tables else None
    told["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [{"type": "WhitespaceSplit"}, words],
    }
    told["decoder"] = words
    return json.dumps(told, ensure_ascii=False).encode()


def _byte_level(folder: Path, config: dict[str, Any]) -> bytes:
    """tokenizer.json of vocab.json and merges.txt, as transformers' RobertaTokenizer reads them."""
    vocab = read_object(folder / "vocab.json")
    lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    if broken := next((pair for pair in merges if len(pair) != 2), None):
        raise UserError(f"merges.txt has a line {' '.join(broken)!r}, not two pieces")
    special = special_of(folder)
    if {*special.values()} != {*special.values()} & {*vocab}:
        special = ROBERTA
    if missing := [token for token in special.values() if token not in vocab]:
        raise UserError(f"vocab.json has no piece {missing[0]!r}")
    prefix = bool(config.get("add_prefix_space", False))
    flags = {"single_word": False, "rstrip": False, "normalized": False, "special": True}
    added = [
        {"id": vocab[token], "content": token, "lstrip": role == "mask", **flags}
        for role, token in special.items()
    ]
    told = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": prefix,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": [special["eos"], vocab[special["eos"]]],
            "cls": [special["bos"], vocab[special["bos"]]],
            "trim_offsets": True,
            "add_prefix_space": prefix,
        },
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }
    return json.dumps(told, ensure_ascii=False).encode()


def _wordpiece(
    pieces: list[str], config: dict[str, Any], special: dict[str, str], file: str
) -> bytes:
    """tokenizer.json of BERT's vocab.txt, a piece a line, as transformers' BertTokenizer reads
    it."""
    if len({*pieces}) < len(pieces):
        raise UserError(f"{file} has a piece twice")
    if missing := [token for token in special.values() if token not in pieces]:
        raise UserError(f"{file} has no piece {missing[0]!r}")
    if not isinstance(config.get("do_lower_case"), bool):
        raise UserError(
            f'{file} does not say whether case is folded: put {{"do_lower_case": false}} or true'
            " into tokenizer_config.json beside it"
        )
    ids = {piece: i for i, piece in enumerate(pieces)}
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    told = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": t, **flags} for t, i in ids.items() if t in special.values()
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
            "strip_accents": config.get("strip_accents"),
            "lowercase": config["do_lower_case"],
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": CONTINUED, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": special["unk"],
            "continuing_subword_prefix": CONTINUED,
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
    }
    return json.dumps(told, ensure_ascii=False).encode()
