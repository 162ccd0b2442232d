"""`xlingjax finetune --task`: one task, one strategy, several seeds and settings from one checkpoint, and their table.

A cell is one training: its recipe, its run, what the checkpoint that dev chose predicts for the test sets, its scores.
A finished cell is not run again, so a sweep that was stopped goes on with the same command, and sweeps of several
tasks and strategies may share a folder.
"""

import ast
import dataclasses
import hashlib
import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xlingjax.checkpoint import find_checkpoint
from xlingjax.data.benchmark import Task, edited, find, hashes, languages_present, part_of, read
from xlingjax.data.prepared import located
from xlingjax.data.vocabulary import Vocabulary
from xlingjax.errors import UserError
from xlingjax.evaluation.baselines import BASELINES
from xlingjax.evaluation.benchmark import (
    chosen_languages,
    has_gold,
    means,
    predict,
    require_tested,
    scored,
    translations,
)
from xlingjax.evaluation.predictions import write_predictions
from xlingjax.evaluation.scorecard import SCORES
from xlingjax.identity import run_and_checkpoint, write_json
from xlingjax.optim import flattened
from xlingjax.preprocessors.benchmark import Reading, Training, count_rows, labelled_path, write_labelled
from xlingjax.probes import words
from xlingjax.trained import TrainedRun, open_run
from xlingjax.variants import OVER, trained_languages, variants

FILES = ("optim/adamw_linear.gin", "mesh/data.gin", "runs/task.gin")
LABELLED, TEACHER = "LABELLED", "transfer"
NO_DEV = ("train[:90%]", "train[90%:]")
"""Training and dev where there is no dev set."""
UNTOLD = ("dev[:50%]", "dev[50%:]")
"""What takes the place of the dev and test sets where the test set is not there or has no answers."""
RECIPE, READ = "cell.gin", "files.json"
"""Of a cell: what was decided, and the hashes of the benchmark's files when it was begun."""
MULTI_TASK = "multi_task"
"""The strategy that trains several tasks at once."""


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command line says."""

    task: Task
    source: str
    """The pretrained run."""
    data: str
    output: str
    strategy: str = "transfer"
    seeds: int = 1
    grid: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    """{macro: values}; the best is chosen on dev."""
    languages: Sequence[str] = ()
    """Pivots, targets, or sets to train on ("en+de"); default: those that have training examples."""
    files: Sequence[str] = ()
    overrides: Sequence[str] = ()
    """NAME=VALUE, as gin reads values."""
    allow_missing: bool = False
    """Languages of the task that have neither a test nor a dev set are passed over."""
    beside: Sequence[Task] = ()
    """Of `MULTI_TASK`: the tasks that are trained together with `task`."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        return (self.task, *self.beside)

    @property
    def called(self) -> str:
        return " ".join(task.full_name for task in self.tasks)


@dataclasses.dataclass(frozen=True)
class Tools:
    """parse: gin files and overrides are read, or refused: {name: value} of all that they bind; recipe: they become one
    with everything bound; train: the exit status; find: where a gin file lies, None: nowhere."""

    parse: Callable[[Sequence[str], Sequence[str]], dict[str, str]]
    recipe: Callable[[Sequence[str], Sequence[str]], Any]
    train: Callable[[Path, Any], int]
    find: Callable[[str], Path | None]


@dataclasses.dataclass(frozen=True)
class Cell:
    task: Task
    strategy: str
    variant: Mapping[str, str]
    """{"PIVOT": "de"}; empty where the strategy has one. "LANGUAGES": those trained on, "en+de"; "TASKS": those
    that are trained together."""
    settings: Mapping[str, str]
    """Of the grid."""
    seed: int
    folder: Path

    @classmethod
    def of(cls, output: str, task: Task, strategy: str, variant, settings, seed: int) -> "Cell":
        parts = [task.suite, *([] if "TASKS" in variant else [task.name]), strategy, *variant.values()]
        parts += [f"{name}={value}".replace("/", "_") for name, value in settings.items()]
        return cls(
            task, strategy, variant, settings, seed, Path(output).absolute().joinpath("cells", *parts, f"seed-{seed}")
        )


