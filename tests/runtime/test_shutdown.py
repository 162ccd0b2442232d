"""Signals that end a run: the first asks, a second Ctrl-C ends."""

import os
import signal
import sys
import textwrap
import time

import pytest

from tests.helpers.processes import started
from xlingjax.runtime.shutdown import Shutdown

SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


@pytest.fixture(autouse=True)
def ordinary_signals():
    """Whatever the tests were started by."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_run_is_asked_to_stop(number):
    shutdown = Shutdown()
    with shutdown.listen(), shutdown.interrupts():
        assert not shutdown.reached(1)
        os.kill(os.getpid(), number)
        assert shutdown.reached(2)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_is_ignored_stays_ignored():
    """As SIGHUP under nohup, and SIGINT of a background job."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    shutdown = Shutdown()
    with shutdown.listen(), shutdown.interrupts():
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGINT)
        assert not shutdown.reached(1)


def test_the_first_interrupt_asks_and_the_second_ends(capfd):
    shutdown = Shutdown()
    with pytest.raises(KeyboardInterrupt), shutdown.interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        assert shutdown.reached(7)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    assert "Ctrl-C once more ends it at once" in capfd.readouterr().err


COMMAND = """
    import sys, threading, time
    from xlingjax import __main__
    from xlingjax.cli import main

    def busy(argv):
        # A thread that compiles, which Python would wait for.
        threading.Thread(target=time.sleep, args=(60,)).start()
        print("ready", flush=True)
        time.sleep(60)

    main.run = busy
    sys.exit(__main__.main())
"""


def test_an_interrupted_command_waits_for_no_thread():
    with started([sys.executable, "-c", textwrap.dedent(COMMAND)]) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "interrupted\n"
        assert process.wait() == 130
