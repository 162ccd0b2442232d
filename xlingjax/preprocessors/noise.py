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

import numpy as np

from xlingjax.data.rows.draws import BLANK, DROP, GAPS, SHUFFLE, SPANS, STARTS, Draws
from xlingjax.data.rows.targets import columns_where, following, preceding
from xlingjax.data.scripts import is_unspaced
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError, require_choice, require_numbers

LONGEST_SPAN = 32  # longer spans are cut to it: at a mean of 10 one in ten million is
UNITS = ("words", "pieces")  # what is shuffled, dropped and masked as one


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
    unit: str = "words"

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

    ids: np.ndarray
    pack: np.ndarray
    language: np.ndarray
    content: np.ndarray
    begins: np.ndarray | None = None

    def taken(self, columns: np.ndarray, used: np.ndarray, pad_id: int) -> Text:
        """The tokens at `columns` [B, L], padding where not `used`."""

        taken = {}
        for name, x in vars(self).items():
            if x is not None:
                pad = x.dtype.type(pad_id if name == "ids" else 0)
                taken[name] = np.where(used, np.take_along_axis(x, columns, axis=1), pad)
        return Text(**taken)


class Examples:
    """Sums and counts within each example of the rows."""

    def __init__(self, pack: np.ndarray):
        self._pack = pack
        # The tokens of an example stand one behind the other: it begins where the number changes.
        begins = pack != preceding(pack)
        begins[:, 0] = True
        self._starts = np.flatnonzero(begins)
        self._lengths = np.diff(self._starts, append=pack.size)

    def total(self, x: np.ndarray) -> np.ndarray:
        """[B, L]: at each token the sum of x over its example."""
        return self._spread(np.add.reduceat(x.reshape(-1), self._starts))

    def largest(self, x: np.ndarray) -> np.ndarray:
        return self._spread(np.maximum.reduceat(x.reshape(-1), self._starts))

    def before(self, x: np.ndarray) -> np.ndarray:
        """[B, L]: at each token the sum of x over the earlier tokens of its example."""
        return cumulated(x) - self.offset(x)

    def offset(self, x: np.ndarray) -> np.ndarray:
        """[B, L]: at each token the sum of x over the examples before its own."""
        return self._spread(cumulated(x).reshape(-1)[self._starts])

    def rank(self, chosen: np.ndarray, score: np.ndarray) -> np.ndarray:
        """[B, L]: the place of each chosen token among those of its example in the order of score
        (in [0, 1))."""
        # By example, then by score; float64 has room for both.
        key = np.where(chosen, self._pack + score.astype(np.float64), np.inf)
        order = np.argsort(key, axis=1, kind="stable")
        return inverted(order) - self.offset(chosen.astype(np.int64))

    def _spread(self, of_example: np.ndarray) -> np.ndarray:
        """[B, L] of what holds of each example."""
        return np.repeat(of_example, self._lengths).reshape(self._pack.shape)


def inverted(order: np.ndarray) -> np.ndarray:
    """[B, L]: the place of each column in an order of the columns [B, L]."""
    place = np.empty_like(order)
    columns = np.broadcast_to(np.arange(order.shape[1]), order.shape)
    np.put_along_axis(place, order, columns, axis=1)
    return place


