"""Ctrl-C. In the steps of a run the first has it save and leave, the second leaves at once; in an
import it ends the command, before its work has begun."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

STATUS = 130
"""What a shell gives for an interrupt: 128 and the number of SIGINT."""
_SHOW_CURSOR = "\x1b[?25h"

# Where a command's own words go, whatever stderr is at that time: TensorFlow is imported with
# another one.
_terminal = 2


@contextlib.contextmanager
def command_interrupts() -> Iterator[None]:
    """Around a command: an interrupt in an import ends the process. An exception there may be
    swallowed, or shown as a traceback, by what is imported."""
    global _terminal
    # A caller's own handler stays, and an interrupt that is ignored.
    if not _is_heard() or signal.getsignal(signal.SIGINT) is not (signal.default_int_handler):
        yield
        return
    _terminal = os.dup(2)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(_terminal)
        _terminal = 2


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _leave("interrupted")
        frame = frame.f_back
    raise KeyboardInterrupt


def _leave(line: str) -> NoReturn:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    _tell(line)
    # Nothing else is run: threads that write or compile would be waited for.
    os._exit(STATUS)


def _tell(line: str) -> None:
    # A live line hides the cursor.
    if os.isatty(_terminal):
        line = f"{_SHOW_CURSOR}\n{line}"
    with contextlib.suppress(OSError):
        os.write(_terminal, f"{line}\n".encode())


@contextlib.contextmanager
def twice(first: Callable[[], str], second: Callable[[], str]) -> Iterator[None]:
    """While it is open the first interrupt calls `first`, and the second, of a command, ends the
    process at once, whatever it is at; of other programs it raises KeyboardInterrupt. Both give a
    line to be shown."""
    if not _is_heard():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    presses: list[int] = []
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def listen() -> None:
        count = 0
        while byte := os.read(reading, 1):
            if byte[0] != signal.SIGINT:
                continue
            count += 1
            if count == 1:
                _tell(first())
            elif before is _interrupt:
                _leave(second())

    def handle(number: int, frame: FrameType | None) -> None:
        presses.append(number)
        if len(presses) > 1 and before is not _interrupt:
            _tell(second())
            raise KeyboardInterrupt

    # By a thread, which hears of a signal while the main one is in a compiler.
    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.set_wakeup_fd(woken)
        os.close(writing)
        listening.join()
        os.close(reading)


def _is_heard() -> bool:
    """Python hears signals in its main thread alone; `nohup` and shells have some ignored."""
    return (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) != signal.SIG_IGN
    )
