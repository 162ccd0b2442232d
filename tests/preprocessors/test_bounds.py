"""Where the options of features end: what is just allowed, what just is not; and how many tokens,
slots and positions a row of a length has."""

import math

import pytest

from tests.helpers import bounds
from xlingjax.errors import UserError
from xlingjax.preprocessors.ernie_m import BtmlmFeatures, CamlmFeatures
from xlingjax.preprocessors.mbart import MaskedTranslationFeatures, MaskedWordsFeatures
from xlingjax.preprocessors.noise import Noise
from xlingjax.preprocessors.t5 import SpanCorruptionFeatures
from xlingjax.preprocessors.translation import DenoisingFeatures, TranslationFeatures
from xlingjax.preprocessors.unicoder import ClMlmFeatures, ClpcFeatures
from xlingjax.preprocessors.veco import VecoFeatures, VecoTextFeatures
from xlingjax.preprocessors.xglue import XfnpFeatures
from xlingjax.preprocessors.xlm import Masking, MlmFeatures

BERNOULLI = {"count": "bernoulli"}
REFUSED = [
    (Masking, {"rate": 0.0}, "rate=0.0: a number above 0 and below 1 is needed"),
    (Masking, {"rate": 1.0}, "rate=1.0: a number above 0 and below 1 is needed"),
    (Masking, {"mask": -0.001}, "=-0.001: a number from 0 to 1 is needed"),
    (Masking, {"random": -0.001}, "=-0.001: a number from 0 to 1 is needed"),
    (Masking, {"mask": 0.9, "random": 0.1001}, "sum to at most 1"),
    (Masking, {**BERNOULLI, "subsampling": 0.1}, "exact number of positions"),
    (Noise, {"infill": -0.001}, "infill=-0.001: a number from 0 to below 1"),
    (Noise, {"infill": 1.0}, "infill=1.0: a number from 0 to below 1"),
    (Noise, {"mask": 1.0}, "mask=1.0: a number from 0 to below 1"),
    (Noise, {"shuffle": -0.5}, "shuffle=-0.5: a number of 0 or more"),
    (Noise, {"poisson": -0.001}, "poisson=-0.001: a number from 0 to 10"),
    (SpanCorruptionFeatures, {"density": 1.0}, "density=1.0: a number above 0 and below 1"),
    (SpanCorruptionFeatures, {"density": 0.0}, "density=0.0: a number above 0"),
    (SpanCorruptionFeatures, {"mean_span": 0.999}, "mean_span=0.999: a number of 1 or more"),
    (BtmlmFeatures, {"proportion": 0.0}, "proportion=0.0: a number above 0 and below 1"),
    (BtmlmFeatures, {"proportion": 1.0}, "proportion=1.0: a number above 0 and below 1"),
    (XfnpFeatures, {"span": 0}, "span=0 must be at least 1"),
    (XfnpFeatures, {"block": 9, "span": 9}, "span=9 must be at least 1 and below block=9"),
    (CamlmFeatures, {"masking": Masking(mask=0.999, random=0.0)}, "shows every chosen word as M"),
]


@pytest.mark.parametrize(("kind", "options", "message"), REFUSED)
def test_the_first_value_that_is_refused(kind, options, message):
    bounds.refused(kind, options, message)


# --- What a run asks of features ------------------------------------------------------------------


def test_a_mined_table_has_a_third_text():
    assert ClpcFeatures(mined=True).sides == 3


# --- How much of what there is in a row -----------------------------------------------------------


@pytest.mark.parametrize(
    ("masking", "length", "slots"),
    [
        (Masking(), 20, 3),
        (Masking(), 21, 4),
        (Masking(0.9), 20, 18),
        # mean 3 and four deviations of 1.597: 9.39
        (Masking(count="bernoulli"), 20, 10),
        (Masking(validation=True), 20, 10),
        # No more than there are tokens.
        (Masking(0.9, count="bernoulli"), 20, 20),
    ],
)
def test_slots_of_a_length(masking, length, slots):
    assert masking.slots(length) == slots
    assert MlmFeatures(masking).slots(length) == ClMlmFeatures(masking).slots(length) == slots


def test_a_side_of_a_pair_has_slots_for_two_thirds_of_a_row():
    assert VecoFeatures().slots(48) == 2 * math.ceil(0.25 * 32)
    assert VecoFeatures().slots(49) == 2 * math.ceil(0.25 * 33)
    assert VecoTextFeatures().slots(48) == CamlmFeatures().slots(48) == 2 * math.ceil(0.15 * 32)
    assert VecoTextFeatures().slots(50) == CamlmFeatures().slots(50) == 2 * math.ceil(0.15 * 34)


@pytest.mark.parametrize("length", range(12, 80))
def test_the_text_is_as_long_as_leaves_room_for_what_stands_behind_it(length):
    camlm = CamlmFeatures(layout="slots")
    text = camlm.text_length(length)

    def side(tokens):
        return math.ceil(0.15 * math.ceil(2 * tokens / 3) - 1e-6)

    assert text + 2 * side(text) <= length < text + 1 + 2 * side(text + 1)
    assert camlm.slots(length) == 2 * side(text)
    assert CamlmFeatures().text_length(length) == length

    btmlm = BtmlmFeatures()
    text = btmlm.text_length(length)
    # In whole numbers: 0.15 * 20 is a hair above 3.
    places = -(-15 * text // 100)
    assert btmlm.placeholders(length) == places
    assert text + places <= length < text + 1 - (-15 * (text + 1) // 100)
    assert btmlm.slots(length) == places
    assert btmlm.positions(length) == text + places
    assert BtmlmFeatures(placement="scattered").positions(length) == 2 * text
    assert BtmlmFeatures(reset_positions=True).positions(length) == text


def test_what_a_decoder_reads_has_as_many_columns_as_it_may_need():
    assert MaskedWordsFeatures().decoder_columns(40) == 6 + 1
    for kind in (TranslationFeatures, MaskedTranslationFeatures):
        assert (kind().columns(40), kind().decoder_columns(40)) == (80, 40)
    assert DenoisingFeatures().columns(40) == DenoisingFeatures().decoder_columns(40) == 40
    features = XfnpFeatures(10, 3)
    assert [features.decoder_columns(length) for length in (5, 11, 14, 15)] == [1, 3, 3, 4]
    with pytest.raises(
        UserError, match="rows of 4 tokens have no room for a run of 3 in 10: set l"
    ):
        features.decoder_columns(4)


def test_span_corruption_of_short_rows():
    features = SpanCorruptionFeatures()
    assert (features.columns(4), features.decoder_columns(4)) == (3, 1 + 1 + 1)
    with pytest.raises(UserError, match="rows of 3 tokens hold no text with a span hidden: set L"):
        features.columns(3)