def require_folder(output: str) -> None:
    """Raise UserError where `output` is a file."""
    if Path(output).exists() and not Path(output).is_dir():
        raise UserError(f"--to {output}: it is a file; give a folder")


def run(asked: Asked, tools: Tools, say: Callable[[str], None] = print) -> int:
    """Run the cells that are missing. The exit status: 0, or that of a training that was asked to stop. Raises
    UserError."""
    require_folder(asked.output)
    if (asked.strategy == MULTI_TASK) != bool(asked.beside):
        raise UserError(f"--strategy {asked.strategy}: several tasks are for {MULTI_TASK}, which needs two or more")
    if asked.strategy in BASELINES:
        _baseline(asked, tools, say)
        return 0
    strategy = tools.find(f"strategies/{asked.strategy}.gin") or tools.find(asked.strategy)
    if strategy is None:
        known = sorted(path.stem for path in tools.find("strategies/transfer.gin").parent.glob("*.gin"))
        raise UserError(f"--strategy {asked.strategy}: there are {', '.join([*known, *BASELINES])}, or name a gin file")
    text = strategy.read_text(encoding="utf-8")
    required = {*re.findall(r"^([A-Z_]+)\s*=\s*%gin\.REQUIRED", text, re.MULTILINE)}
    given = dict(override.split("=", 1) for override in asked.overrides)
    over = variants(asked.strategy, required, asked.tasks, asked.data, asked.languages, given)
    say(f"{asked.called}, {strategy.stem}: {len(over) * asked.seeds * len(_grid(asked))} cells")
    start = parameters_hash(open_run(asked.source).params) if "train.init_from = None" not in text else "random"
    for variant, settings, seed in itertools.product(over, _grid(asked), range(asked.seeds)):
        cell = Cell.of(asked.output, asked.task, strategy.stem, variant, settings, seed)
        more = {}
        if LABELLED in required:
            teacher = dataclasses.replace(asked, strategy=TEACHER, seeds=seed + 1)
            if status := run(teacher, tools, say):
                return status
            taught = Cell.of(asked.output, asked.task, TEACHER, {}, settings, seed)
            more[LABELLED] = repr(str(_label(asked, taught, cell, tools)))
        if status := _run_cell(asked, cell, strategy, more, start, tools, say):
            return status
    return 0


def _grid(asked: Asked) -> list[dict[str, str]]:
    return [dict(zip(asked.grid, values, strict=True)) for values in itertools.product(*asked.grid.values())]


# ---- a cell ----------------------------------------------------------------------------------------------------------


def _run_cell(asked: Asked, cell: Cell, strategy: Path, more, start: str, tools: Tools, say) -> int:
    text = _recipe(asked, cell, strategy, more, tools)
    recipe = cell.folder / RECIPE
    folders = {task: cell.folder / task.name if asked.beside else cell.folder for task in asked.tasks}
    if recipe.is_file() and (stands := recipe.read_text(encoding="utf-8")) != text:
        raise UserError(
            f"{cell.folder} was begun with other settings ({_difference(stands, text)}): give them again, choose "
            "another --to, or delete that folder"
        )
    if not recipe.is_file():
        cell.folder.mkdir(parents=True, exist_ok=True)
        recipe.write_text(text, encoding="utf-8")
    bound = values_of(tools.parse([str(recipe)], ()))
    parts = {task: _read(task, asked.data, bound) for task in asked.tasks}
    files = {name: digest for task in parts for name, digest in hashes(task, asked.data, parts[task]).items()}
    begun = json.loads((cell.folder / READ).read_text(encoding="utf-8")) if (cell.folder / READ).is_file() else files
    finished = all((folder / SCORES).is_file() for folder in folders.values())
    if finished:
        found = json.loads((folders[asked.task] / SCORES).read_text(encoding="utf-8"))
        if found["start"]["sha256"] != start:
            raise UserError(f"{cell.folder} started from other weights than {asked.source} has: choose another --to")
        begun = found.get("files", begun)
    if how := edited(begun, files):
        raise UserError(
            f"{cell.folder} was begun with other files: {how} below {asked.data}: put it back, choose another --to, or "
            "delete that folder"
        )
    if finished:
        say(f"{cell.folder}: finished before")
        return 0
    for task, split, language in ((task, *part) for task, own in parts.items() for part in own):
        if split in ("dev", "test", "translate_test") and find(task, asked.data, split, language):
            read(task, asked.data, split, language)  # whose faults are told before the training
    write_json(cell.folder / READ, files)
    built = tools.recipe([str(recipe)], ())
    if status := tools.train(cell.folder / "run", built):
        return status
    for task, folder in folders.items():
        folder.mkdir(exist_ok=True)
        best = _tested(asked, cell, task, folder, bound, start) | {"files": files}
        write_json(folder / SCORES, best)
        told = best["test"]["means"] or best["dev"]["means"]
        say(f"{folder}: " + ", ".join(f"{name} {value:.2f}" for name, value in told.items()))
    return 0


