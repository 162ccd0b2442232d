"""Mixes of objectives beside each other: the same corpus, vocabulary, initial weights and tokens,
several seeds.

A cell is one mix with one seed: a pretraining, then every fine-tuning from it. Each runs as its own
`xlingjax` process in its own workdir, and a finished one is not run again, so a bake-off that was
stopped goes on with the same command. What stands in a workdir with other settings is refused, and
so are seeds of one mix that have read different data.
"""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xlingjax.errors import Stopped, UserError
from xlingjax.runtime.signals import stop_requested
from xlingjax.training.run_record import differences

CALIBRATION_STEPS = 60
"""Steps after which the tokens of a step are known."""
SHARE = re.compile(r"([0-9.]+)\*STEPS")


@dataclass(frozen=True)
class Bakeoff:
    """What is compared. A list of words is gin files and `NAME=VALUE` bindings, in the order they
    are read; `0.667*STEPS` is that share of the steps."""

    base: Sequence[str]
    """The pretraining that all mixes share."""
    mixes: Mapping[str, Sequence[str]]
    """Name -> what is added to the base."""
    tasks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Name -> the recipe of a fine-tuning from each encoder."""
    seeds: Sequence[int] = (0,)
    tokens: int = 0
    """Tokens of each cell, to the nearest step; 0: the steps of the base."""
    jobs: int = 1
    """Cells at a time. On an accelerator 1; on a CPU small models fill about one core each. Beside
    one another they slow each other, so speeds compare only under equal jobs."""
    dtype: str | None = None
    """DTYPE of every run; None: as its own words say."""

    def __post_init__(self):
        if not self.mixes or not self.seeds:
            raise UserError("bakeoff: name at least one mix and one seed")
        if len({slug(mix) for mix in self.mixes}) != len(self.mixes):
            raise UserError(
                f"bakeoff: two mixes would share a folder: {', '.join(self.mixes)}; rename one"
            )
        if self.jobs < 1:
            raise UserError(f"bakeoff.jobs={self.jobs} must be at least 1")

    @property
    def last_words(self) -> list[str]:
        """Behind those of every run."""
        return [f"DTYPE={self.dtype}"] if self.dtype else []


@dataclass(frozen=True)
class Cell:
    mix: str
    seed: int
    folder: Path

    def values(self, tasks: Sequence[str]) -> dict[str, Any]:
        """What the cell's runs measured."""
        result = json.loads((self.folder / "pretrain" / "result.json").read_text(encoding="utf-8"))
        of_tasks = {
            task: json.loads((self.folder / task / "result.json").read_text(encoding="utf-8"))[
                "evaluations"
            ]
            for task in tasks
        }
        return {"mix": self.mix, "seed": self.seed, "pretrain": result, "tasks": of_tasks}


