"""Who does the steps of a cleaning: one process, or Apache Beam. Both call the same functions, and
what these write depends on their part alone, so both write the same bytes."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol

from xlingjax.data.beam import NO_RUNNER, pipeline_options
from xlingjax.data.clean.parts import Part
from xlingjax.data.clean.work import Work, write_whole
from xlingjax.errors import UserError
from xlingjax.runtime.quiet import quiet_stderr

ForPart = Callable[[Part], None]


class Engine(Protocol):
    def each(self, work: Work, function: ForPart, parts: Sequence[Part]) -> None:
        """`function` of every part. Raises UserError: the first of those that it raised."""

    def group(
        self,
        work: Work,
        keys: Callable,
        repetitions: Callable,
        write: Callable,
        parts: Sequence[Part],
        rounds: int = 1,
    ) -> None:
        """`keys(work, part, round)` gives (key, value), `repetitions(work, values of a key)` the
        positions that it leaves out, and `write(work, part, numbers)` gets those of each part."""


class OneProcess:
    def each(self, work: Work, function: ForPart, parts: Sequence[Part]) -> None:
        for part in parts:
            function(part)

    def group(
        self,
        work: Work,
        keys: Callable,
        repetitions: Callable,
        write: Callable,
        parts: Sequence[Part],
        rounds: int = 1,
    ) -> None:
        numbers: dict[int, set[int]] = defaultdict(set)
        # A language and a round at a time, which is what has to fit memory.
        for name in sorted({part.name for part in parts}):
            of_name = [part for part in parts if part.name == name]
            for number in range(rounds):
                values: dict[bytes, list] = defaultdict(list)
                for part in of_name:
                    for key, value in keys(work, part, number):
                        values[key].append(value)
                for group in values.values():
                    for part_number, line in repetitions(work, group):
                        numbers[part_number].add(line)
        for part in parts:
            write(work, part, numbers[part.number])


class Beam:
    """options: of `pipeline_options`. What workers log of their connections is shown where a
    pipeline fails."""

    def __init__(self, options: Any):
        self._options = options

    def each(self, work: Work, function: ForPart, parts: Sequence[Part]) -> None:
        beam = _beam()

        with quiet_stderr(), beam.Pipeline(options=self._options) as pipeline:
            _ = (
                pipeline
                | beam.Create(list(parts))
                # Else one worker would get all parts.
                | beam.Reshuffle()
                | beam.Map(functools.partial(_told, work, function))
            )
        _raise_first(work, parts)

    def group(
        self,
        work: Work,
        keys: Callable,
        repetitions: Callable,
        write: Callable,
        parts: Sequence[Part],
        rounds: int = 1,
    ) -> None:
        beam = _beam()

        asked = [(part, number) for part in parts for number in range(rounds)]
        with quiet_stderr(), beam.Pipeline(options=self._options) as pipeline:
            numbers = (
                pipeline
                | "parts and rounds" >> beam.Create(asked)
                | beam.Reshuffle()
                | beam.FlatMap(functools.partial(_keys, work, keys))
                | beam.GroupByKey()
                | beam.FlatMap(functools.partial(_repetitions, work, repetitions))
            )
            all_parts = pipeline | "parts" >> beam.Create([(part.number, part) for part in parts])
            _ = (
                {"part": all_parts, "numbers": numbers}
                | beam.CoGroupByKey()
                | beam.Map(functools.partial(_write, work, write))
            )


def engine(runner: str, workers: int, more: Sequence[str]) -> Engine:
    """Raises UserError: an unknown runner, the extra missing, options without Beam."""
    if runner != NO_RUNNER:
        return Beam(pipeline_options(runner, workers, more))
    if more:
        raise UserError(
            f"--runner {NO_RUNNER} is one process without Beam, and has none of its options"
            f" ({more[0]})"
        )
    return OneProcess()


def _beam() -> ModuleType:
    # It warns of clients of Google's that nothing here needs.
    with quiet_stderr():
        import apache_beam
    return apache_beam


def _told(work: Work, function: ForPart, part: Part) -> None:
    """A UserError is left in a file: Beam would show it within a traceback, and start the part
    again."""
    try:
        function(part)
    except UserError as error:
        write_whole(work.file("errors", part, ".txt"), [str(error).encode()])


def _raise_first(work: Work, parts: Sequence[Part]) -> None:
    for part in parts:
        path = work.file("errors", part, ".txt")
        if path.exists():
            message = path.read_text(encoding="utf-8")
            path.unlink()
            raise UserError(message)


def _keys(work: Work, keys: Callable, asked: tuple[Part, int]):
    return keys(work, *asked)


def _repetitions(work: Work, repetitions: Callable, group):
    _, values = group
    return repetitions(work, values)


def _write(work: Work, write: Callable, of_part) -> None:
    _, found = of_part
    (part,) = found["part"]
    write(work, part, found["numbers"])
