"""A run folder, read, whatever is there: a run that goes on or was killed reads like any."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.errors import UserError
from xlingjax.runtime.records import ANY, read_lines, read_record
from xlingjax.training.run_record import RESULT, RUN, warn_of_changes
from xlingjax.training.tracker import EVALUATION, METRICS


@dataclass(frozen=True)
class Run:
    """`record` is run.json, `result` result.json (empty while the run goes), `metrics` and
    `evaluations` their lines, `rows` rows.json (what the objectives read)."""

    path: Path
    config: str
    record: dict
    result: dict
    metrics: list[dict]
    evaluations: list[dict]
    rows: list[dict]

    @property
    def languages(self) -> list[str]:
        return list(self.record.get("languages", ()))

    @property
    def last_start(self) -> dict:
        """What run.json says of the newest start: time, step, machine, weights, versions."""
        return (self.record.get("sessions") or [{}])[-1]

    @property
    def objectives(self) -> list[str]:
        """In the order in which they first ran."""
        # By what was logged, since an objective may begin at a later stage.
        return list(dict.fromkeys(line["objective"] for line in self.metrics))

    @property
    def step(self) -> int:
        """The last one that a line tells of."""
        # Evaluations too: the first of them may come before the first log line.
        return max((line["step"] for line in self.metrics + self.evaluations), default=0)

    @property
    def vocabulary_size(self) -> int | None:
        """Pieces, which is the perplexity of a guess without any knowledge."""
        return self.record.get("model", {}).get("vocab_size")

    @property
    def tokens_seen(self) -> int | None:
        return self.result.get("tokens_seen", next(reversed(self.logged("tokens_seen")), None))

    def logged(self, name: str) -> list[float]:
        """The values of the log lines that have it."""
        return [line[name] for line in self.metrics if line.get(name) is not None]

    def lines(self, objective: str) -> list[dict]:
        return [line for line in self.metrics if line["objective"] == objective]

    def tokens_at(self, steps: Sequence[int]) -> np.ndarray:
        """Tokens seen by those steps, interpolated: the common axis of compared runs."""
        # By step, since each objective logs the same total.
        seen = [line for line in self.metrics if line.get("tokens_seen") is not None]
        tokens = {line["step"]: line["tokens_seen"] for line in seen}
        # From no tokens at step 0 on: evaluations may come before the first log line.
        return np.interp(np.asarray(steps, float), [0, *tokens], [0, *tokens.values()])

    def evaluated(self, kind: str) -> dict[str, list[tuple[int, dict]]]:
        """{evaluator: [(step, values)]} of one kind of evaluation, in the order of steps."""
        evaluated = {}
        for line in self.evaluations:
            if line["values"].get("kind") == kind:
                evaluated.setdefault(line["name"], []).append((line["step"], line["values"]))
        # A run that was resumed may have written a step again, behind later ones.
        for evaluations in evaluated.values():
            evaluations.sort(key=lambda pair: pair[0])
        return evaluated

    def last(self, kind: str, prefer: str = "") -> dict:
        """The latest values of that kind's evaluator: the first whose name contains `prefer`; {}:
        there is none."""
        evaluated = self.evaluated(kind)
        for name in sorted(evaluated, key=lambda name: prefer not in name):
            return evaluated[name][-1][1]
        return {}


Runs = Mapping[str, Run]  # by name: the run of a report first, then those beside it


def read_run(path: str | Path) -> Run:
    """Raises UserError when `path` is no run folder."""
    path = Path(path)
    if not (path / "run.json").is_file() and not (path / "metrics.jsonl").is_file():
        raise UserError(
            f"{path}: not a run folder (neither run.json nor metrics.jsonl): give the --to of a run"
        )
    warn_of_changes(path)
    # Whatever is missing is empty: a run writes its files one after the other. Of what is only
    # shown a damaged line is left out, and told.
    return Run(
        path,
        _text(path / "config.gin"),
        _json(path / "run.json", RUN),
        _json(path / "result.json", RESULT),
        read_lines(path / "metrics.jsonl", METRICS, say=warn),
        read_lines(path / "evaluations.jsonl", EVALUATION, say=warn),
        _rows(path / "rows.json"),
    )


def warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr)


def _text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        warn(f"{path}: cannot be read ({error.strerror}); left out")
        return ""
    if "\ufffd" in text:
        warn(f"{path}: not UTF-8; shown with \ufffd in its place")
    return text


def _json(path: Path, shape: Any) -> dict:
    return read_record(path, shape, "restore or remove the file") if path.exists() else {}


def _rows(path: Path) -> list[dict]:
    if not path.exists():
        return []
    try:
        return read_record(path, [{str: ANY}], "what the objectives read is left out")
    except UserError as error:
        warn(str(error))
        return []
