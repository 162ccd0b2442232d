"""Our vocabulary as the tokenizer files of a Hugging Face folder, and back: tokenizer.json (the
`tokenizers` library) and its configuration, giving `[bos_id, *vocabulary.encode(text), eos_id]`.

Where it does not:
- A special token written in the text (`<mask>`, `</s>`) is one id, as the users of that library
  expect, and cut up by SentencePiece; `tokenizer(text, split_special_tokens=True)` cuts it up, too.
  A Unigram model that has no `<` or `>` takes the name of a special or byte piece (`<0x41>`) for
  that piece even so.
- Where two cuts of a text by a Unigram model have the same score, as of a long row of dots,
  SentencePiece takes either: it adds in single precision, tokenizers in double.
- The rules of the normalization table that `charsmap.UNLIKE_NFC` names.

The other way, a tokenizer.json becomes the SentencePiece model that gives the same ids in layout
`xlmr`. Read are the forms that this project and transformers write for XLM-R: a Unigram model with
its scores, or a BPE model whose merges are those of its pieces in their order, with SentencePiece's
normalization table and words marked by `▁`. Where `Precompiled` alone stands before them
(transformers' forms), tokenizers loses combining characters (`charsmap`), and SentencePiece, which
the model was trained with, does not.
"""

import base64
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.convert.formats.charsmap import SPACE, normalizer, rules
from xlingjax.data.vocabulary.fastbpe import FastBpeVocabulary
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json

UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""SentencePiece's `ModelProto.SentencePiece.Type`."""
NEVER = -1e6
"""The score of pieces that no text is cut into."""


def tokenizer_files(
    vocabulary: Vocabulary, max_length: int, languages: Sequence[str] | None = None
) -> dict[str, bytes]:
    """{file name: content} of what transformers' AutoTokenizer opens; `max_length` in tokens,
    specials counted.

    The class is PreTrainedTokenizerFast, which takes tokenizer.json as it is: transformers'
    XLMRobertaTokenizer keeps only its scores and table, and so loses combining characters (see
    `charsmap`). It opens the files of layout `xlmr`, too, with that loss. XLM's byte pair codes
    have files of their own, of XLMTokenizer. languages: of an encoder-decoder, whose sources stand
    between bos and eos: the names of its language tokens, added behind the vocabulary. Raises
    UserError for a SentencePiece model that tokenizer.json cannot say.
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
    mask = names[vocabulary.mask_id]
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
        "mask_token": {"__type": "AddedToken", **_mask(vocabulary, mask)},
    }
    content = tokenizer_json(vocabulary)
    if languages is not None:
        tokens = list(content.get("added_tokens") or ())
        for number, name in enumerate(languages, vocabulary.size):
            tokens.append({"id": number, **_added(name)})
        content |= {"added_tokens": tokens, "post_processor": _template(vocabulary, names)}
    files = {"tokenizer.json": _bytes(content), "tokenizer_config.json": _bytes(config, indent=2)}
    if vocabulary.layout == "xlmr":
        files["sentencepiece.bpe.model"] = vocabulary.model_bytes
    return files


def _bytes(content: Any, indent: int | None = None) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=indent) + "\n").encode()


def proto_of(model: bytes):
    """The SentencePiece model's ModelProto."""
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    return ModelProto.FromString(model)


def tokenizer_json(vocabulary: Vocabulary) -> dict[str, Any]:
    """The content of tokenizer.json, which a `TokenizerVocabulary` has already. Raises UserError
    for a SentencePiece model that it cannot say."""
    names = _names(vocabulary)
    if vocabulary.layout == "tokenizer":
        content = parsed_json(vocabulary.content)
        # Its own where it has one; without any, texts would stand without special tokens.
        template = content.get("post_processor") or _template(vocabulary, names)
        return {**content, "post_processor": template}
    proto = proto_of(vocabulary.model_bytes)
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
            "dropout": None,
            "unk_token": names[vocabulary.unk_id],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": byte_fallback,
            "ignore_merges": False,
            "vocab": {name: i for i, name in enumerate(names)},
            "merges": merges(proto),
        }
    metaspace = None
    if spec.escape_whitespaces:
        metaspace = {
            "type": "Metaspace",
            "replacement": SPACE,
            "prepend_scheme": "never",
            "split": _split(proto, normal),
        }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(vocabulary, proto, names),
        "normalizer": normalizer(
            spec.precompiled_charsmap,
            spec.add_dummy_prefix,
            spec.remove_extra_whitespaces,
            spec.escape_whitespaces,
        ),
        "pre_tokenizer": metaspace,
        "post_processor": _template(vocabulary, names),
        "decoder": {"type": "Sequence", "decoders": _decoders(spec, byte_fallback)},
        "model": model,
    }


