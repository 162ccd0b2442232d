"""Scores that depend on distances, which share buckets.

T5 (Raffel et al. 2020, §2.1): a bucket has a number for each head, which is added. Disentangled
attention (He et al. 2021, §3.1): a score is content to content, content to position
and position to content, where a position is the bucket of a distance, with a state of its own.

Letters beside the model's: U buckets of distances of either sign, E distances.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.model.config import ModelConfig
from xlingjax.model.layers import static

Array = jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Distances:
    """What every layer shares."""

    queries_BQ: Array
    keys_BS: Array
    """Their positions."""
    buckets_E: Array
    """Of each distance from 0 on."""
    mirrored: bool = static()
    """Buckets of keys that stand behind their query: in falling order before the others; or in
    rising order behind them."""
    states_UD: Array | None = None
    """Of the buckets (T5: a number of each head)."""

    def index(self, queries_BQ: Array) -> Array:
        """[B, Q, S]: rows of states."""
        far_BQS = queries_BQ[:, :, None] - self.keys_BS[:, None]
        buckets_BQS = jnp.take(self.buckets_E, jnp.abs(far_BQS), mode="clip")
        middle = self.buckets_E[-1] + 1
        if self.mirrored:
            return jnp.sign(far_BQS) * buckets_BQS + middle
        return buckets_BQS + (far_BQS < 0) * middle

    def biases(self, queries_BQ: Array) -> Array:
        """float32 [B, H, Q, S]: what T5 adds to scores."""
        # Where a decoder cannot look there is no row.
        bias_BQSH = jnp.take(self.states_UD, self.index(queries_BQ), axis=0, mode="clip")
        return jnp.moveaxis(bias_BQSH, -1, 1)


def bucket_table(buckets: int, longest: int) -> np.ndarray:
    """int32: the bucket, 0 to U-1, of each distance from 0 to `longest`: one for each distance
    under U/2, then ever wider ones, of which the last has all further ones, too (T5)."""
    exact = buckets // 2
    far = np.arange(exact, longest + 1)
    wide = exact + np.log(far / exact) / np.log(longest / exact) * (buckets - exact)
    # Of NumPy: logarithms on a device may round a distance into the next bucket.
    return np.minimum(np.r_[:exact, wide.astype(np.int32)], buckets - 1).astype(np.int32)


def distances_of(
    config: ModelConfig, queries_BQ: Array, keys_BS: Array, causal: bool = False
) -> Distances | None:
    """None: scores do not depend on them. causal: no query sees a key behind it. Of DeBERTa up to
    half of the buckets a distance has its own, from there on ever more share one."""
    given = queries_BQ, keys_BS
    exact, longest = config.relative_buckets // 2, config.relative_max_distance - 1
    if config.has_biases:
        buckets = config.relative_buckets if causal else exact
        return Distances(*given, jnp.asarray(bucket_table(buckets, longest + 1)), False)
    if config.positions != "disentangled":
        return None
    far = np.arange(exact + 1, longest + 1, dtype=np.float32)
    share = np.log(far / exact) / np.log(np.float32(longest / exact))
    wide = np.ceil(share * (exact - 1)).astype(np.int32) + exact
    return Distances(*given, jnp.asarray(np.r_[: exact + 1, wide]), True)


def scores(part: Any, whole: Any) -> Array:
    """float32 [B, H, Q, S] of a block of queries."""
    q_BQHK, positions_BQ = part
    k_BSHK, of_queries_UHK, of_keys_UHK, distances = whole
    # Three sums of as many products each.
    q_BQHK, scaled_BSHK = (x * (3 * x.shape[-1]) ** -0.5 for x in (q_BQHK, k_BSHK))

    def products(how: str, a: Array, b: Array) -> Array:
        return jnp.einsum(how, a, b, preferred_element_type=jnp.float32)

    index_B1QS = distances.index(positions_BQ)[:, None]
    to_positions_BHQU = products("BQHK,UHK->BHQU", q_BQHK, of_keys_UHK)
    from_positions_BHSU = products("BSHK,UHK->BHSU", scaled_BSHK, of_queries_UHK)
    from_positions_BHSQ = jnp.take_along_axis(
        from_positions_BHSU, jnp.swapaxes(index_B1QS, -1, -2), axis=-1
    )
    s_BHQS = products("BQHK,BSHK->BHQS", q_BQHK, k_BSHK)
    s_BHQS += jnp.take_along_axis(to_positions_BHQU, index_B1QS, axis=-1)
    return s_BHQS + jnp.swapaxes(from_positions_BHSQ, -1, -2)
