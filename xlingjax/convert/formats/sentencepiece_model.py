"""A tokenizer.json as the SentencePiece model that gives the same ids in layout `xlmr`.

Read are the forms that this project and transformers write for XLM-R: a Unigram model with its
scores, or a BPE model whose merges are those of its pieces in their order, with SentencePiece's
normalization table and words marked by `▁`. Where `Precompiled` alone stands before them
(transformers' forms), tokenizers loses combining characters
(`charsmap`), and SentencePiece, which the model was trained with, does not.
"""

import base64
import json
from pathlib import Path
from typing import Any

from xlingjax.convert.formats.charsmap import SPACE, normalizer, rules
from xlingjax.convert.formats.tokenizer_json import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    merges,
)
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.tokenizer import TokenizerVocabulary
from xlingjax.errors import UserError

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
WHITE = "\t\n\v\f\r\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
METASPACE = {
    "type": "Metaspace",
    "replacement": SPACE,
    "prepend_scheme": "always",
    "split": True,
}
WORDS = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]}


def sentencepiece_model(path: Path) -> bytes:
    """The SentencePiece model of a `tokenizer.json`, for `Vocabulary(model, "xlmr")`. Raises
    UserError where the file is damaged, or holds what SentencePiece cannot do."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    return sentencepiece_model_of(content, path)


def with_sentencepiece(vocabulary: Vocabulary) -> Vocabulary:
    """The vocabulary as a SentencePiece model of the same pieces and ids, for what changes pieces:
    itself where it is one. Raises UserError where its tokenizer.json holds what SentencePiece
    cannot do."""
    if not isinstance(vocabulary, TokenizerVocabulary):
        return vocabulary
    made = Vocabulary(
        sentencepiece_model_of(vocabulary.content, "the run's tokenizer.json"), "xlmr"
    )
    if made.pieces(range(made.size)) != vocabulary.pieces(range(vocabulary.size)):
        raise UserError(
            "the run's tokenizer.json gives other ids than a SentencePiece model of its pieces"
            " would"
        )
    return made


def sentencepiece_model_of(content: bytes, path: Path | str) -> bytes:
    """As `sentencepiece_model`; path: of messages."""
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    try:
        told = json.loads(content)
        model, vocab = told["model"], told["model"]["vocab"]
        # Old files name no type.
        kind = model.get("type") or (
            "Unigram"
            if isinstance(vocab, list)
            else "BPE"
            if "merges" in model
            else None
        )
        proto = ModelProto()
        spec, trainer = proto.normalizer_spec, proto.trainer_spec
        _normalization(told, spec, path)
        if kind == "Unigram":
            names = [name for name, _ in vocab]
            scores = [score for _, score in vocab]
        elif kind == "BPE":
            names, scores = _bpe(model, path)
        else:
            raise UserError(
                f"{path}: a {kind} model; SentencePiece has Unigram and BPE"
            )
        names, scores = _without_mask(told, names, scores, path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is no whole tokenizer.json ({type(error).__name__}: {error})"
        ) from None
    if tuple(names[:4]) != SPECIAL or (kind == "Unigram" and model["unk_id"] != 3):
        raise UserError(
            f"{path}: its first pieces are {names[:4]}, not XLM-R's {', '.join(SPECIAL)}"
        )
    bytes_known = bool(model.get("byte_fallback"))
    for name, score in [
        ("<unk>", 0.0),
        ("<s>", 0.0),
        ("</s>", 0.0),
        *zip(names[4:], scores[4:], strict=True),
    ]:
        byte = (
            bytes_known
            and len(name) == 6
            and name.startswith("<0x")
            and name.endswith(">")
        )
        control = name in ("<s>", "</s>")
        kind_of = (
            UNKNOWN
            if name == "<unk>"
            else CONTROL
            if control
            else BYTE
            if byte
            else NORMAL
        )
        proto.pieces.add(piece=name, score=0.0 if byte else score, type=kind_of)
    trainer.model_type = UNIGRAM if kind == "Unigram" else BPE
    trainer.vocab_size, trainer.byte_fallback = len(proto.pieces), bytes_known
    trainer.unk_id, trainer.bos_id, trainer.eos_id, trainer.pad_id = 0, 1, 2, -1
    if kind == "BPE" and _grouped(merges(proto)) != _grouped(_pairs(model)):
        raise UserError(
            f"{path}: its merges are not those of a SentencePiece model (all pairs that make a"
            " piece, one piece after the other); give sentencepiece.bpe.model"
        )
    return proto.SerializeToString()


def _without_mask(
    told: Any, names: list[str], scores: list[float], path: Path | str
) -> tuple[list[str], list[float]]:
    """The pieces before `<mask>`, which has the last id, as a piece or an added token."""
    last = len(names)
    if names[-1] == MASK:
        names, scores, last = names[:-1], scores[:-1], last - 1
    added = {token["content"]: token["id"] for token in told["added_tokens"]}
    if foreign := sorted(added.keys() - {*SPECIAL, MASK}):
        raise UserError(
            f"{path}: the added token {foreign[0]!r} is none of XLM-R's; SentencePiece would cut"
            " it up"
        )
    wanted = {**{name: i for i, name in enumerate(SPECIAL)}, MASK: last}
    if added != wanted:
        raise UserError(
            f"{path}: its added tokens are {added}, not {wanted} as XLM-R's"
        )
    for token in told["added_tokens"]:
        if token["rstrip"] or token["single_word"]:
            raise UserError(
                f"{path}: {token['content']} takes the text around it along; XLM-R's does not"
            )
    return names, scores


def _normalization(told: Any, spec, path: Path | str) -> None:
    """Fills SentencePiece's NormalizerSpec."""
    steps = told["normalizer"] or {"type": "Sequence", "normalizers": []}
    steps = steps["normalizers"] if steps["type"] == "Sequence" else [steps]
    tables = [step for step in steps if step["type"] == "Precompiled"]
    table = (
        base64.b64decode(tables[0]["precompiled_charsmap"], validate=True)
        if tables
        else b""
    )
    spec.name, spec.precompiled_charsmap, spec.escape_whitespaces = (
        "tokenizer.json",
        table,
        True,
    )
    before = _usual(told["pre_tokenizer"])
    if before is not None and {**before, "split": True} == {
        **METASPACE,
        "prepend_scheme": "never",
    }:
        for prefix, collapse in ((a, b) for a in (True, False) for b in (True, False)):
            if normalizer(table, prefix, collapse, True) == told["normalizer"]:
                spec.add_dummy_prefix, spec.remove_extra_whitespaces = prefix, collapse
                return
        raise UserError(
            f"{path}: its normalizer is not one that SentencePiece has; give"
            " sentencepiece.bpe.model"
        )
    rest = [step for step in steps if step["type"] != "Precompiled"]
    if (
        len(tables) > 1
        or (tables and steps[0] is not tables[0])
        or not all(map(_collapses, rest))
    ):
        strange = next(
            (step["type"] for step in rest if not _collapses(step)), "Precompiled"
        )
        raise UserError(
            f"{path}: its normalizer {strange} is not one that SentencePiece has"
        )
    stripped = {"Strip", "Replace"} == {step["type"] for step in rest}
    if before != WORDS and not (before == METASPACE and stripped):
        raise UserError(
            f"{path}: its pre-tokenizer does not split at white space and mark words with {SPACE}"
            " (WhitespaceSplit, Metaspace), as XLM-R's does"
        )
    known = rules(table) if table else {}
    if any(
        character not in known or set(known[character]) - {" "} for character in WHITE
    ):
        raise UserError(
            f"{path}: its normalizer leaves white space (tab, U+00A0) that its pre-tokenizer splits"
            " at and SentencePiece does not"
        )
    spec.add_dummy_prefix = spec.remove_extra_whitespaces = True


