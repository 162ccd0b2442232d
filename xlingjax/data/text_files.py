"""Files of text, compressed or not: their bytes, lines and hashes."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from xlingjax.errors import UserError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def content_hash(path: str | os.PathLike) -> str:
    """sha256 (hex) of a file's bytes, remembered until its size or time of change differ."""
    # Corpora are large and asked for several times in a run, so a hash is made once.
    status = os.stat(path)
    return _content_hash(os.fspath(path), status.st_size, status.st_mtime_ns)


@functools.cache
def _content_hash(path: str, size: int, changed: int) -> str:
    with open(path, "rb") as file:
        # In pieces, so that a file larger than memory has a hash, too.
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def read_raw_lines(path: str | os.PathLike) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, bytes of the line without its end); only LF and CRLF end a line, a BOM
    is dropped.

    Raises UserError: the file cannot be opened, or is a damaged archive.
    """
    number = 0
    try:
        with open_bytes(path) as file:
            # As bytes: `str.splitlines` and text mode end lines
            # at more characters, and pairs would go apart.
            for number, raw in enumerate(file, 1):
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


def read_lines(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    """`read_raw_lines` as text. Raises UserError naming the file and line of the first byte that is
    not UTF-8, too."""
    for number, raw in read_raw_lines(path):
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
