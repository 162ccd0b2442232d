"""Translations to compare as sentence vectors: one pair to a row, each text as it is alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xlingjax.data.features import TOKEN_FIELDS
from xlingjax.data.rows.draws import Draws
from xlingjax.data.rows.plan import Batch, BatchMap, Preprocessor, Rows, pair_rows
from xlingjax.data.store.tokens import Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary


@dataclass(frozen=True)
class SentencePairFeatures(Preprocessor):
    """`<s> x </s> <s> y </s>`, positions restarting at y: each side is the row in which sentence
    retrieval reads it."""

    max_pieces: int = 100
    name = "hardest_negative"
    sides = 2
    fields = TOKEN_FIELDS

    def rows(
        self, records: Records, bases: Sequence[int], length: int, vocabulary: Vocabulary
    ) -> Rows:
        return pair_rows(
            records,
            bases,
            length,
            max_pieces=self.max_pieces,
            # Both directions are terms of the loss: the other order would say the same.
            both_orders=False,
            packing=False,
            each_opens=True,
        )

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        def unchanged(batch: Batch, draws: Draws) -> Batch:
            return batch

        return unchanged
