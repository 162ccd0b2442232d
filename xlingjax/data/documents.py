"""Rows of documents: adjacent segments of one text, and aligned documents that change language
between sentences.

A document is what stands between blank lines.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlingjax.data.rows import Rows, first_fit
from xlingjax.data.token_cache import Records, Tokens


def documents(sides: Sequence[Tokens]) -> tuple[np.ndarray, np.ndarray]:
    """(lines, document of each [same]) of the lines that have text on every side; a line blank on
    all sides ends a document."""
    lengths = np.stack([side.lengths for side in sides])
    ends = (lengths == 0).all(axis=0)
    full = (lengths > 0).all(axis=0)
    return np.flatnonzero(full), np.cumsum(ends)[full]


def segment_rows(records: Records, base: int, length: int, *, packing: bool = True) -> Rows:
    """Rows of two adjacent segments of one document (VECO §4), each `<s> text </s>`, as the sides
    of a pair.

    Segments are whole sentences, as near to equal as those allow, at most `length // 2` tokens;
    what exceeds that is cut off. Documents of one sentence have no second segment and are left out.
    Short documents share rows (`packing`).
    """
    (text,) = records.sides
    lines, document = documents([text])
    starts, lengths = (
        base + (np.cumsum(text.lengths) - text.lengths)[lines],
        text.lengths[lines].astype(np.int64),
    )
    if not lines.size:
        return _ragged(np.zeros(0, int), np.zeros(0, int), 0, 1, **_slices())
    # Segments of a document: an even number of equal shares of its tokens; a sentence goes where
    # its middle lies.
    first = np.flatnonzero(np.diff(document, prepend=document[0] - 1))
    total = np.add.reduceat(lengths, first)
    of_line = np.repeat(np.arange(first.size), np.diff([*first, lines.size]))
    before = np.cumsum(lengths) - lengths
    middle = before - before[first][of_line] + lengths / 2
    count = 2 * np.maximum(1, np.ceil((total + 2) / length).astype(np.int64))
    segment = np.minimum(
        (middle * count[of_line] / total[of_line]).astype(np.int64), count[of_line] - 1
    )
    begins = np.flatnonzero(
        (np.diff(of_line, prepend=-1) != 0) | (np.diff(segment, prepend=-1) != 0)
    )
    size = 1 + np.minimum(np.add.reduceat(lengths, begins), length // 2 - 1)
    at, document = starts[begins] - 1, of_line[begins]
    number = np.arange(begins.size) - np.searchsorted(
        document, document
    )  # of the segment in its document
    pairs = np.flatnonzero((number[:-1] % 2 == 0) & (document[1:] == document[:-1]))
    chosen = np.stack([pairs, pairs + 1], axis=1)
    order = np.random.default_rng(0).permutation(
        len(chosen)
    )  # neighbours in a file should not share a row
    chosen = chosen[order]
    row = first_fit(size[chosen].sum(axis=1), length) if packing else np.arange(len(chosen))
    return _ragged(
        row,
        np.repeat(np.arange(len(chosen)), 2),
        records.sides[0].sentences,
        1,
        **_slices(
            starts=at[chosen], lengths=size[chosen], sides=np.tile([0, 1], len(chosen)), opens=True
        ),
    )


def switched_rows(
    records: Records,
    bases: Sequence[int],
    length: int,
    *,
    parity: str = "coin",
    packing: bool = True,
) -> Rows:
    """Rows of aligned documents in which every other sentence is the translation (Unicoder §3.2,
    CL-MLM).

    `<s> s0 </s> s1 </s> ...`, positions running on, a language per sentence. parity "even":
    sentences 0, 2, ... of a document are in the second language; "odd": 1, 3, ...; "coin": both
    ways, as two rows. A document longer than a row goes on in another one; a sentence longer than a
    row is cut. Lines without text on both sides are left out.
    """
    lines, document = documents(records.sides)
    if not lines.size:
        return _ragged(np.zeros(0, int), np.zeros(0, int), 0, 1, **_slices())
    starts = np.stack(
        [
            base + (np.cumsum(s.lengths) - s.lengths)[lines]
            for base, s in zip(bases, records.sides, strict=True)
        ]
    )
    lengths = np.stack([side.lengths[lines] for side in records.sides]).astype(np.int64)
    first = np.flatnonzero(np.diff(document, prepend=document[0] - 1))
    number = np.arange(lines.size) - np.repeat(first, np.diff([*first, lines.size]))
    flips = {"even": [0], "odd": [1], "coin": [0, 1]}[parity]
    of_slice: dict[str, list[np.ndarray]] = {
        "starts": [],
        "lengths": [],
        "positions": [],
        "languages": [],
        "opens": [],
    }
    examples, total = [], 0
    for flip in flips:
        language = (number + flip + 1) % 2  # parity "even": sentence 0 is the translation
        size = np.minimum(lengths[language, np.arange(lines.size)], length - 1)
        at = starts[language, np.arange(lines.size)]
        example, position, opens = windows(document, size, length)
        of_slice["starts"].append(at - opens)
        of_slice["lengths"].append(size + opens)
        of_slice["positions"].append(position)
        of_slice["languages"].append(language)
        of_slice["opens"].append(opens)
        examples.append(example + total)
        total += int(example[-1]) + 1
    flat = {name: np.concatenate(parts) for name, parts in of_slice.items()}
    example = np.concatenate(examples)
    size = np.bincount(example, weights=flat["lengths"], minlength=total).astype(np.int64)
    order = np.random.default_rng(0).permutation(total)
    row = np.empty(total, np.int64)
    row[order] = first_fit(size[order], length) if packing else np.arange(total)
    return _ragged(row, example, int(lines.size), len(flips), **_slices(**flat))


def windows(
    document: np.ndarray, size: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(window of each sentence, its first position, whether it opens the window): sentences of one
    document as long as they fit in `length` tokens, one of which opens the text."""
    window, position, opens = (np.zeros(size.size, np.int64) for _ in range(3))
    current, used, last = -1, length, None
    for i, (of, tokens) in enumerate(zip(document.tolist(), size.tolist(), strict=True)):
        if of != last or used + tokens > length:
            current, used, last = current + 1, 0, of
            opens[i], tokens = 1, tokens + 1
        window[i], position[i] = current, used
        used += tokens
    return window, position, opens


