"""Signals that end a run: the first Ctrl-C, SIGTERM (or a cluster's preemption notice) and SIGHUP
of a closed terminal end it at a step that all processes agree on; a second Ctrl-C ends it now."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import jax
from jax.experimental import multihost_utils

from xlingjax.errors import Stopped

Handler = Callable[[int, FrameType | None], None]


@contextlib.contextmanager
def handled(handler: Handler, *signals: signal.Signals) -> Iterator[None]:
    """Signals call `handler`, unless ignored (nohup), or off the main thread, as Python has it."""
    in_main = threading.current_thread() is threading.main_thread()
    heard = [one for one in signals if in_main and signal.getsignal(one) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def stop_requested(
    requested: threading.Event, *signals: signal.Signals
) -> contextlib.AbstractContextManager[None]:
    """These signals only set `requested`."""
    return handled(lambda *_: requested.set(), *signals)


def stopped_by(*signals: signal.Signals) -> contextlib.AbstractContextManager[None]:
    """These signals raise `Stopped`."""

    def stop(*_):
        raise Stopped("stopped")

    return handled(stop, *signals)


class Shutdown:
    """Hears that a run is to end; `reached(step)` says whether to save and leave.

    JAX's coordination service catches SIGTERM in any process; all leave after the same step.
    """

    def __init__(self):
        self._requested = threading.Event()
        self._interrupted = False

    def listen(self) -> contextlib.AbstractContextManager[None]:
        """SIGTERM and SIGHUP end the run after the step that it is at, or its first."""
        signals = [signal.SIGTERM, signal.SIGHUP]
        # The coordination service has a handler of its own, which must stay.
        if jax.process_count() > 1:
            signals.remove(signal.SIGTERM)
        return handled(self._hear, *signals)

    def interrupts(self) -> contextlib.AbstractContextManager[None]:
        """Around the steps: the first Ctrl-C is as SIGTERM, the second raises KeyboardInterrupt."""
        return handled(self._hear, signal.SIGINT)

    def reached(self, step: int) -> bool:
        """To be called by every process after every step."""
        if jax.process_count() > 1:
            return multihost_utils.reached_preemption_sync_point(step)
        return self._requested.is_set()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True
            line = (
                "interrupted: the run saves after this step and ends; Ctrl-C once more ends it at"
                " once, and the steps since its last checkpoint are lost\n"
            )
            # Not by print, which the signal may have come in the middle of.
            with contextlib.suppress(OSError):
                os.write(2, line.encode())
        if jax.process_count() > 1:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            self._requested.set()
