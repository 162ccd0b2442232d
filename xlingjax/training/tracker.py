"""What a run shows and writes: a live line or plain lines, log.txt, metrics.jsonl,
evaluations.jsonl, TensorBoard, Weights & Biases."""

import contextlib
import io
import json
import math
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json
from xlingjax.runtime.records import ANY, NUMBER, numbered_lines, read_lines

NOT_IN_NAMES = "/\\#?%:"
"""What a project of wandb cannot be called with."""


class WandbRun:
    """One run of a project. A run that goes on is the same there: `wandb_id` in its folder says
    which. Mode, key and server are those of wandb's own environment: with WANDB_MODE=offline it
    keeps everything in the run's folder, for `wandb sync`."""

    def __init__(self, project: str, workdir: Path):
        """Nothing is sent yet. Raises UserError: no such package, no key, an impossible name."""
        self._project = project
        self._workdir = workdir
        self._run: Any = None
        wrong = sorted({*project} & {*NOT_IN_NAMES})
        if wrong:
            raise UserError(f"--wandb {project}: the name of a project has no {' '.join(wrong)}")
        try:
            # Here: a run without the option must not wait seconds for it.
            import wandb
        except ImportError:
            raise UserError(f"--wandb {project} needs pip install 'xlingjax[wandb]'") from None
        self._wandb = wandb
        if wandb.setup().settings.mode == "online":
            try:
                wandb.login()
            except wandb.Error as error:
                raise self._explained(error) from None

    def begin(self) -> str:
        """Opens the run; a line that says where it is. Raises UserError."""
        try:
            self._run = self._wandb.init(
                project=self._project,
                dir=self._workdir,
                name=self._workdir.name,
                id=self._id(),
                resume="allow",
                config=_record(self._workdir),
                # The terminal shows our lines, which log.txt has too.
                settings=self._wandb.Settings(console="off", silent=True),
            )
        except self._wandb.Error as error:
            raise self._explained(error) from None
        # Offline there is no page, and wandb would complain of the question.
        place = self._run.dir
        if not self._run.offline:
            place = self._run.url
        return f"metrics on wandb too: {place}"

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log({**values}, step=step)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()

    def _id(self) -> str:
        path = self._workdir / "wandb_id"
        if not path.is_file():
            path.write_text(uuid.uuid4().hex[:12] + "\n", encoding="utf-8")
        return path.read_text(encoding="utf-8").strip()

    def _explained(self, error: Exception) -> UserError:
        first = str(error).strip().splitlines()[0]
        return UserError(
            f"--wandb {self._project}: {first} Run `wandb login`, or set WANDB_MODE=offline and"
            " send it later by `wandb sync`"
        )


def _record(workdir: Path) -> dict[str, Any]:
    """run.json: what wandb shows as the run's configuration."""
    path = workdir / "run.json"
    if not path.is_file():
        return {}
    return parsed_json(path.read_text(encoding="utf-8"))


REFRESH_SECONDS = 0.2
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


