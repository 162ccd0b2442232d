"""Checkpoints: state, data position and run identity; which one a run starts from.

On disk: `checkpoints/STEP/{params,training,run}` written by Orbax in the background, and
`data_state/STEP/OBJECTIVE/shard-i.bin`, written and synced before the checkpoint of that step is
finalised, so that every finalised checkpoint has its data position.
"""

import difflib
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from xlingjax.errors import UserError
from xlingjax.model.params import path_name
from xlingjax.runtime.files import write_json
from xlingjax.runtime.machine import all_agree, barrier, first_line, is_primary
from xlingjax.runtime.quiet import forget_abandoned_reads
from xlingjax.training.run_record import require_same, run_and_checkpoint, vocabulary_of
from xlingjax.training.step import TrainState

Positions = dict[str, dict[str, bytes]]
BEST = "best.json"


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
            raise UserError(
                f"KEEP_BEST={self.keep_best} needs BEST_METRIC (EVALUATOR/NAME)"
            )
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
        self.folder = (workdir / "checkpoints").absolute()
        self._positions = workdir / "data_state"
        self._config = config
        self._identity = identity
        self._say = say
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
            cleanup_tmp_directories=True,
        )
        self._manager = ocp.CheckpointManager(
            self.folder, options=options, item_names=("params", "training", "run")
        )
        self.saved_step = -1
        self.best: dict[str, dict[str, Any]] = {}
        """{metric: {"step", "value"}} of the best checkpoint so far, as in best.json."""

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
        metrics = self._metrics(values)
        failed = None
        try:
            self._write_positions(step, positions)
        except OSError as error:
            failed = error
        # Agreeing also makes sure that every host's position is on disk.
        if not all_agree(failed is None):
            if failed is None:
                failed = OSError("another process could not write its data position")
            raise explained(failed, self.folder)
        training = _without_params(state)
        try:
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    params=ocp.args.StandardSave(state.params),
                    training=ocp.args.StandardSave(training),
                    run=ocp.args.JsonSave(
                        {"identity": self._identity, "progress": progress}
                    ),
                ),
                metrics=metrics or None,
            )
            self._note_best(step, metrics, values)
        except Exception as error:
            raise explained(error, self.folder) from error
        self.saved_step = step

    def measured(self, step: int, values: dict[str, float]) -> None:
        """`values` of an evaluation of the checkpoint of `step`, which was saved without."""
        metrics = self._metrics(values)
        if metrics:
            # As the manager writes and reads them.
            handler = ocp.JsonCheckpointHandler(filename="metrics")
            path = self.folder / str(step) / "metrics"
            ocp.Checkpointer(handler).save(
                path, args=ocp.args.JsonSave(metrics), force=True
            )
            self._manager.reload()
        self._note_best(step, metrics, values)

    def _metrics(self, values: dict[str, float]) -> dict[str, float]:
        metrics = {}
        for name in self._config.metrics:
            # No order puts NaN last.
            if math.isfinite(values.get(name, math.nan)):
                metrics[name] = values[name]
        return metrics

    def _note_best(
        self, step: int, metrics: dict[str, float], values: dict[str, float]
    ) -> None:
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
            self._manager.wait_until_finished()
            self._manager.close()
        except Exception as error:
            raise explained(error, self.folder) from error

    def _write_positions(self, step: int, positions: Positions) -> None:
        """Each file is the SHA-256 of its content followed by the content."""
        for objective, shards in positions.items():
            folder = self._positions / str(step) / objective
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in shards.items():
                # Written beside and renamed, so that a file under its name is whole. By process,
                # since hosts may hold the same shard.
                partial = folder / f"{name}.partial-{jax.process_index()}"
                with open(partial, "wb") as file:
                    file.write(hashlib.sha256(content).digest() + content)
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(folder / f"{name}.bin")
        if is_primary():
            # Orbax removes old checkpoints and knows nothing of their positions.
            kept = {str(step), *map(str, self._manager.all_steps())}
            for folder in self._positions.iterdir():
                if folder.name not in kept:
                    shutil.rmtree(folder, ignore_errors=True)

    def _read_positions(self, step: int) -> Positions:
        positions: Positions = {}
        folder = self._positions / str(step)
        for file in sorted(folder.glob("*/*.bin")):
            raw = file.read_bytes()
            digest = raw[:32]
            content = raw[32:]
            if hashlib.sha256(content).digest() != digest:
                raise ValueError(f"{file} is damaged")
            positions.setdefault(file.parent.name, {})[file.stem] = content
        missing = set(self._identity["objectives"]) - set(positions)
        if missing:
            raise ValueError(
                f"{folder} lacks the data position of {', '.join(sorted(missing))}"
            )
        return positions

    # ---- restoring -------------------------------------------------------------------------------

    def restore(self, abstract: TrainState) -> Restored | None:
        """The newest readable checkpoint on the shardings of `abstract`; None if there is no
        checkpoint at all.

        An unreadable one is named, set aside as `STEP.unreadable`, and the one before is taken.
        Raises UserError when none can be read, and when the checkpoint belongs to another run
        (field and both values).
        """
        forget_abandoned_reads()
        steps = checkpoint_steps(self.folder)
        unreadable: list[tuple[int, str]] = []
        for step in reversed(steps):
            restored = None
            problem = ""
            try:
                restored = self._read(step, abstract)
            except UserError:
                raise
            except Exception as error:
                # Whatever Orbax raises of a damaged file: the one before may be whole.
                problem = f"{type(error).__name__}: {first_line(error)}"
            if all_agree(restored is not None):
                self._set_aside(unreadable)
                self.saved_step = step
                self._know_best(step, steps)
                return restored
            unreadable.append((step, problem or "another process could not read it"))
        if unreadable:
            step, why = unreadable[0]
            raise UserError(
                f"{self.folder} holds {len(unreadable)} checkpoints and none can be read (step"
                f" {step}: {why}); repair it, move it away, or choose another --workdir: a run"
                " never starts afresh over it"
            )
        return None

    def _set_aside(self, unreadable: Sequence[tuple[int, str]]) -> None:
        """Renames the checkpoints that could not be read, once one before them could: a run that
        can read none changes nothing. unreadable: (step, why)."""
        for step, why in unreadable:
            self._say(
                f"checkpoint {step} cannot be read ({why}); set aside as {step}.unreadable"
            )
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
        run = self._manager.restore(
            step, args=ocp.args.Composite(run=ocp.args.JsonRestore())
        ).run
        require_same(run["identity"], self._identity, self.folder / str(step))
        positions = self._read_positions(step)
        training = _without_params(abstract)
        items = self._manager.restore(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardRestore(abstract.params),
                training=ocp.args.StandardRestore(training),
            ),
        )
        state = TrainState(params=items.params, **items.training)
        return Restored(step, state, positions, run["progress"])


