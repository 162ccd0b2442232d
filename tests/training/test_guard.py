"""Steps are timed by their ends, whether the call computes them or only sends them off."""

import pytest

from xlingjax.training import guard as divergence

LASTS = {"mlm": 1.0, "veco": 3.0, "clpc": 0.5}


class Device:
    """A clock, and a device that computes steps in order, at once or behind the host's back."""

    def __init__(self, at_once):
        self.at_once, self.now, self.free = at_once, 0.0, 0.0

    def step(self, objective):
        self.free = max(self.free, self.now) + LASTS[objective]
        if self.at_once:
            self.now = self.free
        return Count(self, self.free)


class Count:
    def __init__(self, device, done):
        self.device, self.done = device, done

    def is_ready(self):
        return self.device.now >= self.done

    def __int__(self):
        self.device.now = max(self.device.now, self.done)
        return 0


@pytest.mark.parametrize("at_once", [True, False])
def test_each_objective_gets_the_seconds_of_its_own_steps(at_once, tmp_path, monkeypatch):
    device = Device(at_once)
    monkeypatch.setattr(divergence.time, "perf_counter", lambda: device.now)
    guard = divergence.Guard(tmp_path, 3, print)
    for step in range(30):
        objective = list(LASTS)[step % 3]
        guard.push(step, objective, {objective: {}}, device.step(objective), True)
        if step == 15:
            guard.drain()
            device.now += 100.0  # an evaluation
    guard.drain()
    assert guard.seconds_per_step() == pytest.approx(LASTS)
