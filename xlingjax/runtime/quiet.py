"""Keeping the terminal for what the user asked to see."""

import contextlib
import io
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import TextIO

from xlingjax.errors import UserError
from xlingjax.runtime import progress

_COLOUR = r"(?:[0-4]|[39][0-7]|38;5;\d+|38;2;\d+;\d+;\d+)"
_COLOURS = rf"\x1b\[{_COLOUR}(?:;{_COLOUR})*m"
_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"


class Printed(io.TextIOWrapper):
    """Standard output or error, whose control characters are shown as \\x1b, but for ends of line,
    tabs and on a terminal colours: text of a file may have a terminal do anything. What the
    encoding lacks is shown likewise."""

    def __init__(self, stream: TextIO):
        super().__init__(
            stream.buffer, stream.encoding, "backslashreplace", line_buffering=stream.line_buffering
        )
        kept = _COLOURS if stream.isatty() else "(?!)"
        self._obeyed_or_shown = f"({kept})|{_CONTROL}"

    def write(self, text: str) -> int:
        progress.before_output()
        super().write(re.sub(self._obeyed_or_shown, _shown, text))
        return len(text)


def _shown(found: re.Match) -> str:
    return found[1] or f"\\x{ord(found[0]):02x}"


def as_line(text: str) -> str:
    """Without what ends a line for any program (Python's `splitlines` and terminals know more of
    it than LF), nor other control characters: a line per line."""
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]", " ", text)


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Hold back what C++ writes to stderr: no setting silences TensorFlow's import.

    What was written is shown if the block fails.
    """
    sys.stderr.flush()
    # By file descriptor: C++ writes past sys.stderr.
    kept = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        # Its message says all; what was held back would only hide it.
        except UserError:
            raise
        except BaseException:
            held.seek(0)
            os.write(kept, held.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def forget_told_failures() -> None:
    """Silence Orbax's threads from now on: waiting for the checkpoint raises what failed."""
    logging.getLogger("absl").setLevel(logging.CRITICAL)


def forget_abandoned_reads() -> None:
    """From now on log nothing of the reads that Orbax has under way when one of them fails: they
    end later, each with a traceback of its own. To be called before the reading."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
