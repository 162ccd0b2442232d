"""What a process says when another one of its run dies.

JAX's coordination service then ends the process from C++, past every handler of Python, with a
stack trace. What it writes goes through a second, small process, which says it in a line.
"""

import os
import re
import select
import subprocess
import sys
from collections.abc import Callable

_BEGINS = re.compile(
    rb"^[EF]\d{4} .*(coordination_service|Terminating process because the JAX distributed)"
)
_ENDS = b"Terminating process because the JAX distributed"
_SILENT = re.compile(rb"stopped sending heartbeats\):\n([\d, ]+)\n|[Tt]ask (\d+) heartbeat timeout")
PATIENCE = 10
"""Seconds that an error of the service is held back: it may be followed by the end."""


def explain_deaths() -> None:
    """From now on what this process writes to stderr goes through `pass_on`."""
    sys.stderr.flush()
    reading, writing = os.pipe()
    # By its file: the package would import JAX. Away from the terminal's signals: it has to live
    # as long as what it listens to.
    command = [sys.executable, "-I", "-S", __file__]
    subprocess.Popen(command, stdin=reading, start_new_session=True)
    os.close(reading)
    os.dup2(writing, 2)
    os.close(writing)


def pass_on(read: int, write: Callable[[bytes], object]) -> None:
    """Lines of a file descriptor to `write` until it ends, as they come; but those of a process
    that ends with others of its run as one."""
    held = b""
    rest = b""
    while True:
        ready = True
        if held:
            ready = bool(select.select([read], [], [], PATIENCE)[0])
        # It goes on after all.
        if not ready and _ENDS not in held:
            write(held)
            held = b""
        data = b""
        if ready:
            data = os.read(read, 1 << 16)
            if not data:
                break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if held or _BEGINS.match(line):
                held += line + b"\n"
            else:
                write(line + b"\n")
        # What has no end yet may be a question, or progress.
        if rest and not held and not _BEGINS.match(rest[:200]):
            write(rest)
            rest = b""
    held += rest
    if _ENDS in held:
        held = _said(held)
    write(held)


def _said(trace: bytes) -> bytes:
    """In a line."""
    # Where it is the first that is gone, no service is left to say so.
    who = "process 0"
    if silent := _SILENT.search(trace):
        who = f"process {(silent[1] or silent[2]).decode().strip()}"
    line = (
        f"error: {who} of this run died or cannot be reached, so this process ends; see what it"
        " wrote, and start all processes again: they go on from the last checkpoint\n"
    )
    return line.encode()


if __name__ == "__main__":
    pass_on(0, lambda data: os.write(2, data))
