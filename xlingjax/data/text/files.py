"""Files of text, compressed or not: their kind by their first bytes, their lines and hashes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.content_hashes import content_hash as content_hash
from xlingjax.errors import UserError
from xlingjax.runtime.files import replaced
from xlingjax.runtime.packages import package

ENDINGS = (".gz", ".zst", ".xz", ".bz2")  # of the compressed files that are read as what is in them
LONGEST_LINE = 64 << 20  # bytes: a small archive may unpack to a line that no memory holds
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)  # zstandard has its own error

_ZST_BYTES = 1 << 13  # of a .zst, decompressed at once: what a few bytes grow to stays bounded
_FIRST_BYTES = {
    b"\x1f\x8b": ".gz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"\xfd7zXZ\x00": ".xz",
    b"BZh": ".bz2",
}
# "BZh" alone may begin a text: a level follows, and a block or the end of the stream.
_BZ2_BLOCKS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
_ZST_SKIPPABLE = b"\x2a\x4d\x18"  # behind a byte 0x50 to 0x5f: how some .zst files begin


def open_bytes(path: str | os.PathLike) -> io.BufferedIOBase:
    """Opens a file for reading bytes, compressed ones (`ENDINGS`) uncompressed.

    Raises UserError if it cannot be opened, or its first bytes and its name differ in format.
    """
    path = Path(path)
    try:
        _check_first_bytes(path)
        if path.suffix == ".zst":
            return io.BufferedReader(_ZstFile(path), 1 << 17)
        return _OPENERS.get(path.suffix, open)(path, "rb")
    # A ValueError: a name with a NUL in it.
    except ValueError as error:
        raise UserError(f"cannot read {str(path)!r}: {error}") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


def write_as_named(path: Path, content: Iterable[bytes]) -> None:
    """Writes a file whole or not at all, compressed as its ending says. Raises OSError."""
    with replaced(path) as file:
        if path.suffix in ENDINGS:
            compressor = _COMPRESSORS[path.suffix]()
            file.writelines(map(compressor.compress, content))
            file.write(compressor.flush())
        else:
            file.writelines(content)


def pieces_of(file: io.BufferedIOBase) -> Iterator[bytes]:
    """What is left of a file, 1 MiB at a time."""
    while piece := file.read(1 << 20):
        yield piece


def _zst_compressor() -> Any:
    import zstandard

    return zstandard.ZstdCompressor().compressobj()


_OPENERS: dict[str, Callable] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_COMPRESSORS: dict[str, Callable] = {
    # 16 more than the window asks zlib for gzip's header.
    ".gz": lambda: zlib.compressobj(wbits=16 + zlib.MAX_WBITS),
    ".xz": lzma.LZMACompressor,
    ".bz2": bz2.BZ2Compressor,
    ".zst": _zst_compressor,
}


def is_damage(error: BaseException) -> bool:
    """Whether reading a compressed file raised this since the file is damaged."""
    # zstandard's is only known where it is installed.
    return isinstance(error, DAMAGE) or type(error).__name__ == "ZstdError"


def _format_of(head: bytes) -> str:
    """The ending of the compressed files that begin with these bytes; "" of others."""
    for first, ending in _FIRST_BYTES.items():
        if head.startswith(first) and (ending != ".bz2" or head[4:].startswith(_BZ2_BLOCKS)):
            return ending
    return ".zst" if head[1:4] == _ZST_SKIPPABLE and head[0] >> 4 == 5 else ""


def _check_first_bytes(path: Path) -> None:
    # Of a pipe, what is read here would be missing below.
    if not path.is_file():
        return
    with open(path, "rb") as file:
        ending = _format_of(file.read(16))
    if ending != (path.suffix if path.suffix in ENDINGS else ""):
        what = f"those of a {ending} file" if ending else "no compressed file's"
        raise UserError(f"{path}: its first bytes are {what}; name it so, or fetch it again")


class _ZstFile(io.RawIOBase):
    """The bytes of all frames of a .zst; one that is cut off is an EOFError, as of the other
    formats. (zstandard's own reader ends there in silence.)"""

    def __init__(self, path: Path):
        zstandard = package("zstandard", f"{path}: reading .zst", "zstandard")
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


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Part:
    """Bytes `begin` to `end` of a file, which begin line number `line` (from 1)."""

    begin: int
    end: int
    line: int


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


def read_lines(path: str | os.PathLike, part: Part | None = None) -> Iterator[tuple[int, str]]:
    """(line number from 1, the line without its end), of all the file or a part of it; only LF and
    CRLF end a line, a BOM is dropped.

    Raises UserError: the file cannot be opened, is damaged, has NULs, or is not UTF-8 (the line).
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
                if len(raw) == LONGEST_LINE:
                    raise UserError(
                        f"{path}, line {number}: over {LONGEST_LINE >> 20} MiB without an end of a"
                        " line, which is no text; write a sentence or a document per line"
                    )
                if b"\0" in raw:
                    raise UserError(
                        f"{path}, line {number}: a NUL byte, which no text has; convert UTF-16 by"
                        " `iconv -f UTF-16 -t UTF-8`"
                    )
                yield number, raw.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: invalid UTF-8 (byte 0x{error.object[error.start]:02x}, column"
            f" {error.start + 1}); convert the file, for example `iconv -f WINDOWS-1252 -t UTF-8`"
        ) from None
    except Exception as error:
        if not is_damage(error):
            raise
        raise UserError(
            f"{path}: damaged after line {number} ({error}); fetch or write the file again"
        ) from None


def words_of(line: str) -> list[str]:
    """The words of a line that a tokeniser has parted by spaces or tabs. Other white space, as a
    no-break space in a number, is part of a word, as to other tools."""
    return [word for word in re.split("[ \t]", line) if word]


def _numbered(file: Any, part: Part | None) -> Iterator[tuple[int, bytes]]:
    if part is None:
        yield from enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1)
        return
    file.seek(part.begin)
    left = part.end - part.begin
    number = part.line
    while left > 0:
        raw = file.readline(LONGEST_LINE)
        yield number, raw
        left -= len(raw)
        number += 1


def plain_name(path: Path) -> str:
    """The file name without a compression ending."""
    # So that a name tells language and format, compressed or not.
    return path.name.removesuffix(path.suffix) if path.suffix in ENDINGS else path.name


def refuse_lost_link(path: Path) -> None:
    """Raises UserError for a symbolic link to nowhere, which a list of files would leave out."""
    if path.is_symlink() and not path.exists():
        raise UserError(
            f"{path}: a symbolic link that leads nowhere, to {os.readlink(path)}; mend or remove it"
        )


def find_file(path: Path) -> Path | None:
    """`path`, or that file compressed; None: neither is there. Raises UserError: a lost link."""
    for ending in ("", *ENDINGS):
        candidate = path.with_name(f"{path.name}{ending}")
        refuse_lost_link(candidate)
        if candidate.is_file():
            return candidate
    return None
