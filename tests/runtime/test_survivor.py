"""What JAX's coordination service writes when a process dies, and what is left of it."""

import os
import threading
import time

import pytest

from xlingjax.runtime import survivor

# As jaxlib 0.10.2 writes it.
OTHER = b"""\
E1126 09:05:28.496473    2375 coordination_service.cc:1549] [26] Use error polling to propagate: \
UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):
1
The tasks have crashed. Check the task logs for an earlier error [type.googleapis.com/tensorflow]
F1126 09:05:28.500449    2386 client.h:80] Terminating process because the JAX distributed service \
detected fatal errors. This most likely indicates that another task died
1
Traceback (most recent call last):
*** Check failure stack trace: ***
    @     0x7fabda358634  absl::lts_20260107::log_internal::LogMessage::SendToLog()
"""
FIRST = b"""\
E1126 09:06:46.565938    3552 coordination_service_agent.cc:289] Polled an error from coordination
F1126 09:06:46.566019    3552 client.h:80] Terminating process because the JAX distributed service
:UNKNOWN:Error received from peer  {grpc_status:14, grpc_message:"Socket closed"}
*** Check failure stack trace: ***
"""


def passed(*parts, pause=0.0):
    """What comes out of `pass_on`, and when each part was read, what was out."""
    reading, writing = os.pipe()
    out = []
    thread = threading.Thread(target=survivor.pass_on, args=(reading, out.append))
    thread.start()
    seen = []
    for part in parts:
        os.write(writing, part)
        time.sleep(pause or 0.05)
        seen.append(b"".join(out))
    os.close(writing)
    thread.join()
    os.close(reading)
    return b"".join(out), seen


@pytest.mark.parametrize(("trace", "who"), [(OTHER, b"process 1"), (FIRST, b"process 0")])
def test_the_end_of_a_process_is_a_line_that_names_the_dead_one(trace, who):
    out, _ = passed(b"a warning\n", trace[:300], trace[300:])
    before, line = out.splitlines()
    assert before == b"a warning" and line.startswith(b"error: " + who + b" of this run died")


def test_all_else_passes_as_it_comes(monkeypatch):
    error = OTHER.split(b"F1126")[0]
    out, seen = passed(b"50 % ", b"done\nTrace", b"back\n")
    assert out == b"50 % done\nTraceback\n" and seen[0] == b"50 % "
    # An error that no end follows.
    assert passed(error)[0] == error
    monkeypatch.setattr(survivor, "PATIENCE", 0.1)
    out, seen = passed(error, b"later\n", pause=0.4)
    assert out == error + b"later\n" and seen[0] == error
