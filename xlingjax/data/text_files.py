"""Files of text, compressed or not: their bytes, lines and hashes."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xlingjax.data.content_hashes import content_hash as content_hash
from xlingjax.errors import UserError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Part:
    """Bytes `begin` to `end` of a file, which begin line number `line` (from 1)."""

    begin: int
    end: int
    line: int


def is_compressed(path: Path) -> bool:
    return path.suffix in (".gz", ".zst")


def line_parts(path: Path, lines: int) -> Iterator[Part]:
    """A file in parts of `lines` lines; the last may have fewer."""
    begin = 0
    number = 1
    for end in _line_ends(path, lines):
        yield Part(begin, end, number)
        begin = end
        number += lines
    size = os.path.getsize(path)
    # An empty file is one part of no line.
    if size > begin or not begin:
        yield Part(begin, size, number)


def _line_ends(path: Path, lines: int) -> Iterator[int]:
    """Behind which byte each `lines` lines end."""
    missing = lines
    offset = 0
    with open_bytes(path) as file:
        while block := file.read(1 << 24):
            ends = block.count(b"\n")
            if ends < missing:
                missing -= ends
            else:
                # Only where a part ends: finding each end takes longer than counting them.
                places = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
                for place in places[missing - 1 :: lines].tolist():
                    yield offset + place + 1
                missing = lines - (ends - missing) % lines
            offset += len(block)


def open_bytes(path: str | os.PathLike) -> io.BufferedIOBase:
    """Opens a file for reading bytes, `.gz` and `.zst` uncompressed. Raises UserError if it cannot
    be opened."""
    path = Path(path)
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rb")
        if path.suffix == ".zst":
            return _open_zst(path)
        return open(path, "rb")
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror or error}",
        ) from None


def _open_zst(path: Path) -> io.BufferedIOBase:
    try:
        import zstandard
    except ImportError:
        raise UserError(
            f"{path}: reading .zst needs the package zstandard; `pip install zstandard`",
        ) from None
    decompressor = zstandard.ZstdDecompressor()
    # zstandard's reader has no lines; a buffer has.
    return io.BufferedReader(
        decompressor.stream_reader(open(path, "rb"), closefd=True),
    )


def read_raw_lines(
    path: str | os.PathLike,
    part: Part | None = None,
) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, bytes of the line without its end), of all the file or a part of it;
    only LF and CRLF end a line, a BOM is dropped.

    Raises UserError: the file cannot be opened, or is a damaged archive.
    """
    number = 0
    try:
        with open_bytes(path) as file:
            # As bytes: `str.splitlines` and text mode end lines
            # at more characters, and pairs would go apart.
            for number, raw in _numbered(file, part):
                # Windows' editors write it, and the first word would be unknown with it.
                if number == 1:
                    raw = raw.removeprefix(_BYTE_ORDER_MARK)
                yield number, raw.rstrip(b"\r\n")
    except UserError:
        raise
    except Exception as error:
        # zstandard has an exception of its own, which is only known where it is installed.
        of_zstandard = type(error).__name__ == "ZstdError"
        if not of_zstandard and not isinstance(
            error,
            OSError | EOFError | zlib.error,
        ):
            raise
        raise UserError(
            f"{path}: damaged after line {number} ({error}); fetch or write the file again",
        ) from None


def _numbered(
    file: io.BufferedIOBase,
    part: Part | None,
) -> Iterator[tuple[int, bytes]]:
    if part is None:
        yield from enumerate(file, 1)
        return
    file.seek(part.begin)
    left = part.end - part.begin
    number = part.line
    while left > 0:
        raw = file.readline()
        yield number, raw
        left -= len(raw)
        number += 1


def read_lines(
    path: str | os.PathLike,
    part: Part | None = None,
) -> Iterator[tuple[int, str]]:
    """`read_raw_lines` as text. Raises UserError naming the file and line of the first byte that is
    not UTF-8, too."""
    for number, raw in read_raw_lines(path, part):
        try:
            yield number, raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}, line {number}: invalid UTF-8 (byte 0x{raw[error.start]:02x}, column"
                f" {error.start + 1}); convert the file, for example `iconv -f WINDOWS-1252 -t"
                " UTF-8`",
            ) from None


def plain_name(path: Path) -> str:
    """The file name without a compression ending."""
    # So that a name tells language and format, compressed or not.
    return path.name.removesuffix(".gz").removesuffix(".zst")


def find_file(path: Path) -> Path | None:
    """The file `path`, or the one that is `path` compressed; None if neither is there."""
    for ending in ("", ".gz", ".zst"):
        candidate = path.with_name(f"{path.name}{ending}")
        if candidate.is_file():
            return candidate
    return None
