"""What a run shows and writes: lines, log.txt, metrics.jsonl, evaluations.jsonl, TensorBoard."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from xlingjax.runtime.files import write_text
from xlingjax.runtime.records import ANY, NUMBER, read_lines

METRICS = {
    "step": int,
    "objective": str,
    "loss?": NUMBER,
    "total?": NUMBER,
    "tokens_seen?": NUMBER,
    "tokens_per_second?": NUMBER,
}
EVALUATION = {"step": int, "name": str, "values": {str: ANY}}
"""Lines of metrics.jsonl and evaluations.jsonl (see `records.misfit`)."""
FILES = ("log.txt", "metrics.jsonl", "evaluations.jsonl")


class Tracker:
    """Writes to `workdir`; silent in every process but the primary."""

    def __init__(self, workdir: Path, steps: int, primary: bool = True):
        self._workdir = workdir
        self._steps = steps
        self._primary = primary
        self._files: dict[str, TextIO] = {}
        self._curves: Curves | None = None
        # Until `begin`, since a run that is refused leaves no files.
        self._early: list[str] = []

    def say(self, line: str) -> None:
        """A plain line, on the terminal and in log.txt; an empty one is none."""
        if not self._primary or not line:
            return
        print(line, flush=True)
        stamped = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n"
        if self._files:
            self._files["log.txt"].write(stamped)
        else:
            self._early.append(stamped)

    def begin(self, step: int) -> None:
        """The run goes on from `step`: open the files. Lines beyond `step`, which a killed run left
        behind, are dropped: they will be written again."""
        if not self._primary:
            return
        for name in FILES:
            if name.endswith(".jsonl"):
                keep_until(self._workdir / name, step, self.say)
        for name in FILES:
            # By lines, so that a killed run has written all but its last.
            self._files[name] = open(self._workdir / name, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open for the run's life
        self._files["log.txt"].writelines(self._early)
        with self._drawing():
            self._curves = Curves(self._workdir / "tensorboard", step)

    def metrics(self, step: int, lines: Sequence[Mapping[str, Any]]) -> None:
        """One JSON line per objective that ran since the last log step; scalars also to
        TensorBoard. On the terminal one line: step, losses, tokens per second."""
        shown = [f"step {step}/{self._steps}"]
        for values in lines:
            name = values["objective"]
            # One whose terms have no metric of that name shows the total; a skipped one has none.
            loss = values.get("loss", values.get("total"))
            shown.append(f"{name} skipped" if loss is None else f"{name} {loss:.4f}")
            self._write("metrics.jsonl", {"step": step, **values}, name, values, step)
        shown.append(f"{lines[0].get('tokens_per_second', 0):,.0f} tokens/s")
        self.say("  ".join(shown))

    def evaluation(self, step: int, name: str, values: Mapping[str, Any]) -> None:
        """{"step", "name", "values"} to evaluations.jsonl, scalars to TensorBoard and the log."""
        entry = {"step": step, "name": name, "values": values}
        self._write("evaluations.jsonl", entry, name, values, step)
        # Texts and tables are for the report.
        if shown := [f"{key} {value:.4f}" for key, value in scalars(values).items()]:
            self.say(f"step {step}: {name}: {', '.join(shown)}")

    def close(self) -> None:
        files: list[Any] = [*self._files.values()]
        if self._curves is not None:
            files.append(self._curves.file)
        for file in files:
            # Each line was flushed when it was written, and told then that the disk is full.
            with contextlib.suppress(OSError):
                file.close()

    def _write(
        self, file: str, record: Mapping[str, Any], name: str, values: Mapping[str, Any], step: int
    ) -> None:
        if not self._primary:
            return
        self._files[file].write(json.dumps(finite(record), ensure_ascii=False) + "\n")
        with self._drawing():
            if self._curves is not None:
                for key, value in flatten(values).items():
                    self._curves.add(f"{name}/{key}", value, step)
                self._curves.file.flush()

    @contextlib.contextmanager
    def _drawing(self) -> Iterator[None]:
        """Curves are no reason to end a run: all that they show is in the other files."""
        try:
            yield
        except OSError as error:
            if self._curves is not None:
                with contextlib.suppress(OSError):
                    self._curves.file.close()
            self._curves = None
            why = error.strerror or error
            self.say(f"{self._workdir / 'tensorboard'}: {why}; the run goes on without its curves")


class Curves:
    """A file of TensorBoard's events that goes on from `step`. Raises OSError where it cannot be
    written: the writer of tensorboardX has a thread, which dies of that, and waits for it."""

    def __init__(self, folder: Path, step: int):
        from tensorboardX import event_file_writer, summary
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        self._event = Event
        self._scalar = summary.scalar
        folder.mkdir(parents=True, exist_ok=True)
        self.file = event_file_writer.EventsWriter(str(folder / "events"))
        # What a killed run wrote beyond `step` is not shown.
        if step:
            version = "brain.Event:2"
            start = SessionLog(status=SessionLog.START)
            self.file.write_event(Event(step=step + 1, file_version=version))
            self.file.write_event(Event(step=step + 1, session_log=start))

    def add(self, name: str, value: float, step: int) -> None:
        summary = self._scalar(name, value)
        event = self._event(summary=summary, step=step, wall_time=time.time())
        self.file.write_event(event)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def scalars(values: Mapping[str, Any]) -> dict[str, float]:
    """The top-level numbers."""
    return {key: float(value) for key, value in values.items() if is_number(value)}


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Every number of nested dicts, keys joined by "/"; lists and texts are left out."""
    flat = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}/")
        elif is_number(value):
            flat[f"{prefix}{key}"] = float(value)
    return flat


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null. NumPy values become plain ones."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [finite(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def keep_until(path: Path, step: int, say: Callable[[str], None] = print) -> None:
    """Drop lines of a JSONL file beyond `step`, half-written or damaged ones; `say` tells these."""
    if not path.exists():
        return
    kept = []
    for record in read_lines(path, {"step": int}, say=say):
        if record["step"] <= step:
            kept.append(json.dumps(record, ensure_ascii=False) + "\n")
    write_text(path, "".join(kept))


def evaluations_at(
    workdir: Path, step: int, say: Callable[[str], None] | None = None
) -> dict[str, dict[str, Any]]:
    """{evaluator: its values at a step} of what a run has written down; of a step that it measured
    twice, as it was stopped and went on, the newest. say: see `read_lines`."""
    lines = read_lines(workdir / "evaluations.jsonl", EVALUATION, say=say)
    return {line["name"]: line["values"] for line in lines if line["step"] == step}
