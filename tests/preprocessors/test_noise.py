"""Noise against a plain loop over examples that reads the same draws, its properties (XGLUE §4.1)
and distributions."""

import math

import numpy as np
import pytest

from tests.helpers.made import Xlmr
from xlingjax.data.rows import draws as random
from xlingjax.data.rows.draws import Draws
from xlingjax.preprocessors.noise import Noise, Noiser, Text, cumulative_poisson

MASK, PAD, EOS, BOS = Xlmr.mask_id, Xlmr.pad_id, Xlmr.eos_id, Xlmr.bos_id
LANGUAGES = ("en", "zh")


class Vocabulary(Xlmr):
    """Every third piece begins no word."""

    @classmethod
    def pieces(cls, ids):
        return [f"{'' if i % 3 == 0 else '▁'}{i}" for i in ids]

    @classmethod
    def begins_word(cls):
        return [i % 3 != 0 for i in range(cls.size)]


def begins_word(piece):
    return piece % 3 != 0


class OfEnds(Vocabulary):
    """Two pieces of three end a word."""

    marks_ends = True


def rows(count=40, length=48, examples=2, seed=0):
    """A Text of `<s> x </s>` examples, English and Chinese, and one row in ten that is padding
    alone."""
    rng = np.random.default_rng(seed)
    ids, packs, language = (np.full((count, length), value) for value in (PAD, 0, 0))
    for row in range(count):
        column = 0
        for pack in range(1, examples + 1):
            words = rng.integers(4, 99, rng.integers(1, length // examples - 3))
            example = [BOS, *words, EOS]
            where = slice(column, column + len(example))
            ids[row, where], packs[row, where], language[row, where] = (
                example,
                pack,
                (row + pack) % 2,
            )
            column += len(example)
    packs[::10], ids[::10] = 0, PAD
    content = (packs > 0) & ~np.isin(ids, sorted(Xlmr.special_ids))
    return Text(*(x.astype(np.int32) for x in (ids, packs, language)), content)


def noised(noise, text, step=0, vocabulary=Vocabulary):
    found = Noiser(noise, vocabulary, LANGUAGES)(text, Draws(7, step, text.ids.shape[0]))
    return Text(*(np.asarray(x) for x in (found.ids, found.pack, found.language, found.content)))


def examples_of(text):
    """{(row, example): (ids, language)}"""
    ids, packs, language = (np.asarray(x) for x in (text.ids, text.pack, text.language))
    return {
        (row, pack): (
            ids[row][packs[row] == pack].tolist(),
            int(language[row][packs[row] == pack][0]),
        )
        for row in range(len(ids))
        for pack in np.unique(packs[row][packs[row] > 0]).tolist()
    }


def check_rows(before, after):
    """Examples keep their order, their language and their special tokens; padding stands behind
    them."""
    assert examples_of(before).keys() == examples_of(after).keys()
    for packs, ids in zip(after.pack, after.ids, strict=True):
        used = int((packs > 0).sum())
        assert (
            (np.diff(packs[:used]) >= 0).all()
            and not packs[used:].any()
            and (ids[used:] == PAD).all()
        )
    was = examples_of(before)
    for key, (ids, language) in examples_of(after).items():
        assert language == was[key][1] and (ids[0], ids[-1]) == (BOS, EOS)


def reference_infill(
    ids, language, u_lengths, u_starts, u_gaps, rate, mean, whole_words=True, ends=False
):
    """One example, as fairseq's denoising data set does it."""
    content = [i not in Xlmr.special_ids for i in ids]
    unspaced = LANGUAGES[language] == "zh" or not whole_words
    begins = [begins_word(ids[c - ends]) or not content[c - 1] for c in range(len(ids))]
    words = [c for c in range(len(ids)) if content[c] and (unspaced or begins[c])]
    budget = math.ceil(rate * len(words) - 1e-4)
    lengths, inserts = [], 0
    cdf = np.float32(cumulative_poisson(mean))
    for word in words:
        if sum(lengths) >= budget:
            break
        size = min(int((u_lengths[word] >= cdf).sum()), budget - sum(lengths))
        lengths.append(size)
    inserts, lengths = lengths.count(0), [size for size in lengths if size]
    starts = sorted(words, key=lambda c: u_starts[c])[: len(lengths)]
    shown, gone = set(starts), set()
    for start, size in zip(starts, lengths, strict=True):
        following = words[words.index(start) :][:size]
        end = (
            words[words.index(start) + size] if words.index(start) + size < len(words) else len(ids)
        )
        assert following
        gone |= {c for c in range(start + 1, end) if content[c]}
    gaps = sorted(range(len(ids) - 1), key=lambda c: u_gaps[c])[:inserts]
    result = []
    for column, piece in enumerate(ids):
        if column not in gone:
            result.append(MASK if column in shown else piece)
        result += [MASK] * (column in gaps)
    return result


@pytest.mark.parametrize("vocabulary", [Vocabulary, OfEnds])
@pytest.mark.parametrize(
    "rate, mean, whole_words",
    [(0.3, 3.0, True), (0.3, 3.0, False), (0.6, 0.7, True), (0.1, 8, True)],
)
def test_infilling_is_the_reference_on_the_same_draws(rate, mean, whole_words, vocabulary):
    text = rows()
    noise = Noise(infill=rate, poisson=mean, whole_words=whole_words)
    after = noised(noise, text, vocabulary=vocabulary)
    check_rows(text, after)
    draws = Draws(7, 0, text.ids.shape[0])
    uniforms = [
        draws.uniform(p, text.ids.shape[1]) for p in (random.SPANS, random.STARTS, random.GAPS)
    ]
    packs = text.pack
    found, compared, longer = examples_of(after), 0, 0
    for (row, pack), (ids, language) in examples_of(text).items():
        own = [u[row][packs[row] == pack] for u in uniforms]
        expected = reference_infill(
            ids, language, *own, rate, mean, whole_words, vocabulary.marks_ends
        )
        if (
            len(after.ids[row]) > (after.pack[row] > 0).sum()
        ):  # of a full row the last inserts are left out
            assert found[row, pack][0] == expected, (row, pack)
            compared += 1
            longer += len(expected) > len(ids)
    assert compared > 50 and (mean > 1 or longer > 5)


def test_span_lengths_are_poisson():
    cdf = np.array(cumulative_poisson(3.0))
    chances = np.diff(cdf, prepend=0)
    assert chances[:3] == pytest.approx([0.0498, 0.1494, 0.2240], abs=1e-4)
    assert (np.arange(len(cdf)) * chances).sum() == pytest.approx(3.0, abs=1e-9)


def words_of(ids, language, ends=False, pieces=False):
    """The words of one example, each a list of pieces; a special token that is no MASK alone.
    pieces: of one each."""
    if pieces:
        return [[piece] for piece in ids]
    found = []
    for c, piece in enumerate(ids):
        marked = begins_word(ids[c - ends]) or ids[c - 1] in Xlmr.special_ids
        if piece in Xlmr.special_ids or marked or LANGUAGES[language] == "zh":
            found.append([])
        found[-1].append(piece)
    return found


def is_fixed(word):
    return word[0] in Xlmr.special_ids and word[0] != MASK


def reference_shuffle(words, uniform, k):
    """uniform: a draw for each column, of which a word's first one counts."""
    columns = np.cumsum([0, *map(len, words)])
    fixed, movable = [], []
    for column, word in zip(columns, words, strict=False):
        if is_fixed(word):
            fixed.append((len(movable), word))
        else:
            movable.append((len(movable) + k * float(uniform[column]), word))
    shuffled = [word for _, word in sorted(movable, key=lambda pair: pair[0])]
    # The last first, so that the places of those before it stay true.
    for place, word in reversed(fixed):
        shuffled.insert(place, word)
    return shuffled


def reference_drop(words, uniform, share):
    columns = np.cumsum([0, *map(len, words)])
    chances = [-1 if is_fixed(w) else uniform[c] for c, w in zip(columns, words, strict=False)]
    return [
        word
        for word, chance in zip(words, chances, strict=True)
        if is_fixed(word) or chance >= share or chance == max(chances)
    ]


def reference_mask(words, uniform, share):
    columns = np.cumsum([0, *map(len, words)])
    return [
        word if is_fixed(word) or uniform[c] >= share else [MASK] * len(word)
        for c, word in zip(columns, words, strict=False)
    ]


@pytest.mark.parametrize(
    ("infill", "unit", "vocabulary"),
    [
        (0.0, "words", Vocabulary),
        (0.0, "words", OfEnds),
        (0.3, "words", OfEnds),
        (0.3, "pieces", Vocabulary),
    ],
)
def test_noises_come_in_their_order_and_are_of_words_or_pieces(infill, unit, vocabulary):
    """Infill, shuffle, drop, mask: each reads what the one before has left, and its own draws at
    the columns where that stands."""
    text = rows(count=150, length=64, examples=1, seed=3)
    noise = Noise(infill=infill, poisson=1.5, shuffle=3.0, drop=0.2, mask=0.2, unit=unit)
    after = noised(noise, text, vocabulary=vocabulary)
    check_rows(text, after)
    draws = Draws(7, 0, 150)
    purposes = (random.SPANS, random.STARTS, random.GAPS, random.SHUFFLE, random.DROP, random.BLANK)
    uniforms = [draws.uniform(purpose, 64) for purpose in purposes]
    found, compared, parts = examples_of(after), 0, 0
    for (row, pack), (ids, language) in examples_of(text).items():
        *spans, order, loss, blank = (u[row] for u in uniforms)
        if infill:
            ids = reference_infill(ids, language, *spans, infill, 1.5, ends=vocabulary.marks_ends)
        if len(ids) >= 64:  # of a full row the last inserts are left out
            continue
        words = words_of(ids, language, vocabulary.marks_ends, unit == "pieces")
        words = reference_shuffle(words, order, 3.0)
        words = reference_mask(reference_drop(words, loss, 0.2), blank, 0.2)
        assert found[row, pack][0] == [piece for word in words for piece in word], (row, pack)
        compared += 1
        parts += sum(len(word) > 1 for word in words)
    assert compared > 100 and (parts > 200 or unit == "pieces")
