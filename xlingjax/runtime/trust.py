"""Whether gin files that came with a run may have modules imported (--trust)."""

import contextlib
from collections.abc import Iterator

# Of the process: what --trust says holds for all that a command reads, whoever reads it.
_trusted = False


def is_trusted() -> bool:
    return _trusted


@contextlib.contextmanager
def trusting(given: bool) -> Iterator[None]:
    """Within it they may, where this is `given` here or further out."""
    global _trusted
    before = _trusted
    _trusted = before or given
    try:
        yield
    finally:
        _trusted = before
