"""Checkpoints of a run: state, data position and identity, saved and restored.

On disk: `checkpoints/STEP/{params,training,run}`, written by Orbax in the background, each with the
hashes of its files; and `data_state/STEP/positions.json`, written and synced before the
checkpoint of that step is finalised, so that every finalised checkpoint has its data position.
"""

import contextlib
import difflib
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from xlingjax.errors import UserError
from xlingjax.runtime.files import is_of_system, write_json
from xlingjax.runtime.machine import all_agree, barrier, first_line, is_primary
from xlingjax.runtime.quiet import forget_abandoned_reads, forget_told_failures
from xlingjax.runtime.records import NUMBER, read_record
from xlingjax.training.checkpoint_hashes import HashedPath, damage
from xlingjax.training.checkpoint_paths import BEST, checkpoint_steps, read_best
from xlingjax.training.data_positions import (
    Positions,
    keep_positions,
    read_positions,
    write_positions,
)
from xlingjax.training.run_record import require_same
from xlingjax.training.step import TrainState


@dataclass(frozen=True)
class CheckpointConfig:
    every: int = 1000
    """Steps between checkpoints; 0 = only at the end and when asked to stop."""
    keep_last: int = 2
    keep_best: int = 0
    """Keep this many more by each of `best_metric`, the best; needs an evaluation at the
    checkpoint's step."""
    best_metric: str = ""
    """"EVALUATOR/NAME" of a scalar, for instance "perplexity/mean", or several with spaces between;
    for each the best checkpoint is kept, and named in best.json and result.json."""
    best_mode: str = "min"

    def __post_init__(self):
        if self.keep_last < 1:
            raise UserError(f"checkpoint keep_last={self.keep_last} must be at least 1")
        if self.keep_best < 0:
            raise UserError(f"KEEP_BEST={self.keep_best} must not be negative")
        if self.keep_best and not self.best_metric:
            raise UserError(f"KEEP_BEST={self.keep_best} needs BEST_METRIC (EVALUATOR/NAME)")
        if self.best_mode not in ("min", "max"):
            raise UserError(f"BEST_MODE={self.best_mode!r} is neither min nor max")

    @property
    def metrics(self) -> tuple[str, ...]:
        """By which the best are kept."""
        if not self.keep_best:
            return ()
        return tuple(self.best_metric.replace(",", " ").split())

    @property
    def kept(self) -> int:
        """Checkpoints on disk at most."""
        return self.keep_last + self.keep_best * len(self.metrics)


@dataclass(frozen=True)
class Restored:
    step: int
    state: TrainState
    positions: Positions
    progress: dict[str, Any]


def _best_by(metric: str, config: CheckpointConfig) -> Any:
    """The policy that keeps the best checkpoints by a metric."""
    smallest_first = config.best_mode == "min"
    # A checkpoint without the metric is the first to go.
    worst = float("-inf")
    if smallest_first:
        worst = float("inf")
    return ocp.checkpoint_managers.BestN(
        get_metric_fn=lambda values: values.get(metric, worst),
        reverse=smallest_first,
        n=config.keep_best,
        keep_checkpoints_without_metrics=False,
    )


class _Manager(ocp.CheckpointManager):
    """Orbax's, which asks nobody whether the run is to stop: the loop does.

    Orbax asks JAX too, from a thread of its own, with the step that it has just written. JAX takes
    that for the step at which the process is; the processes then agree to leave at a step that one
    of them is past, and that one waits for the others for ever.
    """

    def reached_preemption(self, step: int) -> bool:
        return False


