"""Where the options of features end: what is just allowed, what just is not; and how many tokens,
slots and positions a row of a length has."""

import math

import numpy as np
import pytest

from tests.helpers import bounds, made, toy
from xlingjax.data.features import DECODER_FIELDS, SLOT_FIELDS, TOKEN_FIELDS
from xlingjax.errors import UserError
from xlingjax.preprocessors import finetuning
from xlingjax.preprocessors.ernie_m import BtmlmFeatures, CamlmFeatures
from xlingjax.preprocessors.mbart import MaskedTranslationFeatures, MaskedWordsFeatures
from xlingjax.preprocessors.noise import Noise
from xlingjax.preprocessors.retrieval import SentencePairFeatures
from xlingjax.preprocessors.span_qa import checked_separators
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

BERNOULLI = {"count": "bernoulli"}
ALLOWED = [
    (Masking, {"rate": 0.001}),
    (Masking, {"rate": 0.999}),
    (Masking, {"mask": 0.0, "random": 1.0}),
    (Masking, {"mask": 1.0, "random": 0.0}),
    # 0.7 + 0.2 + 0.1 in other orders: a hair more than 1.
    (Masking, {"mask": 0.9, "random": 0.1 + 1e-12}),
    (Masking, {**BERNOULLI, "subsampling": 0.0}),
    (Noise, {"infill": 0.0, "drop": 0.0, "mask": 0.0, "shuffle": 0.0}),
    (Noise, {"infill": 0.999, "drop": 0.999, "mask": 0.999}),
    (Noise, {"poisson": 0.0}),
    (Noise, {"poisson": 10.0}),
    (SpanCorruptionFeatures, {"density": 0.001, "mean_span": 1.0}),
    (SpanCorruptionFeatures, {"density": 0.999}),
    (BtmlmFeatures, {"proportion": 0.001}),
    (BtmlmFeatures, {"proportion": 0.999}),
    (XfnpFeatures, {"block": 2, "span": 1}),
    (CamlmFeatures, {"masking": Masking(mask=1.0, random=0.0)}),
]
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


@pytest.mark.parametrize(("kind", "options"), ALLOWED)
def test_the_last_value_that_is_allowed(kind, options):
    bounds.allowed(kind, options)


@pytest.mark.parametrize(("kind", "options", "message"), REFUSED)
def test_the_first_value_that_is_refused(kind, options, message):
    bounds.refused(kind, options, message)


# --- What a run asks of features ------------------------------------------------------------------

FOUR = TOKEN_FIELDS[:4]
ASKED = {
    # (sides, fields, has aligned documents, reads text beside pairs)
    ClmFeatures: (1, FOUR),
    MlmFeatures: (1, TOKEN_FIELDS + SLOT_FIELDS),
    TlmFeatures: (2, TOKEN_FIELDS + SLOT_FIELDS),
    CamlmFeatures: (2, (*TOKEN_FIELDS, "is_mask", *SLOT_FIELDS)),
    BtmlmFeatures: (
        1,
        (
            *TOKEN_FIELDS,
            "is_mask",
            "original_ids",
            "pseudo_positions",
            "pseudo_weights",
            "special_ids",
            *SLOT_FIELDS,
        ),
    ),
    ClwrFeatures: (2, (*TOKEN_FIELDS, "target_weights")),
    ClMlmFeatures: (2, TOKEN_FIELDS + SLOT_FIELDS),
    ClpcFeatures: (2, (*TOKEN_FIELDS, "labels", "example_weights")),
    DanFeatures: (2, TOKEN_FIELDS),
    VecoFeatures: (2, TOKEN_FIELDS + SLOT_FIELDS),
    VecoTextFeatures: (1, TOKEN_FIELDS + SLOT_FIELDS),
    SentencePairFeatures: (2, TOKEN_FIELDS),
    MaskedWordsFeatures: (1, FOUR + DECODER_FIELDS),
    MaskedTranslationFeatures: (2, FOUR + DECODER_FIELDS),
    TranslationFeatures: (2, FOUR + DECODER_FIELDS),
    DenoisingFeatures: (1, FOUR + DECODER_FIELDS),
    BackTranslationFeatures: (
        1,
        (*FOUR, *DECODER_FIELDS, "special_ids", "edge_ids", "pivot_languages"),
    ),
    SpanCorruptionFeatures: (1, FOUR + DECODER_FIELDS),
    XfnpFeatures: (1, (*FOUR, *DECODER_FIELDS, "run_offsets")),
}


