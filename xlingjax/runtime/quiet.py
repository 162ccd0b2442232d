"""Keeping the terminal for what the user asked to see."""

import contextlib
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator

from xlingjax.errors import UserError


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Hold back what C++ writes to stderr: TensorFlow announces itself at import in lines that no
    setting turns off.

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
    """From now on log nothing of Orbax's threads: what fails in one of them is raised again where
    the checkpoint is waited for."""
    logging.getLogger("absl").setLevel(logging.CRITICAL)


def forget_abandoned_reads() -> None:
    """From now on log nothing of the reads that Orbax has under way when one of them fails: they
    end later, each with a traceback of its own. To be called before the reading."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
