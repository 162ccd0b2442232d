"""Work in processes of their own.

They are programs (`python -m xlingjax.runtime.workers`) that take pickled calls from their standard
input: a fork would copy what JAX started, and a spawned process would run the user's script once
more.
"""

import contextlib
import json
import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError

Calls = Sequence[tuple[str, Callable[[], Any]]]
"""(what an error names, the call) of each; what the calls give is lost, so that they write it."""
_Waiting = queue.SimpleQueue[tuple[str, Path]]


def default_processes() -> int:
    """As many as this process has cores."""
    # Of a machine's cores a process may have fewer, which only Linux tells.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_processes(calls: Calls, processes: int) -> None:
    """Makes the calls, each process one after another. Those that no other program can import, as
    of the user's own script, are left out: the caller then makes them itself. Raises UserError with
    the words of the first that fails."""
    errors: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        waiting: _Waiting = queue.SimpleQueue()
        count = 0
        for number, (shown, call) in enumerate(calls):
            path = Path(folder) / f"{number}.pickle"
            with contextlib.suppress(pickle.PicklingError, AttributeError, TypeError):
                path.write_bytes(pickle.dumps(call))
                waiting.put((shown, path))
                count += 1
        threads = []
        for _ in range(min(processes, count)):
            thread = threading.Thread(target=_drive, args=(waiting, errors))
            thread.start()
            threads.append(thread)
        try:
            for thread in threads:
                thread.join()
        finally:
            # Interrupted: what is begun ends, and nothing else begins.
            with contextlib.suppress(queue.Empty):
                while True:
                    waiting.get_nowait()
    if errors:
        raise UserError(errors[0])


def _drive(waiting: _Waiting, errors: list[str]) -> None:
    """Gives a process one call after another."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=_environment(),
        # Ctrl-C reaches this process alone, at whose end they end.
        process_group=0,
    ) as process:
        try:
            while not errors:
                shown, path = waiting.get_nowait()
                error = _answer(process, shown, path)
                if error:
                    errors.append(error)
        except queue.Empty:
            pass
        finally:
            # At the end of its input it ends.
            process.stdin.close()


def _answer(process: subprocess.Popen, shown: str, path: Path) -> str:
    """What went wrong with a call; "": nothing."""
    try:
        process.stdin.write(f"{path}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    except OSError:
        answer = ""
    if not answer:
        return (
            f"{shown}: the process that read it ended with status {process.wait()}; is the memory"
            " used up? What is made is kept: start again"
        )
    return json.loads(answer)


def _environment() -> dict[str, str]:
    """This process's, with this package where it was imported from."""
    paths = [str(Path(__file__).parents[2])]
    if os.environ.get("PYTHONPATH"):
        paths.append(os.environ["PYTHONPATH"])
    # There is a process for each core.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TOKENIZERS_PARALLELISM": "false"}


def main() -> None:
    # What else is said must not be taken for an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        error = ""
        # What cannot be imported here is left to the caller.
        with contextlib.suppress(AttributeError, ImportError):
            call = pickle.loads(Path(line.rstrip("\n")).read_bytes())
            try:
                call()
            except (UserError, OSError) as failure:
                error = str(failure)
        print(json.dumps(error), file=answers, flush=True)


if __name__ == "__main__":
    main()
