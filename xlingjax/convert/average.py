"""The mean of the parameters of several checkpoints (VECO §6): a workdir in, a workdir out."""

from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from xlingjax.errors import UserError
from xlingjax.model.build import build_model
from xlingjax.model.partition import abstract_params
from xlingjax.training.checkpoint_params import load_params
from xlingjax.training.checkpoint_paths import checkpoint_steps, no_checkpoint
from xlingjax.training.run_record import model_of
from xlingjax.training.workdir import require_empty, write_workdir


def average(run: str, output: str, last: int | None = None, steps: Sequence[int] = ()) -> str:
    """Writes the mean of the `last` checkpoints of `run`, or of those of `steps`, to the workdir
    `output`, in float32 and with one of them in memory at a time. Returns what was done. Raises
    UserError where one is not there."""
    chosen = _chosen(run, last, steps)
    require_empty(output)
    model = build_model(model_of(run))
    # The devices that wrote the checkpoint may not be here.
    wanted = abstract_params(model)
    # On the host: a sum beside the parameters would need twice the memory of the device.
    total = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), wanted)
    for step in chosen:
        params, _ = load_params(Path(run) / "checkpoints" / str(step), wanted)
        # In place: a large model stands in memory twice, and not three times.
        jax.tree.map(lambda sum_, leaf: np.add(sum_, leaf, out=sum_), total, params)
    mean = jax.tree.map(lambda sum_: sum_ / np.float32(len(chosen)), total)
    origin = {"averaged": {"run": str(run), "steps": chosen}}
    write_workdir(run, output, chosen[-1], mean, "average", origin)
    return (
        f"{output}: the mean of {len(chosen)} checkpoints of {run}: steps"
        f" {', '.join(map(str, chosen))}"
    )


def _chosen(run: str, last: int | None, steps: Sequence[int]) -> list[int]:
    there = checkpoint_steps(Path(run) / "checkpoints")
    if not there:
        raise no_checkpoint(Path(run))
    if last is not None and steps:
        raise UserError("--last and --steps both say which checkpoints; leave out either")
    if steps and {*steps} <= {*there}:
        return sorted({*steps})
    if last and 0 < last <= len(there):
        return there[-last:]
    given = f"--steps {','.join(map(str, steps))}" if steps else f"--last {last}"
    raise UserError(
        f"{given}: {run} has the checkpoints {', '.join(map(str, there))}; name some of them, or"
        " train with more KEEP_CHECKPOINTS"
    )
