"""train(): a run's whole life, top to bottom."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.errors import EXIT_CODE, UserError
from xlingjax.model.build import build_model, count_parameters
from xlingjax.model.config import ModelConfig
from xlingjax.model.partition import MeshConfig, check_counts, make_mesh
from xlingjax.runtime.files import write_bytes
from xlingjax.runtime.machine import (
    RuntimeConfig,
    is_primary,
    one_run_in,
    out_of_memory_explained,
    primary_says,
    require_room,
    start,
)
from xlingjax.runtime.shutdown import Shutdown
from xlingjax.training.checkpoint import CheckpointConfig, Checkpoints
from xlingjax.training.checkpoint_paths import checkpoint_steps, require_not_lost
from xlingjax.training.evaluator import Evaluator
from xlingjax.training.feed import Feed, ObjectiveRun
from xlingjax.training.guard import Guard
from xlingjax.training.initialisation import (
    Initialisation,
    TokenVectors,
    branched,
    first_weights,
    new_run,
    restored,
)
from xlingjax.training.optimizer import OptimizerConfig, make_optimizer
from xlingjax.training.progress import Progress
from xlingjax.training.run_record import (
    changed_course,
    require_alike,
    require_one_run,
    run_identity,
    write_hashes,
    write_run,
)
from xlingjax.training.schedule import check as check_schedule
from xlingjax.training.step import Programs, abstract_state, run_key
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
    params: Any  # final parameters, global arrays on the run's mesh
    steps: int
    exit_reason: str  # "finished" or "preempted" (saved and to be started again)
    metrics: dict[str, Any]  # last log line of each objective
    evaluations: dict[str, Any]  # last values of each evaluator

    @property
    def exit_code(self) -> int:
        return EXIT_CODE if self.exit_reason == "preempted" else 0


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
    branch_from: str | None = None,
    token_vectors: TokenVectors | None = None,
    max_bad_steps: int = 20,
    rng_impl: str = "threefry2x32",
    hash_batches: bool = False,
    extra_config: dict[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
    on_start: Callable[[Callable[[str], None]], None] | None = None,
    write_page: Callable[[], Path] | None = None,
    runtime: RuntimeConfig = RuntimeConfig(),
    until: float | None = None,
) -> Result:
    """Train `model` on several objectives for `steps` steps; go on from the newest checkpoint in
    `workdir` if there is one. Objectives that change come in stages, by their first step.

    init_from: a workdir or checkpoint folder whose parameters a new run starts from, or several of
    them (see `Initialisation`); parameters whose path matches a regular expression of init_new may
    be missing in the one. branch_from: a run whose checkpoint (RUN, RUN@STEP) a new run goes on
    from, with its optimizer, step and place in the text, by settings of its own. token_vectors:
    what the token table of a run from random weights begins with, by its width. eval_every,
    log_every: steps between evaluations and log lines (0: only at the end).
    stopping: ends the run before its last step where held-out data no longer gain by it; learning
    rate and stages go by `steps` all the same. A run that has stopped so stays as it is.
    rng_impl: "rbg" makes dropout cheaper and its bits dependent on the mesh. hash_batches: put a
    hash of the batches into metrics.jsonl. extra_config: kept in run.json. files: {name: content},
    kept in workdir, written like run.json when nothing is left to refuse. on_start: called by one
    process after the first step, with what writes a line into the log. write_page: writes a page of
    the run's files and returns its path; called by one process after evaluations and at the end.
    What it raises is one line. until: of `time.monotonic`; the step that ends behind it is the
    last, but for the first two of each objective.

    A continued run takes the same batches, turns and random numbers as one that was never stopped.
    With several processes each calls train() with equal arguments. Raises UserError for everything
    the caller can repair, before the first step where that is possible.
    """
    # ---- the machine -----------------------------------------------------------------------------
    workdir = Path(workdir).absolute()
    if branch_from and init_from:
        raise UserError(
            f"BRANCH_FROM={branch_from} and INIT_FROM={init_from} both say what a run starts from:"
            " leave out either"
        )
    require_settings(
        model, evaluators, microbatches, optimizer, eval_every, log_every, checkpoint, stopping
    )
    # The first that touches a device: processes must have met before.
    machine = start(runtime)
    device_mesh = make_mesh(mesh)
    # Closed in the reverse order, whatever ends the run: last the log, and then the folder.
    with contextlib.ExitStack() as stack, out_of_memory_explained():
        stack.enter_context(one_run_in(workdir))
        saved = checkpoint_steps(workdir / "checkpoints")
        if not saved:
            require_not_lost(workdir)
        # Before compiling. One more than are kept: the oldest goes when the newest is whole.
        to_come = max(checkpoint.kept + 1 - len(saved), 1)
        require_room(workdir, count_parameters(model) * BYTES_PER_PARAMETER * to_come)
        tracker = Tracker(workdir, steps, is_primary())
        stack.callback(tracker.close)
        # From here on a signal ends the run at the next step and not within one.
        shutdown = Shutdown()
        stack.enter_context(shutdown.listen())
        guard = Guard(workdir, max_bad_steps, tracker.say)
        axes = " x ".join(f"{axis} {size}" for axis, size in device_mesh.shape.items())
        tracker.say(f"xlingjax on {machine}; mesh {axes}")

        # ---- the state, abstract: shapes and where they lie --------------------------------------
        encoder = build_model(model, device_mesh)
        rule = make_optimizer(optimizer, steps, encoder.abstract())
        abstract = abstract_state(device_mesh, encoder, rule, optimizer)

        # ---- the data ----------------------------------------------------------------------------
        feed = Feed(objectives, encoder, device_mesh, microbatches)
        stack.callback(feed.close)
        # Weights of a later stage too: a run shall not stop there after days.
        check_schedule(feed.weights, schedule, steps)
        # Before they do anything together: each would train by its own.
        require_one_run(
            feed.runs,
            evaluators,
            seed=seed,
            steps=steps,
            model=model,
            optimizer=optimizer,
            mesh=mesh,
            microbatches=microbatches,
            schedule=[schedule, *feed.weights],
            every=[eval_every, log_every],
            checkpoint=checkpoint,
            stopping=stopping,
            init_from=init_from,
            init_new=init_new,
            branch_from=branch_from,
            token_vectors=token_vectors,
            options=[max_bad_steps, rng_impl, hash_batches],
            saved_checkpoints=saved,
        )
        # A donor that does not fit is refused here, before any text is read.
        load = None
        if not saved:
            load = first_weights(init_from, model, abstract.params, init_new)
        programs = Programs(feed, rule, optimizer, abstract, run_key(seed, rng_impl, device_mesh))
        stack.callback(programs.close)
        if not saved and not branch_from:
            programs.begin_state()
        feed.open()

        # ---- the weights: own checkpoint, else another run's, else random ------------------------
        identity = run_identity(model, feed.sources, feed.objectives, seed, optimizer)
        require_alike(identity)
        checkpoints = Checkpoints(workdir, checkpoint, identity, tracker.say)
        stack.push(checkpoints.leave)
        first = restored(checkpoints, abstract, feed, workdir)
        if first is None and branch_from:
            first = branched(branch_from, steps, abstract, feed, identity)
        elif first is None:
            state = programs.random_state(seed)
            first = new_run(state, seed, load, feed.languages, identity, token_vectors, feed.texts)
        step, state = first.step, first.state
        early = Stopping(stopping)
        early.recall(workdir, step)
        ends = early.last_step(steps)
        for line in first.donated:
            tracker.say(line)
        left = f"steps {step} to {ends}"
        if step >= ends:
            left = f"nothing left to do: it has {step} steps of {ends}"
        parameters = f"{count_parameters(model):,} parameters"
        tracker.say(f"weights: {first.weights}; {parameters}; {left}")
        if ends < steps:
            tracker.say(early.reason())
        course = feed.course(steps, schedule, optimizer)
        if step < ends and (changes := changed_course(workdir, course)):
            tracker.say(f"note: {changes}, from step {step} on")

        # ---- what the run is, on disk: only now, when nothing is left to refuse ------------------
        # A finished run keeps the record that it has.
        if is_primary() and not (step >= ends and (workdir / "run.json").exists()):
            for name, content in (files or {}).items():
                write_bytes(workdir / name, content)
            (workdir / "result.json").unlink(missing_ok=True)
            session = {
                # Of its own: a branch that ends before its first checkpoint has saved none.
                "step": step if saved else 0,
                "machine": machine,
                "mesh": dict(device_mesh.shape),
                "weights": first.weights,
                "given": first.donated,
            }
            record = {"identity": identity, "config": extra_config or {}}
            write_run(workdir, record | course, feed, session)
        tracker.begin(step)

        # ---- the loop ----------------------------------------------------------------------------
        progress = Progress(
            workdir,
            ends,
            evaluators,
            eval_every=eval_every,
            log_every=log_every,
            save_every=checkpoint.every,
            feed=feed,
            tracker=tracker,
            guard=guard,
            checkpoints=checkpoints,
            learning_rate=rule.learning_rate,
            stopping=early,
            write_page=write_page,
            hash_batches=hash_batches,
            tokens_before=first.tokens_seen,
        )
        if saved:
            progress.measure_restored(step, state)
        stopping_now = False
        stack.enter_context(shutdown.interrupts())
        while step < early.last_step(steps) and not stopping_now:
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
            # Each objective has had its turns by then, so that a trial knows them all.
            enough = 2 * len(objectives) <= step < steps
            if until and enough and primary_says(time.monotonic() >= until):
                early.end(step)
                progress.steps = step
                tracker.say(f"step {step} of {steps}: {early.reason()}")
            # All processes stop at the same step, so they agree on it here.
            stopping_now = shutdown.reached(step)
            progress.after(step, state, stopping_now)
            if on_start and is_primary() and not stopping_now:
                with progress.paused():
                    on_start(tracker.say)
                on_start = None

        # ---- the end -----------------------------------------------------------------------------
        # The result says that the run ended, so its last checkpoint is on disk first.
        checkpoints.close()
        # Before its last step a run ends only where it was asked to stop.
        reason = "preempted" if step < early.last_step(steps) else "finished"
        skipped = int(state.skipped)
        if reason == "finished" and skipped == step > 0:
            raise UserError(
                f"none of {step} updates was made, nothing is learnt: no gradient was finite and"
                " below optimizer.skip_norm; lower optimizer.loss_scale (float16) or LEARNING_RATE,"
                " and choose another --to"
            )
        has_result = progress.finish(step, reason, skipped)
        line = f"{reason} at step {step}"
        if skipped:
            line += f", {skipped} updates of it skipped"
        if reason == "preempted":
            line += ": the same command goes on from there"
        else:
            # Of what this start measured: one that was asked to stop may have measured nothing.
            for evaluator in evaluators if progress.values else ():
                tracker.say(evaluator.verdict(progress.values))
            if step > first.step and (written := progress.page()):
                line += f"; its report: {written}"
        tracker.say(line)
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
) -> None:
    """Raises UserError for settings that `train` refuses without a device; takes its arguments."""
    check_counts(
        microbatches, eval_every=eval_every, log_every=log_every, checkpoint_every=checkpoint.every
    )
    stopping.check(evaluators, eval_every)
    # Of a dry run they are not made yet.
    for one in evaluators:
        if isinstance(one, Evaluator):
            one.require(model)
    require_loss_scale(model, optimizer)


def require_loss_scale(model: ModelConfig, optimizer: OptimizerConfig) -> None:
    if model.dtype == "float16" and not optimizer.loss_scale:
        raise UserError(
            "in float16 small gradients become 0 without a loss scale: set"
            " optimizer.loss_scale=65536 (it adapts itself), or DTYPE=bfloat16 where the device has"
            " it"
        )
