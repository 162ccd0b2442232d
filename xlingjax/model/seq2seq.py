"""The encoder-decoder: an `Encoder`, and a decoder that attends to its final states.

Parameter paths beside the encoder's: `decoder/layers/*` (stacked on axis 0, with the
`cross_attention` slot of VECO), `decoder/final_norm/*` (pre-LN) and, where they are the decoder's
own, `decoder_embeddings/*` and `decoder_head/*`, named as the encoder's are.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from xlingjax.model.attention import Attention, bind
from xlingjax.model.block import Block, KeysValues, MultiHeadAttention
from xlingjax.model.config import ModelConfig
from xlingjax.model.distances import Distances, distances_of
from xlingjax.model.encoder import Batch, Embeddings, Encoder, Params, one_token, seen_fields
from xlingjax.model.heads import VocabularyHead
from xlingjax.model.layers import Key, Norm, by_rows, split_key
from xlingjax.model.masks import Fields, Mask, bidirectional, causal
from xlingjax.model.stack import Stack

Array = jax.Array

SELF = causal & bidirectional
"""Who sees whom in the decoder: itself and what stands before it in its example."""
CROSS = bidirectional  # the source of the same example


def decoder_side(batch: Batch) -> dict[str, Array]:
    """The decoder's fields of a batch under the names that embeddings and masks know."""
    return {
        "input_ids": batch["decoder_ids"],
        "position_ids": batch["decoder_position_ids"],
        "language_ids": batch["decoder_language_ids"],
        "pack_ids": batch["decoder_pack_ids"],
    }


def source_fields(config: ModelConfig, batch: Batch) -> Fields:
    """What the cross-attention sees of the source."""
    return seen_fields(config, {name: batch[name] for name in ("input_ids", "pack_ids")})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """What decoding keeps from step to step, one example per row."""

    layers: tuple[Params, ...]
    """The decoder's parameters, layer by layer, of several rows `by_rows`: cut out of the stacked
    ones once, and not at every step."""
    past: tuple[KeysValues, ...]
    """Of each layer BHTK: keys and values of the decoder's columns so far."""
    memory: tuple[KeysValues, ...]
    """Of each layer BHKS: those of the source. Where the past has W rows for each of it, these are
    its beams."""
    source: Fields
    """Of the source, each [B, S]."""
    column: Array
    """int32: columns of text so far; below 0 what stands before them (`source_tokens`)."""


def new_column(batch: Batch, cache: Cache) -> tuple[Fields, Fields]:
    """The fields of the new column and of all that the cache has room for. Rows hold one example
    each, so that the causal mask alone leaves out columns that are still to come."""
    queries = Fields.from_batch(batch)
    queries = dataclasses.replace(
        queries,
        # A batch of one column counts from 0; the causal mask asks where it stands in the text.
        position=queries.position + batch["position_ids"][:, :1],
    )
    past_keys_BHTK, _ = cache.past[0]
    ones_1T = jnp.ones((1, past_keys_BHTK.shape[2]), jnp.int32)
    keys = Fields.from_batch({"input_ids": ones_1T, "pack_ids": ones_1T})
    return queries, keys


def to_source(queries: Fields, cache: Cache) -> Attention:
    """The attention of new columns to the source, bound. They are all real, so that one row of
    beams says it."""
    # Sources have no beams: W beams share the keys of one.
    rows = len(cache.source.pack)
    first_B1 = jax.tree.map(lambda x: x[:rows, :1], queries)
    return bind(CROSS, first_B1, cache.source)


