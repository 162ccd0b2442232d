"""Span corruption beside what T5's own preprocessor gives."""

import functools

import numpy as np
import pytest
import seqio
import tensorflow as tf
from t5.data import preprocessors as t5

from tests.helpers import made
from xlingjax.errors import UserError
from xlingjax.preprocessors.t5 import SpanCorruptionFeatures, sentinel_ids


class Xlm(made.Xlm):
    unk_id = 3


class Xlmr(made.Xlmr):
    unk_id = 3


END, SENTINELS = 1, [13, 12, 11, 10, 9, 8, 7, 6, 4]


LENGTH = 64


@pytest.fixture(scope="module")
def rows():
    """(token fields before the features' map, the batch)."""
    features = SpanCorruptionFeatures()
    return tuple(
        made.batch(
            features, LENGTH, Xlm, languages=(1,), columns=features.columns(LENGTH), sentences=300
        )
    )


def texts(batch, name, packs):
    return [row[pack > 0].tolist() for row, pack in zip(batch[name], batch[packs], strict=True)]


def theirs(text, length):
    """The rows that `span_corruption` makes of a text, with other draws; its sentinels as ours."""
    vocabulary = seqio.PassThroughVocabulary(Xlm.size + len(SENTINELS), eos_id=END)
    feature = seqio.Feature(vocabulary)
    # Converting their functions line by line would take seconds, and none of them needs it.
    span_corruption = tf.autograph.experimental.do_not_convert(t5.span_corruption)
    with seqio.utils.map_seed_manager(5):
        data = span_corruption(
            tf.data.Dataset.from_tensors({"targets": tf.constant(text, tf.int32)}),
            {"inputs": length, "targets": length},
            {"inputs": feature, "targets": feature},
        )
    made = []
    for example in data.as_numpy_iterator():
        of_example = []
        for name in ("inputs", "targets"):
            ids = [
                SENTINELS[Xlm.size + len(SENTINELS) - 1 - i] if i >= Xlm.size else i
                for i in example[name].tolist()
            ]
            of_example.append([*ids, END])
        made.append(of_example)
    return made


def spans_of(target, sentinels=SENTINELS):
    """[(sentinel, what it hides)] of a target."""
    assert target[-1] == END
    found = []
    for i in target[:-1]:
        if i in sentinels:
            found.append((i, []))
        else:
            found[-1][1].append(i)
    return found


def test_rows_are_t5s_but_for_the_draws(rows):
    before, batch = rows
    whole = texts(before, "input_ids", "pack_ids")
    sources = texts(batch, "input_ids", "pack_ids")
    targets = texts(batch, "decoder_targets", "decoder_pack_ids")
    assert len(whole) > 20
    sizes = set()
    others = theirs(sum(whole, []), LENGTH)
    for text, source, target, other in zip(whole, sources, targets, others, strict=True):
        their_source, their_target = other
        assert (len(source), len(target)) == (len(their_source), len(their_target))
        for of_source, of_target in ((source, target), (their_source, their_target)):
            hidden = spans_of(of_target)
            assert [i for i, _ in hidden] == SENTINELS[: len(hidden)]
            # What each sentinel hides, put back: the text.
            restored = []
            for i in of_source[:-1]:
                restored += dict(hidden).get(i, [i])
            assert restored == text
        sizes.add((len(source), len(target)))
    # All but the last row are full, and no column is empty.
    assert (LENGTH, batch["decoder_targets"].shape[1]) in sizes
    assert len(sizes) <= 2
    assert {*batch["decoder_language_ids"][0]} == {1}
    assert batch["decoder_ids"][0, 0] == END
    np.testing.assert_array_equal(batch["decoder_ids"][0, 1:], batch["decoder_targets"][0, :-1])


def test_spans_are_as_long_and_as_far_apart_as_t5s(rows):
    """The lengths of spans over many rows, beside those of T5's masks by other draws."""
    _, batch = rows
    own = [
        len(of_span)
        for target in texts(batch, "decoder_targets", "decoder_pack_ids")[:-1]
        for _, of_span in spans_of(target)
    ]
    columns = SpanCorruptionFeatures().columns(LENGTH)
    mask = tf.function(
        functools.partial(t5.random_spans_noise_mask, columns, 0.15), autograph=False
    )
    other = []
    for seed in range(60):
        hidden = mask(seeds=tf.constant([[seed, 1], [seed, 2]])).numpy().astype(int)
        edges = np.flatnonzero(np.diff([0, *hidden, 0]))
        other += (edges[1::2] - edges[::2]).tolist()
    assert min(own) == min(other) == 1
    assert np.mean(own) == pytest.approx(np.mean(other), abs=0.01)
    assert np.std(own) == pytest.approx(np.std(other), rel=0.25)


def test_rows_have_the_sizes_that_t5s_masks_give():
    features = SpanCorruptionFeatures()
    differ = []
    for length in range(10, 600):
        sizes = (features.columns(length), features.decoder_columns(length))
        told = t5.random_spans_helper(length, 0.15, 3.0, 1, 1)
        if sizes != told:
            differ.append((length, sizes, told))
    # T5's helper counts in float64 and its masks in float32: there it tells two tokens too few.
    assert [length for length, *_ in differ] == [172, 316, 352]
    for _, (tokens, targets), (_, told) in differ:
        mask = t5.random_spans_noise_mask(tokens, 0.15, tf.constant([[1, 2], [3, 4]])).numpy()
        spans = (np.diff([0, *mask.astype(int)]) == 1).sum()
        assert mask.sum() + spans + 1 == targets == told + 2


def test_what_the_vocabulary_cannot_stand_for_is_said():
    assert sentinel_ids(Xlm) == SENTINELS
    assert sentinel_ids(Xlmr) == []
    with pytest.raises(UserError, match=r"rows of 512 tokens hide 28 spans, .* has 9 special tok"):
        SpanCorruptionFeatures().map(Xlm, None, 512)
    with pytest.raises(UserError, match="has 0 special tokens left"):
        SpanCorruptionFeatures().map(Xlmr, None, 64)
