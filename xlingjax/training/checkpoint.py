"""Checkpoints of a run: state, data position and identity, saved and restored.

On disk: `checkpoints/STEP/{params,training,run}`, written by Orbax in the background, each with the
hashes of its files. `run` holds the data positions, which all hosts have alike.
"""

import contextlib
import errno
import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from xlingjax.errors import UserError, require_choice, require_whole
from xlingjax.runtime.files import is_of_system, write_json
from xlingjax.runtime.machine import all_agree, barrier, first_line, is_primary
from xlingjax.runtime.quiet import forget_abandoned_reads, forget_told_failures
from xlingjax.training.checkpoint_params import HashedPath, damage, saved_params, unreadable
from xlingjax.training.checkpoint_paths import BEST, checkpoint_steps
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
        require_whole(self, "[1, inf)", "keep_last", "checkpoint: ")
        require_whole(self, "[0, inf)", "every keep_best", "checkpoint: ")
        require_choice(self, ("min", "max"), "best_mode", "checkpoint: ")
        if self.keep_best and not self.best_metric:
            raise UserError(f"KEEP_BEST={self.keep_best} needs BEST_METRIC (EVALUATOR/NAME)")

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
    positions: dict[str, int]  # {objective: the number of its next batch}
    progress: dict[str, Any]


@dataclass(frozen=True)
class _Kept:
    """Which checkpoints Orbax keeps: the last, from which a run goes on, and the best."""

    last: int
    ranked: dict[str, dict[int, float]]

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        steps = [checkpoint.step for checkpoint in checkpoints]
        kept = set(steps[-self.last :]).union(*self.ranked.values())
        return [step in kept for step in steps]


class _Manager(ocp.CheckpointManager):
    """Orbax's, which asks nobody whether the run is to stop: the loop does.

    Orbax asks JAX too, from a thread of its own, with the step that it has just written. JAX takes
    that for the step at which the process is; the processes then agree to leave at a step that one
    of them is past, and that one waits for the others for ever.
    """

    def reached_preemption(self, step: int) -> bool:
        return False


class Checkpoints:
    """The checkpoints of a run. Every process makes one and calls it at the same steps."""

    def __init__(
        self,
        workdir: Path,
        config: CheckpointConfig,
        identity: dict[str, Any],
        say: Callable[[str], None],
    ):
        forget_told_failures()
        self.folder = (workdir / "checkpoints").absolute()
        self._config = config
        self._identity = identity
        self._say = say
        self._ranked: dict[str, dict[int, float]] = {name: {} for name in config.metrics}
        """{metric: {step: value}} of the best checkpoints, the best first."""
        self._manager = _Manager(
            self.folder,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=_Kept(config.keep_last, self._ranked),
                # A killed run leaves a half-written checkpoint under another name.
                cleanup_tmp_directories=True,
                temporary_path_class=HashedPath,
            ),
            # Named, so that one item can be read without the others.
            item_names=("params", "training", "run"),
        )

    @property
    def best(self) -> dict[str, dict[str, Any]]:
        """{metric: {"step", "value"}} of the best checkpoint so far, as in best.json."""
        first = {name: next(iter(values.items()), None) for name, values in self._ranked.items()}
        return {name: {"step": one[0], "value": one[1]} for name, one in first.items() if one}

    def save(
        self,
        step: int,
        state: TrainState,
        positions: dict[str, int],
        progress: dict[str, Any],
        values: dict[str, float],
    ) -> None:
        """Start writing the checkpoint of `step`; returns when the state has been copied to the
        host. `values`: scalars of an evaluation at this very step. Raises UserError when the disk
        is full or not writable."""
        # Of a mount that is gone its bare folder would be written to.
        if not self.folder.is_dir():
            raise UserError(
                f"{self.folder} is gone: it was removed, or its disk is no longer mounted; bring it"
                " back and start again"
            )
        self._rank(step, values)
        run = {
            "identity": self._identity,
            "positions": positions,
            "progress": progress,
            "best": {name: [*values.items()] for name, values in self._ranked.items()},
        }
        try:
            taken = self._manager.save(
                step,
                args=ocp.args.Composite(
                    params=ocp.args.StandardSave(state.params),
                    training=ocp.args.StandardSave(_without_params(state)),
                    run=ocp.args.JsonSave(run),
                ),
            )
            if not taken:
                raise UserError(
                    f"checkpoint {step} was not written: {self.folder} holds one of step"
                    f" {max(self._manager.all_steps())}; move it away and start again"
                )
            # Now that the manager has taken it: best.json names no checkpoint that was refused.
            self._write_best()
        except Exception as error:
            raise explained(error, self.folder) from error

    def measured(self, step: int, values: dict[str, float]) -> None:
        """`values` of an evaluation of the checkpoint of `step`, which was saved without."""
        self._rank(step, values)
        self._write_best()

    def _rank(self, step: int, values: dict[str, float]) -> None:
        sign = 1 if self._config.best_mode == "min" else -1
        for name, ranked in self._ranked.items():
            if values and name not in values:
                self._say(f"no checkpoint is the best by {name}: nothing measures it")
            # No order puts NaN last.
            if math.isfinite(values.get(name, math.nan)):
                ranked[step] = values[name]
            order = sorted(ranked.items(), key=lambda one: (sign * one[1], -one[0]))
            ranked.clear()
            ranked.update(order[: self._config.keep_best])

    def _write_best(self) -> None:
        if self.best and is_primary():
            write_json(self.folder.with_name(BEST), self.best)

    def close(self) -> None:
        """Wait until the last checkpoint is on disk. Raises UserError where it is not written."""
        try:
            # An error of the background shows only here.
            self._manager.wait_until_finished()
        except Exception as error:
            raise explained(error, self.folder) from error
        finally:
            self._manager.close()

    def leave(self, kind: Any, error: Any, trace: Any) -> None:
        """As `close`; where the run ends in an error it is that one which is told."""
        with contextlib.suppress(Exception) if error else contextlib.nullcontext():
            self.close()

    def restore(self, abstract: TrainState) -> Restored | None:
        """The newest whole checkpoint on the shardings of `abstract`; None: there is none.

        A damaged one is named, set aside as `STEP.unreadable`, and the one before is taken. Raises
        UserError when there is none before, when a whole one cannot be read, and when the
        checkpoint belongs to another run (field and both values).
        """
        forget_abandoned_reads()
        steps = checkpoint_steps(self.folder)
        unreadable: list[tuple[int, str]] = []
        # The newest first: whatever was lost of it is trained again from the one before.
        for step in reversed(steps):
            restored, problem = self._tried(step, abstract)
            if restored is not None:
                self._set_aside(unreadable)
                return restored
            unreadable.append((step, problem))
        if unreadable:
            step, why = unreadable[0]
            raise UserError(
                f"{self.folder} holds {len(unreadable)} checkpoints and none can be read (step"
                f" {step}: {why}); repair it, move it away, or choose another --to: a run"
                " never starts afresh over it"
            )
        return None

    def _tried(self, step: int, abstract: TrainState) -> tuple[Restored | None, str]:
        """(the checkpoint or None; its damage). All processes pass over what one finds damaged."""
        problem = ""
        for item in ("params", "training", "run"):
            folder = self.folder / str(step) / item
            problem = problem or damage(folder, jax.process_index(), jax.process_count())
        # Before the reading, in which processes wait for each other.
        if not all_agree(not problem):
            return None, problem or "another process found it damaged"
        try:
            return self._read(step, abstract), ""
        except UserError:
            raise
        except Exception as error:
            # Its files are what was written: a limit, too little memory, another Orbax.
            raise unreadable(self.folder / str(step), error) from error

    def _set_aside(self, unreadable: Sequence[tuple[int, str]]) -> None:
        """Renames the checkpoints that could not be read, once one before them could: a run that
        can read none changes nothing. unreadable: (step, why)."""
        for step, why in unreadable:
            self._say(f"checkpoint {step} cannot be read ({why}); set aside as {step}.unreadable")
            if is_primary():
                (self.folder / str(step)).rename(self.folder / f"{step}.unreadable")
        barrier("set-aside")
        self._manager.reload()

    def _read(self, step: int, abstract: TrainState) -> Restored:
        def require(identity: dict[str, Any]) -> None:
            require_same(identity, self._identity, self.folder / str(step))

        read, best = _read(functools.partial(self._manager.restore, step), step, abstract, require)
        for name, ranked in self._ranked.items():
            ranked.update(map(tuple, best.get(name, ())))
        return read


