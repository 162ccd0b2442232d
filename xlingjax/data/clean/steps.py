"""What is done with one part in each step of a cleaning; any process may do it, in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from xlingjax.data.clean import duplicates
from xlingjax.data.clean.duplicates import Position
from xlingjax.data.clean.language_model import Scorer
from xlingjax.data.clean.lines import clean_lines
from xlingjax.data.clean.parts import Part
from xlingjax.data.clean.work import (
    DROPS,
    Numbered,
    Work,
    read_array,
    read_record,
    write_array,
    write_record,
    write_sides,
    write_whole,
)

EXACT = 0
NEAR = 1
ALL = 2
"""How many of `DROPS` went before."""


# --- Lines: extraction, normalisation, filters ----------------------------------------------------


def write_lines(work: Work, part: Part) -> None:
    counts: Counter[str] = Counter()
    # The counts come last: where they are, the lines are too.
    if work.file("lines", part, ".json").exists():
        return
    write_sides(work.file("lines", part, ".txt"), clean_lines(part, work.settings, counts))
    write_record(work.file("lines", part, ".json"), dict(counts))


# --- Exact repetitions ----------------------------------------------------------------------------


def exact_keys(work: Work, part: Part, _: int) -> Iterator[tuple[bytes, tuple[Position]]]:
    for document in work.documents(part, EXACT):
        for number, line in document:
            if part.is_pair:
                key = duplicates.pair_key(*line)
            else:
                key = duplicates.key_of(line[0])
            yield _of(part) + key, ((part.number, number),)


def exact_repetitions(_: Work, values: Iterable[tuple[Position]]) -> list[Position]:
    return duplicates.later(position for (position,) in values)


def write_dropped_lines(work: Work, part: Part, numbers: Iterable[int]) -> None:
    """Of the step `exact`, whose texts are lines."""
    write_array(work.file(DROPS[EXACT], part, ".npy"), _array(numbers))


# --- Near repetitions -----------------------------------------------------------------------------


def write_signatures(work: Work, part: Part) -> None:
    """Those of its units, and the number of the first line of each."""
    path = work.file("signatures", part, ".npy")
    if path.exists():
        return
    rows = []
    for unit in work.units(part, NEAR):
        values = duplicates.signature(_text(unit))
        rows.append(np.concatenate([[unit[0][0]], values]).astype(np.uint64))
    width = duplicates.PERMUTATIONS + 1
    write_array(path, np.array(rows, np.uint64).reshape(-1, width))


def near_keys(work: Work, part: Part, band: int) -> Iterator[tuple[bytes, tuple[Position, bytes]]]:
    for row in read_array(work.file("signatures", part, ".npy")):
        position = (part.number, int(row[0]))
        values = row[1:].astype(np.uint32)
        key = _of(part) + duplicates.band(values, band)
        yield key, (position, values.tobytes())


def near_repetitions(work: Work, values: Iterable[tuple[Position, bytes]]) -> list[Position]:
    values = list(values)
    # Almost every band is of one text alone.
    if len(values) == 1:
        return []
    texts = []
    for position, signature in values:
        texts.append((position, np.frombuffer(signature, np.uint32)))
    threshold = work.settings.near
    assert threshold is not None
    return duplicates.near_later(texts, threshold)


def write_dropped_units(work: Work, part: Part, numbers: Iterable[int]) -> None:
    """Of the step `near`: all lines of the units that begin with those of `numbers`."""
    first = set(numbers)
    dropped = []
    for unit in work.units(part, NEAR):
        if unit[0][0] in first:
            dropped += [number for number, _ in unit]
    write_array(work.file(DROPS[NEAR], part, ".npy"), _array(dropped))


# --- Perplexity -----------------------------------------------------------------------------------


def write_perplexities(work: Work, scorer: Callable[[str, str], Scorer], part: Part) -> None:
    """Of its units, where its language has a model. scorer: of (path, language)."""
    path = work.file("perplexity", part, ".npy")
    models = dict(work.settings.language_models)
    if part.name not in models or path.exists():
        return
    texts = []
    rows = []
    for row, unit in enumerate(work.units(part, ALL)):
        for _, line in unit:
            texts.append(line[0])
            rows.append(row)
    losses, counts = scorer(models[part.name], part.name).losses(texts)
    units = rows[-1] + 1 if rows else 0
    loss = np.bincount(rows, losses, units)
    count = np.bincount(rows, counts, units)
    write_array(path, np.exp(loss / np.maximum(count, 1)))


# --- Output ---------------------------------------------------------------------------------------


def write_output(work: Work, ranges: Mapping[str, list[tuple[float, float]]], part: Part) -> None:
    """The lines that stay, in the files that `pretrain` reads, and the counts of all steps.

    ranges: of the perplexities that stay, of languages with a model."""
    record = work.file("output", part, ".json")
    if record.exists():
        return
    counts = Counter(read_record(work.file("lines", part, ".json")))
    for step in DROPS:
        path = work.file(step, part, ".npy")
        if path.exists():
            counts[step] = len(read_array(path))
    outside = _outside(work, ranges, part, counts)
    sides: list[list[bytes]] = [[] for _ in part.languages]
    for document in work.documents(part, ALL):
        stay = [line for number, line in document if number not in outside]
        if not stay:
            continue
        counts["documents"] += 1
        counts["out"] += len(stay)
        # Between documents, and not after the last.
        if sides[0]:
            for side in sides:
                side.append(b"\n")
        for line in stay:
            for side, text in zip(sides, line, strict=True):
                side.append(f"{text}\n".encode())
    for name, side in zip(part.outputs, sides, strict=True):
        # Without lines there is no file: an empty one is an error of `data check`.
        if side:
            write_whole(work.output / name, side)
    write_record(record, dict(counts))


def _outside(
    work: Work, ranges: Mapping[str, list[tuple[float, float]]], part: Part, counts: Counter[str]
) -> set[int]:
    """The numbers of the lines whose perplexity is in no range."""
    if part.name not in ranges:
        return set()
    perplexities = read_array(work.file("perplexity", part, ".npy"))
    outside = set()
    for value, unit in zip(perplexities, work.units(part, ALL), strict=True):
        if any(low <= value < high for low, high in ranges[part.name]):
            continue
        outside |= {number for number, _ in unit}
    counts["perplexity"] = len(outside)
    return outside


def _text(unit: list[Numbered]) -> str:
    return "\n".join("\t".join(line) for _, line in unit)


def _of(part: Part) -> bytes:
    """Texts repeat each other within a language or pair alone."""
    return part.name.encode() + b" "


def _array(numbers: Iterable[int]) -> np.ndarray:
    return np.array(sorted(set(numbers)), np.int64)
