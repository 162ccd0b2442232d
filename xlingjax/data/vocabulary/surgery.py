"""Vocabularies made from a vocabulary: more pieces, fewer, and which rows correspond.

Of SentencePiece's models the pieces are rewritten and nothing else: normalisation and the old
scores stay, so that text of old pieces is cut as before.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log
from typing import Any

import numpy as np

from xlingjax.data.text.texts import Text
from xlingjax.data.vocabulary import tokenizer_surgery
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.tokenizer import TokenizerVocabulary
from xlingjax.data.vocabulary.training import explain, learnt, sentences_of, smoothed_sample
from xlingjax.errors import UserError

UNIGRAM = 1  # TrainerSpec.ModelType, of the kind that can be changed
NORMAL = 1  # SentencePiece.Type
SPACE = "\u2581"
CHUNK = 8192
OF_TRAINING = (
    "split_by_unicode_script",
    "split_by_whitespace",
    "split_by_number",
    "split_digits",
    "max_sentencepiece_length",
    "treat_whitespace_as_suffix",
    "allow_whitespace_only_pieces",
)
"""What the new pieces are made like the old ones by."""


def chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    lines = iter(lines)
    while chunk := list(itertools.islice(lines, CHUNK)):
        yield chunk


def proto_of(vocabulary: Vocabulary) -> Any:
    """Its SentencePiece ModelProto. Raises UserError for another kind of model than Unigram."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.model_bytes or b"")
    if vocabulary.model_bytes is None or proto.trainer_spec.model_type != UNIGRAM:
        message = "pieces of SentencePiece's unigram models alone are dropped, spelt and learnt"
        if vocabulary.model_bytes is None:
            message += "; where the model was released with one, import it with that beside it"
        raise UserError(f"the vocabulary is {vocabulary!r}: {message}")
    return proto


def _rewritten(proto: Any, pieces: Sequence[Any], layout: str) -> Vocabulary:
    """The vocabulary with these pieces. They are copied: a proto's list owns its own."""
    rewritten = type(proto)()
    rewritten.CopyFrom(proto)
    del rewritten.pieces[:]
    rewritten.pieces.extend(pieces)
    rewritten.trainer_spec.vocab_size = len(pieces)
    # It says how the old pieces cut sample sentences, and loading would check it.
    rewritten.ClearField("self_test_data")
    return Vocabulary(rewritten.SerializeToString(), layout)


def spellings(vocabulary: Vocabulary, pieces: Sequence[str]) -> list[list[int]]:
    """The rows of the pieces that spell each as it stands; none where one of them is unknown."""
    if isinstance(vocabulary, TokenizerVocabulary):
        return tokenizer_surgery.spellings(vocabulary, pieces)
    import sentencepiece

    proto = proto_of(vocabulary)
    # A piece within a word has no space before it, and those of the piece are its own.
    proto.normalizer_spec.add_dummy_prefix = False
    proto.normalizer_spec.remove_extra_whitespaces = False
    proto.ClearField("self_test_data")
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    unknown = processor.unk_id()
    rows = []
    for ids in processor.encode([piece.replace(SPACE, " ") for piece in pieces]):
        # One unknown part, and the rest would spell another piece.
        rows.append([] if unknown in ids else vocabulary.to_model[ids].tolist())
    return rows


def source_rows(old: Vocabulary, new: Vocabulary) -> np.ndarray:
    """int32 [size of new]: the old row that means the same, -1 where none does. A special row is
    found by what it is for (`</s>` ends, in layout "xlm" it begins too; MASK is not where it was),
    any other by its piece."""
    # Special or not is part of the key: an ordinary piece may be spelt like a special token.
    old_rows = {}
    for i, piece in enumerate(old.pieces(range(old.size))):
        old_rows[i in old.special_ids, piece] = i
    rows = np.full(new.size, -1, np.int32)
    for i, piece in enumerate(new.pieces(range(new.size))):
        rows[i] = old_rows.get((i in new.special_ids, piece), -1)
    # The end after the beginning: a row that is both gets what ended a sentence.
    for role in ("bos_id", "eos_id", "pad_id", "unk_id", "mask_id"):
        rows[getattr(new, role)] = getattr(old, role)
    return rows