def of_word(x: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """[B, L]: at each token of a word the value of x at its first one; elsewhere any."""
    columns = np.arange(begins.shape[1])
    first = np.maximum.accumulate(np.where(begins, columns, 0), axis=1)
    return np.take_along_axis(x, first, axis=1)


def cumulated(x: np.ndarray) -> np.ndarray:
    """Sum of the columns before each one."""
    return np.cumsum(x, axis=1) - x


def padded(x: np.ndarray, value: int = 0) -> np.ndarray:
    """One more column."""
    return np.pad(x, [(0, 0), (0, 1)], constant_values=value)


def interleaved(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """[B, 2 L]: x_0, y_0, x_1, y_1, ..."""
    return np.stack([x, y], axis=2).reshape(len(x), -1)


class Noiser:
    """`Noise` for one vocabulary and run: call it on a `Text` and `Draws`."""

    def __init__(self, noise: Noise, vocabulary: Vocabulary, languages: Sequence[str]):
        """languages: of the run, sorted. Raises UserError for one without a mean length of
        spans, and for none where words are asked for."""
        if not languages and (noise.infill or noise.unit == "words"):
            raise UserError(
                "noise: words are told by language; give the languages of the"
                " run (DenoisingFeatures.languages), or unit='pieces' and no"
                " infilling"
            )
        self.noise = noise
        self._mask_id = vocabulary.mask_id
        self._pad_id = vocabulary.pad_id
        self._begins_word_V = np.array(vocabulary.begins_word())
        self._marks_ends = vocabulary.marks_ends
        # Per language, since a batch may hold several.
        spaced = [not is_unspaced(code) for code in languages]
        self._spaced_G = np.array(spaced)
        # P(length <= k) for k = 0, 1, ...: the number of those below a uniform draw is Poisson.
        if noise.infill:
            self._cdf_GK = np.array(
                [cumulative_poisson(noise.mean_span(code)) for code in languages]
            )

    def __call__(self, text: Text, draws: Draws) -> Text:
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

    def infill(self, text: Text, draws: Draws) -> Text:
        """Spans of words, each replaced by one MASK, until `infill` of an example's words are
        hidden (as fairseq's denoising task does): lengths are drawn until they sum to ceil(infill *
        words), the last is cut to fit, and each nonzero one starts at another word. Spans may
        overlap; one that starts inside another adds no MASK. Of length 0: a MASK in a gap of the
        example (as far as the row has room)."""
        examples = Examples(text.pack)
        word = self._word_starts(text, self.noise.whole_words)
        size, empty = self._span_lengths(text, examples, word, draws)
        shown, hidden = self._covered(text, examples, word, size, draws)
        real = text.pack > 0
        keep = shown | (real & ~hidden)
        insert = self._gaps(text, examples, empty, keep, draws)

        # Each column, then the MASK that may stand behind it.
        mask_ids = np.full_like(text.ids, self._mask_id)
        with_masks = Text(
            ids=interleaved(np.where(shown, self._mask_id, text.ids), mask_ids),
            pack=interleaved(text.pack, text.pack),
            language=interleaved(text.language, text.language),
            # A MASK may be moved, dropped and hidden again like any word.
            content=interleaved(text.content, np.ones_like(text.content)),
        )
        return self._kept(with_masks, interleaved(keep, insert), text.ids.shape[1])

    def _word_starts(self, text: Text, whole: bool) -> np.ndarray:
        """bool [B, L]: the first token of each word. whole: of words of several pieces; False:
        every piece is one."""
        if not whole:
            return text.content
        # Rows may be of several languages, of which some write no spaces.
        spaced = self._spaced_G[text.language]
        begins = self._begins_word_V[text.ids]
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
        self, text: Text, examples: Examples, word: np.ndarray, draws: Draws
    ) -> tuple[np.ndarray, np.ndarray]:
        """(int [B, L]: words in the span whose length was drawn at this word, 0 = none, bool [B,
        L]: whether it is a span of no word)."""
        words = word.astype(np.int64)
        budget = np.ceil(self.noise.infill * examples.total(words) - 1e-6).astype(np.int64)
        # As many lengths are drawn as there are words, and those are used that begin within the
        # budget.
        uniform = draws.uniform(SPANS, text.ids.shape[1])
        drawn = np.zeros_like(words)
        for language in np.unique(text.language):
            of_language = text.language == language
            drawn[of_language] = np.searchsorted(
                self._cdf_GK[language], uniform[of_language], side="right"
            )
        spent = examples.before(drawn * words)
        used = word & (spent < budget)
        # The last span is cut, so that as many words are hidden as were asked for.
        size = np.where(used, np.minimum(drawn, budget - spent), 0)
        return size, used & (size == 0)

    def _covered(
        self, text: Text, examples: Examples, word: np.ndarray, size: np.ndarray, draws: Draws
    ) -> tuple[np.ndarray, np.ndarray]:
        """bool [B, L] each: columns that become the MASK of a span, columns that spans hide."""
        length = text.ids.shape[1]
        words = word.astype(np.int64)
        span = (size > 0).astype(np.int64)
        # An example of n spans starts them at the n words of lowest rank: starts are distinct, and
        # the span at rank r is the example's r-th.
        rank = examples.rank(word, draws.uniform(STARTS, length))
        start = word & (rank < examples.total(span))
        number = np.where(start, examples.offset(span) + rank, length)
        drawn_at = np.take_along_axis(padded(columns_where(span > 0), length), number, axis=1)
        size_here = np.take_along_axis(padded(size), drawn_at, axis=1)

        # Behind an example's last word the next example's first one ends the span: what lies
        # between is no content, and stays.
        words_before = examples.offset(words)
        last = words_before + examples.total(words)
        end_word = np.minimum(cumulated(words) + size_here, last)
        end = np.take_along_axis(padded(columns_where(word), length), end_word, axis=1)

        # One more at the start of a span, one less at its end, which may lie behind the row.
        changes = padded(start.astype(np.int64))
        row, _ = np.nonzero(start)
        np.subtract.at(changes, (row, end[start]), 1)
        covering = np.cumsum(changes, axis=1)[:, :length]
        # Where a second span is open already, this one starts inside it.
        shown = start & (covering == 1)
        return shown, (covering > 0) & text.content

    def _gaps(
        self, text: Text, examples: Examples, empty: np.ndarray, keep: np.ndarray, draws: Draws
    ) -> np.ndarray:
        """bool [B, L]: columns of an example behind which a MASK is inserted, one per span of no
        word."""
        length = text.ids.shape[1]
        gap = (text.pack > 0) & (text.pack == following(text.pack))
        rank = examples.rank(gap, draws.uniform(GAPS, length))
        # The gaps of lowest rank are a choice without replacement.
        insert = gap & (rank < examples.total(empty.astype(np.int64)))
        # A row has no more columns than before, so a MASK fits only where spans have made room.
        room = length - np.count_nonzero(keep, axis=1)[:, None]
        return insert & (cumulated(insert.astype(np.int64)) < room)

    def shuffle(self, text: Text, draws: Draws) -> Text:
        """The words of each example in the order of i + U(0, shuffle), i the index of a word; their
        pieces keep their order. What noise may not touch stays behind as many words as before."""
        length = text.ids.shape[1]
        words_before = cumulated(text.begins.astype(np.int64))
        moved = self.noise.shuffle * draws.uniform(SHUFFLE, length).astype(np.float64)
        # So far apart no word of one example sorts among those of the next.
        apart = text.pack * self.noise.shuffle
        key = np.where(text.begins, words_before + apart + moved, np.inf)
        order = np.argsort(key, axis=1, kind="stable")
        # The new place of each word, at its first piece.
        place = of_word(inverted(order), text.begins)
        # Between the odd numbers of the words there is one for what stays behind as many of them.
        number = np.where(text.content, 2 * place + 1, 2 * words_before)
        columns = np.argsort(number, axis=1, kind="stable")
        return text.taken(columns, text.pack > 0, self._pad_id)

    def drop(self, text: Text, draws: Draws) -> Text:
        """Without a share `drop` of the words; of an example that would lose all, one stays."""
        length = text.ids.shape[1]
        # The same draw decides what is lost and which one stays.
        uniform = of_word(draws.uniform(DROP, length), text.begins)
        # Below every draw, so that what noise may not touch is never the one that stays.
        score = np.where(text.content, uniform, -1.0)
        largest = Examples(text.pack).largest(score)
        lost = text.content & (uniform < self.noise.drop) & (score < largest)
        return self._kept(text, (text.pack > 0) & ~lost, length)

    def mask(self, text: Text, draws: Draws) -> Text:
        """Of a share `mask` of the words each piece is shown as MASK."""
        uniform = of_word(draws.uniform(BLANK, text.ids.shape[1]), text.begins)
        hidden = text.content & (uniform < self.noise.mask)
        return replace(text, ids=np.where(hidden, np.int32(self._mask_id), text.ids))

    def _kept(self, text: Text, keep: np.ndarray, length: int) -> Text:
        """The tokens to keep, moved together."""
        columns = columns_where(keep)[:, :length]
        # `columns_where` fills up with columns that are not there.
        used = columns < text.ids.shape[1]
        return text.taken(np.where(used, columns, 0), used, self._pad_id)


def cumulative_poisson(mean: float) -> list[float]:
    """P(k <= 0), P(k <= 1), ... P(k <= LONGEST_SPAN - 1) of a Poisson variable."""
    chances = [math.exp(-mean) * mean**k / math.factorial(k) for k in range(LONGEST_SPAN)]
    return np.cumsum(chances).tolist()
