"""VECO whose cross-attention reads the states of another, trained encoder, which stays as it is: a
control of `docs/results/veco.md`.

In a recipe `import benchmarks.veco_frozen`, `train.objectives = [@veco_text(), @veco_frozen()]`,
`veco_frozen.objective = @veco()` and `veco_frozen.run = "runs/x"`, a run with the same vocabulary.
"""

import dataclasses
import functools

import jax

from xlingjax.config.recipe import register
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.objectives.base import Array, Batch
from xlingjax.objectives.veco import VECO
from xlingjax.training.feed import ObjectiveRun


@functools.cache
def opened(run: str) -> TrainedRun:
    return open_run(run)


@dataclasses.dataclass(frozen=True)
class FrozenMemory(VECO):
    """VECO; H that S reads is of `run`, H that is paid for the model's own."""

    run: str = ""

    def memory(self, batch: Batch, h_BLD: Array, texts: int) -> Array:
        # While the step is traced, and of no part of it.
        with jax.ensure_compile_time_eval():
            trained = opened(self.run)
        # Constants of the program: models of a few million parameters alone.
        memory_BLD = trained.model.encode(trained.params, batch, self.attention(), texts=texts)
        return jax.lax.stop_gradient(memory_BLD)


def veco_frozen(objective: ObjectiveRun, run: str) -> ObjectiveRun:
    """`objective`, made by `veco`, with the memory of `run`."""
    mine = {
        field.name: getattr(objective.objective, field.name) for field in dataclasses.fields(VECO)
    }
    return dataclasses.replace(objective, objective=FrozenMemory(**mine, run=run))


register("veco_frozen", veco_frozen)