def _recipe(asked: Asked, cell: Cell, strategy: Path, more: Mapping[str, str], tools: Tools) -> str:
    """The gin file of the cell: all that was decided, to be read and run again."""
    files = [*FILES, *(str(Path(name).absolute()) if Path(name).is_file() else name for name in asked.files)]
    inside = tools.find(f"strategies/{strategy.name}") == strategy
    files.append(f"strategies/{strategy.name}" if inside else str(strategy.absolute()))
    given = dict(override.split("=", 1) for override in asked.overrides)
    values = {
        "TASK": repr(asked.called),
        "DATA": repr(located(asked.data)),
        "INIT_FROM": repr(_absolute_run(asked.source)),
        "SEED": str(cell.seed),
        **given,
        **{name: repr(value) for name, value in cell.variant.items() if name in OVER},
        **{name: _literal(value) for name, value in cell.settings.items()},
        **more,
    }
    values |= trained_languages(cell.variant, asked.task, asked.data)
    placed = {"TRAIN_STEPS": "1", **values}
    bound = values_of(tools.parse(files, [f"{name}={value}" for name, value in placed.items()]))
    splits = _splits(asked, given, bound)
    values |= {name: repr(value) for name, value in splits.items()}
    bound |= splits
    counts = {task.name: _counted(asked, task, bound) for task in asked.tasks}
    examples = sum(examples for examples, _ in counts.values())
    epoch = sum(rows for _, rows in counts.values()) / bound["BATCH"]
    steps = bound["TRAIN_STEPS"] if "TRAIN_STEPS" in given else max(1, round(bound["EPOCHS"] * epoch))
    every = min(steps, max(1, round(epoch / bound["EVALUATIONS"])))
    derived = {"TRAIN_STEPS": steps, "EVAL_EVERY": every, "CHECKPOINT_EVERY": every}
    if asked.beside:  # each example once in an epoch, as if the sets were one
        derived["TASK_WEIGHTS"] = {name: max(1, round(rows / bound["BATCH"])) for name, (_, rows) in counts.items()}
    values = {**{name: str(value) for name, value in derived.items()}, **values}
    select, trained_on, devs = bound["SELECT"], asked.task.trained_on, []
    tested = words(bound["TEST_LANGUAGES"])
    for task in asked.tasks:  # before any training
        devs.append(chosen_languages(task, asked.data, bound["DEV_SPLIT"], words(bound["DEV_LANGUAGES"])))
        require_tested(task, asked.data, bound["TEST_SPLIT"], tested, asked.allow_missing)
    if select == "last":
        values |= {"KEEP_BEST": "0", "BEST_METRIC": "''"}
    elif select not in ("mean", trained_on):
        raise UserError(f"SELECT={select}: choose mean, {trained_on} or last")
    elif select == "mean" or all(select in dev for dev in devs):
        values["BEST_METRIC"] = repr(f"dev/{select}")
    else:
        dev = next(dev for dev in devs if select not in dev)
        raise UserError(f"SELECT={select}: dev is of {', '.join(dev)} alone; give --gin.SELECT=mean")
    everything = json.dumps(sorted(tools.parse(files, [f"{k}={v}" for k, v in values.items()]).items()))
    digest = hashlib.sha256(everything.encode()).hexdigest()[:16]
    head = f"# {asked.called}, {cell.strategy}, seed {cell.seed}: {examples:,} training examples; settings {digest}."
    lines = [
        head,
        *(f'include "{name}"' for name in files),
        "",
        *(f"{name} = {value}" for name, value in values.items()),
    ]
    return "\n".join(lines) + "\n"


