"""Batches are those of before, bit for bit."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import made
from xlingjax.data.features import batch_hash
from xlingjax.preprocessors.ernie_m import BtmlmFeatures, CamlmFeatures
from xlingjax.preprocessors.mbart import MaskedTranslationFeatures, MaskedWordsFeatures
from xlingjax.preprocessors.noise import Noise
from xlingjax.preprocessors.retrieval import SentencePairFeatures
from xlingjax.preprocessors.t5 import SpanCorruptionFeatures
from xlingjax.preprocessors.translation import (
    BackTranslationFeatures,
    DenoisingFeatures,
    TranslationFeatures,
)
from xlingjax.preprocessors.unicoder import ClMlmFeatures, ClpcFeatures, ClwrFeatures, DanFeatures
from xlingjax.preprocessors.veco import VecoFeatures, VecoTextFeatures
from xlingjax.preprocessors.xglue import XfnpFeatures
from xlingjax.preprocessors.xlm import ClmFeatures, Masking, MlmFeatures, TlmFeatures

GOLDEN = Path(__file__).parents[1] / "golden" / "batches.json"
LENGTH = 48


class Layout:
    """Every third piece goes on with a word."""

    unk_id = 3

    @classmethod
    def begins_word(cls):
        return [i % 3 != 0 for i in range(cls.size)]


class Xlm(Layout, made.Xlm):
    pass


class Xlmr(Layout, made.Xlmr):
    pass


BERNOULLI = Masking(count="bernoulli", subsampling=0.0, random_range="all")
NOISE = Noise(infill=0.2, poisson=2.0, shuffle=3.0, drop=0.1, mask=0.1, unit="pieces")
BATCHES = {
    "clm": ClmFeatures(),
    "mlm": MlmFeatures(),
    "mlm bernoulli": MlmFeatures(BERNOULLI),
    "mlm validation": MlmFeatures(Masking(validation=True)),
    "tlm": TlmFeatures(),
    "tlm as one text": TlmFeatures(reset_positions=False, both_orders=False, packing=False),
    "camlm": CamlmFeatures(),
    "camlm in slots": CamlmFeatures(layout="slots"),
    "btmlm": BtmlmFeatures(targets=((0, 0.5), (1, 0.25), (2, 0.25))),
    "btmlm scattered": BtmlmFeatures(placement="scattered", targets=((1, 1.0), (2, 1.0))),
    "clwr": ClwrFeatures(),
    "cl_mlm": ClMlmFeatures(truncate=False),
    "clpc": ClpcFeatures(negatives=2),
    "dan": DanFeatures(),
    "veco": VecoFeatures(),
    "veco_text": VecoTextFeatures(),
    "hardest_negative": SentencePairFeatures(),
    "masked_words": MaskedWordsFeatures(),
    "masked_translation": MaskedTranslationFeatures(),
    "translation": TranslationFeatures(truncate=True, max_pieces=6),
    "xdae": DenoisingFeatures(NOISE, languages=("de", "en", "zh"), language_tokens=False),
    "xdae of words": DenoisingFeatures(
        Noise(shuffle=3.0, drop=0.2, mask=0.2, unit="words"),
        unit="sentences",
        languages=("de", "en", "zh"),
        language_tokens=False,
    ),
    "back_translation": BackTranslationFeatures(((0, (1, 2)), (1, (0, 2)), (2, (0,)))),
    "span_corruption": SpanCorruptionFeatures(),
    "xfnp": XfnpFeatures(10, 3),
}


def hash_of(name):
    """Of the batches of both layouts."""
    features = BATCHES[name]
    hashes = []
    for vocabulary in (Xlm, Xlmr):
        if name == "span_corruption" and vocabulary is Xlmr:
            continue
        _, batch = made.batch(
            features,
            LENGTH,
            vocabulary,
            languages=(1, 2)[: features.sides],
            columns=features.columns(LENGTH),
            step=5,
        )
        assert all(np.isfinite(values).all() for values in batch.values())
        hashes.append(batch_hash(batch))
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", BATCHES)
def test_batches_are_the_golden_ones(name):
    """`XLINGJAX_GOLDEN=write pytest tests/preprocessors/test_golden_batches.py` writes them."""
    found = hash_of(name)
    if os.environ.get("XLINGJAX_GOLDEN") == "write":
        golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
        GOLDEN.write_text(json.dumps(golden | {name: found}, indent=1, sort_keys=True) + "\n")
    assert found == json.loads(GOLDEN.read_text())[name]
