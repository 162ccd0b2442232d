"""What a command says while it is at work and prints nothing else."""

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator

SOON = 3  # seconds of silence before a terminal shows a line
MINUTE = 60  # and between two lines of a log
ERASE = "\r\x1b[K"


class _Work:
    """Of this process."""

    doing = ""  # how far it is
    printed = 0.0  # when something was printed last
    line = ""  # what stands on the terminal now


def doing(what: str) -> None:
    """Say how far the work is, until something is printed: "reading de.txt", "3 of 8 languages"."""
    # Names of files may hold what a terminal obeys.
    _Work.doing = "".join(one if one.isprintable() else "?" for one in what)


def before_output() -> None:
    """To be called before anything is printed: it takes the place of the line."""
    _Work.printed, _Work.doing = time.monotonic(), ""
    if _Work.line:
        _Work.line = ""
        _write(ERASE)


@contextlib.contextmanager
def told(name: str) -> Iterator[None]:
    """While the block is silent, stderr has `name`, how long it is at work and what it is doing: on
    a terminal in a line that is replaced each second, in a log by a line a minute."""
    end = threading.Event()
    thread = threading.Thread(target=_tell, args=(name, end), daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        before_output()


def _tell(name: str, end: threading.Event) -> None:
    on_terminal = sys.stderr.isatty()
    began = said = _Work.printed = time.monotonic()
    while not end.wait(1):
        now = time.monotonic()
        minutes, seconds = divmod(int(now - began), 60)
        line = f"{name}: {minutes}:{seconds:02} so far{_Work.doing and f', {_Work.doing}'}"
        if on_terminal and now - _Work.printed >= SOON:
            _Work.line = line[: shutil.get_terminal_size().columns - 1]
            _write(ERASE + _Work.line)
        elif not on_terminal and now - max(said, _Work.printed) >= MINUTE:
            said = now
            _write(f"{line}\n")


def _write(text: str) -> None:
    # Past what shows control characters instead of obeying them.
    with contextlib.suppress(OSError, ValueError):
        stream = sys.__stderr__
        stream.write(text)
        stream.flush()


class Progress:
    """How many sentences of `of` are done, and how many a second."""

    def __init__(self, where: str, of: str = ""):
        self.where, self.of = where, of
        self.count, self.started = 0, time.monotonic()

    def add(self, sentences: int) -> None:
        self.count += sentences
        rate = self.count / max(time.monotonic() - self.started, 1e-9)
        doing(f"{self.where}: {self.count:,}{self.of} sentences, {rate:,.0f} a second")
