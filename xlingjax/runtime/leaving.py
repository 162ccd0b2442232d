"""A process of several that ends in an error: it does not hold the others.

At its end JAX waits for the other processes, up to five minutes, while they wait in a collective
for this one.
"""

import os
import re
import sys
import threading
import time

PATIENCE = 15
"""Seconds in which the others may end as well, where all were refused for the same reason."""

_OF_ANOTHER = re.compile(
    r"barrier|coordination|gloo|heartbeat|peer|socket|unavailable|unhealthy", re.IGNORECASE
)
"""In an error of JAX: what was waited for is another process."""


def leave_soon(status: int) -> None:
    """To be called when an error ends this process: it is gone within PATIENCE seconds, and the
    others hear of that. Nothing happens in a run of one process."""
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return
    # A daemon, so that a process which can end at once does.
    timer = threading.Timer(PATIENCE, os._exit, [status])
    timer.daemon = True
    timer.start()


def leave_after_errors(heartbeat: int) -> None:
    """From now on an error that nobody catches ends this process soon after it was shown.

    heartbeat: seconds in which JAX's service finds out that another process died. It then ends this
    one, with a line that says which (see `survivor`); a collective that fails before that knows
    less, so its error is shown only where no such end follows.
    """
    shown = sys.excepthook

    def show_and_leave(kind, error, trace) -> None:
        if _is_of_another(error):
            print(
                "waiting for the service to say which process is gone", file=sys.stderr, flush=True
            )
            time.sleep(heartbeat + PATIENCE)
        shown(kind, error, trace)
        leave_soon(1)

    sys.excepthook = show_and_leave


def _is_of_another(error: BaseException) -> bool:
    jax = sys.modules["jax"]
    return isinstance(error, jax.errors.JaxRuntimeError) and bool(_OF_ANOTHER.search(str(error)))
