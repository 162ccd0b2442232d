"""What a run does now and then between its steps: log lines, evaluations, checkpoints."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.runtime.files import write_json
from xlingjax.runtime.machine import is_primary
from xlingjax.training.checkpoint import Checkpoints
from xlingjax.training.cost import Stopwatch, peak_memory_bytes
from xlingjax.training.evaluator import Evaluator
from xlingjax.training.feed import Feed, Turn
from xlingjax.training.files_at_end import sealed
from xlingjax.training.guard import Guard
from xlingjax.training.page import Page
from xlingjax.training.stages import stage_of
from xlingjax.training.step import TrainState
from xlingjax.training.stopping import Stopping
from xlingjax.training.sums import Interval, apart
from xlingjax.training.tracker import Tracker, evaluated_at, finite, flatten


class Timetable:
    """At which of a run's `steps` something is due. every: 0 means only at the end."""

    def __init__(
        self,
        steps: int,
        evaluators: Sequence[Evaluator],
        eval_every: int,
        log_every: int,
        checkpoint_every: int,
    ):
        self._steps = steps
        self._evaluators = evaluators
        self._eval_every = eval_every
        self._log_every = log_every
        self._checkpoint_every = checkpoint_every

    def last(self, step: int) -> bool:
        return step == self._steps

    def end_at(self, step: int) -> None:
        """The run stops early: `step` is its last."""
        self._steps = step

    def logs(self, step: int) -> bool:
        return self.last(step) or _divides(self._log_every, step)

    def saves(self, step: int) -> bool:
        return self.last(step) or _divides(self._checkpoint_every, step)

    def evaluators(self, step: int) -> dict[str, Evaluator]:
        """{name: evaluator} of those to be run after `step` steps; none before the first."""
        last = self.last(step)
        if step == 0 or not (last or _divides(self._eval_every, step)):
            return {}
        due = {}
        for evaluator in self._evaluators:
            if last or not evaluator.at_end:
                due[evaluator.name] = evaluator
        return due

    def measured(self, workdir: Path, step: int) -> bool:
        """Whether all that is due after `step` steps is written down."""
        # A run may have been killed between its checkpoint and the evaluation.
        return set(self.evaluators(step)) <= evaluated_at(workdir, step)


def _divides(every: int, step: int) -> bool:
    return every > 0 and step % every == 0


