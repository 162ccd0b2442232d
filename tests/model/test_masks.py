import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from xlingjax.model.masks import (
    Fields,
    Mask,
    bidirectional,
    camlm,
    camlm_alone,
    causal,
    first_side,
    full,
    itself,
    mask_keys,
    mask_queries,
    own_side,
    partner,
    prefix,
    pseudo_tokens,
    pseudo_tokens_together,
    same_pack,
    same_side,
    valid_keys,
)


def fields(pack, **other):
    pack = jnp.asarray([pack])
    return Fields.from_batch({"input_ids": jnp.zeros_like(pack), "pack_ids": pack, **other})


def grid(mask, f):
    return ["".join(".x"[int(v)] for v in row) for row in np.asarray(mask(f, f))[0]]


def test_predicates_compose():
    f = fields([1, 1, 2, 0])
    assert grid(full, f) == ["xxxx"] * 4
    assert grid(valid_keys, f) == ["xxx."] * 4
    assert grid(same_pack | causal, f) == ["xx..", "xx..", "xxx.", "xxxx"]
    assert grid(~same_pack & valid_keys, f) == ["..x.", "..x.", "xx..", "xxx."]


def test_fields_come_from_the_batch():
    batch = {
        "input_ids": jnp.array([[7, 5, 2]]),
        "pack_ids": jnp.array([[1, 1, 0]]),
        "sides": jnp.array([[0, 1, 0]]),
        "language_ids": jnp.array([[2, 3, 0]]),
        "position_ids": jnp.array([[0, 0, 0]]),
        "is_mask": jnp.array([[0, 1, 0]]),
    }
    f = Fields.from_batch(batch)
    np.testing.assert_array_equal(f.valid, [[True, True, False]])
    np.testing.assert_array_equal(f.is_mask, [[False, True, False]])
    # The column: restarting positions would break `causal`.
    np.testing.assert_array_equal(f.position, [[0, 1, 2]])
    np.testing.assert_array_equal(f.side, [[0, 1, 0]])
    np.testing.assert_array_equal(f.language, [[2, 3, 0]])


def test_masks_are_equal_by_name():
    assert causal & bidirectional == causal & bidirectional
    assert causal & bidirectional != bidirectional
    assert hash(bidirectional) == hash(same_pack & valid_keys)
    assert Mask("own", full.allow).name == "own"
    # By the name alone, and messages and keys say no more of it.
    assert Mask("causal", full.allow) == causal
    assert repr(causal & ~full) == "Mask(name='(causal & ~full)')"


def test_a_query_that_sees_nothing_sees_its_own_column_wherever_its_row_is_cut():
    f = fields([1, 1, 0, 0, 0])
    nothing = Mask("nothing", lambda q, k: q.valid & k.valid & False)
    assert grid(nothing, f) == ["x....", ".x...", "..x..", "...x.", "....x"]
    queries = fields([1, 0, 0])

    def cut_from(first):
        cut = dataclasses.replace(queries, position=queries.position + first)
        return np.asarray(nothing(cut, f))[0]

    cut = cut_from(1)
    np.testing.assert_array_equal(cut, np.eye(5, dtype=bool)[1:4])
    # Of fewer keys the last one.
    cut = cut_from(3)
    np.testing.assert_array_equal(cut, np.eye(5, dtype=bool)[[3, 4, 4]])


# By their words in `masks.py`: whether query q sees key k, each (column, pack, side, is MASK).
DEFINED = {
    full: lambda q, k: True,
    causal: lambda q, k: k.column <= q.column,
    same_side: lambda q, k: q.side == k.side,
    same_pack: lambda q, k: q.pack == k.pack,
    valid_keys: lambda q, k: k.pack > 0,
    itself: lambda q, k: q.column == k.column,
    mask_queries: lambda q, k: q.masked,
    mask_keys: lambda q, k: k.masked,
    first_side: lambda q, k: k.side == 0,
    bidirectional: lambda q, k: alike(q, k),
    own_side: lambda q, k: alike(q, k) and q.side == k.side,
    partner: lambda q, k: alike(q, k) and q.side != k.side,
    prefix: lambda q, k: alike(q, k) and (k.side == 0 or k.column <= q.column),
    camlm: lambda q, k: of_pair(q, k, q.side == k.side and k.masked),
    camlm_alone: lambda q, k: of_pair(q, k, q.column == k.column),
    pseudo_tokens: lambda q, k: alike(q, k) and (not k.masked or q.column == k.column),
    pseudo_tokens_together: lambda q, k: alike(q, k) and (not k.masked or q.masked),
}


class Token(NamedTuple):
    column: int
    pack: int
    side: int
    masked: bool


def alike(q, k):
    return q.pack == k.pack > 0


def of_pair(q, k, own_masks):
    """What is not masked sees its own side's, a MASK the other's and `own_masks`."""
    if not alike(q, k):
        return False
    if not q.masked:
        # Alone, a word of the text sees itself as every query does.
        return q.side == k.side and not k.masked
    return own_masks or (q.side != k.side and not k.masked)


@pytest.mark.parametrize("mask", DEFINED, ids=lambda mask: mask.name)
def test_each_mask_is_what_it_is_said_to_be(mask):
    rng = np.random.default_rng(3)
    shape = (6, 9)
    sides, masked = rng.integers(2, size=shape), rng.integers(2, size=shape)
    packs = np.sort(rng.integers(1, 3, shape), axis=1) * (np.arange(9) < 8)
    batch = {"input_ids": packs + 20, "pack_ids": packs, "sides": sides, "is_mask": masked}
    f = Fields.from_batch(batch)
    found = mask(f, f)
    for row in range(shape[0]):
        tokens = [
            Token(column, packs[row, column], sides[row, column], masked[row, column] > 0)
            for column in range(9)
        ]
        want = np.array([[bool(DEFINED[mask](q, k)) for k in tokens] for q in tokens])
        nothing = ~want.any(1)
        want[nothing, nothing] = True
        np.testing.assert_array_equal(found[row], want)
