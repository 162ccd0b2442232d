"""A cell of a sweep: what was asked for, its folder, and its recipe: all that is decided before the
training."""

import ast
import dataclasses
import functools
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.config.recipe import bindings, find_gin, macros_set
from xlingjax.data.labelled.records import learnable
from xlingjax.data.labelled.task import (
    Task,
    find,
    hashes,
    languages_present,
    part_of,
    read,
    share_rows,
)
from xlingjax.data.labelled.tfds import located
from xlingjax.data.sources import split_list
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.evaluation.task import chosen_languages, has_gold, require_tested
from xlingjax.preprocessors.task import ALL, Reading, Training, count_rows
from xlingjax.tasks import task_named
from xlingjax.training.run_record import read_run_record, run_and_checkpoint
from xlingjax.workflows.strategies import OVER, PAIRED, trained_languages

FILES = ("optim/adamw_linear.gin", "mesh/data.gin", "runs/task.gin")
LABELLED, TEACHER = "LABELLED", "transfer"
NO_DEV = ("train[:90%]", "train[90%:]")
"""Training and dev where there is no dev set."""
UNTOLD = ("dev[:50%]", "dev[50%:]")
"""What takes the place of the dev and test sets where the test set is not there or has no answers.
"""
RECIPE, READ, START = "cell.gin", "files.json", "start"
"""Of a cell: what was decided; the hashes of the benchmark's files when its training began, and
among them, by the name `START`, that of the weights it began from."""
READING = (
    "LENGTH",
    "RESET_POSITIONS",
    "STRIDE",
    "MAX_QUESTION",
    "LONGEST_ANSWER",
    "TAGGED_PIECES",
    "TEST_BEAMS",
    "NO_REPEAT_NGRAM",
    "WORDS_APART",
    "WORD_MARKS",
)
"""Macros of how examples are read, in the order of the fields of `Reading`."""
MULTI_TASK = "multi_task"
"""The strategy that trains several tasks at once."""
_LEAST = {
    "BATCH": 1,
    "LENGTH": 1,
    "STRIDE": 1,
    "MAX_QUESTION": 1,
    "LONGEST_ANSWER": 1,
    "DEV_BEAMS": 1,
    "TEST_BEAMS": 1,
    "NO_REPEAT_NGRAM": 0,
    "DEV_LIMIT": 0,
}
"""Macros that are whole numbers, and the least that each can be."""
_EMPTY = "translated rows, in which a text is missing"
LOST = {
    "span_qa": "translated questions, whose answer does not stand where the file says",
    "classification": _EMPTY, "ranking": _EMPTY, "tagging": _EMPTY,
}  # fmt: skip
"""Kind of task -> what of a translated training set is not learnt."""
_OPTIONS = {"TASK": "--task", "DATA": "--data", "INIT_FROM": "--from", "SEED": "--seeds"}
"""Macros that an option of the command line says."""


@dataclasses.dataclass(frozen=True)
class Request:
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
    """Pivots, targets, or sets to train on ("en+de"); default: those that have training examples.
    """
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
class Cell:
    task: Task
    strategy: str
    variant: Mapping[str, str]
    """{"PIVOT": "de"}; empty where the strategy has one. "LANGUAGES": those trained on, "en+de";
    "TASKS": those
    that are trained together."""
    settings: Mapping[str, str]
    """Of the grid."""
    seed: int
    folder: Path

    @classmethod
    def of(cls, output: str, task: Task, strategy: str, variant, settings, seed: int) -> "Cell":
        parts = [
            task.suite,
            *([] if "TASKS" in variant else [task.name]),
            strategy,
            *variant.values(),
        ]
        parts += [f"{name}={value}".replace("/", "_") for name, value in settings.items()]
        return cls(
            task,
            strategy,
            variant,
            settings,
            seed,
            Path(output).absolute().joinpath("cells", *parts, f"seed-{seed}"),
        )


# ---- its recipe ----------------------------------------------------------------------------------


