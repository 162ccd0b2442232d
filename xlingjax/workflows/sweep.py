"""`xlingjax finetune --task`: one task, one strategy, several seeds and settings from one
checkpoint, and their table.

A cell is one training: its recipe, its run, what the checkpoint that dev chose predicts for the
test sets, its scores. A finished cell is not run again, so a sweep that was stopped goes on with
the same command, and sweeps of several
tasks and strategies may share a folder.
"""

import dataclasses
import hashlib
import itertools
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xlingjax.config.recipe import bindings, find_gin, read_recipe
from xlingjax.data.labelled.records import is_lost
from xlingjax.data.labelled.task import Task, edited, find, hashes, languages_present, read
from xlingjax.data.sources import split_list
from xlingjax.errors import UserError
from xlingjax.evaluation.submissions import write_predictions
from xlingjax.evaluation.task import (
    chosen_languages,
    has_gold,
    means,
    pivot_of,
    predict,
    require_tested,
    scored,
    translations,
)
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.model.params import flattened
from xlingjax.model.partition import mesh_of_all
from xlingjax.preprocessors.task import Reading, labelled_path, require_parallel, write_labelled
from xlingjax.runtime.files import write_json
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.training.checkpoint import find_checkpoint
from xlingjax.training.initialisation import require_labels
from xlingjax.workflows.baselines import BASELINES
from xlingjax.workflows.cell import (
    FILES,
    LABELLED,
    MULTI_TASK,
    READ,
    RECIPE,
    START,
    TEACHER,
    Cell,
    Request,
    counted,
    files_read,
    lost_rows,
    macros_given,
    reading_of,
    recipe_of,
    splits_of,
    training_of,
    values_of,
)
from xlingjax.workflows.launch import launch
from xlingjax.workflows.scorecard import SCORES
from xlingjax.workflows.strategies import TAUGHT, is_tested, variants


def require_folder(output: str) -> None:
    """Raise UserError where `output` is a file."""
    if Path(output).exists() and not Path(output).is_dir():
        raise UserError(f"--to {output}: it is a file; give a folder")


@dataclasses.dataclass(frozen=True)
class _Plan:
    strategy: Path
    over: list[dict[str, str]]
    taught: bool
    """A teacher labels the translations first."""
    random: bool
    """It starts from random weights."""


def check(request: Request, say: Callable[[str], None] = print) -> None:
    """Raise UserError for all that can be known before any training of the sweep: settings, files,
    their faults."""
    require_folder(request.output)
    if request.strategy in BASELINES:
        return
    plan = _planned(request, say)
    if plan.taught:  # what it trains on is not there yet
        return check(dataclasses.replace(request, strategy=TEACHER), say)
    sound: set[tuple[Task, str, str]] = set()
    for variant, settings in itertools.product(plan.over, _grid(request)):
        cell = Cell.of(request.output, request.task, plan.strategy.stem, variant, settings, 0)
        with tempfile.TemporaryDirectory() as folder:
            recipe = Path(folder) / RECIPE
            recipe.write_text(recipe_of(request, cell, plan.strategy, {}), encoding="utf-8")
            bound = values_of(bindings([str(recipe)], ()))
            read_recipe([str(recipe)], ())
        for task in request.tasks:
            parts = [
                (task, split, language) for split, language in files_read(task, request.data, bound)
            ]
            for part in parts:
                if part not in sound and part[1] in ("dev", "test", "translate_test"):
                    if find(task, request.data, *part[1:]):
                        read(task, request.data, *part[1:])
                    sound.add(part)
            if bound["CLASSIFIER"] == "plug_in":
                _require_beside(request, task, bound)