def _template(vocabulary: Vocabulary, names: list[str]) -> dict[str, Any]:
    """What stands around one text and a pair. XLM and BERT have one separator between the two,
    XLM-R two."""
    begin = {"SpecialToken": {"id": names[vocabulary.bos_id], "type_id": 0}}
    end = {"SpecialToken": {"id": names[vocabulary.eos_id], "type_id": 0}}
    first = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    between = [end] * (vocabulary.pair_separators - 2)
    special_tokens = {}
    for name in sorted({names[vocabulary.bos_id], names[vocabulary.eos_id]}):
        special_tokens[name] = {"id": name, "ids": [names.index(name)], "tokens": [name]}
    return {
        "type": "TemplateProcessing",
        "single": [begin, first, end],
        "pair": [begin, first, *between, second, end],
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


def _types(vocabulary: Vocabulary, proto) -> list[int]:
    types = [CONTROL] * vocabulary.size
    for i, piece in zip(vocabulary.to_model.tolist(), proto.pieces, strict=True):
        types[i] = piece.type
    return types


def _added_tokens(vocabulary: Vocabulary, proto, names: list[str]) -> list[dict[str, Any]]:
    """Found in a text before the model sees it."""
    kinds = {CONTROL}
    if proto.trainer_spec.model_type == BPE:
        # A Unigram model keeps them whole by their score (see `_scores`).
        kinds.add(USER_DEFINED)
    types = _types(vocabulary, proto)
    tokens = []
    for i, name in enumerate(names):
        if i in vocabulary.special_ids or types[i] in kinds:
            # Special ones are left out when ids become text again; a user's own pieces are text.
            special = types[i] != USER_DEFINED
            # <mask> takes the space before it along, as XLM-R's does.
            token = _added(name, lstrip=i == vocabulary.mask_id, special=special)
            tokens.append({"id": i, **token})
    return tokens


def _added(content: str, lstrip: bool = False, special: bool = True) -> dict[str, Any]:
    return {
        "content": content,
        "single_word": False,
        "lstrip": lstrip,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def _mask(vocabulary: Vocabulary, name: str) -> dict[str, Any]:
    """The mask as an added token: of a tokenizer.json as it stands there."""
    if vocabulary.layout != "tokenizer":
        return _added(name, lstrip=True)
    for token in parsed_json(vocabulary.content)["added_tokens"]:
        if token["content"] == name:
            token.pop("id", None)
            return token
    return _added(name)


def _require_sayable(proto) -> None:
    trainer = proto.trainer_spec
    if trainer.model_type not in (UNIGRAM, BPE):
        raise UserError(
            "tokenizer.json needs a SentencePiece model of type unigram or bpe; this one is word or"
            " char"
        )
    if trainer.treat_whitespace_as_suffix:
        raise UserError(
            "tokenizer.json cannot say a SentencePiece model that marks the ends of words, not"
            " their starts"
        )
    for piece in proto.pieces:
        if piece.type == UNUSED:
            raise UserError(
                "tokenizer.json cannot say the unused pieces of a SentencePiece model, as"
                f" {piece.piece!r}"
            )
    _require_sayable_pieces(proto)
    if trainer.model_type == BPE:
        _require_sayable_merges(_normal_scores(proto))


def _require_sayable_pieces(proto) -> None:
    """Of those that the user of SentencePiece defined."""
    spec = proto.normalizer_spec
    pieces = [piece.piece for piece in proto.pieces if piece.type == USER_DEFINED]
    table = rules(spec.precompiled_charsmap) if pieces and spec.precompiled_charsmap else {}
    moves_spaces = spec.add_dummy_prefix or spec.remove_extra_whitespaces
    for piece in pieces:
        if " " in piece or any(text in piece for text in table):
            raise UserError(
                f"the user-defined piece {piece!r} is text that the model's normalization rewrites"
            )
        # There they are added tokens, and what stands on their two sides is normalized alone.
        if proto.trainer_spec.model_type == BPE and moves_spaces:
            raise UserError(
                f"tokenizer.json cannot say the user-defined piece {piece!r} of a bpe model that"
                " puts a space before the text or removes spaces (add_dummy_prefix,"
                " remove_extra_whitespaces)"
            )


def _require_sayable_merges(score_of: dict[str, float]) -> None:
    long = [score for piece, score in score_of.items() if len(piece) > 1]
    if len({*long}) < len(long):
        raise UserError(
            "the bpe model has pieces of the same score: tokenizer.json has a first and a second"
        )
    for piece in score_of:
        if not score_of.keys() >= set(piece):
            raise UserError(
                f"the bpe model has no piece for a character of its piece {piece!r}; train it anew"
            )


def _normal_scores(proto) -> dict[str, float]:
    return {piece.piece: piece.score for piece in proto.pieces if piece.type == NORMAL}


def _scores(vocabulary: Vocabulary, proto, names: list[str], normal: set[str]) -> list[list[Any]]:
    """[name, log probability] by id."""
    # tokenizers gives an unknown character the lowest score less 10, and would find special pieces
    # in a text. With a piece for every character that other pieces have, every cut has the same
    # unknown characters, and their score may be anything.
    lowest = 0.0 if not normal.issuperset("".join(normal)) else NEVER
    scores = [lowest] * len(names)
    highest = max(piece.score for piece in proto.pieces if piece.type == NORMAL)
    for i, piece in zip(vocabulary.to_model.tolist(), proto.pieces, strict=True):
        if piece.type == NORMAL:
            scores[i] = piece.score
        elif piece.type == USER_DEFINED:
            # Above every cut of it into other pieces, so
            # that it is always taken, as SentencePiece does.
            scores[i] = len(piece.piece.encode()) * max(highest, 0.0) - 0.1
    return [[name, score] for name, score in zip(names, scores, strict=True)]


def merges(proto) -> list[list[str]]:
    """The pairs of pieces that make a piece, those of the highest score first; it may be made of
    several pairs."""
    score_of = _normal_scores(proto)
    pairs = []
    for piece in sorted(score_of, key=score_of.get, reverse=True):
        for cut in range(len(piece) - 1, 0, -1):
            first = piece[:cut]
            second = piece[cut:]
            if first in score_of and second in score_of:
                pairs.append([first, second])
    return pairs


def _split(proto, normal: set[str]) -> bool:
    """Whether words can be cut one by one, which is faster: no piece goes on into the next word."""
    if SPACE not in normal:
        return False
    for piece in proto.pieces:
        if piece.type in (NORMAL, USER_DEFINED) and SPACE in piece.piece[1:]:
            return False
    return True


def _decoders(spec, byte_fallback: bool) -> list[dict[str, Any]]:
    decoders = []
    if spec.escape_whitespaces:
        decoders.append({"type": "Replace", "pattern": {"String": SPACE}, "content": " "})
    if byte_fallback:
        decoders.append({"type": "ByteFallback"})
    decoders.append({"type": "Fuse"})
    if spec.add_dummy_prefix:
        # The space that was put before the text.
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return decoders


# ---- a SentencePiece model of a tokenizer.json ----

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
    if vocabulary.layout != "tokenizer":
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
        _fill_normalization(tokenizer, proto.normalizer_spec, path)
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
    return BYTE if byte_fallback and is_byte else NORMAL


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


def _fill_normalization(tokenizer: Any, spec, path: Path | str) -> None:
    """Fills SentencePiece's NormalizerSpec."""
    steps = _steps(tokenizer["normalizer"])
    tables = [step for step in steps if step["type"] == "Precompiled"]
    table = base64.b64decode(tables[0]["precompiled_charsmap"], validate=True) if tables else b""
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
    replacements = rules(table) if table else {}
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
        scheme = "always" if step.pop("add_prefix_space", True) else "never"
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