def recipe_of(request: Request, cell: Cell, strategy: Path, more: Mapping[str, str]) -> str:
    """The gin file of the cell: all that was decided, to be read and run again."""
    files = [
        *FILES,
        *(str(Path(name).absolute()) if Path(name).is_file() else name for name in request.files),
    ]
    inside = find_gin(f"strategies/{strategy.name}") == strategy
    files.append(f"strategies/{strategy.name}" if inside else str(strategy.absolute()))
    overrides = dict(override.split("=", 1) for override in request.overrides)
    given = {*macros_given(request), *cell.settings}
    if twice := sorted({*overrides} & {*cell.settings}):
        raise UserError(f"{twice[0]}: --gin.{twice[0]} and --grid both set it: give one of them")
    for name, option in _OPTIONS.items():
        if name in given:
            raise UserError(
                f"{name}: a sweep has it from {option}: say it there, and leave {name} out"
            )
    values = {
        "TASK": repr(request.called),
        "DATA": repr(located(request.data)),
        "INIT_FROM": repr(_absolute_run(request.source)),
        "SEED": str(cell.seed),
        **overrides,
        **{name: repr(value) for name, value in cell.variant.items() if name in OVER},
        **{name: _literal(value) for name, value in cell.settings.items()},
        **more,
    }
    values |= trained_languages(cell.variant, request.task, request.data)
    placed = [f"{name}={value}" for name, value in values.items()]
    if "TRAIN_STEPS" not in given:
        placed.append("TRAIN_STEPS=1")
    parsed = bindings(files, placed)
    for name in sorted((macros_set(request.files) & macros_set([str(strategy)])) - {*values}):
        if (before := bindings(files[:-1], placed)[name]) != parsed[name]:
            raise UserError(
                f"{name}: {' '.join(request.files)} and strategy {strategy.stem} set it, to"
                f" {before} and {parsed[name]}: say which by --gin.{name}"
            )
    bound = values_of(parsed)
    _require_sound(request, bound)
    for name in {*overrides, *cell.settings} & {*bound}:
        if isinstance(bound[name], int) and name in _LEAST:
            values[name] = str(bound[name])  # 1e2 is 100
    splits = splits_of(request, given, bound)
    target, dev = cell.variant.get("TARGET"), (bound | splits)["DEV_SPLIT"]
    if (
        target
        and "DEV_LANGUAGES" not in given
        and not find(request.task, request.data, dev, target)
    ):
        splits["DEV_LANGUAGES"] = request.task.trained_on  # XQuAD, which has SQuAD's dev set alone
    splits |= _spoken(request, bound | splits)
    values |= {name: repr(value) for name, value in splits.items()}
    bound |= splits
    chooses = bound["SELECT"] != "last" or any(len(values) > 1 for values in request.grid.values())
    _require_apart(request, bound, chooses)
    if chooses and part_of(bound["DEV_SPLIT"])[0] == "train":
        _require_as_many(request, bound)
    counts = {task.name: counted(request, task, bound) for task in request.tasks}
    examples = sum(count[0] for count in counts.values())
    lost = sum(part.lost for count in counts.values() for part in count[2])
    epoch = sum(rows for _, rows, _ in counts.values()) / bound["BATCH"]
    steps = (
        bound["TRAIN_STEPS"] if "TRAIN_STEPS" in given else max(1, round(bound["EPOCHS"] * epoch))
    )
    every = min(steps, max(1, round(epoch / bound["EVALUATIONS"])))
    derived = {"TRAIN_STEPS": steps, "EVAL_EVERY": every, "CHECKPOINT_EVERY": every}
    if request.beside:  # each example once in an epoch, as if the sets were one
        derived["TASK_WEIGHTS"] = {
            name: max(1, round(rows / bound["BATCH"])) for name, (_, rows, _) in counts.items()
        }
    values = {
        **{name: str(value) for name, value in derived.items() if name not in given},
        **values,
    }
    select, trained_on, devs = bound["SELECT"], request.task.trained_on, []
    tested = split_list(bound["TEST_LANGUAGES"])
    for task in request.tasks:  # before any training
        devs.append(
            chosen_languages(
                task, request.data, bound["DEV_SPLIT"], split_list(bound["DEV_LANGUAGES"])
            )
        )
        require_tested(task, request.data, bound["TEST_SPLIT"], tested, request.allow_missing)
    if select != "last" and (bound["KEEP_BEST"] < 1 or bound["BEST_MODE"] != "max"):
        name = "KEEP_BEST" if bound["KEEP_BEST"] < 1 else "BEST_MODE"
        raise UserError(
            f"{name}={bound[name]}: SELECT={select} takes the checkpoint that is best on dev; leave"
            " it out, or give --gin.SELECT=last"
        )
    if select == "last":
        values |= {"KEEP_BEST": "0", "BEST_METRIC": "''"}
    elif select not in ("mean", trained_on):
        raise UserError(f"SELECT={select}: choose mean, {trained_on} or last")
    elif select == "mean" or all(select in dev for dev in devs):
        values["BEST_METRIC"] = repr(f"dev/{select}")
    else:
        dev = next(dev for dev in devs if select not in dev)
        raise UserError(
            f"SELECT={select}: dev is of {', '.join(dev)} alone; give --gin.SELECT=mean"
        )
    everything = json.dumps(
        sorted(bindings(files, [f"{k}={v}" for k, v in values.items()]).items())
    )
    digest = hashlib.sha256(everything.encode()).hexdigest()[:16]
    trained = f"{examples:,} training examples" + (
        f" (without {lost:,} {LOST[request.task.kind]})" if lost else ""
    )
    head = f"# {request.called}, {cell.strategy}, seed {cell.seed}: {trained}; settings {digest}."
    lines = [
        head,
        *(f'include "{name}"' for name in files),
        "",
        *(f"{name} = {value}" for name, value in values.items()),
    ]
    return "\n".join(lines) + "\n"