class Decoder(nn.Module):
    config: ModelConfig
    mesh: Mesh | None
    stack = Stack

    def setup(self):
        self.embeddings = Embeddings(self.config)
        self.decoder = self.stack(self.config, self.mesh)
        self.head = VocabularyHead(self.config)

    def decode(
        self,
        batch: Batch,
        source: Fields,
        memory_BSD: Array,
        key: Key,
        shift_BTD: Array | None,
    ):
        keys = split_key(key)
        fields = Fields.from_batch(batch)
        attention = self.bound(SELF, fields, fields, self.distances(fields, fields))
        cross = self.bound(CROSS, fields, source)
        x_BTD = self.embeddings(batch, keys[0], None, shift_BTD)
        return self.decoder(x_BTD, keys[1], attention, (memory_BSD, cross))

    def backend(self) -> str:
        """What computes attention to all columns at once."""
        # Parameters are made on rows of one token, which a kernel may refuse.
        if self.is_initializing():
            return "xla"
        return self.config.attention_backend

    def bound(
        self, mask: Mask, queries: Fields, keys: Fields, distances: Distances | None = None
    ) -> Attention:
        backend = self.backend(), self.config.attention_dropout, self.mesh
        return bind(mask, queries, keys, *backend, distances=distances)

    def distances(self, queries: Fields, keys: Fields) -> Distances | None:
        # Of one row: columns, and so distances, are the same in all.
        return distances_of(self.config, queries.position[:1], keys.position[:1], causal=True)

    def begin_step(self, batch: Batch, cache: Cache):
        """(x_BLD, the self-attention, the attention to the source) of a new column; its last x is
        what predicts."""
        queries, keys = new_column(batch, cache)
        attention = bind(SELF, queries, keys, distances=self.distances(queries, keys))
        return self.embeddings(batch, None), attention, to_source(queries, cache)

    def everything(self):
        batch = one_token()
        source = Fields.from_batch(batch)
        memory_BSD = jnp.zeros((1, 1, self.config.dim))
        self.head(self.decode(batch, source, memory_BSD, None, None))


