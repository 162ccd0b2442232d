"""The n-stream decoder of ProphetNet (§3) and xFNP (XGLUE §4.2): a main stream reads the words, n
streams predict.

At column t of T the main stream holds the decoder's token x_t, and sees x_0..x_t. Predicting stream
i holds no token but its own embedding, at the position after x_t; it sees the main stream's columns
0..max(t-i, 0), and itself. All streams predict the token after x_t, stream i without the last i
words, so that stream 0 is an ordinary decoder.

Parameter paths beside those of `Seq2Seq`: `decoder/streams/embedding`, and
`decoder/layers/attention/relative/*`. Letters: n predicting streams, U buckets of distances; L =
(1+n)T columns, the main stream's, then each other one's.
"""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from xlingjax.model import chunked
from xlingjax.model.attention import require_length
from xlingjax.model.block import KeysValues, by_head, written
from xlingjax.model.config import ModelConfig
from xlingjax.model.distances import bucket_table
from xlingjax.model.encoder import Batch
from xlingjax.model.layers import Dense, Embed, Key, dropout, split_key, static
from xlingjax.model.masks import Fields, Mask, first_columns
from xlingjax.model.seq2seq import CROSS, SELF, Cache, Decoder, Seq2Seq, new_column, to_source
from xlingjax.model.stack import Stack

Array = jax.Array


def ngram_stream(i: int) -> Mask:
    """What predicting stream i sees of the main stream: the last i columns are hidden, an example's
    first never is. `position` counts from the example's first column (`from_first`)."""
    lagging = Mask("lagging", lambda q, k: (q.position - i >= k.position) | (k.position == 0))
    return (lagging & SELF).named(f"ngram_stream({i})")


def from_first(fields: Fields) -> Fields:
    """The fields with `position` counted from the first column of each example of the row."""
    return dataclasses.replace(fields, position=fields.position - first_columns(fields.pack))


def bucket(config: ModelConfig, distance: Array) -> Array:
    """The bucket, 0 to U-1, of each distance (position of the query less that of the key; below 0
    it counts as 0), in the smallest type that has U numbers."""
    buckets, longest = config.relative_buckets, config.relative_max_distance
    table = jnp.asarray(bucket_table(buckets, longest), np.min_scalar_type(buckets - 1))
    return table[jnp.clip(distance, 0, longest)]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StreamAttention:
    """What the self-attention of every layer shares: L queries of all streams, S keys of the main
    one."""

    allowed_BLS: Array  # bool: who sees whom
    buckets_BLS: Array
    streams: int = static()  # 1+n
    backend: str = static()  # xla, or chunked
    dropout: float = static()

    def __call__(
        self,
        q_BLHK: Array,
        main: KeysValues,
        own: KeysValues,
        relative_BLUH: Array,
        key: Key,
    ) -> Array:
        """[B, L, H, K]. main: keys and values, [B, H, S, K]; own: [B, L, H, K], of the queries' own
        columns."""
        rows, length = q_BLHK.shape[:2]
        is_main_L = jnp.arange(length) < length // self.streams
        # All that is of a query: a block may have those of several streams.
        queries = (
            q_BLHK,
            own,
            relative_BLUH,
            jnp.broadcast_to(is_main_L, (rows, length)),
            self.allowed_BLS,
            self.buckets_BLS,
        )
        if self.backend == "xla":
            return self._attend(0, queries, main, key)
        return chunked.in_blocks(self._attend, queries, main, key)

    def _attend(self, _, queries, main, key):
        """[B, L, H, K], of all queries or of a block of them."""
        q_BLHK, own, relative_BLUH, is_main_BL, allowed_BLS, buckets_BLS = queries
        own_k_BLHK, own_v_BLHK = own
        k_BHSK, v_BHSK = main
        lowest = jnp.finfo(jnp.float32).min
        q_BLHK = q_BLHK * (q_BLHK.shape[-1] ** -0.5)
        r_BHLU = jnp.moveaxis(relative_BLUH.astype(jnp.float32), -1, 1)
        s_BHLS = jnp.einsum("BLHK,BHSK->BHLS", q_BLHK, k_BHSK, preferred_element_type=jnp.float32)
        buckets_B1LS = buckets_BLS[:, None].astype(jnp.int32)
        bias_B1LS = jnp.where(allowed_BLS[:, None], 0.0, lowest)
        s_BHLS += jnp.take_along_axis(r_BHLU, buckets_B1LS, axis=-1) + bias_B1LS
        # Instead of T keys of which a mask hides all but one: each query's own score, at distance
        # 0.
        own_BHL = jnp.einsum(
            "BLHK,BLHK->BHL", q_BLHK, own_k_BLHK, preferred_element_type=jnp.float32
        )
        own_BHL = own_BHL + r_BHLU[..., 0]
        # The main stream has its own column among its keys.
        own_BHL = jnp.where(is_main_BL[:, None], lowest, own_BHL)
        # One softmax over both: S keys of the main stream, and behind them the query's own.
        s_BHLS = jnp.concatenate([s_BHLS, own_BHL[..., None]], axis=-1)
        p_BHLS = jax.nn.softmax(s_BHLS, axis=-1).astype(v_BHSK.dtype)
        p_BHLS = dropout(p_BHLS, self.dropout, key)
        o_BLHK = jnp.einsum("BHLS,BHSK->BLHK", p_BHLS[..., :-1], v_BHSK)
        return o_BLHK + jnp.einsum("BHL,BLHK->BLHK", p_BHLS[..., -1], own_v_BLHK)