def _require_sound(request: Request, bound: Mapping[str, Any]) -> None:
    """Raise UserError for values that no training can be of, and those that the pretrained run has
    no room or part
    for."""
    for name in ("EPOCHS", "EVALUATIONS"):
        if not (isinstance(bound[name], int | float) and bound[name] > 0):
            raise UserError(f"{name}={bound[name]}: must be a number above 0")
    for name, least in _LEAST.items():
        if not (isinstance(bound[name], int) and bound[name] >= least):
            raise UserError(f"{name}={bound[name]}: must be a whole number, {least} or more")
    model = read_run_record(run_and_checkpoint(request.source)[0])["model"]
    room = model["max_positions"] - model.get("position_offset", 0)
    if bound["LENGTH"] > room:
        raise UserError(
            f"LENGTH={bound['LENGTH']}: such rows do not fit the {room} positions of"
            f" {request.source}"
        )
    if (
        bound["CLASSIFIER"] == "plug_in" and not request.beside
    ):  # several tasks have heads of another kind
        if request.task.kind not in PAIRED:
            raise UserError(
                f"CLASSIFIER=plug_in is for {' and '.join(PAIRED)}; {request.called} is of"
                f" {request.task.kind}"
            )
        if not model.get("cross_attention"):
            raise UserError(
                f"CLASSIFIER=plug_in goes through cross-attention, which {request.source} has none"
                " of: give a VECO run, or what `xlingjax plug in RUN --source VECO_RUN` writes"
            )


def macros_given(request: Request) -> set[str]:
    """The macros that the command line and its gin files set."""
    return {override.partition("=")[0] for override in request.overrides} | macros_set(
        request.files
    )


def _require_apart(request: Request, bound: Mapping[str, Any], chooses: bool) -> None:
    """Raises UserError where an example is in two of what is trained on, what chooses and what
    tests. chooses: dev chooses the checkpoint, or settings of a grid."""
    if chooses and _share(request, bound["DEV_SPLIT"], bound["TEST_SPLIT"]):
        raise UserError(
            f"DEV_SPLIT={bound['DEV_SPLIT']} and TEST_SPLIT={bound['TEST_SPLIT']} share examples:"
            " what chooses the checkpoint cannot test it; give --gin.DEV_SPLIT='\"dev[:50%]\"' and"
            " --gin.TEST_SPLIT='\"dev[50%:]\"', or --gin.SELECT=last without a --grid"
        )
    if chooses and part_of(bound["DEV_SPLIT"])[0] == part_of(bound["TEST_SPLIT"])[0]:
        for task in (task for task in request.tasks if task.parallel):
            _require_equal(task, request.data, bound)
    for name in ("TEST_SPLIT", *(["DEV_SPLIT"] if chooses else [])):
        if _share(request, bound["TRAIN_SPLIT"], bound[name]):
            raise UserError(
                f"TRAIN_SPLIT={bound['TRAIN_SPLIT']} and {name}={bound[name]} share examples: what"
                " is trained on can neither choose nor test; give both, as in"
                f" --gin.TRAIN_SPLIT='\"{NO_DEV[0]}\"' and --gin.{name}='\"{NO_DEV[1]}\"'"
            )


