"""Lines and their vectors in shards on disk, for texts that memory does not hold.

A side `de` of a folder is `de-00000.npy` (float32 [rows, D]) and `de-00000.txt`, its lines; all but
the last shard have the same number of rows. A shard that is whole is never made again.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.errors import UserError
from xlingjax.runtime.files import replaced, write_json
from xlingjax.runtime.records import read_npy, read_record

ROWS = 65536  # of a shard: what a kill costs at most, and what is in memory at a time
FINISHED = "finished.json"


def _vectors(path: Path) -> np.ndarray:
    remedy = f"remove {path.parent}: its vectors are made anew"
    vectors = read_npy(path, remedy)
    if vectors.ndim != 2 or not len(vectors):
        raise UserError(f"{path} has the shape {vectors.shape}; {remedy}")
    return vectors


class ShardedRows:
    """float32 [S, D], read into memory by slice or by an array of row numbers."""

    def __init__(self, paths: Sequence[Path]):
        self.paths = tuple(paths)
        first = _vectors(self.paths[0])
        last = _vectors(self.paths[-1])
        self.rows = len(first)
        count = self.rows * (len(self.paths) - 1) + len(last)
        self.shape = (count, first.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, chosen: slice | np.ndarray) -> np.ndarray:
        if isinstance(chosen, slice):
            chosen = np.arange(*chosen.indices(len(self)))
        rows = np.empty((len(chosen), self.shape[1]), np.float32)
        shards = chosen // self.rows
        for shard in np.unique(shards).tolist():
            of_shard = shards == shard
            # Opened for this alone: pages of a map that is kept count as memory, and maps as files.
            rows[of_shard] = _vectors(self.paths[shard])[chosen[of_shard] - shard * self.rows]
        return rows


class ShardedLines:
    """The lines of a side, by number or one after the other; 8 bytes of memory for each."""

    def __init__(self, paths: Sequence[Path]):
        self.paths = tuple(paths)
        texts = (np.fromfile(path, np.uint8) for path in self.paths)
        self._ends = [np.flatnonzero(text == ord("\n")) for text in texts]
        self.rows = len(self._ends[0])

    def __len__(self) -> int:
        return sum(map(len, self._ends))

    def __getitem__(self, number: int) -> str:
        shard, row = divmod(int(number), self.rows)
        ends = self._ends[shard]
        start = int(ends[row - 1]) + 1 if row else 0
        # Opened for this alone: a process may not open any number of files.
        with open(self.paths[shard], "rb") as file:
            file.seek(start)
            return file.read(int(ends[row]) - start).decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        for path in self.paths:
            with open(path, "rb") as file:
                for raw in file:
                    yield raw.removesuffix(b"\n").decode("utf-8")


def write_shards(
    folder: Path,
    sides: Sequence[str],
    rows_of_text: Iterable[Any],
    encode: Callable[[list[Any], int], Sequence[np.ndarray]],
    text_of: Callable[[Any], Sequence[str]],
    say: Callable[[str], None],
    rows: int | None = None,
) -> list[tuple[ShardedLines, ShardedRows]]:
    """Each side's lines and vectors, of which whole shards of an earlier start are kept.

    rows_of_text: the same at every start; encode: vectors [n, D] of each side for n of them, which
    are those of the shard of that number; text_of: the lines of one, in the order of `sides`; rows:
    of a shard (None: ROWS).
    Raises UserError where there are none.
    """
    if finished := read_shards(folder, sides):
        return finished
    rows = rows or ROWS
    entries = iter(rows_of_text)
    count = 0
    folder.mkdir(parents=True, exist_ok=True)
    while chunk := list(itertools.islice(entries, rows)):
        paths = [_path(folder, side, count, "npy") for side in sides]
        if not all(path.is_file() for path in paths):
            texts = zip(*map(text_of, chunk), strict=True)
            for side, lines in zip(sides, texts, strict=True):
                # Bytes, so that no line end within a line is changed.
                with open(_path(folder, side, count, "txt"), "wb") as file:
                    file.writelines(f"{line}\n".encode() for line in lines)
            for path, vectors in zip(paths, encode(chunk, count), strict=True):
                write_rows(path, vectors)
            say(f"{folder}: {count * rows + len(chunk):,} lines encoded")
        count += 1
    if not count:
        raise UserError("no sentences: the file is empty")
    write_json(folder / FINISHED, {"shards": count})
    return read_shards(folder, sides) or []


def read_shards(
    folder: Path, sides: Sequence[str]
) -> list[tuple[ShardedLines, ShardedRows]] | None:
    """What `write_shards` gave at its end; None: it has not come there."""
    remedy = f"remove {folder}: its vectors are made anew"
    try:
        count = read_record(folder / FINISHED, {"shards": int}, remedy)["shards"]
    except FileNotFoundError:
        return None
    found = []
    for side in sides:
        texts, vectors = (
            [_path(folder, side, n, ending) for n in range(count)] for ending in ("txt", "npy")
        )
        found.append((ShardedLines(texts), ShardedRows(vectors)))
    return found


def _path(folder: Path, side: str, number: int, ending: str) -> Path:
    return folder / f"{side}-{number:05d}.{ending}"


def write_rows(path: Path, rows: np.ndarray) -> None:
    # The last of a shard's files, and whole or not at all: where it is, the shard is.
    with replaced(path) as file:
        np.save(file, rows.astype(np.float32, copy=False))