def _planned(request: Request, say: Callable[[str], None]) -> _Plan:
    if (request.strategy == MULTI_TASK) != bool(request.beside):
        raise UserError(
            f"--strategy {request.strategy}: several tasks are for {MULTI_TASK}, which needs two or"
            " more"
        )
    strategy = find_gin(f"strategies/{request.strategy}.gin") or find_gin(request.strategy)
    if strategy is None:
        known = sorted(
            path.stem for path in find_gin("strategies/transfer.gin").parent.glob("*.gin")
        )
        raise UserError(
            f"--strategy {request.strategy}: there are {', '.join([*known, *BASELINES])}, or name a"
            " gin file"
        )
    text = strategy.read_text(encoding="utf-8")
    required = {*re.findall(r"^([A-Z_]+)\s*=\s*%gin\.REQUIRED", text, re.MULTILINE)}
    if LABELLED in required and request.task.kind not in TAUGHT:
        raise UserError(
            f"--strategy {request.strategy}: a teacher labels classes, ranks and tags, and"
            f" {request.task.full_name} is of {request.task.kind}; multi_language trains on the"
            " translations' own answers"
        )
    given = macros_given(request)
    over = variants(
        request.strategy, required, request.tasks, request.data, request.languages, given
    )
    if "TARGET" in required and request.allow_missing and not request.languages:
        lost = [
            one["TARGET"]
            for one in over
            if not is_tested(request.task, request.data, one["TARGET"])
        ]
        if lost:
            say(
                f"{request.called}, {strategy.stem}: passed over, without a dev or test set:"
                f" {', '.join(lost)}"
            )
        over = [one for one in over if one["TARGET"] not in lost]
        if not over:
            raise UserError(
                f"{request.task.full_name}: {strategy.stem} has no language to be tested in"
            )
    random = "train.init_from = None" in text
    for task in request.tasks if not random else ():
        require_labels(
            request.source, request.source, task.labels, task.name if request.beside else None
        )
    return _Plan(strategy, over, LABELLED in required, random)


def _require_beside(request: Request, task: Task, bound: Mapping[str, Any]) -> None:
    """Raise UserError where what a plugged-in model reads beside the examples does not correspond
    to them."""
    for split, names in (("DEV_SPLIT", "DEV_LANGUAGES"), ("TEST_SPLIT", "TEST_LANGUAGES")):
        for language in chosen_languages(
            task, request.data, bound[split], split_list(bound[names])
        ):
            pivot = pivot_of(task, request.data, bound[split], language)
            require_parallel(
                task,
                read(task, request.data, bound[split], language),
                read(task, request.data, *pivot),
                language,
                str(find(task, request.data, *pivot).paths[0]),
            )


def run(request: Request, machine: RuntimeConfig, say: Callable[[str], None] = print) -> int:
    """Run the cells that are missing. The exit status: 0, or that of a training that was asked to
    stop. Raises UserError; `check` raises most of them before any training."""
    require_folder(request.output)
    if request.strategy in BASELINES:
        _baseline(request, say)
        return 0
    plan = _planned(request, say=lambda line: None)
    say(
        f"{request.called}, {plan.strategy.stem}:"
        f" {len(plan.over) * request.seeds * len(_grid(request))} cells"
    )
    start = "random" if plan.random else parameters_hash(open_run(request.source).params)
    if plan.taught and (
        status := run(dataclasses.replace(request, strategy=TEACHER), machine, say)
    ):
        return status
    for variant, settings, seed in itertools.product(
        plan.over, _grid(request), range(request.seeds)
    ):
        cell = Cell.of(request.output, request.task, plan.strategy.stem, variant, settings, seed)
        more = {}
        if plan.taught:
            taught = Cell.of(request.output, request.task, TEACHER, {}, settings, seed)
            more[LABELLED] = repr(str(_label(request, taught, cell)))
        if status := _run_cell(request, cell, plan.strategy, more, start, machine, say):
            return status
    return 0


def _grid(request: Request) -> list[dict[str, str]]:
    return [
        dict(zip(request.grid, values, strict=True))
        for values in itertools.product(*request.grid.values())
    ]


# ---- a cell --------------------------------------------------------------------------------------


