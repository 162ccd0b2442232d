"""train(): a run's whole life, top to bottom."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax

from xlingjax.data.features import batch_hash
from xlingjax.errors import EXIT_CODE, UserError
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig, count_parameters
from xlingjax.model.encoder import Encoder
from xlingjax.model.partition import MeshConfig, check_counts, make_mesh
from xlingjax.objectives.summed import Summed
from xlingjax.runtime.files import write_json
from xlingjax.runtime.machine import (
    RuntimeConfig,
    all_agree,
    check_workdir,
    is_primary,
    out_of_memory_explained,
    start,
)
from xlingjax.runtime.signals import Preemption
from xlingjax.training.checkpoint import CheckpointConfig, Checkpoints, checkpoint_steps
from xlingjax.training.cost import Stopwatch, peak_memory_bytes
from xlingjax.training.feed import Feed, ObjectiveRun
from xlingjax.training.guard import Guard
from xlingjax.training.initialisation import Initialisation, first_weights
from xlingjax.training.optimizer import OptimizerConfig, make_optimizer
from xlingjax.training.run_record import run_identity, schedule_record, write_run
from xlingjax.training.schedule import check as check_schedule
from xlingjax.training.schedule import turns
from xlingjax.training.stages import stage_of, starts
from xlingjax.training.step import abstract_state, make_train_step, random_state, run_key
from xlingjax.training.sums import Interval, apart
from xlingjax.training.tracker import Tracker, evaluated_at, finite, flatten

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


class Evaluator(Protocol):
    name: str
    # at_end = True, where it is not run before the last step.

    def __call__(
        self, model: Encoder, params: Any, step: int, mesh: jax.sharding.Mesh
    ) -> dict[str, Any]:
        """Scalars and nested dicts or lists of them. Called by every process; must not keep
        `params`, the next step takes their memory."""
        ...


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
        return EXIT_CODE if self.exit_reason == "preempted" else 0


def train(
    *,
    workdir: str | Path,
    model: ModelConfig,
    objectives: Sequence[ObjectiveRun | Mapping[int, ObjectiveRun]],
    steps: int,
    seed: int = 0,
    microbatches: int = 1,
    optimizer: OptimizerConfig = OptimizerConfig(),  # noqa: B008 - frozen
    mesh: MeshConfig = MeshConfig(),  # noqa: B008 - frozen
    schedule: str = "alternate",
    evaluators: Sequence[Evaluator] = (),
    eval_every: int = 0,
    log_every: int = 50,
    checkpoint: CheckpointConfig = CheckpointConfig(),  # noqa: B008 - frozen
    init_from: str | Path | Initialisation | None = None,
    init_new: Sequence[str] = ADDED,
    max_bad_steps: int = 20,
    rng_impl: str = "threefry2x32",
    hash_batches: bool = False,
    extra_config: dict[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
    on_start: Callable[[], None] | None = None,
    runtime: RuntimeConfig = RuntimeConfig(),  # noqa: B008 - frozen
) -> Result:
    """Train `model` on several objectives for `steps` steps; go on from the newest checkpoint in
    `workdir` if there
    is one. An objective that changes during the run comes in stages, by the step from which each
    holds.

    init_from: a workdir or checkpoint folder whose parameters a new run starts from, or several of
    them (see `Initialisation`); parameters whose path matches a regular expression of init_new may
    be missing in the one. eval_every, log_every: steps between evaluations and log lines (0: only
    at the end).
    rng_impl: "rbg" makes dropout cheaper and its bits dependent on the mesh. hash_batches: put a
    hash of the batches into metrics.jsonl. extra_config: kept in run.json. files: {name: content},
    kept in workdir, written like run.json when nothing is left to refuse. on_start: called then, by
    one process, before the first step.

    A continued run takes the same batches, turns and random numbers as one that was never stopped.
    With several processes each calls train() with equal arguments. Raises UserError for everything
    the caller can repair, before
    the first step where that is possible.
    """
    # ---- the machine -----------------------------------------------------------------------------
    workdir = Path(workdir).absolute()
    check_counts(
        microbatches, eval_every=eval_every, log_every=log_every, checkpoint_every=checkpoint.every
    )
    machine = start(runtime)
    device_mesh = make_mesh(mesh)
    to_come = checkpoint.kept + 1 - len(checkpoint_steps(workdir / "checkpoints"))
    check_workdir(workdir, count_parameters(model) * BYTES_PER_PARAMETER * max(to_come, 1))
    with contextlib.ExitStack() as stack, out_of_memory_explained():
        tracker = Tracker(workdir, steps, is_primary())
        stack.callback(tracker.close)
        preemption = stack.enter_context(Preemption())
        guard = Guard(workdir, max_bad_steps, tracker.say)
        tracker.say(
            f"xlingjax on {machine}; mesh"
            f" {' x '.join(f'{k} {v}' for k, v in device_mesh.shape.items())}"
        )

        # ---- the state, abstract: shapes and where they lie --------------------------------------
        if model.dtype == "float16" and not optimizer.loss_scale:
            remedy = (
                "set optimizer.loss_scale=65536 (it adapts itself), or DTYPE=bfloat16 where the"
                " device has it"
            )
            raise UserError(f"in float16 small gradients become 0 without a loss scale: {remedy}")
        encoder = build_model(model, device_mesh)
        update_rule = make_optimizer(optimizer, steps, encoder.abstract())
        abstract = abstract_state(device_mesh, encoder, update_rule, optimizer)
        on_mesh = jax.tree.map(lambda x: x.sharding, abstract)
        started = checkpoint_steps(workdir / "checkpoints")
        give = None if started else first_weights(init_from, model, abstract.params, init_new)

        def due(step):
            last = step == steps
            if not (step and (last or (eval_every and step % eval_every == 0))):
                return {}
            return {
                one.name: one for one in evaluators if last or not getattr(one, "at_end", False)
            }

        # ---- the data ----------------------------------------------------------------------------
        feed = Feed(objectives, encoder, device_mesh, microbatches)
        stack.callback(feed.close)
        names, weights, runs, sources = feed.names, feed.weights, feed.runs, feed.sources
        check_schedule(weights, schedule, steps)
        feed.open()
        languages = feed.languages

        # ---- the weights: own checkpoint, else init_from, else random ----------------------------
        identity = run_identity(
            model, sources, {name: run.objective for name, run in runs.items()}, seed, optimizer
        )
        checkpoints = Checkpoints(workdir, checkpoint, identity, tracker.say)
        stack.callback(checkpoints.close)
        step, tokens_seen, given = 0, 0, []
        if restored := checkpoints.restore(abstract):
            step, state, tokens_seen = (
                restored.step,
                restored.state,
                restored.progress["tokens_seen"],
            )
            for name, source in sources.items():
                source.restore(restored.positions[name])
            weights_from = f"checkpoint {step} of {workdir}"
        else:
            state = random_state(encoder, update_rule, optimizer, on_mesh, seed)
            weights_from = f"random (seed {seed})"
            if give:
                params, weights_from, given = give(state.params, languages, identity)
                state = dataclasses.replace(state, params=params)
        left = (
            f"steps {step} to {steps}"
            if step < steps
            else f"nothing left to do: it has {step} steps of {steps}"
        )
        for line in given:
            tracker.say(line)
        tracker.say(f"weights: {weights_from}; {count_parameters(model):,} parameters; {left}")
        if is_primary() and (step < steps or not (workdir / "run.json").exists()):
            for name, content in (files or {}).items():
                (workdir / name).write_bytes(content)
            (workdir / "result.json").unlink(
                missing_ok=True
            )  # an earlier start's: this run has not ended
            write_run(
                workdir,
                identity,
                model,
                feed.shapes,
                languages,
                extra_config,
                settings={
                    "microbatches": microbatches,
                    **schedule_record(
                        runs, dict(zip(names, weights, strict=True)), steps, schedule, optimizer
                    ),
                },
                session={
                    "step": step,
                    "machine": machine,
                    "mesh": dict(device_mesh.shape),
                    "weights": weights_from,
                    **({"given": given} if given else {}),
                },
            )
            if on_start:
                on_start()
        known = not is_primary() or {*due(step)} <= evaluated_at(workdir, step)
        tracker.begin(step)

        # ---- what happens now and then -----------------------------------------------------------
        clock, intervals = Stopwatch(), {name: Interval() for name in names}
        key = run_key(seed, rng_impl, device_mesh)
        compiled, compile_seconds, last_lines, last_values = {}, {}, {}, {}
        tokens_before = tokens_seen

        def compile_step(objective, label, stage, batch):
            guard.drain()
            started = time.perf_counter()
            with clock.paused():
                step = make_train_step(
                    shardings=on_mesh, model=encoder, objective=objective, languages=len(languages),
                    optimizer=update_rule, config=optimizer, microbatches=microbatches, stage=stage,
                ).lower(state, batch, key).compile()  # fmt: skip
            compile_seconds[label] = time.perf_counter() - started
            tracker.say(f"compiled the {label} step in {compile_seconds[label]:.1f} s")
            return step

        def log():
            nonlocal tokens_seen
            guard.drain()
            if not (
                closed := {
                    name: line for name in names if (line := intervals[name].close(languages))
                }
            ):
                return
            tokens = sum(tokens for _, tokens in closed.values())
            tokens_seen += tokens
            common = {
                "learning_rate": float(update_rule.learning_rate(step - 1)),
                "tokens_seen": tokens_seen,
                "tokens_per_second": tokens / clock.lap(),
                "seconds": clock.seconds(),
            }
            last_lines.update(
                {name: {"objective": name, **line, **common} for name, (line, _) in closed.items()}
            )
            tracker.metrics(step, [last_lines[name] for name in closed])

        def evaluate():
            guard.drain()
            with clock.paused():
                for evaluator in due(step).values():
                    last_values[evaluator.name] = evaluator(
                        encoder, state.params, step, device_mesh
                    )
                    tracker.evaluation(step, evaluator.name, last_values[evaluator.name])

        def save(evaluated):
            log()  # so that a continued run starts its sums where this one does
            positions, values = (
                {name: source.state() for name, source in sources.items()},
                flatten(last_values),
            )
            checkpoints.save(
                step, state, positions, {"tokens_seen": tokens_seen}, values if evaluated else {}
            )

        # ---- the loop ----------------------------------------------------------------------------
        if restored and not all_agree(
            known
        ):  # it was asked to stop, or failed, before the checkpoint was measured
            evaluate()
            checkpoints.measured(step, flatten(last_values))
        stopping = False
        while step < steps and not stopping:
            if step in feed.starts:
                log()  # an objective's terms may be others from here on, and a line is of one stage
            now = turns(step, seed, weights, schedule)
            factors = {feed.stage(i, step): factor for i, factor in now.items()}
            label, summed = " + ".join(factors), schedule == "summed"
            rows = {name: feed.next(name, f"step {step} of {steps}") for name in factors}
            batch = {name: feed.on_devices(name, rows[name]) for name in factors}
            if summed:
                objective = Summed(
                    {name: (runs[name].objective, factor) for name, factor in factors.items()}
                )
            else:
                objective, batch = runs[label].objective, batch[label]
            program = (
                *factors.items(),
                max(begin for begin in starts([optimizer.frozen]) if begin <= step),
            )
            if program not in compiled:
                compiled[program] = compile_step(objective, label, program[-1], batch)
            state, sums = compiled[program](state, batch, key)
            guard.push(
                step,
                " + ".join(names[i] for i in now),
                rows,
                sums.pop("bad_steps"),
                sums.pop("finite"),
            )
            for name, own in (apart(sums) if summed else {label: sums}).items():
                intervals[stage_of(name)[0]].add(
                    own, batch_hash(rows[name]) if hash_batches else ""
                )
            step += 1
            stopping, last = preemption.reached(step), step == steps
            evaluate_now = due(step) and (last or not stopping)
            if last or (log_every and step % log_every == 0):
                log()
            if evaluate_now:
                try:
                    evaluate()
                except Exception:
                    save(evaluated=False)  # what was trained is not lost with it
                    raise
            if stopping or last or (checkpoint.every and step % checkpoint.every == 0):
                save(evaluate_now)
            tracker.tick(step)

        # ---- the end -----------------------------------------------------------------------------
        exit_reason = "preempted" if stopping and step < steps else "finished"
        checkpoints.close()
        if is_primary() and (
            last_lines or not (workdir / "result.json").exists()
        ):  # else it keeps what it has
            totals = {
                "steps": step,
                "exit_reason": exit_reason,
                "tokens_seen": tokens_seen,
                "seconds": clock.seconds(),
                "tokens_per_second": (tokens_seen - tokens_before) / clock.seconds(),
                "tokens_per_second_by_objective": {
                    label: (
                        sum(intervals[name].tokens_per_step() for name in label.split(" + "))
                        / seconds
                    )
                    for label, seconds in guard.seconds_per_step().items()
                },
                "compile_seconds": compile_seconds,
                "peak_memory_bytes": peak_memory_bytes(),
                "skipped": int(state.skipped),
                "metrics": last_lines,
                "evaluations": last_values,
                **({"best": checkpoints.best} if checkpoints.best else {}),
            }
            write_json(workdir / "result.json", finite(totals))
        tracker.say(f"{exit_reason} at step {step}")
        return Result(state.params, step, exit_reason, last_lines, last_values)
