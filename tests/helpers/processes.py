"""Other processes of a test, none of which outlives it."""

import contextlib
import signal
import subprocess


def _ordinary_signals():
    # The tests may run under nohup.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def started(command, **options):
    """A process whose standard output and error are one text to be read; killed at the end."""
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
    # In a session of its own, as a terminal's signals are not meant for it.
    process = subprocess.Popen(
        command, preexec_fn=_ordinary_signals, start_new_session=True, **settings
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
