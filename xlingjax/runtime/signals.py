"""Asked to stop: SIGTERM (or a cluster's preemption notice), SIGHUP of a closed terminal and the
first Ctrl-C end a run at a step that all processes agree on."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

import jax
from jax.experimental import multihost_utils

from xlingjax.errors import Stopped
from xlingjax.runtime.interrupts import twice


@contextlib.contextmanager
def handled(handler: Callable[..., None], *signals: signal.Signals) -> Iterator[None]:
    """These signals call `handler`, but for those that are ignored, and in threads, which get
    none."""
    # Python sets handlers in the main thread alone.
    here = threading.current_thread() is threading.main_thread()
    heard = [number for number in signals if here and signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            # What was there before: a caller may listen to the same signals.
            signal.signal(number, handler)


def stop_requested(
    requested: threading.Event, *signals: signal.Signals
) -> contextlib.AbstractContextManager[None]:
    """These signals only set `asked`."""
    return handled(lambda *_: requested.set(), *signals)


def stopped_by(*signals: signal.Signals) -> contextlib.AbstractContextManager[None]:
    """These signals raise `Stopped`."""

    def stop(*_):
        raise Stopped("stopped")

    return handled(stop, *signals)


class Preemption:
    """Context manager. While it is open SIGTERM and SIGHUP only set a flag; `reached(step)` says
    whether to save and leave.

    With several processes JAX's coordination service catches SIGTERM in any one of them and makes
    all leave after the same step.
    """

    def __init__(self):
        self._asked = threading.Event()
        self._step = 0
        signals = [signal.SIGTERM, signal.SIGHUP]
        # With several the coordination service has a handler of its own, which must stay.
        if jax.process_count() > 1:
            signals.remove(signal.SIGTERM)
        self._heard = handled(lambda *_: self._ask(), *signals)

    def __enter__(self) -> "Preemption":
        self._heard.__enter__()
        return self

    def __exit__(self, *error) -> None:
        self._heard.__exit__(*error)

    def _ask(self) -> None:
        if jax.process_count() > 1:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            self._asked.set()

    def interrupts(
        self, step: int, saved: Callable[[], int]
    ) -> contextlib.AbstractContextManager[None]:
        """Around the steps from `step` on: the first interrupt is heard as SIGTERM is, and the
        second ends the process (see `twice`). saved: gives the last step on disk; 0: none."""
        self._step = step

        def first() -> str:
            self._ask()
            return (
                "interrupted: the run saves after this step and ends; Ctrl-C once more ends it at"
                f" once, and {_lost(saved())} are lost"
            )

        def second() -> str:
            return (
                f"left at once at step {self._step}: {_lost(saved())} are lost; the same command"
                " goes on from there"
            )

        return twice(first, second)

    def reached(self, step: int) -> bool:
        """To be called by every process after every step."""
        self._step = step
        if jax.process_count() > 1:
            return multihost_utils.reached_preemption_sync_point(step)
        return self._asked.is_set()


def _lost(saved: int) -> str:
    if saved:
        return f"the steps since checkpoint {saved}"
    return "all steps, of which none is saved yet,"
