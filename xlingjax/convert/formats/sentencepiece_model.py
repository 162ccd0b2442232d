"""A tokenizer.json as the SentencePiece model that gives the same ids in layout `xlmr`.

Read are the forms that this project and transformers write for XLM-R: a Unigram model with its
scores, or a BPE model whose merges are those of its pieces in their order, with SentencePiece's
normalization table and words marked by `▁`. Where `Precompiled` alone stands before them
(transformers' forms), tokenizers loses combining characters
(`charsmap`), and SentencePiece, which the model was trained with, does not.
"""

import base64
import itertools
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
from xlingjax.runtime.files import parsed_json

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
WHITE = "\t\n\v\f\r\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
METASPACE = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
OWN_METASPACE = {**METASPACE, "prepend_scheme": "never"}
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
    model = sentencepiece_model_of(vocabulary.content, "the run's tokenizer.json")
    made = Vocabulary(model, "xlmr")
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
        tokenizer = parsed_json(content)
        model = tokenizer["model"]
        kind = _kind(model)
        proto = ModelProto()
        _normalization(tokenizer, proto.normalizer_spec, path)
        if kind == "Unigram":
            names = [name for name, _ in model["vocab"]]
            scores = [score for _, score in model["vocab"]]
        elif kind == "BPE":
            names, scores = _bpe(model, path)
        else:
            raise UserError(f"{path}: a {kind} model; SentencePiece has Unigram and BPE")
        names, scores = _without_mask(tokenizer, names, scores, path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is no whole tokenizer.json ({type(error).__name__}: {error})"
        ) from None
    if tuple(names[:4]) != SPECIAL or (kind == "Unigram" and model["unk_id"] != 3):
        raise UserError(
            f"{path}: its first pieces are {names[:4]}, not XLM-R's {', '.join(SPECIAL)}"
        )
    byte_fallback = bool(model.get("byte_fallback"))
    # fairseq's order of the first three; SentencePiece's models have no padding.
    for name in ("<unk>", "<s>", "</s>"):
        proto.pieces.add(piece=name, score=0.0, type=_type(name, byte_fallback))
    for name, score in zip(names[4:], scores[4:], strict=True):
        type_ = _type(name, byte_fallback)
        if type_ == BYTE:
            score = 0.0
        proto.pieces.add(piece=name, score=score, type=type_)
    # Written, though nothing is trained: SentencePiece
    # reads the kind of the model and its ids there.
    trainer = proto.trainer_spec
    trainer.model_type = BPE
    if kind == "Unigram":
        trainer.model_type = UNIGRAM
    trainer.vocab_size = len(proto.pieces)
    trainer.byte_fallback = byte_fallback
    trainer.unk_id = 0
    trainer.bos_id = 1
    trainer.eos_id = 2
    trainer.pad_id = -1
    if kind == "BPE" and _grouped(merges(proto)) != _grouped(_pairs(model)):
        raise UserError(
            f"{path}: its merges are not those of a SentencePiece model (all pairs that make a"
            " piece, one piece after the other); give sentencepiece.bpe.model"
        )
    return proto.SerializeToString()


def _kind(model: Any) -> str | None:
    if model.get("type"):
        return model["type"]
    # Old files name no type.
    if isinstance(model["vocab"], list):
        return "Unigram"
    if "merges" in model:
        return "BPE"
    return None


def _type(name: str, byte_fallback: bool) -> int:
    if name == "<unk>":
        return UNKNOWN
    if name in ("<s>", "</s>"):
        return CONTROL
    is_byte = len(name) == 6 and name.startswith("<0x") and name.endswith(">")
    # Without fallback to bytes such a piece is text.
    if byte_fallback and is_byte:
        return BYTE
    return NORMAL


def _without_mask(
    tokenizer: Any, names: list[str], scores: list[float], path: Path | str
) -> tuple[list[str], list[float]]:
    """The pieces before `<mask>`, which has the last id, as a piece or an added token."""
    if names[-1] == MASK:
        names = names[:-1]
        scores = scores[:-1]
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    foreign = sorted(added.keys() - {*SPECIAL, MASK})
    if foreign:
        raise UserError(
            f"{path}: the added token {foreign[0]!r} is none of XLM-R's; SentencePiece would cut"
            " it up"
        )
    wanted = {name: i for i, name in enumerate(SPECIAL)}
    wanted[MASK] = len(names)
    if added != wanted:
        raise UserError(f"{path}: its added tokens are {added}, not {wanted} as XLM-R's")
    for token in tokenizer["added_tokens"]:
        # `lstrip` may be set: XLM-R's <mask> takes the space before it along.
        if token["rstrip"] or token["single_word"]:
            raise UserError(
                f"{path}: {token['content']} takes the text around it along; XLM-R's does not"
            )
    return names, scores


