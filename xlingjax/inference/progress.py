"""How far a long encoding has come, and how fast."""

import dataclasses
import sys
import time
from collections.abc import Callable

from xlingjax.runtime.machine import is_primary

SECONDS = 10  # between two lines


@dataclasses.dataclass
class Progress:
    """Says every ten seconds on stderr how many sentences are done, and how many a second."""

    of: str = ""  # " of 10,000"
    where: str = "encoding"  # what it is about, which may change
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self):
        self.count = 0
        self.started = self.said = self.clock()

    def add(self, sentences: int) -> None:
        self.count += sentences
        now = self.clock()
        if now - self.said < SECONDS or not is_primary():
            return
        rate = self.count / (now - self.started)
        line = f"{self.where}: {self.count:,}{self.of} sentences, {rate:,.0f} a second"
        print(line, file=sys.stderr, flush=True)
        self.said = now
