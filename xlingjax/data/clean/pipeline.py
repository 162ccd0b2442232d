"""The steps of a cleaning over its parts, by one process or several.

What a step writes of a part depends on that alone, so one process and several write the same bytes.
The files between the steps are written whole or not at all, so that one that is there
is finished, and a cleaning that was interrupted goes on from it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.clean import duplicates
from xlingjax.data.clean.lines import Line, clean_lines
from xlingjax.data.clean.parts import Part
from xlingjax.data.clean.settings import CleanSettings
from xlingjax.data.text.files import write_as_named
from xlingjax.runtime import records
from xlingjax.runtime.files import replaced, write_json
from xlingjax.runtime.quiet import as_line
from xlingjax.runtime.records import read_npy
from xlingjax.runtime.workers import in_processes

Numbered = tuple[int, Line]  # a line, and its number in the part from 0, without ends of documents
DROPS = ("exact", "near")  # steps that leave files of the lines that they leave out, in their order


@dataclass(frozen=True)
class Work:
    """The folder of a cleaning, and how many processes work."""

    output: Path
    settings: CleanSettings
    processes: int = 1

    @property
    def folder(self) -> Path:
        return self.output / ".clean"

    def file(self, step: str, number: int, ending: str) -> Path:
        """number: of the part. Its folder is made."""
        folder = self.folder / step
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{number:05d}{ending}"

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
        """What is compared as one text."""
        for document in self.documents(part, before):
            if self.settings.unit == "documents" and not part.is_pair:
                yield document
            else:
                yield from ([line] for line in document)

    def each(self, function: Callable[[Work, Part], None], parts: Sequence[Part]) -> None:
        """`function` of every part; it leaves alone what is finished. Raises UserError: the first
        of those that it raised."""
        if self.processes > 1 and len(parts) > 1:
            calls = [(part.name, functools.partial(function, self, part)) for part in parts]
            in_processes(calls, self.processes)
        for part in parts:
            function(self, part)


def run_steps(work: Work, parts: Sequence[Part], tell: Callable[[str], None]) -> None:
    tell(f"lines of {len(parts)} files")
    work.each(_write_lines, parts)
    if work.settings.exact:
        tell("repetitions")
        work.each(_write_keys, parts)
        _drop(work, "exact", parts)
    if work.settings.near is not None:
        tell("near repetitions")
        work.each(_write_signatures, parts)
        _drop(work, "near", parts)
    tell("output")
    work.each(_write_output, parts)


def _write_lines(work: Work, part: Part) -> None:
    counts: Counter[str] = Counter()
    # The counts come last: where they are, the lines are too.
    record = work.file("lines", part.number, ".json")
    if not record.exists():
        # A tab is between the sides alone.
        encoded = (
            ("\t".join(as_line(side).replace("\t", " ") for side in line) + "\n").encode()
            for line in clean_lines(part, work.settings, counts)
        )
        write_as_named(work.file("lines", part.number, ".txt"), encoded)
        write_record(record, dict(counts))


def _write_keys(work: Work, part: Part) -> None:
    path = work.file("keys", part.number, ".npy")
    if path.exists():
        return
    documents = work.documents(part, "exact")
    keys = [duplicates.line_key(line) for document in documents for _, line in document]
    _write_array(path, np.frombuffer(b"".join(keys), "V16"))


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


def _drop(work: Work, step: str, parts: Sequence[Part]) -> None:
    """Writes which lines of each part repeat earlier ones, by this process. Texts repeat each other
    within a language or pair alone, whose keys or signatures have to fit memory."""
    finished = work.folder / f"{step}.json"
    if finished.exists():
        return
    for name in sorted({part.name for part in parts}):
        of_name = [part for part in parts if part.name == name]
        if step == "exact":
            arrays = [read_array(work.file("keys", part.number, ".npy")) for part in of_name]
            _, first = np.unique(np.concatenate(arrays), return_index=True)
            later = np.ones(sum(map(len, arrays)), bool)
            later[first] = False
            ranges = [np.stack([np.arange(len(array))] * 2, axis=1) for array in arrays]
        else:
            arrays = [read_array(work.file("signatures", part.number, ".npy")) for part in of_name]
            values = np.concatenate([array[:, 2:].astype(np.uint32) for array in arrays])
            assert work.settings.near is not None
            later = duplicates.near_later(values, work.settings.near)
            ranges = [array[:, :2].astype(np.int64) for array in arrays]
        ends = np.cumsum([len(array) for array in arrays])[:-1]
        for part, units, dropped in zip(of_name, ranges, np.split(later, ends), strict=True):
            lines = [np.arange(begin, end + 1) for begin, end in units[dropped].tolist()]
            content = np.concatenate([np.zeros(0, np.int64), *lines])
            _write_array(work.file(step, part.number, ".npy"), content)
    write_record(finished, {})


def _write_output(work: Work, part: Part) -> None:
    """The lines that stay, in the files that `pretrain` reads, and the counts of all steps."""
    record = work.file("output", part.number, ".json")
    if record.exists():
        return
    counts = Counter(read_record(work.file("lines", part.number, ".json")))
    exact = work.dropped("exact", part)
    counts["exact"] = len(exact)
    counts["near"] = len(work.dropped("near", part) - exact)
    sides: list[list[bytes]] = [[] for _ in part.languages]
    for document in work.documents(part):
        kept = [line for _, line in document]
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
            path = work.output / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_as_named(path, side)
    write_record(record, dict(counts))


_REMEDY = "remove it with its folder, and start again: it is made anew"


def _write_array(path: Path, values: np.ndarray) -> None:
    with replaced(path) as file:
        np.save(file, values)


def write_record(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, value)


def read_array(path: Path) -> np.ndarray:
    """Raises UserError: damaged."""
    return read_npy(path, _REMEDY)


def read_record(path: Path) -> Any:
    """Raises UserError: damaged."""
    return records.read_record(path, dict, _REMEDY)
