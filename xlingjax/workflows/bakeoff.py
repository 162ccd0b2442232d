"""Mixes of objectives beside each other: the same corpus, vocabulary, initial weights and tokens,
several seeds.

A cell is one mix with one seed: a pretraining, then every fine-tuning from it. Each runs as its own
`xlingjax` process in its own workdir, and a finished one is not run again, so a bake-off that was
stopped goes on with the same command. What stands in a workdir with other settings is refused, and
so are seeds of one mix that have read different data.
"""

import difflib
import functools
import json
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError
from xlingjax.runtime.files import write_text
from xlingjax.runtime.lock import alone_in
from xlingjax.runtime.records import read_text
from xlingjax.training.run_record import differences, read_result, read_run_record
from xlingjax.workflows.bakeoff_figures import summary
from xlingjax.workflows.many import Call, Command, Job, Stop, difference, run_all

CALIBRATION_STEPS = 60
"""Steps after which the tokens of a step are known."""
HELD_OUT = ("HELDOUT_TEXT", "HELDOUT_PAIRS", "HELDOUT_ALIGNMENTS")
ENCODER = "{encoder}"
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
    """Name -> the recipe of a fine-tuning from each pretraining. Where a word has `{encoder}`, that
    is its workdir, and nothing else says what is started from; else `INIT_FROM` is added."""
    tasks_of: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    """Mix -> task -> its words for this mix, in place of those of `tasks`."""
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
        for mix in self.mixes:
            if not slug(mix):
                raise UserError(
                    f"bakeoff: a mix cannot be called {mix!r}: its folder has the letters of A to Z"
                    " and digits of its name alone"
                )
        # A folder is told by the slug: "mlm+tlm" and "mlm tlm" would go on with each other's runs.
        if len({slug(mix) for mix in self.mixes}) != len(self.mixes):
            raise UserError(
                f"bakeoff: two mixes would share a folder, whose name has their letters of A to Z"
                f" and digits alone: {', '.join(self.mixes)}; rename one"
            )
        # One run would pass for two, without any deviation between them.
        if len({*self.seeds}) != len(self.seeds):
            raise UserError(f"bakeoff: SEEDS={tuple(self.seeds)} has one twice; name each once")
        for task in self.tasks:
            # It names a folder beside that of the pretraining.
            if task == "pretrain" or not re.fullmatch(r"[\w+ -]+", task):
                raise UserError(
                    f"bakeoff: a task cannot be called {task!r}: give it another name, of letters,"
                    " digits, spaces, '+', '-' or '_'"
                )
        for name, words in self.tasks.items():
            _require_encoder(name, words)
        for mix, tasks in self.tasks_of.items():
            for name, words in tasks.items():
                _require_encoder(name, words)
            # Else a misspelt one would be fine-tuned as all others are.
            _require_known(mix, self.mixes, "mix")
            for task in tasks:
                _require_known(task, self.tasks, "task")
        if self.jobs < 1:
            raise UserError(f"bakeoff.jobs={self.jobs} must be at least 1")

    def task_words(self, mix: str, task: str, encoder: Path) -> list[str]:
        """The words of a fine-tuning from what the mix trained."""
        words = self.tasks_of.get(mix, {}).get(task, self.tasks[task])
        filled = [word.replace(ENCODER, str(encoder)) for word in words]
        if filled == [*words]:
            filled.append(f"INIT_FROM={encoder}")
        return filled

    @property
    def last_words(self) -> list[str]:
        """Behind those of every run."""
        if not self.dtype:
            return []
        return [f"DTYPE={self.dtype}"]


def _require_encoder(task: str, words: Sequence[str]) -> None:
    """Raises UserError for a misspelt `ENCODER`, beside which another start would be given."""
    for word in words:
        for name in re.findall(r"\{(\w+)\}", word):
            near = difflib.get_close_matches(name, ("encoder",))
            if near and name != "encoder":
                raise UserError(f"bakeoff: task {task!r} has {word}: did you mean {ENCODER}?")


def _require_known(name: str, known: Iterable[str], what: str) -> None:
    if name not in known:
        raise UserError(
            f"bakeoff.tasks_of: {name!r} is no {what}; there are {', '.join(known) or 'none'}: set"
            " TASKS_OF to match, --gin.TASKS_OF={} for none"
        )


