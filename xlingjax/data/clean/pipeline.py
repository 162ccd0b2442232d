"""The steps of a cleaning over its parts, by one process or by Apache Beam.

Both call the same functions, and what these write depends on their part alone, so both write the
same bytes. The files between the steps are written whole or not at all, so that one that is there
is finished, and a cleaning that was interrupted goes on from it.
"""

from __future__ import annotations

import functools
import io
import json
import os
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from xlingjax.data.clean import duplicates
from xlingjax.data.clean.duplicates import Position
from xlingjax.data.clean.lines import Line, clean_lines
from xlingjax.data.clean.models import limits
from xlingjax.data.clean.parts import Part
from xlingjax.data.clean.settings import CleanSettings
from xlingjax.errors import UserError
from xlingjax.runtime.quiet import quiet_stderr

Numbered = tuple[int, Line]
"""A line and its number in the part, from 0, those that end documents not counted."""
Ranges = Mapping[str, list[tuple[float, float]]]
"""Of the perplexities that stay, of languages with a model."""
DROPS = ("exact", "near")
"""Steps that leave files of the lines that they leave out, in their order."""


@dataclass(frozen=True)
class Work:
    """The folder of a cleaning, and who works. options: Beam's; None: this process alone."""

    output: Path
    settings: CleanSettings
    options: Any = None

    @property
    def folder(self) -> Path:
        return self.output / ".clean"

    def file(self, step: str, number: int, ending: str) -> Path:
        """number: of the part."""
        return self.folder / step / f"{number:05d}{ending}"

    def dropped(self, step: str, part: Part) -> set[int]:
        path = self.file(step, part.number, ".npy")
        return set(read_array(path).tolist()) if path.exists() else set()

    def documents(self, part: Part, before: str = "") -> Iterator[list[Numbered]]:
        """The lines of each document that stay after the steps before this one of `DROPS`;
        documents that have none are left out."""
        dropped: set[int] = set()
        for step in DROPS[: DROPS.index(before) if before else None]:
            dropped |= self.dropped(step, part)
        number = 0
        document: list[Numbered] = []
        with open(self.file("lines", part.number, ".txt"), encoding="utf-8", newline="\n") as file:
            for text in file:
                line = tuple(text.rstrip("\n").split("\t", len(part.languages) - 1))
                if any(line):
                    if number not in dropped:
                        document.append((number, line))
                    number += 1
                    continue
                if document:
                    yield document
                document = []
        if document:
            yield document

    def units(self, part: Part, before: str = "") -> Iterator[list[Numbered]]:
        """What is compared and scored as one text."""
        for document in self.documents(part, before):
            if self.settings.unit == "documents" and not part.is_pair:
                yield document
            else:
                yield from ([line] for line in document)

    # --- Who works --------------------------------------------------------------------------------

    def each(self, function: Callable[[Part], None], parts: Sequence[Part]) -> None:
        """`function` of every part. Raises UserError: the first of those that it raised."""
        if self.options is None:
            for part in parts:
                function(part)
            return
        beam = _beam()
        with quiet_stderr(), beam.Pipeline(options=self.options) as pipeline:
            _ = (
                pipeline
                | beam.Create(list(parts))
                # Else one worker would get all parts.
                | beam.Reshuffle()
                | beam.Map(functools.partial(_keep_error, self, function))
            )
        for part in parts:
            path = self.file("errors", part.number, ".txt")
            if path.exists():
                message = path.read_text(encoding="utf-8")
                path.unlink()
                raise UserError(message)

    def drop(
        self, step: str, keys: Callable, repetitions: Callable, parts: Sequence[Part], rounds: int
    ) -> None:
        """`keys(work, part, round)` gives (key, value), and `repetitions(work, values of a key)`
        the positions that the step leaves out."""
        finished = self.folder / f"{step}.json"
        if finished.exists():
            return
        write = functools.partial(_write_dropped, self, step)
        if self.options is None:
            dropped: dict[int, list[Position]] = defaultdict(list)
            # A language and a round at a time, which is what has to fit memory.
            for name in sorted({part.name for part in parts}):
                of_name = [part for part in parts if part.name == name]
                for number in range(rounds):
                    values: dict[bytes, list] = defaultdict(list)
                    for part in of_name:
                        for key, value in keys(self, part, number):
                            values[key].append(value)
                    for group in values.values():
                        for position in repetitions(self, group):
                            dropped[position[0]].append(position)
            for item in dropped.items():
                write(item)
        else:
            beam = _beam()
            with quiet_stderr(), beam.Pipeline(options=self.options) as pipeline:
                _ = (
                    pipeline
                    | beam.Create([(part, number) for part in parts for number in range(rounds)])
                    | beam.Reshuffle()
                    | "keys" >> beam.FlatMap(functools.partial(_call, keys, self))
                    | "by key" >> beam.GroupByKey()
                    | "values" >> beam.Values()
                    | "repetitions" >> beam.FlatMap(functools.partial(repetitions, self))
                    | "parts" >> beam.Map(_with_part)
                    | "by part" >> beam.GroupByKey()
                    | "write" >> beam.Map(write)
                )
        write_record(finished, {})


