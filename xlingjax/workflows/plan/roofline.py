"""The shortest time of a step on a device, by what limits it: matrix units, memory or links."""

import dataclasses
import math
from collections.abc import Mapping

from xlingjax.model.build import count_parameters
from xlingjax.model.config import ModelConfig
from xlingjax.workflows.plan.machines import Machine


@dataclasses.dataclass(frozen=True)
class Bound:
    """Seconds, at the published peaks."""

    matrix: float
    memory: float
    links: float

    @property
    def seconds(self) -> float:
        return max(dataclasses.astuple(self))


def bound_of(
    machine: Machine, dtype: str, flops: float, moved: float, sent: Mapping[int, float]
) -> Bound | None:
    """flops, moved: operations and bytes of memory of a device in a step; sent: {devices of a
    group: bytes that leave one of them}. None: the matrix units do not know the dtype."""
    accelerator = machine.accelerator
    peak = accelerator.flops.get(dtype)
    if peak is None:
        return None
    links = sum(size / machine.link(group) for group, size in sent.items())
    return Bound(flops / peak, moved / accelerator.bandwidth, links)


def sent_of(
    config: ModelConfig, tokens: int, mesh: Mapping[str, int], microbatches: int
) -> dict[int, float]:
    """{devices that take part together: bytes that leave one of them in a step on so many tokens},
    where they stand in a ring: sums of gradients (`data`), parameters that are gathered and their
    gradients scattered (`fsdp`), sums within layers (`tensor`)."""
    data, fsdp, tensor = mesh["data"], mesh["fsdp"], mesh["tensor"]

    def share(devices: int) -> float:
        return (devices - 1) / devices

    parameters = 4 * count_parameters(config) / tensor
    gradients = 2 * share(data) * parameters / fsdp * microbatches
    gathered = 3 * share(fsdp) * parameters * microbatches
    layers = config.layers + config.decoder_layers
    # Two sums a layer forward, two backward, in 16 bits.
    states = tokens / (data * fsdp) * config.dim * 2
    sums = 4 * layers * 2 * share(tensor) * states
    sent: dict[int, float] = {}
    for group, size in (
        (math.prod((data, fsdp, tensor)), gradients),
        (fsdp * tensor, gathered),
        (tensor, sums),
    ):
        sent[group] = sent.get(group, 0.0) + size
    return sent
