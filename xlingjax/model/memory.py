"""What a training step will need of a device's memory, told before anything is compiled."""

import math
import os
from collections.abc import Mapping
from pathlib import Path

import jax

from xlingjax.errors import UserError
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig
from xlingjax.model.parameter_count import count_parameters
from xlingjax.model.partition import param_shardings, row_devices

SHARE = 0.85
"""Of a device's memory that a plan may fill: the compiler and the data need some too."""


def estimate(
    config: ModelConfig,
    rows: int,
    length: int,
    predictions: int,
    chunk: int = 0,
    mesh: jax.sharding.Mesh | None = None,
) -> dict[str, int]:
    """{what: bytes} of one training step with Adam's two moments, for rows of `length` tokens on
    one device.

    predictions: slots in a row; chunk: predictions whose logits stand at once (0: all). mesh:
    shares out parameters, gradients and moments; what its tensor axis shares of activations and
    logits is not counted. Activations: 34 + 5 H L / D bytes per token, layer and unit of D in 16
    bits (Korthikanti et al. 2022, §4.1), an estimate: compilers differ.
    """
    c = config
    # Activations in units of 16 bits; parameters, gradients and moments are always of 32.
    units = 1
    if c.dtype == "float32":
        units = 2
    if mesh is None:
        parameters = 4 * count_parameters(c)
    else:
        parameters = 4 * _parameters_of_a_device(c, mesh)
    tokens = rows * length
    layers = c.layers + c.decoder_layers
    per_layer = tokens * (34 * c.dim + 5 * c.heads * length) * units
    if c.remat == "none":
        activations = layers * per_layer
    elif c.remat == "dots":
        activations = layers * per_layer // 2
    else:
        # Each layer's input, and all of the one that is recomputed.
        activations = layers * tokens * c.dim * 2 * units + per_layer
    logits_at_once = rows * predictions
    if chunk:
        logits_at_once = min(chunk, logits_at_once)
    return {
        "parameters": parameters,
        "gradients": parameters,
        "moments of Adam": 2 * parameters,
        "activations": activations,
        # Logits and their gradients, in float32.
        "logits": 2 * 4 * logits_at_once * c.padded_vocab_size,
    }


def _parameters_of_a_device(
    config: ModelConfig,
    mesh: jax.sharding.Mesh,
) -> int:
    encoder = build_model(config, mesh)
    shapes = encoder.abstract()
    shardings = param_shardings(mesh, encoder.logical_axes(), shapes)

    def count(leaf, sharding):
        return math.prod(sharding.shard_shape(leaf.shape))

    return sum(jax.tree.leaves(jax.tree.map(count, shapes, shardings)))


def device_bytes() -> int:
    """Of the smallest of this process's devices; on CPU what the machine has free, shared by its
    devices."""
    devices = jax.local_devices()
    limits = []
    for device in devices:
        # A CPU has no statistics.
        statistics = device.memory_stats() or {}
        if statistics.get("bytes_limit"):
            # What the allocator may take, which is less than the card has.
            limits.append(statistics["bytes_limit"])
    if limits:
        # Every device has the same rows, so the smallest decides.
        return min(limits)
    return _available() // len(devices)


def _available() -> int:
    """Of the machine, what the files that it keeps in memory give back when asked included, where
    it tells."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("MemAvailable:"):
            kilobytes = int(line.split()[1])
            return 1024 * kilobytes
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def microbatches_for(
    config: ModelConfig,
    mesh: jax.sharding.Mesh,
    batch: int,
    length: int,
    predictions: int,
    chunk: int = 0,
) -> int:
    """Into how many parts a batch, spread over the mesh, must be cut to fit its devices. Raises
    UserError where one row a device is too much."""
    devices = row_devices(mesh)
    room = SHARE * device_bytes()
    per_device = batch // devices
    if batch % devices:
        raise UserError(
            f"a batch of {batch} rows does not spread over {devices} devices; give a multiple",
        )
    # Fewest parts first: larger microbatches keep a device busier.
    for parts in range(1, per_device + 1):
        # Microbatches are equal, or a step would be compiled for two sizes.
        if per_device % parts:
            continue
        needed = estimate(
            config,
            per_device // parts,
            length,
            predictions,
            chunk,
            mesh,
        )
        if sum(needed.values()) <= room:
            return parts
    raise UserError(
        f"one row of {length} tokens needs about {sum(needed.values()) / 1e9:.1f} GB, and the"
        f" device has {room / SHARE / 1e9:.1f} GB; shorten the rows (--length), or train a smaller"
        " model",
    )


def table(needed: Mapping[str, int]) -> str:
    lines = [
        f"{what:<16} {size / 1e9:8.2f} GB" for what, size in needed.items()
    ]
    return "\n".join(
        [
            *lines,
            f"{'together':<16} {sum(needed.values()) / 1e9:8.2f} GB (estimated)",
        ],
    )
