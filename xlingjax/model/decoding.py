"""Text from an encoder-decoder: greedy, sampled, and by beam search, a column at a time with a
cache.

Everything runs inside `jit` with fixed shapes. A row is one source; letters beside the model's: W
beams, T columns.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xlingjax.errors import UserError
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.layers import product_of_few
from xlingjax.model.masks import bidirectional
from xlingjax.model.seq2seq import Cache, Seq2Seq

Array = jax.Array
Params = dict[str, Any]
LOWEST = -1.0e9
"""Below every sum of log-probabilities; finite, so that differences of two are no NaN."""


@dataclasses.dataclass(frozen=True)
class Decoding:
    """How text is searched for. Lengths count what is generated, the end among it, but not the
    start.

    beams: 1 is greedy. length_penalty: a finished text scores its log-probability / length **
    length_penalty. no_repeat_ngram: no n-gram of this order twice; 0: any. min_length: no end
    before so many tokens.
    max_length: (a, b): at most a * (source tokens) + b. n_best: texts returned per source.
    temperature: above 0, tokens are drawn instead (beams must be 1); top_k: from the k likeliest,
    0: all.
    """

    beams: int = 1
    length_penalty: float = 1.0
    no_repeat_ngram: int = 0
    min_length: int = 0
    max_length: tuple[float, int] = (1.5, 10)
    n_best: int = 1
    temperature: float = 0.0
    top_k: int = 0

    def __post_init__(self):
        if self.beams < 1 or not 1 <= self.n_best <= self.beams:
            raise UserError(
                f"decoding: n_best={self.n_best} must be from 1 to beams={self.beams}",
            )
        if self.temperature and self.beams > 1:
            raise UserError(
                f"decoding: temperature={self.temperature} draws tokens; set beams=1, not"
                f" {self.beams}",
            )
        options = (
            self.temperature,
            self.no_repeat_ngram,
            self.min_length,
            self.top_k,
        )
        if min(*options, *self.max_length) < 0:
            raise UserError(
                "decoding: no option may be negative but length_penalty",
            )

    def longest(self, source_B: Array, columns: int) -> Array:
        """int32 [B]: the most tokens for sources of so many, within the columns there are; 0 for a
        row of padding."""
        scale, more = self.max_length
        longest_B = (scale * source_B).astype(jnp.int32) + more
        return jnp.where(source_B > 0, jnp.clip(longest_B, 1, columns), 0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Texts:
    """The best first. ids: int32 [B, W, T], padded; lengths: [B, W], the end included; scores:
    float32 [B, W], the log-probability, as `Decoding` divides it by the length."""

    ids: Array
    lengths: Array
    scores: Array


@dataclasses.dataclass(frozen=True)
class Ids:
    """The ids that a search must know: what ends a text, what fills the rest, and what is never
    written (as rows of languages never are)."""

    end: int | Array
    pad: int | Array
    banned: Sequence[int | Array] = ()


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
    first_B: Array | None = None,
    key: Array | None = None,
) -> Texts:
    """Texts for the sources of a batch, one example to a row; no gradient passes.

    start_B: the decoder's first input; languages_B: index of the language to write; columns: T, the
    most tokens; first_B: tokens that must come first; key: for drawn tokens, one, or one for each
    row. Raises `UserError` where T does not fit the position table.
    """
    c = model.config
    if columns > model.longest_target:
        raise UserError(
            f"texts of {columns} tokens do not fit model {c.name}: its position table takes"
            f" {model.longest_target}; lower max_length",
        )
    if config.temperature and key is None:
        raise UserError("decoding: drawn tokens need a random key")
    params = jax.lax.stop_gradient(params)
    memory_BSD = model.encode(params, batch, AttentionSpec(bidirectional))
    # Rows of languages and of padding stand behind the pieces: none of them is written.
    pieces = c.vocab_size - c.language_tokens
    banned_N = jnp.array([ids.pad, *ids.banned])
    # Each once, for `normaliser` sums over them; what is left over names a row that is none.
    banned_N = jnp.unique(banned_N, size=len(banned_N), fill_value=pieces)
    apart_N = jnp.append(banned_N, ids.end)
    banned_V = (
        (jnp.arange(c.padded_vocab_size) >= pieces).at[banned_N].set(True)
    )
    longest_B = config.longest((batch["pack_ids"] > 0).sum(-1), columns)

    def chances(
        cache: Cache,
        ids_R: Array,
        languages_R: Array,
        texts_RT: Array,
        first_R: Array | None,
        count: int,
        draw: Callable[[Array, Array], Array] | None = None,
    ):
        """(log-probabilities [R, C] of the likeliest next tokens, LOWEST and below where they are
        not allowed; these tokens; the next cache). draw: (logits [V, R], column) -> the one token
        [R, 1] to take instead.
        """
        column = cache.column
        h_RD, cache = model.step(params, cache, ids_R, languages_R)
        g_RD, table_VD, bias_V = model.decoder_head(params, h_RD)
        # What may not be written is put out of reach by the bias, and counted apart by the
        # normaliser: every further pass over [V, R] would cost as much as a layer.
        early = column + 1 < config.min_length
        is_end_V = jnp.arange(len(bias_V)) == ids.end
        open_V = ~banned_V & ~(early & is_end_V)
        bias_V1 = jnp.where(open_V, bias_V, LOWEST)[:, None]
        logits_VR = (
            product_of_few(table_VD, g_RD, preferred_element_type=jnp.float32)
            + bias_V1
        )
        # The last of `apart` is the end: out of reach, and to be counted, only while it is early.
        counted_N = (apart_N < pieces).at[-1].set(early)
        apart_RN = jnp.einsum(
            "RD,ND->RN",
            g_RD,
            table_VD[apart_N],
            preferred_element_type=jnp.float32,
        )
        apart_RN = jnp.where(counted_N, apart_RN + bias_V[apart_N], LOWEST)
        allowed_VR = logits_VR
        if config.no_repeat_ngram:
            allowed_VR = without_repeats(
                logits_VR,
                texts_RT,
                column,
                config.no_repeat_ngram,
            )
        if draw:
            tokens_RC = draw(allowed_VR, column)
            values_RC = jnp.take_along_axis(allowed_VR, tokens_RC.T, axis=0).T
        else:
            values_RC, tokens_RC = highest(
                allowed_VR,
                min(count, len(allowed_VR)),
            )
        if draw or config.no_repeat_ngram:
            top_R = logits_VR.max(0)
        else:
            # Not values_RC[:, 0]: of a slice XLA makes a sort of all, where TopK would do.
            top_R = values_RC.max(-1)
        values_RC -= normaliser(logits_VR, apart_RN, top_R)[:, None]
        if first_R is not None:
            # The first column is given: one continuation, certain, and all others out of reach.
            others_RC = jnp.full_like(values_RC, LOWEST)
            values_RC = jnp.where(
                column == 0,
                others_RC.at[:, 0].set(0.0),
                values_RC,
            )
            tokens_RC = jnp.where(
                column == 0,
                tokens_RC.at[:, 0].set(first_R),
                tokens_RC,
            )
        return values_RC, tokens_RC.astype(jnp.int32), cache

    cache = model.start(params, batch, memory_BSD, columns, config.beams)
    search = one_by_one
    if config.beams > 1:
        search = beam_search
    return search(
        chances,
        cache,
        start_B,
        languages_B,
        first_B,
        ids,
        config,
        longest_B,
        columns,
        key,
    )


def without_repeats(
    logits_VR: Array,
    texts_RT: Array,
    column: Array,
    order: int,
) -> Array:
    """logits_VR without the tokens that would repeat an n-gram of the first `column` tokens of
    their row."""
    length = texts_RT.shape[1]
    columns_T = jnp.arange(length)
    # Whether the n-gram that begins here is complete, and begins with the text's last n - 1 tokens.
    repeats_RT = columns_T + order - 1 < column
    for i in range(order - 1):
        last_R = jnp.take(
            texts_RT,
            jnp.maximum(column - order + 1 + i, 0),
            axis=1,
        )
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
    fitting = [size for size in sizes if len(x_VR) % size == 0]
    size = 128
    if fitting:
        size = fitting[0]
    padded_VR = jnp.pad(
        x_VR,
        ((0, -len(x_VR) % size), (0, 0)),
        constant_values=-jnp.inf,
    )
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
    return values_RC, chosen(
        block_RC,
        index_RC // size,
    ) * size + index_RC % size


def chosen(x_BW: Array, index_BC: Array) -> Array:
    """Of axis 1 of each row the entries of these numbers."""
    further_axes = [1] * (x_BW.ndim - 2)
    return jnp.take_along_axis(
        x_BW,
        index_BC.reshape(*index_BC.shape, *further_axes),
        axis=1,
    )


class _Written(NamedTuple):
    """What `one_by_one` carries from column to column."""

    cache: Cache
    last_B: Array
    texts_BT: Array
    done_B: Array
    score_B: Array
    lengths_B: Array


def one_by_one(
    chances: Callable,
    cache,
    start_B,
    languages_B,
    first_B,
    ids,
    config,
    longest_B,
    columns,
    key,
) -> Texts:
    """The likeliest next token, or one drawn."""
    rows = start_B.shape[0]
    keys_B = key
    if key is not None and not key.ndim:
        keys_B = jax.random.split(key, rows)

    def going(state):
        return (state.cache.column < columns) & ~state.done_B.all()

    def draw(logits_VB, column):
        if config.top_k:
            values_BC, _ = highest(logits_VB, config.top_k)
            least_B = values_BC[:, -1]
            logits_VB = jnp.where(logits_VB >= least_B, logits_VB, LOWEST)
        # Given a key for each row, what is drawn for it does not depend on its batch.
        now_B = jax.vmap(jax.random.fold_in, (0, None))(keys_B, column)

        def gumbel_V(key):
            return jax.random.gumbel(key, (len(logits_VB),))

        noise_VB = jax.vmap(gumbel_V, out_axes=1)(now_B)
        _, tokens_B1 = highest(logits_VB / config.temperature + noise_VB, 1)
        return tokens_B1

    drawn = None
    if config.temperature:
        drawn = draw

    def step(state):
        cache, last_B, texts_BT, done_B, score_B, lengths_B = state
        column = cache.column
        gain_B1, next_B1, cache = chances(
            cache,
            last_B,
            languages_B,
            texts_BT,
            first_B,
            1,
            drawn,
        )
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
    end = jax.lax.while_loop(going, step, start)
    divisor_B = (
        jnp.maximum(end.lengths_B, 1).astype(jnp.float32)
        ** config.length_penalty
    )
    score_B = end.score_B / divisor_B
    return Texts(
        end.texts_BT[:, None],
        end.lengths_B[:, None],
        score_B[:, None],
    )


class _Beams(NamedTuple):
    """What `beam_search` carries from column to column; `ended`: the best that are finished."""

    cache: Cache
    last_BW: Array
    texts_BWT: Array
    score_BW: Array
    ended_BWT: Array
    ended_length_BW: Array
    ended_score_BW: Array
    done_B: Array


def beam_search(
    chances: Callable,
    cache,
    start_B,
    languages_B,
    first_B,
    ids,
    config,
    longest_B,
    columns,
    key,
) -> Texts:
    """The W best unfinished texts of each row go on. Of the 2 W best continuations those among the
    first W that end are kept as finished, the W best of all so far; a row is done when none of its
    unfinished texts, at its length, scores above the worst of W finished ones (as transformers
    searches with early_stopping=False)."""
    del key
    rows = start_B.shape[0]
    width = config.beams

    def widen(x, axis):
        return jnp.repeat(x, width, axis=axis)

    # The source's keys and values stay as they are: the beams of a row share them.
    wide = dataclasses.replace(
        cache,
        past=jax.tree.map(lambda x: widen(x, 0), cache.past),
    )
    languages_R = widen(languages_B, 0)
    first_R = first_B
    if first_B is not None:
        first_R = widen(first_B, 0)

    def flat(x_BW):
        return x_BW.reshape(rows * width, *x_BW.shape[2:])

    def going(state):
        return (state.cache.column < columns) & ~state.done_B.all()

    def step(state):
        (
            cache,
            last_BW,
            texts_BWT,
            score_BW,
            ended_BWT,
            ended_length_BW,
            ended_score_BW,
            done_B,
        ) = state
        column = cache.column
        gain_RC, tokens_RC, cache = chances(
            cache,
            flat(last_BW),
            languages_R,
            flat(texts_BWT),
            first_R,
            2 * width,
        )
        total_RC = flat(score_BW)[:, None] + gain_RC
        # At most W of 2 W end, one of each beam, so that W remain to go on.
        best_BC, index_BC = jax.lax.top_k(total_RC.reshape(rows, -1), 2 * width)
        beam_BC = index_BC // gain_RC.shape[1]
        token_BC = jnp.take_along_axis(
            tokens_RC.reshape(rows, -1),
            index_BC,
            axis=1,
        )
        texts_BCT = chosen(texts_BWT, beam_BC).at[:, :, column].set(token_BC)
        ends_BC = (token_BC == ids.end) | (column + 1 >= longest_B)[:, None]

        possible_BC = best_BC > LOWEST / 2
        among_first_C = jnp.arange(2 * width) < width
        finishing_BC = ends_BC & possible_BC & among_first_C & ~done_B[:, None]
        length = (column + 1).astype(jnp.float32)
        final_BC = jnp.where(
            finishing_BC,
            best_BC / length**config.length_penalty,
            LOWEST,
        )
        all_BX = jnp.concatenate([ended_score_BW, final_BC], axis=1)
        ended_score_BW, keep_BW = jax.lax.top_k(all_BX, width)
        ended_BWT = chosen(
            jnp.concatenate([ended_BWT, texts_BCT], axis=1),
            keep_BW,
        )
        lengths_BX = jnp.concatenate(
            [ended_length_BW, jnp.full_like(index_BC, column + 1)],
            axis=1,
        )
        ended_length_BW = chosen(lengths_BX, keep_BW)

        score_BW, keep_BW = jax.lax.top_k(
            jnp.where(ends_BC, LOWEST, best_BC),
            width,
        )
        texts_BWT = chosen(texts_BCT, keep_BW)
        last_BW = chosen(token_BC, keep_BW)
        # Each beam goes on with the keys and values of the text that it continues.
        rows_R = flat(
            chosen(beam_BC, keep_BW) + width * jnp.arange(rows)[:, None],
        )
        past = jax.tree.map(
            lambda x: x.at[rows_R].get(mode="promise_in_bounds"),
            cache.past,
        )
        cache = dataclasses.replace(cache, past=past)
        done_B |= (
            score_BW[:, 0] / length**config.length_penalty
            <= ended_score_BW[:, -1]
        )
        done_B |= column + 1 >= longest_B
        return _Beams(
            cache,
            last_BW,
            texts_BWT,
            score_BW,
            ended_BWT,
            ended_length_BW,
            ended_score_BW,
            done_B,
        )

    empty_BWT = jnp.full((rows, width, columns), ids.pad, jnp.int32)
    lowest_BW = jnp.full((rows, width), LOWEST)
    start = _Beams(
        cache=wide,
        last_BW=widen(start_B, 0).reshape(rows, width),
        texts_BWT=empty_BWT,
        # All beams begin alike: only the first counts in the first step.
        score_BW=lowest_BW.at[:, 0].set(0.0),
        ended_BWT=empty_BWT,
        ended_length_BW=jnp.zeros((rows, width), jnp.int32),
        ended_score_BW=lowest_BW,
        done_B=longest_B == 0,
    )
    end = jax.lax.while_loop(going, step, start)
    n = config.n_best
    return Texts(
        end.ended_BWT[:, :n],
        end.ended_length_BW[:, :n],
        end.ended_score_BW[:, :n],
    )
