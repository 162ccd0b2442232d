"""Files of text, compressed or not: their bytes, lines and hashes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.compressed import ENDINGS, is_damage
from xlingjax.data.compressed import open_bytes as open_bytes
from xlingjax.data.content_hashes import content_hash as content_hash
from xlingjax.errors import UserError

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
        encoding = "UTF-16LE"
        if even > odd:
            encoding = "UTF-16BE"
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
    if path.suffix in ENDINGS:
        return path.name.removesuffix(path.suffix)
    return path.name


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