class NgramAttention(nn.Module):
    """The decoder's self-attention, called as `MultiHeadAttention` is with x as memory. What a
    query adds to its scores for each bucket of distances is linear in its state, and not scaled as
    the product of query and key is."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self, x_BLD: Array, memory: Array, attention: StreamAttention, key: Key, past=None
    ):
        c = self.config
        project = dict(
            outputs=(c.heads, c.head_dim), input_names=("embed",), output_names=("heads", "kv")
        )
        q_BLHK = Dense(c, **project, name="query")(x_BLD)
        k_BLHK = Dense(c, **project, name="key")(x_BLD)
        v_BLHK = Dense(c, **project, name="value")(x_BLD)
        # Of each query's state, as ProphetNet has it, and not one table for all as T5's.
        relative_BLUH = Dense(
            c, (c.relative_buckets, c.heads), ("embed",), (None, "heads"), name="relative"
        )(x_BLD)
        # The main stream's columns stand first; of the others only the queries look at them.
        columns = x_BLD.shape[1] // attention.streams
        main = (k_BLHK[:, :columns], v_BLHK[:, :columns])
        if past is None:
            main = (by_head(main[0]), by_head(main[1]))
        else:
            main = past = written(past, main)
        o_BLHK = attention(q_BLHK, main, (k_BLHK, v_BLHK), relative_BLUH, key)
        y_BLD = Dense(c, (c.dim,), ("heads", "kv"), ("embed",), name="out")(o_BLHK)
        return y_BLD, past


class _Streams(nn.Module):
    """The stack and the streams' embeddings, under one name."""

    config: ModelConfig
    mesh: Mesh | None

    def setup(self):
        self.streams = Embed(self.config, self.config.streams, (None, None))
        self.stack = Stack(self.config, self.mesh, NgramAttention)
        # Their parameters stand side by side under "decoder", as those of an ordinary decoder do.
        nn.share_scope(self, self.stack)

    def __call__(self, *arguments, **options):
        return self.stack(*arguments, **options)

    def embed(self, count: int) -> Array:
        """[count, D]. Stream i has row (i-1) mod n, so that stream 0 has the last one, as in
        ProphetNet's weights."""
        rows = (np.arange(count) - 1) % self.config.streams
        return self.streams(rows)


class _NgramDecoder(Decoder):
    stack = _Streams

    def decode(self, *arguments):
        # Stream 0 alone, which sees all earlier words: what an ordinary decoder predicts.
        return self.decode_streams(*arguments, 1)[0]

    def decode_streams(
        self, batch: Batch, source: Fields, memory_BSD, key: Key, shift_BTD, count: int = 0
    ):
        """count: streams; 0: all."""
        count = count or self.config.streams
        keys = split_key(key, 3)
        fields = from_first(Fields.from_batch(batch))
        positions_BT = batch["position_ids"]
        x_BLD, attention, queries = self._inputs(
            batch, count, fields, fields, positions_BT, keys[:2], shift_BTD, self.backend()
        )
        cross = self.bound(CROSS, queries, source)
        h_BLD = self.decoder(x_BLD, keys[2], attention, (memory_BSD, cross))
        # The main stream only reads: nothing is predicted from its states.
        _, *predicting = jnp.split(h_BLD, 1 + count, axis=1)
        return jnp.stack(predicting)

    def begin_step(self, batch: Batch, cache: Cache):
        queries, keys = new_column(batch, cache)
        x_BLD, attention, queries = self._inputs(batch, 1, queries, keys, keys.position)
        return x_BLD, attention, to_source(queries, cache)

    def _inputs(
        self,
        batch: Batch,
        count: int,
        queries: Fields,
        keys: Fields,
        positions_BS: Array,
        rngs: tuple = (None, None),
        shift_BTD: Array | None = None,
        backend: str = "xla",
    ) -> tuple[Array, StreamAttention, Fields]:
        """(x_BLD, the self-attention, the fields of L columns) of the main stream and the first
        `count` predicting ones; positions_BS are the keys'."""
        c = self.config
        length = batch["input_ids"].shape[1]
        columns = (1 + count) * length
        fits = backend != "chunked" or chunked.block_of(columns)
        require_length(fits, "chunked", columns)
        # A predicting column stands where its target does, one after the token that was read.
        ahead = {name: jnp.tile(ids, (1, count)) for name, ids in batch.items()}
        ahead["position_ids"] += 1
        words_BLD = jnp.repeat(self.decoder.embed(count), length, axis=0)[None]
        main_BTD = self.embeddings(batch, rngs[0], None, shift_BTD)
        predicting_BLD = self.embeddings(ahead, rngs[1], words_BLD)
        x_BLD = jnp.concatenate([main_BTD, predicting_BLD], axis=1)

        positions_BL = jnp.concatenate([batch["position_ids"], ahead["position_ids"]], axis=1)
        masks = [SELF, *map(ngram_stream, range(count))]
        allowed_BLS = jnp.concatenate([mask(queries, keys) for mask in masks], axis=1)
        distance_BLS = positions_BL[:, :, None] - positions_BS[:, None]
        attention = StreamAttention(
            allowed_BLS=allowed_BLS,
            buckets_BLS=bucket(c, distance_BLS),
            streams=1 + count,
            backend=backend,
            dropout=c.attention_dropout,
        )
        every_stream = jax.tree.map(lambda a: jnp.tile(a, (1, 1 + count)), queries)
        return x_BLD, attention, every_stream


class NgramSeq2Seq(Seq2Seq):
    """An encoder with an n-stream decoder. What an ordinary decoder has is stream 0's: `decode`,
    `start`, `step`."""

    _module = _NgramDecoder
    _self_attention = NgramAttention
    _ahead = 1

    decode_streams = functools.partialmethod(Seq2Seq.decode, method="decode_streams")
    """h_[n]BTD of the predicting streams; all predict the same token at a column (ProphetNet §3.2).
    Arguments and errors are those of `decode`, logits those of `decoder_head`; distances are those
    of decoder_position_ids."""
