"""Translations to compare as sentence vectors, each text as it is alone; and the vector that a
teacher gives to one of them."""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xlingjax.data.content_hashes import content_hash
from xlingjax.data.features import TOKEN_FIELDS, Shapes, batch_shapes, pairs_of_row
from xlingjax.data.rows.draws import Draws
from xlingjax.data.rows.plan import Batch, BatchMap, PairPreprocessor, Rows
from xlingjax.data.store.tokenise import Records, mixed, tokenise
from xlingjax.data.text.texts import Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.runtime.records import read_npy


@dataclass(frozen=True)
class SentencePairFeatures(PairPreprocessor):
    """`<s> x </s> <s> y </s>`, positions restarting at y: each side is the row in which sentence
    retrieval reads it. `prefix` is the text before each sentence that a released encoder was
    trained with ("query: "). `packing` puts several pairs in a row."""

    max_pieces: int = 100
    prefix: str = ""
    packing: bool = False
    name = "sentence_pairs"
    fields = TOKEN_FIELDS
    each_opens = True

    def reserved(self, vocabulary: Vocabulary) -> int:
        return 2 * self._prefix_ids(vocabulary).size

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        prefix = self._prefix_ids(vocabulary)
        if not prefix.size:
            return super().map(vocabulary, counts, length)
        return lambda batch, draws: with_prefix(batch, prefix, vocabulary.pad_id)

    def _prefix_ids(self, vocabulary: Vocabulary) -> np.ndarray:
        ids = vocabulary.encode(self.prefix) if self.prefix else ()
        return np.array(ids, np.int32)


def with_prefix(batch: Batch, prefix: np.ndarray, pad_id: int) -> Batch:
    """The rows [B, L] with the ids `prefix` [K] behind the token that opens each text, for which K
    columns must be free."""
    places = 1 + np.arange(prefix.size)
    there = batch["pack_ids"] > 0
    opens_BL = there & (batch["position_ids"] == 0)
    rows, columns = np.nonzero(there)
    opens = opens_BL[rows, columns]
    # As often as a text has begun before.
    moved = columns + prefix.size * (opens_BL.cumsum(axis=1)[rows, columns] - opens)
    made = {name: np.zeros_like(batch[name]) for name in TOKEN_FIELDS}
    made["input_ids"].fill(pad_id)
    for name, values in made.items():
        values[rows, moved] = batch[name][rows, columns]
    made["position_ids"][rows, moved] += np.where(opens, 0, prefix.size).astype(np.int32)
    # The prefix stands where the first token is, in its language, pack and side.
    rows, first = rows[opens, None], moved[opens, None]
    for name in ("language_ids", "pack_ids", "sides"):
        made[name][rows, first + places] = made[name][rows, first]
    made["position_ids"][rows, first + places] = places
    made["input_ids"][rows, first + places] = prefix
    return batch | made


@dataclass(frozen=True)
class DistillationFeatures(SentencePairFeatures):
    """The same rows, each with the vector that a teacher gives to one of its two texts.

    teacher_text: a file with a text per line, the side of the pairs that the teacher reads, in any
    order and with any others; teacher_vectors: float32 [lines, D], `.npy`, of whatever program, as
    `xlingjax encode` writes it. teacher: the hash of both, part of the run's identity.
    """

    teacher_text: str = ""
    teacher_vectors: str = ""
    teacher: str = ""
    name = "distillation"
    fields = (*TOKEN_FIELDS, "teacher_vectors")

    def rows(self, records: Records, length: int, vocabulary: Vocabulary) -> Rows:
        known, _, _ = _teacher(self, vocabulary)
        # Before training: a pair that the teacher has not read may come after hours.
        full = np.all([side.lengths > 0 for side in records.sides], axis=0)
        has = np.any([np.isin(side.numbers(), known) for side in records.sides], axis=0)
        if (full & ~has).any():
            raise UserError(
                f"distillation: {(full & ~has).sum():,} pairs of {records.name} have no side among"
                f" the lines of {self.teacher_text}; give the text of the language that the teacher"
                " reads whole, and its vectors"
            )
        return super().rows(records, length, vocabulary)

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        known, lines, vectors = _teacher(self, vocabulary)
        prefixed = super().map(vocabulary, counts, length)

        def with_vectors(batch: Batch, draws: Draws) -> Batch:
            # As in `Tokens.numbers`: all tokens behind the one that opens the side.
            inside = (batch["pack_ids"] > 0) & (batch["position_ids"] > 0)
            of_tokens = mixed(batch["input_ids"], batch["position_ids"])
            of_text = np.nonzero(inside)[0], batch["pack_ids"][inside] - 1, batch["sides"][inside]
            numbers = np.zeros((len(inside), self._pairs(length), 2), np.uint64)
            np.add.at(numbers, of_text, of_tokens[inside])
            places = np.minimum(np.searchsorted(known, numbers), known.size - 1)
            # Of the two texts the one that the teacher has read.
            has = (known[places] == numbers) & (numbers > 0)
            side = has.argmax(axis=2, keepdims=True)
            line = lines[np.take_along_axis(places, side, axis=2)[..., 0]]
            found = np.float32(vectors[line]) * has.any(axis=2, keepdims=True)
            return prefixed(batch | {"teacher_vectors": found}, draws)

        return with_vectors

    def shapes(self, batch: int, length: int) -> Shapes:
        path = Path(self.teacher_vectors)
        # A recipe is described where no file exists; what opens the rows names the one that lacks.
        width = read_npy(path, _REMEDY).shape[-1] if path.is_file() else 0
        sizes = {"pairs": self._pairs(length), "width": width}
        return batch_shapes(self.fields, batch=batch, length=length, **sizes)

    def _pairs(self, length: int) -> int:
        return pairs_of_row(length) if self.packing else 1

    def content(self) -> str:
        """The hash of both files. Raises UserError where one is not there."""
        for path in (self.teacher_text, self.teacher_vectors):
            if not Path(path).is_file():
                raise UserError(f"distillation: {path}: no such file; {_REMEDY}")
        return content_hash(self.teacher_text)[:16] + content_hash(self.teacher_vectors)[:16]


_REMEDY = "TEACHER_VECTORS is what `xlingjax encode TEACHER --input TEACHER_TEXT` writes"


@functools.lru_cache(4)
def _teacher(
    features: DistillationFeatures, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(the numbers of the teacher's texts, in order; the line of each; the vectors of all lines).
    Raises UserError."""
    (tokens,) = tokenise([Text(Path(features.teacher_text), "")], vocabulary)
    numbers = np.concatenate([shard.numbers() for shard in tokens])
    vectors = read_npy(Path(features.teacher_vectors), _REMEDY)
    if vectors.ndim != 2 or len(vectors) != len(numbers):
        raise UserError(
            f"distillation: {features.teacher_vectors} has the shape {vectors.shape}, and"
            f" {features.teacher_text} {len(numbers)} lines: a vector of each is needed; {_REMEDY}"
        )
    odd = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if odd.size:
        raise UserError(
            f"distillation: {features.teacher_vectors}: {odd.size:,} vectors have numbers that are"
            f" not finite, the first is that of line {odd[0] + 1}; {_REMEDY}"
        )
    known, lines = np.unique(numbers, return_index=True)
    return known, lines, vectors
