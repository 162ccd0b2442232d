"""Processes that are only half described, and the compile cache."""

import os
import socket
import subprocess
import sys

import jax
import pytest

from xlingjax.data.store.entries import cache_root
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


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        coordinator = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match="Address already in use, by .*; choose another port"):
            join_processes(RuntimeConfig("", coordinator, 2, 0))


def test_without_a_home_the_cache_is_asked_for(monkeypatch):
    monkeypatch.delenv("XLINGJAX_CACHE", raising=False)
    # As in a container whose user has neither HOME nor an entry in passwd.
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(UserError, match="no home folder: .* set XLINGJAX_CACHE"):
        cache_root()
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        set_compile_cache()
        # And no folder "~" is made.
        assert not jax.config.jax_compilation_cache_dir
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
