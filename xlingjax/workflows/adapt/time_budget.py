"""`xlingjax pretrain --hours`: as many steps of a recipe as a budget of time allows, measured in a
trial; of `own_text` the batch too, as the study found it (docs/results/defaults.md)."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.config.recipe import bindings, read_recipe
from xlingjax.data.text.sources import find_pairs
from xlingjax.errors import UserError
from xlingjax.runtime.files import write_json
from xlingjax.runtime.machine import RuntimeConfig, one_run_in, start
from xlingjax.runtime.records import read_record
from xlingjax.workflows.adapt.trial import described, measured, scaled, steps_within, written

RECORD = "hours.json"
"""In the workdir: the hours, what the trial measured, the macros that came of it, and the
settings of the study."""
STUDIED = {
    "MODEL": "'mini'",
    "BATCH": "8",
    "LENGTH": "64",
    "INIT_FROM": "None",
    "HARDEST_WEIGHT": "4.5",
    "RETRIEVAL_BATCH": "128",
    "hardest_negative.weight": "%HARDEST_WEIGHT",
    "hardest_negative.batch": "%RETRIEVAL_BATCH",
}
"""The recipe of the study: of another, steps alone are chosen."""
FEW_PAIRS = 4_000
"""Of some two languages: with fewer, more steps on fewer negatives find more."""
FEWER_NEGATIVES = ("RETRIEVAL_BATCH=32", "HARDEST_WEIGHT=2.0")


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
    for setting in record["settings"]:
        name = setting.partition("=")[0]
        if name in given and setting not in overrides:
            raise UserError(
                f"--gin.{name}: {workdir} was begun with --hours, which chose {setting}: leave it"
                " out, or choose another --workdir"
            )
    return [*record["settings"], *written(record["macros"])]


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
    record = read_record(
        path,
        {"hours": (int, float), "macros": {str: int}, "settings": [str]},
        f"delete it, leave --hours out, and give the steps of {workdir / 'config.gin'} by"
        " --gin.TRAIN_STEPS",
    )
    if record["hours"] != hours:
        raise UserError(
            f"{workdir} was begun with --hours {record['hours']:g}: give the same to go on, or"
            " choose another --workdir"
        )
    return record


def _chosen(
    files: Sequence[str],
    overrides: Sequence[str],
    workdir: Path,
    hours: float,
    machine: RuntimeConfig,
) -> dict[str, Any]:
    """The record, of the recipe with the settings that suit its text."""
    settings = suited(files, overrides)
    overrides = [*overrides, *settings]
    lines = bindings(files, overrides)
    bound = read_recipe(files, overrides).bound
    speed = measured(files, overrides, workdir / "trial", machine)
    evaluations = 1
    if bound.get("eval_every"):
        evaluations = -(-bound["steps"] // bound["eval_every"])
    steps = steps_within(hours, speed, evaluations)
    macros = scaled(lines, overrides, steps / bound["steps"])
    macros["TRAIN_STEPS"] = steps
    print(
        f"{described(speed)}; {hours:g} hours, of which {evaluations} evaluations, are"
        f" {', '.join([*settings, *written(macros)])} (the recipe has {bound['steps']:,} steps)",
        flush=True,
    )
    return {
        "hours": hours,
        "macros": macros,
        "speed": speed,
        "evaluations": evaluations,
        "settings": list(settings),
    }


def suited(files: Sequence[str], overrides: Sequence[str]) -> Sequence[str]:
    """The overrides that the study chose for such a text; none for another recipe than that of the
    study, or where one is given."""
    given = {override.partition("=")[0] for override in overrides}
    lines = bindings(files, overrides)
    if given & STUDIED.keys() or any(lines.get(name) != STUDIED[name] for name in STUDIED):
        return ()
    # Of gin's references this has the values, and what is missing is said.
    parallel = read_recipe(files, overrides).corpus.parallel
    if not parallel or fewest_pairs(parallel) >= FEW_PAIRS:
        return ()
    print(
        f"fewer than {FEW_PAIRS:,} pairs: {', '.join(FEWER_NEGATIVES)}, of which more steps fit"
        " (docs/results/defaults.md)",
        flush=True,
    )
    return FEWER_NEGATIVES


def fewest_pairs(patterns: str | Sequence[str]) -> int:
    """Lines of the two languages that have fewest of them, counted to `FEW_PAIRS` in each file; 0
    where there are no translations. Raises UserError as `find_pairs`."""
    counts: dict[tuple[str, ...], int] = {}
    for pair in find_pairs(patterns):
        if pair.translates:
            languages = tuple(sorted(pair.languages))
            lines = sum(1 for _ in itertools.islice(pair.lines(), FEW_PAIRS))
            counts[languages] = counts.get(languages, 0) + lines
    return min(counts.values(), default=0)
