"""What a run does now and then between its steps: log lines, evaluations, checkpoints, its page."""

import contextlib
import hashlib
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.runtime.files import write_json
from xlingjax.runtime.machine import is_primary
from xlingjax.training.checkpoint import Checkpoints
from xlingjax.training.evaluator import Evaluator
from xlingjax.training.feed import Feed, Turn
from xlingjax.training.guard import Guard
from xlingjax.training.stages import stage_of
from xlingjax.training.step import TrainState
from xlingjax.training.stopping import Stopping
from xlingjax.training.tracker import Tracker, evaluated_at, finite, flatten


@partial(jax.jit, donate_argnums=0)
def _add(total: Any, more: Any) -> Any:
    return jax.tree.map(jnp.add, total, more)


class Interval:
    """What one objective's steps add up to between two log lines. Adding does not wait for the
    device."""

    def __init__(self):
        self._total: Any = None
        self._hashes: list[str] = []
        self._steps = 0
        self._tokens = 0

    def tokens_per_step(self) -> float:
        """Mean over all steps that were closed."""
        return self._tokens / max(1, self._steps)

    def add(self, sums: dict[str, Any], batch_hash: str = "") -> None:
        """`sums`: what `step.train_step` returns; `batch_hash`: of the step's batch, if it is to be
        logged."""
        if self._total is None:
            self._total = sums
        else:
            # On the device: the host would have to wait for the numbers to add them.
            self._total = _add(self._total, sums)
        if batch_hash:
            self._hashes.append(batch_hash)

    def close(self, languages: Sequence[str]) -> tuple[dict[str, Any], int] | None:
        """(log line, tokens) and start again from nothing; None if nothing was added. Waits for the
        device.

        The line's `loss` is the mean over predictions, `total` and `grad_norm` the mean over steps
        that were not skipped, `batch_hash` the batch's hash, or with several steps the SHA-256 of
        all of theirs in order.
        """
        if self._total is None:
            return None
        # The one place where the host waits for them, once for all.
        total = jax.tree.map(np.asarray, self._total)
        hashes = self._hashes
        self._total = None
        self._hashes = []
        steps = int(total["steps"])
        good = int(total["good"])
        tokens = int(total["tokens"])
        self._steps += steps
        self._tokens += tokens
        line = summarise(total["metrics"], languages)
        # By good steps: one that was skipped adds nothing to either.
        for key in ("total", "grad_norm"):
            line[key] = ratio(total[key], good)
        line["steps"] = steps
        line["skipped"] = steps - good
        if len(hashes) == 1:
            line["batch_hash"] = hashes[0]
        elif hashes:
            line["batch_hash"] = hashlib.sha256("".join(hashes).encode()).hexdigest()
        return line, tokens


