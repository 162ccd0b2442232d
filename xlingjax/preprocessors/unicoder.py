"""Unicoder's features (Unicoder §3.2): pairs for word recovery, pairs with wrong partners for
paraphrase classification, documents that change language between sentences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xlingjax.data.features import TOKEN_FIELDS
from xlingjax.data.rows.documents import switched_rows
from xlingjax.data.rows.draws import Draws
from xlingjax.data.rows.paraphrases import mined_rows, paraphrase_rows
from xlingjax.data.rows.plan import Batch, BatchMap, PairPreprocessor, Preprocessor, Rows
from xlingjax.data.store.tokenise import Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import require_choice
from xlingjax.preprocessors.xlm import MaskedFeatures, Masking, is_special

PARITIES = ("even", "odd", "coin")


@dataclass(frozen=True)
class ClwrFeatures(PairPreprocessor):
    """Pairs for word recovery: positions restart at y, every ordinary piece of both sides is to be
    recovered."""

    max_pieces: int = 100
    packing: bool = True
    name = "clwr"
    fields = (*TOKEN_FIELDS, "target_weights")
    each_opens = True

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        # `</s>` takes part in the attention, but to recover it is no task: every text has it.
        weight_V = (~is_special(vocabulary)).astype(np.float32)

        def weighted(batch: Batch, draws: Draws) -> Batch:
            return {
                **batch,
                "target_weights": weight_V[batch["input_ids"]] * (batch["pack_ids"] > 0),
            }

        return weighted


@dataclass(frozen=True)
class ClMlmFeatures(MaskedFeatures):
    """Masked documents in which every other sentence is the translation; the switches are those of
    `documents.switched_rows`."""

    masking: Masking = Masking()
    parity: str = "coin"
    packing: bool = True
    truncate: bool = True
    alone: bool = False
    name = "cl_mlm"
    sides = 2
    aligned_documents = True
    lacks = " with two sentences of a document (blank lines stand behind documents)"

    def __post_init__(self):
        require_choice(self, PARITIES, "parity", "cl_mlm: ")

    def rows(self, records: Records, length: int, vocabulary: Vocabulary) -> Rows:
        return switched_rows(
            records,
            length,
            parity=self.parity,
            truncate=self.truncate,
            alone=self.alone,
            packing=self.packing,
        )


@dataclass(frozen=True)
class ClpcFeatures(Preprocessor):
    """One pair per row, half of them translations (`data.paraphrases`).

    mined: wrong partners come from the tables of `xlingjax mine --negatives`; else from other
    pairs, `negatives` for each, at random, others in every epoch and under every seed.
    """

    mined: bool = False
    negatives: int = 1
    max_pieces: int = 100
    # As TLM writes its pairs; XLM's code lets the positions of pairs to classify run on.
    reset_positions: bool = True
    name = "clpc"
    fields = (*TOKEN_FIELDS, "labels", "example_weights")

    @property
    def sides(self) -> int:
        # The third column of a mined table is the wrong partner.
        return 3 if self.mined else 2

    @property
    def lacks(self) -> str:  # type: ignore[override]  # by an option
        return "" if self.mined else " beside a wrong partner (give more pairs, or NEGATIVES)"

    def rows(self, records: Records, length: int, vocabulary: Vocabulary) -> Rows:
        how = {"max_pieces": self.max_pieces, "reset_positions": self.reset_positions}
        if self.mined:
            return mined_rows(records, length, **how)
        return paraphrase_rows(records, length, **how, negatives=self.negatives)


@dataclass(frozen=True)
class DanFeatures(PairPreprocessor):
    """Pairs, one per row, as they are: each is a candidate for the others of the batch."""

    max_pieces: int = 100
    name = "dan"
    fields = TOKEN_FIELDS
    packing = False
