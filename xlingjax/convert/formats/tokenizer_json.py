"""Our vocabulary as the tokenizer files of a Hugging Face folder: tokenizer.json (the `tokenizers`
library) and its configuration, giving `[bos_id, *vocabulary.encode(text), eos_id]`.

Where it does not:
- A special token written in the text (`<mask>`, `</s>`) is one id, as the users of that library
  expect, and cut up by SentencePiece; `tokenizer(text, split_special_tokens=True)` cuts it up, too.
  A Unigram model that has no `<` or `>` takes the name of a special or byte piece (`<0x41>`) for
  that piece even so.
- Where two cuts of a text by a Unigram model have the same score, as of a long row of dots,
  SentencePiece takes either: it adds in single precision, tokenizers in double.
- Of several combining marks on one letter those are composed or put in order that Unicode composes
  or orders and SentencePiece's table does not, as in `q` with an acute and a dot below.
"""

import base64
import functools
import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from xlingjax.data.vocabulary.fastbpe import FastBpeVocabulary
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json

SPACE = "▁"
UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # SentencePiece's types
OUTER, INNER = "\U000e0000", "\U000e0002"  # in no text: end a grapheme, stay in NFC
NEVER = -1e6  # the score of pieces that no text is cut into


def tokenizer_files(
    vocabulary: Vocabulary,
    max_length: int,
    languages: Sequence[str] | None = None,
    source: str = "",
) -> dict[str, bytes]:
    """{file name: content} of what AutoTokenizer opens; `max_length` in tokens, with specials.

    The class is PreTrainedTokenizerFast, which takes tokenizer.json as it is: transformers'
    XLMRobertaTokenizer keeps only its scores and table, and so loses combining characters (see
    `_by_table`). It opens the files of layout `xlmr`, too, with that loss. XLM's byte pair codes
    have files of their own, of XLMTokenizer. languages: of an encoder-decoder, whose sources stand
    between bos and eos: the names of its language tokens, added behind the vocabulary; source: the
    one before sources, instead of bos. Raises UserError for a SentencePiece model that
    tokenizer.json cannot say.
    """
    # The `tokenizers` library merges otherwise than XLM's code, so no tokenizer.json is written.
    if isinstance(vocabulary, FastBpeVocabulary):
        files = vocabulary.files()
        config = parsed_json(files["tokenizer_config.json"])
        config["model_max_length"] = max_length
        if languages is not None:
            # An encoder-decoder of transformers has no segments, and `generate` refuses them.
            config["model_input_names"] = ["input_ids", "attention_mask"]
            config["added_tokens_decoder"] = {
                str(number): _added(name) for number, name in enumerate(languages, vocabulary.size)
            }
        return {**files, "tokenizer_config.json": _bytes(config, indent=2)}
    names = _names(vocabulary)
    bos = names[vocabulary.bos_id]
    eos = names[vocabulary.eos_id]
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        # Without token_type_ids, which the class gives otherwise and these models do not read.
        "model_input_names": ["input_ids", "attention_mask"],
        # transformers would take spaces before punctuation out of the text that it decodes.
        "clean_up_tokenization_spaces": False,
        "bos_token": bos,
        "cls_token": bos,
        "eos_token": eos,
        "sep_token": eos,
        "unk_token": names[vocabulary.unk_id],
        "pad_token": names[vocabulary.pad_id],
        "mask_token": names[vocabulary.mask_id],
    }
    if vocabulary.bos_id == vocabulary.pad_id:
        for role in ("bos_token", "cls_token", "mask_token"):
            del config[role]
    content = tokenizer_json(vocabulary)
    if languages is not None:
        tokens = list(content.get("added_tokens") or ())
        for number, name in enumerate(languages, vocabulary.size):
            tokens.append({"id": number, **_added(name)})
        template = _template(vocabulary, names)
        if source:
            first = {"SpecialToken": {"id": source, "type_id": 0}}
            number = vocabulary.size + [*languages].index(source)
            template["special_tokens"][source] = {"id": source, "ids": [number], "tokens": [source]}
            template |= {name: [first, *template[name][1:]] for name in ("single", "pair")}
        content |= {"added_tokens": tokens, "post_processor": template}
    files = {"tokenizer.json": _bytes(content), "tokenizer_config.json": _bytes(config, indent=2)}
    if vocabulary.layout == "xlmr":
        files["sentencepiece.bpe.model"] = vocabulary.model_bytes
    return files


def _bytes(content: Any, indent: int | None = None) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=indent) + "\n").encode()