def _beam() -> ModuleType:
    # It warns of clients of Google's that nothing here needs.
    with quiet_stderr():
        import apache_beam
    return apache_beam


def _keep_error(work: Work, function: Callable[[Part], None], part: Part) -> None:
    """A UserError is left in a file: Beam would show it within a traceback, and start the part
    again."""
    try:
        function(part)
    except UserError as error:
        _write_whole(work.file("errors", part.number, ".txt"), [str(error).encode()])


def _call(function: Callable, work: Work, arguments: tuple) -> Any:
    return function(work, *arguments)


def _with_part(position: Position) -> tuple[int, Position]:
    return position[0], position


# --- The steps ------------------------------------------------------------------------------------


def run_steps(
    work: Work,
    parts: Sequence[Part],
    scorer: Callable[[str, str], Any],
    tell: Callable[[str], None],
) -> None:
    """scorer: of (path, language); its `losses` are those of `KenLm`."""
    settings = work.settings
    tell(f"lines of {len(parts)} files")
    work.each(functools.partial(_write_lines, work), parts)
    if settings.exact:
        tell("repetitions")
        work.drop("exact", _exact_keys, _exact_repetitions, parts, 1)
    if settings.near is not None:
        tell("near repetitions")
        work.each(functools.partial(_write_signatures, work), parts)
        work.drop("near", _near_keys, _near_repetitions, parts, duplicates.BANDS)
    ranges: dict[str, list[tuple[float, float]]] = {}
    if settings.language_models:
        tell("perplexities")
        work.each(functools.partial(_write_perplexities, work, scorer), parts)
        # Percentiles are those of all parts of a language.
        for language, _ in settings.language_models:
            of_language = [part for part in parts if part.name == language]
            values = [read_array(_perplexities(work, part)) for part in of_language]
            # Nothing is left of this language, and nothing has to be kept.
            together = np.concatenate(values) if sum(map(len, values)) else np.ones(1)
            ranges[language] = limits(together, settings.keep, settings.percentiles)
    tell("output")
    work.each(functools.partial(_write_output, work, ranges), parts)


def _write_lines(work: Work, part: Part) -> None:
    counts: Counter[str] = Counter()
    # The counts come last: where they are, the lines are too.
    record = work.file("lines", part.number, ".json")
    if not record.exists():
        # A tab is between the sides alone.
        encoded = (
            ("\t".join(side.replace("\t", " ") for side in line) + "\n").encode()
            for line in clean_lines(part, work.settings, counts)
        )
        _write_whole(work.file("lines", part.number, ".txt"), encoded)
        write_record(record, dict(counts))


def _exact_keys(work: Work, part: Part, _: int) -> Iterator[tuple[bytes, Position]]:
    for document in work.documents(part, "exact"):
        for number, line in document:
            key = duplicates.pair_key(*line) if part.is_pair else duplicates.key_of(line[0])
            # Texts repeat each other within a language or pair alone.
            yield f"{part.name} ".encode() + key, (part.number, number, number)


def _exact_repetitions(_: Work, positions: Iterable[Position]) -> list[Position]:
    return sorted(positions)[1:]


def _write_signatures(work: Work, part: Part) -> None:
    """Those of its units, behind the numbers of the first and last line of each."""
    path = work.file("signatures", part.number, ".npy")
    if path.exists():
        return
    rows = []
    for unit in work.units(part, "near"):
        signature = duplicates.signature("\n".join("\t".join(line) for _, line in unit))
        rows.append(np.concatenate([[unit[0][0], unit[-1][0]], signature]).astype(np.uint64))
    _write_array(path, np.array(rows, np.uint64).reshape(-1, duplicates.PERMUTATIONS + 2))


