"""A command that prints nothing says how far it is: a log by the minute, a terminal at once."""

import os
import pty
import re
import subprocess
import sys

from xlingjax.runtime import progress

SILENT = """
import sys, time
from xlingjax.runtime import progress
from xlingjax.runtime.quiet import Printed

sys.stdout, sys.stderr = Printed(sys.stdout), Printed(sys.stderr)
progress.MINUTE, progress.SOON = 3, 0.5
with progress.told("vocab"):
    counter = progress.Progress("encoding", " of 2,000")
    counter.add(600)
    counter.add(300)
    time.sleep(4.5)
    print("first", flush=True)
    time.sleep(1.5)
    print("second", flush=True)
"""


def test_a_log_gets_a_line_a_minute_and_none_while_the_command_prints():
    done = subprocess.run([sys.executable, "-c", SILENT], capture_output=True, text=True)
    assert done.stdout == "first\nsecond\n"
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(
        r"vocab: 0:0[34] so far, encoding: 900 of 2,000 sentences, [\d,]+ a second", line
    )


def test_a_terminal_has_a_line_that_output_replaces():
    parent, child = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", SILENT], stdout=child, stderr=child) as process:
        process.wait()
    os.close(child)
    shown = b""
    while part := _read(parent):
        shown += part
    text = shown.decode()
    assert text.count("encoding: 900 of 2,000") >= 3
    # What is left: each line is erased before something else is written.
    left = "".join(re.sub(r"[^\n]*\r\x1b\[K", "", line) for line in re.split(r"(?<=\n)", text))
    assert left.replace("\r", "") == "first\nsecond\n"


def _read(end):
    try:
        return os.read(end, 10_000)
    # Linux's word for the end.
    except OSError:
        return b""


def test_what_is_done_is_of_now_alone():
    progress.doing("reading a\x1b[2J\x9b.txt")
    assert progress._Work.doing == "reading a?[2J?.txt"
    progress.before_output()
    assert progress._Work.doing == ""
