"""Batches of features from a few random sentences, without files."""

import numpy as np

from xlingjax.data.batches.loader import as_declared
from xlingjax.data.rows.draws import Draws
from xlingjax.data.rows.plan import RowReader
from xlingjax.data.store.tokenise import Records, Tokens


class Xlm:
    """The ids of a vocabulary of layout `xlm` with 100 pieces."""

    layout, size, mask_id, bos_id, eos_id, pad_id = "xlm", 100, 5, 1, 1, 2
    special_ids, marks_ends = frozenset(range(14)), False


class Xlmr(Xlm):
    layout, mask_id, bos_id, eos_id, pad_id = "xlmr", 99, 0, 2, 1
    special_ids = frozenset((0, 1, 2, 3, 99))


def records(
    sides, sentences=40, shortest=2, longest=8, document=5, vocabulary=Xlmr, seed=0,
    codes=("de", "en", "en"),
):  # fmt: skip
    """Aligned sentences of random pieces 14..98, those of side 1 above 56; a blank line after every
    `document`."""
    rng = np.random.default_rng(seed)
    made = []
    for side in range(sides):
        ids, lengths = [], []
        for sentence in range(sentences):
            low, high = (14, 56) if side == 0 else (56, 99)
            words = rng.integers(low, high, rng.integers(shortest, longest + 1)).tolist()
            blank = sentence % (document + 1) == document
            ids += [] if blank else [*words, vocabulary.eos_id]
            lengths.append(0 if blank else len(words) + 1)
        made.append(Tokens(np.array(ids, np.uint16), np.array(lengths, np.int32)))
    return Records(codes[:sides], tuple(made))


def batch(
    features, length=48, vocabulary=Xlmr, languages=(0, 1, 1), step=0, columns=None, **options
):
    """(token fields before the features' map, in rows of `columns`, the batch), of all rows."""
    text = records(features.sides, vocabulary=vocabulary, **options)
    rows = features.rows(text, length, vocabulary)
    reader = RowReader.of_records(text, rows, languages, columns or length, vocabulary)
    before = reader(np.arange(rows.count))
    after = features.map(vocabulary, np.ones(vocabulary.size, np.int64), length)(
        before, Draws(3, step, rows.count)
    )
    assert set(after) >= set(features.fields)
    return before, as_declared(after, tuple(after))


def slots(made, row, half=None):
    """[(column, target)] of the used slots of a row, or of one half of them."""
    width = made["masked_weights"].shape[1] // 2
    part = {None: slice(None), 0: slice(0, width), 1: slice(width, None)}[half]
    columns, targets, weights = (
        made[f"masked_{name}"][row, part] for name in ("positions", "targets", "weights")
    )
    return list(zip(columns[weights > 0].tolist(), targets[weights > 0].tolist(), strict=True))


def texts(text, side):
    """The sentences of a side, as tuples of pieces."""
    tokens = text.sides[side]
    ends = np.cumsum(tokens.lengths)
    return {
        tuple(tokens.ids[end - n : end - 1].tolist())
        for end, n in zip(ends, tokens.lengths, strict=True)
        if n
    }
