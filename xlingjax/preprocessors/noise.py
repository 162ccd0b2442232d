"""Noise on text for denoising auto-encoders: infilling, shuffling, dropping and masking (XGLUE
§4.1; XLM §4.2).

Each function maps rows [B, L] of packed examples to rows [B, L] and keeps every example by itself.
A `Text` says which tokens may be touched: special tokens stay where they are.

What is shuffled, dropped and masked is a word with all its pieces ("drop words", XGLUE §4.1; "be
sure to drop entire words", the code of Lample et al. 2018b, whose setting XLM §5.3 has), or a piece
(the released code of XLM and of XGLUE).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xlingjax.data.targets import columns_where, following
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.word_pieces import UNSPACED, base_language
from xlingjax.errors import UserError, require_choice, require_numbers

LONGEST_SPAN = 32
"""Longer spans are cut to it: at a mean of 10 one in ten million is."""
UNITS = ("words", "pieces")
"""What is shuffled, dropped and masked as one."""


@dataclass(frozen=True)
class Noise:
    """c(X), in the order infill, shuffle, drop, mask; 0 leaves a function out.

    infill: share of the words that spans hide, each replaced by one MASK; poisson: the mean of
    their lengths, one number or {language: mean}; a span of length 0 inserts a MASK. whole_words:
    spans are of words, not of pieces, in languages that write spaces.

    unit: what the others are of: "words", in languages that write spaces, or "pieces". shuffle:
    word i sorts at i + U(0, shuffle), so it moves by less than `shuffle` words. drop: share of the
    words that are lost; one stays. mask: share of the words that are shown as MASK, one for each of
    their pieces.
    """

    infill: float = 0.0
    poisson: float | Mapping[str, float] = 3.0
    whole_words: bool = True
    shuffle: float = 0.0
    drop: float = 0.0
    mask: float = 0.0
    unit: str = "pieces"

    def __post_init__(self):
        require_choice(self, UNITS, "unit", "noise: ")
        require_numbers(self, "[0, 1)", "infill drop mask", "noise: ")
        require_numbers(self, "[0, 10]", "poisson", "noise: ")
        require_numbers(self, "[0, inf)", "shuffle", "noise: ")

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
    `language`, an index; `content`, whether noise may touch the token; `begins`, whether it is the
    first of its word (set by `Noiser`)."""

    ids: Any
    pack: Any
    language: Any
    content: Any
    begins: Any = None

    def taken(self, columns: Any, used: Any, pad_id: int) -> Text:
        """The tokens at `columns` [B, L], padding where not `used`."""
        import tensorflow as tf

        def take(x: Any, pad: Any) -> Any:
            return tf.where(used, tf.gather(x, columns, batch_dims=1), pad)

        begins = self.begins
        if begins is not None:
            begins = take(begins, False)
        return Text(
            take(self.ids, pad_id),
            take(self.pack, 0),
            take(self.language, 0),
            take(self.content, False),
            begins,
        )


class Examples:
    """Sums and counts within each example of the rows."""

    def __init__(self, pack: Any):
        import tensorflow as tf

        self._pack = pack
        rows, length = pack.shape
        # One segment per example of the whole batch: a row has at most as many as it has columns,
        # and one of padding.
        self._segment = pack + (length + 1) * tf.range(rows)[:, None]
        # A fixed number, since TensorFlow wants shapes that do not depend on the data.
        self._segments = rows * (length + 1)

    def total(self, x: Any) -> Any:
        """[B, L]: at each token the sum of x over its example."""
        import tensorflow as tf

        sums = tf.math.unsorted_segment_sum(x, self._segment, self._segments)
        return tf.gather(sums, self._segment)

    def largest(self, x: Any) -> Any:
        import tensorflow as tf

        highest = tf.math.unsorted_segment_max(x, self._segment, self._segments)
        return tf.gather(highest, self._segment)

    def before(self, x: Any) -> Any:
        """[B, L]: at each token the sum of x over the earlier tokens of its example."""
        return cumulated(x) - self.offset(x)

    def offset(self, x: Any) -> Any:
        """[B, L]: at each token the sum of x over the examples before its own."""
        import tensorflow as tf

        # Sums only grow along a row: the lowest of an example is that at its first token.
        first = tf.math.unsorted_segment_min(cumulated(x), self._segment, self._segments)
        return tf.gather(first, self._segment)

    def rank(self, chosen: Any, score: Any) -> Any:
        """[B, L]: the place of each chosen token among those of its example in the order of score
        (in [0, 1))."""
        import tensorflow as tf

        # By example, then by score; float64 has room for both.
        key = tf.cast(self._pack, tf.float64) + tf.cast(score, tf.float64)
        order = tf.argsort(tf.where(chosen, key, np.inf), axis=1, stable=True)
        # Sorting a permutation inverts it: the place of each column in the order.
        place = tf.argsort(order, axis=1)
        return place - self.offset(tf.cast(chosen, tf.int32))