def _slices(**fields) -> dict[str, np.ndarray]:
    """Fields of slices [S], 0 where not given."""
    size = np.size(fields.get("starts", ()))
    names = ("starts", "lengths", "positions", "sides", "languages", "opens")
    return {name: np.broadcast_to(np.ravel(fields.get(name, 0)), (size,)) for name in names}


def _ragged(
    row_of_example: np.ndarray,
    example_of_slice: np.ndarray,
    sentences: int,
    passes: int,
    **fields: np.ndarray,
) -> Rows:
    """Rows from slices [S] of examples of any number of slices; an example is a pack."""
    order = np.argsort(row_of_example, kind="stable")
    rows = row_of_example[order]
    number = np.empty(order.size, np.int64)
    first = np.searchsorted(rows, np.arange(rows[-1] + 2 if rows.size else 1))
    number[order] = np.arange(order.size) - first[rows] if rows.size else rows
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    by_row = np.argsort(place[example_of_slice], kind="stable")
    row_of_slice = row_of_example[example_of_slice][by_row] if rows.size else np.zeros(0, np.int64)
    count = int(rows[-1]) + 1 if rows.size else 0
    flat = {
        name: values[by_row].astype(np.int64 if name == "starts" else np.int32)
        for name, values in fields.items()
    }
    return Rows(
        **flat,
        packs=(1 + number[example_of_slice][by_row]).astype(np.int32),
        splits=np.searchsorted(row_of_slice, np.arange(count + 1)),
        sentences=sentences,
        passes=passes,
    )
