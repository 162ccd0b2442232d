"""Mixes of objectives beside each other: the same corpus, vocabulary, initial weights and tokens, several seeds.

A cell is one mix with one seed: a pretraining, then every fine-tuning from it. Each runs as its own `xlingjax` process
in its own workdir, and a finished one is not run again, so a bake-off that was stopped goes on with the same command.
"""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.errors import UserError

CALIBRATION_STEPS = 60
"""Steps after which the tokens of a step are known."""


@dataclass(frozen=True)
class Bakeoff:
    """What is compared. A list of words is gin files and `NAME=VALUE` bindings, in the order they are read;
    `0.667*STEPS` is that share of the steps."""

    base: Sequence[str]
    """The pretraining that all mixes share."""
    mixes: Mapping[str, Sequence[str]]
    """Name -> what is added to the base."""
    tasks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Name -> the recipe of a fine-tuning from each encoder."""
    seeds: Sequence[int] = (0,)
    tokens: int = 0
    """Tokens of each cell, to the nearest step; 0: the steps of the base."""

    def __post_init__(self):
        if not self.mixes or not self.seeds:
            raise UserError("bakeoff: name at least one mix and one seed")


@dataclass(frozen=True)
class Cell:
    mix: str
    seed: int
    folder: Path

    def values(self, tasks: Sequence[str]) -> dict[str, Any]:
        """What the cell's runs measured."""
        result = json.loads((self.folder / "pretrain" / "result.json").read_text(encoding="utf-8"))
        of_tasks = {
            task: json.loads((self.folder / task / "result.json").read_text(encoding="utf-8"))["evaluations"]
            for task in tasks
        }
        return {"mix": self.mix, "seed": self.seed, "pretrain": result, "tasks": of_tasks}


