"""Vocabularies made from a vocabulary: with more pieces, with fewer, and which row of one is which
of the other.

Of SentencePiece's models the pieces are rewritten and nothing else: normalisation and the old
scores stay, so that text of old pieces is cut as before.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import log
from typing import Any

import numpy as np

from xlingjax.data.sources import Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.training import explain, sentences_of, smoothed_sample
from xlingjax.errors import UserError

KINDS = {1: "unigram", 2: "bpe"}  # TrainerSpec.ModelType
NORMAL, UNKNOWN = 1, 2  # SentencePiece.Type
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
    while chunk := list(islice(lines, CHUNK)):
        yield chunk


def proto_of(vocabulary: Vocabulary) -> Any:
    """Its SentencePiece ModelProto. Raises UserError for a kind of model that is cut by words or
    characters."""
    from sentencepiece import sentencepiece_model_pb2

    if vocabulary.model_bytes is None:
        raise UserError(
            f"the vocabulary is {vocabulary!r}; surgery is on SentencePiece models alone"
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
    made = type(proto)()
    made.CopyFrom(proto)
    del made.pieces[:]
    made.pieces.extend(pieces)
    made.trainer_spec.vocab_size = len(pieces)
    made.ClearField("self_test_data")  # of the old pieces
    return Vocabulary(made.SerializeToString(), layout)


class Splitter:
    """Text cut by a vocabulary as it stands, without the space that begins a sentence."""

    def __init__(self, vocabulary: Vocabulary):
        import sentencepiece

        proto = proto_of(vocabulary)
        proto.normalizer_spec.add_dummy_prefix = False
        proto.normalizer_spec.remove_extra_whitespaces = False
        proto.ClearField("self_test_data")
        self._processor = sentencepiece.SentencePieceProcessor(
            model_proto=proto.SerializeToString()
        )
        self._vocabulary = vocabulary

    def __call__(self, pieces: Sequence[str]) -> list[list[int]]:
        """The rows of the pieces that spell each; none where one of them is unknown."""
        unknown = self._processor.unk_id()
        cut = (
            self._processor.encode([piece.replace(SPACE, " ") for piece in pieces])
            if pieces
            else []
        )
        return [[] if unknown in ids else self._vocabulary.to_model[ids].tolist() for ids in cut]


# --- rows by meaning ------------------------------------------------------------------------------


def source_rows(old: Vocabulary, new: Vocabulary) -> np.ndarray:
    """int32 [size of new]: the old row that means the same, -1 where none does. A special row is
    found by what it is for (`</s>` ends, in layout "xlm" it begins too; MASK is not where it was),
    any other by its piece.
    """
    rows = {(i in old.special_ids, piece): i for i, piece in enumerate(old.pieces(range(old.size)))}
    names = enumerate(new.pieces(range(new.size)))
    found = np.array([rows.get((i in new.special_ids, piece), -1) for i, piece in names], np.int32)
    for role in (
        "bos_id",
        "eos_id",
        "pad_id",
        "unk_id",
        "mask_id",
    ):  # one that does both is what ends
        found[getattr(new, role)] = getattr(old, role)
    return found


def cut_otherwise(
    old: Vocabulary, new: Vocabulary, by_language: Mapping[str, Iterable[str]]
) -> dict[str, list[int]]:
    """{language: [sentences of other pieces than before, sentences]}, of those without an unknown
    piece before."""
    to_old, found = source_rows(old, new), {}
    for language, lines in by_language.items():
        count = np.zeros(2, int)
        for chunk in chunks(lines):
            (ids, lengths), (new_ids, new_lengths) = (one.encode_lines(chunk) for one in (old, new))
            ends, new_ends = (np.cumsum(each)[:-1] for each in (lengths, new_lengths))
            for was, now in zip(
                np.split(ids, ends), np.split(to_old[new_ids], new_ends), strict=True
            ):
                if old.unk_id not in was:
                    count += not np.array_equal(was, now), 1
        found[language] = count.tolist()
    return found


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
    kind, known = KINDS[proto.trainer_spec.model_type], {piece.piece for piece in proto.pieces}
    sample = _normalised(old, smoothed_sample(by_language, alpha, sentences, seed)[0])
    learner = _Learner(proto, kind, [*sample], character_coverage, threads)
    split, left_out, size, learnt = Splitter(old), set(), pieces, []
    while True:
        if not learnt:
            learnt = [(piece, score) for piece, score in learner(size) if piece not in known]
        characters = sum(len(piece) == 1 for piece, _ in learnt)
        if characters > pieces:
            raise UserError(
                f"--pieces {pieces}: the text has {characters} characters that the vocabulary"
                " lacks; give at least so many, or lower --character_coverage"
            )
        pool = sorted(learnt, key=lambda one: (len(one[0]) > 1, -one[1]))
        pool = [one for one in pool if one[0] not in left_out]
        if len(pool) < pieces and learner.gave < size:
            raise UserError(
                f"--pieces {pieces}: the text gives {len(pool)} pieces that the vocabulary lacks;"
                " ask for fewer, or give more text"
            )
        if len(pool) < pieces:
            size, learnt = learner.gave + pieces - len(pool), []
            continue
        chosen = pool[:pieces]
        spelt = {
            piece
            for (piece, _), ids in zip(chosen, split([p for p, _ in chosen]), strict=True)
            if ids
        }
        made = _appended(old, proto, kind, chosen, spelt)
        unwanted = spelt & _pieces_of(made, old_lines)
        if kind == "bpe":  # one whose parts are not there is never made
            own, first = (
                Splitter(made)([piece for piece, _ in chosen]),
                old.size - (old.layout == "xlmr"),
            )
            unwanted |= {
                piece
                for i, (piece, _) in enumerate(chosen)
                if own[i] != [first + i] and len(piece) > 1
            }
        if not unwanted:
            return Extension(made, len(spelt), len(left_out))
        left_out |= unwanted


def _normalised(vocabulary: Vocabulary, lines: Iterable[str]) -> Iterator[str]:
    """As the vocabulary reads them, so that any rule of normalisation is the new pieces' too."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model_bytes)
    for chunk in chunks(lines):
        yield from (line.replace(SPACE, " ").strip() for line in processor.normalize(chunk))


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

        model, spec, extra = io.BytesIO(), self.proto.trainer_spec, 1  # <unk>
        smallest = len({*"".join(self.lines)}) + extra
        options = {"hard_vocab_limit": False} if self.kind == "unigram" else {}
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(self.lines),
                model_writer=model,
                vocab_size=max(size, smallest) + extra,
                model_type=self.kind,
                character_coverage=self.character_coverage,
                normalization_rule_name="identity",
                add_dummy_prefix=self.proto.normalizer_spec.add_dummy_prefix,
                unk_id=0,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                shuffle_input_sentence=False,
                max_sentence_length=16_384,
                num_threads=self.threads,
                minloglevel=2,
                **{name: getattr(spec, name) for name in OF_TRAINING},
                **options,
            )
        except RuntimeError as error:
            raise UserError(explain(str(error), size)) from None
        found = type(self.proto).FromString(model.getvalue()).pieces
        learnt = [(piece.piece, piece.score) for piece in found if piece.type == NORMAL]
        self.gave = len(learnt)
        return learnt


