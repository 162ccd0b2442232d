"""`xlingjax pretrain --hours`: as many steps of a recipe as a budget of time allows, measured in a
trial of a few steps; of `own_text` the batch too."""

import dataclasses
import functools
import re
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.config.recipe import Recipe, bindings, read_recipe
from xlingjax.errors import Stopped, UserError
from xlingjax.report.run import read_run
from xlingjax.runtime.files import parsed_json, write_json
from xlingjax.runtime.machine import RuntimeConfig, one_run_in, start
from xlingjax.training.checkpoint import CheckpointConfig
from xlingjax.training.stopping import StoppingConfig
from xlingjax.workflows.adapt_trial import steps_within
from xlingjax.workflows.launch import evaluate, evaluators_of, launch
from xlingjax.workflows.studied_settings import FEW_PAIRS, FEWER_NEGATIVES, fewest_pairs, is_studied

RECORD = "hours.json"
"""In the workdir: the hours, what the trial measured, the macros that came of it, and the
settings of the study."""
COURSE = (
    "TRAIN_STEPS",
    "WARMUP_STEPS",
    "EVAL_EVERY",
    "STAGE_1_STEPS",
    "FIRST_PHASE",
    "EMBEDDINGS_ONLY",
)
"""Macros that count steps: a longer or shorter training has as many more or fewer of each."""
TRIAL_STEPS = 24
SLOW_STEPS = 8
"""The first of these, which fill caches and are not counted."""


def within_hours(
    files: Sequence[str],
    overrides: Sequence[str],
    workdir: str | Path,
    hours: float,
    machine: RuntimeConfig,
) -> list[str]:
    """The overrides NAME=VALUE that make the recipe last `hours`: those that the run in `workdir`
    was begun with, or else what a trial of it on this machine gives. Raises UserError, and Stopped
    where it was asked to stop."""
    workdir = Path(workdir)
    given = {override.partition("=")[0] for override in overrides}
    if "TRAIN_STEPS" in given:
        raise UserError("--hours and --gin.TRAIN_STEPS: both say how long it trains; give one")
    # JAX settles on a platform when it is first used.
    start(machine)
    with one_run_in(workdir):
        record = _begun(workdir, hours)
        if record is None:
            record = _chosen(files, overrides, workdir, hours, machine)
            write_json(workdir / RECORD, record)
            print(_said(record), flush=True)
    for setting in record["settings"]:
        name = setting.partition("=")[0]
        if name in given and setting not in overrides:
            raise UserError(
                f"--gin.{name}: {workdir} was begun with --hours, which chose {setting}: leave it"
                " out, or choose another --workdir"
            )
    return [*record["settings"], *_written(record["macros"])]


def _chosen(
    files: Sequence[str],
    overrides: Sequence[str],
    workdir: Path,
    hours: float,
    machine: RuntimeConfig,
) -> dict[str, Any]:
    """The record: of the recipe as it is, or as the study has it for such a text and time."""

    def tried(*settings: str) -> dict[str, Any]:
        given = [*overrides, *settings]
        record = _tried(files, given, workdir, hours, machine)
        return {**record, "settings": settings}

    if not is_studied(bindings(files, overrides), overrides):
        return tried()
    # Of gin's references this has the values, and what is missing is said.
    parallel = read_recipe(files, overrides).corpus.parallel
    if not parallel or fewest_pairs(parallel) >= FEW_PAIRS:
        return tried()
    print(
        f"fewer than {FEW_PAIRS:,} pairs: {', '.join(FEWER_NEGATIVES)}, of which more steps fit"
        " (docs/results/defaults.md)",
        flush=True,
    )
    return tried(*FEWER_NEGATIVES)


def _setting(text: str) -> str:
    """Raises ValueError, TypeError for what is no NAME=VALUE."""
    if not re.fullmatch(r"\w+=.+", text):
        raise ValueError(text)
    return text


def _written(macros: Mapping[str, int]) -> list[str]:
    return [f"{name}={value}" for name, value in macros.items()]


def _begun(workdir: Path, hours: float) -> dict[str, Any] | None:
    """What the run in the folder was begun with; None: nothing is there."""
    path = workdir / RECORD
    if not path.is_file():
        if (workdir / "run.json").is_file():
            raise UserError(
                f"{workdir} was begun without --hours: leave it out to go on, or choose another"
                " --workdir"
            )
        return None
    try:
        record = parsed_json(path.read_text(encoding="utf-8"))
        before = float(record["hours"])
        dict(record["macros"])
        record["settings"] = [*map(_setting, record["settings"])]
    except (ValueError, TypeError, KeyError, OSError):
        raise UserError(
            f"{path} is damaged: delete it, leave --hours out, and give the steps of"
            f" {workdir / 'config.gin'} by --gin.TRAIN_STEPS"
        ) from None
    if before != hours:
        raise UserError(
            f"{workdir} was begun with --hours {before:g}: give the same to go on, or choose"
            " another --workdir"
        )
    return record