def tokenizer_json(vocabulary: Vocabulary) -> dict[str, Any]:
    """tokenizer.json; a `TokenizerVocabulary` has it. Raises UserError: a model it cannot say."""
    names = _names(vocabulary)
    if vocabulary.layout == "tokenizer":
        content = parsed_json(vocabulary.content)
        # Its own where it has one; without any, texts would stand without special tokens.
        template = content.get("post_processor") or _template(vocabulary, names)
        return {**content, "post_processor": template}
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    proto = ModelProto.FromString(vocabulary.model_bytes)
    spec = proto.normalizer_spec
    _require_sayable(proto)
    byte_fallback = proto.trainer_spec.byte_fallback
    normal = {piece.piece for piece in proto.pieces if piece.type == NORMAL}
    if proto.trainer_spec.model_type == UNIGRAM:
        model = {
            "type": "Unigram",
            "unk_id": vocabulary.unk_id,
            "byte_fallback": byte_fallback,
            "vocab": _scores(vocabulary, proto, names, normal),
        }
    else:
        model = {
            "type": "BPE",
            "unk_token": names[vocabulary.unk_id],
            "fuse_unk": True,
            "byte_fallback": byte_fallback,
            "vocab": {name: i for i, name in enumerate(names)},
            "merges": _merges(proto),
        }
    metaspace = None
    if spec.escape_whitespaces:
        metaspace = {
            "type": "Metaspace",
            "replacement": SPACE,
            "prepend_scheme": "never",
            # Words are cut one by one, which is faster, where no piece goes on into the next.
            "split": SPACE in normal and not any(SPACE in piece[1:] for piece in normal),
        }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(vocabulary, proto, names),
        "normalizer": _normalizer(spec),
        "pre_tokenizer": metaspace,
        "post_processor": _template(vocabulary, names),
        "decoder": {"type": "Sequence", "decoders": _decoders(spec, byte_fallback)},
        "model": model,
    }


def _template(vocabulary: Vocabulary, names: list[str]) -> dict[str, Any]:
    """What stands around one text and a pair: XLM and BERT separate it by one token, XLM-R two."""
    begin = [{"SpecialToken": {"id": names[vocabulary.bos_id], "type_id": 0}}]
    # Of T5 nothing opens a text but the padding that opens rows here.
    if vocabulary.bos_id == vocabulary.pad_id:
        begin = []
    end = {"SpecialToken": {"id": names[vocabulary.eos_id], "type_id": 0}}
    first = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    between = [end] * (vocabulary.pair_separators - 2)
    special_tokens = {}
    for name in sorted({names[vocabulary.bos_id], names[vocabulary.eos_id]}):
        special_tokens[name] = {"id": name, "ids": [names.index(name)], "tokens": [name]}
    return {
        "type": "TemplateProcessing",
        "single": [*begin, first, end],
        "pair": [*begin, first, *between, second, end],
        "special_tokens": special_tokens,
    }


def _names(vocabulary: Vocabulary) -> list[str]:
    """The text of each id; MASK of layout `xlm` has that of its piece."""
    names = vocabulary.pieces(range(vocabulary.size))
    if vocabulary.layout == "xlm":
        # XLM masks with this one of its spare pieces.
        names[vocabulary.mask_id] = "<special1>"
    if len({*names}) == len(names):
        return names
    twice = [name for name in names if names.count(name) > 1]
    raise UserError(
        f"the SentencePiece model has a piece {twice[0]!r}, which layout '{vocabulary.layout}' adds"
    )


def _added_tokens(vocabulary: Vocabulary, proto, names: list[str]) -> list[dict[str, Any]]:
    """Found in a text before the model sees it."""
    special = {*vocabulary.special_ids}
    for i, piece in zip(vocabulary.to_model.tolist(), proto.pieces, strict=True):
        if piece.type == CONTROL:
            special.add(i)
    # <mask> takes the space before it along, as XLM-R's does.
    return [{"id": i, **_added(names[i], lstrip=i == vocabulary.mask_id)} for i in sorted(special)]


