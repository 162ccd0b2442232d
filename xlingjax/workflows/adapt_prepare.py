"""All that `xlingjax adapt` does before the training: the first model, the text, the recipe, and
what the first model measures."""

import contextlib
import dataclasses
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from xlingjax.config.recipe import read_recipe
from xlingjax.convert import import_model
from xlingjax.data.check import Findings, check
from xlingjax.data.sampling import Sampling, format_table
from xlingjax.data.text.sources import find_pairs, find_text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.inference.run import open_run
from xlingjax.model.partition import first_device, make_mesh, row_devices
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.training.run_record import model_of, run_and_checkpoint
from xlingjax.training.step_memory import Needs, microbatches_for, table
from xlingjax.training.workdir import whole, write_workdir
from xlingjax.workflows.adapt_held_out import heldout_shares, say_unmeasured, write_heldout
from xlingjax.workflows.adapt_recipe import recipe_text, settings
from xlingjax.workflows.adapt_request import Request
from xlingjax.workflows.adapt_trial import EVALUATIONS, steps_of, steps_within, trial
from xlingjax.workflows.launch import evaluate

SAFE_SECONDS = 1200
"""Of training that a lost machine costs at most."""
_HELDOUT = ("HELDOUT_TEXT", "HELDOUT_PAIRS", "HELDOUT_ALIGNMENTS")


def prepare(
    request: Request, folder: Path, machine: RuntimeConfig, check_start: Callable[[str], None]
) -> dict[str, Any]:
    """Everything that the training needs, and what it begins from measured. check_start: raises
    UserError for a first model that cannot be exported. Raises UserError."""
    _check_paths(request)
    # Of a preparation that was stopped.
    for name in ("start", "heldout", "trial"):
        shutil.rmtree(folder / name, ignore_errors=True)
    start = folder / "start"
    first_model(request.source, start)
    # Before the text is read, which takes long where there is much of it.
    check_start(str(start))
    config = model_of(start)
    vocabulary = Vocabulary.load(start)
    # XLM-R's positions begin at 2: two rows of its table hold no token.
    room = config.max_positions - config.position_offset
    if request.length > room:
        raise UserError(
            f"--length {request.length}: the model has {room} positions; give at most so many"
        )
    findings = _checked(request, vocabulary)
    share = heldout_shares(findings, request)
    held = write_heldout(request.text, request.parallel, share, folder / "heldout")
    counts = ", ".join(f"{name} {lines} lines" for name, lines in held.items())
    print(f"held out: {counts or 'nothing'}")
    say_unmeasured(findings, held, share)

    # Written three times: first to be read for the memory, then with the microbatches for the
    # trial, at last with the steps that the trial allows.
    values = settings(request, config, start, held)
    recipe = folder / "recipe.gin"
    recipe.write_text(recipe_text(request, values, share), encoding="utf-8")
    # The memory is planned for what the recipe binds, gin files of the command line among it.
    values["MICROBATCHES"] = _microbatches(request, read_recipe([str(recipe)], ()).bound)
    recipe.write_text(recipe_text(request, values, share), encoding="utf-8")

    measured = bool(held or request.gold or any(name in request.given for name in _HELDOUT))
    speed = {"seconds_per_evaluation": _measure_start(request, values, share, measured, machine)}
    # The number of steps is given, or is what fits into the hours at the speed that a trial shows.
    steps = request.steps
    if not steps:
        speed |= trial(request, folder, machine)
        steps = steps_within(request.hours, speed)
        _say_speed(request, speed, steps)
    for name, rows in findings.tables.items():
        shown = format_table(rows, steps_of(name, request, steps))
        print(f"{name}, epochs of all steps on it:\n{shown}")
    values |= _course(steps, speed, measured)
    recipe.write_text(recipe_text(request, values, share), encoding="utf-8")
    return {"speed": speed, "settings": values, "held_out_share": share}


# ---- the model and the text ----------------------------------------------------------------------


def _check_paths(request: Request) -> None:
    """Raise UserError for what is not there, before the model is fetched."""
    if not request.mono:
        for name in request.parallel:
            # A line of a table is no sentence of one language.
            if name.endswith((".tsv", ".jsonl")):
                raise UserError(
                    f"--parallel {name}: the sides of a table are not read as text; give --mono too"
                )
    present = {text.language for text in find_text(request.text)}
    paired = set()
    if request.parallel:
        for pair in find_pairs(request.parallel):
            paired.update(pair.languages)
    missing = sorted(paired - present)
    if missing and not request.mono:
        raise UserError(
            f"--parallel names one side of its pairs, and the text of {', '.join(missing)}"
            " would be left out: name both ('pairs/de-en.*'), or give --mono"
        )
    if request.gold and not Path(request.gold).is_dir():
        raise UserError(f"--gold {request.gold}: no such folder")