def apart(sums: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """{objective: its part} of what a step of several adds up to: its metrics and tokens, and a
    copy of what all share (`Interval` gives buffers away)."""
    shared = dict(sums)
    for name in ("metrics", "tokens"):
        shared.pop(name, None)
    parts = {}
    for name, metrics in sums["metrics"].items():
        part = jax.tree.map(jnp.copy, shared)
        part["metrics"] = metrics
        part["tokens"] = sums["tokens"][name]
        parts[name] = part
    return parts


def ratio(total: Any, weight: Any) -> float | None:
    """total / weight, or None where nothing was counted."""
    if float(weight) > 0:
        return float(total) / float(weight)
    return None


def perplexity(nll: float) -> float:
    """exp of a mean negative log-likelihood in nats; infinite instead of an overflow."""
    if nll < 700:
        return math.exp(nll)
    return math.inf


def summarise(metrics: dict[str, tuple[Any, Any]], languages: Sequence[str]) -> dict[str, Any]:
    """Means from (sum, weight) pairs. The name of the term is cut from "mlm/loss"; of several terms
    "loss" is the mean over all their predictions, and each has its own "veco_plug_in_x/loss" beside
    it. An array over languages becomes {language: mean} of those that were seen; a metric that
    counted nothing is left out. `perplexity` stands beside the `loss`."""
    terms: dict[str, dict[str, tuple[Any, Any]]] = {}
    for name, pair in metrics.items():
        term, _, key = name.rpartition("/")
        terms.setdefault(key, {})[term] = pair
    means: dict[str, Any] = {}
    for key, of_terms in terms.items():
        totals, weights = zip(*of_terms.values(), strict=True)
        pairs = {key: (sum(totals), sum(weights))}
        # Of one term the mean is that of all; per language only the mean of all is kept.
        if len(of_terms) > 1 and np.ndim(pairs[key][0]) == 0:
            for term, pair in of_terms.items():
                pairs[f"{term}/{key}"] = pair
        for name, (total, weight) in pairs.items():
            value = _mean(total, weight, languages)
            if value is None or value == {}:
                continue
            means[name] = value
            if name == "loss":
                means["perplexity"] = perplexity(value)
    return means


def _mean(total: Any, weight: Any, languages: Sequence[str]) -> Any:
    if np.ndim(total) == 0:
        return ratio(total, weight)
    means = {}
    for language, t, w in zip(languages, total, weight, strict=True):
        # A language that was not seen in the interval has no mean, rather than 0.
        if w > 0:
            means[language] = ratio(t, w)
    return means


class Stopwatch:
    """Seconds of training, without what happens inside `paused()` (compilation, evaluation)."""

    def __init__(self):
        self._total = 0.0
        self._since = time.perf_counter()
        self._lap = 0.0

    def seconds(self) -> float:
        """Counted seconds since the start."""
        return self._total + time.perf_counter() - self._since

    def lap(self) -> float:
        """Counted seconds since the last lap."""
        before = self._lap
        self._lap = self.seconds()
        return self._lap - before

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        # What has been counted so far is put by; counting begins again behind the pause.
        self._total += time.perf_counter() - self._since
        try:
            yield
        finally:
            self._since = time.perf_counter()


def peak_memory_bytes() -> int:
    """The largest peak over this process's devices; on CPU, where devices keep no count, the
    process's own peak."""
    peaks = []
    for device in jax.local_devices():
        # CPU devices have None.
        stats = device.memory_stats() or {}
        if "peak_bytes_in_use" in stats:
            peaks.append(stats["peak_bytes_in_use"])
    if peaks:
        return max(peaks)
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


SHARE = 0.05
"""Of a run's time that its page may take."""


class Page:
    """Calls `write`, which gives the page's path, where that is due. What goes wrong in it is one
    line and no more. Of several processes one has a page that is written: `write` is None in the
    others."""

    def __init__(self, write: Callable[[], Path] | None, say: Callable[[str], None]):
        self._write = write
        self._say = say
        self._rested_until = 0.0

    def refresh(self) -> None:
        """After an evaluation. Where these follow each other closely, some are left out."""
        if time.monotonic() >= self._rested_until:
            self.written()

    def written(self) -> Path | None:
        """Writes the page and returns its path; None where there is none."""
        if self._write is None:
            return None
        started = time.monotonic()
        try:
            return self._write()
        # Whatever it is: a picture is no reason to lose a training.
        except Exception as error:
            reason = str(error) or type(error).__name__
            self._say(f"the report was not written: {reason.splitlines()[0]}")
            return None
        finally:
            ended = time.monotonic()
            self._rested_until = ended + (ended - started) / SHARE


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

    def finish(self, workdir: Path, step: int, exit_reason: str, skipped: int) -> bool:
        """Writes result.json of a run that ended after `step` steps; whether it did. skipped: its
        updates that were."""
        path = workdir / "result.json"
        # A finished run that was started again did nothing, and keeps the result that it has.
        if not is_primary() or (not self.lines and path.exists()):
            return False
        write_json(path, finite(self._totals(step, exit_reason, skipped)))
        return True

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
