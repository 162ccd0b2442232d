"""How many steps fit in the hours that `xlingjax adapt` may take."""

import dataclasses
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.config.recipe import read_recipe
from xlingjax.errors import Stopped, UserError
from xlingjax.report.run import read_run
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.workflows.adapt_request import Request
from xlingjax.workflows.launch import launch

TRIAL_TURNS = 6
"""Of each objective."""
SLOW_TURNS = 2
"""The first of these, which are slower and not counted."""
EVALUATIONS = 5
"""Of the whole training."""


def trial(request: Request, folder: Path, machine: RuntimeConfig) -> dict[str, float]:
    """{"seconds_per_step", "tokens_per_second", "peak_memory_bytes"} of a few steps. Raises Stopped
    where it was asked to stop."""
    count = len(request.names)
    short: dict[str, Any] = {
        "TRAIN_STEPS": TRIAL_TURNS * count,
        # A log line for each step has its time; without
        # checkpoints and evaluations nothing else is in it.
        "LOG_EVERY": 1,
        "CHECKPOINT_EVERY": 0,
        "WARMUP_STEPS": 0,
        "train.evaluators": "[]",
    }
    for name in ("EMBEDDINGS_ONLY", "FIRST_PHASE"):
        if name in request.given:
            short[name] = 0  # steps of all parameters, which are the slow ones
    overrides = [f"{name}={value}" for name, value in short.items()]
    recipe = read_recipe([str(folder / "recipe.gin")], overrides)
    # A few steps are no run that anybody wants to see.
    machine = dataclasses.replace(machine, wandb="")
    # A trial that was stopped has measured too few steps to plan by.
    if launch(recipe, folder / "trial", "pretrain", machine):
        raise Stopped("stopped while it was prepared; the same command begins again")
    run = read_run(folder / "trial")
    # The training itself starts from the first model, not from a trial.
    shutil.rmtree(folder / "trial")
    seconds, tokens = _by_step(run.metrics)
    # The first turns compile and fill caches.
    seconds = seconds[SLOW_TURNS * count :]
    tokens = tokens[SLOW_TURNS * count :]
    # Objectives cost differently, and one step may be disturbed: the mean of their medians.
    medians = [statistics.median(seconds[turn::count]) for turn in range(count)]
    seconds_per_step = statistics.mean(medians)
    return {
        "seconds_per_step": seconds_per_step,
        "tokens_per_second": sum(tokens) / len(tokens) / seconds_per_step,
        "peak_memory_bytes": run.result["peak_memory_bytes"],
        "seconds_to_compile": sum(run.result["compile_seconds"].values()),
    }


def _by_step(metrics: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[int]]:
    """The seconds and the tokens of each step. The log has totals, several lines for a step."""
    totals = {(line["step"], line["seconds"], line["tokens_seen"]) for line in metrics}
    seconds = []
    tokens = []
    before_seconds = 0.0
    before_tokens = 0
    for _, total_seconds, total_tokens in sorted(totals):
        seconds.append(total_seconds - before_seconds)
        tokens.append(total_tokens - before_tokens)
        before_seconds = total_seconds
        before_tokens = total_tokens
    return seconds, tokens


def steps_within(hours: float, speed: Mapping[str, float], evaluations: int = EVALUATIONS) -> int:
    """How many steps fit beside the evaluations and the compiling. Raises UserError where none
    does."""
    evaluating = evaluations * speed["seconds_per_evaluation"]
    compiling = speed["seconds_to_compile"]
    left = 3600 * hours - evaluating - compiling
    steps = int(left / speed["seconds_per_step"])
    if steps < 1:
        raise UserError(
            f"--hours {hours:g} is too little: {evaluations} evaluations take"
            f" {evaluating:.0f} s, compiling {compiling:.0f} s, a step"
            f" {speed['seconds_per_step']:.3g} s; give more, or fewer objectives"
        )
    return steps


def steps_of(kind: str, request: Request, steps: int) -> int:
    """How many of the steps read "text", or "pairs": objectives take turns."""
    turns = [request.text_of(name) for name in request.names]
    # The recipe alternates, each objective as often as the others.
    return steps * turns.count(kind) // len(turns)