def first_model(source: str, start: Path) -> None:
    """The workdir `start` with the model `source`: a run of ours, or one of Hugging Face, which is
    imported. Raises UserError for a file of another program."""
    if (run_and_checkpoint(source)[0] / "run.json").is_file():
        # A copy: the folder keeps the model as it came, whatever becomes of the run.
        step = find_checkpoint(source).name
        write_workdir(source, str(start), step, open_run(source).params, "adapt", {})
        print(f"{start}: checkpoint {step} of {source}")
        return
    files = import_model.located(source)
    if files.is_file():
        raise UserError(
            f"{source} is a file: run `xlingjax import {source} --to RUN --unverified`, then adapt"
            " RUN"
        )
    # Imported once, and kept for every folder that adapts this model.
    imported = Path(import_model.imported(str(files)))
    # A copy that was cut short must not pass for the model.
    with whole(str(start)) as partial:
        shutil.copytree(imported, partial, copy_function=_same_file, dirs_exist_ok=True)
    print(f"{start}: the import in {imported}")


def _same_file(source: str, target: str) -> None:
    """A checkpoint is not written to again, so it need not stand on the disk twice."""
    if "checkpoints" in Path(source).parts:
        # Fails on another disk, or one that has no links.
        with contextlib.suppress(OSError):
            os.link(source, target)
            return
    shutil.copy2(source, target)


def _checked(request: Request, vocabulary: Vocabulary) -> Findings:
    """What `xlingjax data check` finds in the text. Raises UserError where it has errors."""
    sampling = Sampling(alpha=float(request.given.get("ALPHA", 0.7)))
    findings = check(
        request.text,
        request.parallel,
        vocabulary,
        batch=request.batch,
        length=request.length,
        sampling=sampling,
    )
    print(findings.text())
    if findings.errors:
        raise UserError(
            f"the text has {findings.errors} errors (above): repair them first; `xlingjax data"
            " check` shows all"
        )
    return findings


# ---- what the training costs ---------------------------------------------------------------------


def _microbatches(request: Request, bound: Mapping[str, Any]) -> int:
    """How many a batch is cut into, so that what the recipe binds fits the devices."""
    mesh = make_mesh(bound["mesh"])
    needs = Needs(
        bound["model"], bound["optimizer"], bound["objectives"], first_device(mesh).platform
    )
    parts = microbatches_for(needs, mesh, request.batch)
    # Of one device and one microbatch: what is in memory at a time.
    rows = request.batch // row_devices(mesh) // parts
    print(
        f"memory of a device, {rows} rows of {request.length} tokens at a time ({parts}"
        " microbatches):"
    )
    print(table(needs.on(mesh, parts)))
    return parts


def _measure_start(
    request: Request,
    values: Mapping[str, Any],
    share: Mapping[str, float],
    measured: bool,
    machine: RuntimeConfig,
) -> float:
    """Measures the first model, where anything is measured; the seconds that this took."""
    began = time.monotonic()
    start = Path(values["INIT_FROM"])
    # The first model lacks the parameters that only some objectives have.
    plain = tuple(name for name in request.objectives if not request.adds(name))
    # MLM is in the base recipe and adds nothing, so it
    # stands in where every objective adds something.
    without_added = dataclasses.replace(request, objectives=plain or ("mlm",))
    recipe = start.parent / "before.gin"
    recipe.write_text(recipe_text(without_added, values, share), encoding="utf-8")
    # Where nothing is held out the evaluators are empty, and `evaluate` refuses that.
    if measured:
        print("before:", flush=True)
        evaluate(read_recipe([str(recipe)], ()), start, machine)
    recipe.unlink()
    return time.monotonic() - began


def _say_speed(request: Request, speed: Mapping[str, float], steps: int) -> None:
    print(
        f"measured in a trial: {speed['tokens_per_second']:,.0f} tokens/s,"
        f" {speed['seconds_per_step']:.3g} s a step, {speed['peak_memory_bytes'] / 1e9:.2f} GB;"
        f" {speed['seconds_per_evaluation']:.0f} s an evaluation; {request.hours:g} hours are"
        f" {steps:,} steps"
    )


def _course(steps: int, speed: Mapping[str, float], measured: bool) -> dict[str, int]:
    """The macros of how long it trains, and how often it is measured and saved."""
    often = -(-steps // EVALUATIONS)
    # Without a trial, where --steps is given, the speed is not known.
    safe_steps = int(SAFE_SECONDS / speed.get("seconds_per_step", 0.1)) + 1
    return {
        "TRAIN_STEPS": steps,
        # A share, so that short trainings warm up as long ones do.
        "WARMUP_STEPS": steps // 16,
        "EVAL_EVERY": often * measured,
        "CHECKPOINT_EVERY": min(1000, often, safe_steps),
    }
