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

from xlingjax.errors import UserError, meant, require_choice, require_whole
from xlingjax.runtime.machine import primary_says
from xlingjax.runtime.records import read_lines
from xlingjax.training.evaluator import Evaluator
from xlingjax.training.tracker import EVALUATION, flatten


@dataclass(frozen=True)
class StoppingConfig:
    patience: int | None = 0
    """Evaluations in a row without a better value that end the run; 0 or None: none do."""
    metric: str = ""
    """"EVALUATOR/NAME" of a number, for instance "perplexity/mean"."""
    mode: str = "min"
    """Whether the lowest or the highest value is the best."""

    def __post_init__(self):
        require_whole(self, "[0, inf)", "patience", "stopping: ")
        require_choice(self, ("min", "max"), "mode", "stopping: ")
        # A recipe may write None for "no early stopping".
        object.__setattr__(self, "patience", self.patience or 0)
        names = self.metric.replace(",", " ").split()
        if self.patience and len(names) != 1:
            raise UserError(
                f"PATIENCE={self.patience} needs one metric to stop by, and STOP_METRIC (left out:"
                f" BEST_METRIC) names {len(names)}: set STOP_METRIC=EVALUATOR/NAME"
            )
        if self.patience:
            object.__setattr__(self, "metric", names[0])

    @property
    def evaluator(self) -> str:
        """The evaluator whose metric decides."""
        return self.metric.partition("/")[0]

    def check(self, evaluators: Sequence[Evaluator], eval_every: int) -> None:
        """Raises UserError where no evaluation on the way can give the metric."""
        if not self.patience:
            return
        if not eval_every:
            raise UserError(
                f"PATIENCE={self.patience} stops at evaluations and EVAL_EVERY=0 has none before"
                " the end: set EVAL_EVERY"
            )
        names = [one.name for one in evaluators if not one.at_end]
        if self.evaluator not in names:
            known = meant(self.evaluator, names) if names else "; set HELDOUT_TEXT or DEV_FILES"
            raise UserError(
                f"STOP_METRIC={self.metric} is of no evaluator of this run{known} (without it:"
                " PATIENCE=0)"
            )


class Stopping:
    """Counts the evaluations since the best. Every process has one and calls the same methods at
    the same steps; the first decides for all, since it alone has evaluations.jsonl for certain."""

    def __init__(self, config: StoppingConfig):
        self._config = config
        self._stopped_at: int | None = None
        """The step at which the run has stopped."""
        self._values: dict[int, float] = {}
        self._out_of_time = False

    def end(self, step: int) -> None:
        """The run's time is over."""
        self._stopped_at, self._out_of_time = step, True

    def last_step(self, steps: int) -> int:
        """The last of a run that is to take `steps`."""
        return steps if self._stopped_at is None else self._stopped_at

    def recall(self, workdir: Path, step: int) -> None:
        """What the run measured up to `step`, where it goes on."""
        if not self._config.patience or not step:
            return
        # When a run stops goes by these lines, so none is passed over.
        for line in read_lines(workdir / "evaluations.jsonl", EVALUATION):
            if line["name"] == self._config.evaluator and line["step"] <= step:
                values = flatten({line["name"]: line["values"]})
                # NaN is null there.
                self._values[line["step"]] = values.get(self._config.metric, math.nan)
        self._decide(step)

    def measured(self, step: int, values: Mapping[str, Any]) -> bool:
        """Whether the run stops after this evaluation. values: {evaluator: its values}. Raises
        UserError where the metric is not among them."""
        config = self._config
        if not config.patience or config.evaluator not in values:
            return False
        known = flatten({config.evaluator: values[config.evaluator]})
        if config.metric not in known:
            raise UserError(
                f"STOP_METRIC={config.metric}: evaluator {config.evaluator} does not give it; there"
                f" is {', '.join(sorted(known))}"
            )
        self._values[step] = known[config.metric]
        return self._decide(step)

    def _decide(self, step: int) -> bool:
        since_best = len(self._values) - 1 - self._best()[0]
        # What another process has measured may differ in its last digit.
        stops = primary_says(since_best >= self._config.patience)
        if stops:
            self._stopped_at = step
        return stops

    def _best(self) -> tuple[int, int, float]:
        """(how manyth of the evaluations, its step, its value) is the best; -1: none is."""
        sign = -1.0 if self._config.mode == "max" else 1.0
        measured = [(place, *one) for place, one in enumerate(sorted(self._values.items()))]
        finite = [one for one in measured if math.isfinite(one[2])]
        # The first of equals: an equal value is no better one. XLM's code counts the same way.
        return min(finite, key=lambda one: sign * one[2], default=(-1, 0, math.nan))

    def reason(self) -> str:
        """Why it stopped, as a line."""
        if self._out_of_time:
            return "its time is over"
        config = self._config
        _, step, value = self._best()
        return (
            f"early stopping: {config.metric} was not better in {config.patience} evaluations than"
            f" {value:.4f} of step {step}"
        )

    def record(self) -> dict[str, Any]:
        """Why and when it stopped, as JSON; {}: it has not."""
        if self._stopped_at is None:
            return {}
        if self._out_of_time:
            return {"step": self._stopped_at, "why": self.reason()}
        config = self._config
        _, step, value = self._best()
        return {
            "step": self._stopped_at,
            "metric": config.metric,
            "mode": config.mode,
            "patience": config.patience,
            "best_step": step,
            "best": value,
        }
