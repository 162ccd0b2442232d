"""Compilers of accelerators that are not there: where their wheels are, what a process needs to use
them, and the devices they compile for."""

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import jax
from jax.experimental import topologies

from xlingjax.errors import UserError
from xlingjax.runtime.accelerators import Gpu, Machine, Tpu, target_config

WHEELS: Mapping[str, tuple[str, ...]] = {
    "tpu": ("libtpu",),
    "cuda": ("jax-cuda12-plugin=={jax}", "jax-cuda12-pjrt=={jax}", "nvidia-cuda-nvcc-cu12"),
}
"""What `pip` installs; {jax}: the version of jaxlib."""
_MODULES = {"tpu": "libtpu", "cuda": "jax_plugins.xla_cuda12"}
# What a program of these wheels finds when it runs.
_CUDA_VERSION = "12.8"
_CUDNN_VERSION = "9.10"


def folder_of(compiler: str) -> Path:
    """Where its wheels stand, beside the environment: inside of it every command on a machine
    without such a device would print their complaints."""
    return Path(sys.prefix) / compiler


def install_command(compiler: str) -> str:
    wheels = " ".join(WHEELS[compiler])
    # jaxlib, jax and the plugins have one version.
    wheels = wheels.format(jax=version("jaxlib"))
    folder = folder_of(compiler)
    return f"{sys.executable} -m pip install --no-deps --target {folder} {wheels}"


def environment(compiler: str) -> dict[str, str]:
    """Variables of a process that compiles for such devices. Raises UserError where the wheels are
    missing."""
    folder = folder_of(compiler)
    found = dict(os.environ)
    module = _MODULES[compiler]
    inside = folder / module.replace(".", "/")
    if inside.is_dir():
        path = [str(folder), *filter(None, [found.get("PYTHONPATH")])]
        found["PYTHONPATH"] = os.pathsep.join(path)
    elif not _is_installed(module):
        raise UserError(
            f"the compiler of {compiler} is not installed; install it beside this environment:"
            f" `{install_command(compiler)}`"
        )
    # No device is looked for: only the compiler is asked.
    found["JAX_PLATFORMS"] = "cpu"
    # Programs for other devices are no use to the cache of this one.
    found["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    if compiler == "tpu":
        # Else it asks the cloud which machine this is, and lets one process at a time in.
        found["TPU_SKIP_MDS_QUERY"] = "1"
        found["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
        return found
    nvcc = folder / "nvidia" / "cuda_nvcc"
    if nvcc.is_dir():
        found["PATH"] = os.pathsep.join([str(nvcc / "bin"), found["PATH"]])
        flags = f"--xla_gpu_cuda_data_dir={nvcc}"
        found["XLA_FLAGS"] = f"{found.get('XLA_FLAGS', '')} {flags}".strip()
    return found


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def devices_of(machine: Machine) -> Sequence[jax.Device]:
    """Its devices, to compile for; they run nothing. Raises UserError for a machine that the
    compiler does not know."""
    accelerator = machine.accelerator
    try:
        if isinstance(accelerator, Tpu):
            return _pod(accelerator, machine.shape).devices
        assert isinstance(accelerator, Gpu)
        return _gpus(accelerator, machine.devices).devices
    except (RuntimeError, ValueError) as error:
        line = f"{error}".splitlines()[0]
        raise UserError(f"--on {machine.name}: its compiler refuses it: {line}") from None


def _pod(tpu: Tpu, shape: tuple[int, ...]) -> topologies.TopologyDescription:
    whole = (*shape, 1, 1)[:3]
    # A host of a pod has 2 x 2 chips; smaller ones stand alone.
    bounds = tuple(min(2, n) for n in whole[:2])
    config = "default"
    if tpu.megacore:
        config = "megacore"
    return topologies.get_topology_desc(
        platform="tpu",
        topology_name=f"{tpu.topology}:{'x'.join(map(str, shape))}",
        chip_config_name=config,
        chips_per_host_bounds=[*bounds, 1],
    )


def _gpus(gpu: Gpu, count: int) -> topologies.TopologyDescription:
    of_host = min(count, gpu.per_host)
    return topologies.get_topology_desc(
        platform="cuda",
        target_config=target_config(gpu, _CUDA_VERSION, _CUDNN_VERSION),
        topology=f"1x{count // of_host}x{of_host}",
    )
