"""The likeliest next tokens of each text that a decoder writes, what may not be written left out.

A row is one text. Letters beside the model's: R rows of the batch times the beams, C the tokens
that are asked for, T columns, N tokens that are counted apart.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from xlingjax.model.decoding import Decoding, Ids
from xlingjax.model.layers import product_of_few
from xlingjax.model.seq2seq import Cache, Seq2Seq

Array = jax.Array
Params = dict[str, Any]
LOWEST = -1.0e9
"""Below every sum of log-probabilities; finite, so that differences of two are no NaN."""


@dataclasses.dataclass(frozen=True)
class NextTokens:
    """Gives them, called once a column."""

    model: Seq2Seq
    params: Params
    ids: Ids
    config: Decoding
    banned_V: Array
    """Whether a row of the table is never written."""
    apart_N: Array
    """Rows out of reach that the normaliser counts all the same: the banned ones, the end last."""

    @classmethod
    def of(cls, model: Seq2Seq, params: Params, ids: Ids, config: Decoding) -> "NextTokens":
        pieces = _pieces(model)
        banned_N = jnp.array([ids.pad, *ids.banned])
        # Each once, for `normaliser` sums over them; free places name a row that is no piece.
        banned_N = jnp.unique(banned_N, size=len(banned_N), fill_value=pieces)
        apart_N = jnp.append(banned_N, ids.end)
        rows_V = jnp.arange(model.config.padded_vocab_size)
        banned_V = (rows_V >= pieces).at[banned_N].set(True)
        return cls(model, params, ids, config, banned_V, apart_N)

    def __call__(
        self,
        cache: Cache,
        ids_R: Array,
        languages_R: Array,
        texts_RT: Array,
        count: int,
        draw: Callable[[Array, Array], Array] | None = None,
    ) -> tuple[Array, Array, Cache]:
        """(log-probabilities [R, C] of the likeliest next tokens, LOWEST and below where they are
        not allowed; these tokens; the next cache). draw: (logits [V, R], column) -> the one token
        [R, 1] to take instead."""
        column = cache.column
        h_RD, cache = self.model.step(self.params, cache, ids_R, languages_R)
        logits_VR, apart_RN = self._logits(h_RD, column)
        allowed_VR = logits_VR
        if self.config.no_repeat_ngram:
            allowed_VR = without_repeats(logits_VR, texts_RT, column, self.config.no_repeat_ngram)
        if draw:
            tokens_RC = draw(allowed_VR, column)
            values_RC = jnp.take_along_axis(allowed_VR, tokens_RC.T, axis=0).T
        else:
            values_RC, tokens_RC = highest(allowed_VR, min(count, len(allowed_VR)))
        if draw or self.config.no_repeat_ngram:
            top_R = logits_VR.max(0)
        else:
            # Not values_RC[:, 0]: of a slice XLA makes a sort of all, where TopK would do.
            top_R = values_RC.max(-1)
        values_RC -= normaliser(logits_VR, apart_RN, top_R)[:, None]
        return values_RC, tokens_RC.astype(jnp.int32), cache

    def _logits(self, h_RD: Array, column: Array) -> tuple[Array, Array]:
        """([V, R], LOWEST and below for what may not be written; [R, N], the logits of these)."""
        g_RD, table_VD, bias_V = self.model.decoder_head(self.params, h_RD)
        # What may not be written is put out of reach by the bias, and counted apart by the
        # normaliser: every further pass over [V, R] would cost as much as a layer.
        early = column + 1 < self.config.min_length
        is_end_V = jnp.arange(len(bias_V)) == self.ids.end
        open_V = ~self.banned_V & ~(early & is_end_V)
        bias_V1 = jnp.where(open_V, bias_V, LOWEST)[:, None]
        logits_VR = product_of_few(table_VD, g_RD, preferred_element_type=jnp.float32) + bias_V1
        # The last of `apart` is the end: out of reach, and to be counted, only while it is early.
        counted_N = (self.apart_N < _pieces(self.model)).at[-1].set(early)
        apart_RN = jnp.einsum(
            "RD,ND->RN", g_RD, table_VD[self.apart_N], preferred_element_type=jnp.float32
        )
        apart_RN = jnp.where(counted_N, apart_RN + bias_V[self.apart_N], LOWEST)
        return logits_VR, apart_RN


def _pieces(model: Seq2Seq) -> int:
    # Rows of languages and of padding stand behind the pieces: none of them is written.
    return model.config.vocab_size - model.config.language_tokens


def without_repeats(logits_VR: Array, texts_RT: Array, column: Array, order: int) -> Array:
    """logits_VR without the tokens that would repeat an n-gram of the first `column` tokens of
    their row."""
    length = texts_RT.shape[1]
    columns_T = jnp.arange(length)
    # Whether the n-gram that begins here is complete, and begins with the text's last n - 1 tokens.
    repeats_RT = columns_T + order - 1 < column
    for i in range(order - 1):
        last_R = jnp.take(texts_RT, jnp.maximum(column - order + 1 + i, 0), axis=1)
        repeats_RT &= jnp.roll(texts_RT, -i, axis=1) == last_R[:, None]
    ending_RT = jnp.roll(texts_RT, 1 - order, axis=1)
    rows_R1 = jnp.arange(logits_VR.shape[1])[:, None]
    ceiling_RT = jnp.where(repeats_RT, LOWEST, jnp.inf)
    return logits_VR.at[ending_RT, rows_R1].min(ceiling_RT)


def normaliser(x_VR: Array, apart_RN: Array, top_R: Array) -> Array:
    """[R]: `logsumexp` over both; top_R: the highest of x. In blocks, as in `highest`: else XLA
    writes x twice."""
    top_R = jnp.maximum(top_R, apart_RN.max(-1))
    total_R = jnp.exp(in_blocks(x_VR) - top_R).sum((0, 1))
    apart_total_R = jnp.exp(apart_RN - top_R[:, None]).sum(-1)
    return top_R + jnp.log(total_R + apart_total_R)


def in_blocks(x_VR: Array) -> Array:
    """[K, C, R] of about 128 entries each; padded where no such number divides V."""
    sizes = (128, *range(129, 257), *range(127, 63, -1))
    size = next((size for size in sizes if len(x_VR) % size == 0), 128)
    padded_VR = jnp.pad(x_VR, ((0, -len(x_VR) % size), (0, 0)), constant_values=-jnp.inf)
    return padded_VR.reshape(-1, size, x_VR.shape[1])


def highest(x_VR: Array, count: int) -> tuple[Array, Array]:
    """`jax.lax.top_k` of each column, [R, count] twice, equal values in order too; the highest of
    each block say which blocks are worth looking at, a third of the time on CPU."""
    x_KCR = in_blocks(x_VR)
    blocks, size, rows = x_KCR.shape
    if blocks <= count:
        return jax.lax.top_k(x_VR.T, count)
    # Blocks in order, so that of equal values the first is the first of all.
    _, block_RC = jax.lax.top_k(x_KCR.max(1).T, count)
    block_RC = jnp.sort(block_RC, axis=-1)
    rows_R11 = jnp.arange(rows)[:, None, None]
    near_RCC = x_KCR[block_RC[:, :, None], jnp.arange(size), rows_R11]
    values_RC, index_RC = jax.lax.top_k(near_RCC.reshape(rows, -1), count)
    block_of_index_RC = chosen(block_RC, index_RC // size)
    return values_RC, block_of_index_RC * size + index_RC % size


def chosen(x_BW: Array, index_BC: Array) -> Array:
    """Of axis 1 of each row the entries of these numbers."""
    further_axes = [1] * (x_BW.ndim - 2)
    return jnp.take_along_axis(x_BW, index_BC.reshape(*index_BC.shape, *further_axes), axis=1)