@pytest.mark.parametrize("kind", ASKED, ids=lambda kind: kind.__name__)
def test_the_texts_that_features_read_and_the_fields_that_they_make(kind):
    features = kind()
    assert (features.sides, features.fields) == ASKED[kind]
    assert features.beside_pairs == (kind is BtmlmFeatures)
    assert features.aligned_documents == (kind is ClMlmFeatures)
    assert features.needs_pairs == (features.sides == 2 or kind is BtmlmFeatures)


def test_a_mined_table_has_a_third_text():
    assert ClpcFeatures(mined=True).sides == 3


PAIRS = [
    # (features, packed, whose language stands first, restarts at y, y opens as x does)
    (TlmFeatures(), True, {0, 1}, True, False),
    (TlmFeatures(packing=False, both_orders=False), False, {0}, True, False),
    (TlmFeatures(reset_positions=False), True, {0, 1}, False, False),
    (CamlmFeatures(), True, {0}, False, False),
    (CamlmFeatures(packing=False, reset_positions=True), False, {0}, True, False),
    (ClwrFeatures(), True, {0}, True, True),
    (ClwrFeatures(packing=False), False, {0}, True, True),
    (ClpcFeatures(), False, {0}, True, False),
    (ClpcFeatures(reset_positions=False), False, {0}, False, False),
    (DanFeatures(), False, {0}, True, False),
    (SentencePairFeatures(), False, {0}, True, True),
    (VecoFeatures(), True, {0}, True, False),
    (VecoFeatures(packing=False), False, {0}, True, False),
]


@pytest.mark.parametrize(
    ("features", "packed", "first", "restarts", "opens"),
    PAIRS,
    ids=lambda value: getattr(value, "name", None),
)
def test_the_rows_of_pairs(features, packed, first, restarts, opens):
    vocabulary = made.Xlmr
    text = made.records(2)
    bases = np.cumsum([1, text.sides[0].ids.size])
    rows = features.rows(text, bases, 48, vocabulary)
    assert (rows.packs.max() > 1) == packed
    second = np.flatnonzero(rows.sides == 1)
    assert (rows.sides[second - 1] == 0).all() and len(second) * 2 == len(rows.sides)
    assert {*rows.languages[second - 1].tolist()} == first
    assert (rows.positions[second] == 0).all() == restarts
    assert (rows.positions[second] > 0).all() != restarts
    assert rows.opens[second - 1].all()
    assert (rows.opens[second].all(), rows.opens[second].any()) == (opens, opens)
    # Of at most so many pieces, and `</s>` on either side.
    short = type(features)(max_pieces=5).rows(text, bases, 48, vocabulary)
    assert short.lengths.max() == 5 + 2 < rows.lengths.max()


@pytest.mark.parametrize("features", [ClmFeatures(), MlmFeatures(), BtmlmFeatures()])
def test_running_text_opens_with_a_token_of_its_own_where_the_layout_has_one(features):
    """`<s>` of layout xlmr; of xlm `</s>` ends the text before it."""
    for vocabulary in (made.Xlmr, made.Xlm):
        text = made.records(1, vocabulary=vocabulary)
        rows = features.rows(text, [1], 20, vocabulary)
        assert rows.count > 3 and (rows.packs == 1).all() and not rows.sides.any()
        if vocabulary is made.Xlmr:
            assert rows.opens[rows.splits[:-1]].all()
        else:
            assert not rows.opens.any()
    stream = type(features)(stream_length=9) if not isinstance(features, BtmlmFeatures) else None
    if stream:
        rows = stream.rows(made.records(1), [1], 20, made.Xlmr)
        assert rows.packs.max() == 2 and rows.lengths.max() == 9


def test_sentences_longer_than_asked_for_are_left_out():
    text = made.records(1)
    for features in (DenoisingFeatures(unit="sentences", max_pieces=5), BackTranslationFeatures()):
        rows = features.rows(text, [1], 48, made.Xlmr)
        assert (rows.packs.max() > 1) == isinstance(features, DenoisingFeatures)
        longest = 5 if isinstance(features, DenoisingFeatures) else 8
        assert rows.lengths.max() == longest + 2


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


def test_slots_that_are_asked_for_hold_the_rate_and_are_no_more_than_the_tokens():
    for kind in (MlmFeatures, TlmFeatures):
        assert kind(prediction_slots=3).slots(20) == 3
        assert kind(prediction_slots=30).slots(20) == 20
        with pytest.raises(UserError, match="2 prediction slots cannot hold 15% of 20 tokens; set"):
            kind(prediction_slots=2).slots(20)


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
    assert MaskedWordsFeatures(target="text").decoder_columns(40) == 40
    for kind in (TranslationFeatures, MaskedTranslationFeatures):
        assert (kind().columns(40), kind().decoder_columns(40)) == (80, 40)
    assert DenoisingFeatures().columns(40) == DenoisingFeatures().decoder_columns(40) == 40
    features = XfnpFeatures(10, 3)
    assert [features.decoder_columns(length) for length in (5, 11, 14, 15)] == [1, 3, 3, 4]
    with pytest.raises(
        UserError, match="rows of 4 tokens have no room for a run of 3 in 10: set l"
    ):
        features.decoder_columns(4)


