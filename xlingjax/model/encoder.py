"""The encoder: embeddings, stack and heads behind one plain object of pure functions.

Parameter paths (also the names on disk): `embeddings/{tokens,positions,languages}/embedding`,
`embeddings/norm/{scale,bias}`, `encoder/layers/*` (stacked on axis 0), `encoder/final_norm/*` (pre-LN),
`head/{dense/{kernel,bias},norm/{scale,bias},bias}`, `classifier/{dense,out}/{kernel,bias}`.
"""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from xlingjax.errors import UserError
from xlingjax.model.attention import AttentionSpec, bind
from xlingjax.model.config import ModelConfig
from xlingjax.model.heads import Classifier, VocabularyHead
from xlingjax.model.layers import Embed, LayerNorm, dropout
from xlingjax.model.masks import Fields, bidirectional
from xlingjax.model.stack import Stack

Array = jax.Array
Params = dict[str, Any]
Batch = Mapping[str, Array]


class _Embeddings(nn.Module):
    """Token + position (+ language) embeddings, LayerNorm, dropout (XLM §3.1)."""

    config: ModelConfig

    @nn.compact
    def __call__(self, batch: Batch, key: Array | None) -> Array:
        c = self.config
        x_BLD = Embed(c, c.padded_vocab_size, ("vocab", None), name="tokens")(batch["input_ids"])
        # Padding keeps the row just below the first position (XLM-R's row 1).
        positions_BL = jnp.where(
            batch["pack_ids"] > 0, batch["position_ids"] + c.position_offset, max(c.position_offset - 1, 0)
        )
        x_BLD += Embed(c, c.max_positions, (None, None), name="positions")(positions_BL)
        if c.has_languages:
            x_BLD += Embed(c, c.num_languages, (None, None), name="languages")(batch["language_ids"])
        if c.embedding_norm:
            x_BLD = LayerNorm(c, name="norm")(x_BLD)
        return dropout(x_BLD.astype(c.dtype), c.dropout, key)


class _Modules(nn.Module):
    """Every module with parameters, and one method that runs them all, so that init makes every slot."""

    config: ModelConfig
    mesh: Mesh | None

    def setup(self):
        self.embeddings = _Embeddings(self.config)
        self.encoder = Stack(self.config, self.mesh)
        self.head = VocabularyHead(self.config)
        if self.config.num_labels:
            self.classifier = Classifier(self.config)

    def encode(self, batch: Batch, spec: AttentionSpec, key: Array | None, all_layers: bool):
        c = self.config
        keys = (None, None) if key is None else jax.random.split(key)
        fields = Fields.from_batch(batch)
        attention = bind(spec, fields, fields, c.attention_backend, c.attention_dropout)
        x_BLD = self.embeddings(batch, keys[0])
        return self.encoder(x_BLD, keys[1], attention, None, all_layers)

    def vocabulary_head(self, h):
        return self.head(h)

    def classify(self, h_BLD, batch: Batch, key: Array | None):
        return self.classifier(h_BLD, key, Fields.from_batch(batch))

    def everything(self):
        batch = {k: jnp.ones((1, 1), jnp.int32) for k in ("input_ids", "pack_ids")}
        batch |= {k: jnp.zeros((1, 1), jnp.int32) for k in ("position_ids", "language_ids")}
        fields = Fields.from_batch(batch)
        attention = bind(AttentionSpec(bidirectional), fields, fields)
        x_BLD = self.embeddings(batch, None)
        h_BLD = self.encoder(x_BLD, None, attention, (x_BLD, attention))
        self.head(h_BLD)
        if self.config.num_labels:
            self.classifier(h_BLD, None, fields)


class Encoder:
    """A transformer encoder with a tied vocabulary head and, for `num_labels` > 0, a classifier.

    Parameters are a nested dict of float32 arrays that the caller owns; every method is a pure function of them.
    """

    def __init__(self, config: ModelConfig, mesh: Mesh | None = None):
        """With a mesh, rows of states stay on its ("data", "fsdp") axes through all layers (see `Stack`)."""
        self.config = config
        self._modules = _Modules(config, mesh)

    def init(self, rng: Array) -> Params:
        """Random parameters; the same for every device layout when jitted with sharded outputs."""
        return nn.unbox(self._boxed(rng))

    def abstract(self) -> Params:
        """The tree of `init` as `jax.ShapeDtypeStruct`."""
        return nn.unbox(self._abstract_boxed())

    def logical_axes(self) -> Params:
        """The tree of `init` with a tuple of logical axis names (or None) per parameter."""
        is_box = lambda x: isinstance(x, nn.LogicallyPartitioned)  # noqa: E731
        return jax.tree.map(lambda box: tuple(box.names), self._abstract_boxed(), is_leaf=is_box)

    def encode(
        self,
        params: Params,
        batch: Batch,
        spec: AttentionSpec,
        *,
        rng: Array | None = None,
        all_layers: bool = False,
    ) -> Array:
        """h_BLD in the compute type; with `all_layers` h_[N+1]BLD, the embedding output first.

        Reads input_ids, position_ids, pack_ids and, with language embeddings, language_ids. `rng` None = no dropout.
        Raises `UserError` when the rows are longer than the position table, `Refused` when the attention backend cannot
        honour `spec`.
        """
        self._check(batch)
        return self._modules.apply({"params": params}, batch, spec, rng, all_layers, method="encode")

    def vocab_head(self, params: Params, h: Array) -> tuple[Array, Array, Array]:
        """(g_...D, table_VD, bias_V) such that logits are g @ table.T + bias; V is the padded vocabulary."""
        g, bias_V = self._modules.apply({"params": params}, h, method="vocabulary_head")
        return g, params["embeddings"]["tokens"]["embedding"].astype(g.dtype), bias_V

    def classify(self, params: Params, h_BLD: Array, batch: Batch, *, rng: Array | None = None) -> Array:
        """float32 logits_BC. Reads input_ids, pack_ids and, for "difference", sides of the batch. Raises `UserError`
        for a model without a classifier."""
        if not self.config.num_labels:
            raise UserError(f"model {self.config.name} has no classification head; set num_labels")
        return self._modules.apply({"params": params}, h_BLD, batch, rng, method="classify")

    def _boxed(self, rng):
        return self._modules.init({"params": rng}, method="everything")["params"]

    def _abstract_boxed(self):
        return jax.eval_shape(self._boxed, jax.random.key(0))

    def _check(self, batch: Batch) -> None:
        c, length = self.config, batch["input_ids"].shape[-1]
        if length + c.position_offset > c.max_positions:
            raise UserError(
                f"rows of {length} tokens do not fit model {c.name}: its position table takes "
                f"{c.max_positions - c.position_offset}; shorten the rows or raise max_positions"
            )
