"""Early stopping: a run ends where a metric of held-out data has not become better for so many
evaluations (XLM §5.1 and its `--stopping_criterion`).

Whether a run stops is a function of evaluations.jsonl alone, which a continued run goes on with: it
stops at the step at which one that was never killed does.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError, require_choice, require_whole
from xlingjax.runtime.machine import primary_says
from xlingjax.runtime.records import read_lines
from xlingjax.training.evaluator import Evaluator
from xlingjax.training.tracker import EVALUATION, flatten


@dataclass(frozen=True)
class StoppingConfig:
    patience: int | None = 0
    """Evaluations in a row without a better value that end the run; 0 or None: it takes all its
    steps."""
    metric: str = ""
    """"EVALUATOR/NAME" of a number, for instance "perplexity/mean"."""
    mode: str = "min"
    """Whether the lowest or the highest value is the best."""

    def __post_init__(self):
        # A recipe may write None for "no early stopping".
        patience = self.patience or 0
        require_whole(self, "[0, inf)", "patience", "stopping: ")
        require_choice(self, ("min", "max"), "mode", "stopping: ")
        if not patience:
            return
        names = self.metric.replace(",", " ").split()
        if len(names) != 1:
            raise UserError(
                f"PATIENCE={patience} needs one metric to stop by, and STOP_METRIC (left out:"
                f" BEST_METRIC) names {len(names)}: set STOP_METRIC=EVALUATOR/NAME"
            )
        object.__setattr__(self, "metric", names[0])


class Stopping:
    """Counts the evaluations since the best. Every process has one and calls the same methods at
    the same steps; the first decides for all, since it alone has evaluations.jsonl for certain."""

    def __init__(self, config: StoppingConfig):
        self._config = config
        self.stopped_at: int | None = None
        """The step at which the run has stopped."""
        self._values: dict[int, float] = {}

    @property
    def evaluator(self) -> str:
        """The evaluator whose metric decides."""
        return self._config.metric.partition("/")[0]

    def last_step(self, steps: int) -> int:
        """The last of a run that is to take `steps`."""
        if self.stopped_at is None:
            return steps
        return self.stopped_at

    def check(self, evaluators: Sequence[Evaluator], eval_every: int) -> None:
        """Raises UserError where no evaluation on the way can give the metric."""
        if not self._patience:
            return
        what = f"PATIENCE={self._config.patience}"
        if not eval_every:
            raise UserError(
                f"{what} stops at evaluations and EVAL_EVERY=0 has none before the end: set"
                " EVAL_EVERY"
            )
        names = [one.name for one in evaluators if not one.at_end]
        if self.evaluator not in names:
            known = ", ".join(names) or "none: set HELDOUT_TEXT or DEV_FILES"
            raise UserError(
                f"{what}: STOP_METRIC={self._config.metric} is of no evaluator of this run (there"
                f" is {known}); correct it, or set PATIENCE=0"
            )

    @property
    def _patience(self) -> int:
        return self._config.patience or 0

    def chosen(self, evaluators: Sequence[Evaluator]) -> Evaluator:
        """The evaluator whose metric decides, after `check`."""
        return next(one for one in evaluators if one.name == self.evaluator)

    def is_unknown(self) -> bool:
        """Whether no evaluation has shown yet that the metric is there."""
        if not self._patience:
            return False
        # Measuring takes all processes.
        return primary_says(not self._values)

    def require(self, values: Mapping[str, Any]) -> None:
        """values: of the evaluator, measured before the first step. Raises UserError where the
        metric is not among them."""
        metric = self._config.metric
        known = flatten({self.evaluator: values})
        if metric not in known:
            raise UserError(
                f"STOP_METRIC={metric}: evaluator {self.evaluator} does not give it; there is"
                f" {', '.join(sorted(known))}"
            )

    def recall(self, workdir: Path, step: int) -> None:
        """What the run measured up to `step`, where it goes on."""
        if not self._patience:
            return
        for at, values in _evaluated(workdir, step, self.evaluator):
            self._note(at, values)
        self._decide(step)

    def measured(self, step: int, values: Mapping[str, Any]) -> bool:
        """Whether the run stops after this evaluation. values: {evaluator: its values}."""
        if not self._patience or self.evaluator not in values:
            return False
        self._note(step, values[self.evaluator])
        return self._decide(step)

    def _note(self, step: int, values: Mapping[str, Any]) -> None:
        numbers = flatten({self.evaluator: values})
        self._values[step] = numbers.get(self._config.metric, math.nan)

    def _decide(self, step: int) -> bool:
        # What another process has measured may differ in its last digit.
        stops = primary_says(self._since_best() >= self._patience)
        if stops:
            self.stopped_at = step
        return stops

    def _since_best(self) -> int:
        return len(self._values) - 1 - self._best()[0]

    def _best(self) -> tuple[int, int, float]:
        """(how manyth of the evaluations, its step, its value) is the best; -1: none is."""
        sign = 1.0
        if self._config.mode == "max":
            sign = -1.0
        best = (-1, 0, math.nan)
        for place, step in enumerate(sorted(self._values)):
            value = self._values[step]
            # An equal value is no better one, nor is NaN. XLM's code counts the same way.
            if math.isfinite(value) and (best[0] < 0 or sign * value < sign * best[2]):
                best = (place, step, value)
        return best

    def reason(self) -> str:
        """Why it stopped, as a line."""
        config = self._config
        _, step, value = self._best()
        return (
            f"early stopping: {config.metric} was not better in {config.patience} evaluations than"
            f" {value:.4f} of step {step}"
        )

    def record(self) -> dict[str, Any]:
        """Why and when it stopped, as JSON; {}: it has not."""
        if self.stopped_at is None:
            return {}
        _, step, value = self._best()
        return {
            "step": self.stopped_at,
            "metric": self._config.metric,
            "mode": self._config.mode,
            "patience": self._config.patience,
            "best_step": step,
            "best": value,
        }


def _evaluated(workdir: Path, step: int, name: str) -> list[tuple[int, Mapping[str, Any]]]:
    """(step, values) of an evaluator up to `step`."""
    evaluations = []
    # When a run stops goes by them, so none is passed over.
    for record in read_lines(workdir / "evaluations.jsonl", EVALUATION):
        if record["name"] == name and record["step"] <= step:
            evaluations.append((record["step"], record["values"]))
    return evaluations
