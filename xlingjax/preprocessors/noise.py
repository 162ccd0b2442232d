"""Noise on text for denoising auto-encoders: infilling, shuffling, dropping and masking (XGLUE
§4.1; XLM §4.2).

Each function maps rows [B, L] of packed examples to rows [B, L] and keeps every example by itself.
A `Text` says which tokens may be touched: special tokens stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.targets import columns_where
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.word_pieces import UNSPACED, base_language
from xlingjax.errors import UserError

LONGEST_SPAN = 32
"""Longer spans are cut to it: at a mean of 10 one in ten million is."""


@dataclass(frozen=True)
class Noise:
    """c(X), in the order infill, shuffle, drop, mask; 0 leaves a function out.

    infill: share of the words that spans hide, each replaced by one MASK; poisson: the mean of
    their lengths, one number or {language: mean}; a span of length 0 inserts a MASK. whole_words:
    spans are of words, not of pieces, in languages that write spaces. shuffle: token i sorts at i +
    U(0, shuffle), so it moves by less than `shuffle` places. drop: share of the tokens that are
    lost; one stays. mask: share shown as MASK.
    """

    infill: float = 0.0
    poisson: float | Mapping[str, float] = 3.0
    whole_words: bool = True
    shuffle: float = 0.0
    drop: float = 0.0
    mask: float = 0.0

    def __post_init__(self):
        for name in ("infill", "drop", "mask"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(
                    f"noise: {name}={getattr(self, name)} must be at least 0 and below 1"
                )
        means = self.poisson.values() if isinstance(self.poisson, Mapping) else [self.poisson]
        if not all(0 <= mean <= 10 for mean in means) or self.shuffle < 0:
            raise UserError(
                f"noise: shuffle={self.shuffle} must not be negative, poisson={self.poisson} lie in"
                " 0..10"
            )

    def mean_span(self, language: str) -> float:
        """Raises UserError for a language that `poisson` leaves out."""
        if not isinstance(self.poisson, Mapping):
            return float(self.poisson)
        if language not in self.poisson:
            raise UserError(
                f"noise: poisson={dict(self.poisson)} has no mean for {language!r}; add it"
            )
        return float(self.poisson[language])


@dataclass(frozen=True)
class Text:
    """Rows of examples, each field [B, L]: `ids`; `pack`, 0 = padding, 1.. = number of the example;
    `language`, an index; `content`, whether noise may touch the token."""

    ids: Any
    pack: Any
    language: Any
    content: Any

    def taken(self, columns: Any, used: Any, pad_id: int) -> Text:
        """The tokens at `columns` [B, L], padding where not `used`."""
        import tensorflow as tf

        def take(x: Any, pad: Any) -> Any:
            return tf.where(used, tf.gather(x, columns, batch_dims=1), pad)

        return Text(
            take(self.ids, pad_id),
            take(self.pack, 0),
            take(self.language, 0),
            take(self.content, False),
        )


class Examples:
    """Sums and counts within each example of the rows."""

    def __init__(self, pack: Any):
        import tensorflow as tf

        self._pack = pack
        rows, self._length = pack.shape
        self._segment = pack + (self._length + 1) * tf.range(rows)[:, None]
        self._segments = rows * (self._length + 1)

    def total(self, x: Any) -> Any:
        """[B, L]: at each token the sum of x over its example."""
        import tensorflow as tf

        return tf.gather(
            tf.math.unsorted_segment_sum(x, self._segment, self._segments), self._segment
        )

    def largest(self, x: Any) -> Any:
        import tensorflow as tf

        return tf.gather(
            tf.math.unsorted_segment_max(x, self._segment, self._segments), self._segment
        )

    def before(self, x: Any) -> Any:
        """[B, L]: at each token the sum of x over the earlier tokens of its example."""
        return cumulated(x) - self.offset(x)

    def offset(self, x: Any) -> Any:
        """[B, L]: at each token the sum of x over the examples before its own."""
        import tensorflow as tf

        before = cumulated(x)
        return tf.gather(
            tf.math.unsorted_segment_min(before, self._segment, self._segments), self._segment
        )

    def rank(self, chosen: Any, score: Any) -> Any:
        """[B, L]: the place of each chosen token among those of its example in the order of score
        (in [0, 1))."""
        import tensorflow as tf

        key = tf.where(chosen, tf.cast(self._pack, tf.float64) + tf.cast(score, tf.float64), np.inf)
        place = tf.argsort(tf.argsort(key, axis=1, stable=True), axis=1)
        return place - self.offset(tf.cast(chosen, tf.int32))


def cumulated(x: Any) -> Any:
    """Sum of the columns before each one."""
    import tensorflow as tf

    return tf.cumsum(x, axis=1, exclusive=True)


class Noiser:
    """`Noise` for one vocabulary and run: call it on a `Text` and `Draws`."""

    def __init__(self, noise: Noise, vocabulary: Vocabulary, languages: Sequence[str]):
        """languages: of the run, sorted. Raises UserError for one without a mean length of
        spans."""
        import tensorflow as tf

        self.noise, self._mask_id, self._pad_id = noise, vocabulary.mask_id, vocabulary.pad_id
        self._begins_word_V, self._marks_ends = (
            tf.constant(vocabulary.begins_word()),
            vocabulary.marks_ends,
        )
        spaced = [noise.whole_words and base_language(code) not in UNSPACED for code in languages]
        self._spaced_G = tf.constant(spaced)
        # P(length <= k) for k = 0, 1, ...: the number of those below a uniform draw is Poisson.
        if noise.infill:
            self._cdf_GK = tf.constant(
                [cumulative_poisson(noise.mean_span(code)) for code in languages], tf.float32
            )

    def __call__(self, text: Text, draws: Any) -> Text:
        for function in ("infill", "shuffle", "drop", "mask"):
            if getattr(self.noise, function):
                text = getattr(self, function)(text, draws)
        return text

    def infill(self, text: Text, draws: Any) -> Text:
        """Spans of words, each replaced by one MASK, until `infill` of an example's words are
        hidden (as fairseq's denoising task does): lengths are drawn until they sum to ceil(infill *
        words), the last is cut to fit, and each nonzero one starts at another word. Spans may
        overlap; one that starts inside another adds no MASK. Of length 0: a MASK in a gap of the
        example (as far as the row has room)."""
        import tensorflow as tf

        from xlingjax.data import draws as random

        length = text.ids.shape[1]
        examples = Examples(text.pack)
        after_content = tf.pad(text.content[:, :-1], [[0, 0], [1, 0]])
        spaced = tf.gather(self._spaced_G, text.language)
        begins = tf.gather(self._begins_word_V, text.ids)
        if self._marks_ends:
            begins = tf.pad(begins[:, :-1], [[0, 0], [1, 0]])
        word = text.content & (~spaced | begins | ~after_content)
        words = tf.cast(word, tf.int32)
        budget = tf.cast(
            tf.math.ceil(self.noise.infill * tf.cast(examples.total(words), tf.float32) - 1e-4),
            tf.int32,
        )
        # Word number i of an example holds the i-th length drawn for the example.
        uniform = draws.uniform(random.SPANS, length)
        drawn = tf.reduce_sum(
            tf.cast(uniform[:, :, None] >= tf.gather(self._cdf_GK, text.language), tf.int32), axis=2
        )
        spent = examples.before(drawn * words)
        used = word & (spent < budget)
        size = tf.where(used, tf.minimum(drawn, budget - spent), 0)
        span, empty = tf.cast(size > 0, tf.int32), tf.cast(used & (size == 0), tf.int32)

        rank = examples.rank(word, draws.uniform(random.STARTS, length))
        start = word & (rank < examples.total(span))
        # The span that starts here: number `rank` of the example's.
        holders = tf.pad(columns_where(span > 0), [[0, 0], [0, 1]])
        holder = tf.gather(
            holders, tf.where(start, examples.offset(span) + rank, length), batch_dims=1
        )
        size = tf.where(start, tf.gather(tf.pad(size, [[0, 0], [0, 1]]), holder, batch_dims=1), 0)
        first_word = examples.offset(words)
        end_word = tf.minimum(cumulated(words) + size, first_word + examples.total(words))
        end = tf.gather(
            tf.pad(columns_where(word), [[0, 0], [0, 1]], constant_values=length),
            end_word,
            batch_dims=1,
        )
        ends = tf.reduce_sum(
            tf.where(start[:, :, None], tf.one_hot(end, length, dtype=tf.int32), 0), axis=1
        )
        covering = tf.cumsum(tf.cast(start, tf.int32) - ends, axis=1)
        shown = start & (covering == 1)
        keep = shown | ~((covering > 0) & text.content) & (text.pack > 0)

        same_next = (text.pack > 0) & (text.pack == tf.pad(text.pack[:, 1:], [[0, 0], [0, 1]]))
        gap = examples.rank(same_next, draws.uniform(random.GAPS, length))
        insert = same_next & (gap < examples.total(empty))
        room = length - tf.reduce_sum(tf.cast(keep, tf.int32), axis=1, keepdims=True)
        insert &= cumulated(tf.cast(insert, tf.int32)) < room

        both = Text(
            ids=tf.stack(
                [tf.where(shown, self._mask_id, text.ids), tf.fill(text.ids.shape, self._mask_id)],
                axis=2,
            ),
            pack=tf.stack([text.pack] * 2, axis=2),
            language=tf.stack([text.language] * 2, axis=2),
            content=tf.stack([text.content, tf.ones_like(text.content)], axis=2),
        )
        flat = Text(
            *(
                tf.reshape(x, [-1, 2 * length])
                for x in (both.ids, both.pack, both.language, both.content)
            )
        )
        return self._kept(
            flat, tf.reshape(tf.stack([keep, insert], axis=2), [-1, 2 * length]), length
        )

    def shuffle(self, text: Text, draws: Any) -> Text:
        """The tokens of each example in the order of i + U(0, shuffle), i the index among what may
        be touched."""
        import tensorflow as tf

        from xlingjax.data import draws as random

        length = text.ids.shape[1]
        index = tf.cast(cumulated(tf.cast(text.content, tf.int32)), tf.float64)
        far = (
            tf.cast(text.pack, tf.float64) * self.noise.shuffle
        )  # examples keep out of each other's way
        moved = self.noise.shuffle * tf.cast(draws.uniform(random.SHUFFLE, length), tf.float64)
        source = tf.argsort(
            tf.where(text.content, index + far + moved, np.inf), axis=1, stable=True
        )
        slot = cumulated(tf.cast(text.content, tf.int32))
        columns = tf.where(
            text.content, tf.gather(source, slot, batch_dims=1), tf.range(length)[None, :]
        )
        return text.taken(columns, text.pack > 0, self._pad_id)

    def drop(self, text: Text, draws: Any) -> Text:
        """Without a share `drop` of the tokens; of an example that would lose all, one stays."""
        import tensorflow as tf

        from xlingjax.data import draws as random

        uniform = draws.uniform(random.DROP, text.ids.shape[1])
        score = tf.where(text.content, uniform, -1.0)
        lost = (
            text.content
            & (uniform < self.noise.drop)
            & (score < Examples(text.pack).largest(score))
        )
        return self._kept(text, (text.pack > 0) & ~lost, text.ids.shape[1])

    def mask(self, text: Text, draws: Any) -> Text:
        """A share `mask` of the tokens is shown as MASK."""
        import tensorflow as tf

        from xlingjax.data import draws as random

        hidden = text.content & (draws.uniform(random.BLANK, text.ids.shape[1]) < self.noise.mask)
        return Text(
            tf.where(hidden, self._mask_id, text.ids), text.pack, text.language, text.content
        )

    def _kept(self, text: Text, keep: Any, length: int) -> Text:
        """The tokens to keep, moved together."""
        import tensorflow as tf

        columns = columns_where(keep)[:, :length]
        used = columns < text.ids.shape[1]
        return text.taken(tf.where(used, columns, 0), used, self._pad_id)


def cumulative_poisson(mean: float) -> list[float]:
    """P(k <= 0), P(k <= 1), ... P(k <= LONGEST_SPAN - 1) of a Poisson variable."""
    chances = [math.exp(-mean) * mean**k / math.factorial(k) for k in range(LONGEST_SPAN)]
    return np.cumsum(chances).tolist()
