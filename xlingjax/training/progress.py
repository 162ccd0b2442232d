"""What a run does now and then between its steps: log lines, evaluations, checkpoints, its page."""

import contextlib
import dataclasses
import hashlib
import json
import math
import resource
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.errors import Stopped, UserError
from xlingjax.runtime.files import write_json
from xlingjax.runtime.machine import all_agree, first_line, give_back_memory, is_primary
from xlingjax.runtime.progress import doing
from xlingjax.training.checkpoint import Checkpoints
from xlingjax.training.evaluator import Evaluator
from xlingjax.training.feed import Feed, Turn
from xlingjax.training.guard import Guard
from xlingjax.training.stages import stage_of
from xlingjax.training.step import TrainState
from xlingjax.training.stopping import Stopping
from xlingjax.training.tracker import Tracker, evaluations_at, finite, flatten


@partial(jax.jit, donate_argnums=0)
def _add(total: Any, more: Any) -> Any:
    return jax.tree.map(jnp.add, total, more)


class Interval:
    """What an objective's steps add up to between log lines; the device is not waited for."""

    def __init__(self):
        self._total: Any = None
        self._hashes: list[str] = []

    def add(self, sums: dict[str, Any], batch_hash: str = "") -> None:
        """sums: what `step.train_step` returns. batch_hash: of the step's batch, if logged."""
        if self._total is None:
            self._total = sums
        else:
            # On the device: the host would have to wait for the numbers to add them.
            self._total = _add(self._total, sums)
        if batch_hash:
            self._hashes.append(batch_hash)

    def close(self, languages: Sequence[str]) -> tuple[dict[str, Any], int] | None:
        """(log line, tokens), then start anew; None if nothing was added. Waits for the device.

        The line's `loss` is the mean over predictions, `total` and `grad_norm` the mean over steps
        that were not skipped, `batch_hash` the SHA-256 of all batches' hashes in order.
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
        line = summarise(total["metrics"], languages)
        # By good steps: one that was skipped adds nothing to either.
        for key in ("total", "grad_norm"):
            line[key] = ratio(total[key], good)
        line["steps"] = steps
        line["skipped"] = steps - good
        if hashes:
            line["batch_hash"] = hashlib.sha256("".join(hashes).encode()).hexdigest()
        return line, int(total["tokens"])


def apart(sums: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """{objective: its part} of what a step of several adds up to: its metrics and tokens, and a
    copy of what all share (`Interval` gives buffers away)."""
    shared = {name: value for name, value in sums.items() if name not in ("metrics", "tokens")}
    return {
        name: jax.tree.map(jnp.copy, shared) | {"metrics": metrics, "tokens": sums["tokens"][name]}
        for name, metrics in sums["metrics"].items()
    }


def ratio(total: Any, weight: Any) -> float | None:
    """total / weight, or None where nothing was counted."""
    return float(total) / float(weight) if float(weight) > 0 else None


def perplexity(nll: float) -> float:
    """exp of a mean negative log-likelihood in nats; infinite instead of an overflow."""
    return math.exp(nll) if nll < 700 else math.inf


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
        totals, weights = map(sum, zip(*of_terms.values(), strict=True))
        if np.ndim(totals):
            # A language that was not seen in the interval has no mean, rather than 0.
            seen = zip(languages, totals, weights, strict=True)
            mean: Any = {language: ratio(t, w) for language, t, w in seen if w > 0} or None
        else:
            mean = ratio(totals, weights)
            if len(of_terms) > 1:
                for term, (total, weight) in of_terms.items():
                    means[f"{term}/{key}"] = ratio(total, weight)
        means[key] = mean
    if means.get("loss") is not None:
        means["perplexity"] = perplexity(means["loss"])
    return {name: value for name, value in means.items() if value is not None}


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
        self._total += time.perf_counter() - self._since
        try:
            yield
        finally:
            give_back_memory()
            self._since = time.perf_counter()


def peak_memory_bytes() -> int:
    """The largest peak over this process's devices; on CPU, which keeps no count, its own."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return max((one.get("peak_bytes_in_use", 0) for one in stats), default=0) or own


