"""`xlingjax pretrain --hours`: as many steps as a budget of time allows, by a trial."""

import time
from collections.abc import Sequence
from pathlib import Path

from xlingjax.config.recipe import bindings, read_recipe
from xlingjax.errors import UserError
from xlingjax.runtime.files import write_json
from xlingjax.runtime.machine import RuntimeConfig, one_run_in, start
from xlingjax.runtime.records import ANY, read_record
from xlingjax.workflows.adapt.trial import described, measured, scaled, steps_within, written

RECORD = "hours.json"  # in the workdir: the hours, what the trial measured, the macros made of it


def within_hours(
    files: Sequence[str],
    overrides: Sequence[str],
    workdir: str | Path,
    hours: float,
    machine: RuntimeConfig,
) -> tuple[list[str], float]:
    """The overrides NAME=VALUE that make the recipe last `hours`, and what `train` has for `until`:
    those that the run in `workdir` was begun with, or else what a trial of it on this machine
    gives. Raises UserError, and Stopped where it was asked to stop."""
    until = time.monotonic() + 3600 * hours
    workdir = Path(workdir)
    if any(override.partition("=")[0] == "TRAIN_STEPS" for override in overrides):
        raise UserError("--hours and --gin.TRAIN_STEPS: both say how long it trains; give one")
    start(machine)
    with one_run_in(workdir):
        record = _begun(workdir, hours)
        if record is None:
            record = _chosen(files, overrides, workdir, hours, machine)
            write_json(workdir / RECORD, record)
    # The last evaluation comes behind the last step.
    return written(record["macros"]), until - record["speed"]["seconds_per_evaluation"]


def _begun(workdir: Path, hours: float) -> dict | None:
    """What the run in the folder was begun with; None: nothing is there."""
    path = workdir / RECORD
    if not path.is_file():
        if (workdir / "run.json").is_file():
            raise UserError(
                f"{workdir} was begun without --hours: leave it out to go on, or choose another"
                " --to"
            )
        return None
    record = read_record(
        path,
        {
            "hours": (int, float),
            "macros": {str: int},
            "speed": {"seconds_per_evaluation": (int, float), str: ANY},
        },
        f"delete it, leave --hours out, and give the steps of {workdir / 'config.gin'} by"
        " --gin.TRAIN_STEPS",
    )
    if record["hours"] != hours:
        raise UserError(
            f"{workdir} was begun with --hours {record['hours']:g}: give the same to go on, or"
            " choose another --to"
        )
    return record


def _chosen(
    files: Sequence[str],
    overrides: Sequence[str],
    workdir: Path,
    hours: float,
    machine: RuntimeConfig,
) -> dict:
    began = time.monotonic()
    bound = read_recipe(files, overrides).bound
    speed = measured(files, overrides, workdir / "trial", machine)
    evaluations = 1
    if bound.get("eval_every"):
        evaluations = -(-bound["steps"] // bound["eval_every"])
    left = 3600 * hours - (time.monotonic() - began)
    steps, evaluations = steps_within(left, speed, evaluations)
    macros = scaled(bindings(files, overrides), overrides, steps / bound["steps"])
    macros["TRAIN_STEPS"] = steps
    # One that was given stays.
    if "EVAL_EVERY" in macros:
        macros["EVAL_EVERY"] = -(-steps // evaluations)
    print(
        f"{described(speed)}; {hours:g} hours, of which {evaluations} evaluations, are"
        f" {', '.join(written(macros))} (the recipe has {bound['steps']:,} steps)",
        flush=True,
    )
    return {"hours": hours, "macros": macros, "speed": speed, "evaluations": evaluations}
