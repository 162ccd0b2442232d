"""Processes that are only half described, and the compile cache."""

import os
import statistics
import subprocess
import sys

import jax
import pytest

from xlingjax.errors import UserError
from xlingjax.runtime.machine import (
    RuntimeConfig,
    all_agree,
    join_processes,
    set_compile_cache,
    start,
)


@pytest.mark.parametrize(
    "config",
    [
        dict(coordinator="127.0.0.1:1"),
        dict(num_processes=2),
        dict(coordinator="a:1", num_processes=2, process_id=2),
    ],
)
def test_several_processes_need_all_three_values(config):
    with pytest.raises(
        UserError, match="need coordinator .*, num_processes and process_id together"
    ):
        join_processes(RuntimeConfig(**config))


def test_a_variable_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setenv("XLINGJAX_NUM_PROCESSES", "two")
    with pytest.raises(UserError, match="XLINGJAX_NUM_PROCESSES='two' is not a whole number"):
        join_processes(RuntimeConfig())


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "a"},
        # Of the shell of a batch job, outside of `srun`.
        {"SLURM_NTASKS": "16", "SLURM_PROCID": "0"},
    ],
)
def test_one_process_needs_none(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert start() == "8 x cpu (cpu), 1 process x 8 devices"
    assert all_agree(True) and not all_agree(False)


@pytest.mark.parametrize(
    "asked, repair",
    [
        pytest.param("", "unset JAX_PLATFORMS", marks=pytest.mark.long),
        ("gpu", "install xlingjax[cuda]"),
    ],
)
def test_a_platform_that_jax_is_installed_without(asked, repair):
    """In a process of its own, since JAX chooses once."""
    code = (
        f"from xlingjax.runtime.machine import *\ntry: start(RuntimeConfig({asked!r}))\nexcept"
        " UserError as e: print(e)"
    )
    environment = {**os.environ, "JAX_PLATFORMS": "cuda", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert f"platform '{asked or 'cuda'}' is not available" in done.stdout and repair in done.stdout


def test_compile_cache():
    before = jax.config.jax_compilation_cache_dir
    assert before  # the tests' own
    set_compile_cache()
    assert jax.config.jax_compilation_cache_dir == before  # what is set stays


STEPS = """
import resource, sys
import jax, jax.numpy as jnp
from xlingjax.runtime.machine import keep_freed_memory

print(keep_freed_memory() if "keep" in sys.argv else None)
step = jax.jit(lambda x: (jnp.sin(x @ x.T) @ x).sum())
x = jnp.ones((3000, 8))
for _ in range(21):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step(x).block_until_ready()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.long
def test_a_step_keeps_its_memory():
    """In pages of 4 kB, 36 MB that the system had taken back fault 9,000 times when they are
    written again. The median step counts: on a busy machine XLA now and then hands a step to a
    thread of its own, whose memory is not kept.
    """

    def faults(*arguments):
        environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {
            "JAX_PLATFORMS": "cpu"
        }
        command = [sys.executable, "-c", STEPS, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert not done.returncode, done.stderr
        kept, *counts = done.stdout.split()
        return kept, statistics.median(map(int, counts))

    if faults()[1] < 5000:
        pytest.skip("the system's pages are larger here, so that steps hardly fault")
    kept, count = faults("keep")
    if kept == "False":
        pytest.skip("this C library has no mallopt")
    assert count < 500