def run(
    config: Bakeoff, workdir: str | Path, say: Callable[[str], None] = print, arguments: Sequence[str] = ()
) -> dict:
    """Runs what is missing and writes `bakeoff.json`; returns its content. arguments: given to every command
    (`--platform cpu`). Raises UserError naming the log of a run that failed."""
    folder = Path(workdir)
    folder.mkdir(parents=True, exist_ok=True)
    steps = {mix: _steps(config, mix, folder, say, arguments) for mix in config.mixes}
    cells = []
    for seed in config.seeds:
        for mix, words in config.mixes.items():
            cell = Cell(mix, seed, folder / "cells" / f"{slug(mix)}-{seed}")
            more = [f"SEED={seed}", *([f"TRAIN_STEPS={steps[mix]}"] if steps[mix] else [])]
            pretrain = command(
                "pretrain", [*config.base, *words, *more], cell.folder / "pretrain", steps[mix], arguments
            )
            _run(pretrain, cell.folder / "pretrain", say)
            for task, recipe in config.tasks.items():
                start = [f"INIT_FROM={cell.folder / 'pretrain'}", f"SEED={seed}"]
                _run(
                    command("finetune", [*recipe, *start], cell.folder / task, None, arguments), cell.folder / task, say
                )
            cells.append(cell.values(list(config.tasks)))
    found = {"config": asdict(config), "cells": [summary(cell) for cell in cells]}
    (folder / "bakeoff.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return found


def slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").lower()


def command(
    verb: str, words: Sequence[str], workdir: Path, steps: int | None, arguments: Sequence[str] = ()
) -> list[str]:
    """The command line of one run."""
    line = [sys.executable, "-m", "xlingjax.cli", verb, "--workdir", str(workdir), *arguments]
    for word in words:
        if "=" not in word:
            line += ["--gin_file", word]
            continue
        name, _, value = word.partition("=")
        if share := re.fullmatch(r"([0-9.]+)\*STEPS", value):
            if not steps:
                raise UserError(f"bakeoff: {word} needs the steps of the run; set bakeoff.tokens")
            value = str(round(float(share[1]) * steps))
        line.append(f"--gin.{name}={value}")
    return line


def _run(line: Sequence[str], workdir: Path, say: Callable[[str], None]) -> None:
    """Runs a command unless it has finished before, with the same words."""
    mark, stamp = hashlib.sha256(json.dumps(list(line[3:])).encode()).hexdigest(), workdir / "bakeoff.stamp"
    if stamp.is_file() and stamp.read_text() == mark:
        say(f"{workdir}: finished before")
        return
    workdir.mkdir(parents=True, exist_ok=True)
    log = workdir.with_suffix(".log")
    say(f"{workdir}: {' '.join(line[3:])}")
    with open(log, "w", encoding="utf-8") as output:
        done = subprocess.run(line, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        last = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise UserError(f"bakeoff: {workdir} ended with status {done.returncode} ({' '.join(last)}); its log is {log}")
    stamp.write_text(mark)


def _steps(config: Bakeoff, mix: str, folder: Path, say, arguments) -> int | None:
    """Steps of a mix that read the tokens asked for, from the tokens of its first steps."""
    if not config.tokens:
        return None
    workdir = folder / "calibration" / slug(mix)
    words = [*config.base, *config.mixes[mix], f"TRAIN_STEPS={CALIBRATION_STEPS}", "WARMUP_STEPS=1", "EVAL_EVERY=0"]
    words += ["HELDOUT_TEXT=None", "HELDOUT_PAIRS=None", "HELDOUT_ALIGNMENTS=None", "CHECKPOINT_EVERY=0"]
    _run(command("pretrain", words, workdir, CALIBRATION_STEPS, arguments), workdir, say)
    seen = json.loads((workdir / "result.json").read_text(encoding="utf-8"))["tokens_seen"]
    return max(1, round(config.tokens * CALIBRATION_STEPS / seen))


# --- what is told -----------------------------------------------------------------------------------------------------


def summary(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a cell, and its retrieval by layer."""
    result = cell["pretrain"]
    evaluations = result["evaluations"]
    retrieval, aligned = evaluations.get("retrieval", {}), evaluations.get("alignment", {})
    figures = {
        "tokens": result["tokens_seen"],
        "tokens_per_second": result["tokens_per_second"],
        "retrieval": retrieval.get("retrieval_mean"),
        "retrieval_centred": retrieval.get("retrieval_mean_centred"),
        "alignment_error": aligned.get("alignment_error"),
        "alignment_error_intersection": aligned.get("alignment_error_intersection"),
    }
    for task, values in cell["tasks"].items():
        (tested,) = [v for name, v in values.items() if name.endswith("_test")]
        figures |= {f"{task}_en": tested.get("en"), f"{task}_other": tested.get("mean_other")}
    layers = next(iter(retrieval.get("by_layer", {}).values()), {})
    return {
        "mix": cell["mix"],
        "seed": cell["seed"],
        "figures": {name: value for name, value in figures.items() if value is not None},
        "retrieval_by_layer": {layer: scores["centred_en_to_xx"] for layer, scores in layers.items()},
    }


def by_mix(cells: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, tuple[float, float]]]:
    """{mix: {figure: (mean, standard deviation over seeds)}}; of one seed the deviation is 0."""
    groups: dict[str, list[Mapping[str, float]]] = {}
    for cell in cells:
        groups.setdefault(cell["mix"], []).append(cell["figures"])
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for mix, figures in groups.items():
        names = [name for name in figures[0] if all(name in one for one in figures)]
        values = {name: np.array([one[name] for one in figures], float) for name in names}
        found[mix] = {n: (float(v.mean()), float(v.std(ddof=1)) if v.size > 1 else 0.0) for n, v in values.items()}
    return found


def table(found: Mapping[str, Any]) -> Any:
    """A rich table, a row per mix: mean ± standard deviation."""
    from rich.table import Table

    rows = by_mix(found["cells"])
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    result = Table(box=None, header_style="dim")
    result.add_column("mix")
    for name in names:
        result.add_column(name.replace("_", " "), justify="right")
    for mix, row in rows.items():
        result.add_row(mix, *(shown(name, row.get(name)) for name in names))
    return result


def shown(name: str, value: tuple[float, float] | None) -> str:
    if value is None:
        return ""
    mean, deviation = value
    if name.startswith("tokens"):
        return f"{mean:,.0f}"
    return f"{mean:.3f} ± {deviation:.3f}" if deviation else f"{mean:.3f}"