@pytest.mark.parametrize(
    ("tokens", "hidden"),
    # At least one token stays, and at least one is hidden in one span; halves round to even.
    [(2, (1, 1)), (3, (1, 1)), (10, (2, 1)), (30, (4, 1)), (31, (5, 2)), (50, (8, 3))],
)
def test_tokens_that_span_corruption_hides(tokens, hidden):
    assert SpanCorruptionFeatures().hidden(tokens) == hidden


def test_span_corruption_of_short_rows():
    features = SpanCorruptionFeatures()
    # What is left of a text is one token less, a sentinel and `</s>` more.
    assert [features.columns(length) for length in (4, 5)] == [3, 4]
    assert features.decoder_columns(4) == 1 + 1 + 1
    assert SpanCorruptionFeatures(0.9).hidden(3) == (2, 1)
    with pytest.raises(UserError, match="rows of 3 tokens hold no text with a span hidden: set L"):
        features.columns(3)


def test_the_longest_rows_that_a_vocabularys_sentinels_stand_for_are_named():
    """Each span of a row has one of its own."""

    class Xlm(made.Xlm):
        unk_id = 3

    features, free = SpanCorruptionFeatures(), 9

    def spans(length):
        return features.hidden(features.columns(length))[1]

    longest = max(length for length in range(4, 400) if spans(length) <= free)
    text = made.records(1, vocabulary=Xlm)
    assert features.rows(text, [1], longest, Xlm).count > 0 and spans(longest + 1) == free + 1
    for length, more in ((longest + 1, 1), (2 * longest, spans(2 * longest) - free)):
        said = f"rows of {length} tokens hide {free + more} spans, .* has 9 special tokens left .*"
        with pytest.raises(
            UserError, match=f"{said} set length to {longest} or less, .* {more}` or"
        ):
            features.rows(text, [1], length, Xlm)


# --- Rows of tasks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "reset_positions", "separators"),
    [("xlm", False, 3), ("xlmr", False, 4), ("xlm", True, 4), ("xlmr", True, 4)],
)
def test_rows_of_tasks_hold_a_token_of_each_text_beside_the_separators(
    layout, reset_positions, separators
):
    vocabulary = toy.ToyVocabulary(layout)
    pair = ([20, 21], [30, 31], vocabulary)
    example = [finetuning.Example("a b", "c d", None)]
    least = separators + 2
    row = finetuning.pair_row(*pair, least, reset_positions)
    assert row["pack_ids"].all() and {20, 30} < {*row["input_ids"].tolist()}
    rows = finetuning.classification_rows(example, vocabulary, least, (), 0, reset_positions)
    assert rows["pack_ids"].all()
    said = f"length {least - 1} leaves no room .* {separators} separators: use at least {least}"
    with pytest.raises(UserError, match=said):
        finetuning.pair_row(*pair, least - 1, reset_positions)
    with pytest.raises(UserError, match=said):
        finetuning.classification_rows(example, vocabulary, least - 1, (), 0, reset_positions)
    sizes = {"stride": 1, "max_question": 1, "reset_positions": reset_positions}
    assert checked_separators(vocabulary, separators + 2, **sizes) == separators
    for length, wrong in ((separators + 1, {}), (99, {"stride": 0}), (99, {"max_question": 0})):
        with pytest.raises(UserError, match=rf"must be above MAX_QUESTION \+ {separators}"):
            checked_separators(vocabulary, length, **(sizes | wrong))


def test_a_single_text_has_two_separators():
    vocabulary = toy.ToyVocabulary()
    for length in (4, 5):
        row = finetuning.pair_row([20, 21, 22], None, vocabulary, length)
        assert row["input_ids"].tolist() == [1, *[20, 21, 22][: length - 2], 1]
        example = [finetuning.Example("a b c", None, None)]
        rows = finetuning.classification_rows(example, vocabulary, length, (), 0)
        assert rows["pack_ids"].all() and not rows["sides"].any()
    with pytest.raises(UserError, match="length 3 leaves no room .* 2 separators: use at least 4"):
        finetuning.pair_row([20], None, vocabulary, 3)
