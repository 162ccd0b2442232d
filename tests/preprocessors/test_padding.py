"""What every objective's rows have in common: what stands in columns without text, and that a
decoder reads what it has predicted."""

import numpy as np
import pytest

from tests.helpers import made
from xlingjax.data.rows.draws import Draws
from xlingjax.preprocessors.ernie_m import BtmlmFeatures, CamlmFeatures
from xlingjax.preprocessors.mbart import MaskedTranslationFeatures, MaskedWordsFeatures
from xlingjax.preprocessors.t5 import SpanCorruptionFeatures
from xlingjax.preprocessors.translation import TranslationFeatures
from xlingjax.preprocessors.unicoder import ClMlmFeatures, ClwrFeatures
from xlingjax.preprocessors.veco import VecoFeatures, VecoTextFeatures
from xlingjax.preprocessors.xglue import XfnpFeatures
from xlingjax.preprocessors.xlm import ClmFeatures, Masking, MlmFeatures, TlmFeatures

LENGTH = 48


class Xlmr(made.Xlmr):
    unk_id = 3


class Xlm(made.Xlm):
    unk_id = 3


GENERATED = [
    MaskedWordsFeatures(Masking(0.3)),
    MaskedWordsFeatures(Masking(0.3), "text"),
    MaskedTranslationFeatures(packing=False),
    TranslationFeatures(),
    SpanCorruptionFeatures(),
    XfnpFeatures(10, 3),
]
ENCODED = [
    ClmFeatures(),
    MlmFeatures(),
    TlmFeatures(),
    CamlmFeatures(),
    CamlmFeatures(layout="slots"),
    BtmlmFeatures(targets=((1, 1.0), (2, 1.0))),
    ClwrFeatures(),
    ClMlmFeatures(truncate=False),
    VecoFeatures(),
    VecoTextFeatures(),
]


def named(features):
    return type(features).__name__.removesuffix("Features").lower()


@pytest.mark.parametrize("features", [*GENERATED, *ENCODED], ids=named)
def test_a_row_that_only_fills_a_batch_is_padding_throughout(features):
    vocabulary, columns = Xlmr, features.columns(LENGTH)
    if isinstance(features, SpanCorruptionFeatures):
        vocabulary = Xlm
    languages = (1, 2)[: features.sides]
    before, made_of = made.batch(
        features, LENGTH, vocabulary, languages=languages, columns=columns, sentences=10
    )
    empty = {name: np.zeros_like(values[:1]) for name, values in before.items()}
    empty["input_ids"] += vocabulary.pad_id
    mapped = features.map(vocabulary, np.ones(vocabulary.size, np.int64), LENGTH)
    found = mapped(empty, Draws(3, 0, 1))
    for name in features.fields:
        values = np.asarray(found[name])
        assert values.shape[1:] == made_of[name].shape[1:], name
        if name in ("input_ids", "original_ids", "decoder_ids"):
            assert (values == vocabulary.pad_id).all(), name
        elif name == "special_ids":
            assert {*values[0].tolist()} == vocabulary.special_ids
        else:
            assert not values.any(), name
