"""Vocabularies made from a vocabulary: with more pieces, with fewer, and which row of one is which
of the other.

Of SentencePiece's models the pieces are rewritten and nothing else: normalisation and the old
scores stay, so that text of old pieces is cut as before.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

from xlingjax.data.text.texts import Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.training import explain, sentences_of, smoothed_sample
from xlingjax.errors import UserError

KINDS = {1: "unigram", 2: "bpe"}
"""TrainerSpec.ModelType, of the kinds that can be changed."""
NORMAL = 1
"""SentencePiece.Type."""
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
    """Its SentencePiece ModelProto. Raises UserError for a kind of model that is cut by words or
    characters."""
    from sentencepiece import sentencepiece_model_pb2

    if vocabulary.model_bytes is None:
        raise UserError(
            f"the vocabulary is {vocabulary!r}; surgery is on SentencePiece models alone: import the"
            " model with its sentencepiece.bpe.model beside it"
        )
    proto = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.model_bytes)
    if proto.trainer_spec.model_type not in KINDS:
        raise UserError(
            "the vocabulary is a SentencePiece model of words or characters; give a unigram or"
            " bpe one"
        )
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


class Splitter:
    """Text cut by a vocabulary as it stands, without the space that begins a sentence."""

    def __init__(self, vocabulary: Vocabulary):
        import sentencepiece

        proto = proto_of(vocabulary)
        # A piece is cut as it stands: one within a word has no
        # space before it, and those of the piece are its own.
        proto.normalizer_spec.add_dummy_prefix = False
        proto.normalizer_spec.remove_extra_whitespaces = False
        proto.ClearField("self_test_data")
        self._processor = sentencepiece.SentencePieceProcessor(
            model_proto=proto.SerializeToString()
        )
        self._vocabulary = vocabulary

    def __call__(self, pieces: Sequence[str]) -> list[list[int]]:
        """The rows of the pieces that spell each; none where one of them is unknown."""
        if not pieces:
            return []
        unknown = self._processor.unk_id()
        rows = []
        texts = [piece.replace(SPACE, " ") for piece in pieces]
        for ids in self._processor.encode(texts):
            # One unknown part, and the rest would spell another piece.
            if unknown in ids:
                rows.append([])
            else:
                rows.append(self._vocabulary.to_model[ids].tolist())
        return rows


# --- rows by meaning ------------------------------------------------------------------------------


def source_rows(old: Vocabulary, new: Vocabulary) -> np.ndarray:
    """int32 [size of new]: the old row that means the same, -1 where none does. A special row is
    found by what it is for (`</s>` ends, in layout "xlm" it begins too; MASK is not where it was),
    any other by its piece.
    """
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


def cut_otherwise(
    old: Vocabulary, new: Vocabulary, by_language: Mapping[str, Iterable[str]]
) -> dict[str, list[int]]:
    """{language: [sentences of other pieces than before, sentences]}, of those without an unknown
    piece before."""
    to_old = source_rows(old, new)
    counts = {}
    for language, lines in by_language.items():
        changed = 0
        sentences = 0
        for chunk in chunks(lines):
            before = _by_line(*old.encode_lines(chunk))
            new_ids, new_lengths = new.encode_lines(chunk)
            after = _by_line(to_old[new_ids], new_lengths)
            for old_rows, new_rows in zip(before, after, strict=True):
                # New pieces are there to cut such sentences otherwise.
                if old.unk_id in old_rows:
                    continue
                sentences += 1
                if not np.array_equal(old_rows, new_rows):
                    changed += 1
        counts[language] = [changed, sentences]
    return counts


def _by_line(ids: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    return np.split(ids, np.cumsum(lengths)[:-1])


# --- extend ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extension:
    vocabulary: Vocabulary
    spelt: int
    """New pieces that old ones could spell: only these can change how old text is cut."""
    left_out: int
    """Such pieces that the old text would have used."""


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
) -> Extension:
    """`old` with `pieces` more behind its own, learnt on the text by SentencePiece of the same kind
    and normalisation.

    All characters of the text that `old` lacks (`character_coverage`) are among them. Unigram: a
    new piece keeps the score that it has in its own model, but one that old pieces can spell is
    weighted by the new ones' share of the vocabulary, log(new / all), since it stands beside pieces
    scored on other text; none goes below the lowest old score, from which SentencePiece derives
    that of unknown characters. BPE: the new merges follow the old ones. Pieces that old pieces can
    spell and that the best cut of `old_lines` would use are left out and others taken. Raises
    UserError: text that gives fewer pieces, more characters than pieces.
    """
    proto = proto_of(old)
    kind = KINDS[proto.trainer_spec.model_type]
    known = {piece.piece for piece in proto.pieces}
    sample, _ = smoothed_sample(by_language, alpha, sentences, seed)
    # Kept in memory, since the learner may be asked several times.
    lines = list(_normalised(old, sample))
    learner = _Learner(proto, kind, lines, character_coverage, threads)
    split = Splitter(old)
    left_out: set[str] = set()
    # Asked for again, and for more, when too many of them are known or left out.
    size = pieces
    learnt: list[tuple[str, float]] = []
    while True:
        # Learning takes long and is done again only for a larger size.
        if not learnt:
            learnt = _without(learner(size), known)
        characters = sum(len(piece) == 1 for piece, _ in learnt)
        if characters > pieces:
            raise UserError(
                f"--pieces {pieces}: the text has {characters} characters that the vocabulary"
                " lacks; give at least so many, or lower --character_coverage"
            )
        pool = sorted(_without(learnt, left_out), key=_characters_first)
        # The trainer gave all that it could, so asking for more would go on for ever.
        if len(pool) < pieces and learner.gave < size:
            raise UserError(
                f"--pieces {pieces}: the text gives {len(pool)} pieces that the vocabulary lacks;"
                " ask for fewer, or give more text"
            )
        if len(pool) < pieces:
            size = learner.gave + pieces - len(pool)
            learnt = []
            continue
        chosen = pool[:pieces]
        names = [piece for piece, _ in chosen]
        spelt = set()
        for piece, old_rows in zip(names, split(names), strict=True):
            if old_rows:
                spelt.add(piece)
        extended = _appended(old, proto, kind, chosen, spelt)
        # Tried out, since a score does not tell which cut wins.
        unwanted = spelt & _pieces_of(extended, old_lines)
        if kind == "bpe":
            unwanted |= _never_made(old, extended, names)
        if not unwanted:
            return Extension(extended, len(spelt), len(left_out))
        left_out |= unwanted


def _without(learnt: Iterable[tuple[str, float]], pieces: set[str]) -> list[tuple[str, float]]:
    return [(piece, score) for piece, score in learnt if piece not in pieces]


def _characters_first(learnt: tuple[str, float]) -> tuple[bool, float]:
    """The order in which learnt pieces are taken: all characters, then the best."""
    piece, score = learnt
    # A character that is missing is unknown wherever it stands, a longer piece is only cut in two.
    return len(piece) > 1, -score


def _never_made(old: Vocabulary, extended: Vocabulary, pieces: Sequence[str]) -> set[str]:
    """The new pieces whose parts are not there, so that no merge comes to them."""
    # In layout "xlmr" the last row is <mask>, and new pieces come before it.
    first = old.size - (old.layout == "xlmr")
    own_rows = Splitter(extended)(pieces)
    never = set()
    for i, piece in enumerate(pieces):
        if len(piece) > 1 and own_rows[i] != [first + i]:
            never.add(piece)
    return never


def _normalised(vocabulary: Vocabulary, lines: Iterable[str]) -> Iterator[str]:
    """As the vocabulary reads them, so that any rule of normalisation is the new pieces' too."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model_bytes)
    for chunk in chunks(lines):
        for line in processor.normalize(chunk):
            yield line.replace(SPACE, " ").strip()


