"""The files between the steps of a cleaning: each is written whole or not at all, so that one that
is there is finished, and a cleaning that was interrupted goes on from it."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.clean.lines import Line
from xlingjax.data.clean.parts import Part
from xlingjax.data.clean.settings import CleanSettings
from xlingjax.errors import UserError
from xlingjax.runtime import records
from xlingjax.runtime.records import ANY, read_npy

Numbered = tuple[int, Line]
"""A line and its number in the part, from 0, those that end documents not counted."""
_REMEDY = "remove it with its folder, and start again: it is made anew"
DROPS = ("exact", "near")
"""Steps that leave files of the lines that they leave out, in their order."""


@dataclass(frozen=True)
class Work:
    """The folder of a cleaning."""

    output: Path
    settings: CleanSettings

    @property
    def folder(self) -> Path:
        return self.output / ".clean"

    def file(self, step: str, part: Part, ending: str) -> Path:
        return self.folder / step / f"{part.number:05d}{ending}"

    # --- Lines ------------------------------------------------------------------------------------

    def documents(self, part: Part, after: int) -> Iterator[list[Numbered]]:
        """The lines of each document that stay after the first `after` of `DROPS`; documents that
        have none are left out."""
        dropped: set[int] = set()
        for step in DROPS[:after]:
            path = self.file(step, part, ".npy")
            if path.exists():
                dropped |= set(read_array(path).tolist())
        number = 0
        document: list[Numbered] = []
        for line in read_sides(self.file("lines", part, ".txt"), len(part.languages)):
            if not any(line):
                if document:
                    yield document
                document = []
                continue
            if number not in dropped:
                document.append((number, line))
            number += 1
        if document:
            yield document

    def units(self, part: Part, after: int) -> Iterator[list[Numbered]]:
        """What is compared and scored as one text."""
        for document in self.documents(part, after):
            if self.settings.unit == "documents" and not part.is_pair:
                yield document
            else:
                yield from ([line] for line in document)


def read_sides(path: Path, sides: int) -> Iterator[Line]:
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield tuple(line.rstrip("\n").split("\t", sides - 1))


def write_sides(path: Path, lines: Iterable[Line]) -> None:
    def encoded() -> Iterator[bytes]:
        for line in lines:
            # A tab is between the sides alone.
            sides = [side.replace("\t", " ") for side in line]
            yield ("\t".join(sides) + "\n").encode()

    write_whole(path, encoded())


def write_whole(path: Path, pieces: Iterable[bytes]) -> None:
    """Raises UserError where it cannot be written."""
    # A name of its own: runners may start a part twice at the same time.
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as file:
            for piece in pieces:
                file.write(piece)
        os.replace(partial, path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; make room, then go on"
        ) from None
    finally:
        partial.unlink(missing_ok=True)


def write_array(path: Path, values: np.ndarray) -> None:
    import io

    buffer = io.BytesIO()
    np.save(buffer, values)
    write_whole(path, [buffer.getvalue()])


def write_record(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_whole(path, [text.encode()])


def read_array(path: Path) -> np.ndarray:
    """Raises UserError: damaged."""
    # A copy: there may be many, and a map of each would keep a file open.
    return np.array(read_npy(path, f"{_REMEDY} ({path.parent})"))


def read_record(path: Path, names: Iterable[str] = ()) -> Any:
    """A table, with these names in it. Raises UserError: damaged."""
    shape: dict[Any, Any] = dict.fromkeys(names, ANY) or {str: ANY}
    return records.read_record(path, shape, f"{_REMEDY} ({path.parent})")
