"""Sources and targets: every pair once in each direction, what the decoder reads and predicts,
noise on the source."""

import numpy as np
import pytest

from tests.helpers import made
from xlingjax.config.translation import pivots
from xlingjax.data.rows.targets import check_directions
from xlingjax.errors import UserError
from xlingjax.preprocessors.noise import Noise
from xlingjax.preprocessors.translation import (
    BackTranslationFeatures,
    DenoisingFeatures,
    TranslationFeatures,
)

BOS, EOS, PAD, SIZE = made.Xlmr.bos_id, made.Xlmr.eos_id, made.Xlmr.pad_id, made.Xlmr.size


class Vocabulary(made.Xlmr):
    @classmethod
    def pieces(cls, ids):
        return [f"▁{i}" for i in ids]

    @classmethod
    def begins_word(cls):
        return [True] * cls.size


def examples(batch):
    """[(source, source language, decoder input, targets, target language)] of every example,
    padding checked."""
    found = []
    for row in range(len(batch["pack_ids"])):
        of = {name: value[row] for name, value in batch.items()}
        for prefix, ids in (("", "input_ids"), ("decoder_", "decoder_ids")):
            used = of[f"{prefix}pack_ids"] > 0
            gaps = np.flatnonzero(np.diff(used.astype(int)) > 0) + 1  # between targets
            assert (
                (of[ids][~used] == PAD).all()
                and not used[gaps - 1].any()
                and (not gaps.size or prefix)
            )
        np.testing.assert_array_equal(of["decoder_weights"], of["decoder_pack_ids"] > 0)
        for pack in range(1, of["pack_ids"].max() + 1):
            source, target = of["pack_ids"] == pack, of["decoder_pack_ids"] == pack
            for positions, chosen in (
                (of["position_ids"], source),
                (of["decoder_position_ids"], target),
            ):
                np.testing.assert_array_equal(positions[chosen], np.arange(chosen.sum()))
            (language,), (target_language,) = (
                {*of["language_ids"][source]},
                {*of["decoder_language_ids"][target]},
            )
            ids = (
                of[name][chosen].tolist()
                for name, chosen in (("input_ids", source), ("decoder_ids", target))
            )
            found.append(
                (*ids, of["decoder_targets"][target].tolist(), int(language), int(target_language))
            )
    return found


def lines(text, number):
    """The sentences of a side in order, blank ones as ()."""
    tokens, at, found = text.sides[number], 0, []
    for length in tokens.lengths.tolist():
        found.append(tuple(tokens.ids[at : at + max(length - 1, 0)].tolist()))
        at += length
    return found


@pytest.mark.parametrize("packing", [True, False])
def test_every_pair_is_translated_both_ways_once(packing):
    features = TranslationFeatures(packing=packing)
    _, batch = made.batch(features, length=24, languages=(0, 1), sentences=30, columns=48)
    pairs = [
        pair
        for pair in zip(*(lines(made.records(2, sentences=30), n) for n in (0, 1)), strict=True)
        if pair[0]
    ]
    expected = {((BOS, *x, EOS), (*y, EOS), way) for x, y in pairs for way in (0,)}
    expected |= {((BOS, *y, EOS), (*x, EOS), 1) for x, y in pairs}
    found = examples(batch)
    assert {
        (tuple(source), tuple(targets), language) for source, _, targets, language, _ in found
    } == expected
    assert len(found) == 2 * len(pairs) and all(
        language + target == 1 for *_, language, target in found
    )
    assert all(inputs == [EOS, *targets[:-1]] for _, inputs, targets, _, _ in found)
    assert (len(batch["pack_ids"]) < len(found) / 2) == packing


def test_directions_and_language_tokens():
    features = TranslationFeatures(directions=("en-de",), language_tokens=True)
    _, batch = made.batch(features, length=24, languages=(0, 1), columns=48)
    found = examples(batch)
    assert found and all((language, target) == (1, 0) for *_, language, target in found)
    assert all(inputs[0] == SIZE + 0 and targets[-1] == EOS for _, inputs, targets, _, _ in found)
    check_directions(("en-de",), [("de", "en")])
    with pytest.raises(UserError, match="no pairs for 'en-fr'; there are de-en, en-de"):
        check_directions(("en-fr",), [("de", "en")])


@pytest.mark.parametrize(
    "features",
    [
        TranslationFeatures(language_tokens=True),
        DenoisingFeatures(Noise(), "sentences", languages=("de", "en", "fr")),
        BackTranslationFeatures(((1, (2,)), (2, (1,))), language_tokens=True),
    ],
    ids=lambda features: features.name,
)
def test_the_decoder_begins_with_the_token_of_its_targets_language(features):
    """Of languages 1 and 2: the token behind the vocabulary is not always the first."""
    columns = features.columns(24)
    of_sides = [(1, 2)] if features.sides == 2 else [(1,), (2,)]
    begun = set()
    for languages in of_sides:
        _, batch = made.batch(
            features, length=24, vocabulary=Vocabulary, languages=languages, columns=columns
        )
        for _, inputs, _, _, target_language in examples(batch):
            begun.add((inputs[0] - SIZE, target_language))
    assert begun == {(1, 1), (2, 2)}


