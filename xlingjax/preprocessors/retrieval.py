"""Translations to compare as sentence vectors: one pair to a row, each text as it is alone."""

from dataclasses import dataclass

from xlingjax.data.features import TOKEN_FIELDS
from xlingjax.data.rows.plan import PairPreprocessor


@dataclass(frozen=True)
class SentencePairFeatures(PairPreprocessor):
    """`<s> x </s> <s> y </s>`, positions restarting at y: each side is the row in which sentence
    retrieval reads it."""

    max_pieces: int = 100
    name = "hardest_negative"
    fields = TOKEN_FIELDS
    packing = False
    each_opens = True