@dataclass(frozen=True)
class Cell:
    mix: str
    seed: int
    folder: Path

    def values(self, tasks: Sequence[str]) -> dict[str, Any]:
        """What the cell's runs measured."""
        result = read_result(self.folder / "pretrain")
        of_tasks = {}
        for task in tasks:
            of_tasks[task] = read_result(self.folder / task)["evaluations"]
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
    runner = Runner(read, say, arguments)
    cells = []
    # Seed by seed, so that a bake-off that is stopped early has compared all mixes.
    for seed in config.seeds:
        for mix in config.mixes:
            cells.append(Cell(mix, seed, folder / "cells" / f"{slug(mix)}-{seed}"))
    # What is finished is compared before anything is trained.
    same_data(cells, config.tasks)

    def train(cell: Cell) -> int:
        runner.run_all(_runs(config, cell, steps[cell.mix], runner))
        # Files that have changed are seen before the next cell begins.
        same_data([one for one in cells if one.mix == cell.mix], config.tasks)
        return 0

    # Signals are the main thread's, and the other threads learn of them from the event.
    with alone_in(folder, "choose another --workdir"), runner.stop.listen():
        # How many tokens a step reads is known before any cell begins.
        steps = _steps(config, folder, runner)
        jobs = [Call(str(cell.folder), functools.partial(train, cell)) for cell in cells]
        # Without the stop, which the runs of a cell heed.
        run_all(jobs, config.jobs, say)
    summaries = []
    for cell in cells:
        summaries.append(summary(cell.values(list(config.tasks))))
    content = {"config": asdict(config), "cells": summaries}
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_text(folder / "bakeoff.json", text)
    return content


def lines(config: Bakeoff, workdir: str | Path) -> Iterator[tuple[str, list[str]]]:
    """(what it is, its command line) of every mix and of every fine-tuning from it, of the first
    seed: what can be read before anything is trained."""
    nothing = Runner(" ".join, print, ())
    for mix in config.mixes:
        folder = Path(workdir) / "cells" / f"{slug(mix)}-{config.seeds[0]}"
        cell = Cell(mix, config.seeds[0], folder)
        # How many steps a mix has is known when its first ones are done.
        steps = CALIBRATION_STEPS if config.tokens else None
        pretrain, *tuned = _runs(config, cell, steps, nothing)
        yield f"mix {mix!r}", pretrain.line
        for task, one in zip(config.tasks, tuned, strict=True):
            yield f"task {task!r} of mix {mix!r}", one.line


def _runs(config: Bakeoff, cell: Cell, steps: int | None, runner: "Runner") -> list["_Run"]:
    """The runs of a cell."""
    # Later words win in gin: a mix changes the base, and the bake-off's own settings change both.
    words = [*config.base, *config.mixes[cell.mix], f"SEED={cell.seed}"]
    if steps:
        words.append(f"TRAIN_STEPS={steps}")
    words += config.last_words
    folder = cell.folder / "pretrain"
    line = command("pretrain", words, folder, steps, runner.arguments)
    pretrain = _Run(line, folder, runner)
    runs = [pretrain]
    for task in config.tasks:
        words = [
            *config.task_words(cell.mix, task, folder),
            f"SEED={cell.seed}",
            *config.last_words,
        ]
        line = command("finetune", words, cell.folder / task, None, runner.arguments)
        # Of a fine-tuning the settings of its encoder are part: with others it is another run.
        runs.append(_Run(line, cell.folder / task, runner, encoder=pretrain))
    return runs


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


class Runner:
    """What the runs of a bake-off share."""

    def __init__(
        self,
        read: Callable[[Sequence[str]], str],
        say: Callable[[str], None],
        arguments: Sequence[str],
    ):
        self.say = say
        self.arguments = arguments
        self.stop = Stop("bakeoff")
        self._read = read
        # Cells run in threads, several at a time.
        self._one_at_a_time = threading.Lock()

    def settings(self, line: Sequence[str]) -> str:
        """The operative configuration of a command line."""
        # gin has one configuration per process.
        with self._one_at_a_time:
            return self._read(line)

    def run_all(self, jobs: Sequence[Job], at_once: int = 1) -> None:
        run_all(jobs, at_once, self.say, self.stop)


