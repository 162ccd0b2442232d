"""Seconds that count."""

import time

from xlingjax.training.progress import Stopwatch


def test_stopwatch_leaves_pauses_out():
    clock = Stopwatch()
    with clock.paused():
        time.sleep(0.2)
    time.sleep(0.05)
    first = clock.lap()
    assert 0.05 <= first < 0.2
    with clock.paused():
        time.sleep(0.2)
    assert clock.lap() < 0.2 and clock.seconds() < 0.4
