"""The page of a run that goes on: written anew now and then, never in the way of the training."""

import time
from collections.abc import Callable
from pathlib import Path

SHARE = 0.05
"""Of a run's time that its page may take."""


class Page:
    """Calls `write`, which gives the page's path, where that is due. What goes wrong in it is one
    line and no more. Of several processes one has a page that is written: `write` is None in the
    others."""

    def __init__(self, write: Callable[[], Path] | None, say: Callable[[str], None]):
        self._write = write
        self._say = say
        self._rested_until = 0.0

    def refresh(self) -> None:
        """After an evaluation. Where these follow each other closely, some are left out."""
        if time.monotonic() >= self._rested_until:
            self.written()

    def written(self) -> Path | None:
        """Writes the page and returns its path; None where there is none."""
        if self._write is None:
            return None
        started = time.monotonic()
        try:
            return self._write()
        # Whatever it is: a picture is no reason to lose a training.
        except Exception as error:
            reason = str(error) or type(error).__name__
            self._say(f"the report was not written: {reason.splitlines()[0]}")
            return None
        finally:
            ended = time.monotonic()
            self._rested_until = ended + (ended - started) / SHARE
