"""Keeping the terminal for what the user asked to see."""

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator

from xlingjax.errors import UserError


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Hold back what C++ writes to stderr: TensorFlow announces itself at import in lines that no setting turns off.

    What was written is shown if the block fails.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except UserError:
            raise
        except BaseException:
            held.seek(0)
            os.write(kept, held.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def forget_abandoned_reads() -> None:
    """Print nothing of the reads that Orbax had under way when one of them failed: they end later, each with a
    traceback of its own."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    shown = sys.unraisablehook

    def hook(unraisable) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            shown(unraisable)

    sys.unraisablehook = hook