def of_word(x: Any, begins: Any) -> Any:
    """[B, L]: at each token of a word the value of x at its first one; elsewhere any."""
    import tensorflow as tf

    number = tf.cumsum(tf.cast(begins, tf.int32), axis=1) - 1
    # A row may hold no word, and begin with tokens of none.
    first = tf.minimum(columns_where(begins), begins.shape[1] - 1)
    column = tf.gather(first, tf.maximum(number, 0), batch_dims=1)
    return tf.gather(x, column, batch_dims=1)


def cumulated(x: Any) -> Any:
    """Sum of the columns before each one."""
    import tensorflow as tf

    return tf.cumsum(x, axis=1, exclusive=True)


def preceding(x: Any) -> Any:
    """The value of the column before each one; 0 in the first."""
    import tensorflow as tf

    return tf.pad(x[:, :-1], [[0, 0], [1, 0]])


def padded(x: Any, value: int = 0) -> Any:
    """One more column."""
    import tensorflow as tf

    return tf.pad(x, [[0, 0], [0, 1]], constant_values=value)


def interleaved(x: Any, y: Any) -> Any:
    """[B, 2 L]: x_0, y_0, x_1, y_1, ..."""
    import tensorflow as tf

    return tf.reshape(tf.stack([x, y], axis=2), [-1, 2 * x.shape[1]])


