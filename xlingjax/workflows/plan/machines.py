"""Machines that one need not have: their published figures (machines.toml), names, compilers."""

import dataclasses
import importlib.util
import math
import os
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError, meant


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """A kind of device; its fields are explained in machines.toml."""

    name: str
    maker: str  # "cuda" or "tpu": the compiler, as JAX names it
    flops: Mapping[str, float]
    memory: int
    share: float
    bandwidth: float
    link: float
    network: float
    per_host: int
    gpu: Mapping[str, Any] | None = None
    """What NVIDIA's compiler must know of a device that is not there."""
    tpu: Mapping[str, Any] | None = None  # what Google's compiler must know

    @property
    def room(self) -> int:
        """Bytes that programs may fill."""
        return int(self.memory * self.share)


@dataclasses.dataclass(frozen=True)
class Machine:
    """Devices of one kind, as they are asked for: "H100:8", "v5e:4x4"."""

    name: str
    accelerator: Accelerator
    shape: tuple[int, ...]  # of a TPU pod its chips in each direction; of GPUs their number

    @property
    def devices(self) -> int:
        return math.prod(self.shape)

    def link(self, devices: int) -> float:
        """Bytes a second that leave one of so many devices that work together in a ring: within a
        machine by links of their own; between machines one of a machine's passes on what leaves
        it, by the network of all."""
        one = self.accelerator
        if devices <= one.per_host:
            return one.link
        return min(one.link, one.network * one.per_host)


_TABLES = tomllib.loads(resources.files(__package__).joinpath("machines.toml").read_text("utf-8"))
ACCELERATORS = {name.lower(): Accelerator(name, **table) for name, table in _TABLES.items()}


def machine_named(name: str) -> Machine:
    """The machine of "H100:8" or "v5e:4x4" (a pod's chips in each direction; "v5e:1": one chip).
    Raises UserError for one that is not known, or that cannot be."""
    kind, _, size = name.strip().partition(":")
    accelerator = ACCELERATORS.get(kind.lower())
    if accelerator is None:
        known = [*(one.name for one in ACCELERATORS.values()), "here"]
        raise UserError(f"--on {name}: no device {kind!r}{meant(kind, known)}")
    shape: tuple[int, ...] = ()
    if re.fullmatch(r"[1-9]\d{0,4}(x[1-9]\d{0,4})*", size, re.ASCII):
        shape = tuple(map(int, size.split("x")))
    if accelerator.tpu is None:
        host = accelerator.per_host
        fits = len(shape) == 1 and (shape[0] <= host or not shape[0] % host)
        wanted = f"a number of devices, a multiple of {host} above {host}: {accelerator.name}:8"
    else:
        dimensions = accelerator.tpu["dimensions"]
        if shape == (1,):
            shape *= dimensions
        # As `devices_of` asks for them: 2 x 2 on a host, or those of a row.
        fits = len(shape) == dimensions and all(side == 1 or not side % 2 for side in shape[:2])
        example = "2x2x2" if dimensions == 3 else "4x4"
        wanted = (
            f"the chips in {dimensions} directions, 1 or even numbers in the first two:"
            f" {accelerator.name}:{example}"
        )
    if not fits:
        raise UserError(f"--on {name}: give {wanted}")
    written = "x".join(map(str, shape))
    return Machine(f"{accelerator.name}:{written}", accelerator, shape)


WHEELS = {
    "tpu": "libtpu",
    "cuda": "jax-cuda12-plugin=={jax} jax-cuda12-pjrt=={jax} nvidia-cuda-nvcc-cu12",
}
"""What `pip` installs; {jax}: the version of jaxlib."""
_MODULES = {"tpu": "libtpu", "cuda": "jax_plugins.xla_cuda12"}


def folder_of(compiler: str) -> Path:
    """Its wheels, beside the environment: inside they complain wherever there is no such device."""
    return Path(sys.prefix) / compiler


def environment(compiler: str) -> dict[str, str]:
    """Variables of a process that compiles for such devices. Raises UserError without wheels."""
    folder = folder_of(compiler)
    variables = dict(os.environ)
    module = _MODULES[compiler]
    if (folder / module.replace(".", "/")).is_dir():
        path = [str(folder), *filter(None, [variables.get("PYTHONPATH")])]
        variables["PYTHONPATH"] = os.pathsep.join(path)
    elif not _is_installed(module):
        wheels = WHEELS[compiler].format(jax=version("jaxlib"))
        raise UserError(
            f"the compiler of {compiler} is not installed; install it beside this environment:"
            f" `{sys.executable} -m pip install --no-deps --target {folder} {wheels}`"
        )
    # No device is looked for: only the compiler is asked.
    variables["JAX_PLATFORMS"] = "cpu"
    variables["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    if compiler == "tpu":
        # Else it asks the cloud which machine this is, and lets one process at a time in.
        variables["TPU_SKIP_MDS_QUERY"] = "1"
        variables["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
    nvcc = folder / "nvidia" / "cuda_nvcc"
    if compiler == "cuda" and nvcc.is_dir():
        variables["PATH"] = os.pathsep.join([str(nvcc / "bin"), variables["PATH"]])
        flags = f"--xla_gpu_cuda_data_dir={nvcc}"
        variables["XLA_FLAGS"] = f"{variables.get('XLA_FLAGS', '')} {flags}".strip()
    return variables


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def become_compiler(variables: Mapping[str, str], errors: str) -> None:
    """Make this process, which has not imported JAX yet, one that compiles for the devices of
    `variables`; what it writes goes to the file `errors`."""
    os.environ.update(variables)
    sys.path[:0] = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    file = os.open(errors, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)


def devices_of(machine: Machine) -> Sequence[Any]:
    """Its devices, to compile for; they run nothing. Raises UserError for an unknown machine."""
    from jax.experimental.topologies import get_topology_desc

    accelerator = machine.accelerator
    if accelerator.tpu is not None:
        # A host of a pod has 2 x 2 chips; smaller ones stand alone.
        bounds = [min(2, n) for n in machine.shape[:2]]
        shape = "x".join(map(str, machine.shape))
        asked = {
            "platform": "tpu",
            "topology_name": f"{accelerator.tpu['topology']}:{shape}",
            "chip_config_name": "megacore" if accelerator.tpu["megacore"] else "default",
            "chips_per_host_bounds": [*bounds, 1],
        }
    else:
        of_host = min(machine.devices, accelerator.per_host)
        asked = {
            "platform": "cuda",
            "target_config": _TARGET.format(
                bandwidth=int(accelerator.bandwidth),
                memory=accelerator.memory,
                **(accelerator.gpu or {}),
            ),
            "topology": f"1x{machine.devices // of_host}x{of_host}",
        }
    try:
        return get_topology_desc(**asked).devices
    except (RuntimeError, ValueError) as error:
        line = f"{error}".splitlines()[0]
        raise UserError(f"--on {machine.name}: its compiler refuses it: {line}") from None


# What XLA reads of an absent GPU (`GpuTargetConfigProto`), in the versions of these wheels.
_TARGET = """\
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared}
  threads_per_core_limit: 2048
  core_count: {cores}
  fpus_per_core: {fpus}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth}
  l2_cache_size: {cache}
  clock_rate_ghz: {clock}
  device_memory_size: {memory}
  shared_memory_per_block_optin: {block}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  cuda_compute_capability {{ major: {capability[0]} minor: {capability[1]} }}
}}
platform_name: "CUDA"
device_description_str: "{name}"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: 12 minor: 8 }}
"""