@dataclass
class _Learner:
    """(piece, score) of as many pieces as asked for, best first; `gave` is how many there were."""

    proto: Any
    kind: str
    lines: list[str]
    character_coverage: float
    threads: int
    gave: int = 0

    def __call__(self, size: int) -> list[tuple[str, float]]:
        import sentencepiece

        model = io.BytesIO()
        unknown = 1
        # The trainer refuses a size that cannot hold the characters.
        smallest = len({*"".join(self.lines)}) + unknown
        options = {name: getattr(self.proto.trainer_spec, name) for name in OF_TRAINING}
        if self.kind == "unigram":
            # Fewer than asked for are no failure: `gave` says how many there were.
            options["hard_vocab_limit"] = False
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(self.lines),
                model_writer=model,
                vocab_size=max(size, smallest) + unknown,
                model_type=self.kind,
                character_coverage=self.character_coverage,
                # The lines are normalised already, as the old vocabulary does it.
                normalization_rule_name="identity",
                # Normalising stripped that space off again, so
                # the trainer puts it where the old one did.
                add_dummy_prefix=self.proto.normalizer_spec.add_dummy_prefix,
                # No special piece but <unk>, without which SentencePiece does not train.
                unk_id=0,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                shuffle_input_sentence=False,
                # SentencePiece passes over longer lines than this, by default than 4192 bytes.
                max_sentence_length=16_384,
                num_threads=self.threads,
                minloglevel=2,
                **options,
            )
        except RuntimeError as error:
            raise UserError(explain(str(error), size)) from None
        pieces = type(self.proto).FromString(model.getvalue()).pieces
        learnt = [(piece.piece, piece.score) for piece in pieces if piece.type == NORMAL]
        self.gave = len(learnt)
        return learnt