def _require_equal(task: Task, data: str, bound: Mapping[str, Any]) -> None:
    """Raise UserError where the sets of a task whose rows correspond, one part of which is to
    choose and another to test, have not as many in each language."""
    split = part_of(bound["DEV_SPLIT"])[0]
    names = (split_list(bound[f"{one}_LANGUAGES"]) for one in ("DEV", "TEST"))
    languages = dict.fromkeys(
        one for request in names for one in chosen_languages(task, data, split, request)
    )
    rows = {language: len(read(task, data, split, language)) for language in languages}
    first = next(iter(rows))
    if others := [language for language in rows if rows[language] != rows[first]]:
        raise UserError(
            f"{task.full_name}: the {split} set has {rows[others[0]]:,} rows in {others[0]!r} and"
            f" {rows[first]:,} in {first!r}: rows correspond over the languages, so a part of one"
            " would choose for what stands in the other part of another; get the whole files"
        )


def _share(request: Request, first: str, second: str) -> bool:
    """Whether an example of a task is in both splits."""
    if part_of(first)[0] != part_of(second)[0]:
        return False
    by_id = ["%" in split for split in (first, second) if "[" in split]
    return any(
        (task.shared_ids and len({*by_id}) > 1)  # one is cut by ids, the other by rows
        or share_rows(first, second, len(read(task, request.data, part_of(first)[0], language)))
        for task in request.tasks
        for language in languages_present(task, request.data, first)
    )


def _require_as_many(request: Request, bound: Mapping[str, Any]) -> None:
    """Rows that are held out of the training set are held out of its translations too, by their
    numbers (of MLQA, in percent, by their ids). Raises UserError where a translation has more or
    fewer rows."""
    for task in request.tasks:
        translated = [
            name
            for origin, name in training_of(bound).parts(task, request.data)
            if origin != "gold"
        ]
        if (task.shared_ids and "%" in bound["TRAIN_SPLIT"]) or not translated:
            continue
        rows = len(read(task, request.data, "train", task.trained_on))
        for language in translated:
            if (there := len(read(task, request.data, "translate_train", language))) != rows:
                raise UserError(
                    f"{task.full_name}: {there} examples translated into {language!r}, of {rows} in"
                    f" {task.trained_on!r}: which of them translate the rows of"
                    f" DEV_SPLIT={bound['DEV_SPLIT']} cannot be told, and these would choose; give"
                    f" --gin.SELECT=last and --gin.DEV_SPLIT='\"{bound['DEV_SPLIT']}\"' without a"
                    " --grid, which then trains on all rows"
                )


@dataclasses.dataclass(frozen=True)
class Lost:
    """Of a part of what is trained on: where it stands, how many of its translated rows are not
    learnt, of how many."""

    place: str
    lost: int
    rows: int


def lost_rows(task: Task, parts: Sequence[Lost]) -> list[str]:
    """What is said of translated rows that are not trained on, a line for each file."""
    return [
        f"{part.place}: passed over {part.lost:,} of {part.rows:,} {LOST[task.kind]}"
        for part in parts
    ]


def counted(
    request: Request, task: Task, bound: Mapping[str, Any]
) -> tuple[int, int, tuple[Lost, ...]]:
    """(examples, rows) that a task is trained on in an epoch, and the translated rows that are left
    out."""
    training = training_of(bound)
    parts = [
        part
        for part in files_read(task, request.data, bound)
        if part[0] in ("train", "translate_train")
    ]
    read_now = tuple(hashes(task, request.data, parts).items())
    run, paired = str(run_and_checkpoint(request.source)[0]), bound["CLASSIFIER"] == "plug_in"
    return _counted(
        task.full_name, located(request.data), training, reading_of(bound), run, paired, read_now
    )


@functools.cache  # the cells of a sweep train on the same
def _counted(
    name: str, data: str, training: Training, reading: Reading, run: str, paired: bool, files: tuple
) -> tuple[int, int, tuple[Lost, ...]]:
    """files: what tells an edited set from itself."""
    task, vocabulary = task_named(name), Vocabulary.load(run)
    examples, rows, lost = 0, 0, []
    for origin, language in training.parts(task, data):
        if origin == "gold" and paired:  # these stand beside the translated
            continue
        records = training.records(task, data, origin, language)
        learnt = records if origin == "gold" else learnable(records)
        examples += len(learnt)
        if missing := len(records) - len(learnt):
            lost.append(Lost(training.told(task, data, origin, language), missing, len(records)))
        rows += count_rows(task, learnt, vocabulary, reading, language)
    return examples, rows, tuple(lost)


