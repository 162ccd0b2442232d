"""Mixes of objectives compared: the same corpus, vocabulary, initial weights, tokens and seeds.

A cell is one mix with one seed: a pretraining, then every fine-tuning from it. Each runs as its own
`xlingjax` process in its own workdir, and a finished one is not run again, so a bake-off that was
stopped goes on with the same command. What stands in a workdir with other settings is refused, and
so are seeds of one mix that have read different data.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.config.recipe import parse_gin
from xlingjax.errors import UserError, require_whole
from xlingjax.runtime.files import write_text
from xlingjax.runtime.lock import alone_in
from xlingjax.training.run_record import read_result, read_run_record
from xlingjax.workflows.jobs import recipe_run
from xlingjax.workflows.jobs.many import Say, Stop, run_all
from xlingjax.workflows.jobs.recipe_run import RecipeRun, command_line, finished, recipe_in, slug

CALIBRATION_STEPS = 60  # steps after which the tokens of a step are known
HELD_OUT = ("HELDOUT_TEXT", "HELDOUT_PAIRS", "HELDOUT_ALIGNMENTS")
ENCODER = "{encoder}"
SHARE = re.compile(r"([0-9.]+)\*STEPS")


@dataclasses.dataclass(frozen=True)
class Bakeoff:
    """What is compared. A list of words is gin files and `NAME=VALUE` bindings, in the order they
    are read; `0.667*STEPS` is that share of the steps."""

    base: Sequence[str]  # the pretraining that all mixes share
    mixes: Mapping[str, Sequence[str]]  # name -> what is added to the base
    tasks: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    """Name -> the recipe of a fine-tuning from each pretraining. Where a word has `{encoder}`, that
    is its workdir, and nothing else says what is started from; else `INIT_FROM` is added."""
    tasks_of: Mapping[str, Mapping[str, Sequence[str]]] = dataclasses.field(default_factory=dict)
    """Mix -> task -> its words for this mix, in place of those of `tasks`."""
    seeds: Sequence[int] = (0,)
    tokens: int = 0  # tokens of each cell, to the nearest step; 0: the steps of the base
    jobs: int = 1
    """Cells at a time. On an accelerator 1; on a CPU small models fill about one core each. Beside
    one another they slow each other, so speeds compare only under equal jobs."""

    def __post_init__(self):
        require_whole(self, "[0, inf)", "seeds tokens", "bakeoff: ")
        require_whole(self, "[1, inf)", "jobs", "bakeoff: ")
        if not self.mixes or not self.seeds or len({*self.seeds}) != len(self.seeds):
            raise UserError("bakeoff: name at least one mix and one seed, and no seed twice")
        # "mlm+tlm" and "mlm tlm" would go on with each other's runs; so would a task "pretrain".
        for names in ([*self.mixes], ["pretrain", *self.tasks]):
            slugs = [*map(slug, names)]
            if len({*slugs}) != len(slugs) or "" in slugs or "/" in "".join(self.tasks):
                raise UserError(
                    "bakeoff: a folder has only the letters A to Z and digits of a name, which must"
                    f" differ: {', '.join(names)}; rename one"
                )
        # Else a misspelt one would be fine-tuned as all others are.
        for what, names, known in (
            ("mix", self.tasks_of, self.mixes),
            ("task", {one for tasks in self.tasks_of.values() for one in tasks}, self.tasks),
        ):
            for name in {*names} - {*known}:
                raise UserError(
                    f"bakeoff.tasks_of: {name!r} is no {what}; there are"
                    f" {', '.join(known) or 'none'}: set TASKS_OF to match, --gin.TASKS_OF={{}} for"
                    " none"
                )

    def task_words(self, mix: str, task: str, encoder: Path) -> list[str]:
        """The words of a fine-tuning from what the mix trained."""
        words = self.tasks_of.get(mix, {}).get(task, self.tasks[task])
        filled = [word.replace(ENCODER, str(encoder)) for word in words]
        if filled == [*words]:
            filled.append(f"INIT_FROM={encoder}")
        return filled


@dataclasses.dataclass(frozen=True)
class Cell:
    mix: str
    seed: int
    folder: Path


def run(
    config: Bakeoff, workdir: str | Path, say: Say = print, arguments: Sequence[str] = ()
) -> dict:
    """Runs what is missing and writes `bakeoff.json`; returns its content.

    arguments: given to every command (`--platform cpu`). Raises UserError naming the log of a run
    that failed, and a folder that holds a run of other settings; Stopped after SIGTERM,
    SIGINT or SIGHUP.
    """
    folder = Path(workdir)
    folder.mkdir(parents=True, exist_ok=True)
    stop = Stop("bakeoff")
    make = functools.partial(_made, stop, say, arguments)
    cells = _cells(config, folder)
    _require_same_data(config, cells)
    # Signals are the main thread's, and the other threads learn of them from the event.
    with alone_in(folder, "choose another --to"), stop.listen():
        steps: dict[str, int | None] = dict.fromkeys(config.mixes)
        if config.tokens:
            calibration = _calibration(config, folder, make)
            run_all(calibration.values(), config.jobs, say, stop)
            for mix, one in calibration.items():
                tokens = read_result(one.workdir)["tokens_seen"]
                steps[mix] = max(1, round(config.tokens * CALIBRATION_STEPS / tokens))
        jobs = [job for cell in cells for job in _runs(config, cell, steps[cell.mix], make)]
        run_all(jobs, config.jobs, say, stop)
    _require_same_data(config, cells)
    content: dict[str, Any] = {"config": dataclasses.asdict(config), "cells": []}
    for cell in cells:
        tasks = {task: read_result(cell.folder / task)["evaluations"] for task in config.tasks}
        figures = summary(read_result(cell.folder / "pretrain"), tasks)
        content["cells"].append({"mix": cell.mix, "seed": cell.seed, **figures})
    write_text(folder / "bakeoff.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return content


def require_readable(config: Bakeoff, workdir: str | Path) -> None:
    """Raise UserError for a word of a mix or its fine-tunings that gin refuses, before training."""
    # How many steps a mix has is known when its first ones are done.
    steps = CALIBRATION_STEPS if config.tokens else None
    make = functools.partial(_made, Stop("bakeoff"), print, ())
    for cell in _cells(config, Path(workdir))[: len(config.mixes)]:
        names = [
            f"mix {cell.mix!r}",
            *(f"task {one!r} of mix {cell.mix!r}" for one in config.tasks),
        ]
        for name, one in zip(names, _runs(config, cell, steps, make), strict=True):
            try:
                parse_gin(*recipe_in(one.line))
            except UserError as error:
                raise UserError(f"bakeoff, {name}: {error}") from None


def _cells(config: Bakeoff, folder: Path) -> list[Cell]:
    """Seed by seed, so that a bake-off that is stopped early has compared all mixes."""
    return [
        Cell(mix, seed, folder / "cells" / f"{slug(mix)}-{seed}")
        for seed in config.seeds
        for mix in config.mixes
    ]


def command(
    verb: str, words: Sequence[str], workdir: Path, steps: int | None, arguments: Sequence[str] = ()
) -> list[str]:
    """The command line of one run."""
    line = command_line(verb, "--to", str(workdir), *arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            line += ["--gin-file", word]
            continue
        if SHARE.search(value):
            if not steps:
                raise UserError(f"bakeoff: {word} needs the steps of the run; set bakeoff.tokens")
            value = SHARE.sub(lambda share: str(round(float(share[1]) * steps)), value)
        line.append(f"--gin.{name}={value}")
    return line


def _made(
    stop: Stop,
    say: Say,
    arguments: Sequence[str],
    verb: str,
    words: Sequence[str],
    workdir: Path,
    steps: int | None = None,
    encoder: RecipeRun | None = None,
) -> RecipeRun:
    line = command(verb, words, workdir, steps, arguments)
    log = workdir.with_suffix(".log")
    needs = (encoder.name,) if encoder else ()
    more = {"needs": needs, "workdir": workdir, "encoder": encoder}
    return RecipeRun(str(workdir), line, stop, say, log, **more)


def _runs(
    config: Bakeoff, cell: Cell, steps: int | None, make: Callable[..., RecipeRun]
) -> list[RecipeRun]:
    """The pretraining of a cell, then the fine-tunings."""
    # Later words win in gin: a mix changes the base, and the bake-off's own settings change both.
    seed = f"SEED={cell.seed}"
    words = [*config.base, *config.mixes[cell.mix], seed]
    if steps:
        words.append(f"TRAIN_STEPS={steps}")
    folder = cell.folder / "pretrain"
    pretrain = make("pretrain", words, folder, steps)
    runs = [pretrain]
    for task in config.tasks:
        words = [*config.task_words(cell.mix, task, folder), seed]
        runs.append(make("finetune", words, cell.folder / task, encoder=pretrain))
    return runs


def _calibration(
    config: Bakeoff, folder: Path, make: Callable[..., RecipeRun]
) -> dict[str, RecipeRun]:
    """The first steps of each mix: a row's tokens depend on the text, so they are counted."""
    runs = {}
    for mix, its_words in config.mixes.items():
        words = [*config.base, *its_words]
        # How much a step reads is all that is wanted: no evaluations, no checkpoints.
        words += ["WARMUP_STEPS=1"]
        words += [f"TRAIN_STEPS={CALIBRATION_STEPS}", "EVAL_EVERY=0", "CHECKPOINT_EVERY=0"]
        one = make("pretrain", words, folder / "calibration" / slug(mix), CALIBRATION_STEPS)
        # A value of a macro that a recipe does not read (HELDOUT_TEXT) is refused.
        settings = recipe_run.settings_of(one.line)
        bound = [name for name in HELD_OUT if re.search(rf"^{name} =", settings, re.MULTILINE)]
        one.line = [*one.line, *(f"--gin.{name}=None" for name in bound)]
        runs[mix] = one
    return runs