def _appended(
    old: Vocabulary, proto: Any, kind: str, chosen: Sequence[tuple[str, float]], spelt: set[str]
) -> Vocabulary:
    lowest = min(piece.score for piece in proto.pieces if piece.type == NORMAL)
    shift = log(len(chosen) / (len(proto.pieces) + len(chosen)))
    pieces = [*proto.pieces]
    merges = {piece: i for i, (piece, _) in enumerate(sorted(chosen, key=lambda one: -one[1]))}
    for piece, score in chosen:
        score = (
            max(score + shift * (piece in spelt), lowest)
            if kind == "unigram"
            else lowest - 1 - merges[piece]
        )
        pieces.append(type(proto).SentencePiece(piece=piece, score=score, type=NORMAL))
    return _rewritten(proto, pieces, old.layout)


def _pieces_of(vocabulary: Vocabulary, lines: Sequence[str]) -> set[str]:
    return {*vocabulary.pieces(np.flatnonzero(count_rows(vocabulary, lines)))}


# --- trim -----------------------------------------------------------------------------------------


def count_rows(vocabulary: Vocabulary, lines: Iterable[str]) -> np.ndarray:
    """int64 [size]: how often each row occurs in the text."""
    counts = np.zeros(vocabulary.size, np.int64)
    for chunk in chunks(lines):
        counts += np.bincount(
            vocabulary.encode_lines(chunk, threads=2)[0], minlength=vocabulary.size
        )
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
    must = ~normal
    if characters:
        must |= np.array([len(piece.piece) == 1 for piece in proto.pieces])
    if KINDS[proto.trainer_spec.model_type] == "unigram":
        must[min(np.flatnonzero(normal), key=lambda i: proto.pieces[i].score)] = True
        keep = must | (counts >= min_count)
        merges = None
    else:
        merges = _Merges(proto)
        keep = must.copy()
        for i in np.flatnonzero(counts >= min_count):
            keep[merges(i)] = True
    if size is not None and keep.sum() + old.size - len(normal) > size:
        room = size - (old.size - len(normal)) - int(must.sum())
        if room < 0:
            raise UserError(
                f"--size {size}: {size - room} rows are special pieces and characters, which stay;"
                " give at least so many, or --drop_characters"
            )
        keep = must.copy()
        for i in np.argsort(-counts, kind="stable"):
            added = [j for j in (merges(i) if merges else [i]) if not keep[j]]
            if counts[i] < min_count or room == 0:
                break
            if len(added) <= room:
                keep[added] = True
                room -= len(added)
    return _rewritten(
        proto, [piece for piece, kept in zip(proto.pieces, keep, strict=True) if kept], old.layout
    )


class _Merges:
    """Of a BPE piece: it, and every piece that its merging goes through."""

    def __init__(self, proto: Any):
        self._pieces = proto.pieces
        self._index = {
            piece.piece: i for i, piece in enumerate(proto.pieces) if piece.type == NORMAL
        }

    def __call__(self, i: int) -> list[int]:
        parts, found = list(self._pieces[i].piece), {int(i)}
        while True:
            pairs = [self._index.get(a + b) for a, b in zip(parts, parts[1:], strict=False)]
            there = [(-self._pieces[j].score, at) for at, j in enumerate(pairs) if j is not None]
            found |= {self._index[part] for part in parts if part in self._index}
            if not there:
                return sorted(found)
            _, at = min(there)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
