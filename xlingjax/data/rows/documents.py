"""Rows of documents: adjacent segments, and aligned documents that change language by sentence.

A document is what stands between blank lines.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlingjax.data.rows.plan import (
    LeftOut,
    Rows,
    apart,
    plan_rows,
    rows_of,
    starts_and_lengths,
)
from xlingjax.data.store.tokenise import Records, Tokens


def documents(sides: Sequence[Tokens]) -> tuple[np.ndarray, np.ndarray]:
    """(lines, document of each [same]) of the lines that have text on every side; a line blank on
    all sides ends a document. Numbers of documents may have gaps."""
    lengths = np.stack([side.lengths for side in sides])
    ends = (lengths == 0).all(axis=0)
    # A line blank on one side alone is passed over, but its document goes on.
    full = (lengths > 0).all(axis=0)
    return np.flatnonzero(full), np.cumsum(ends)[full]


def segment_rows(records: Records, length: int, *, packing: bool = True) -> Rows:
    """Rows of two adjacent segments of a document (VECO §4) as a pair, each `<s> text </s>`.

    Segments are whole sentences, as near to equal as those allow, at most `length // 2` tokens;
    what exceeds that is cut off. Documents of one sentence have no second segment and are left out.
    Short documents share rows (`packing`).
    """
    (text,) = records.sides
    lines, document = documents([text])
    starts, lengths = (of_side[lines, 0] for of_side in starts_and_lengths(records))
    segment, document = _segments(document, lengths, length)
    new_segment = np.diff(segment, prepend=-1) != 0
    # Segments are numbered anew in each document: one's last may equal the next one's first.
    new_document = np.diff(document, prepend=-1) != 0
    begins = np.flatnonzero(new_document | new_segment)
    # One token early: the `</s>` before a segment becomes the `<s>` that opens it.
    segment_starts = starts[begins] - 1
    sizes = 1 + np.minimum(np.add.reduceat(lengths, begins), length // 2 - 1)
    document = document[begins]
    # Documents are sorted here, so a search finds where each begins.
    number_in_document = np.arange(begins.size) - np.searchsorted(document, document)
    # Segments 0 and 1 are a pair, 2 and 3 another: no segment is read twice.
    opens_pair = number_in_document[:-1] % 2 == 0
    has_next = document[1:] == document[:-1]
    first_of_pair = np.flatnonzero(opens_pair & has_next)
    chosen = np.stack([first_of_pair, first_of_pair + 1], axis=1)
    # Before packing, or a row would be filled with neighbours of one document.
    chosen = chosen[apart(len(chosen))]
    return plan_rows(
        rows_of(sizes[chosen].sum(axis=1), length, packing),
        text.sentences,
        starts=segment_starts[chosen],
        lengths=sizes[chosen],
        sides=np.arange(2),
        opens=True,
    )


def _segments(
    document: np.ndarray, lengths: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """(segment of each line in its document, document of each line from 0), [lines] each. Segments
    are evenly many equal shares of its tokens; a sentence is where its middle is."""
    first, of_line = _first_lines(document)
    total = np.add.reduceat(lengths, first)
    before = np.cumsum(lengths) - lengths
    # By its middle and not its begin, so that a long sentence falls where most of it lies.
    middle = before - before[first][of_line] + lengths / 2
    # Two segments and the tokens that open them fill a row, so there are two for each row begun.
    count = 2 * np.maximum(1, np.ceil((total + 2) / length).astype(np.int64))
    segment = (middle * count[of_line] / total[of_line]).astype(np.int64)
    # Rounding may put the middle of the last sentence at the very end, one segment too far.
    last = count[of_line] - 1
    return np.minimum(segment, last), of_line


def _first_lines(document: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(where each document begins in `document` [lines], the sorted documents of lines; the
    document of each line, from 0)."""
    _, first, of_line = np.unique(document, return_index=True, return_inverse=True)
    return first, of_line