def _near_keys(work: Work, part: Part, band: int) -> Iterator[tuple[bytes, tuple[Position, bytes]]]:
    for row in read_array(work.file("signatures", part.number, ".npy")):
        values = row[2:].astype(np.uint32)
        key = f"{part.name} ".encode() + duplicates.band(values, band)
        yield key, ((part.number, int(row[0]), int(row[1])), values.tobytes())


def _near_repetitions(work: Work, values: Iterable[tuple[Position, bytes]]) -> list[Position]:
    values = list(values)
    # Almost every band is of one text alone.
    if len(values) == 1:
        return []
    texts = [(position, np.frombuffer(signature, np.uint32)) for position, signature in values]
    assert work.settings.near is not None
    return duplicates.near_later(texts, work.settings.near)


def _write_dropped(work: Work, step: str, of_part: tuple[int, Iterable[Position]]) -> None:
    number, positions = of_part
    lines = {line for _, first, last in positions for line in range(first, last + 1)}
    _write_array(work.file(step, number, ".npy"), np.array(sorted(lines), np.int64))


def _perplexities(work: Work, part: Part) -> Path:
    return work.file("perplexity", part.number, ".npy")


def _write_perplexities(work: Work, scorer: Callable[[str, str], Any], part: Part) -> None:
    """Of its units, where its language has a model."""
    models = dict(work.settings.language_models)
    if part.name not in models or _perplexities(work, part).exists():
        return
    texts = []
    rows = []
    for row, unit in enumerate(work.units(part)):
        texts += [line[0] for _, line in unit]
        rows += [row] * len(unit)
    losses, counts = scorer(models[part.name], part.name).losses(texts)
    units = rows[-1] + 1 if rows else 0
    mean = np.bincount(rows, losses, units) / np.maximum(np.bincount(rows, counts, units), 1)
    _write_array(_perplexities(work, part), np.exp(mean))


def _write_output(work: Work, ranges: Ranges, part: Part) -> None:
    """The lines that stay, in the files that `pretrain` reads, and the counts of all steps."""
    record = work.file("output", part.number, ".json")
    if record.exists():
        return
    counts = Counter(read_record(work.file("lines", part.number, ".json")))
    exact = work.dropped("exact", part)
    counts["exact"] = len(exact)
    counts["near"] = len(work.dropped("near", part) - exact)
    outside: set[int] = set()
    if part.name in ranges:
        perplexities = read_array(_perplexities(work, part))
        for value, unit in zip(perplexities, work.units(part), strict=True):
            if not any(low <= value < high for low, high in ranges[part.name]):
                outside |= {number for number, _ in unit}
    counts["perplexity"] = len(outside)
    sides: list[list[bytes]] = [[] for _ in part.languages]
    for document in work.documents(part):
        kept = [line for number, line in document if number not in outside]
        if not kept:
            continue
        counts["documents"] += 1
        counts["out"] += len(kept)
        for side, texts in zip(sides, zip(*kept, strict=True), strict=True):
            # Between documents, and not after the last.
            if side:
                side.append(b"\n")
            side += [f"{text}\n".encode() for text in texts]
    for name, side in zip(part.outputs, sides, strict=True):
        # Without lines there is no file: an empty one is an error of `data check`.
        if side:
            _write_whole(work.output / name, side)
    write_record(record, dict(counts))


# --- Files ----------------------------------------------------------------------------------------


def _write_whole(path: Path, pieces: Iterable[bytes]) -> None:
    """Raises UserError where it cannot be written."""
    # A name of its own: runners may start a part twice at the same time.
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as file:
            file.writelines(pieces)
        os.replace(partial, path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; make room, then go on"
        ) from None
    finally:
        partial.unlink(missing_ok=True)


def _write_array(path: Path, values: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.save(buffer, values)
    _write_whole(path, [buffer.getvalue()])


def write_record(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    _write_whole(path, [text.encode()])


def read_array(path: Path) -> np.ndarray:
    """Raises UserError: damaged."""
    try:
        return np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path, error) from None


def read_record(path: Path) -> Any:
    """Raises UserError: damaged."""
    try:
        value = json.loads(path.read_bytes())
        if not isinstance(value, dict):
            raise ValueError("no table")
        return value
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(
        f"{path} is damaged ({error}): remove it with its folder, and start again: it is made anew"
    )
