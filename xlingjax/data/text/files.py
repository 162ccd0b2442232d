"""Files of text, compressed or not: what a file is by its first bytes, its bytes, lines and
hashes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.content_hashes import content_hash as content_hash
from xlingjax.errors import UserError
from xlingjax.runtime.packages import package

# --- Compressed files as the bytes in them ---

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
        if path.suffix == ".zst":
            return io.BufferedReader(_ZstFile(path), 1 << 17)
        return _OPENERS.get(path.suffix, open)(path, "rb")
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
            if path.suffix in ENDINGS:
                compressor = _COMPRESSORS[path.suffix]()
                file.writelines(map(compressor.compress, content))
                file.write(compressor.flush())
            else:
                file.writelines(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


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


def format_of(head: bytes) -> str:
    """The ending of the format that begins with these bytes, at least 10 of them; "" of others,
    text among them."""
    for first, ending in _FIRST_BYTES.items():
        # "BZh" alone may begin a text.
        if head.startswith(first) and (ending != ".bz2" or head[4:].startswith(_BZ2_BLOCKS)):
            return ending
    return ".zst" if head[1:4] == _ZST_SKIPPABLE and head[0] >> 4 == 5 else ""


def _check_first_bytes(path: Path) -> None:
    # Of a pipe, what is read here would be missing below.
    if not path.is_file():
        return
    with open(path, "rb") as file:
        head = file.read(16)
    ending = format_of(head)
    fault = ""
    if path.suffix in ENDINGS and not head:
        fault = f"an empty file is no {path.suffix} file; fetch or write it again"
    elif path.suffix in ENDINGS and ending != path.suffix:
        what = f"those of a {ending} file" if ending else "no compressed file's"
        fault = (
            f"its name says {path.suffix}, its first bytes are {what}; give it the ending of what"
            " it is, or fetch it again"
        )
    elif ending != path.suffix and ending in ENDINGS:
        fault = f"its first bytes are those of a {ending} file; name it {path.name}{ending}"
    elif ending and path.suffix not in ENDINGS:
        fault = (
            f"its first bytes are those of a {ending} file, which is not read; unpack or convert it"
            " to UTF-8 text, a sentence per line"
        )
    if fault:
        raise UserError(f"{path}: {fault}")


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


# --- Lines ---

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WIDE = {
    # Before UTF-16: its mark begins with the one of UTF-16.
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
"""The byte order marks of Unicode in more than a byte, which tell it from UTF-8."""


@dataclass(frozen=True)
class Part:
    """Bytes `begin` to `end` of a file, which begin line number `line` (from 1)."""

    begin: int
    end: int
    line: int


def is_divisible(path: Path) -> bool:
    """Whether the lines of a file can be read from the middle of it: neither compressed nor
    transcoded."""
    if path.suffix in ENDINGS:
        return False
    with open_bytes(path) as file:
        return not wide_encoding(file.read(4))


def wide_encoding(head: bytes) -> str:
    """ "UTF-16" or "UTF-32" where a file begins with its byte order mark, else ""."""
    for mark, encoding in _WIDE.items():
        if head.startswith(mark):
            return encoding
    return ""


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


def read_raw_lines(
    path: str | os.PathLike, part: Part | None = None
) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, bytes of the line without its end), of all the file or a part of it;
    only LF and CRLF end a line, a BOM is dropped. UTF-16 and UTF-32 with a BOM come as UTF-8.

    Raises UserError: the file cannot be opened, is a damaged archive, has NULs, as no text has, or
    its lines end in CR alone.
    """
    number = 0
    try:
        with open_bytes(path) as file:
            # As bytes: `str.splitlines` and text mode end lines
            # at more characters, and pairs would go apart.
            for number, raw in _numbered(file, part):
                yield number, plain_line(raw, number, path)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: damaged after line {number}: its byte order mark says"
            f" {error.encoding.upper()}, its bytes do not ({error.reason}); fetch or write the file"
            " again"
        ) from None
    except Exception as error:
        if not is_damage(error):
            raise
        raise UserError(
            f"{path}: damaged after line {number} ({error}); fetch or write the file again"
        ) from None


