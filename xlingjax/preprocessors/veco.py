"""VECO's features (VECO §2, §4.1): pairs, and adjacent segments of one document, both sides masked
for themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xlingjax.data.features import SLOT_FIELDS, TOKEN_FIELDS
from xlingjax.data.rows.documents import segment_rows
from xlingjax.data.rows.plan import BatchMap, PairPreprocessor, Preprocessor, Rows
from xlingjax.data.store.tokenise import Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.preprocessors.xlm import Masking, masker, slots_of_a_side


class SideBySide(Preprocessor):
    """Each side of a pair masked for itself: its loss is a term of its own, the mean over its own
    words."""

    masking: Masking
    fields = TOKEN_FIELDS + SLOT_FIELDS

    def slots(self, length: int) -> int:
        return 2 * slots_of_a_side(self.masking, self.text_length(length))

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        slots = self.slots(length) // 2
        return masker(self.masking, vocabulary, counts, slots, side_by_side=True)


@dataclass(frozen=True)
class VecoFeatures(SideBySide, PairPreprocessor):
    """Masked pairs, positions restarting at y; the first token of a side is never masked."""

    # "Mask percent (monolingual/bilingual)" of the paper's table of hyperparameters: 15 / 25 %.
    masking: Masking = Masking(rate=0.25)
    max_pieces: int = 100
    packing: bool = True
    # Both orders would say the same: both sides are predicted, each from the other.
    name = "veco"


@dataclass(frozen=True)
class VecoTextFeatures(SideBySide):
    """Masked adjacent segments of monolingual documents, in the rows of pairs
    (`documents.segment_rows`)."""

    masking: Masking = Masking()
    packing: bool = True
    name = "veco_text"
    sides = 1

    def rows(self, records: Records, length: int, vocabulary: Vocabulary) -> Rows:
        return segment_rows(records, length, packing=self.packing)