class Noiser:
    """`Noise` for one vocabulary and run: call it on a `Text` and `Draws`."""

    def __init__(self, noise: Noise, vocabulary: Vocabulary, languages: Sequence[str]):
        """languages: of the run, sorted. Raises UserError for one without a mean length of
        spans, and for none where words are asked for."""
        import tensorflow as tf

        if not languages and (noise.infill or noise.unit == "words"):
            raise UserError(
                "noise: words are told by language; give the languages of the"
                " run (DenoisingFeatures.languages), or unit='pieces' and no"
                " infilling"
            )
        self.noise = noise
        self._mask_id = vocabulary.mask_id
        self._pad_id = vocabulary.pad_id
        self._begins_word_V = tf.constant(vocabulary.begins_word())
        self._marks_ends = vocabulary.marks_ends
        # Per language, since a batch may hold several.
        spaced = [base_language(code) not in UNSPACED for code in languages]
        self._spaced_G = tf.constant(spaced)
        # P(length <= k) for k = 0, 1, ...: the number of those below a uniform draw is Poisson.
        if noise.infill:
            self._cdf_GK = tf.constant(
                [cumulative_poisson(noise.mean_span(code)) for code in languages], tf.float32
            )

    def __call__(self, text: Text, draws: Any) -> Text:
        # In this order: spans are of the words as they stood.
        if self.noise.infill:
            text = self.infill(text, draws)
        # Told here, once: where words have moved, what stands before one tells nothing of it.
        begins = self._word_starts(text, self.noise.unit == "words")
        text = replace(text, begins=begins)
        for function in ("shuffle", "drop", "mask"):
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

        examples = Examples(text.pack)
        word = self._word_starts(text, self.noise.whole_words)
        size, empty = self._span_lengths(text, examples, word, draws)
        shown, hidden = self._covered(text, examples, word, size, draws)
        real = text.pack > 0
        keep = shown | (real & ~hidden)
        insert = self._gaps(text, examples, empty, keep, draws)

        # Each column, then the MASK that may stand behind it.
        mask_ids = tf.fill(text.ids.shape, self._mask_id)
        with_masks = Text(
            ids=interleaved(tf.where(shown, self._mask_id, text.ids), mask_ids),
            pack=interleaved(text.pack, text.pack),
            language=interleaved(text.language, text.language),
            # A MASK may be moved, dropped and hidden again like any word.
            content=interleaved(text.content, tf.ones_like(text.content)),
        )
        return self._kept(with_masks, interleaved(keep, insert), text.ids.shape[1])

    def _word_starts(self, text: Text, whole: bool) -> Any:
        """bool [B, L]: the first token of each word. whole: of words of several pieces; False:
        every piece is one."""
        import tensorflow as tf

        if not whole:
            return text.content
        # Rows may be of several languages, of which some write no spaces.
        spaced = tf.gather(self._spaced_G, text.language)
        begins = tf.gather(self._begins_word_V, text.ids)
        if self._marks_ends:
            begins = preceding(begins)
        # The first piece behind a special token opens a word, however it is written; without spaces
        # every piece does.
        opens = ~preceding(text.content)
        # A MASK that stands for a span is a word, and ends the one before it.
        masks = text.ids == self._mask_id
        masked = masks | preceding(masks)
        return text.content & (~spaced | begins | opens | masked)

    def _span_lengths(
        self, text: Text, examples: Examples, word: Any, draws: Any
    ) -> tuple[Any, Any]:
        """(int [B, L]: words in the span whose length was drawn at this word, 0 = none, bool [B,
        L]: whether it is a span of no word)."""
        import tensorflow as tf

        from xlingjax.data import draws as random

        words = tf.cast(word, tf.int32)
        total = tf.cast(examples.total(words), tf.float32)
        budget = tf.cast(tf.math.ceil(self.noise.infill * total - 1e-4), tf.int32)
        # Shapes are fixed, so as many lengths are drawn as there are words, and those are used that
        # begin within the budget.
        uniform = draws.uniform(random.SPANS, text.ids.shape[1])
        cdf = tf.gather(self._cdf_GK, text.language)
        drawn = tf.reduce_sum(tf.cast(uniform[:, :, None] >= cdf, tf.int32), axis=2)
        spent = examples.before(drawn * words)
        used = word & (spent < budget)
        # The last span is cut, so that as many words are hidden as were asked for.
        size = tf.where(used, tf.minimum(drawn, budget - spent), 0)
        return size, used & (size == 0)

    def _covered(
        self, text: Text, examples: Examples, word: Any, size: Any, draws: Any
    ) -> tuple[Any, Any]:
        """bool [B, L] each: columns that become the MASK of a span, columns that spans hide."""
        import tensorflow as tf

        from xlingjax.data import draws as random

        length = text.ids.shape[1]
        words = tf.cast(word, tf.int32)
        span = tf.cast(size > 0, tf.int32)
        # An example of n spans starts them at the n words of lowest rank: starts are distinct, and
        # the span at rank r is the example's r-th.
        rank = examples.rank(word, draws.uniform(random.STARTS, length))
        start = word & (rank < examples.total(span))
        number = tf.where(start, examples.offset(span) + rank, length)
        drawn_at = tf.gather(padded(columns_where(span > 0)), number, batch_dims=1)
        size_here = tf.where(start, tf.gather(padded(size), drawn_at, batch_dims=1), 0)

        # Behind an example's last word the next example's first one ends the span: what lies
        # between is no content, and stays.
        words_before = examples.offset(words)
        last = words_before + examples.total(words)
        end_word = tf.minimum(cumulated(words) + size_here, last)
        end = tf.gather(padded(columns_where(word), length), end_word, batch_dims=1)

        end_BLL = tf.one_hot(end, length, dtype=tf.int32)
        # `one_hot` of a column beyond the row is all zeros: such a span has no end in it.
        ends = tf.reduce_sum(tf.where(start[:, :, None], end_BLL, 0), axis=1)
        covering = tf.cumsum(tf.cast(start, tf.int32) - ends, axis=1)
        # Where a second span is open already, this one starts inside it.
        shown = start & (covering == 1)
        return shown, (covering > 0) & text.content

    def _gaps(self, text: Text, examples: Examples, empty: Any, keep: Any, draws: Any) -> Any:
        """bool [B, L]: columns of an example behind which a MASK is inserted, one per span of no
        word."""
        import tensorflow as tf

        from xlingjax.data import draws as random

        length = text.ids.shape[1]
        gap = (text.pack > 0) & (text.pack == following(text.pack))
        rank = examples.rank(gap, draws.uniform(random.GAPS, length))
        # The gaps of lowest rank are a choice without replacement.
        insert = gap & (rank < examples.total(tf.cast(empty, tf.int32)))
        # A row has no more columns than before, so a MASK fits only where spans have made room.
        room = length - tf.reduce_sum(tf.cast(keep, tf.int32), axis=1, keepdims=True)
        return insert & (cumulated(tf.cast(insert, tf.int32)) < room)

    def shuffle(self, text: Text, draws: Any) -> Text:
        """The words of each example in the order of i + U(0, shuffle), i the index of a word; their
        pieces keep their order. What noise may not touch stays behind as many words as before."""
        import tensorflow as tf

        from xlingjax.data import draws as random

        length = text.ids.shape[1]
        words_before = cumulated(tf.cast(text.begins, tf.int32))
        moved = self.noise.shuffle * tf.cast(draws.uniform(random.SHUFFLE, length), tf.float64)
        # So far apart no word of one example sorts among those of the next.
        apart = tf.cast(text.pack, tf.float64) * self.noise.shuffle
        key = tf.cast(words_before, tf.float64) + apart + moved
        order = tf.argsort(tf.where(text.begins, key, np.inf), axis=1, stable=True)
        # Sorting a permutation inverts it: the new place of each word, at its first piece.
        place = of_word(tf.argsort(order, axis=1), text.begins)
        # Between the odd numbers of the words there is one for what stays behind as many of them.
        columns = tf.argsort(
            tf.where(text.content, 2 * place + 1, 2 * words_before), axis=1, stable=True
        )
        return text.taken(columns, text.pack > 0, self._pad_id)

    def drop(self, text: Text, draws: Any) -> Text:
        """Without a share `drop` of the words; of an example that would lose all, one stays."""
        import tensorflow as tf

        from xlingjax.data import draws as random

        length = text.ids.shape[1]
        # The same draw decides what is lost and which one stays.
        uniform = of_word(draws.uniform(random.DROP, length), text.begins)
        # Below every draw, so that what noise may not touch is never the one that stays.
        score = tf.where(text.content, uniform, -1.0)
        highest = Examples(text.pack).largest(score)
        lost = text.content & (uniform < self.noise.drop) & (score < highest)
        return self._kept(text, (text.pack > 0) & ~lost, length)

    def mask(self, text: Text, draws: Any) -> Text:
        """Of a share `mask` of the words each piece is shown as MASK."""
        import tensorflow as tf

        from xlingjax.data import draws as random

        length = text.ids.shape[1]
        uniform = of_word(draws.uniform(random.BLANK, length), text.begins)
        hidden = text.content & (uniform < self.noise.mask)
        return replace(text, ids=tf.where(hidden, self._mask_id, text.ids))

    def _kept(self, text: Text, keep: Any, length: int) -> Text:
        """The tokens to keep, moved together."""
        import tensorflow as tf

        columns = columns_where(keep)[:, :length]
        # `columns_where` fills up with columns that are not there.
        used = columns < text.ids.shape[1]
        return text.taken(tf.where(used, columns, 0), used, self._pad_id)


def cumulative_poisson(mean: float) -> list[float]:
    """P(k <= 0), P(k <= 1), ... P(k <= LONGEST_SPAN - 1) of a Poisson variable."""
    chances = [math.exp(-mean) * mean**k / math.factorial(k) for k in range(LONGEST_SPAN)]
    return np.cumsum(chances).tolist()
