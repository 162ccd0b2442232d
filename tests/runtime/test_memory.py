"""What the C library keeps of a step's memory, and gives back."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np
from xlingjax.runtime.machine import give_back_memory, keep_freed_memory

def resident():
    with open("/proc/self/status") as file:
        (line,) = [line for line in file if line.startswith("VmRSS")]
    return int(line.split()[1]) >> 10

keep_freed_memory()
# 256 MB, and a block behind them that keeps the heap from shrinking.
large, small = np.ones(1 << 25), np.ones(9)
del large
kept = resident()
give_back_memory(1 << 30)
again = resident()
give_back_memory(1 << 27)
print(kept - resident(), kept - again)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is no glibc")
def test_freed_memory_is_kept_for_the_next_step_and_given_back_beyond_a_limit():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    given_back, within = map(int, done.stdout.split())
    assert given_back > 200 and within < 20, done.stderr