def test_blocks_hold_whole_sentences_of_one_document_and_noise_leaves_the_target():
    noise = Noise(infill=0.3, shuffle=3.0, drop=0.1, mask=0.1, unit="pieces")
    features = DenoisingFeatures(noise, languages=("de",), language_tokens=False)
    _, batch = made.batch(features, length=24, vocabulary=Vocabulary, languages=(0,), longest=6)
    found = examples(batch)
    text = lines(made.records(1, longest=6), 0)
    documents = "|".join("" if not line else ",".join(map(str, line)) + f",{EOS}" for line in text)
    documents = [
        [int(i) for i in part.replace("|", ",").strip(",").split(",")]
        for part in documents.split("||")
    ]
    restored, noisy = [], 0
    for source, inputs, targets, _, _ in found:
        assert len(targets) < 24 and inputs == [EOS, *targets[:-1]] and targets[-1] == EOS
        (home,) = [
            d for d in documents if any(d[i : i + len(targets)] == targets for i in range(len(d)))
        ]
        noisy += source != [BOS, *targets]
        kept = [i for i in source if i in (EOS,)]
        assert len(kept) == targets.count(EOS) and home
        restored += targets
    assert sorted(restored) == sorted(i for d in documents for i in d) and noisy > len(found) * 0.8


def test_a_text_to_translate_back_stands_on_both_sides_of_its_own_row():
    features = BackTranslationFeatures(((0, (1, 2)), (1, (0,)), (2, (0, 1))), language_tokens=True)
    _, batch = made.batch(features, length=24, languages=(0,), sentences=200)
    found = examples(batch)
    assert len(found) == len(batch["pack_ids"]) > 100
    assert all(
        source == [BOS, *targets] and inputs == [SIZE, *targets[:-1]]
        for source, inputs, targets, *_ in found
    )
    assert {tuple(targets[:-1]) for _, _, targets, *_ in found} == made.texts(
        made.records(1, sentences=200), 0
    )
    share = (batch["pivot_languages"] == 1).mean()  # drawn evenly
    assert {*batch["pivot_languages"]} == {1, 2} and abs(share - 0.5) < 3 * 0.5 / len(found) ** 0.5
    _, other = made.batch(features, length=24, languages=(1,), step=1)
    assert {*other["pivot_languages"]} == {0}
    assert {*map(tuple, batch["edge_ids"])} == {(BOS, EOS, PAD)}
    assert {*batch["special_ids"][0]} == {*made.Xlmr.special_ids}


def test_directions_say_into_which_languages_a_text_is_translated():
    languages = ("de", "en", "fr")
    assert dict(pivots(languages, (), languages)) == {0: (1, 2), 1: (0, 2), 2: (0, 1)}
    assert dict(pivots(languages, ("de-en", "fr-de", "en-fr", "de-fr"), languages)) == {
        0: (2,),
        1: (0,),
        2: (0, 1),
    }
    assert dict(pivots(languages, ("de-en",), {"en"})) == {1: (0,)}  # no text in German or French
    for chosen, match in (
        (("de-ru",), "'de-ru' is none of de-en"),
        (("de-en", "en-fr"), "none leads to de, whose"),
    ):
        with pytest.raises(UserError, match=match):
            pivots(languages, chosen, languages)
    with pytest.raises(UserError, match="set LANGUAGES to two"):
        pivots(("de",), (), ("de",))


def test_pairs_that_are_read():
    within, both = TranslationFeatures(within=True), TranslationFeatures()
    one = TranslationFeatures(directions=("en-de",))
    pairs = [("de", "en"), ("en", "fr"), ("en", "en")]
    assert [[features.takes(pair) for pair in pairs] for features in (both, one, within)] == [
        [True, True, False], [True, False, False], [False, False, True]
    ]  # fmt: skip
    _, batch = made.batch(
        TranslationFeatures(within=True),
        length=24,
        languages=(0, 0),
        columns=48,
        codes=("de", "de"),
    )
    # The second text is the target, once.
    assert {inputs[1] < 56 for _, inputs, *_ in examples(batch)} == {False}


def test_long_sources_are_cut_where_asked_and_long_targets_left_out():
    limit, kept = 5, {}
    for truncate in (False, True):
        features = TranslationFeatures(within=True, max_pieces=limit, truncate=truncate)
        _, batch = made.batch(features, length=24, languages=(0, 0), columns=48, codes=("de", "de"))
        kept[truncate] = {
            (tuple(source), tuple(targets)) for source, _, targets, *_ in examples(batch)
        }
    records, pairs = made.records(2, codes=("de", "de")), []
    for side in records.sides:
        texts = np.split(side.ids, np.cumsum(side.lengths))[:-1]
        pairs.append([text.tolist()[:-1] for text in texts])
    pairs = [
        (source, target)
        for source, target in zip(*pairs, strict=True)
        if source and len(target) <= limit
    ]
    expected = {((BOS, *source[:limit], EOS), (*target, EOS)) for source, target in pairs}
    assert (
        kept[True] == expected
        and kept[False]
        == {
            (source, target)
            for source, target in expected
            if (list(source[1:-1]), list(target[:-1])) in pairs
        }
        != expected
    )
