"""An error of one process of several: shown at once, or where it is of another process, after JAX's
service had the time to say which."""

import sys

import jax
import pytest

from xlingjax.runtime import leaving


@pytest.mark.parametrize(
    ("error", "waited"),
    [
        # As gloo and the coordination service write them (jaxlib 0.10.2).
        ("Gloo all-reduce failed: [1] Read error [127.0.0.1]:1: Connection reset by peer", 25),
        ("UNAVAILABLE: The following tasks are unhealthy", 25),
        ("INTERNAL: Barrier failed: start", 25),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 12 bytes", 0),
    ],
)
def test_what_another_process_caused_is_shown_late(monkeypatch, error, waited):
    seen = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, *_: seen.append(kind))
    monkeypatch.setattr(leaving.time, "sleep", seen.append)
    leaving.leave_after_errors(heartbeat=10)
    for raised in (jax.errors.JaxRuntimeError(error), ValueError(error)):
        seen.clear()
        sys.excepthook(type(raised), raised, None)
        of_jax = isinstance(raised, jax.errors.JaxRuntimeError)
        expected = [waited] if waited and of_jax else []
        assert seen == [*expected, type(raised)]