def _normalization(tokenizer: Any, spec, path: Path | str) -> None:
    """Fills SentencePiece's NormalizerSpec."""
    steps = _steps(tokenizer["normalizer"])
    tables = [step for step in steps if step["type"] == "Precompiled"]
    table = b""
    if tables:
        table = base64.b64decode(tables[0]["precompiled_charsmap"], validate=True)
    spec.name = "tokenizer.json"
    spec.precompiled_charsmap = table
    spec.escape_whitespaces = True
    before = _usual(tokenizer["pre_tokenizer"])
    # As this project writes it: the normalizer puts the mark before the text.
    if before is not None and {**before, "split": True} == OWN_METASPACE:
        # Our normalizer is written from these two flags alone, so it is one of four.
        for prefix, collapse in itertools.product((True, False), repeat=2):
            if normalizer(table, prefix, collapse, True) == tokenizer["normalizer"]:
                spec.add_dummy_prefix = prefix
                spec.remove_extra_whitespaces = collapse
                return
        raise UserError(
            f"{path}: its normalizer is not one that SentencePiece has; give"
            " sentencepiece.bpe.model"
        )
    rest = [step for step in steps if step["type"] != "Precompiled"]
    foreign = [step["type"] for step in rest if not _collapses(step)]
    if len(tables) > 1 or (tables and steps[0] is not tables[0]):
        # A table that does not come first.
        foreign.append("Precompiled")
    if foreign:
        raise UserError(f"{path}: its normalizer {foreign[0]} is not one that SentencePiece has")
    stripped = {"Strip", "Replace"} == {step["type"] for step in rest}
    if before != WORDS and not (before == METASPACE and stripped):
        raise UserError(
            f"{path}: its pre-tokenizer does not split at white space and mark words with {SPACE}"
            " (WhitespaceSplit, Metaspace), as XLM-R's does"
        )
    replacements = {}
    if table:
        replacements = rules(table)
    for character in WHITE:
        if set(replacements.get(character, character)) - {" "}:
            raise UserError(
                f"{path}: its normalizer leaves white space (tab, U+00A0) that its pre-tokenizer"
                " splits at and SentencePiece does not"
            )
    spec.add_dummy_prefix = True
    spec.remove_extra_whitespaces = True


def _steps(step: Any) -> list[dict[str, Any]]:
    if not step:
        return []
    if step["type"] == "Sequence":
        return step["normalizers"]
    return [step]


def _usual(step: Any) -> Any:
    """A pre-tokenizer as `tokenizers` writes it today; older files have `add_prefix_space`, and no
    `split`."""
    if not isinstance(step, dict):
        return None
    step = dict(step)
    if step["type"] == "Sequence":
        step["pretokenizers"] = [_usual(inner) for inner in step["pretokenizers"]]
    elif step["type"] == "Metaspace":
        scheme = "never"
        if step.pop("add_prefix_space", True):
            scheme = "always"
        step.pop("str_rep", None)
        step.setdefault("prepend_scheme", scheme)
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
    pairs = []
    for pair in model["merges"]:
        # Older files have "first second".
        if isinstance(pair, str):
            pair = pair.split(" ")
        pairs.append(list(pair))
    return pairs


def _grouped(pairs: list[list[str]]) -> list[tuple[str, frozenset]]:
    """(the piece, the pairs that make it) in the order of the pairs."""
    # Which pair of one piece comes first makes no difference: the piece is the same.
    groups: list[tuple[str, set]] = []
    for first, second in pairs:
        if not groups or groups[-1][0] != first + second:
            groups.append((first + second, set()))
        groups[-1][1].add((first, second))
    return [(piece, frozenset(made)) for piece, made in groups]


def _bpe(model: Any, path: Path | str) -> tuple[list[str], list[float]]:
    """The pieces by id, and as scores minus the place at which the merges make them, characters
    last."""
    for option in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(option):
            raise UserError(
                f"{path}: a BPE model with prefixes, suffixes or dropout; SentencePiece has none"
                " of them"
            )
    if not model["fuse_unk"] or model.get("ignore_merges"):
        raise UserError(
            f"{path}: a BPE model with fuse_unk=false or ignore_merges=true; SentencePiece's is"
            " neither"
        )
    # By id: JSON keeps the order of writing, which need not be that of the ids.
    names = sorted(model["vocab"], key=model["vocab"].get)
    if [model["vocab"][name] for name in names] != list(range(len(names))):
        raise UserError(f"{path}: the ids of its pieces have gaps")
    order: dict[str, int] = {}
    for first, second in _pairs(model):
        # The first of several pairs that make one piece: it is merged then.
        order.setdefault(first + second, len(order))
    scores = []
    for i, name in enumerate(names):
        place = order.get(name, len(order) + i)
        scores.append(-float(place))
    return names, scores