def _counted(asked: Asked, task: Task, bound: Mapping[str, Any]) -> tuple[int, int]:
    """(examples, rows) that a task is trained on in an epoch."""
    vocabulary, training = Vocabulary.load(run_and_checkpoint(asked.source)[0]), _training(bound)
    examples = rows = 0
    for origin, language in training.parts(task, asked.data):
        if origin == "gold" and bound["CLASSIFIER"] == "plug_in":  # these stand beside the translated
            continue
        records = training.records(task, asked.data, origin, language)
        examples += len(records)
        rows += count_rows(task, records, vocabulary, reading_of(bound), language)
    return examples, rows


def _splits(asked: Asked, given: Mapping[str, str], bound: Mapping[str, Any]) -> dict[str, str]:
    """The macros that say what is trained on, chosen by and tested on, where files or answers are missing (`UNTOLD`,
    `NO_DEV`) and the command line names no split."""
    if {"DEV_SPLIT", "TEST_SPLIT"} & {*given}:
        return {}
    if without := [task for task in asked.tasks if not languages_present(task, asked.data, "dev")]:
        if asked.beside:
            raise UserError(f"{without[0].full_name}: no dev set below {asked.data}, which {MULTI_TASK} needs of each")
        return {"TRAIN_SPLIT": NO_DEV[0], "DEV_SPLIT": NO_DEV[1], "DEV_LANGUAGES": asked.task.trained_on}
    if bound["TEST_SPLIT"] == "test" and not all(_has_answers(task, asked.data, "test") for task in asked.tasks):
        return {"DEV_SPLIT": UNTOLD[0], "TEST_SPLIT": UNTOLD[1]}
    return {}


def _training(bound: Mapping[str, Any]) -> Training:
    """As runs/task.gin binds it."""
    gold, translated = words(bound["TRAIN_LANGUAGES"]), words(bound["TRANSLATED"])
    return Training(gold, translated, bound["TRAIN_SPLIT"], bound["LABELLED"])


