"""One model of several trained ones: the mean of checkpoints of a run (VECO §6) or of several runs,
or what several runs of one start have learnt, merged by TIES (Yadav et al. 2023): a workdir out."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xlingjax.errors import UserError
from xlingjax.model.build import build_model
from xlingjax.model.partition import abstract_params
from xlingjax.training.checkpoint_params import load_params, saved_params
from xlingjax.training.checkpoint_paths import checkpoint_steps, find_checkpoint, no_checkpoint
from xlingjax.training.run_record import FREE_MODEL_FIELDS, differences, model_of, vocabulary_of
from xlingjax.training.workdir import require_empty, write_workdir

KEPT = 0.2  # of the changes of a model, by TIES


def average(
    runs: Sequence[str],
    output: str,
    last: int | None = None,
    steps: Sequence[int] = (),
    method: str = "mean",
    base: str | None = None,
) -> str:
    """Writes one model of the checkpoints that `runs` name, or of the `last` ones or those of
    `steps` of a single run, to the workdir `output`, in float32. base: of "ties", the checkpoint
    that all began with. Returns what was done. Raises UserError: one that is not there or is of
    another model or vocabulary."""
    if (method == "ties") != bool(base):
        raise UserError("--method ties needs --base, what all of them began with; mean has none")
    chosen = list(map(find_checkpoint, runs))
    if len(runs) == 1:
        chosen = _of_run(runs[0], last, steps)
    elif last or steps:
        raise UserError("--last and --steps are of one run; name checkpoints of several: RUN@STEP")
    require_empty(output)
    shape = _shape(runs[0])
    for run in [*runs, *filter(None, [base])]:
        if differing := next(differences(_shape(run), shape), None):
            field, theirs, ours = differing
            raise UserError(f"{run} is another model than {runs[0]}: {field} {theirs}, not {ours}")
    # The devices that wrote the checkpoint may not be here.
    wanted = abstract_params(build_model(model_of(runs[0])))
    vocabulary = vocabulary_of(saved_params(chosen[0])[1])

    def read(checkpoint: Path) -> Any:
        # On the host: sums beside the parameters would need twice the memory of the device.
        params, _ = load_params(checkpoint, wanted, vocabulary=vocabulary, exact=True)
        return jax.tree.map(np.asarray, params)

    if base:
        first = read(find_checkpoint(base))
        learnt = (jax.tree.map(np.subtract, read(one), first) for one in chosen)
        merged = jax.tree.map(ties, first, *map(largest, learnt))
    else:
        merged = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), wanted)
        for one in chosen:
            # In place, one checkpoint at a time: a large model stands in memory twice.
            jax.tree.map(lambda sum_, leaf: np.add(sum_, leaf, out=sum_), merged, read(one))
        merged = jax.tree.map(lambda sum_: sum_ / np.float32(len(chosen)), merged)
    names = [str(one) for one in chosen]
    details = {"averaged": {"checkpoints": names, "method": method, "base": base}}
    write_workdir(runs[0], output, int(chosen[-1].name), merged, "average", details)
    return f"{output}: {method} of {len(chosen)} checkpoints: {', '.join(names)}"


def largest(learnt: Any, share: float = KEPT) -> Any:
    """A model's changes, of which the largest `share` stay and the others are 0."""
    sizes = np.concatenate([np.abs(leaf).ravel() for leaf in jax.tree.leaves(learnt)])
    kept = max(1, round(share * sizes.size))
    limit = np.partition(sizes, -kept)[-kept]
    return jax.tree.map(lambda leaf: np.where(np.abs(leaf) >= limit, leaf, 0), learnt)


def ties(first: np.ndarray, *learnt: np.ndarray) -> np.ndarray:
    """A parameter plus, of each weight, the mean of the changes whose sign has the larger sum."""
    changes = np.stack(learnt)
    agree = changes * np.sign(changes.sum(0)) > 0
    return first + (changes * agree).sum(0) / np.maximum(agree.sum(0), 1, dtype=np.float32)


def _shape(run: str) -> dict[str, Any]:
    """The fields of a run's model that say what its weights mean."""
    fields = dataclasses.asdict(model_of(run))
    return {name: value for name, value in fields.items() if name not in FREE_MODEL_FIELDS}


def _of_run(run: str, last: int | None, steps: Sequence[int]) -> list[Path]:
    folder = Path(run) / "checkpoints"
    there = checkpoint_steps(folder)
    if not there:
        raise no_checkpoint(Path(run))
    if last is not None and steps:
        raise UserError("--last and --steps both say which checkpoints; leave out either")
    chosen = sorted({*steps})
    if last and last <= len(there):
        chosen = there[-last:]
    if not chosen or not {*chosen} <= {*there}:
        given = f"--steps {' '.join(map(str, steps))}" if steps else f"--last {last}"
        raise UserError(
            f"{given}: {run} has the checkpoints {', '.join(map(str, there))}; name some of them,"
            " or train with more KEEP_CHECKPOINTS"
        )
    return [folder / str(step) for step in chosen]
