"""How long a recipe's step takes on this machine, by a trial, and how many fit into hours."""

import contextlib
import dataclasses
import functools
import io
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from xlingjax.config.recipe import bindings, read_recipe
from xlingjax.errors import Stopped, UserError
from xlingjax.report.run import read_run
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.training.checkpoint import CheckpointConfig
from xlingjax.training.stopping import StoppingConfig
from xlingjax.workflows.launch import evaluate, evaluators_of, launch

COURSE = (
    "TRAIN_STEPS",
    "WARMUP_STEPS",
    "DECAY_STEPS",
    "EVAL_EVERY",
    "STAGE_1_STEPS",
    "FIRST_PHASE",
    "EMBEDDINGS_ONLY",
)
"""Macros that count steps: a longer or shorter training has as many more or fewer of each."""
TRIAL_STEPS = 18
TRIAL_TURNS = 6  # of each objective at least
EVALUATING = 0.2  # of the time
DISTURBED = 4  # times the median: a step that took longer was not alone on the machine


def measured(
    files: Sequence[str],
    overrides: Sequence[str],
    folder: Path,
    machine: RuntimeConfig,
    evaluations: bool = True,
    until: float | None = None,
) -> dict[str, float]:
    """{"seconds_per_step", "tokens_per_second", "peak_memory_bytes", "seconds_to_compile"} of a
    short training of the recipe in `folder`, which is removed again; with `evaluations`
    "seconds_per_evaluation", 0 without evaluators. until: see `train`. Raises Stopped
    where it was asked to stop."""
    recipe = read_recipe(files, overrides)
    steps = max(TRIAL_STEPS, TRIAL_TURNS * len(recipe.bound["objectives"]))
    # Stages become shorter, too, so that steps of all of them are measured.
    # What is given becomes shorter, too: a warm-up of 1,000 steps leaves none of these.
    short = scaled(bindings(files, overrides), (), steps / recipe.bound["steps"])
    short["TRAIN_STEPS"] = steps
    shutil.rmtree(folder, ignore_errors=True)
    try:
        trial = read_recipe(files, [*overrides, *written(short)])
        # With a log line for each step, which has its time, and nothing else between them.
        plan = functools.partial(
            trial.plan,
            evaluators=(),
            eval_every=0,
            log_every=1,
            checkpoint=CheckpointConfig(every=0),
            stopping=StoppingConfig(),
        )
        print(f"measuring how long a step takes: {steps} steps", flush=True)
        # The training says the same of its text, and the trial's page is removed.
        with contextlib.redirect_stdout(io.StringIO()):
            trial = dataclasses.replace(trial, plan=plan)
            status = launch(trial, folder, "pretrain", machine, until)
        if status:
            raise Stopped("stopped while its speed was measured; the same command begins again")
        speed = _speed(folder)
        if evaluations:
            began = time.monotonic()
            if evaluators_of(recipe):
                evaluate(read_recipe(files, overrides), folder, machine)
            speed["seconds_per_evaluation"] = time.monotonic() - began
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return speed


def _speed(folder: Path) -> dict[str, float]:
    run = read_run(folder)
    # Totals, which several lines of a step repeat.
    totals = sorted({(line["seconds"], line["tokens_seen"]) for line in run.metrics})
    seconds, tokens = np.diff(np.array(totals, float), axis=0).T
    seconds = seconds[len(seconds) // 3 :]
    tokens = tokens[len(tokens) // 3 :]
    # Objectives take turns and cost differently: a mean of the steps that were not disturbed.
    seconds_per_step = float(seconds[seconds <= DISTURBED * np.median(seconds)].mean())
    return {
        "seconds_per_step": seconds_per_step,
        "tokens_per_second": float(tokens.mean()) / seconds_per_step,
        "peak_memory_bytes": run.result["peak_memory_bytes"],
        "seconds_to_compile": sum(run.result["compile_seconds"].values()),
    }


def steps_within(seconds: float, speed: Mapping[str, float], evaluations: int) -> tuple[int, int]:
    """(steps, evaluations): how many steps fit beside compiling and evaluations, of which there are
    as many of the wanted ones as take `EVALUATING` of the time, and one at least. Raises UserError
    where no step fits."""
    compiling = speed["seconds_to_compile"]
    one = speed["seconds_per_evaluation"]
    if evaluations * one > EVALUATING * seconds:
        evaluations = max(int(EVALUATING * seconds / one), 1)
    steps = int((seconds - evaluations * one - compiling) / speed["seconds_per_step"])
    if steps < 1:
        raise UserError(
            f"--hours is too little: {seconds:.0f} s are left for the training; an evaluation takes"
            f" {one:.0f} s, compiling {compiling:.0f} s, a step {speed['seconds_per_step']:.3g} s"
        )
    return steps, evaluations


def scaled(lines: Mapping[str, str], overrides: Sequence[str], factor: float) -> dict[str, int]:
    """A recipe's macros of `COURSE` times `factor`; overrides stay. lines: as of `bindings`."""
    given = {override.partition("=")[0] for override in overrides}
    macros = {}
    for name in COURSE:
        value = lines.get(name, "")
        if name in given or not value.isascii() or not value.isdigit():
            # A share of the steps grows by itself.
            continue
        # 0 says that there is none.
        if int(value):
            macros[name] = max(round(int(value) * factor), 1)
    return macros


def written(macros: Mapping[str, int]) -> list[str]:
    """As overrides."""
    return [f"{name}={value}" for name, value in macros.items()]


def described(speed: Mapping[str, float]) -> str:
    return (
        f"measured in a trial: {speed['tokens_per_second']:,.0f} tokens/s,"
        f" {speed['seconds_per_step']:.3g} s a step, {speed['peak_memory_bytes'] / 1e9:.2f} GB,"
        f" {speed['seconds_to_compile']:.0f} s to compile,"
        f" {speed['seconds_per_evaluation']:.0f} s an evaluation"
    )
