"""What the features of an objective are where nothing is set: the papers' settings."""

import dataclasses

import pytest

from xlingjax.preprocessors.ernie_m import ALL_MASK, BtmlmFeatures, CamlmFeatures
from xlingjax.preprocessors.mbart import MaskedTranslationFeatures, MaskedWordsFeatures
from xlingjax.preprocessors.noise import Noise, Text
from xlingjax.preprocessors.parts import Part
from xlingjax.preprocessors.retrieval import SentencePairFeatures
from xlingjax.preprocessors.t5 import SpanCorruptionFeatures
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import OwnFiles, Training
from xlingjax.preprocessors.translation import (
    BackTranslationFeatures,
    DenoisingFeatures,
    TranslationFeatures,
)
from xlingjax.preprocessors.unicoder import ClMlmFeatures, ClpcFeatures, ClwrFeatures, DanFeatures
from xlingjax.preprocessors.veco import VecoFeatures, VecoTextFeatures
from xlingjax.preprocessors.xglue import XfnpFeatures
from xlingjax.preprocessors.xlm import ClmFeatures, Masking, MlmFeatures, TlmFeatures

HUNDRED = {"max_pieces": 100}
PACKED = {**HUNDRED, "packing": True}
TRANSLATED = {
    **PACKED,
    "directions": (),
    "language_tokens": False,
    "within": False,
    "truncate": False,
}
MASKING = {
    "rate": 0.15,
    "mask": 0.8,
    "random": 0.1,
    "count": "exact",
    "random_range": "ordinary",
    "subsampling": None,
    "validation": False,
}
GOLD = {"gold": ("en",), "translated": (), "split": "train", "labelled": None}
SETTINGS = {
    Masking: MASKING,
    ClmFeatures: {"stream_length": None},
    MlmFeatures: {"stream_length": None},
    TlmFeatures: {
        **PACKED,
        "reset_positions": True,
        "both_orders": True,
        "partner_visible": True,
        "shuffled_pairs": False,
    },
    CamlmFeatures: {
        **PACKED,
        "masking": Masking(mask=1.0, random=0.0),
        "layout": "in_place",
        "reset_positions": False,
    },
    BtmlmFeatures: {
        "proportion": 0.15,
        "placement": "behind",
        "reset_positions": False,
        "targets": None,
    },
    ClwrFeatures: PACKED,
    ClMlmFeatures: {"parity": "coin", "packing": True, "truncate": True, "alone": False},
    ClpcFeatures: {**HUNDRED, "mined": False, "negatives": 1, "reset_positions": True},
    DanFeatures: HUNDRED,
    VecoFeatures: PACKED,
    VecoTextFeatures: {"packing": True},
    SentencePairFeatures: HUNDRED,
    MaskedWordsFeatures: {"target": "words", "language_tokens": False},
    MaskedTranslationFeatures: {**TRANSLATED, "name": "masked_translation"},
    TranslationFeatures: {**TRANSLATED, "name": "translation"},
    DenoisingFeatures: {
        **PACKED,
        "noise": Noise(infill=0.3),
        "unit": "blocks",
        "language_tokens": True,
        "languages": None,
        "name": "xdae",
    },
    BackTranslationFeatures: {**HUNDRED, "pivots": (), "language_tokens": False},
    SpanCorruptionFeatures: {"density": 0.15, "mean_span": 3.0, "language_tokens": False},
    XfnpFeatures: {
        "block": 64,
        "span": 9,
        "mask": 0.8,
        "random": 0.1,
        "random_range": "ordinary",
        "packing": True,
    },
    Noise: {
        "infill": 0.0,
        "poisson": 3.0,
        "whole_words": True,
        "shuffle": 0.0,
        "drop": 0.0,
        "mask": 0.0,
        "unit": "words",
    },
    Text: {"begins": None},
    Part: {"paired": False},
    Training: GOLD,
    OwnFiles: GOLD,
    Reading: {
        "length": 128,
        "reset_positions": False,
        "stride": 128,
        "max_question": 64,
        "longest": 30,
        "pieces": "first",
        "beams": 1,
        "no_repeat_ngram": 0,
        "apart": True,
        "marks": None,
    },
}


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_the_settings_of_features(kind):
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(kind)
        if field.default is not dataclasses.MISSING
    }
    assert defaults == SETTINGS[kind]


def test_camlm_shows_every_masked_word_as_mask():
    assert Masking(mask=1.0, random=0.0) == ALL_MASK
