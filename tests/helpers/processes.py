"""Other processes of a test, none of which outlives it."""

import contextlib
import signal
import subprocess

_ORDINARY = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def started(command, **options):
    """A process whose standard output and error are one text to be read; killed at the end."""
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
    # Ignored signals are inherited, and the tests may run under nohup. Not in the child before it
    # begins: to fork a process of many threads for that may halt.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in _ORDINARY}
    try:
        # In a session of its own, as a terminal's signals are not meant for it.
        process = subprocess.Popen(command, start_new_session=True, **settings)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