def splits_of(request: Request, given: Collection[str], bound: Mapping[str, Any]) -> dict[str, str]:
    """The macros that say what is trained on, chosen by and tested on, where files or answers are
    missing (`UNTOLD`, `NO_DEV`) and the command line names no split."""
    if {"DEV_SPLIT", "TEST_SPLIT"} & {*given}:
        return {}
    if without := [
        task for task in request.tasks if not languages_present(task, request.data, "dev")
    ]:
        if request.beside:
            raise UserError(
                f"{without[0].full_name}: no dev set below {request.data}, which {MULTI_TASK} needs"
                " of each"
            )
        if bound["TRAIN_SPLIT"] != "train":
            raise UserError(
                f"TRAIN_SPLIT={bound['TRAIN_SPLIT']}: {request.called} has no dev set below"
                f" {request.data}; say by --gin.DEV_SPLIT which other part of train is dev"
            )
        dev = request.task.trained_on if bound["DEV_LANGUAGES"] == ALL else bound["DEV_LANGUAGES"]
        return {"TRAIN_SPLIT": NO_DEV[0], "DEV_SPLIT": NO_DEV[1], "DEV_LANGUAGES": dev}
    if bound["TEST_SPLIT"] == "test" and not all(
        _has_answers(task, request.data, "test") for task in request.tasks
    ):
        return {"DEV_SPLIT": UNTOLD[0], "TEST_SPLIT": UNTOLD[1]}
    return {}


def _spoken(request: Request, bound: Mapping[str, Any]) -> dict[str, str]:
    """The macros of the languages that are measured, without those that a model which embeds
    languages does not know. Raises UserError for these unless missing ones are allowed and all are
    asked for."""
    record = read_run_record(run_and_checkpoint(request.source)[0])
    if record["model"]["num_languages"] < 2 or bound["LANGUAGE_EMBEDDING"] is False:
        return {}
    found = {}
    for split, name in (("DEV_SPLIT", "DEV_LANGUAGES"), ("TEST_SPLIT", "TEST_LANGUAGES")):
        for task in request.tasks:
            present = chosen_languages(task, request.data, bound[split], split_list(bound[name]))
            known = [language for language in present if language in record["languages"]]
            if len(known) == len(present):
                continue
            if not known or request.beside or not request.allow_missing or bound[name] != ALL:
                others = ", ".join(language for language in present if language not in known)
                raise UserError(
                    f"{task.full_name}: {request.source} embeds languages and does not know"
                    f" {others}: name others by --gin.{name}, or --allow-missing passes over them"
                )
            found[name] = " ".join(known)
    return found


def training_of(bound: Mapping[str, Any]) -> Training:
    """As runs/task.gin binds it."""
    gold, translated = split_list(bound["TRAIN_LANGUAGES"]), split_list(bound["TRANSLATED"])
    return Training(gold, translated, bound["TRAIN_SPLIT"], bound["LABELLED"])


def files_read(task: Task, data: str, bound: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(split, language) of all that a cell trains on, chooses by, tests on and predicts."""
    origins = {"gold": "train", "translated": "translate_train", "labelled": "translate_train"}
    parts = [
        (origins[origin], language) for origin, language in training_of(bound).parts(task, data)
    ]
    predicted = [part_of(bound[name])[0] for name in ("DEV_SPLIT", "TEST_SPLIT")]
    for split, names in zip(predicted, ("DEV_LANGUAGES", "TEST_LANGUAGES"), strict=True):
        parts += [
            (split, language)
            for language in chosen_languages(task, data, split, split_list(bound[names]))
        ]
    if predicted[1] != "test":  # what is to be submitted
        parts += [("test", language) for language in languages_present(task, data, "test")]
    if bound["CLASSIFIER"] == "plug_in":  # what stands beside the examples
        parts += [
            ("translate_test", language)
            for language in languages_present(task, data, "translate_test")
        ]
        parts += [(split, task.trained_on) for split in ("train", *predicted)]
    return [*dict.fromkeys(parts)]


def _has_answers(task: Task, data: str, split: str) -> bool:
    present = languages_present(task, data, split)
    return any(has_gold(task, read(task, data, split, language)) for language in present)


def reading_of(bound: Mapping[str, Any]) -> Reading:
    """As runs/task.gin binds it; of a run of another recipe what that has of it."""
    fields = (field.name for field in dataclasses.fields(Reading))
    return Reading(
        **{field: bound[name] for field, name in zip(fields, READING, strict=True) if name in bound}
    )


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


def _absolute_run(source: str) -> str:
    folder, which = run_and_checkpoint(source)
    return f"{folder.absolute()}@{which}" if which else str(folder.absolute())