def _without_params(state: TrainState) -> dict[str, Any]:
    """What training alone needs. Parameters are an item of their own, so that others can read them
    without it."""
    return {name: value for name, value in vars(state).items() if name != "params"}


def checkpoint_steps(folder: Path) -> list[int]:
    """Steps of the finalised checkpoints in a folder, ascending. An interrupted write has another
    name and does not count."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())


def read_best(workdir: Path) -> dict[str, dict[str, Any]]:
    """{metric: {"step", "value"}} of a run's best checkpoints; empty where it kept none."""
    path = workdir / BEST
    if not path.is_file():
        return {}
    return json.loads(path.read_text(encoding="utf-8"))


def find_checkpoint(path: str | Path) -> Path:
    """The checkpoint that `path` names: itself, the newest of a run's workdir or of a `checkpoints`
    folder, that of a step (RUN@STEP) or the best by a metric (RUN@METRIC, see `CheckpointConfig`).
    Raises UserError.
    """
    run, which = run_and_checkpoint(path)
    if which and not Path(path).exists():
        return _named_checkpoint(run.absolute(), which)
    path = Path(path).absolute()
    if (path / "params").is_dir():
        return path
    for folder in (path / "checkpoints", path):
        steps = checkpoint_steps(folder)
        if steps:
            return folder / str(steps[-1])
    raise UserError(
        f"no checkpoint in {path}; give a run's workdir or a folder checkpoints/STEP"
    )


def _named_checkpoint(run: Path, which: str) -> Path:
    best = read_best(run)
    steps = checkpoint_steps(run / "checkpoints")
    if which.isdigit():
        step = int(which)
    elif which in best:
        step = best[which]["step"]
    else:
        raise UserError(
            f"{run} kept no best checkpoint by {which} (but by {', '.join(best) or 'nothing'});"
            f" train with KEEP_BEST=1 and BEST_METRIC={which}"
        )
    if step not in steps:
        there = ", ".join(map(str, steps)) or "none"
        raise UserError(
            f"{run} has no checkpoint {step} (there are: {there}); KEEP_CHECKPOINTS keeps more of"
            " them"
        )
    return run / "checkpoints" / str(step)