def _run_cell(
    request: Request, cell: Cell, strategy: Path, more, start: str, machine: RuntimeConfig, say
) -> int:
    text = recipe_of(request, cell, strategy, more)
    recipe, trained = cell.folder / RECIPE, _trained(cell)
    folders = {
        task: cell.folder / task.name if request.beside else cell.folder for task in request.tasks
    }
    if trained and recipe.is_file() and (stands := recipe.read_text(encoding="utf-8")) != text:
        before = values_of(bindings([str(recipe)], ()))
        _require_unedited(
            request, cell, {task: files_read(task, request.data, before) for task in request.tasks}
        )
        raise UserError(
            f"{cell.folder} was begun with other settings ({_difference(stands, text)}): give them"
            " again, choose another --to, or delete that folder"
        )
    if not (trained and recipe.is_file()):  # settings and files that were refused bind nothing
        cell.folder.mkdir(parents=True, exist_ok=True)
        recipe.write_text(text, encoding="utf-8")
    bound = values_of(bindings([str(recipe)], ()))
    parts = {task: files_read(task, request.data, bound) for task in request.tasks}
    files = {
        name: digest
        for task in parts
        for name, digest in hashes(task, request.data, parts[task]).items()
    }
    known = trained and (cell.folder / READ).is_file()
    begun = json.loads((cell.folder / READ).read_text(encoding="utf-8")) if known else files
    began_from = begun.get(START, start)
    begun = {name: digest for name, digest in begun.items() if name != START}
    finished = all((folder / SCORES).is_file() for folder in folders.values())
    if finished:
        found = json.loads((folders[request.task] / SCORES).read_text(encoding="utf-8"))
        began_from, begun = found["start"]["sha256"], found.get("files", begun)
    if began_from != start:
        raise UserError(
            f"{cell.folder} started from other weights than {request.source} has now: choose"
            " another --to, or delete that folder"
        )
    _refuse_edited(request, cell, begun, files)
    if finished:
        say(f"{cell.folder}: finished before")
        return 0
    for task, split, language in ((task, *part) for task, own in parts.items() for part in own):
        if split in ("dev", "test", "translate_test") and find(task, request.data, split, language):
            records = read(
                task, request.data, split, language
            )  # whose faults are told before the training
            if lost := sum(map(is_lost, records)):
                place = find(task, request.data, split, language).paths[0]
                say(
                    f"{place}, {language}: {lost:,} of {len(records):,} rows lack a text; they are"
                    " predicted without it"
                )
    for task in request.tasks:
        for line in lost_rows(task, counted(request, task, bound)[2]):
            say(line)
    write_json(cell.folder / READ, {START: start, **files})
    built = read_recipe([str(recipe)], ())
    if status := launch(built, cell.folder / "run", "finetune", machine):
        return status
    for task, folder in folders.items():
        folder.mkdir(exist_ok=True)
        best = _tested(request, cell, task, folder, bound, start) | {"files": files}
        write_json(folder / SCORES, best)
        told = best["test"]["means"] or best["dev"]["means"]
        say(f"{folder}: " + ", ".join(f"{name} {value:.2f}" for name, value in told.items()))
    return 0


def _require_unedited(
    request: Request, cell: Cell, parts: Mapping[Task, list[tuple[str, str]]]
) -> None:
    """Raise UserError where a file that a cell was begun with is another now."""
    if (cell.folder / READ).is_file():
        begun = json.loads((cell.folder / READ).read_text(encoding="utf-8"))
        files = {
            name: digest
            for task, own in parts.items()
            for name, digest in hashes(task, request.data, own).items()
        }
        _refuse_edited(
            request, cell, {name: digest for name, digest in begun.items() if name != START}, files
        )


def _refuse_edited(
    request: Request, cell: Cell, begun: Mapping[str, str], files: Mapping[str, str]
) -> None:
    if how := edited(begun, files):
        raise UserError(
            f"{cell.folder} was begun with other files: {how} below {request.data}: put it back,"
            " choose another --to, or delete that folder"
        )


def _trained(cell: Cell) -> bool:
    """Whether its training has begun, or ended and its run was deleted."""
    found = (cell.folder.glob(name) for name in ("run/run.json", SCORES, f"*/{SCORES}"))
    return any(next(paths, None) for paths in found)


