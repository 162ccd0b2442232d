"""Compressed files as the bytes in them, and what a file is by its first bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError

ENDINGS = (".gz", ".zst", ".xz", ".bz2")
"""Of the compressed files that are read as what is in them."""
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What reading a damaged one raises; zstandard has an error of its own."""

_ZST_BYTES = 1 << 13
"""Of a .zst that are decompressed at once: what a few bytes grow to stays bounded."""
_FIRST_BYTES = {
    b"\x1f\x8b": ".gz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"\xfd7zXZ\x00": ".xz",
    # Followed by a level, and by a block or by the end of the stream.
    b"BZh": ".bz2",
    b"PK\x03\x04": ".zip",
    b"PK\x05\x06": ".zip",
    b"7z\xbc\xaf\x27\x1c": ".7z",
    b"Rar!\x1a\x07": ".rar",
    b"\x04\x22\x4d\x18": ".lz4",
    b"\x1f\x9d": ".Z",
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"%PDF-": ".pdf",
    b"\x93NUMPY": ".npy",
    b"SQLite format 3\x00": ".sqlite",
}
_BZ2_BLOCKS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
_ZST_SKIPPABLE = b"\x2a\x4d\x18"
"""Behind a byte 0x50 to 0x5f: what some writers of .zst begin a file with."""


def open_bytes(path: str | os.PathLike) -> io.BufferedIOBase:
    """Opens a file for reading bytes, compressed ones (`ENDINGS`) uncompressed.

    Raises UserError if it cannot be opened, and where its first bytes are those of another format
    than its name says.
    """
    path = Path(path)
    try:
        _check_first_bytes(path)
        if path.suffix == ".gz":
            return gzip.open(path, "rb")
        if path.suffix == ".xz":
            return lzma.open(path, "rb")
        if path.suffix == ".bz2":
            return bz2.open(path, "rb")
        if path.suffix == ".zst":
            return io.BufferedReader(_ZstFile(path), 1 << 17)
        return open(path, "rb")
    # A name with a NUL in it, or one that the file system cannot write.
    except ValueError as error:
        raise UserError(f"cannot read {str(path)!r}: {error}") from None
    except IsADirectoryError:
        raise UserError(f"cannot read {path}: it is a folder; give a file in it") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


def write_as_named(path: Path, content: Iterable[bytes]) -> None:
    """Writes a file whole or not at all, compressed as its ending says. Raises OSError."""
    # By its process, since several may write one file.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            if path.suffix not in ENDINGS:
                file.writelines(content)
            else:
                compressor = _compressor(path.suffix)
                file.writelines(map(compressor.compress, content))
                file.write(compressor.flush())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def pieces_of(file: io.BufferedIOBase) -> Iterator[bytes]:
    """What is left of a file, 1 MiB at a time."""
    while piece := file.read(1 << 20):
        yield piece


def _compressor(ending: str) -> Any:
    if ending == ".gz":
        # 16 more than the window asks zlib for gzip's header.
        return zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    if ending == ".xz":
        return lzma.LZMACompressor()
    if ending == ".bz2":
        return bz2.BZ2Compressor()
    import zstandard

    return zstandard.ZstdCompressor().compressobj()


def is_damage(error: BaseException) -> bool:
    """Whether reading a compressed file raised this since the file is damaged."""
    # zstandard's is only known where it is installed.
    return isinstance(error, DAMAGE) or type(error).__name__ == "ZstdError"


def format_of(head: bytes) -> str:
    """The ending of the format that begins with these bytes, at least 10 of them; "" of others,
    text among them."""
    for first, ending in _FIRST_BYTES.items():
        if not head.startswith(first):
            continue
        # "BZh" alone may begin a text.
        if ending == ".bz2" and not head[4:].startswith(_BZ2_BLOCKS):
            continue
        return ending
    if head[1:4] == _ZST_SKIPPABLE and head[0] >> 4 == 5:
        return ".zst"
    return ""


def _check_first_bytes(path: Path) -> None:
    # Of a pipe, what is read here would be missing below.
    if not path.is_file():
        return
    with open(path, "rb") as file:
        head = file.read(16)
    found = format_of(head)
    if path.suffix in ENDINGS:
        if not head:
            raise UserError(
                f"{path}: an empty file is no {path.suffix} file; fetch or write it again"
            )
        if found != path.suffix:
            what = "no compressed file's"
            if found:
                what = f"those of a {found} file"
            raise UserError(
                f"{path}: its name says {path.suffix}, its first bytes are {what}; give it the"
                " ending of what it is, or fetch it again"
            )
        return
    if found in ENDINGS:
        raise UserError(
            f"{path}: its first bytes are those of a {found} file; name it {path.name}{found}"
        )
    if found:
        raise UserError(
            f"{path}: its first bytes are those of a {found} file, which is not read; unpack or"
            " convert it to UTF-8 text, a sentence per line"
        )


class _ZstFile(io.RawIOBase):
    """The bytes of all frames of a .zst; one that is cut off is an EOFError, as of the other
    formats. (zstandard's own reader ends there in silence.)"""

    def __init__(self, path: Path):
        try:
            import zstandard
        except ImportError:
            raise UserError(
                f"{path}: reading .zst needs the package zstandard; `pip install zstandard`"
            ) from None
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame = self._decompressor.decompressobj()
        self._in_frame = False
        self._unread = b""
        self._made = memoryview(b"")
        self._file = open(path, "rb")  # noqa: SIM115 - closed with the object

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._made:
            compressed = self._unread or self._file.read(_ZST_BYTES)
            if not compressed:
                if self._in_frame:
                    raise EOFError("it ends within a frame")
                return 0
            self._decompress(compressed)
        count = min(len(buffer), len(self._made))
        buffer[:count] = self._made[:count]
        self._made = self._made[count:]
        return count

    def _decompress(self, compressed: bytes) -> None:
        self._made = memoryview(self._frame.decompress(compressed))
        self._unread = b""
        self._in_frame = not self._frame.eof
        if self._frame.eof:
            # What follows is another frame, as of files written one behind the other.
            self._unread = self._frame.unused_data
            self._frame = self._decompressor.decompressobj()

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
