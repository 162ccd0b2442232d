"""Who may see whom: predicates over token fields, composed with `&`, `|` and `~`.

One definition serves the attention backends, the leak test and the picture in the inspector.
Predicates use operators alone, so they run on NumPy and on JAX arrays.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any


def _numpy_of(*arrays: Any) -> Any:
    """The module whose arrays these are, in trees, JAX's where any is: a page draws masks of
    NumPy's alone and compiles nothing."""
    for array in jax.tree.leaves(arrays):
        if isinstance(array, jax.Array):
            return jnp
    return np


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Fields:
    """What a mask may look at, each [B, L]."""

    valid: Array
    """bool: a real token, not padding."""
    side: Array
    """0, or 1 for the second text of a pair."""
    is_mask: Array
    """bool: a MASK that masks treat apart (CAMLM's, and BTMLM's placeholders); the batch's field
    `is_mask`."""
    position: Array
    """Column in the row (never restarts, unlike the position ids)."""
    language: Array
    pack: Array
    """Number of the example inside the row from 1; 0 = padding."""

    @classmethod
    def from_batch(cls, batch: Mapping[str, Array]) -> "Fields":
        """The fields of a batch (`xlingjax/data/features.py`). Fields that the objective does not
        read are 0."""
        ids, pack = batch["input_ids"], batch["pack_ids"]
        zeros = ids * 0
        xp = _numpy_of(batch)
        return cls(
            valid=pack > 0,
            side=batch.get("sides", zeros),
            is_mask=batch.get("is_mask", zeros) > 0,
            position=xp.broadcast_to(xp.arange(ids.shape[-1], dtype=np.int32), ids.shape),
            language=batch.get("language_ids", zeros),
            pack=pack,
        )


@dataclasses.dataclass(frozen=True)
class Mask:
    """`mask(q, k)`: bool [B, L, S], true where query l may see key s. Masks of equal name are
    equal.

    A query that the predicate leaves without any key (padding, mostly) sees the key in its own
    column (the last one where there are fewer keys), so that no softmax runs over nothing.
    """

    name: str
    allow: Callable[[Fields, Fields], Array] = dataclasses.field(compare=False, repr=False)
    window: int = dataclasses.field(default=0, compare=False, repr=False)
    """Nobody sees further than half as many columns; 0: that is not known."""

    def __call__(self, q: Fields, k: Fields) -> Array:
        # Predicates then need no axes of their own: operators broadcast L against S.
        q_BL1 = jax.tree.map(lambda a: a[..., :, None], q)
        k_B1S = jax.tree.map(lambda a: a[..., None, :], k)
        shape = np.broadcast_shapes(q_BL1.valid.shape, k_B1S.valid.shape)
        xp = _numpy_of(q, k)
        allowed_BLS = xp.broadcast_to(self.allow(q_BL1, k_B1S), shape)
        # A softmax over nothing would be even over all keys: the state, of padding or of a MASK
        # without context, would depend on what it must not see.
        own_BLS = xp.minimum(q_BL1.position, k_B1S.position[..., -1:]) == k_B1S.position
        sees_nothing_BL1 = ~allowed_BLS.any(-1, keepdims=True)
        return allowed_BLS | (sees_nothing_BL1 & own_BLS)

    def __and__(self, other: "Mask") -> "Mask":
        name = f"({self.name} & {other.name})"
        windows = [mask.window for mask in (self, other) if mask.window]
        window = min(windows, default=0)
        return Mask(name, lambda q, k: self.allow(q, k) & other.allow(q, k), window)

    def __or__(self, other: "Mask") -> "Mask":
        name = f"({self.name} | {other.name})"
        return Mask(name, lambda q, k: self.allow(q, k) | other.allow(q, k))

    def __invert__(self) -> "Mask":
        return Mask(f"~{self.name}", lambda q, k: ~self.allow(q, k))

    def named(self, name: str) -> "Mask":
        """The same predicate under a shorter name."""
        return Mask(name, self.allow, self.window)


# A predicate of one of the two names the other too (`| True`, `& False`), for its shape.
full = Mask("full", lambda q, k: k.valid | True)
causal = Mask("causal", lambda q, k: q.position >= k.position)
same_side = Mask("same_side", lambda q, k: q.side == k.side)
same_pack = Mask("same_pack", lambda q, k: q.pack == k.pack)
valid_keys = Mask("valid_keys", lambda q, k: k.valid)
itself = Mask("itself", lambda q, k: q.position == k.position)
mask_queries = Mask("mask_queries", lambda q, k: q.is_mask | (k.is_mask & False))
mask_keys = Mask("mask_keys", lambda q, k: k.is_mask | (q.is_mask & False))
# All padding is pack 0, so that the packs alone would let it see itself.
bidirectional = same_pack & valid_keys


def first_columns(pack_BL: Array) -> Array:
    """[B, L]: the first column of each token's example."""
    # Rows hold several examples, and each has a first column of its own.
    changes = pack_BL[:, 1:] != pack_BL[:, :-1]
    begins = jnp.pad(changes, ((0, 0), (1, 0)), constant_values=True)
    columns_L = jnp.arange(pack_BL.shape[1])
    return jax.lax.cummax(jnp.where(begins, columns_L, 0), axis=1)


def near(window: int) -> Mask:
    """Those that are at most half a window of columns away, oneself among them."""
    most = window // 2

    def allow(q: Fields, k: Fields) -> Array:
        return (q.position - k.position <= most) & (k.position - q.position <= most)

    return Mask(f"near({window})", allow, window)


# What is not masked, of the same example.
_context = same_pack & valid_keys & ~mask_keys

_own_or_other = (_context & same_side & ~mask_queries) | (_context & ~same_side & mask_queries)

camlm = (_own_or_other | (bidirectional & same_side & mask_queries & mask_keys)).named("camlm")
"""Cross-attention masked language modelling (ERNIE-M §3.1): what is not masked sees what is not
masked on its own side; a MASK sees what is not masked on the other side, and the MASKs of its own.
Were a side's context to see the other side or a MASK, a MASK would have its own side back after two
layers."""

camlm_alone = (_own_or_other | (bidirectional & itself)).named("camlm_alone")
"""As `camlm`, and of its own side's MASKs each sees itself alone."""

pseudo_tokens = (_context | (bidirectional & itself)).named("pseudo_tokens")
"""BTMLM's first stage (ERNIE-M §3.1): the text sees the text; a placeholder sees the text and
itself."""

pseudo_tokens_together = (_context | (bidirectional & mask_queries & mask_keys)).named(
    "pseudo_tokens_together"
)
"""As `pseudo_tokens`, and a placeholder sees the others."""

partner = (bidirectional & ~same_side).named("partner")
"""Across a pair: each side sees the other one (VECO's cross-attention, Unicoder's word recovery).
"""

own_side = (bidirectional & same_side).named("own_side")  # each side of a pair alone

# It names the query too (`>= 0`), for its shape.
first_side = Mask("first_side", lambda q, k: (k.side == 0) & (q.side >= 0))

# Targets stand behind sources, so that `causal` hides them from the source.
prefix = (bidirectional & (first_side | causal)).named("prefix")
"""An encoder-decoder, its source (side 0) and target (side 1) one behind the other: every word sees
the source, a target's words also those before them."""