def _tested(
    request: Request, cell: Cell, task: Task, to: Path, bound: Mapping[str, Any], start: str
) -> dict[str, Any]:  # fmt: skip
    """scores.json of a task of a cell that was trained. to: the folder of its predictions."""
    run_folder = cell.folder / "run"
    best = f"{run_folder}@{bound['BEST_METRIC']}" if bound["KEEP_BEST"] else str(run_folder)
    trained, step = open_run(best, mesh=mesh_of_all()), int(find_checkpoint(best).name)
    trained_on = {language for _, language in training_of(bound).parts(task, request.data)}
    reading = reading_of(bound)
    split, by_language, counts = bound["TEST_SPLIT"], {}, {}
    translated = split == "translate_test"
    languages = chosen_languages(task, request.data, split, split_list(bound["TEST_LANGUAGES"]))
    if translated and task.trained_on in languages_present(task, request.data, "test"):
        languages = sorted([*languages, task.trained_on])  # which needs no translation
    for language in languages:
        of = "test" if translated and language == task.trained_on else split
        records = read(task, request.data, of, language)
        pivot = translations(trained.model, task, request.data, of, language)
        spoken = task.trained_on if translated else language  # in which the texts are
        predicted = _predicted(trained, task, records, spoken, reading, pivot)
        folder = to / (
            "predictions" if split in ("test", "translate_test") else "predictions_of_dev"
        )
        write_predictions(
            task, folder, language, predicted, "test" if translated else split.partition("[")[0]
        )
        counts[language] = len(records)
        if has_gold(task, records):
            by_language[language] = scored(task, records, predicted, language)
    if split not in ("test", "translate_test"):  # what is to be submitted
        for language in languages_present(task, request.data, "test"):
            if trained.model.config.has_languages and language not in trained.languages:
                continue
            records = read(task, request.data, "test", language)
            pivot = translations(trained.model, task, request.data, "test", language)
            predicted = _predicted(trained, task, records, language, reading, pivot)
            write_predictions(task, to / "predictions", language, predicted)
    dev = next((values for at, values in _evaluations(run_folder) if at == step), None)
    if dev is None:
        raise UserError(
            f"{run_folder}: checkpoint {step} was not measured on dev; delete {cell.folder}, start"
            " again"
        )
    chosen = {
        "split": bound["DEV_SPLIT"],
        "by": bound["SELECT"],
        "step": step,
        "steps": bound["TRAIN_STEPS"],
    }
    if bound["DEV_LIMIT"]:
        chosen["limit"] = bound["DEV_LIMIT"]
    if request.beside:
        chosen |= {"value": dev[bound["SELECT"]]} if bound["SELECT"] in dev else {}
        dev = dev["by_task"][task.name]
    sessions = json.loads((run_folder / "run.json").read_text(encoding="utf-8"))["sessions"]
    return {
        "task": task.full_name,
        "strategy": cell.strategy,
        "variant": dict(cell.variant),
        "settings": dict(cell.settings),
        "seed": cell.seed,
        "start": {"run": request.source, "sha256": start},
        "select": chosen,
        "trained": {"split": bound["TRAIN_SPLIT"], "examples": counted(request, task, bound)[0]},
        "dev": {
            "means": {k: v for k, v in dev.items() if isinstance(v, float)},
            "by_language": dev["by_language"],
        },
        "test": {
            "split": split,
            "means": means(by_language, task, trained_on) if by_language else {},
            "by_language": by_language,
            "examples": counts,
        },
        "machine": sessions[-1]["machine"],
    }


def _predicted(
    trained: TrainedRun, task: Task, records, language: str, reading: Reading, pivot=None
) -> Any:
    return predict(
        trained.model,
        trained.params,
        task,
        records,
        trained.vocabulary,
        trained.languages,
        language,
        reading,
        mesh=trained.mesh,
        pivot=pivot,
    )