def _read(task: Task, data: str, bound: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(split, language) of all that a cell trains on, chooses by, tests on and predicts."""
    origins = {"gold": "train", "translated": "translate_train", "labelled": "translate_train"}
    parts = [(origins[origin], language) for origin, language in _training(bound).parts(task, data)]
    predicted = [part_of(bound[name])[0] for name in ("DEV_SPLIT", "TEST_SPLIT")]
    for split, names in zip(predicted, ("DEV_LANGUAGES", "TEST_LANGUAGES"), strict=True):
        parts += [(split, language) for language in chosen_languages(task, data, split, words(bound[names]))]
    if predicted[1] != "test":  # what is to be submitted
        parts += [("test", language) for language in languages_present(task, data, "test")]
    if bound["CLASSIFIER"] == "plug_in":  # what stands beside the examples
        parts += [("translate_test", language) for language in languages_present(task, data, "translate_test")]
        parts += [(split, task.trained_on) for split in ("train", *predicted)]
    return [*dict.fromkeys(parts)]


def _has_answers(task: Task, data: str, split: str) -> bool:
    present = languages_present(task, data, split)
    return any(has_gold(task, read(task, data, split, language)) for language in present)


def _tested(
    asked: Asked, cell: Cell, task: Task, to: Path, bound: Mapping[str, Any], start: str
) -> dict[str, Any]:  # fmt: skip
    """scores.json of a task of a cell that was trained. to: the folder of its predictions."""
    run_folder = cell.folder / "run"
    best = f"{run_folder}@{bound['BEST_METRIC']}" if bound["KEEP_BEST"] else str(run_folder)
    trained, step = open_run(best), int(find_checkpoint(best).name)
    trained_on = {language for _, language in _training(bound).parts(task, asked.data)}
    reading = reading_of(bound)
    split, by_language, counts = bound["TEST_SPLIT"], {}, {}
    translated = split == "translate_test"
    languages = chosen_languages(task, asked.data, split, words(bound["TEST_LANGUAGES"]))
    if translated and task.trained_on in languages_present(task, asked.data, "test"):
        languages = sorted([*languages, task.trained_on])  # which needs no translation
    for language in languages:
        of = "test" if translated and language == task.trained_on else split
        records = read(task, asked.data, of, language)
        pivot = translations(trained.model, task, asked.data, of, language)
        spoken = task.trained_on if translated else language  # in which the texts are
        predicted = _predicted(trained, task, records, spoken, reading, pivot)
        folder = to / ("predictions" if split in ("test", "translate_test") else "predictions_of_dev")
        write_predictions(task, folder, language, predicted, "test" if translated else split.partition("[")[0])
        counts[language] = len(records)
        if has_gold(task, records):
            by_language[language] = scored(task, records, predicted, language)
    if split not in ("test", "translate_test"):  # what is to be submitted
        for language in languages_present(task, asked.data, "test"):
            records = read(task, asked.data, "test", language)
            pivot = translations(trained.model, task, asked.data, "test", language)
            predicted = _predicted(trained, task, records, language, reading, pivot)
            write_predictions(task, to / "predictions", language, predicted)
    dev = next(values for at, values in _evaluations(run_folder) if at == step)
    chosen = {"split": bound["DEV_SPLIT"], "by": bound["SELECT"], "step": step, "steps": bound["TRAIN_STEPS"]}
    if asked.beside:
        chosen |= {"value": dev[bound["SELECT"]]} if bound["SELECT"] in dev else {}
        dev = dev["by_task"][task.name]
    sessions = json.loads((run_folder / "run.json").read_text(encoding="utf-8"))["sessions"]
    return {
        "task": task.full_name, "strategy": cell.strategy, "variant": dict(cell.variant),
        "settings": dict(cell.settings), "seed": cell.seed, "start": {"run": asked.source, "sha256": start},
        "select": chosen,
        "dev": {"means": {k: v for k, v in dev.items() if isinstance(v, float)}, "by_language": dev["by_language"]},
        "test": {"split": split, "means": means(by_language, task, trained_on) if by_language else {},
                 "by_language": by_language, "examples": counts},
        "machine": sessions[-1]["machine"],
    }  # fmt: skip


def reading_of(bound: Mapping[str, Any]) -> Reading:
    """As runs/task.gin binds it; of a run of another recipe what that has of it."""
    names = (
        "LENGTH", "RESET_POSITIONS", "STRIDE", "MAX_QUESTION", "LONGEST_ANSWER", "TAGGED_PIECES", "TEST_BEAMS",
        "NO_REPEAT_NGRAM",
    )  # fmt: skip
    fields = (field.name for field in dataclasses.fields(Reading))
    return Reading(**{field: bound[name] for field, name in zip(fields, names, strict=True) if name in bound})


def _predicted(trained: TrainedRun, task: Task, records, language: str, reading: Reading, pivot=None) -> Any:
    return predict(
        trained.model, trained.params, task, records, trained.vocabulary, trained.languages, language, reading,
        pivot=pivot,
    )  # fmt: skip


def _evaluations(run_folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(step, values of the dev sets), the newest first."""
    for line in reversed((run_folder / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()):
        entry = json.loads(line)
        if entry["name"] == "dev":
            yield entry["step"], entry["values"]


def _label(asked: Asked, teacher: Cell, cell: Cell, tools: Tools) -> Path:
    """The folder of the translated training sets as the teacher's model labels them (hard labels)."""
    folder, task = cell.folder / "labelled", asked.task
    if folder.is_dir():
        return folder
    record = json.loads((teacher.folder / SCORES).read_text(encoding="utf-8"))
    trained = open_run(f"{teacher.folder / 'run'}@{record['select']['step']}")
    reading = reading_of(values_of(tools.parse([str(teacher.folder / RECIPE)], ())))
    languages = languages_present(task, asked.data, "translate_train")
    if not languages:
        raise UserError(f"{task.full_name}: no translated training sets below {asked.data} for the teacher to label")
    partial = folder.with_name("labelled.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for language in languages:
        records = read(task, asked.data, "translate_train", language)
        predicted = _predicted(trained, task, records, language, reading)
        name = "tags" if task.kind == "tagging" else "label"
        made = [
            dataclasses.replace(r, **{name: tuple(p) if name == "tags" else p})
            for r, p in zip(records, predicted, strict=True)
        ]
        write_labelled(labelled_path(partial, task, language), made)
    partial.rename(folder)
    return folder


def _baseline(asked: Asked, tools: Tools, say: Callable[[str], None]) -> None:
    """The cell of a baseline that no model is needed for, on the test sets that `transfer` is tested on."""
    task = asked.task
    cell = Cell.of(asked.output, task, asked.strategy, {}, {}, 0)
    given = dict(override.split("=", 1) for override in asked.overrides)
    stand_ins = {"TASK": repr(task.full_name), "DATA": "''", "INIT_FROM": "''", "TRAIN_STEPS": "1", **given}
    files = [*FILES, *asked.files, f"strategies/{TEACHER}.gin"]
    bound = values_of(tools.parse(files, [f"{name}={value}" for name, value in stand_ins.items()]))
    bound |= _splits(asked, given, bound)
    tested = words(bound["TEST_LANGUAGES"])
    require_tested(task, asked.data, bound["TEST_SPLIT"], tested, asked.allow_missing)
    fitted = BASELINES[asked.strategy](task, read(task, asked.data, bound["TRAIN_SPLIT"], task.trained_on))
    split, by_language, counts = bound["TEST_SPLIT"], {}, {}
    for language in chosen_languages(task, asked.data, split, tested):
        records = read(task, asked.data, split, language)
        if has_gold(task, records):
            by_language[language], counts[language] = scored(task, records, fitted(records), language), len(records)
    if not by_language:
        raise UserError(f"{task.full_name}: the {split} sets have no answers to score {asked.strategy} against")
    found = means(by_language, task, (task.trained_on,))
    cell.folder.mkdir(parents=True, exist_ok=True)
    none = {"split": "", "by": "none", "step": 0, "steps": 0}
    write_json(cell.folder / SCORES, {
        "task": task.full_name, "strategy": asked.strategy, "variant": {}, "settings": {}, "seed": 0,
        "start": {"run": "", "sha256": ""}, "select": none, "dev": {"means": {}, "by_language": {}},
        "test": {"split": split, "means": found, "by_language": by_language, "examples": counts}, "machine": "",
    })  # fmt: skip
    say(f"{task.full_name}, {asked.strategy}: " + ", ".join(f"{name} {value:.2f}" for name, value in found.items()))


# ---- small things ----------------------------------------------------------------------------------------------------


def _absolute_run(source: str) -> str:
    folder, which = run_and_checkpoint(source)
    return f"{folder.absolute()}@{which}" if which else str(folder.absolute())


def parameters_hash(params: Any) -> str:
    """sha256 (hex) of all parameters, in the order of their names."""
    digest = hashlib.sha256()
    for name, value in sorted(flattened(params).items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(jax.device_get(value)).tobytes())
    return digest.hexdigest()


def values_of(bound: Mapping[str, str]) -> dict[str, Any]:
    """{macro: value} of what gin binds; %MACRO is looked up, what is no literal stays text."""

    def value(text: str) -> Any:
        if text.startswith("%") and text[1:] in bound:
            return value(bound[text[1:]])
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text

    return {name: value(text) for name, text in bound.items() if name.isupper()}


def _literal(text: str) -> str:
    """A value of --grid as gin reads it: what is no literal is a string."""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return repr(text)
    return text


def _difference(before: str, now: str) -> str:
    ours, theirs = ([line for line in text.splitlines() if line[:1] != "#"] for text in (now, before))
    if ours == theirs:
        return "a gin file that it includes is another"
    lost = next((line for line in theirs if line not in ours), "nothing")
    new = next((line for line in ours if line not in theirs), "nothing")
    return f"there: {lost}; now: {new}"