class Tracker:
    """Writes to `workdir`; silent in every process but the primary. wandb: a project of Weights &
    Biases, or "". Raises UserError where that cannot be."""

    def __init__(
        self,
        workdir: Path,
        steps: int,
        primary: bool = True,
        console: Console | None = None,
        wandb: str = "",
    ):
        self._workdir = workdir
        self._steps = steps
        self._primary = primary
        self._live: Live | None = None
        self._losses: dict[str, float | None] = {}
        self._rate = 0.0
        self._first = 0
        self._step = 0
        self._started = 0.0
        self._shown = 0.0
        self._files: dict[str, TextIO] = {}
        self._board: Any = None
        self._wandb: WandbRun | None = None
        # Before the run reads or compiles anything: a missing package or key is told at once.
        if wandb and primary:
            self._wandb = WandbRun(wandb, workdir)
        # Until `begin`, since a run that is refused leaves no files.
        self._log: Any = io.StringIO()
        self._console = console or Console(file=sys.stdout, highlight=False, soft_wrap=True)

    def say(self, line: str) -> None:
        """A plain line, on the console and in log.txt."""
        if self._primary:
            self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
            self._console.print(line, markup=False)

    def note(self, line: str) -> None:
        """`say`, if there is anything to say."""
        if line:
            self.say(line)

    def begin(self, step: int) -> None:
        """The run goes on from `step`: open the files and start the live line. Lines beyond `step`,
        which a killed run left behind, are dropped: they will be written again."""
        self._first = step
        if not self._primary:
            return
        for name in ("metrics.jsonl", "evaluations.jsonl"):
            # Before they are opened: it replaces the file, and an open one would go on in the old.
            keep_until(self._workdir / name, step, self.say)
        for name in ("log.txt", "metrics.jsonl", "evaluations.jsonl"):
            path = self._workdir / name
            # By lines, so that a killed run has written all but its last.
            self._files[name] = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open for the run's life
        self._files["log.txt"].write(self._log.getvalue())
        self._log = self._files["log.txt"]
        try:
            self._board = Curves(self._workdir / "tensorboard", step)
        except ModuleNotFoundError as error:
            # A machine with little more than JAX, as are rented ones, trains all the same.
            self.say(
                f"no curves for TensorBoard: {error.name} is not installed; metrics.jsonl has the"
                " numbers"
            )
        if self._wandb is not None:
            self.say(self._wandb.begin())
        if self._console.is_terminal:
            self._live = Live(
                console=self._console,
                # A thread that redraws would run beside the step; `tick` does it.
                auto_refresh=False,
                transient=True,
            )
            self._live.start()

    def tick(self, step: int) -> None:
        """After every step; redraws the live line a few times a second."""
        self._step = step
        now = time.monotonic()
        if not self._started:
            # After the first step, so that its compilation does not count in the time to go.
            self._started = now
            self._first = step
        if self._live is not None and now - self._shown > REFRESH_SECONDS:
            self._shown = now
            self._live.update(Text(self.line(step)), refresh=True)

    def line(self, step: int) -> str:
        """step, loss per objective, tokens per second, time to go."""
        losses = []
        for name, loss in self._losses.items():
            shown = "skipped"
            if loss is not None:
                shown = f"{loss:.4f}"
            losses.append(f"{name} {shown}")
        done = step - self._first
        eta = "?"
        if self._started and done > 0:
            elapsed = time.monotonic() - self._started
            eta = duration(elapsed / done * (self._steps - step))
        shown = "  ".join(losses)
        rate = f"{self._rate:,.0f} tokens/s"
        return f"step {step}/{self._steps}  {shown}  {rate}  ETA {eta}"

    def metrics(self, step: int, lines: Sequence[Mapping[str, Any]]) -> None:
        """One JSON line per objective that ran since the last log step; scalars also to
        TensorBoard and wandb."""
        for values in lines:
            name = values["objective"]
            # One whose terms have no metric of that name shows the total.
            self._losses[name] = values.get("loss", values.get("total"))
            self._rate = values.get("tokens_per_second", self._rate)
            self._write("metrics.jsonl", {"step": step, **values})
            self._scalars(name, values, step)
        if self._primary:
            self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self.line(step)}\n")
            if self._live is None:
                self._console.print(self.line(step), markup=False)

    def evaluation(self, step: int, name: str, values: Mapping[str, Any]) -> None:
        """{"step", "name", "values"} to evaluations.jsonl, scalars to TensorBoard, wandb and the
        log."""
        self._write("evaluations.jsonl", {"step": step, "name": name, "values": values})
        self._scalars(name, values, step)
        shown = []
        for key, value in scalars(values).items():
            shown.append(f"{key} {value:.4f}")
        self.say(f"step {step}: {name}: {', '.join(shown)}")

    def end_live(self) -> None:
        """The run has ended: its last line stays on the terminal as a plain one."""
        if self._live is None:
            return
        self._live.stop()
        self._live = None
        if self._losses:
            self._console.print(self.line(self._step), markup=False)

    def close(self) -> None:
        self.end_live()
        # A run may end before `begin`, as one that is refused.
        files = [*self._files.values()]
        if self._board is not None:
            files.append(self._board)
        if self._wandb is not None:
            files.append(self._wandb)
        for file in files:
            # Each line was flushed when it was written, and told then that the disk is full.
            with contextlib.suppress(OSError):
                file.close()

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        if self._primary:
            self._files[name].write(json.dumps(finite(record), ensure_ascii=False) + "\n")

    def _scalars(self, prefix: str, values: Mapping[str, Any], step: int) -> None:
        named = {f"{prefix}/{key}": value for key, value in flatten(values).items()}
        if self._board is not None:
            for key, value in named.items():
                self._board.add(key, value, step)
            self._board.flush()
        if self._wandb is not None:
            self._wandb.log(named, step)


class Curves:
    """A file of TensorBoard's events that goes on from `step`. Raises OSError where it cannot be
    written: the writer of tensorboardX has a thread, which dies of that, and waits for it."""

    def __init__(self, folder: Path, step: int):
        # tensorboardX imports PyTorch wherever it is installed: seconds of start-up, for a type
        # that never comes here.
        hide = "torch" not in sys.modules
        if hide:
            sys.modules["torch"] = None
        try:
            from tensorboardX import event_file_writer, summary
            from tensorboardX.proto.event_pb2 import Event, SessionLog
        finally:
            if hide:
                del sys.modules["torch"]
        self._event = Event
        self._scalar = summary.scalar
        folder.mkdir(parents=True, exist_ok=True)
        self._file = event_file_writer.EventsWriter(str(folder / "events"))
        # What a killed run wrote beyond `step` is not shown.
        if step:
            version = "brain.Event:2"
            start = SessionLog(status=SessionLog.START)
            self._file.write_event(Event(step=step + 1, file_version=version))
            self._file.write_event(Event(step=step + 1, session_log=start))

    def add(self, name: str, value: float, step: int) -> None:
        summary = self._scalar(name, value)
        event = self._event(summary=summary, step=step, wall_time=time.time())
        self._file.write_event(event)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def is_number(value: Any) -> bool:
    # True is an int, too.
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
        # json knows only Python's own numbers.
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def keep_until(path: Path, step: int, say: Callable[[str], None] = print) -> None:
    """Drop the lines of a JSONL file beyond `step`, a last line that a killed process left half
    written, and damaged ones, of which `say` is told."""
    if not path.exists():
        return
    kept = []
    for record, line in numbered_lines(path, {"step": int}, say=say):
        if record["step"] <= step:
            kept.append(line)
    partial = path.with_suffix(".partial")
    partial.write_bytes(b"".join(kept))
    # Renamed, so that a process killed here leaves the old file whole.
    os.replace(partial, path)


def evaluated_at(workdir: Path, step: int) -> set[str]:
    """The evaluators whose values of `step` a run has written down."""
    path = workdir / "evaluations.jsonl"
    names = set()
    # What a damaged line says is measured again.
    for record in read_lines(path, EVALUATION, say=_pass_over):
        if record["step"] == step:
            names.add(record["name"])
    return names


def _pass_over(line: str) -> None:
    """Of a damaged line, which is told when the file is opened to go on with."""


def duration(seconds: float) -> str:
    """As "2:03:04" or "3:04"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}"
