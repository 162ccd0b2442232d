"""train(): a run's whole life, top to bottom."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from xlingjax.errors import EXIT_CODE, UserError
from xlingjax.model.build import build_model, count_parameters
from xlingjax.model.config import ModelConfig
from xlingjax.model.memory import SHARE, device_bytes
from xlingjax.model.partition import MeshConfig, check_counts, first_device, make_mesh
from xlingjax.runtime.files import disk_explained, write_bytes
from xlingjax.runtime.machine import (
    RuntimeConfig,
    all_agree,
    check_workdir,
    is_primary,
    one_run_in,
    out_of_memory_explained,
    start,
)
from xlingjax.runtime.shutdown import Shutdown
from xlingjax.training.checkpoint import CheckpointConfig, Checkpoints
from xlingjax.training.checkpoint_paths import checkpoint_steps, last_step, require_not_lost
from xlingjax.training.evaluator import Evaluator
from xlingjax.training.feed import Feed, ObjectiveRun
from xlingjax.training.first_state import TokenVectors, first_weights, new_run, restored
from xlingjax.training.guard import Guard
from xlingjax.training.initialisation import Initialisation
from xlingjax.training.optimizer import OptimizerConfig, make_optimizer
from xlingjax.training.programs import Programs
from xlingjax.training.progress import Page, Progress, Timetable
from xlingjax.training.run_record import run_identity, write_hashes, write_run
from xlingjax.training.schedule import check as check_schedule
from xlingjax.training.step import abstract_state, run_key
from xlingjax.training.step_memory import Needs, what_fits
from xlingjax.training.stopping import Stopping, StoppingConfig
from xlingjax.training.tracker import Tracker

# What a pretrained model may lack.
ADDED = (
    "classifier/",
    "classifiers/",
    "encoder/layers/cross_attention/",
    "word_recovery/",
    "paraphrase/",
    "embeddings/languages/",
)
BYTES_PER_PARAMETER = 12  # float32 weight and two moments, in a checkpoint


@dataclasses.dataclass(frozen=True)
class Result:
    params: Any
    """Final parameters, global arrays on the run's mesh."""
    steps: int
    exit_reason: str
    """"finished" or "preempted" (saved and to be started again)."""
    metrics: dict[str, Any]
    """Last log line of each objective."""
    evaluations: dict[str, Any]
    """Last values of each evaluator."""

    @property
    def exit_code(self) -> int:
        if self.exit_reason == "preempted":
            return EXIT_CODE
        return 0