def load_params(
    path: str | Path,
    params: Any,
    new: Sequence[str] = (),
    vocabulary: Any = None,
    exact: bool = False,
) -> tuple[Any, list[str]]:
    """`params` with the values of the checkpoint that `path` names (see `find_checkpoint`), on the
    shardings of `params`.

    A parameter the checkpoint lacks keeps its value if a regular expression of `new` matches its
    path; those are returned as the second value. `vocabulary`: the hash of the one they are to be
    used with; exact: nothing of the checkpoint may be left behind. Raises UserError naming every
    other missing parameter, every mismatched shape, another vocabulary, and an unreadable
    checkpoint.
    """
    leaves_with_paths, tree = jax.tree_util.tree_flatten_with_path(params)
    model = {path_name(path): leaf for path, leaf in leaves_with_paths}
    checkpoint = find_checkpoint(path)
    saved, trained_on = saved_params(checkpoint)
    require_vocabulary(checkpoint, trained_on, vocabulary)
    kept = []
    missing = []
    for name in model:
        if name in saved:
            continue
        if any(re.match(pattern, name) for pattern in new):
            kept.append(name)
        else:
            missing.append(name)
    problems = [f"{name} is missing" for name in missing]
    if exact:
        problems += [
            f"{name} is not the model's" for name in saved if name not in model
        ]
    for name, leaf in model.items():
        if name in saved and saved[name] != leaf.shape:
            problems.append(f"{name}: checkpoint {saved[name]}, model {leaf.shape}")
    if problems:
        remedy = _remedy(model, saved)
        raise UserError(
            f"checkpoint {checkpoint} does not fit the model: {'; '.join(problems)}; {remedy}"
        )
    # Read onto the shardings of the model: no host ever holds all of a large one.
    wanted: list[jax.ShapeDtypeStruct | None] = []
    for name, leaf in model.items():
        if name in kept:
            wanted.append(None)
        else:
            wanted.append(
                jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
            )
    loaded = read_params(checkpoint, jax.tree.unflatten(tree, wanted))
    loaded_with_paths, _ = jax.tree_util.tree_flatten_with_path(loaded)
    values = {path_name(path): leaf for path, leaf in loaded_with_paths}
    leaves = [values.get(name, leaf) for name, leaf in model.items()]
    return jax.tree.unflatten(tree, leaves), kept


def _remedy(model: Iterable[str], saved: Iterable[str]) -> str:
    """What to do about a checkpoint of other parameters than the model's, by the names of both."""
    if _has_decoder(model) and not _has_decoder(saved):
        return (
            "it is an encoder: give it as INIT_ENCODER, INIT_DECODER or both"
            " (gin/runs/init_seq2seq.gin)"
        )
    return (
        "add --gin_file gin/models/from_init.gin: the model that run.json of its workdir"
        " describes"
    )


def _has_decoder(names: Iterable[str]) -> bool:
    return any(name.startswith("decoder/") for name in names)


def saved_params(checkpoint: Path) -> tuple[dict[str, tuple[int, ...]], Any]:
    """({path of a parameter: its shape}, the hash of the vocabulary it was trained on or None) of a
    checkpoint. Raises UserError when it cannot be read."""
    forget_abandoned_reads()
    run = checkpoint / "run"
    try:
        metadata = ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).metadata(
            checkpoint / "params"
        )
        leaves, _ = jax.tree_util.tree_flatten_with_path(metadata.item_metadata.tree)
        shapes = {path_name(path): tuple(leaf.shape) for path, leaf in leaves}
        # Not there in a checkpoint that did not come from training.
        if not run.is_dir():
            return shapes, None
        record = ocp.Checkpointer(ocp.JsonCheckpointHandler()).restore(run)
        if not record:
            return shapes, None
        return shapes, vocabulary_of(record["identity"])
    except Exception as error:
        raise _unreadable(checkpoint, error) from error


def read_params(checkpoint: Path, wanted: Any) -> Any:
    """The parameters of `wanted`, a tree of `jax.ShapeDtypeStruct` with shardings that may lack
    some or hold None for them. Raises UserError when they cannot be read."""
    forget_abandoned_reads()
    try:
        return ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(
            checkpoint / "params",
            args=ocp.args.PyTreeRestore(
                item=wanted,
                restore_args=ocp.checkpoint_utils.construct_restore_args(wanted),
                partial_restore=True,
            ),
        )
    except Exception as error:
        raise _unreadable(checkpoint, error) from error


def require_vocabulary(checkpoint: Path, trained_on: Any, vocabulary: Any) -> None:
    """Raise UserError where both hashes are known and differ."""
    if vocabulary and trained_on and trained_on != vocabulary:
        raise UserError(
            f"checkpoint {checkpoint} was trained on another vocabulary (SHA-256"
            f" {trained_on!s:.12}, this run's {vocabulary!s:.12}), in which the same ids are other"
            " pieces; set VOCABULARY to that run's workdir, which keeps a copy"
        )


def _unreadable(checkpoint: Path, error: Exception) -> UserError:
    return UserError(
        f"checkpoint {checkpoint} cannot be read ({type(error).__name__}: {first_line(error)});"
        f" name an older one, {checkpoint.parent}/STEP, or move this one away"
    )


def explained(error: Exception, folder: Path) -> Exception:
    """A UserError when the disk is the cause, else the error itself."""
    signs = ("No space left", "RESOURCE_EXHAUSTED", "ermission denied")
    if isinstance(error, OSError) or any(sign in str(error) for sign in signs):
        return UserError(
            f"checkpoint in {folder} could not be written: {first_line(error)}; make room and start"
            " again"
        )
    return error