def run(
    config: Bakeoff,
    workdir: str | Path,
    read: Callable[[Sequence[str]], str],
    say: Callable[[str], None] = print,
    arguments: Sequence[str] = (),
) -> dict:
    """Runs what is missing and writes `bakeoff.json`; returns its content.

    read: the operative configuration of the recipe that the words of a command line describe
    (`--gin_file F`, `--gin.NAME=VALUE`). arguments: given to every command (`--platform cpu`).
    Raises UserError naming the log of a run that failed, and a folder that holds a run of other
    settings or data; Stopped after SIGTERM, SIGINT or SIGHUP.
    """
    folder = Path(workdir)
    folder.mkdir(parents=True, exist_ok=True)
    runner = Runner(read, say)
    cells = [
        Cell(mix, seed, folder / "cells" / f"{slug(mix)}-{seed}")
        for seed in config.seeds
        for mix in config.mixes
    ]
    same_data(cells, config.tasks)

    def steps_of(mix: str) -> int | None:
        return _steps(config, mix, folder, runner, arguments)

    failed = threading.Event()

    def values_of(cell: Cell) -> dict[str, Any]:
        if failed.is_set():  # the cell that failed comes before this one and is what is told
            return {}
        try:
            _train(config, cell, steps[cell.mix], runner, arguments)
            same_data([one for one in cells if one.mix == cell.mix], config.tasks)
        except BaseException:
            failed.set()
            raise
        return cell.values(list(config.tasks))

    # The threads learn it from the event; signals are the main thread's.
    with (
        stop_requested(runner.stop, signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
        ThreadPoolExecutor(config.jobs) as pool,
    ):
        try:
            steps = dict(zip(config.mixes, pool.map(steps_of, config.mixes), strict=True))
            values = list(pool.map(values_of, cells))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # those that run are finished, no other is begun
            raise
    found = {"config": asdict(config), "cells": [summary(cell) for cell in values]}
    (folder / "bakeoff.json").write_text(
        json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return found


def _train(
    config: Bakeoff, cell: Cell, steps: int | None, runner: "Runner", arguments: Sequence[str]
) -> None:
    """The runs of a cell."""
    more = [f"SEED={cell.seed}", *([f"TRAIN_STEPS={steps}"] if steps else []), *config.last_words]
    words = [*config.base, *config.mixes[cell.mix], *more]
    pretrain = cell.folder / "pretrain"
    encoder = runner.run(command("pretrain", words, pretrain, steps, arguments), pretrain)
    for task, recipe in config.tasks.items():
        words = [*recipe, f"INIT_FROM={pretrain}", f"SEED={cell.seed}", *config.last_words]
        runner.run(
            command("finetune", words, cell.folder / task, None, arguments),
            cell.folder / task,
            encoder,
        )


def slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").lower()


def command(
    verb: str, words: Sequence[str], workdir: Path, steps: int | None, arguments: Sequence[str] = ()
) -> list[str]:
    """The command line of one run."""
    line = [sys.executable, "-m", "xlingjax", verb, "--workdir", str(workdir), *arguments]
    for word in words:
        if "=" not in word:
            line += ["--gin_file", word]
            continue
        name, _, value = word.partition("=")
        if SHARE.search(value):
            if not steps:
                raise UserError(f"bakeoff: {word} needs the steps of the run; set bakeoff.tokens")
            value = SHARE.sub(lambda share: str(round(float(share[1]) * steps)), value)
        line.append(f"--gin.{name}={value}")
    return line


@dataclass
class Runner:
    """Runs commands, each in its own process, unless they finished before with the same
    settings."""

    read: Callable[[Sequence[str]], str]
    say: Callable[[str], None]
    one_at_a_time: Any = field(default_factory=threading.Lock)
    """For `read`: gin has one configuration per process."""
    stop: threading.Event = field(default_factory=threading.Event)

    def leave_if_asked(self) -> None:
        if self.stop.is_set():
            raise Stopped("bakeoff: stopped; the same command goes on")

    def run(self, line: Sequence[str], workdir: Path, before: str = "") -> str:
        """The settings of the run, after those of the run `before` it. They stand in its folder
        from its start on."""
        with self.one_at_a_time:
            settings = before + self.read(line)
        record = workdir / "bakeoff.settings"
        if record.is_file() and (stands := record.read_text(encoding="utf-8")) != settings:
            raise UserError(
                f"bakeoff: {workdir} was run with other settings ({difference(stands, settings)}):"
                " choose another --workdir, or delete that folder"
            )
        self.leave_if_asked()
        if finished(workdir):
            self.say(f"{workdir}: finished before")
            return settings
        workdir.mkdir(parents=True, exist_ok=True)
        record.write_text(settings, encoding="utf-8")
        log = workdir.with_suffix(".log")
        self.say(f"{workdir}: {' '.join(line[3:])}")
        with open(log, "w", encoding="utf-8") as output:
            # In a group of its own: Ctrl-C reaches the bake-off alone, which has its runs save.
            child = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
            while child.poll() is None and not self.stop.wait(0.5):
                pass
            if child.poll() is None:
                child.terminate()
            status = child.wait()
        if status:
            self.leave_if_asked()
            last = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
            raise UserError(
                f"bakeoff: {workdir} ended with status {status} ({' '.join(last)}); its log is"
                f" {log}"
            )
        return settings


def finished(workdir: Path) -> bool:
    result = workdir / "result.json"
    return (
        result.is_file()
        and json.loads(result.read_text(encoding="utf-8"))["exit_reason"] == "finished"
    )


def same_data(cells: Sequence[Cell], tasks: Iterable[str]) -> None:
    """Raises UserError where two finished runs of one mix, which differ in their seed alone, have
    read other data."""
    known: dict[tuple[str, ...], tuple[Any, Path]] = {}
    for cell in cells:
        for name in ("pretrain", *tasks):
            if not finished(folder := cell.folder / name):
                continue
            data = json.loads((folder / "run.json").read_text(encoding="utf-8"))["identity"]["data"]
            for objective, of in data.items():
                # Of a text objective the hash of each text; of a fine-tuning that of all its rows.
                read = of.get("text") or {"examples": of.get("sha256")}
                before, other = known.setdefault((cell.mix, name, objective), (read, folder))
                for what, there, here in differences(before, read):
                    raise UserError(
                        f"bakeoff: {folder} has read other data than {other} ({objective}, {what}:"
                        f" {str(here)[:16]}, there {str(there)[:16]}): choose another --workdir, or"
                        " move the cells of the older data away"
                    )


def difference(before: str, now: str) -> str:
    """The first lines that two settings do not share."""
    ours, theirs = now.splitlines(), before.splitlines()
    lost = next((line for line in theirs if line not in set(ours)), "nothing")
    new = next((line for line in ours if line not in set(theirs)), "nothing")
    return f"there: {lost}; now: {new}"


def _steps(config: Bakeoff, mix: str, folder: Path, runner: "Runner", arguments) -> int | None:
    """Steps of a mix that read the tokens asked for, from the tokens of its first steps."""
    if not config.tokens:
        return None
    workdir = folder / "calibration" / slug(mix)
    words = [
        *config.base,
        *config.mixes[mix],
        f"TRAIN_STEPS={CALIBRATION_STEPS}",
        "WARMUP_STEPS=1",
        "EVAL_EVERY=0",
    ]
    words += [
        "HELDOUT_TEXT=None",
        "HELDOUT_PAIRS=None",
        "HELDOUT_ALIGNMENTS=None",
        "CHECKPOINT_EVERY=0",
        *config.last_words,
    ]
    runner.run(command("pretrain", words, workdir, CALIBRATION_STEPS, arguments), workdir)
    seen = json.loads((workdir / "result.json").read_text(encoding="utf-8"))["tokens_seen"]
    return max(1, round(config.tokens * CALIBRATION_STEPS / seen))


def summary(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a cell: those of the table, and by layer, language and objective those of the
    pictures."""
    result = cell["pretrain"]
    evaluations = result["evaluations"]
    retrieval, aligned, text = (
        evaluations.get(name, {}) for name in ("retrieval", "alignment", "perplexity")
    )
    figures = {
        "retrieval": retrieval.get("retrieval_mean"),
        "retrieval_centred": retrieval.get("retrieval_mean_centred"),
        "alignment_error": aligned.get("alignment_error"),
        "alignment_error_intersection": aligned.get("alignment_error_intersection"),
        "masked_accuracy": text.get("accuracy_mean"),
    }
    for task, values in cell["tasks"].items():
        (tested,) = [v for name, v in values.items() if name.endswith("_test")]
        figures |= {f"{task}_en": tested.get("en"), f"{task}_other": tested.get("mean_other")}
    figures |= {"tokens": result["tokens_seen"], "tokens_per_second": result["tokens_per_second"]}
    layers = next(iter(retrieval.get("by_layer", {}).values()), {})
    return {
        "mix": cell["mix"],
        "seed": cell["seed"],
        "figures": {name: value for name, value in figures.items() if value is not None},
        "retrieval_by_layer": {
            kind: {layer: scores[f"{kind}_en_to_xx"] for layer, scores in layers.items()}
            for kind in ("raw", "centred")
        },
        "alignment_error_by_layer": {
            layer: of["itermax"] for layer, of in aligned.get("by_layer", {}).items()
        },
        "masked_accuracy_by_language": text.get("accuracy_by_language", {}),
        "tokens_per_second_by_objective": result.get("tokens_per_second_by_objective", {}),
    }