def _added(content: str, lstrip: bool = False) -> dict[str, Any]:
    return {
        "content": content,
        "single_word": False,
        "lstrip": lstrip,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _require_sayable(proto) -> None:
    trainer = proto.trainer_spec
    scores = [
        piece.score for piece in proto.pieces if piece.type == NORMAL and len(piece.piece) > 1
    ]
    why = ""
    if trainer.model_type not in (UNIGRAM, BPE):
        why = "is of type word or char, not unigram or bpe"
    elif trainer.treat_whitespace_as_suffix:
        why = "marks the ends of words, not their starts"
    elif any(piece.type in (USER_DEFINED, UNUSED) for piece in proto.pieces):
        why = "has user-defined or unused pieces"
    elif proto.normalizer_spec.name == "user_defined":
        why = "has a normalization of its own"
    elif trainer.model_type == BPE and len({*scores}) < len(scores):
        why = "has pieces of the same score, and tokenizer.json a first and a second"
    if why:
        raise UserError(f"tokenizer.json cannot say this SentencePiece model, which {why}")


def _scores(vocabulary: Vocabulary, proto, names: list[str], normal: set[str]) -> list[list[Any]]:
    """[name, log probability] by id."""
    # tokenizers gives an unknown character the lowest score less 10, and would find special pieces
    # in a text. With a piece for every character that other pieces have, every cut has the same
    # unknown characters, and their score may be anything.
    lowest = 0.0 if not normal.issuperset("".join(normal)) else NEVER
    scores = [lowest] * len(names)
    for i, piece in zip(vocabulary.to_model.tolist(), proto.pieces, strict=True):
        if piece.type == NORMAL:
            scores[i] = piece.score
    return [[name, score] for name, score in zip(names, scores, strict=True)]


def _merges(proto) -> list[list[str]]:
    """The pairs of pieces that make a piece, the highest score first; several may make the same."""
    score_of = {piece.piece: piece.score for piece in proto.pieces if piece.type == NORMAL}
    pairs = []
    for piece in sorted(score_of, key=score_of.get, reverse=True):
        for cut in range(len(piece) - 1, 0, -1):
            first = piece[:cut]
            second = piece[cut:]
            if first in score_of and second in score_of:
                pairs.append([first, second])
    return pairs


def _normalizer(spec) -> dict[str, Any] | None:
    """SentencePiece's NormalizerSpec as steps of tokenizers."""
    space = SPACE if spec.escape_whitespaces else " "
    prefix = spec.add_dummy_prefix
    steps: list[dict[str, Any]] = []
    if prefix:
        steps.append({"type": "Prepend", "prepend": space})
    if spec.precompiled_charsmap:
        steps += _by_table(spec.precompiled_charsmap)
    if spec.remove_extra_whitespaces:
        leading = rf"(?<=\A{re.escape(space)}) +" if prefix else r"\A +"
        # Leading spaces are removed and not joined, so they go first.
        steps += [_replace(leading, ""), _replace(" {2,}", " "), _replace(rf"[{space} ]+\z", "")]
    if spec.escape_whitespaces:
        steps.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    return {"type": "Sequence", "normalizers": steps} if steps else None


def _by_table(charsmap: bytes) -> list[dict[str, Any]]:
    """The steps that do what the table `precompiled_charsmap` does.

    SentencePiece replaces the longest rule that begins at a place. The `Precompiled` step of
    tokenizers has the same table and another walk: of a grapheme of fewer than 6 bytes it takes the
    shortest rule and drops the rest ("¼" with a variation selector), of longer ones it knows the
    characters alone (a "が" of two code points stays as it is). So it is given single characters
    here, cut off by INNER; the rules of several are compositions of Unicode's, which NFC makes.
    NFC also puts marks in order, as those of vocalised Arabic and Hebrew; OUTER keeps marks that
    are part of no composition where they are.
    """
    return [
        _replace(rf"(?m:.)\K(?=[\p{{M}}&&[^{_composing()}]])", OUTER),
        {"type": "NFC"},
        _replace(r"(?m:.)\K(?=[^\x{00}-\x{7f}]|\n)", INNER),
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()},
        _replace(INNER, ""),
        {"type": "NFC"},
        _replace(OUTER, ""),
    ]


@functools.cache
def _composing() -> str:
    """The characters that NFC may compose with the one before, for a regular expression."""
    composing = set()
    # No other plane of Unicode has a combining character.
    for code in range(0x80, 0x20000):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and parts[0][0] != "<":
            composing.add(int(parts[1], 16))
    return "".join(rf"\x{{{code:x}}}" for code in sorted(composing))


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _decoders(spec, byte_fallback: bool) -> list[dict[str, Any]]:
    decoders = []
    if spec.escape_whitespaces:
        decoders.append({"type": "Replace", "pattern": {"String": SPACE}, "content": " "})
    if byte_fallback:
        decoders.append({"type": "ByteFallback"})
    decoders.append({"type": "Fuse"})
    if spec.add_dummy_prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return decoders
