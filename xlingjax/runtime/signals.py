"""Asked to stop: SIGTERM (or a cluster's preemption notice) ends a run at a step that all processes
agree on."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

import jax
from jax.experimental import multihost_utils

from xlingjax.errors import Stopped


@contextlib.contextmanager
def handled(
    handler: Callable[..., None],
    *signals: signal.Signals,
) -> Iterator[None]:
    """These signals call `handler`, but for those that are ignored, and in threads, which get
    none."""
    # Python sets handlers in the main thread alone.
    here = threading.current_thread() is threading.main_thread()
    heard = [
        number
        for number in signals
        if here and signal.getsignal(number) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            # What was there before: a caller may listen to the same signals.
            signal.signal(number, handler)


def stop_requested(
    requested: threading.Event,
    *signals: signal.Signals,
) -> contextlib.AbstractContextManager[None]:
    """These signals only set `asked`."""
    return handled(lambda *_: requested.set(), *signals)


def stopped_by(
    *signals: signal.Signals,
) -> contextlib.AbstractContextManager[None]:
    """These signals raise `Stopped`."""

    def stop(*_):
        raise Stopped("stopped")

    return handled(stop, *signals)


class Preemption:
    """Context manager. While it is open SIGTERM only sets a flag; `reached(step)` says whether to
    save and leave.

    With several processes JAX's coordination service catches the signal in any one of them and
    makes all leave after the same step.
    """

    def __init__(self):
        self._asked = threading.Event()
        # With several the coordination service has a handler of its own, which must stay.
        self._heard: contextlib.AbstractContextManager[None]
        self._heard = contextlib.nullcontext()
        if jax.process_count() == 1:
            self._heard = stop_requested(self._asked, signal.SIGTERM)

    def __enter__(self) -> "Preemption":
        self._heard.__enter__()
        return self

    def __exit__(self, *error) -> None:
        self._heard.__exit__(*error)

    def reached(self, step: int) -> bool:
        """To be called by every process after every step."""
        if jax.process_count() > 1:
            return multihost_utils.reached_preemption_sync_point(step)
        return self._asked.is_set()
