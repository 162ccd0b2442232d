"""Work in processes of their own: not forks, which would copy what JAX started."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from xlingjax.errors import UserError
from xlingjax.runtime.progress import doing

Calls = Sequence[tuple[str, Callable[[], Any]]]
"""(what an error names, the call) of each; what the calls give is lost, so that they write it."""


def default_processes() -> int:
    """As many as this process has cores, which may be fewer than the machine's."""
    return len(os.sched_getaffinity(0))


def in_processes(calls: Calls, processes: int) -> None:
    """Makes the calls, each process one after another. Those that no other program can import, as
    of the user's own script, are left out: the caller then makes them itself. Raises UserError with
    the words of the first that fails."""
    packed = []
    for shown, call in calls:
        with contextlib.suppress(pickle.PicklingError, AttributeError, TypeError):
            packed.append((shown, pickle.dumps(call)))
    if not packed:
        return
    pool = concurrent.futures.ProcessPoolExecutor(
        min(processes, len(packed)), multiprocessing.get_context("spawn"), _alone
    )
    try:
        with _without_script():
            begun = {pool.submit(_make, content): shown for shown, content in packed}
        for number, future in enumerate(concurrent.futures.as_completed(begun), 1):
            doing(f"{number} of {len(begun)} parts")
            if error := future.result():
                raise UserError(error)
    except BrokenProcessPool:
        raise UserError(
            f"{begun[future]}: a process that read it or another text was ended; is the memory used"
            " up? What is made is kept: start again"
        ) from None
    finally:
        # Interrupted: what is begun ends, and nothing else begins.
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _without_script() -> Iterator[None]:
    """Processes that begin meanwhile do not run the user's script once more."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _alone() -> None:
    # Ctrl-C is for the process that began them, at whose end they end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _make(content: bytes) -> str:
    """What went wrong with a call; "": nothing, or it cannot be imported here."""
    with contextlib.suppress(AttributeError, ImportError):
        call = pickle.loads(content)
        try:
            call()
        except (UserError, OSError) as failure:
            return str(failure)
    return ""