def switched_rows(
    records: Records,
    length: int,
    *,
    parity: str = "coin",
    truncate: bool = False,
    alone: bool = False,
    packing: bool = True,
) -> Rows:
    """Rows of aligned documents, every other sentence translated (Unicoder §3.2, CL-MLM).

    `<s> s0 </s> s1 </s> ...`, positions running on, a language per sentence. parity "even":
    sentences 0, 2, ... of a document are in the second language; "odd": 1, 3, ...; "coin": both
    ways, as two examples. truncate: an example is the first `length` tokens of a document; else a
    document longer than a row goes on in another one, and a sentence longer than a row is cut.
    Lines without text on both sides are left out, and so are examples of one sentence, which hold
    one language, but for `alone`.
    """
    lines, document = documents(records.sides)
    starts, lengths = starts_and_lengths(records)
    starts = starts[lines]
    lengths = lengths[lines]
    first, of_line = _first_lines(document)
    every_line = np.arange(lines.size)
    number = every_line - first[of_line]
    # Rows are planned once for all, so the paper's coin becomes both its sides, as two rows.
    flips = {"even": [0], "odd": [1], "coin": [0, 1]}[parity]
    examples = []
    slices = []
    total = 0
    read = np.zeros(lines.size, bool)
    for flip in flips:
        # Flip 0 is parity "even": sentence 0 is the translation, in the second language.
        language = (number + flip + 1) % 2
        begins = starts[every_line, language]
        # One column less, since the token that opens a row needs its own.
        size = np.minimum(lengths[every_line, language], length - 1)
        if truncate:
            example, position, opens, size = truncated(document, size, length)
        else:
            example, position, opens = windows(document, size, length)
        kept = size > 0
        if not alone:
            # Languages take turns, so that two sentences hold both.
            sentences = np.bincount(example[kept], minlength=lines.size)
            kept &= sentences[example] > 1
        read |= kept
        of_flip = {
            # What opens a row is the `</s>` before its first sentence, written over.
            "starts": begins - opens,
            "lengths": size + opens,
            "positions": position,
            "languages": language,
            "opens": opens,
        }
        slices.append({name: value[kept] for name, value in of_flip.items()})
        numbers, example = np.unique(example[kept], return_inverse=True)
        examples.append(example + total)
        total += numbers.size
    flat = {name: np.concatenate([of_flip[name] for of_flip in slices]) for name in slices[0]}
    example = np.concatenate(examples)
    sizes = np.bincount(example, weights=flat["lengths"], minlength=total).astype(np.int64)
    order = apart(total)
    row = np.empty(total, np.int64)
    row[order] = rows_of(sizes[order], length, packing)
    left_out = LeftOut.of(np.ones_like(read), read, lengths.sum(axis=1))
    return plan_rows(row, int(read.sum()), len(flips), example, left_out, **flat)


def truncated(
    document: np.ndarray, size: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(document of each sentence from 0, its first position, whether it opens the document, its
    tokens): of each document the first `length` tokens; sentences behind have none."""
    first, of_line = _first_lines(document)
    before = np.cumsum(size) - size
    before -= before[first][of_line]
    opens = np.zeros(size.size, np.int64)
    opens[first] = 1
    # Behind the token that opens the text, but for the sentence that this one is part of.
    position = before + 1 - opens
    return of_line, position, opens, np.clip(length - 1 - before, 0, size)


def windows(
    document: np.ndarray, size: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(window of each sentence, its first position, whether it opens the window): sentences of one
    document as long as they fit in `length` tokens, one of which opens the text."""
    window = np.zeros(size.size, np.int64)
    position = np.zeros(size.size, np.int64)
    opens = np.zeros(size.size, np.int64)
    # A loop, since where a window ends depends on where the one before it did.
    current = -1
    used = length
    last = None
    sentences = zip(document.tolist(), size.tolist(), strict=True)
    for i, (document_of_sentence, tokens) in enumerate(sentences):
        if document_of_sentence != last or used + tokens > length:
            current += 1
            used = 0
            last = document_of_sentence
            opens[i] = 1
            # The token that opens the text.
            tokens += 1
        window[i] = current
        position[i] = used
        used += tokens
    return window, position, opens
