"""Text from an encoder-decoder: greedy, sampled, and by beam search, a column at a time with a
cache.

Everything runs inside `jit` with fixed shapes. A row is one source; letters beside the model's: W
beams, T columns, R rows times beams, C the continuations of a row.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xlingjax.errors import UserError
from xlingjax.model.decoding import Decoding, Ids, Texts
from xlingjax.model.layers import Key
from xlingjax.model.masks import bidirectional
from xlingjax.model.next_tokens import LOWEST, NextTokens, chosen, highest
from xlingjax.model.seq2seq import Cache, Seq2Seq

Array = jax.Array
Params = dict[str, Any]


def generate(
    model: Seq2Seq,
    params: Params,
    batch: dict[str, Array],
    start_B: Array,
    languages_B: Array,
    ids: Ids,
    config: Decoding,
    columns: int,
    *,
    key: Key = None,
) -> Texts:
    """Texts for the sources of a batch, one example to a row; no gradient passes.

    start_B: the decoder's first input; languages_B: index of the language to write; columns: T, the
    most tokens; key: for drawn tokens, one, or one for each row. Raises `UserError` where T does
    not fit the position table.
    """
    c = model.config
    if columns > model.longest_target:
        raise UserError(
            f"texts of {columns} tokens do not fit model {c.name}: its position table takes"
            f" {model.longest_target}; lower max_length"
        )
    params = jax.lax.stop_gradient(params)
    memory_BSD = model.encode(params, batch, bidirectional)
    next_tokens = NextTokens.of(model, params, ids, config)
    longest_B = config.longest((batch["pack_ids"] > 0).sum(-1), columns)
    cache = model.start(params, batch, memory_BSD, columns, config.beams)
    if c.source_tokens:
        _, cache = model.step(params, cache, jnp.full_like(start_B, ids.end), languages_B)
    given = next_tokens, cache, start_B, languages_B, longest_B, columns
    return beam_search(*given) if config.beams > 1 else one_by_one(*given, key)


def until_done(step: Callable[[Any], Any], start: Any, columns: int) -> Any:
    """The last state of a search that goes on with `step` until all texts are done."""

    def going(state):
        return (state.cache.column < columns) & ~state.done_B.all()

    return jax.lax.while_loop(going, step, start)


class _Written(NamedTuple):
    """What `one_by_one` carries from column to column."""

    cache: Cache
    last_B: Array
    texts_BT: Array
    done_B: Array
    score_B: Array
    lengths_B: Array


def one_by_one(
    next_tokens: NextTokens,
    cache: Cache,
    start_B: Array,
    languages_B: Array,
    longest_B: Array,
    columns: int,
    key: Key = None,
) -> Texts:
    """The likeliest next token, or one drawn."""
    ids = next_tokens.ids
    config = next_tokens.config
    rows = start_B.shape[0]
    draw = drawing(config, key, rows) if config.temperature else None

    def step(state):
        cache, last_B, texts_BT, done_B, score_B, lengths_B = state
        column = cache.column
        gain_B1, next_B1, cache = next_tokens(cache, last_B, languages_B, texts_BT, 1, draw)
        # Shapes are fixed: a text that is done goes on with padding until all are.
        next_B = jnp.where(done_B, ids.pad, next_B1[:, 0])
        texts_BT = texts_BT.at[:, column].set(next_B)
        score_B = score_B + jnp.where(done_B, 0.0, gain_B1[:, 0])
        lengths_B = lengths_B + ~done_B
        done_B |= (next_B == ids.end) | (column + 1 >= longest_B)
        return _Written(cache, next_B, texts_BT, done_B, score_B, lengths_B)

    zeros_B = jnp.zeros(rows)
    start = _Written(
        cache=cache,
        last_B=start_B,
        texts_BT=jnp.full((rows, columns), ids.pad, jnp.int32),
        done_B=longest_B == 0,
        score_B=zeros_B,
        lengths_B=zeros_B.astype(jnp.int32),
    )
    end = until_done(step, start, columns)
    # A row of padding has no token, and 0 is no divisor.
    divisor_B = jnp.maximum(end.lengths_B, 1).astype(jnp.float32) ** config.length_penalty
    score_B = end.score_B / divisor_B
    return Texts(end.texts_BT[:, None], end.lengths_B[:, None], score_B[:, None])


def drawing(config: Decoding, key: Array, rows: int) -> Callable[[Array, Array], Array]:
    """The function (logits [V, B], column) -> tokens [B, 1] that draws them from the softmax."""
    keys_B = key
    if not key.ndim:
        keys_B = jax.random.split(key, rows)

    def draw(logits_VB, column):
        if config.top_k:
            values_BC, _ = highest(logits_VB, config.top_k)
            least_B = values_BC[:, -1]
            logits_VB = jnp.where(logits_VB >= least_B, logits_VB, LOWEST)
        # Given a key for each row, what is drawn for it does not depend on its batch.
        now_B = jax.vmap(jax.random.fold_in, (0, None))(keys_B, column)

        def gumbel_V(key):
            return jax.random.gumbel(key, (len(logits_VB),))

        # The highest of logits with Gumbel noise is a draw from their softmax.
        noise_VB = jax.vmap(gumbel_V, out_axes=1)(now_B)
        _, tokens_B1 = highest(logits_VB / config.temperature + noise_VB, 1)
        return tokens_B1

    return draw


class _Beams(NamedTuple):
    """What `beam_search` carries from column to column."""

    cache: Cache
    last_BW: Array
    texts_BWT: Array
    score_BW: Array
    ended: Texts  # the best that are finished
    done_B: Array


def beam_search(
    next_tokens: NextTokens,
    cache: Cache,
    start_B: Array,
    languages_B: Array,
    longest_B: Array,
    columns: int,
) -> Texts:
    """The W best unfinished texts of each row go on. Of the 2 W best continuations those among the
    first W that end are kept as finished, the W best of all so far; a row is done when none of its
    unfinished texts, at its length, scores above the worst of W finished ones (as transformers
    searches with early_stopping=False)."""
    ids = next_tokens.ids
    config = next_tokens.config
    width = config.beams
    rows = start_B.shape[0]
    rows_B1 = jnp.arange(rows)[:, None]

    def beams(x):
        """Each row of x for each of its beams."""
        return jnp.repeat(x, width, axis=0)

    empty_BWT = jnp.full((rows, width, columns), ids.pad, jnp.int32)
    lowest_BW = jnp.full((rows, width), LOWEST)
    start = _Beams(
        # The source's keys and values stay as they are: the beams of a row share them.
        cache=dataclasses.replace(cache, past=jax.tree.map(beams, cache.past)),
        last_BW=beams(start_B).reshape(rows, width),
        texts_BWT=empty_BWT,
        # All beams begin alike: only the first counts in the first step.
        score_BW=lowest_BW.at[:, 0].set(0.0),
        ended=Texts(empty_BWT, jnp.zeros((rows, width), jnp.int32), lowest_BW),
        done_B=longest_B == 0,
    )
    languages_R = beams(languages_B)

    def step(state):
        column = state.cache.column
        gain_RC, tokens_RC, cache = next_tokens(
            state.cache,
            _flat(state.last_BW),
            languages_R,
            _flat(state.texts_BWT),
            2 * width,
        )
        total_RC = _flat(state.score_BW)[:, None] + gain_RC
        # At most W of 2 W end, one of each beam, so that W remain to go on.
        score_BC, index_BC = jax.lax.top_k(total_RC.reshape(rows, -1), 2 * width)
        beam_BC = index_BC // gain_RC.shape[1]
        token_BC = chosen(tokens_RC.reshape(rows, -1), index_BC)
        texts_BCT = chosen(state.texts_BWT, beam_BC).at[:, :, column].set(token_BC)

        ends_BC = (token_BC == ids.end) | (column + 1 >= longest_B)[:, None]
        # No text ends from a beam that does not count yet, or by a token that is out of reach.
        finishing_BC = ends_BC & (score_BC > LOWEST / 2) & (jnp.arange(2 * width) < width)
        finishing_BC &= ~state.done_B[:, None]
        # The W best finished texts, those that end in this column among them.
        divisor = (column + 1).astype(jnp.float32) ** config.length_penalty
        final_BC = jnp.where(finishing_BC, score_BC / divisor, LOWEST)
        found = Texts(texts_BCT, jnp.full_like(index_BC, column + 1), final_BC)
        all_BX = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), state.ended, found)
        _, keep_BW = jax.lax.top_k(all_BX.scores, width)
        ended = jax.tree.map(lambda x: chosen(x, keep_BW), all_BX)

        # The W best that do not end, each with the keys and values of the text that it continues.
        score_BW, keep_BW = jax.lax.top_k(jnp.where(ends_BC, LOWEST, score_BC), width)
        rows_R = _flat(chosen(beam_BC, keep_BW) + width * rows_B1)
        past = jax.tree.map(lambda x: x.at[rows_R].get(mode="promise_in_bounds"), cache.past)
        # What the best one would score here stands for all that may yet come of it.
        done_B = state.done_B | (score_BW[:, 0] / divisor <= ended.scores[:, -1])
        return _Beams(
            dataclasses.replace(cache, past=past),
            chosen(token_BC, keep_BW),
            chosen(texts_BCT, keep_BW),
            score_BW,
            ended,
            done_B | (column + 1 >= longest_B),
        )

    end = until_done(step, start, columns)
    return jax.tree.map(lambda x: x[:, : config.n_best], end.ended)


def _flat(x_BW: Array) -> Array:
    rows, width, *further_axes = x_BW.shape
    return x_BW.reshape(rows * width, *further_axes)
