"""Accelerators that a program can be compiled for without having them: what their makers publish of
them, and the names by which they are asked for.

Peaks are of one device, without sparsity: what no program can pass.
"""

import dataclasses
import difflib
import math
import re
from collections.abc import Mapping

from xlingjax.errors import UserError

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """A kind of device."""

    name: str
    maker: str
    """ "cuda" or "tpu": the compiler, as JAX names it."""
    flops: Mapping[str, float]
    """By compute dtype: operations of matrix products a second, a multiply-add is 2. A dtype that
    is not there is not computed by its matrix units."""
    memory: int
    """Bytes, of which the runtime keeps some for itself."""
    bandwidth: float
    """Bytes a second from and to the memory."""
    link: float
    """Bytes a second that leave a device for the others of its machine or pod."""
    network: float
    """The same, a device's share, for those of other machines. Of a TPU: the links of its pod."""
    per_host: int
    """Devices of a machine."""
    share: float = 1.0
    """Of the memory that programs may fill."""

    @property
    def room(self) -> int:
        """Bytes that programs may fill."""
        return int(self.memory * self.share)


@dataclasses.dataclass(frozen=True)
class Gpu(Accelerator):
    """What NVIDIA's compiler must know of a device that is not there."""

    capability: tuple[int, int] = (0, 0)
    cores: int = 0
    """Streaming multiprocessors."""
    fpus: int = 0
    """Of each: float32 units."""
    clock: float = 0.0
    """GHz, at its highest."""
    shared_memory: int = 0
    """Bytes of a multiprocessor."""
    block_memory: int = 0
    """Bytes of it that a block may ask for."""
    cache: int = 0
    """Bytes of the L2 cache."""
    full_name: str = ""