class Checkpoints:
    """The checkpoints of one run. Every process makes one and calls the same methods at the same
    steps."""

    def __init__(
        self,
        workdir: Path,
        config: CheckpointConfig,
        identity: dict[str, Any],
        say: Callable[[str], None],
    ):
        forget_told_failures()
        self.folder = (workdir / "checkpoints").absolute()
        self._positions = workdir / "data_state"
        self._config = config
        self._identity = identity
        self._say = say
        # The last always, whatever the best: a run goes on from it.
        policies = [ocp.checkpoint_managers.LatestN(n=config.keep_last)]
        for metric in config.metrics:
            policies.append(_best_by(metric, config))
        # Without one Orbax writes no metrics, and a continued run has none. What it gives does not
        # matter: the policies choose.
        best_fn = None
        if config.metrics:
            best_fn = len
        options = ocp.CheckpointManagerOptions(
            preservation_policy=ocp.checkpoint_managers.AnyPreservationPolicy(policies),
            best_fn=best_fn,
            # A killed run leaves a half-written checkpoint under another name.
            cleanup_tmp_directories=True,
            temporary_path_class=HashedPath,
        )
        # The manager reads them at once, and would end in whatever JSON raises.
        damaged = self._without_damaged_metrics()
        self._manager = _Manager(
            self.folder,
            options=options,
            # Named, so that one item can be read without the others.
            item_names=("params", "training", "run"),
        )
        self.saved_step = -1
        self.best: dict[str, dict[str, Any]] = {}
        """{metric: {"step", "value"}} of the best checkpoint so far, as in best.json."""
        for step in damaged:
            self._remember_metrics(step)

    # ---- saving ----------------------------------------------------------------------------------

    def save(
        self,
        step: int,
        state: TrainState,
        positions: Positions,
        progress: dict[str, Any],
        values: dict[str, float],
    ) -> None:
        """Start writing the checkpoint of `step`; returns when the state has been copied to the
        host. `values`: scalars of an evaluation at this very step. Raises UserError when the disk
        is full or not writable.
        """
        # Of a mount that is gone its bare folder would be written to.
        if not self.folder.is_dir():
            raise UserError(
                f"{self.folder} is gone: it was removed, or its disk is no longer mounted; bring it"
                " back and start again"
            )
        metrics = self._metrics(values)
        failed = None
        try:
            # Positions first: Orbax writes in the background, and what it finalises must have them.
            write_positions(self._positions, step, positions)
            if is_primary():
                # Orbax removes old checkpoints and knows nothing of their positions.
                keep_positions(
                    self._positions,
                    # With this step, which the manager does not know yet.
                    (step, *self._manager.all_steps()),
                )
        except OSError as error:
            failed = error
        # Agreeing also makes sure that every host's position is on disk.
        if not all_agree(failed is None):
            if failed is None:
                failed = OSError("another process could not write its data position")
            raise explained(failed, self.folder)
        training = _without_params(state)
        try:
            taken = self._manager.save(
                step,
                args=ocp.args.Composite(
                    params=ocp.args.StandardSave(state.params),
                    training=ocp.args.StandardSave(training),
                    run=ocp.args.JsonSave({"identity": self._identity, "progress": progress}),
                ),
                metrics=metrics or None,
            )
            if not taken:
                raise UserError(
                    f"checkpoint {step} was not written: {self.folder} holds one of step"
                    f" {max(self._manager.all_steps())}; move it away and start again"
                )
            # After the manager has taken it, so that
            # best.json names no checkpoint that was refused.
            self._note_best(step, metrics, values)
        except Exception as error:
            raise explained(error, self.folder) from error
        self.saved_step = step

    def measured(self, step: int, values: dict[str, float]) -> None:
        """`values` of an evaluation of the checkpoint of `step`, which was saved without."""
        metrics = self._metrics(values)
        if metrics:
            self._write_metrics(step, metrics)
        self._note_best(step, metrics, values)

    def _write_metrics(self, step: int, metrics: dict[str, float]) -> None:
        # As the manager writes and reads them.
        handler = ocp.JsonCheckpointHandler(filename="metrics")
        with ocp.Checkpointer(handler, temporary_path_class=HashedPath) as writer:
            writer.save(
                self.folder / str(step) / "metrics", args=ocp.args.JsonSave(metrics), force=True
            )
        # The manager keeps what it read of a folder, and would not see the change.
        self._manager.reload()

    def _without_damaged_metrics(self) -> list[int]:
        """Removes the metrics of checkpoints whose files are damaged, which is said; the steps."""
        steps = []
        for step in checkpoint_steps(self.folder):
            item = self.folder / str(step) / "metrics"
            if problem := damage(item) or _no_table(item / "metrics"):
                steps.append(step)
                self._say(f"the metrics of checkpoint {step} are damaged: {problem}; left out")
        # All have looked before they are gone.
        barrier("metrics")
        if is_primary():
            for step in steps:
                shutil.rmtree(self.folder / str(step) / "metrics")
        barrier("metrics-removed")
        return steps

    def _remember_metrics(self, step: int) -> None:
        """Gives a checkpoint the metrics by which it is the best, so that it stays."""
        metrics = {}
        for name, best in read_best(self.folder.parent).items():
            if name in self._config.metrics and best["step"] == step:
                metrics[name] = best["value"]
        if metrics:
            self._write_metrics(step, metrics)

    def _metrics(self, values: dict[str, float]) -> dict[str, float]:
        metrics = {}
        for name in self._config.metrics:
            # No order puts NaN last.
            if math.isfinite(values.get(name, math.nan)):
                metrics[name] = values[name]
        return metrics

    def _note_best(self, step: int, metrics: dict[str, float], values: dict[str, float]) -> None:
        unknown = [name for name in self._config.metrics if name not in values]
        if values and unknown:
            near = difflib.get_close_matches(unknown[0], values, 1, 0.0)
            self._say(
                f"no checkpoint is the best by {unknown[0]}: nothing measures it; the nearest is"
                f" {near[0]}"
            )
        for name, value in metrics.items():
            best = self.best.get(name, {}).get("value", value)
            # Of equals the last, as Orbax keeps it.
            if self._config.best_mode == "min":
                is_best = value <= best
            else:
                is_best = value >= best
            if is_best:
                self.best[name] = {"step": step, "value": value}
        if metrics and is_primary():
            write_json(self.folder.with_name(BEST), self.best)

    def close(self) -> None:
        """Wait until the last checkpoint is on disk. Raises UserError when it could not be
        written."""
        try:
            # An error of the background shows only here.
            self._manager.wait_until_finished()
        except Exception as error:
            raise explained(error, self.folder) from error
        finally:
            self._manager.close()

    def leave(self, kind: Any, error: Any, trace: Any) -> None:
        """As `close`; where the run ends in an error it is that one which is told."""
        with contextlib.ExitStack() as stack:
            if error is not None:
                stack.enter_context(contextlib.suppress(Exception))
            self.close()

    # ---- restoring -------------------------------------------------------------------------------

    def restore(self, abstract: TrainState) -> Restored | None:
        """The newest whole checkpoint on the shardings of `abstract`; None if there is no
        checkpoint at all.

        One that is damaged or cannot be read is named, set aside as `STEP.unreadable`, and the one
        before is taken. Raises UserError when there is none before, and when the checkpoint belongs
        to another run (field and both values).
        """
        forget_abandoned_reads()
        steps = checkpoint_steps(self.folder)
        unreadable: list[tuple[int, str]] = []
        # The newest first: whatever was lost of it is trained again from the one before.
        for step in reversed(steps):
            restored, problem = self._tried(step, abstract)
            if restored is not None:
                self._set_aside(unreadable)
                self.saved_step = step
                self._know_best(step, steps)
                return restored
            unreadable.append((step, problem))
        if unreadable:
            step, why = unreadable[0]
            raise UserError(
                f"{self.folder} holds {len(unreadable)} checkpoints and none can be read (step"
                f" {step}: {why}); repair it, move it away, or choose another --workdir: a run"
                " never starts afresh over it"
            )
        if is_primary():
            # Of checkpoints that were cut off.
            keep_positions(self._positions, ())
        return None

    def _tried(self, step: int, abstract: TrainState) -> tuple[Restored | None, str]:
        """(the checkpoint, or None; why not). All processes go on from the same step, so what one
        cannot read none has read."""
        problem = self._damage(step)
        # Before the reading, in which processes wait for each other.
        if not all_agree(not problem):
            return None, problem or "another process found it damaged"
        restored = None
        try:
            restored = self._read(step, abstract)
        except UserError:
            raise
        except Exception as error:
            if is_of_system(error):
                raise UserError(
                    f"{self.folder / str(step)} cannot be read: {first_line(error)}; nothing is"
                    " wrong with it: repair that and start again"
                ) from error
            # Whatever Orbax raises of a damaged file: the one before may be whole.
            problem = f"{type(error).__name__}: {first_line(error)}"
        if not all_agree(restored is not None):
            return None, problem or "another process could not read it"
        return restored, ""

    def _damage(self, step: int) -> str:
        """What is wrong with the files of a checkpoint, of which each process looks at a share."""
        for item in ("params", "training", "run"):
            wrong = damage(self.folder / str(step) / item, jax.process_index(), jax.process_count())
            if wrong:
                return wrong
        return ""

    def _set_aside(self, unreadable: Sequence[tuple[int, str]]) -> None:
        """Renames the checkpoints that could not be read, once one before them could: a run that
        can read none changes nothing. unreadable: (step, why)."""
        for step, why in unreadable:
            self._say(f"checkpoint {step} cannot be read ({why}); set aside as {step}.unreadable")
            if is_primary():
                (self.folder / str(step)).rename(self.folder / f"{step}.unreadable")
        barrier("set-aside")
        self._manager.reload()

    def _know_best(self, step: int, steps: Sequence[int]) -> None:
        """The best so far of a run that goes on from `step`: later ones are no longer part of
        it."""
        for name, best in read_best(self.folder.parent).items():
            still_there = best["step"] in steps and best["step"] <= step
            if name in self._config.metrics and still_there:
                self.best[name] = best

    def _read(self, step: int, abstract: TrainState) -> Restored:
        # The identity first: of another run neither positions nor shapes would fit.
        run = self._manager.restore(step, args=ocp.args.Composite(run=ocp.args.JsonRestore())).run
        require_same(run["identity"], self._identity, self.folder / str(step))
        objectives = self._identity["objectives"]
        positions = read_positions(self._positions, step, objectives)
        training = _without_params(abstract)
        items = self._manager.restore(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardRestore(abstract.params),
                training=ocp.args.StandardRestore(training),
            ),
        )
        # By the names of the fields: they were saved without the parameters.
        state = TrainState(params=items.params, **items.training)
        return Restored(step, state, positions, run["progress"])


def _no_table(path: Path) -> str:
    """What is wrong with a file of JSON; "": nothing, or it is not there. Of one with hashes they
    tell."""
    try:
        read_record(path, {str: NUMBER}, "")
    except FileNotFoundError:
        return ""
    except UserError as error:
        return str(error).rstrip("; ")
    return ""


def _without_params(state: TrainState) -> dict[str, Any]:
    """What training alone needs. Parameters are an item of their own, so that others can read them
    without it."""
    return {name: value for name, value in vars(state).items() if name != "params"}


def explained(error: Exception, folder: Path) -> Exception:
    """A UserError when the disk is the cause, else the error itself."""
    why = first_line(error)
    remedy = "see that the disk is there and can be written, and start again"
    # TensorStore gives a sentence with the names of its parts.
    if "No space left" in why or "RESOURCE_EXHAUSTED" in why:
        why = "No space left on device"
    if "No space left" in why or "quota exceeded" in why:
        remedy = "make room and start again"
    elif not isinstance(error, OSError) and "ermission denied" not in why:
        return error
    return UserError(f"checkpoint in {folder} could not be written: {why}; {remedy}")