def _appended(
    old: Vocabulary, proto: Any, kind: str, chosen: Sequence[tuple[str, float]], spelt: set[str]
) -> Vocabulary:
    # Of ordinary pieces, since special ones have score 0, the best there is.
    lowest = min(piece.score for piece in proto.pieces if piece.type == NORMAL)
    shift = log(len(chosen) / (len(proto.pieces) + len(chosen)))
    order: dict[str, int] = {}
    for piece, _ in sorted(chosen, key=lambda one: -one[1]):
        order[piece] = len(order)
    pieces = list(proto.pieces)
    for piece, score in chosen:
        if kind == "bpe":
            # A score is the merge's place in the order: behind all old ones, one after the other.
            score = lowest - 1 - order[piece]
        else:
            if piece in spelt:
                score += shift
            score = max(score, lowest)
        pieces.append(type(proto).SentencePiece(piece=piece, score=score, type=NORMAL))
    return _rewritten(proto, pieces, old.layout)


def _pieces_of(vocabulary: Vocabulary, lines: Sequence[str]) -> set[str]:
    occurring = np.flatnonzero(count_rows(vocabulary, lines))
    return set(vocabulary.pieces(occurring))


# --- trim -----------------------------------------------------------------------------------------


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
    frequent pieces stay. Unigram: what is on no best path can go without changing any; the
    lowest-scored piece stays, because SentencePiece derives the score of unknown characters from
    it. BPE: the merges that lead to a piece stay with it. Raises UserError where `size` cannot hold
    what must stay.
    """
    proto = proto_of(old)
    counts = count_rows(old, sentences_of(texts))[old.to_model]
    normal = np.array([piece.type == NORMAL for piece in proto.pieces])
    # Special pieces never occur in text, and every count of them is 0.
    must = ~normal
    if characters:
        must |= np.array([len(piece.piece) == 1 for piece in proto.pieces])
    needed = _itself
    if KINDS[proto.trainer_spec.model_type] == "unigram":
        lowest = min(np.flatnonzero(normal), key=lambda i: proto.pieces[i].score)
        must[lowest] = True
    else:
        needed = _Merges(proto)
    keep = must.copy()
    for i in np.flatnonzero(counts >= min_count):
        keep[needed(i)] = True
    # Rows that are no piece of the SentencePiece model, as <pad> and <mask> of layout "xlmr".
    beside = old.size - len(normal)
    if size is not None and keep.sum() + beside > size:
        room = size - beside - int(must.sum())
        if room < 0:
            raise UserError(
                f"--size {size}: {size - room} rows are special pieces and characters, which stay;"
                " give at least so many, or --drop_characters"
            )
        keep = must.copy()
        # Stable, so that of pieces equally frequent the one with the lower id stays.
        for i in np.argsort(-counts, kind="stable"):
            # Counts fall from here on.
            if counts[i] < min_count or room == 0:
                break
            # A merge is worth its room only with all that lead to it.
            added = [j for j in needed(i) if not keep[j]]
            if len(added) <= room:
                keep[added] = True
                room -= len(added)
    pieces = list(itertools.compress(proto.pieces, keep))
    return _rewritten(proto, pieces, old.layout)


def _itself(i: int) -> list[int]:
    """What a piece of a unigram model needs."""
    return [i]


class _Merges:
    """Of a BPE piece: it, and every piece that its merging goes through."""

    def __init__(self, proto: Any):
        self._pieces = proto.pieces
        self._index: dict[str, int] = {}
        for i, piece in enumerate(proto.pieces):
            if piece.type == NORMAL:
                self._index[piece.piece] = i

    def __call__(self, i: int) -> list[int]:
        parts = list(self._pieces[i].piece)
        needed = {int(i)}
        while True:
            for part in parts:
                if part in self._index:
                    needed.add(self._index[part])
            best = self._best_merge(parts)
            if best is None:
                return sorted(needed)
            parts[best : best + 2] = [parts[best] + parts[best + 1]]

    def _best_merge(self, parts: Sequence[str]) -> int | None:
        """Where the two neighbours stand that are merged first, the leftmost of equals; None where
        none are."""
        candidates = []
        for at, (first, second) in enumerate(itertools.pairwise(parts)):
            i = self._index.get(first + second)
            if i is not None:
                candidates.append((-self._pieces[i].score, at))
        if not candidates:
            return None
        _, at = min(candidates)
        return at
