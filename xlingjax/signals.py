"""Asked to stop: SIGTERM (or a cluster's preemption notice) ends a run at a step that all processes agree on."""

import signal
import threading

import jax
from jax.experimental import multihost_utils


class Preemption:
    """Context manager. While it is open SIGTERM only sets a flag; `reached(step)` says whether to save and leave.

    With several processes JAX's coordination service catches the signal in any one of them and makes all leave after
    the same step.
    """

    def __init__(self):
        self._asked = threading.Event()
        self._previous = None

    def __enter__(self) -> "Preemption":
        if jax.process_count() == 1 and threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, lambda *_: self._asked.set())
        return self

    def __exit__(self, *_) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGTERM, self._previous)

    def reached(self, step: int) -> bool:
        """To be called by every process after every step."""
        if jax.process_count() > 1:
            return multihost_utils.reached_preemption_sync_point(step)
        return self._asked.is_set()