def train(
    *,
    workdir: str | Path,
    model: ModelConfig,
    objectives: Sequence[ObjectiveRun | Mapping[int, ObjectiveRun]],
    steps: int,
    seed: int = 0,
    microbatches: int = 1,
    optimizer: OptimizerConfig = OptimizerConfig(),
    mesh: MeshConfig = MeshConfig(),
    schedule: str = "alternate",
    evaluators: Sequence[Evaluator] = (),
    eval_every: int = 0,
    log_every: int = 50,
    checkpoint: CheckpointConfig = CheckpointConfig(),
    stopping: StoppingConfig = StoppingConfig(),
    init_from: str | Path | Initialisation | None = None,
    init_new: Sequence[str] = ADDED,
    token_vectors: TokenVectors | None = None,
    max_bad_steps: int = 20,
    rng_impl: str = "threefry2x32",
    hash_batches: bool = False,
    extra_config: dict[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
    on_start: Callable[[Callable[[str], None]], None] | None = None,
    write_page: Callable[[], Path] | None = None,
    runtime: RuntimeConfig = RuntimeConfig(),
) -> Result:
    """Train `model` on several objectives for `steps` steps; go on from the newest checkpoint in
    `workdir` if there is one. An objective that changes during the run comes in stages, by the step
    from which each holds.

    init_from: a workdir or checkpoint folder whose parameters a new run starts from, or several of
    them (see `Initialisation`); parameters whose path matches a regular expression of init_new may
    be missing in the one. token_vectors: what the token table of a run from random weights begins
    with, by its width. eval_every, log_every: steps between evaluations and log lines (0: only
    at the end).
    stopping: ends the run before its last step where held-out data no longer gain by it; learning
    rate and stages go by `steps` all the same. A run that has stopped so stays as it is.
    rng_impl: "rbg" makes dropout cheaper and its bits dependent on the mesh. hash_batches: put a
    hash of the batches into metrics.jsonl. extra_config: kept in run.json. files: {name: content},
    kept in workdir, written like run.json when nothing is left to refuse. on_start: called by one
    process after the first step, with what writes a line into the log. write_page: writes a page of
    the run's files and returns its path; called by one process after evaluations and at the end. It
    takes a small part of the run's time, and what it raises is one line.

    A continued run takes the same batches, turns and random numbers as one that was never stopped.
    With several processes each calls train() with equal arguments. Raises UserError for everything
    the caller can repair, before the first step where that is possible.
    """
    # ---- the machine -----------------------------------------------------------------------------
    workdir = Path(workdir).absolute()
    every = {"eval_every": eval_every, "log_every": log_every}
    every["checkpoint_every"] = checkpoint.every
    early = require_settings(
        model, evaluators, microbatches, optimizer, eval_every, log_every, checkpoint, stopping
    )
    # The first that touches a device: processes must have met before.
    machine = start(runtime)
    device_mesh = make_mesh(mesh)
    # Before anything is compiled: a full disk would be noticed at the first checkpoint.
    check_workdir(workdir, _bytes_to_come(model, checkpoint, workdir))

    def fitting() -> str:
        # An estimate is of one objective's step.
        if schedule == "summed":
            return ""
        needs = Needs(model, optimizer, objectives, first_device(device_mesh).platform)
        room = SHARE * device_bytes()
        return what_fits(needs, device_mesh, microbatches, room)

    with disk_explained(workdir), contextlib.ExitStack() as stack, out_of_memory_explained(fitting):
        # What is opened is closed in the reverse order, whatever ends the run: the log comes last,
        # and then the folder is another's to have.
        stack.enter_context(one_run_in(workdir))
        saved = checkpoint_steps(workdir / "checkpoints")
        if not saved:
            require_not_lost(workdir)
        tracker = Tracker(workdir, steps, is_primary(), wandb=runtime.wandb)
        stack.callback(tracker.close)
        # From here on a signal ends the run at the next step and not within one.
        shutdown = Shutdown()
        stack.enter_context(shutdown.listen())
        guard = Guard(workdir, max_bad_steps, tracker.say)
        tracker.say(f"xlingjax on {machine}; mesh {_axes(device_mesh)}")

        # ---- the state, abstract: shapes and where they lie --------------------------------------
        encoder = build_model(model, device_mesh)
        rule = make_optimizer(optimizer, steps, encoder.abstract())
        abstract = abstract_state(device_mesh, encoder, rule, optimizer)
        # A donor that does not fit is refused here, before any text is read.
        load = None
        if not saved:
            load = first_weights(init_from, model, abstract.params, init_new)

        # ---- the data ----------------------------------------------------------------------------
        feed = Feed(objectives, encoder, device_mesh, microbatches)
        stack.callback(feed.close)
        # Weights of a later stage too: a run shall not stop there after days.
        check_schedule(feed.weights, schedule, steps)
        programs = Programs(feed, rule, optimizer, abstract, run_key(seed, rng_impl, device_mesh))
        stack.callback(programs.close)
        # Beside what follows. Where the newest checkpoint cannot be read, they are of other steps.
        programs.begin(max(saved, default=0), steps, seed, schedule, not saved)
        feed.open()

        # ---- the weights: own checkpoint, else init_from, else random ----------------------------
        identity = run_identity(model, feed.sources, feed.objectives, seed, optimizer)
        checkpoints = Checkpoints(workdir, checkpoint, identity, tracker.say)
        stack.push(checkpoints.leave)
        first = restored(checkpoints, abstract, feed, workdir)
        if first is None:
            state = programs.random_state(seed)
            first = new_run(state, seed, load, feed.languages, identity, token_vectors, feed.texts)
        step = first.step
        state = first.state
        if first.continued:
            early.recall(workdir, step)
        ends = early.last_step(steps)
        for line in first.described(count_parameters(model), ends):
            tracker.say(line)
        if ends < steps:
            tracker.say(early.reason())
        if step < ends and early.is_unknown():
            # Its values show their names, and a wrong one is told before the first step.
            early.require(early.chosen(evaluators)(encoder, state.params, step, device_mesh))

        # ---- what the run is, on disk ------------------------------------------------------------
        # A finished run keeps the record that it has.
        kept = step >= ends and (workdir / "run.json").exists()
        # Only now, when nothing is left to refuse.
        if is_primary() and not kept:
            _write_files(workdir, files or {})
            course = feed.course(steps, schedule, optimizer)
            session = first.session(machine, dict(device_mesh.shape))
            write_run(workdir, identity, feed, course, session, extra_config)

        # ---- what happens now and then -----------------------------------------------------------
        timetable = Timetable(ends, evaluators, **every)
        # By the process that writes the file; the others follow it in `all_agree`.
        measured = not is_primary() or timetable.measured(workdir, step)
        if step < ends and is_primary():
            for evaluator in evaluators:
                tracker.note(evaluator.bar())
        tracker.begin(step)
        if not is_primary():
            write_page = None
            on_start = None
        page = Page(write_page, tracker.say)
        progress = Progress(
            timetable,
            feed,
            tracker,
            guard,
            checkpoints,
            rule.learning_rate,
            early,
            page,
            hash_batches=hash_batches,
            tokens_seen=first.tokens_seen,
        )
        # The run was asked to stop, or failed, before this checkpoint was measured.
        if first.continued and not all_agree(measured):
            progress.measure_restored(step, state)

        # ---- the loop ----------------------------------------------------------------------------
        stopping = False
        stack.enter_context(shutdown.interrupts(lambda: last_step(workdir)))
        while step < early.last_step(steps) and not stopping:
            if step in feed.starts:
                # An objective's terms may be others from here on, and a line is of one stage.
                progress.log(step)
            # A function of seed and step alone, as the batch is: a continued run takes the same.
            turn = feed.turn(step, seed, schedule)
            rows = feed.next(turn, f"step {step} of {steps}")
            batch = feed.on_devices(turn, rows)
            # The step takes the memory of the old state. It returns before the device is done.
            state, sums = programs.step(turn, step, state, batch, progress.compiling)
            progress.add(step, turn, rows, sums)
            step += 1
            # All processes stop at the same step, so they agree on it here.
            stopping = shutdown.reached(step)
            progress.after(step, state, stopping)
            if on_start and not stopping:
                progress.beside(functools.partial(on_start, tracker.say))
                on_start = None

        # ---- the end -----------------------------------------------------------------------------
        # The result says that the run ended, so its last checkpoint is on disk first.
        checkpoints.close()
        reason = _exit_reason(step, early.last_step(steps))
        took_steps = step > first.step
        has_result = progress.finish(workdir, step, reason, int(state.skipped))
        tracker.end_live()
        # Of what this start measured: a run that was asked to stop may have measured nothing yet.
        if reason == "finished" and progress.values:
            for evaluator in evaluators:
                tracker.note(evaluator.verdict(progress.values))
        line = f"{reason} at step {step}"
        if reason == "preempted":
            # It has little time left: no page.
            line += ": the same command goes on from there"
        elif took_steps:
            written = page.written()
            if written:
                line += f"; its report: {written}"
        tracker.say(line)
        # The log has its last line only now.
        if has_result:
            write_hashes(workdir)
    return Result(state.params, step, reason, progress.lines, progress.values)


def require_settings(
    model: ModelConfig,
    evaluators: Sequence[Evaluator],
    microbatches: int = 1,
    optimizer: OptimizerConfig = OptimizerConfig(),
    eval_every: int = 0,
    log_every: int = 50,
    checkpoint: CheckpointConfig = CheckpointConfig(),
    stopping: StoppingConfig = StoppingConfig(),
    **others: Any,
) -> Stopping:
    """Raises UserError for settings that `train` refuses before it touches a device; takes its
    arguments. Returns what ends the run early."""
    check_counts(
        microbatches, eval_every=eval_every, log_every=log_every, checkpoint_every=checkpoint.every
    )
    _require_evaluators(evaluators)
    early = Stopping(stopping)
    early.check(evaluators, eval_every)
    require_loss_scale(model, optimizer)
    return early


def _write_files(workdir: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        write_bytes(workdir / name, content)
    # An earlier start's: this run has not ended.
    (workdir / "result.json").unlink(missing_ok=True)


def _bytes_to_come(model: ModelConfig, checkpoint: CheckpointConfig, workdir: Path) -> int:
    """What the checkpoints that are still to be written will need on disk."""
    saved = len(checkpoint_steps(workdir / "checkpoints"))
    # One more than are kept: the oldest goes when the newest is whole.
    to_come = max(checkpoint.kept + 1 - saved, 1)
    return count_parameters(model) * BYTES_PER_PARAMETER * to_come


def _axes(mesh: Mesh) -> str:
    return " x ".join(f"{axis} {size}" for axis, size in mesh.shape.items())


def _require_evaluators(evaluators: Sequence[Evaluator]) -> None:
    for evaluator in evaluators:
        if not isinstance(evaluator, Evaluator):
            raise UserError(
                f"evaluator {evaluator!r} is no xlingjax.Evaluator: derive its class from that"
            )


def require_loss_scale(model: ModelConfig, optimizer: OptimizerConfig) -> None:
    if model.dtype == "float16" and not optimizer.loss_scale:
        remedy = (
            "set optimizer.loss_scale=65536 (it adapts itself), or DTYPE=bfloat16 where the"
            " device has it"
        )
        raise UserError(f"in float16 small gradients become 0 without a loss scale: {remedy}")


def _exit_reason(step: int, steps: int) -> str:
    # Before its last step a run ends only where it was asked to stop.
    if step < steps:
        return "preempted"
    return "finished"