class Progress:
    """Adds up what the steps return, and writes, measures and saves where the timetable says so.

    Every process has one and calls the same methods at the same steps.
    """

    lines: dict[str, Any]
    """The last log line of each objective."""
    values: dict[str, Any]
    """The last values of each evaluator."""

    def __init__(
        self,
        timetable: Timetable,
        feed: Feed,
        tracker: Tracker,
        guard: Guard,
        checkpoints: Checkpoints,
        learning_rate: Callable[[int], Any],
        stopping: Stopping,
        page: Page,
        *,
        hash_batches: bool,
        tokens_seen: int,
    ):
        """Its clock runs from here on. tokens_seen: before this start."""
        self._timetable = timetable
        self._feed = feed
        self._tracker = tracker
        self._guard = guard
        self._clock = Stopwatch()
        self._checkpoints = checkpoints
        self._learning_rate = learning_rate
        self._stopping = stopping
        self._page = page
        self._hash_batches = hash_batches
        self._tokens_before = tokens_seen
        self._tokens_seen = tokens_seen
        self._intervals = {name: Interval() for name in feed.names}
        self._compile_seconds: dict[str, float] = {}
        self.lines = {}
        self.values = {}

    @contextlib.contextmanager
    def compiling(self, label: str) -> Iterator[None]:
        """Around the wait for the compiled step of a turn of this label."""
        # The steps on their way end before the clock stops: they are training.
        self._guard.drain()
        started = time.perf_counter()
        with self._clock.paused():
            yield
        seconds = time.perf_counter() - started
        # Of all lengths that its rows are padded to.
        before = self._compile_seconds.get(label, 0.0)
        self._compile_seconds[label] = before + seconds
        self._tracker.say(f"compiled the {label} step in {seconds:.1f} s")

    def add(self, step: int, turn: Turn, rows: Mapping[str, Any], sums: dict[str, Any]) -> None:
        """What the step from `step` on returned for `rows`. Does not wait for the device."""
        bad_steps = sums.pop("bad_steps")
        finite = sums.pop("finite")
        self._guard.push(step, turn.names, rows, bad_steps, finite)
        by_stage = {turn.label: sums}
        if turn.summed:
            by_stage = apart(sums)
        for name, own in by_stage.items():
            # The stages of an objective share its log lines.
            objective, _ = stage_of(name)
            digest = ""
            if self._hash_batches:
                digest = self._feed.batch_hash(name, rows[name])
            self._intervals[objective].add(own, digest)

    def beside(self, function: Callable[[], None]) -> None:
        """Calls it; its time is none of training."""
        with self._clock.paused():
            function()

    def after(self, step: int, state: TrainState, stopping: bool) -> None:
        """Whatever is due after `step` steps. stopping: the run was asked to stop here."""
        # A run that is asked to stop has little time left: it saves and does not measure. At the
        # last step nothing comes after it that could do so.
        evaluates = self._timetable.evaluators(step) and (
            self._timetable.last(step) or not stopping
        )
        # Before evaluation, which may take long: the line of these steps is there meanwhile.
        if self._timetable.logs(step):
            self.log(step)
        if evaluates:
            try:
                self.evaluate(step, state)
            except Exception:
                # What was trained is not lost with it.
                self.save(step, state, evaluated=False)
                raise
        if stopping or self._timetable.saves(step):
            self.save(step, state, evaluated=bool(evaluates))
        # At the last step the run's result is to be in it, which comes later.
        if evaluates and not self._timetable.last(step):
            self.beside(self._page.refresh)
        self._tracker.tick(step)

    def log(self, step: int) -> None:
        """A line for each objective that ran since the last ones."""
        self._guard.drain()
        closed = {}
        for name, interval in self._intervals.items():
            line = interval.close(self._feed.languages)
            if line is not None:
                closed[name] = line
        if not closed:
            return
        tokens = sum(count for _, count in closed.values())
        # Counted when a line is closed, since a step's count is on the device before that.
        self._tokens_seen += tokens
        common = {
            # Of the update that the last step made.
            "learning_rate": float(self._learning_rate(step - 1)),
            "tokens_seen": self._tokens_seen,
            # Of the interval, so that a slow beginning does not weigh on it for ever.
            "tokens_per_second": tokens / self._clock.lap(),
            "seconds": self._clock.seconds(),
        }
        for name, (line, _) in closed.items():
            self.lines[name] = {"objective": name, **line, **common}
        self._tracker.metrics(step, [self.lines[name] for name in closed])

    def evaluate(self, step: int, state: TrainState) -> None:
        self._guard.drain()
        due = self._timetable.evaluators(step)
        self._measure(due, step, state)
        measured = {name: self.values[name] for name in due}
        if self._timetable.last(step) or not self._stopping.measured(step, measured):
            return
        self._tracker.say(f"step {step}: {self._stopping.reason()}")
        self._timetable.end_at(step)
        # What is measured at the end alone.
        at_end = {}
        for name, evaluator in self._timetable.evaluators(step).items():
            if name not in due:
                at_end[name] = evaluator
        self._measure(at_end, step, state)

    def _measure(self, evaluators: Mapping[str, Evaluator], step: int, state: TrainState) -> None:
        # Tokens per second are of training alone.
        with self._clock.paused():
            for name, evaluator in evaluators.items():
                values = evaluator(self._feed.model, state.params, step, self._feed.mesh)
                self.values[name] = values
                self._tracker.evaluation(step, name, values)

    def save(self, step: int, state: TrainState, evaluated: bool) -> None:
        # So that a continued run starts its sums where this one does.
        self.log(step)
        positions = {}
        for name, source in self._feed.sources.items():
            # Of every stage, those too that have ended or not begun: a resumed run opens them all.
            positions[name] = source.state()
        values = {}
        if evaluated:
            values = flatten(self.values)
        self._checkpoints.save(
            step,
            state,
            positions,
            {"tokens_seen": self._tokens_seen, "stopped_early": self._stopping.record()},
            values,
        )

    def measure_restored(self, step: int, state: TrainState) -> None:
        """Evaluates a checkpoint that the start before had no time to measure."""
        self.evaluate(step, state)
        self._checkpoints.measured(step, flatten(self.values))

    def finish(self, workdir: Path, step: int, exit_reason: str, skipped: int) -> None:
        """Writes result.json of a run that ended after `step` steps. skipped: its updates that
        were."""
        path = workdir / "result.json"
        # A finished run that was started again did nothing, and keeps the result that it has.
        if is_primary() and (self.lines or not path.exists()):
            totals = self._totals(step, exit_reason, skipped)
            write_json(path, sealed(finite(totals), workdir))

    def _totals(self, step: int, exit_reason: str, skipped: int) -> dict[str, Any]:
        seconds = self._clock.seconds()
        by_objective = {}
        for label, per_step in self._guard.seconds_per_step().items():
            tokens = 0.0
            for name in label.split(" + "):
                tokens += self._intervals[name].tokens_per_step()
            by_objective[label] = tokens / per_step
        read = self._tokens_seen - self._tokens_before
        totals = {
            "steps": step,
            "exit_reason": exit_reason,
            "tokens_seen": self._tokens_seen,
            "seconds": seconds,
            "tokens_per_second": read / seconds,
            "tokens_per_second_by_objective": by_objective,
            "compile_seconds": self._compile_seconds,
            "peak_memory_bytes": peak_memory_bytes(),
            "skipped": skipped,
            "metrics": self.lines,
            "evaluations": self.values,
        }
        # Only of runs that stopped early.
        stopped = self._stopping.record()
        if stopped:
            totals["stopped_early"] = stopped
        # Only of runs that keep the best.
        if self._checkpoints.best:
            totals["best"] = self._checkpoints.best
        return totals