def extend(
    old: Vocabulary,
    by_language: Mapping[str, Sequence[Text]],
    pieces: int,
    *,
    old_lines: Sequence[str] = (),
    character_coverage: float = 0.9995,
    alpha: float = 0.5,
    sentences: int = 1_000_000,
    seed: int = 0,
    threads: int = 2,
) -> Vocabulary:
    """`old` with `pieces` more, learnt on the text by SentencePiece, normalised alike; of a
    tokenizer.json as `tokenizer_surgery.extend` tells.

    All characters of the text that `old` lacks (`character_coverage`) are among them. A new piece
    keeps the score that it has in its own model, but one that old pieces can spell is weighted by
    the new ones' share of the vocabulary, log(new / all), since it stands beside pieces scored on
    other text; none goes below the lowest old score, from which SentencePiece derives that of
    unknown characters. Pieces that old pieces can spell and that the best cut of `old_lines` would
    use are left out and others taken. Raises UserError: text that gives fewer pieces, more
    characters than pieces.
    """
    sample, _ = smoothed_sample(by_language, alpha, sentences, seed)
    if isinstance(old, TokenizerVocabulary):
        given = {"old_lines": old_lines, "character_coverage": character_coverage}
        return tokenizer_surgery.extend(old, [*sample], pieces, **given)
    proto = proto_of(old)
    known = {piece.piece for piece in proto.pieces}
    # As the vocabulary reads them, so that any rule of normalisation is the new pieces' too. In
    # memory, since they may be learnt from several times.
    lines = [old.normalized(line).strip() for line in sample]

    @functools.cache
    def candidates(size: int) -> list[tuple[str, float]]:
        return _learnt(proto, lines, size, character_coverage, threads)

    left_out: set[str] = set()
    # Asked for again, and for more, when too many of them are known or left out.
    size = pieces
    while True:
        all_learnt = candidates(size)
        pool = [one for one in all_learnt if one[0] not in known | left_out]
        # A character that is missing is unknown wherever it stands, a longer piece only cut in two.
        pool.sort(key=lambda one: (len(one[0]) > 1, -one[1]))
        if len(pool) < pieces:
            # The trainer gave all that it could, so asking for more would go on for ever.
            if len(all_learnt) < size:
                raise UserError(
                    f"--pieces {pieces}: the text gives {len(pool)} pieces that the vocabulary"
                    " lacks; ask for fewer, or give more text"
                )
            size = len(all_learnt) + pieces - len(pool)
            continue
        characters = sum(len(piece) == 1 for piece, _ in pool)
        if characters > pieces:
            raise UserError(
                f"--pieces {pieces}: the text has {characters} characters that the vocabulary"
                " lacks; give at least so many, or lower --character-coverage"
            )
        names = [piece for piece, _ in pool[:pieces]]
        spelt = {piece for piece, rows in zip(names, spellings(old, names), strict=True) if rows}
        extended = _appended(old, proto, pool[:pieces], spelt)
        # Tried out, since a score does not tell which cut wins.
        used = np.flatnonzero(count_rows(extended, old_lines))
        unwanted = spelt & {*extended.pieces(used)}
        if not unwanted:
            return extended
        left_out |= unwanted


def _learnt(
    proto: Any, lines: list[str], size: int, character_coverage: float, threads: int
) -> list[tuple[str, float]]:
    """(piece, score) of `size` pieces, or of as many as the text has."""
    # The trainer refuses a size that cannot hold the characters and <unk>.
    smallest = len({*"".join(lines)}) + 1
    options = {name: getattr(proto.trainer_spec, name) for name in OF_TRAINING}
    try:
        model = learnt(
            iter(lines),
            max(size, smallest) + 1,
            threads,
            model_type="unigram",
            # Fewer than asked for are no failure.
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            # The lines are normalised already, as the old vocabulary does it.
            normalization_rule_name="identity",
            # Normalising stripped that space, so the trainer puts it where the old one did.
            add_dummy_prefix=proto.normalizer_spec.add_dummy_prefix,
            # No special piece but <unk>, without which SentencePiece does not train.
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            **options,
        )
    except RuntimeError as error:
        raise UserError(explain(str(error), size)) from None
    pieces = type(proto).FromString(model).pieces
    return [(piece.piece, piece.score) for piece in pieces if piece.type == NORMAL]


def _appended(
    old: Vocabulary, proto: Any, chosen: Sequence[tuple[str, float]], spelt: set[str]
) -> Vocabulary:
    # Of ordinary pieces, since special ones have score 0, the best there is.
    lowest = min(piece.score for piece in proto.pieces if piece.type == NORMAL)
    shift = log(len(chosen) / (len(proto.pieces) + len(chosen)))
    pieces = list(proto.pieces)
    for piece, score in chosen:
        if piece in spelt:
            score += shift
        score = max(score, lowest)
        pieces.append(type(proto).SentencePiece(piece=piece, score=score, type=NORMAL))
    return _rewritten(proto, pieces, old.layout)


def count_rows(vocabulary: Vocabulary, lines: Iterable[str]) -> np.ndarray:
    """int64 [size]: how often each row occurs in the text."""
    counts = np.zeros(vocabulary.size, np.int64)
    for chunk in chunks(lines):
        ids, _ = vocabulary.encode_lines(chunk, threads=2)
        counts += np.bincount(ids, minlength=vocabulary.size)
    return counts


def trim(
    old: Vocabulary,
    texts: Sequence[Text],
    *,
    min_count: int = 1,
    size: int | None = None,
    characters: bool = True,
) -> Vocabulary:
    """`old` without the pieces that occur fewer than `min_count` times in the text.

    Special pieces stay, and single characters where `characters`. size: rows at most; the most
    frequent pieces stay. What is on no best path can go without changing any; the lowest-scored
    piece stays, because SentencePiece derives the score of unknown characters from it. Raises
    UserError where `size` cannot hold what must stay.
    """
    proto = proto_of(old)
    counts = count_rows(old, sentences_of(texts))[old.to_model]
    normal = np.array([piece.type == NORMAL for piece in proto.pieces])
    # Special pieces never occur in text, and every count of them is 0.
    must = ~normal
    if characters:
        must |= np.array([len(piece.piece) == 1 for piece in proto.pieces])
    must[min(np.flatnonzero(normal), key=lambda i: proto.pieces[i].score)] = True
    room = len(normal)
    if size is not None:
        # Rows that are no piece of the SentencePiece model, as <pad> and <mask> of layout "xlmr".
        room = size - (old.size - len(normal)) - int(must.sum())
    if room < 0:
        raise UserError(
            f"--size {size}: {size - room} rows are special pieces and characters, which stay;"
            " give at least so many, or --drop-characters"
        )
    keep = must
    # Stable, so that of pieces equally frequent the one with the lower id stays.
    for i in np.argsort(-counts, kind="stable"):
        if counts[i] < min_count:
            break
        if not keep[i] and room:
            keep[i] = True
            room -= 1
    pieces = list(itertools.compress(proto.pieces, keep))
    return _rewritten(proto, pieces, old.layout)
