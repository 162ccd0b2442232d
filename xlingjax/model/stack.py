"""Scan and remat over blocks: the only lifted transforms. Parameters are stacked on axis 0, looped
over or unrolled."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from xlingjax.model.attention import Alternating, Attention
from xlingjax.model.block import WEIGHTS, Block, MultiHeadAttention, distance_biases
from xlingjax.model.config import ModelConfig
from xlingjax.model.layers import Embed, Norm
from xlingjax.model.partition import batch_sharding, row_devices

Array = jax.Array

_POLICIES = {"full": None, "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable}


class Stack(nn.Module):
    """N blocks, `layers/*` stacked on axis 0, and `final_norm` for pre-LN.

    Returns h_BLD, or with `all_layers` h_[N+1]BLD: the input first, the last entry equal to h_BLD.
    attention: of all layers, or that of the global and that of the local ones.
    self_attention: see `Block`. A decoder's step, with the keys and values of earlier columns, goes
    through the blocks without it (`Seq2Seq.step`).
    """

    config: ModelConfig
    mesh: Mesh | None = None
    self_attention: type[nn.Module] = MultiHeadAttention

    @nn.compact
    def __call__(
        self,
        x_BLD: Array,
        key: Array | None,
        attention: Attention | tuple[Attention, Attention],
        memory: tuple[Array, Attention] | None = None,
        all_layers: bool = False,
    ):
        c = self.config
        if not c.layers:
            if all_layers:
                return x_BLD[None]
            return x_BLD

        if c.positions == "disentangled":
            both = jnp.arange(2 * c.relative_buckets)
            states_UD = Embed(c, len(both), (None, None), name="distances")(both)
            states_UD = Norm(c, name="distances_norm")(states_UD)
            distances = dataclasses.replace(attention.distances, states_UD=states_UD)
            attention = dataclasses.replace(attention, distances=distances)
        elif c.positions == "relative":
            attention = attention.biased(distance_biases(c))

        def rows(x_BLD):
            """Left to itself XLA may split D over "fsdp", as the kernels are, and give every device
            every row."""
            if self.mesh is None or x_BLD.shape[0] % row_devices(self.mesh):
                return x_BLD
            return jax.lax.with_sharding_constraint(x_BLD, batch_sharding(self.mesh))

        def body(block, x_BLD, layer):
            key, number = layer
            here = attention
            if isinstance(attention, tuple):
                whole = -(-c.layers // c.global_every)
                counts = whole, c.layers - whole
                here = Alternating(*attention, number % c.global_every == 0, counts)
            y_BLD, _ = block(rows(x_BLD), key, here, memory, number=number)
            y_BLD = rows(y_BLD)
            if all_layers:
                return y_BLD, y_BLD
            return y_BLD, None

        if c.remat != "none":
            # Within a loop XLA cannot merge the recomputation with the first pass; in straight-line
            # code it would.
            body = nn.remat(body, policy=_POLICIES[c.remat], prevent_cse=c.unroll != 1)
        keys_N = key
        if key is not None:
            keys_N = jax.random.split(key, c.layers)
        # Looped over or unrolled, parameters are stacked: their names do not depend on it.
        scan = nn.scan(
            body,
            variable_axes={"params": 0, WEIGHTS: 0},
            split_rngs={"params": True},
            length=c.layers,
            unroll=c.unroll or c.layers,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        numbers_N = jnp.arange(c.layers)
        block = Block(c, self.self_attention, name="layers")
        h_BLD, h_NBLD = scan(block, x_BLD, (keys_N, numbers_N))
        if c.norm_order == "pre":
            # A pre-LN block gives a bare sum, with no LayerNorm behind it.
            h_BLD = Norm(c, name="final_norm")(h_BLD)
        if not all_layers:
            return h_BLD
        return jnp.concatenate([x_BLD[None], h_NBLD[:-1], h_BLD[None]])
