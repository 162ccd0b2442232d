"""Disentangled attention (He et al. 2021, §3.1): a score is content to content, content to position
and position to content, where a position is the bucket of a distance, with a state of its own.

Letters beside the model's: U buckets of distances of either sign, E distances.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.model.config import ModelConfig
from xlingjax.model.layers import dropout

Array = jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Distances:
    """What every layer shares: of queries and keys, whose columns are the same."""

    positions_BL: Array
    buckets_E: Array
    """Of each distance from 0 on."""
    states_UD: Array | None = None
    """Of the buckets, those below 0 first; the stack gives them."""

    def index(self, queries_BQ: Array) -> Array:
        """[B, Q, S]: rows of states."""
        far_BQS = queries_BQ[:, :, None] - self.positions_BL[:, None]
        buckets_BQS = jnp.take(self.buckets_E, jnp.abs(far_BQS), mode="clip")
        return jnp.sign(far_BQS) * buckets_BQS + self.buckets_E[-1] + 1


def distances_of(config: ModelConfig, positions_BL: Array) -> Distances:
    """Up to half of the buckets a distance has its own, from there on ever more share one."""
    exact, longest = config.relative_buckets // 2, config.relative_max_distance - 1
    far = np.arange(exact + 1, longest + 1, dtype=np.float32)
    share = np.log(far / exact) / np.log(np.float32(longest / exact))
    wide = np.ceil(share * (exact - 1)).astype(np.int32) + exact
    return Distances(positions_BL, jnp.asarray(np.r_[: exact + 1, wide]))


def scores(part: Any, whole: Any, hidden: Any) -> Array:
    """float32 [B, H, Q, S] of a block of queries, hidden keys at the lowest number."""
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
    s_BHQS += jnp.swapaxes(from_positions_BHSQ, -1, -2)
    return jnp.where(hidden, jnp.finfo(jnp.float32).min, s_BHQS)


def attend(rate: float, part: Any, whole: Any, hidden: Any, v_BSHK: Array, key: Any) -> Array:
    """[B, Q, H, K] in the type of the values."""
    p_BHQS = jax.nn.softmax(scores(part, whole, hidden), axis=-1).astype(v_BSHK.dtype)
    return jnp.einsum("BHQS,BSHK->BQHK", dropout(p_BHQS, rate, key), v_BSHK)
