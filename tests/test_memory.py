"""Page faults of a step: in pages of 4 kB, 36 MB that the system had taken back fault 9,000 times."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import jax, jax.numpy as jnp
from xlingjax.memory import keep_freed_memory

print(keep_freed_memory() if "keep" in sys.argv else None)
step = jax.jit(lambda x: ((x @ x).T @ jnp.sin(x)).sum())
x = jnp.ones((3000, 3000))
for _ in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step(x).block_until_ready()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*arguments):
    """(what keep_freed_memory says, page faults of a late step)."""
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "GLIBC_TUNABLES")}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**environment, "JAX_PLATFORMS": "cpu"})
    assert not done.returncode, done.stderr
    kept, *counts = done.stdout.split()
    return kept, int(counts[-1])


def test_a_step_takes_no_memory_from_the_system():
    kept, count = faults("keep")
    if kept == "False":
        pytest.skip("this C library has no mallopt, or this JAX no synchronous dispatch")
    assert count < 500 and faults()[1] > 5000