class _Run(Command):
    """A command in a workdir, whose settings stand there from its start on. encoder: the run that a
    fine-tuning starts from, which comes first."""

    def __init__(
        self, line: Sequence[str], workdir: Path, runner: Runner, encoder: "_Run | None" = None
    ):
        log = workdir.with_suffix(".log")
        super().__init__(str(workdir), line, runner.stop, runner.say, log)
        self.workdir = workdir
        self.runner = runner
        self.encoder = encoder
        self.settings = ""
        """Known once `is_finished` was called."""

    @property
    def record(self) -> Path:
        return self.workdir / "bakeoff.settings"

    def is_finished(self) -> bool:
        # The operative configuration and not the words: a gin file may have been edited meanwhile.
        self.settings = self.runner.settings(self.line)
        if self.encoder is not None:
            self.settings = self.encoder.settings + self.settings
        if self.record.is_file():
            written = read_text(self.record, "choose another --workdir, or delete that folder")
            if written != self.settings:
                lines = difference(written.splitlines(), self.settings.splitlines())
                raise UserError(
                    f"bakeoff: {self.workdir} was run with other settings ({lines}): choose another"
                    " --workdir, or delete that folder"
                )
        return finished(self.workdir)

    def run(self) -> int:
        self.workdir.mkdir(parents=True, exist_ok=True)
        # Before the start, so that a run that was cut short is told from one with other settings.
        self.record.write_text(self.settings, encoding="utf-8")
        return super().run()


def finished(workdir: Path) -> bool:
    # A run that was stopped has a result, too.
    return read_result(workdir).get("exit_reason") == "finished"


def same_data(cells: Sequence[Cell], tasks: Iterable[str]) -> None:
    """Raises UserError where two finished runs of one mix, which differ in their seed alone, have
    read other data."""
    known: dict[tuple[str, ...], tuple[Any, Path]] = {}
    for cell in cells:
        for name in ("pretrain", *tasks):
            folder = cell.folder / name
            if not finished(folder):
                continue
            data = read_run_record(folder)["identity"]["data"]
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


def _steps(config: Bakeoff, folder: Path, runner: Runner) -> dict[str, int | None]:
    """Of each mix the steps that read the tokens requested, from the tokens of its first steps;
    None: those of the base."""
    # Nothing to calibrate: each mix trains for its recipe's own steps.
    if not config.tokens:
        return dict.fromkeys(config.mixes)
    # Packing makes the tokens of a row depend on the text, so they are counted and not computed.
    workdirs = {mix: folder / "calibration" / slug(mix) for mix in config.mixes}
    runs = []
    for mix, workdir in workdirs.items():
        words = [*config.base, *config.mixes[mix]]
        # A share suits any number of steps, and nobody types both.
        if not any(word.startswith("WARMUP_SHARE=") for word in words):
            words.append("WARMUP_STEPS=1")
        words += [
            # How much a step reads is all that is wanted: no evaluations, no checkpoints.
            f"TRAIN_STEPS={CALIBRATION_STEPS}",
            "EVAL_EVERY=0",
            "CHECKPOINT_EVERY=0",
            *config.last_words,
        ]
        line = command("pretrain", words, workdir, CALIBRATION_STEPS, runner.arguments)
        # Of a macro that a recipe does not read (an encoder-decoder's HELDOUT_TEXT) a value is
        # refused.
        settings = runner.settings(line)
        for name in HELD_OUT:
            if re.search(rf"^{name} =", settings, re.MULTILINE):
                line.append(f"--gin.{name}=None")
        runs.append(_Run(line, workdir, runner))
    runner.run_all(runs, config.jobs)
    steps = {}
    for mix, workdir in workdirs.items():
        seen = read_result(workdir)["tokens_seen"]
        # At least one: a mix that reads more in a step than was asked for trains all the same.
        steps[mix] = max(1, round(config.tokens * CALIBRATION_STEPS / seen))
    return steps
