"""What objectives make of the states, logits and texts that a model gives them: worked out by hand,
without a model."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers.reference import GENERATOR
from xlingjax.model.build import build_model
from xlingjax.model.decoding import Decoding, Texts
from xlingjax.objectives import back_translation
from xlingjax.objectives.back_translation import BackTranslation
from xlingjax.objectives.retrieval import HardestNegative

PAIRS = {
    "input_ids": np.array([[5, 6, 7, 8], [5, 9, 7, 9], [2, 2, 2, 2]]),
    "pack_ids": np.array([[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]]),
    "sides": np.array([[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]]),
    "position_ids": np.array([[0, 1, 0, 1]] * 3),
    "language_ids": np.array([[2, 0, 1, 1], [3, 1, 1, 1], [0, 0, 0, 0]]),
}
X, Y = np.array([[3.0, 0.0], [0.0, 0.2], [0.0, 0.0]]), np.array([[6.0, 8.0], [0.0, 5.0], [0, 0]])
U, V = X / [[3], [0.2], [1]], Y / [[10], [5], [1]]
COSINES = np.array([[0.6, 0.0], [0.8, 1.0]])


@pytest.mark.parametrize("side", [0, 1])
def test_what_translates_two_texts_is_no_negative_of_its_own(monkeypatch, side):
    """Where x (0) or y (1) stands in both pairs, the other side of each has no negative."""
    ids = PAIRS["input_ids"].copy()
    ids[:, 2 * side + 1] = 6
    monkeypatch.setattr(HardestNegative, "vectors", lambda *_: (jnp.asarray(U), jnp.asarray(V)))
    model, batch = types.SimpleNamespace(), PAIRS | {"input_ids": ids}
    loss = HardestNegative().loss(model, {}, batch, None, 4)
    scores = HardestNegative().scale * COSINES + HardestNegative().bias
    negatives = scores if side == 0 else scores.T
    each = np.log1p(np.exp(-np.diagonal(scores))) + 0.5 * np.log1p(
        np.exp([negatives[0, 1], negatives[1, 0]])
    )
    np.testing.assert_allclose(loss.terms["hardest_negative"], each.sum(), rtol=1e-5)


def test_texts_are_equal_wherever_they_stand_and_in_one_order_alone():
    def numbers(rows, side=1):
        """Of texts behind first ones of various lengths."""
        length = max(len(first) + len(text) for first, text in rows)
        ids, sides, packs, places = (np.zeros((len(rows), length), int) for _ in range(4))
        for row, (first, text) in enumerate(rows):
            used = len(first) + len(text)
            ids[row, :used], packs[row, :used] = [*first, *text], 1
            sides[row, len(first) : used] = 1
            places[row, :used] = [*range(len(first)), *range(len(text))]
        batch = {"input_ids": ids, "position_ids": places, "sides": sides, "pack_ids": packs}
        return HardestNegative()._texts(batch, side).tolist()

    one, same, turned, longer = numbers(
        [([7], [4, 5, 6]), ([8, 9], [4, 5, 6]), ([7], [6, 5, 4]), ([7], [4, 5, 6, 0])]
    )
    assert one == same and len({one, turned, longer}) == 3
    assert len({*numbers([([], [a, b]) for a in range(30) for b in range(30)])}) == 900


# --- Back-translation -----------------------------------------------------------------------------

END, PAD, FIRST = 2, 1, 0
# The best of each beam, and another one.
WRITTEN = np.array(
    [
        [[30, 31, END, PAD, PAD], [50, END, PAD, PAD, PAD]],
        [[32, 33, 34, 35, 36], [51, 51, 51, END, PAD]],
        [[PAD] * 5] * 2,
    ]
)
LENGTHS = np.array([[3, 2], [5, 4], [0, 0]])
TEXTS = {
    "input_ids": np.full((3, 6), 40),
    "pack_ids": np.array([[1] * 6, [1] * 4 + [0] * 2, [0] * 6]),
    "edge_ids": np.array([[FIRST, END, PAD]] * 3),
    "special_ids": np.array([[FIRST, PAD, END, 3] * 4] * 3),
    "pivot_languages": np.array([2, 1, 0]),
}


def generating(monkeypatch, language_tokens=0):
    """(a model whose `generate` writes `WRITTEN`, what it was asked for)."""
    asked = {}

    def generate(model, params, batch, start, language, ids, decoding, columns):
        names = ("start", "language", "ids", "decoding", "columns")
        values = (start, language, ids, decoding, columns)
        asked.update(zip(names, values, strict=True))
        return Texts(jnp.asarray(WRITTEN), jnp.asarray(LENGTHS), jnp.zeros((3, 2)))

    monkeypatch.setattr(back_translation, "generate", generate)
    return build_model(GENERATOR.replace(language_tokens=language_tokens)), asked


def test_the_source_that_back_translation_reads_is_what_was_written(monkeypatch):
    model, asked = generating(monkeypatch)
    objective = BackTranslation()
    found = objective.translated(model, {}, TEXTS)
    assert asked["decoding"] == Decoding(max_length=(1.3, 5))
    # A row's source opens with a token of its own.
    assert asked["columns"] == 6 - 1
    np.testing.assert_array_equal(asked["start"], [END] * 3)
    np.testing.assert_array_equal(asked["language"], [2, 1, 0])
    assert (int(asked["ids"].end), int(asked["ids"].pad)) == (END, PAD)
    # Every special token but the one that ends a text.
    assert {*np.asarray(asked["ids"].banned).tolist()} == {FIRST, PAD, 3}
    want = {
        "input_ids": [
            [FIRST, 30, 31, END, PAD, PAD],
            # It was cut at its longest, and ends all the same.
            [FIRST, 32, 33, 34, 35, END],
            [PAD] * 6,
        ],
        "position_ids": [[0, 1, 2, 3, 0, 0], [*range(6)], [0] * 6],
        "language_ids": [[2, 2, 2, 2, 0, 0], [1] * 6, [0] * 6],
        "pack_ids": [[1, 1, 1, 1, 0, 0], [1] * 6, [0] * 6],
    }
    assert {name: np.asarray(value).tolist() for name, value in found.items()} == want
    for name in ("input_ids", "position_ids", "pack_ids"):
        assert found[name].dtype == jnp.int32
    second, batch = objective.as_read(model, {}, TEXTS)
    assert (second.name, second.coefficients) == ("back_translation", objective.coefficients)
    np.testing.assert_array_equal(batch["input_ids"], want["input_ids"])
    np.testing.assert_array_equal(batch["edge_ids"], TEXTS["edge_ids"])


def test_a_translation_begins_with_the_token_of_its_language_where_there_are_such(monkeypatch):
    model, asked = generating(monkeypatch, language_tokens=3)
    BackTranslation().translated(model, {}, TEXTS)
    first = GENERATOR.vocab_size - 3
    np.testing.assert_array_equal(asked["start"], [first + 2, first + 1, first])