def _usual(step: Any) -> Any:
    """A pre-tokenizer as `tokenizers` writes it today; older files have `add_prefix_space`, and no
    `split`."""
    if not isinstance(step, dict):
        return None
    step = dict(step)
    if step["type"] == "Sequence":
        step["pretokenizers"] = [_usual(inner) for inner in step["pretokenizers"]]
    elif step["type"] == "Metaspace":
        prefix = step.pop("add_prefix_space", True)
        step.pop("str_rep", None)
        step.setdefault("prepend_scheme", "always" if prefix else "never")
        step.setdefault("split", True)
    return step


def _collapses(step: dict[str, Any]) -> bool:
    """Whether the step only takes spaces away that SentencePiece takes away."""
    if step["type"] == "Strip":
        return step["strip_right"]
    return (
        step["type"] == "Replace"
        and step["pattern"] == {"Regex": " {2,}"}
        and step["content"] in (" ", SPACE)
    )


def _pairs(model: Any) -> list[list[str]]:
    return [
        pair.split(" ") if isinstance(pair, str) else list(pair)
        for pair in model["merges"]
    ]


def _grouped(pairs: list[list[str]]) -> list[tuple[str, frozenset]]:
    """(the piece, the pairs that make it) in the order of the pairs."""
    groups: list[tuple[str, set]] = []
    for first, second in pairs:
        if not groups or groups[-1][0] != first + second:
            groups.append((first + second, set()))
        groups[-1][1].add((first, second))
    return [(piece, frozenset(made)) for piece, made in groups]


def _bpe(model: Any, path: Path | str) -> tuple[list[str], list[float]]:
    """The pieces by id, and as scores minus the place at which the merges make them, characters
    last."""
    if (
        model.get("continuing_subword_prefix")
        or model.get("end_of_word_suffix")
        or model.get("dropout")
    ):
        raise UserError(
            f"{path}: a BPE model with prefixes, suffixes or dropout; SentencePiece has none of"
            " them"
        )
    if not model["fuse_unk"] or model.get("ignore_merges"):
        raise UserError(
            f"{path}: a BPE model with fuse_unk=false or ignore_merges=true; SentencePiece's is"
            " neither"
        )
    names = sorted(model["vocab"], key=model["vocab"].get)
    if [model["vocab"][name] for name in names] != list(range(len(names))):
        raise UserError(f"{path}: the ids of its pieces have gaps")
    order: dict[str, int] = {}
    for first, second in _pairs(model):
        order.setdefault(first + second, len(order))
    return names, [
        -float(order.get(name, len(order) + i)) for i, name in enumerate(names)
    ]