def read_branch(
    checkpoint: Path, abstract: TrainState, require: Callable[[dict[str, Any]], None]
) -> Restored:
    """The whole checkpoint of another run, on the shardings of `abstract`. require: refuses an
    identity. Raises UserError when it is damaged or cannot be read."""
    # Looks at the hashes of the others.
    saved_params(checkpoint)
    if wrong := damage(checkpoint / "training"):
        raise UserError(f"checkpoint {checkpoint} is damaged: {wrong}; name an older one")
    handler = ocp.CompositeCheckpointHandler("params", "training", "run")
    restore = functools.partial(ocp.Checkpointer(handler).restore, checkpoint)
    try:
        return _read(restore, int(checkpoint.name), abstract, require)[0]
    except UserError:
        raise
    except Exception as error:
        raise unreadable(checkpoint, error) from error


def _read(
    restore: Callable[..., Any], step: int, abstract: TrainState, require: Callable[..., None]
) -> tuple[Restored, dict[str, Any]]:
    """(the checkpoint of a step, the best so far by each metric). restore: of Orbax."""
    # The identity first: of another run neither positions nor shapes would fit.
    run = restore(args=ocp.args.Composite(run=ocp.args.JsonRestore())).run
    require(run["identity"])
    items = restore(
        args=ocp.args.Composite(
            params=ocp.args.StandardRestore(abstract.params),
            training=ocp.args.StandardRestore(_without_params(abstract)),
        )
    )
    # By the names of the fields: they were saved without the parameters.
    state = TrainState(params=items.params, **items.training)
    return Restored(step, state, run["positions"], run["progress"]), run["best"]


def _without_params(state: TrainState) -> dict[str, Any]:
    """What training alone needs. Parameters are an item apart, which others can read alone."""
    return {name: value for name, value in vars(state).items() if name != "params"}


def explained(error: Exception, folder: Path) -> Exception:
    """A UserError when the disk is the cause, else the error itself."""
    why = first_line(error)
    # TensorStore has this word for a full disk and for a limit alike.
    limit = os.strerror(errno.EMFILE)
    if limit in str(error):
        why = f"{limit} (ulimit -n)"
    elif "No space left" in why or "RESOURCE_EXHAUSTED" in why:
        why = "No space left on device"
    elif not isinstance(error, OSError) and not is_of_system(error):
        return error
    return UserError(
        f"checkpoint in {folder} could not be written: {why}; see that the disk is there, has room"
        " and can be written, and start again"
    )
