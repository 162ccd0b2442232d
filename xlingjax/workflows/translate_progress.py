"""How far `translate` and `generate` are, and how fast they were."""

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Meter:
    """Progress on a terminal's standard error, and its last line."""

    def __init__(self, total: int | None, done: int):
        console = Console(stderr=True)
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("lines  {task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self._task = self._bar.add_task("", total=total, completed=done, rate="")
        self._done = done
        self._tokens = 0
        self._started = time.monotonic()

    def __enter__(self):
        self._bar.start()
        return self

    def __exit__(self, *_):
        self._bar.stop()

    def batch(self, lines: int, tokens: int) -> None:
        self._tokens += tokens
        self._bar.update(self._task, advance=lines, rate=f"{self._rate():,.0f} tokens/s")

    def lines(self, number: int) -> None:
        """So many are finished, empty ones among them."""
        self._bar.update(self._task, completed=number)

    def _rate(self) -> float:
        return self._tokens / (time.monotonic() - self._started)

    def summary(self, number: int) -> str:
        before = ""
        if self._done:
            before = f" and {self._done:,} before"
        seconds = time.monotonic() - self._started
        lines = f"{number - self._done:,} lines{before}"
        return f"{lines}, {seconds:.1f} s, {self._rate():,.0f} tokens/s"
