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
        if not self.dtype:
            return []
        return [f"DTYPE={self.dtype}"]


@dataclass(frozen=True)
class Cell:
    mix: str
    seed: int
    folder: Path

    def values(self, tasks: Sequence[str]) -> dict[str, Any]:
        """What the cell's runs measured."""
        result = _read(self.folder / "pretrain" / "result.json")
        of_tasks = {}
        for task in tasks:
            of_tasks[task] = _read(self.folder / task / "result.json")["evaluations"]
        return {
            "mix": self.mix,
            "seed": self.seed,
            "pretrain": result,
            "tasks": of_tasks,
        }


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


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
    cells = []
    # Seed by seed, so that a bake-off that is stopped early has compared all mixes.
    for seed in config.seeds:
        for mix in config.mixes:
            cells.append(Cell(mix, seed, folder / "cells" / f"{slug(mix)}-{seed}"))
    same_data(cells, config.tasks)

    def steps_of(mix: str) -> int | None:
        return _steps(config, mix, folder, runner, arguments)

    failed = threading.Event()

    def values_of(cell: Cell) -> dict[str, Any]:
        # The cell that failed comes before this one, and its error is the one that is raised.
        if failed.is_set():
            return {}
        try:
            _train(config, cell, steps[cell.mix], runner, arguments)
            same_data([one for one in cells if one.mix == cell.mix], config.tasks)
        except BaseException:
            failed.set()
            raise
        return cell.values(list(config.tasks))

    # Threads and not processes, since each only waits for its run. They learn of a signal from the
    # event: signals are the main thread's.
    with (
        stop_requested(runner.stop, signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
        ThreadPoolExecutor(config.jobs) as pool,
    ):
        try:
            steps = dict(
                zip(config.mixes, pool.map(steps_of, config.mixes), strict=True)
            )
            values = list(pool.map(values_of, cells))
        except BaseException:
            # Those that run are finished, no other is begun.
            pool.shutdown(cancel_futures=True)
            raise
    content = {"config": asdict(config), "cells": [summary(cell) for cell in values]}
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    (folder / "bakeoff.json").write_text(text, encoding="utf-8")
    return content


def _train(
    config: Bakeoff,
    cell: Cell,
    steps: int | None,
    runner: "Runner",
    arguments: Sequence[str],
) -> None:
    """The runs of a cell."""
    words = [*config.base, *config.mixes[cell.mix], f"SEED={cell.seed}"]
    if steps:
        words.append(f"TRAIN_STEPS={steps}")
    words += config.last_words
    pretrain = cell.folder / "pretrain"
    line = command("pretrain", words, pretrain, steps, arguments)
    settings = runner.run(line, pretrain)
    for task, recipe in config.tasks.items():
        words = [
            *recipe,
            f"INIT_FROM={pretrain}",
            f"SEED={cell.seed}",
            *config.last_words,
        ]
        line = command("finetune", words, cell.folder / task, None, arguments)
        # Of a fine-tuning the settings of its encoder are part: with others it is another run.
        runner.run(line, cell.folder / task, settings)


def slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").lower()


def command(
    verb: str,
    words: Sequence[str],
    workdir: Path,
    steps: int | None,
    arguments: Sequence[str] = (),
) -> list[str]:
    """The command line of one run."""
    line = [
        sys.executable,
        "-m",
        "xlingjax",
        verb,
        "--workdir",
        str(workdir),
        *arguments,
    ]
    for word in words:
        if "=" not in word:
            line += ["--gin_file", word]
            continue
        name, _, value = word.partition("=")
        if SHARE.search(value):
            if not steps:
                raise UserError(
                    f"bakeoff: {word} needs the steps of the run; set bakeoff.tokens"
                )
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
        if record.is_file():
            written = record.read_text(encoding="utf-8")
            if written != settings:
                raise UserError(
                    f"bakeoff: {workdir} was run with other settings"
                    f" ({difference(written, settings)}): choose another --workdir, or delete that"
                    " folder"
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
                # SIGTERM has the run save before it ends, so nothing is lost.
                child.terminate()
            status = child.wait()
        if status:
            # A run that was told to stop has not failed.
            self.leave_if_asked()
            last = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
            raise UserError(
                f"bakeoff: {workdir} ended with status {status} ({' '.join(last)}); its log is"
                f" {log}"
            )
        return settings


def finished(workdir: Path) -> bool:
    result = workdir / "result.json"
    return result.is_file() and _read(result)["exit_reason"] == "finished"


def same_data(cells: Sequence[Cell], tasks: Iterable[str]) -> None:
    """Raises UserError where two finished runs of one mix, which differ in their seed alone, have
    read other data."""
    known: dict[tuple[str, ...], tuple[Any, Path]] = {}
    for cell in cells:
        for name in ("pretrain", *tasks):
            folder = cell.folder / name
            if not finished(folder):
                continue
            data = _read(folder / "run.json")["identity"]["data"]
            for objective, identity in data.items():
                # Of a text objective the hash of each text; of a fine-tuning that of all its rows.
                hashes = identity.get("text") or {"examples": identity.get("sha256")}
                key = (cell.mix, name, objective)
                before, other = known.setdefault(key, (hashes, folder))
                for what, there, here in differences(before, hashes):
                    raise UserError(
                        f"bakeoff: {folder} has read other data than {other} ({objective}, {what}:"
                        f" {str(here)[:16]}, there {str(there)[:16]}): choose another --workdir, or"
                        " move the cells of the older data away"
                    )


def difference(before: str, now: str) -> str:
    """The first lines that two settings do not share."""
    lines_before = before.splitlines()
    lines_now = now.splitlines()
    lost = _first_missing(lines_before, lines_now)
    new = _first_missing(lines_now, lines_before)
    return f"there: {lost}; now: {new}"


def _first_missing(lines: Sequence[str], others: Sequence[str]) -> str:
    """The first line that is not one of the others."""
    for line in lines:
        if line not in others:
            return line
    return "nothing"


def _steps(
    config: Bakeoff, mix: str, folder: Path, runner: "Runner", arguments
) -> int | None:
    """Steps of a mix that read the tokens asked for, from the tokens of its first steps."""
    if not config.tokens:
        return None
    workdir = folder / "calibration" / slug(mix)
    words = [
        *config.base,
        *config.mixes[mix],
        # How much a step reads, and nothing else, is asked: no evaluations, no checkpoints.
        f"TRAIN_STEPS={CALIBRATION_STEPS}",
        "WARMUP_STEPS=1",
        "EVAL_EVERY=0",
        "HELDOUT_TEXT=None",
        "HELDOUT_PAIRS=None",
        "HELDOUT_ALIGNMENTS=None",
        "CHECKPOINT_EVERY=0",
        *config.last_words,
    ]
    line = command("pretrain", words, workdir, CALIBRATION_STEPS, arguments)
    runner.run(line, workdir)
    seen = _read(workdir / "result.json")["tokens_seen"]
    return max(1, round(config.tokens * CALIBRATION_STEPS / seen))


def summary(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a cell: those of the table, and by layer, language and objective those of the
    pictures."""
    result = cell["pretrain"]
    evaluations = result["evaluations"]
    retrieval = evaluations.get("retrieval", {})
    alignment = evaluations.get("alignment", {})
    perplexity = evaluations.get("perplexity", {})
    figures = {
        "retrieval": retrieval.get("retrieval_mean"),
        "retrieval_centred": retrieval.get("retrieval_mean_centred"),
        "alignment_error": alignment.get("alignment_error"),
        "alignment_error_intersection": alignment.get("alignment_error_intersection"),
        "masked_accuracy": perplexity.get("accuracy_mean"),
    }
    for task, values in cell["tasks"].items():
        # The test set's: the dev set chose the checkpoint.
        (tested,) = [value for name, value in values.items() if name.endswith("_test")]
        figures[f"{task}_en"] = tested.get("en")
        figures[f"{task}_other"] = tested.get("mean_other")
    figures["tokens"] = result["tokens_seen"]
    figures["tokens_per_second"] = result["tokens_per_second"]
    # Of several poolings the first is shown.
    layers = next(iter(retrieval.get("by_layer", {}).values()), {})
    retrieval_by_layer = {}
    for kind in ("raw", "centred"):
        name = f"{kind}_en_to_xx"
        retrieval_by_layer[kind] = {
            layer: scores[name] for layer, scores in layers.items()
        }
    error_by_layer = {}
    for layer, errors in alignment.get("by_layer", {}).items():
        error_by_layer[layer] = errors["itermax"]
    return {
        "mix": cell["mix"],
        "seed": cell["seed"],
        "figures": {
            name: value for name, value in figures.items() if value is not None
        },
        "retrieval_by_layer": retrieval_by_layer,
        "alignment_error_by_layer": error_by_layer,
        "masked_accuracy_by_language": perplexity.get("accuracy_by_language", {}),
        "tokens_per_second_by_objective": result.get(
            "tokens_per_second_by_objective", {}
        ),
    }