def _evaluations(run_folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(step, values of the dev sets), the newest first."""
    for line in reversed(
        (run_folder / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()
    ):
        entry = json.loads(line)
        if entry["name"] == "dev":
            yield entry["step"], entry["values"]


def _label(request: Request, teacher: Cell, cell: Cell) -> Path:
    """The folder of the translated training sets as the teacher's model labels them (hard
    labels)."""
    folder, task = cell.folder / "labelled", request.task
    if folder.is_dir() and _trained(cell):
        return folder
    record = json.loads((teacher.folder / SCORES).read_text(encoding="utf-8"))
    trained = open_run(f"{teacher.folder / 'run'}@{record['select']['step']}", mesh=mesh_of_all())
    reading = reading_of(values_of(bindings([str(teacher.folder / RECIPE)], ())))
    languages = languages_present(task, request.data, "translate_train")
    if not languages:
        raise UserError(
            f"{task.full_name}: no translated training sets below {request.data} for the teacher to"
            " label"
        )
    partial = folder.with_name("labelled.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for language in languages:
        records = read(task, request.data, "translate_train", language)
        predicted = _predicted(trained, task, records, language, reading)
        name = "tags" if task.kind == "tagging" else "label"
        made = [
            dataclasses.replace(r, **{name: tuple(p) if name == "tags" else p})
            for r, p in zip(records, predicted, strict=True)
        ]
        write_labelled(labelled_path(partial, task, language), made)
    shutil.rmtree(folder, ignore_errors=True)  # of a cell that was not trained
    partial.rename(folder)
    return folder


def _baseline(request: Request, say: Callable[[str], None]) -> None:
    """The cell of a baseline that no model is needed for, on the test sets that `transfer` is
    tested on."""
    task = request.task
    cell = Cell.of(request.output, task, request.strategy, {}, {}, 0)
    given = dict(override.split("=", 1) for override in request.overrides)
    stand_ins = {
        "TASK": repr(task.full_name),
        "DATA": "''",
        "INIT_FROM": "''",
        "TRAIN_STEPS": "1",
        **given,
    }
    files = [*FILES, *request.files, f"strategies/{TEACHER}.gin"]
    bound = values_of(bindings(files, [f"{name}={value}" for name, value in stand_ins.items()]))
    bound |= splits_of(request, macros_given(request), bound)
    tested = split_list(bound["TEST_LANGUAGES"])
    require_tested(task, request.data, bound["TEST_SPLIT"], tested, request.allow_missing)
    fitted = BASELINES[request.strategy](
        task, read(task, request.data, bound["TRAIN_SPLIT"], task.trained_on)
    )
    split, by_language, counts = bound["TEST_SPLIT"], {}, {}
    for language in chosen_languages(task, request.data, split, tested):
        records = read(task, request.data, split, language)
        if has_gold(task, records):
            by_language[language], counts[language] = (
                scored(task, records, fitted(records), language),
                len(records),
            )
    if not by_language:
        raise UserError(
            f"{task.full_name}: the {split} sets have no answers to score {request.strategy}"
            " against"
        )
    found = means(by_language, task, (task.trained_on,))
    cell.folder.mkdir(parents=True, exist_ok=True)
    none = {"split": "", "by": "none", "step": 0, "steps": 0}
    write_json(
        cell.folder / SCORES,
        {
            "task": task.full_name,
            "strategy": request.strategy,
            "variant": {},
            "settings": {},
            "seed": 0,
            "start": {"run": "", "sha256": ""},
            "select": none,
            "dev": {"means": {}, "by_language": {}},
            "test": {
                "split": split,
                "means": found,
                "by_language": by_language,
                "examples": counts,
            },
            "machine": "",
        },
    )
    say(
        f"{task.full_name}, {request.strategy}: "
        + ", ".join(f"{name} {value:.2f}" for name, value in found.items())
    )


# ---- small things --------------------------------------------------------------------------------


def parameters_hash(params: Any) -> str:
    """sha256 (hex) of all parameters, in the order of their names."""
    digest = hashlib.sha256()
    for name, value in sorted(flattened(params).items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(jax.device_get(value)).tobytes())
    return digest.hexdigest()


def _difference(before: str, now: str) -> str:
    ours, theirs = (
        [line for line in text.splitlines() if line[:1] != "#"] for text in (now, before)
    )
    if ours == theirs:
        return "a gin file that it includes is another"
    lost = next((line for line in theirs if line not in ours), "nothing")
    new = next((line for line in ours if line not in theirs), "nothing")
    return f"there: {lost}; now: {new}"
