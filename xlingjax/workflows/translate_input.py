"""The lines that `translate` and `generate` read, from a file or a pipe, chunk by chunk."""

import contextlib
import itertools
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from xlingjax.data.text_files import read_lines
from xlingjax.errors import UserError
from xlingjax.inference.generate import Generator
from xlingjax.workflows.translate_request import Request

CHUNK = 1024
"""Lines that are sorted by length together; the most that an interruption costs."""


@contextlib.contextmanager
def spooled() -> Iterator[str]:
    """Standard input as a file."""
    with tempfile.NamedTemporaryFile(prefix="xlingjax-") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        yield file.name


def texts(path: str | Path | None) -> Iterator[str]:
    """The lines of a file, None: of standard input. Raises UserError for what is not UTF-8."""
    if path is not None:
        yield from (line.strip() for _, line in read_lines(path))
        return
    for number, raw in enumerate(sys.stdin.buffer, 1):
        encoding = "utf-8"
        if number == 1:
            # Some programs begin a file with a byte order mark, which is no text.
            encoding = "utf-8-sig"
        try:
            yield raw.decode(encoding).strip()
        except UnicodeDecodeError:
            raise UserError(
                f"standard input, line {number}: invalid UTF-8; convert it, for example with iconv"
            ) from None


def chunks(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """`rows` in lists of `CHUNK`; the last may be shorter."""
    rows = iter(rows)
    while chunk := list(itertools.islice(rows, CHUNK)):
        yield chunk


def checked(request: Request, generator: Generator, path: str) -> int:
    """The number of lines, none of them too long, and as many as of what belongs to them."""
    total = 0
    for chunk in chunks(texts(path)):
        generator.tokens(chunk, total + 1)
        total += len(chunk)
    for option, other in (("--score", request.score), ("--references", request.references)):
        if not other:
            continue
        count = sum(1 for _ in read_lines(other))
        if count != total:
            raise UserError(
                f"{option} {other} has {count} lines and the input {total}: give one for each line,"
                " in order"
            )
    return total