class Seq2Seq(Encoder):
    """An encoder with a decoder; for pairs of a source (the encoder's fields) and a target (the
    decoder's)."""

    _module: type[Decoder] = Decoder
    _self_attention: type[nn.Module] = MultiHeadAttention
    _ahead = 0  # positions beyond a target's last one that the decoder reads

    def __init__(self, config: ModelConfig, mesh: Mesh | None = None):
        super().__init__(config, mesh)
        # A decoder's layers are an encoder's with VECO's slot: self-attention, cross-attention,
        # feed-forward.
        as_decoder = config.replace(
            layers=config.decoder_layers,
            cross_attention=True,
            cross_attention_query="self_attention",
        )
        self._decoder = self._module(as_decoder, mesh)

    @property
    def longest_target(self) -> int:
        """Tokens that the decoder's positions suffice for."""
        c = self.config
        return c.max_positions - c.position_offset - self._ahead - c.source_tokens

    def decode(
        self,
        params: Params,
        batch: Batch,
        memory_BSD: Array,
        *,
        rng: Key = None,
        shift_BTD: Array | None = None,
        method: str = "decode",
    ) -> Array:
        """h_BTD of the decoder on the target's words, `memory_BSD` the encoder's states of the
        rows.

        Reads the decoder's fields and input_ids and pack_ids of the source. `rng` None = no
        dropout. shift_BTD is added to the word embeddings. method: of the decoder's module. Raises
        `UserError` when the rows, with what the decoder reads ahead, are longer than the position
        table.
        """
        return self._apply(params, *self._sides(batch), memory_BSD, rng, shift_BTD, method=method)

    def start(
        self, params: Params, batch: Batch, memory_BSD: Array, length: int, beams: int = 1
    ) -> Cache:
        """An empty cache for up to `length` columns; the rows of the batch hold one example each,
        of which the search makes `beams`."""
        c = self._decoder.config
        rows = memory_BSD.shape[0]
        stacked = self._view(params)["decoder"]["layers"]
        # Not scanned over: each step would cut every layer out of the stack again.
        layers = tuple(jax.tree.map(lambda x, i=i: x[i], stacked) for i in range(c.layers))

        def projected(layer, name):
            dense = layer["cross_attention"]["attention"][name]
            kernel_DHK = dense["kernel"].astype(c.dtype)
            x_BHKS = jnp.einsum("BSD,DHK->BHKS", memory_BSD.astype(c.dtype), kernel_DHK)
            if not c.attention_bias:
                return x_BHKS
            return x_BHKS + dense["bias"].astype(c.dtype)[..., None]

        # The source's keys and values stay the same: they are computed here, and not at every step.
        memory = tuple((projected(layer, "key"), projected(layer, "value")) for layer in layers)
        # A single vector is multiplied without copies.
        if rows * beams > 1:
            layers = tuple(by_rows(layer, c.dtype) for layer in layers)
        # Room for the longest text at once: shapes inside the loop of decoding are fixed.
        empty_BHTK = jnp.zeros((rows, c.heads, length + c.source_tokens, c.head_dim), c.dtype)
        return Cache(
            layers=layers,
            past=((empty_BHTK, empty_BHTK),) * c.layers,
            memory=memory,
            source=source_fields(c, batch),
            column=jnp.int32(-int(c.source_tokens)),
        )

    def step(
        self, params: Params, cache: Cache, ids_B: Array, languages_B: Array
    ) -> tuple[Array, Cache]:
        """(h_BD, the next cache): the decoder's state at one more column, of `ids_B`."""
        c = self._decoder.config
        one_B1 = jnp.ones_like(ids_B)[:, None]
        column = cache.column + c.source_tokens
        batch = {
            "input_ids": ids_B[:, None],
            "language_ids": languages_B[:, None],
            "pack_ids": one_B1,
            "position_ids": one_B1 * column,
        }
        x_BLD, attention, cross = self._apply(params, batch, cache, method="begin_step")
        if c.positions == "relative":
            attention = attention.biased(self._view(params)["decoder"]["distances"]["embedding"])
        # The blocks themselves and not a `Stack`: `start` has taken the layers apart.
        block = Block(c, self._self_attention)
        past = []
        for layer, earlier, source in zip(cache.layers, cache.past, cache.memory, strict=True):
            x_BLD, longer = block.apply(
                {"params": layer},
                x_BLD,
                None,
                attention,
                memory=(source, cross),
                past=(earlier, column),
            )
            past.append(longer)
        h_BD = x_BLD[:, -1]
        if c.norm_order == "pre":
            final_norm = self._view(params)["decoder"]["final_norm"]
            h_BD = Norm(c).apply({"params": final_norm}, h_BD)
        return h_BD, dataclasses.replace(cache, past=tuple(past), column=cache.column + 1)

    def decoder_head(self, params: Params, h: Array) -> tuple[Array, Array, Array]:
        """(g_...D, table_VD, bias_V) such that the decoder's logits are g @ table.T + bias."""
        made = self._apply(params, method=lambda modules: modules.head(h))
        return self._with_table(self._view(params), made)

    def _sides(self, batch: Batch) -> tuple[dict[str, Array], Fields]:
        """(the target under the encoder's names, the source's fields)"""
        target = decoder_side(batch)
        self._check(target, self._ahead)
        return target, source_fields(self.config, batch)

    def _apply(self, params: Params, *arguments: Any, method: Any):
        return self._decoder.apply({"params": self._view(params)}, *arguments, method=method)

    def _view(self, params: Params) -> Params:
        """The decoder's own tree: what is shared or tied filled in from the encoder's."""
        c = self.config
        decoder = params["decoder"]
        if c.tied_self_attention:
            # The last layers: as decoders they do better than the first (VECO).
            attention = params["encoder"]["layers"]["attention"]
            tied = jax.tree.map(lambda x: x[-c.decoder_layers :], attention)
            decoder = {**decoder, "layers": {**decoder["layers"], "attention": tied}}
        head = params.get("head", {})
        return {
            "embeddings": {**params["embeddings"], **params.get("decoder_embeddings", {})},
            "decoder": decoder,
            "head": params.get("decoder_head", head),
        }

    def _boxed(self, rng):
        # Keys apart, or tables of the same name would begin alike.
        encoder_rng, decoder_rng = jax.random.split(rng)
        params = super()._boxed(encoder_rng)
        of_decoder = self._decoder.init({"params": decoder_rng}, method="everything")["params"]
        if self.config.tied_self_attention:
            del of_decoder["decoder"]["layers"]["attention"]
        params["decoder"] = of_decoder["decoder"]
        if self.config.decoder_embeddings == "shared_tokens":
            del of_decoder["embeddings"]["tokens"]
        # Sinusoidal positions without a norm have no parameters.
        if self.config.decoder_embeddings != "shared" and of_decoder["embeddings"]:
            params["decoder_embeddings"] = of_decoder["embeddings"]
        if self.config.decoder_embeddings == "separate" and "head" in of_decoder:
            params["decoder_head"] = of_decoder["head"]
        return params