def _tried(
    files: Sequence[str],
    overrides: Sequence[str],
    workdir: Path,
    hours: float,
    machine: RuntimeConfig,
) -> dict[str, Any]:
    recipe = read_recipe(files, overrides)
    steps_before = recipe.bound["steps"]
    lines = bindings(files, overrides)
    # Stages too become as short, so that steps of all of them are measured.
    short = scaled(lines, overrides, TRIAL_STEPS / steps_before)
    trial = workdir / "trial"
    shutil.rmtree(trial, ignore_errors=True)
    try:
        # A trial that was stopped has measured too few steps to plan by.
        if launch(
            _bare(read_recipe(files, [*overrides, *_written(short)])),
            trial,
            "pretrain",
            # What a trial measures is no run that anyone follows.
            dataclasses.replace(machine, wandb=""),
        ):
            raise Stopped("stopped while its speed was measured; the same command begins again")
        speed = _speed_of(trial)
        speed["seconds_per_evaluation"] = 0.0
        if evaluators_of(recipe):
            began = time.monotonic()
            evaluate(read_recipe(files, overrides), trial, machine)
            speed["seconds_per_evaluation"] = time.monotonic() - began
    finally:
        # The training starts from its own first weights, not from a trial.
        shutil.rmtree(trial, ignore_errors=True)
    every = recipe.bound.get("eval_every", 0)
    evaluations = 1
    if every:
        evaluations = -(-steps_before // every)
    steps = steps_within(hours, speed, evaluations)
    macros = scaled(lines, overrides, steps / steps_before)
    macros["TRAIN_STEPS"] = steps
    return {
        "hours": hours,
        "macros": macros,
        "speed": speed,
        "steps_of_the_recipe": steps_before,
        "evaluations": evaluations,
    }


def _bare(recipe: Recipe) -> Recipe:
    """With a log line for each step, which has its time, and nothing else between them."""
    plan = functools.partial(
        recipe.plan,
        evaluators=(),
        eval_every=0,
        log_every=1,
        checkpoint=CheckpointConfig(every=0),
        stopping=StoppingConfig(),
    )
    return dataclasses.replace(recipe, plan=plan)


def _speed_of(trial: Path) -> dict[str, float]:
    run = read_run(trial)
    seconds = sorted({line["seconds"] for line in run.metrics})
    each = [after - before for before, after in zip(seconds, seconds[1:], strict=False)]
    counted = each[SLOW_STEPS - 1 :]
    # Objectives take turns and cost differently: a mean, without the steps that were disturbed.
    longest = 4 * statistics.median(counted)
    counted = [one for one in counted if one <= longest]
    return {
        "seconds_per_step": statistics.mean(counted),
        "seconds_to_compile": sum(run.result["compile_seconds"].values()),
        "peak_memory_bytes": run.result["peak_memory_bytes"],
    }


def scaled(lines: Mapping[str, str], overrides: Sequence[str], factor: float) -> dict[str, int]:
    """The macros of `COURSE` that a recipe sets, `factor` times as large; what an override sets
    stays. lines: as of `bindings`."""
    given = {override.partition("=")[0] for override in overrides}
    macros = {}
    for name in COURSE:
        value = lines.get(name, "")
        if name in given or not value.isascii() or not value.isdigit():
            continue
        # A share of the steps, which goes before it, needs no scaling.
        if name == "WARMUP_STEPS" and lines.get("WARMUP_SHARE", "None") != "None":
            continue
        # 0 says that there is none.
        if int(value):
            macros[name] = max(round(int(value) * factor), 1)
    return macros


def _said(record: Mapping[str, Any]) -> str:
    speed = record["speed"]
    macros = ", ".join([*record["settings"], *_written(record["macros"])])
    return (
        f"measured in a trial: {speed['seconds_per_step']:.3g} s a step,"
        f" {speed['peak_memory_bytes'] / 1e9:.2f} GB; {record['evaluations']} evaluations of"
        f" {speed['seconds_per_evaluation']:.0f} s, {speed['seconds_to_compile']:.0f} s to compile:"
        f" {record['hours']:g} hours are {macros} (the recipe has"
        f" {record['steps_of_the_recipe']:,} steps)"
    )
