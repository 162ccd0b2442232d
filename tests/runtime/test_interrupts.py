"""Ctrl-C, once and twice; signals that ask a run to stop."""

import os
import signal
import sys
import textwrap
import threading
import time

import pytest

from tests.helpers.processes import started
from xlingjax.runtime import interrupts
from xlingjax.runtime.interrupts import command_interrupts
from xlingjax.runtime.signals import Preemption


@pytest.fixture(autouse=True)
def ordinary_signals():
    """Whatever the tests were started by."""
    numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_is_asked_to_stop(number):
    with Preemption() as preemption:
        assert not preemption.reached(1)
        os.kill(os.getpid(), number)
        assert preemption.reached(2)
    assert signal.getsignal(number) == signal.SIG_DFL


def test_what_is_ignored_stays_ignored():
    """As SIGHUP under nohup, and SIGINT of a background job."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Preemption() as preemption, preemption.interrupts(0, lambda: 0):
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGINT)
        assert not preemption.reached(1)
    with command_interrupts():
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def wait_for(condition):
    until = time.monotonic() + 10
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    assert condition()


def test_the_first_interrupt_asks_and_the_second_ends(monkeypatch):
    said = []
    monkeypatch.setattr(interrupts, "_tell", said.append)
    preemption = Preemption()
    with pytest.raises(KeyboardInterrupt), preemption.interrupts(4, lambda: 4):
        assert not preemption.reached(6)
        os.kill(os.getpid(), signal.SIGINT)
        wait_for(lambda: preemption.reached(7))
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    assert said == [
        "interrupted: the run saves after this step and ends; Ctrl-C once more ends it at once, and"
        " the steps since checkpoint 4 are lost",
        "left at once at step 7: the steps since checkpoint 4 are lost; the same command goes on"
        " from there",
    ]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.set_wakeup_fd(-1) == -1
    assert threading.active_count() == 1 or not any(
        thread.name.endswith("(listen)") for thread in threading.enumerate()
    )


def test_before_the_first_checkpoint_all_steps_are_lost(monkeypatch):
    said = []
    monkeypatch.setattr(interrupts, "_tell", said.append)
    with Preemption().interrupts(0, lambda: 0):
        os.kill(os.getpid(), signal.SIGINT)
        wait_for(lambda: said)
    assert said[0].endswith("and all steps, of which none is saved yet, are lost")


COMMAND = """
    import sys, time
    from xlingjax.runtime.interrupts import command_interrupts, twice

    def busy():
        # Held in C, as by a compiler.
        print("ready", flush=True)
        import ctypes
        ctypes.CDLL(None).pause()
        ctypes.CDLL(None).sleep(60)

    with command_interrupts():
        if sys.argv[1] == "import":
            import swallowing
            print("swallowed")
        with twice(lambda: "first", lambda: "second"):
            busy()
"""
SWALLOWING = """
    import os, time
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    print("ready", flush=True)
    try:
        time.sleep(60)
    except BaseException:
        pass
"""


@pytest.mark.parametrize(
    "how, presses, said", [("import", 1, "interrupted\n"), ("steps", 2, "first\nsecond\n")]
)
def test_a_command_is_left_at_once(how, presses, said, tmp_path):
    """In an import that swallows exceptions and has stderr elsewhere, and in a call of C."""
    (tmp_path / "swallowing.py").write_text(textwrap.dedent(SWALLOWING))
    command = [sys.executable, "-c", textwrap.dedent(COMMAND), how]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    with started(command, env={**os.environ, "PYTHONPATH": path}) as process:
        assert process.stdout.readline() == "ready\n"
        for _ in range(presses):
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
        assert process.stdout.read() == said
        assert process.wait() == 130