def _measured(evaluator: Evaluator, *given: Any) -> dict[str, Any]:
    """Raises UserError for what goes wrong in one of a user's own."""
    if type(evaluator).__module__.startswith("xlingjax."):
        return evaluator(*given)
    try:
        values = evaluator(*given)
        if not isinstance(values, Mapping):
            raise TypeError(f"it gave {values!r:.80}, and a dict is needed")
        json.dumps(finite(values))
    except (UserError, Stopped, jax.errors.JaxRuntimeError):
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(
            f"evaluator {evaluator.name}: {type(error).__name__}: {first_line(error)}"
            f" ({frame.filename}, line {frame.lineno})"
        ) from error
    return dict(values)


PAGE_SHARE = 0.05  # of a run's time, what its page may take


@dataclasses.dataclass
class Progress:
    """Adds up what the steps return; writes, measures and saves when due. Its clock starts with it.

    Every process has one and calls the same methods at the same steps. *_every: 0: only at the end.
    """

    workdir: Path
    steps: int
    evaluators: Sequence[Evaluator]
    eval_every: int
    log_every: int
    save_every: int
    feed: Feed
    tracker: Tracker
    guard: Guard
    checkpoints: Checkpoints
    learning_rate: Callable[[int], Any]
    stopping: Stopping
    write_page: Callable[[], Path] | None
    hash_batches: bool
    tokens_before: int  # seen before this start

    def __post_init__(self):
        self.lines: dict[str, Any] = {}
        """The last log line of each objective."""
        self.values: dict[str, Any] = {}
        """The last values of each evaluator."""
        self._clock = Stopwatch()
        self._next_page = 0.0
        self._tokens_seen = self.tokens_before
        self._intervals = {name: Interval() for name in self.feed.names}
        self._compile_seconds: dict[str, float] = {}

    def _due(self, every: int, step: int) -> bool:
        return step == self.steps or (every > 0 and step % every == 0)

    def _to_measure(self, step: int) -> dict[str, Evaluator]:
        """{name: evaluator} of those to be run after `step` steps; none before the first."""
        if step == 0 or not self._due(self.eval_every, step):
            return {}
        last = step == self.steps
        return {one.name: one for one in self.evaluators if last or not one.at_end}

    def after(self, step: int, state: TrainState, stopping: bool) -> None:
        """Whatever is due after `step` steps. stopping: the run was asked to stop here."""
        # A run that is asked to stop has little time left: it saves and does not measure. At the
        # last step nothing comes after it that could do so.
        evaluates = bool(self._to_measure(step)) and (step == self.steps or not stopping)
        # Before evaluation, which may take long: the line of these steps is there meanwhile.
        if self._due(self.log_every, step):
            self.log(step)
        if evaluates:
            try:
                self._evaluate(step, state)
            except Exception:
                # What was trained is not lost with it.
                self._save(step, state, evaluated=False)
                raise
        if stopping or self._due(self.save_every, step):
            self._save(step, state, evaluated=evaluates)
        # At the last step the run's result is to be in it, which comes later.
        if evaluates and step < self.steps and time.monotonic() >= self._next_page:
            with self._clock.paused():
                self.page()

    def measure_restored(self, step: int, state: TrainState) -> None:
        """Evaluate a checkpoint that the last start did not: it was asked to stop, or failed."""
        # By the process that writes the file; the others follow it. What a damaged line says is
        # measured again: it is told when the file is opened to go on with.
        known = evaluations_at(self.workdir, step, say=lambda line: None)
        if not all_agree(not is_primary() or self._to_measure(step).keys() <= known.keys()):
            self._evaluate(step, state)
            self.checkpoints.measured(step, flatten(self.values))

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """Around what takes none of the time of training."""
        return self._clock.paused()

    @contextlib.contextmanager
    def compiling(self, label: str) -> Iterator[None]:
        """Around the wait for the compiled step of a turn of this label."""
        # The steps on their way end before the clock stops: they are training.
        self.guard.drain()
        started = time.perf_counter()
        doing(f"compiling the {label} step")
        with self._clock.paused():
            yield
        seconds = time.perf_counter() - started
        self._compile_seconds[label] = self._compile_seconds.get(label, 0.0) + seconds
        self.tracker.say(f"compiled the {label} step in {seconds:.1f} s")

    def add(self, step: int, turn: Turn, rows: Mapping[str, Any], sums: dict[str, Any]) -> None:
        """What the step from `step` on returned for `rows`. Does not wait for the device."""
        self.guard.push(step, turn.names, rows, sums.pop("bad_steps"))
        by_stage = apart(sums) if turn.summed else {turn.label: sums}
        for name, own in by_stage.items():
            # The stages of an objective share its log lines.
            objective, _ = stage_of(name)
            digest = self.feed.batch_hash(name, rows[name]) if self.hash_batches else ""
            self._intervals[objective].add(own, digest)

    def log(self, step: int) -> None:
        """A line for each objective that ran since the last ones."""
        self.guard.drain()
        lines = {n: one.close(self.feed.languages) for n, one in self._intervals.items()}
        closed = {name: line for name, line in lines.items() if line is not None}
        if not closed:
            return
        tokens = sum(count for _, count in closed.values())
        # Counted when a line is closed, since a step's count is on the device before that.
        self._tokens_seen += tokens
        common = {
            "learning_rate": float(self.learning_rate(step - 1)),
            "tokens_seen": self._tokens_seen,
            # Of the interval, so that a slow beginning does not weigh on it for ever.
            "tokens_per_second": tokens / self._clock.lap(),
            "seconds": self._clock.seconds(),
        }
        for name, (line, _) in closed.items():
            self.lines[name] = {"objective": name, **line, **common}
        self.tracker.metrics(step, [self.lines[name] for name in closed])

    def _evaluate(self, step: int, state: TrainState) -> None:
        self.guard.drain()
        due = self._to_measure(step)
        self._measure(due, step, state)
        measured = {name: self.values[name] for name in due}
        if step < self.steps and self.stopping.measured(step, measured):
            self.tracker.say(f"step {step}: {self.stopping.reason()}")
            # The run stops early: what is measured at the end alone is measured now.
            self.steps = step
            at_end = {n: one for n, one in self._to_measure(step).items() if n not in due}
            self._measure(at_end, step, state)

    def _measure(self, evaluators: Mapping[str, Evaluator], step: int, state: TrainState) -> None:
        failure = None
        # Tokens per second are of training alone.
        with self._clock.paused():
            try:
                for name, evaluator in evaluators.items():
                    values = _measured(
                        evaluator, self.feed.model, state.params, step, self.feed.mesh
                    )
                    self.values[name] = values
                    self.tracker.evaluation(step, name, values)
            except Exception as error:
                failure = error
        # Of several processes none goes on where one does not: each would wait for the other.
        if not all_agree(failure is None):
            raise failure or UserError(
                f"step {step}: an evaluation failed in another process: its output says how"
            )

    def _save(self, step: int, state: TrainState, evaluated: bool) -> None:
        # So that a continued run starts its sums where this one does.
        self.log(step)
        self.checkpoints.save(
            step,
            state,
            # Of every stage, those too that have ended or not begun: a resumed run opens them all.
            {name: source.state() for name, source in self.feed.sources.items()},
            {"tokens_seen": self._tokens_seen},
            flatten(self.values) if evaluated else {},
        )

    def page(self) -> Path | None:
        """Writes the page and returns its path; None where there is none."""
        if self.write_page is None or not is_primary():
            return None
        started = time.monotonic()
        try:
            return self.write_page()
        except Exception as error:
            self.tracker.say(f"the report was not written: {first_line(error)}")
            return None
        finally:
            ended = time.monotonic()
            # Where evaluations follow each other closely, some have no page.
            self._next_page = ended + (ended - started) / PAGE_SHARE

    def finish(self, step: int, exit_reason: str, skipped: int) -> bool:
        """Writes result.json of a run that ended after `step` steps; whether it did. skipped: its
        updates that were."""
        path = self.workdir / "result.json"
        # A finished run that was started again did nothing, and keeps the result that it has.
        if not is_primary() or (not self.lines and path.exists()):
            return False
        seconds = self._clock.seconds()
        totals = {
            "steps": step,
            "exit_reason": exit_reason,
            "tokens_seen": self._tokens_seen,
            "seconds": seconds,
            "tokens_per_second": (self._tokens_seen - self.tokens_before) / seconds,
            "compile_seconds": self._compile_seconds,
            "peak_memory_bytes": peak_memory_bytes(),
            "skipped": skipped,
            "metrics": self.lines,
            "evaluations": self.values,
        }
        extra = {"stopped_early": self.stopping.record(), "best": self.checkpoints.best}
        totals |= {name: value for name, value in extra.items() if value}
        write_json(path, finite(totals))
        return True