def _require_same_data(config: Bakeoff, cells: Sequence[Cell]) -> None:
    """Raises UserError where finished runs of one mix, differing in seed alone, read other data."""
    known: dict[tuple[str, ...], tuple[Any, Path]] = {}
    for cell in cells:
        for folder in [cell.folder / name for name in ("pretrain", *config.tasks)]:
            if not finished(folder):
                continue
            for objective, identity in read_run_record(folder)["identity"]["data"].items():
                # Of a text objective the hash of each text; of a fine-tuning that of all its rows.
                hashes = identity.get("text") or {"examples": identity.get("sha256")}
                key = (cell.mix, folder.name, objective)
                before, other = known.setdefault(key, (hashes, folder))
                if before != hashes:
                    raise UserError(
                        f"bakeoff: {folder} has read other data than {other} ({objective}): choose"
                        " another --to, or move the cells of the older data away"
                    )


def summary(pretrained: Mapping[str, Any], tasks: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a cell, and those of its layers.
    pretrained: its result.json; tasks: {task: what was evaluated}."""
    retrieval, alignment, perplexity = (
        pretrained["evaluations"].get(name, {}) for name in ("retrieval", "alignment", "perplexity")
    )
    figures = {
        "retrieval": retrieval.get("retrieval_mean"),
        "retrieval_centred": retrieval.get("retrieval_mean_centred"),
        "alignment_error": alignment.get("alignment_error"),
        "alignment_error_intersection": alignment.get("alignment_error_intersection"),
        "masked_accuracy": perplexity.get("accuracy_mean"),
    }
    for task, values in tasks.items():
        # The test set's: the dev set chose the checkpoint.
        (tested,) = [value for name, value in values.items() if name.endswith("_test")]
        # Of texts that are written: BLEU of the languages that were trained on, and of the others.
        english = figures[f"{task}_en"] = tested.get("en", tested.get("bleu_trained"))
        other = figures[f"{task}_other"] = tested.get("mean_other", tested.get("bleu_others"))
        if english is None and other is None:
            figures[task] = tested.get("bleu_mean")
    figures["tokens"] = pretrained["tokens_seen"]
    figures["tokens_per_second"] = pretrained["tokens_per_second"]
    # Of several poolings the first is shown.
    layers = next(iter(retrieval.get("by_layer", {}).values()), {})
    errors = alignment.get("by_layer", {})
    return {
        # What the mix has no evaluation of is no column of the table.
        "figures": {name: value for name, value in figures.items() if value is not None},
        "by_layer": {
            **{
                kind: {layer: scores[f"{kind}_en_to_xx"] for layer, scores in layers.items()}
                for kind in ("raw", "centred")
            },
            "itermax": {layer: one["itermax"] for layer, one in errors.items()},
        },
    }
