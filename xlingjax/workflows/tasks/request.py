"""What a sweep is asked for; its cells, their folders, and what their macros say."""

import ast
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.config.gin_files import macros_set
from xlingjax.config.shared_training import dev_name
from xlingjax.data.labelled.task import Task, languages_present, part_of
from xlingjax.data.text.sources import split_list
from xlingjax.evaluation.task.scores import chosen_languages
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import Training

FILES = ("optim/adamw_linear.gin", "mesh/data.gin", "runs/task.gin")
"""The gin files that every cell includes first."""
SHARED = "runs/shared_training.gin"  # what tasks that share a training include beside these
LABELLED = "LABELLED"  # the macro of the sets that a teacher labelled
TEACHER = "transfer"  # the strategy of the teacher
RECIPE = "cell.gin"  # of a cell: what was decided
READ = "files.json"  # of a cell: the hashes of the benchmark's files when its training began
START = "start"  # the name in `READ` of the hash of the weights that the training began from
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
MEASURED = (("DEV_SPLIT", "DEV_LANGUAGES"), ("TEST_SPLIT", "TEST_LANGUAGES"))
"""Macros of the sets that choose and of those that test, each with its languages."""
TRAINED_ON = ("train", "translate_train")
"""Splits that are trained on; the others are read to be predicted."""
MULTI_TASK = "multi_task"  # the strategy that trains several tasks at once


Bound = Mapping[str, Any]  # {macro: value} of a recipe


@dataclasses.dataclass(frozen=True)
class Request:
    """What the command line says."""

    task: Task
    source: str  # the pretrained run
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
    overrides: Sequence[str] = ()  # NAME=VALUE, as gin reads values
    allow_missing: bool = False
    """Languages of the task that have neither a test nor a dev set are passed over."""
    beside: Sequence[Task] = ()
    """The tasks that are trained together with `task`: of `MULTI_TASK` each by a head of its own,
    else on the same examples, once for all."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        return (self.task, *self.beside)

    @property
    def shares(self) -> bool:
        """Whether several tasks learn the same from the same examples."""
        return bool(self.beside) and self.strategy != MULTI_TASK

    @property
    def learnt(self) -> tuple[Task, ...]:
        """The tasks whose examples are trained on; of tasks that share them one."""
        if self.shares:
            return (self.task,)
        return self.tasks

    @property
    def called(self) -> str:
        return " ".join(task.full_name for task in self.tasks)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One training of a sweep."""

    strategy: str
    variant: Mapping[str, str]
    """{"PIVOT": "de"}; empty where the strategy has one. "LANGUAGES": those trained on, "en+de";
    "TASKS": those that are trained together."""
    settings: Mapping[str, str]  # of the grid
    seed: int
    folder: Path

    @classmethod
    def of(cls, request: Request, strategy: str, variant, settings, seed: int) -> "Cell":
        """The cell in its place below the request's output."""
        task = request.task
        parts = [task.suite]
        # "TASKS" of the variant names the task too.
        if "TASKS" not in variant:
            parts.append(task.name)
        parts.append(strategy)
        parts.extend(variant.values())
        for name, value in settings.items():
            # A value may be a path, which would become folders of its own.
            parts.append(f"{name}={value}".replace("/", "_"))
        parts.append(f"seed-{seed}")
        folder = Path(request.output).absolute().joinpath("cells", *parts)
        return cls(strategy, variant, settings, seed, folder)


# ---- what its macros say -------------------------------------------------------------------------


def typed(request: Request) -> set[str]:
    """The macros that --gin.NAME sets."""
    return {override.partition("=")[0] for override in request.overrides}


def macros_given(request: Request) -> set[str]:
    """The macros that the command line and its gin files set: a sweep decides only the others."""
    return typed(request) | macros_set(request.files)


def dev_of(request: Request, task: Task) -> str:
    """The evaluator that measures a task on dev."""
    if request.shares:
        return dev_name(task.name)
    return "dev"


def chosen_by(request: Request, task: Task, select: str) -> str:
    """The metric that chooses the checkpoint of a task. select: SELECT."""
    return f"{dev_of(request, task)}/{select}"


def values_of(bound: Mapping[str, str]) -> dict:
    """{macro: value} of what gin binds; %MACRO is looked up, what is no literal stays text."""

    def value(text: str) -> Any:
        # A macro may be set to another macro: TEST_LANGUAGES = %DEV_LANGUAGES.
        if text.startswith("%") and text[1:] in bound:
            return value(bound[text[1:]])
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text

    # Only macros are in capitals; the rest are parameters.
    return {name: value(text) for name, text in bound.items() if name.isupper()}


def reading_of(bound: Bound) -> Reading:
    """As runs/task.gin binds it; of a run of another recipe what that has of it."""
    options = {}
    # Strict: a new field of `Reading` without its macro
    # would be read in one way and tested in another.
    for field, macro in zip(dataclasses.fields(Reading), READING, strict=True):
        if macro in bound:
            options[field.name] = bound[macro]
    return Reading(**options)


def training_of(bound: Bound) -> Training:
    """As runs/task.gin binds it."""
    gold = split_list(bound["TRAIN_LANGUAGES"])
    translated = split_list(bound["TRANSLATED"])
    return Training(gold, translated, bound["TRAIN_SPLIT"], bound["LABELLED"])


def measured(task: Task, data: str, bound: Bound) -> Iterator[tuple[str, list[str]]]:
    """(split, its languages) of the sets that choose, then of those that test. Raises UserError
    where a language that is asked for has no such set."""
    for split, languages in MEASURED:
        requested = split_list(bound[languages])
        yield bound[split], chosen_languages(task, data, bound[split], requested)


def files_read(task: Task, data: str, bound: Bound) -> list[tuple[str, str]]:
    """(split, language) of all that a cell trains on, chooses by, tests on and predicts."""
    parts = []
    for origin, language in training_of(bound).parts(task, data):
        parts.append(("train" if origin == "gold" else "translate_train", language))
    splits = []
    for split, languages in measured(task, data, bound):
        # Files are of whole sets: dev[:50%] and dev[50%:] are one.
        splits.append(part_of(split)[0])
        parts += [(splits[-1], language) for language in languages]
    also = []
    if splits[-1] != "test":
        # A part of another set tests; the test set itself is predicted all the same, to be
        # submitted.
        also.append("test")
    if bound["CLASSIFIER"] == "plug_in":
        # Such a model reads each example beside its translation.
        also += ["translate_dev", "translate_test"]
        parts += [(split, task.trained_on) for split in ("train", *splits)]
    for split in also:
        parts += [(split, language) for language in languages_present(task, data, split)]
    # Parts of one set may both choose and test.
    return [*dict.fromkeys(parts)]