@dataclasses.dataclass(frozen=True)
class Tpu(Accelerator):
    """What Google's compiler must know."""

    topology: str = ""
    """How the compiler calls the kind."""
    dimensions: int = 2
    megacore: bool = False
    """Two cores of a chip are one device."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """Devices of one kind, as they are asked for: "H100:8", "v5e:4x4"."""

    accelerator: Accelerator
    shape: tuple[int, ...]
    """Of a TPU pod its chips in each direction; of GPUs their number."""

    @property
    def devices(self) -> int:
        return math.prod(self.shape)

    @property
    def name(self) -> str:
        return f"{self.accelerator.name}:{'x'.join(map(str, self.shape))}"

    def link(self, devices: int) -> float:
        """Bytes a second that leave one of so many devices that work together in a ring: within a
        machine by links of their own; between machines one of a machine's passes on what leaves
        it, by the network of all."""
        one = self.accelerator
        if devices <= one.per_host:
            return one.link
        return min(one.link, one.network * one.per_host)


# JAX takes three quarters of a card for its programs if nothing else is said
# (XLA_PYTHON_CLIENT_MEM_FRACTION).
_OF_A_CARD = 0.75

# Volta, Ampere and Hopper architecture white papers; memory as the cards report it; DGX data sheets
# for the network: 4 x 100, 8 x 200 and 8 x 400 Gb/s for 8 devices.
_GPUS = (
    Gpu(
        "V100",
        "cuda",
        flops={"float16": 125e12, "float32": 15.7e12},
        memory=34_079_637_504,
        bandwidth=900e9,
        link=150e9,
        network=6.25e9,
        per_host=8,
        share=_OF_A_CARD,
        capability=(7, 0),
        cores=80,
        fpus=64,
        clock=1.53,
        shared_memory=96 << 10,
        block_memory=96 << 10,
        cache=6 << 20,
        full_name="NVIDIA Tesla V100-SXM2-32GB",
    ),
    Gpu(
        "A100",
        "cuda",
        flops={"bfloat16": 312e12, "float16": 312e12, "float32": 156e12},
        memory=85_093_842_944,
        bandwidth=2039e9,
        link=300e9,
        network=25e9,
        per_host=8,
        share=_OF_A_CARD,
        capability=(8, 0),
        cores=108,
        fpus=64,
        clock=1.41,
        shared_memory=164 << 10,
        block_memory=163 << 10,
        cache=40 << 20,
        full_name="NVIDIA A100-SXM4-80GB",
    ),
    Gpu(
        "H100",
        "cuda",
        flops={"bfloat16": 989e12, "float16": 989e12, "float32": 494e12},
        memory=84_978_434_048,
        bandwidth=3352e9,
        link=450e9,
        network=50e9,
        per_host=8,
        share=_OF_A_CARD,
        capability=(9, 0),
        cores=132,
        fpus=128,
        clock=1.98,
        shared_memory=228 << 10,
        block_memory=227 << 10,
        cache=50 << 20,
        full_name="NVIDIA H100 80GB HBM3",
    ),
)


def _tpu_flops(peak: float) -> dict[str, float]:
    # Products of float32 are made of numbers that are rounded to bfloat16, if nothing else is said
    # (jax_default_matmul_precision).
    return {"bfloat16": peak, "float32": peak}


# The compiler keeps a part of the memory for itself: of 16 GiB it fills 15.75.
_OF_A_CHIP = 63 / 64

# Google Cloud's pages of TPU system architecture; links: all of a chip, one direction.
_TPUS = (
    Tpu(
        "v4",
        "tpu",
        flops=_tpu_flops(275e12),
        memory=32 * GIB,
        bandwidth=1228e9,
        link=300e9,
        network=300e9,
        per_host=4,
        share=_OF_A_CHIP,
        topology="v4",
        dimensions=3,
        megacore=True,
    ),
    Tpu(
        "v5e",
        "tpu",
        flops=_tpu_flops(197e12),
        memory=16 * GIB,
        bandwidth=819e9,
        link=200e9,
        network=200e9,
        per_host=8,
        share=_OF_A_CHIP,
        topology="v5e",
    ),
    Tpu(
        "v5p",
        "tpu",
        flops=_tpu_flops(459e12),
        memory=95 * GIB,
        bandwidth=2765e9,
        link=600e9,
        network=600e9,
        per_host=4,
        share=_OF_A_CHIP,
        topology="v5",
        dimensions=3,
        megacore=True,
    ),
    Tpu(
        "v6e",
        "tpu",
        flops=_tpu_flops(918e12),
        memory=32 * GIB,
        bandwidth=1640e9,
        link=448e9,
        network=448e9,
        per_host=8,
        share=_OF_A_CHIP,
        topology="v6e",
    ),
)
ACCELERATORS: Mapping[str, Accelerator] = {one.name.lower(): one for one in (*_GPUS, *_TPUS)}


def machine_named(name: str) -> Machine:
    """The machine of "H100:8" or "v5e:4x4" (a pod's chips in each direction; "v5e:1": one chip).
    Raises UserError for one that is not known, or that cannot be."""
    kind, _, size = name.strip().partition(":")
    known = ", ".join([*(one.name for one in ACCELERATORS.values()), "here"])
    accelerator = ACCELERATORS.get(kind.lower())
    if accelerator is None:
        near = difflib.get_close_matches(kind.lower(), ACCELERATORS, n=1)
        meant = ""
        if near:
            meant = f"; {ACCELERATORS[near[0]].name} is meant?"
        raise UserError(f"--on {name}: no device {kind!r} (there are {known}){meant}")
    if not re.fullmatch(r"[1-9]\d{0,4}(x[1-9]\d{0,4})*", size, re.ASCII):
        raise UserError(f"--on {name}: how many? Give {_example(accelerator)}")
    shape = tuple(map(int, size.split("x")))
    if isinstance(accelerator, Tpu):
        if math.prod(shape) == 1:
            shape = (1,) * accelerator.dimensions
        if len(shape) != accelerator.dimensions:
            raise UserError(
                f"--on {name}: a pod of {accelerator.name} has {accelerator.dimensions} directions;"
                f" give {_example(accelerator)}"
            )
        # As `compilers` asks for them: 2 x 2 on a host, or those of a row.
        if any(side > 1 and side % 2 for side in shape[:2]):
            raise UserError(
                f"--on {name}: a pod's hosts have 2 x 2 chips: give 1 or even numbers in the"
                f" first two directions, as {_example(accelerator)}"
            )
        return Machine(accelerator, shape)
    if len(shape) != 1:
        raise UserError(f"--on {name}: give {_example(accelerator)}")
    [count] = shape
    host = accelerator.per_host
    if count > host and count % host:
        raise UserError(
            f"--on {name}: more than {host} are several machines of {host}; give a multiple"
        )
    return Machine(accelerator, shape)


def _example(accelerator: Accelerator) -> str:
    if not isinstance(accelerator, Tpu):
        return f"{accelerator.name}:8, the number of devices"
    shape = "x".join(["2", "2", "2"] if accelerator.dimensions == 3 else "44")
    return f"{accelerator.name}:{shape}, the chips in each direction"


def target_config(gpu: Gpu, cuda: str, cudnn: str) -> str:
    """What XLA reads of a GPU that is not there, a text proto (`GpuTargetConfigProto`). cuda,
    cudnn: versions of the libraries that programs will find, "12.8"."""
    major, minor = gpu.capability
    fields = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        # Without asking for more, on all kinds.
        "shared_memory_per_block": 48 << 10,
        "shared_memory_per_core": gpu.shared_memory,
        "threads_per_core_limit": 2048,
        "core_count": gpu.cores,
        "fpus_per_core": gpu.fpus,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 2**16 - 1,
        "block_dim_limit_z": 2**16 - 1,
        "memory_bandwidth": int(gpu.bandwidth),
        "l2_cache_size": gpu.cache,
        "clock_rate_ghz": gpu.clock,
        "device_memory_size": gpu.memory,
        "shared_memory_per_block_optin": gpu.block_memory,
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
    }
    lines = [f"  {name}: {value}" for name, value in fields.items()]
    lines.append(f"  cuda_compute_capability {{ major: {major} minor: {minor} }}")
    runtime = _version(cuda)
    dnn = _version(cudnn)
    return "\n".join(
        [
            "gpu_device_info {",
            *lines,
            "}",
            'platform_name: "CUDA"',
            f"dnn_version_info {{ {dnn} }}",
            f"runtime_version {{ {runtime} }}",
            f'device_description_str: "{gpu.full_name}"',
        ]
    )


def _version(text: str) -> str:
    major, minor = text.split(".")[:2]
    return f"major: {major} minor: {minor}"