def plain_line(raw: bytes, number: int, where: str | os.PathLike) -> bytes:
    """A line without its end, the first one without a BOM. where: it stands, for messages. Raises
    UserError: NULs in it, or several CRs in a first line that no LF ends."""
    # Windows' editors write it, and the first word would be unknown with it.
    if number == 1:
        raw = raw.removeprefix(_BYTE_ORDER_MARK)
    if b"\0" in raw:
        raise UserError(f"{where}, line {number}: {_why_nul(raw, number)}")
    # All of the file then, or it would have an LF.
    if number == 1 and raw.count(b"\r") > 1 and not raw.endswith(b"\n"):
        raise UserError(
            f"{where}: its lines end in CR alone, as of old Macs, and would be read as one; convert"
            " the file: `tr '\\r' '\\n'`"
        )
    return raw.rstrip(b"\r\n")


def _why_nul(raw: bytes, number: int) -> str:
    # The header of a tar archive, whose first field is a name.
    if number == 1 and raw[257:262] == b"ustar":
        return "a tar archive; unpack it, and give the files in it"
    even = raw[0::2].count(0)
    odd = raw[1::2].count(0)
    # Of letters below U+0100 every other byte is 0, and of no other text.
    if max(even, odd) > len(raw) / 4 and min(even, odd) < len(raw) / 16:
        encoding = "UTF-16BE" if even > odd else "UTF-16LE"
        return (
            f"NUL bytes as of {encoding} without a byte order mark; convert the file: `iconv -f"
            f" {encoding} -t UTF-8`"
        )
    return "a NUL byte, which no text has; give the text itself, or repair the file"


def _numbered(file: Any, part: Part | None) -> Iterator[tuple[int, bytes]]:
    if part is None:
        encoding = wide_encoding(file.peek(4)[:4])
        if not encoding:
            yield from enumerate(file, 1)
            return
        with io.TextIOWrapper(file, encoding.lower(), newline="\n") as wide:
            for number, line in enumerate(wide, 1):
                yield number, line.encode("utf-8")
        return
    file.seek(part.begin)
    left = part.end - part.begin
    number = part.line
    while left > 0:
        raw = file.readline()
        yield number, raw
        left -= len(raw)
        number += 1


def read_lines(path: str | os.PathLike, part: Part | None = None) -> Iterator[tuple[int, str]]:
    """`read_raw_lines` as text. Raises UserError naming the file and line of the first byte that is
    not UTF-8, too."""
    for number, raw in read_raw_lines(path, part):
        try:
            yield number, raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}, line {number}: invalid UTF-8 (byte 0x{raw[error.start]:02x}, column"
                f" {error.start + 1}); convert the file, for example `iconv -f WINDOWS-1252 -t"
                " UTF-8`"
            ) from None


def plain_name(path: Path) -> str:
    """The file name without a compression ending."""
    # So that a name tells language and format, compressed or not.
    return path.name.removesuffix(path.suffix) if path.suffix in ENDINGS else path.name


def refuse_lost_link(path: Path) -> None:
    """Raises UserError for a symbolic link that leads nowhere: who lists files would leave it
    out."""
    if path.is_symlink() and not path.exists():
        raise UserError(
            f"{path}: a symbolic link that leads nowhere, to {os.readlink(path)}; mend or remove it"
        )


def find_file(path: Path) -> Path | None:
    """The file `path`, or the one that is `path` compressed; None if neither is there. Raises
    UserError for a link that leads nowhere."""
    for ending in ("", *ENDINGS):
        candidate = path.with_name(f"{path.name}{ending}")
        refuse_lost_link(candidate)
        if candidate.is_file():
            return candidate
    return None
