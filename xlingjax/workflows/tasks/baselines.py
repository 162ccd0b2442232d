"""What is scored without a model: the baselines that stand beside every table."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from xlingjax.config.recipe import bindings
from xlingjax.data.labelled.task import Task, read
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError
from xlingjax.evaluation.task.scores import chosen_languages, require_tested
from xlingjax.workflows.jobs.many import Say
from xlingjax.workflows.tasks.request import FILES, TEACHER, Cell, Request, macros_given, values_of
from xlingjax.workflows.tasks.scores import score, write_scores
from xlingjax.workflows.tasks.sets import splits_of, trained_on_tests

Fitted = Callable[[Sequence[Any]], Any]  # records -> what is predicted for them


def majority(task: Task, train: Sequence) -> Fitted:
    """Always the commonest label, or tag, of the training set; of equals the first in the task's
    order."""
    if task.kind == "tagging":
        tag = _commonest(task, _tags(train))
        return lambda records: [[tag] * len(record.words) for record in records]
    label = _commonest(task, (example.label for example in train))
    return lambda records: [label] * len(records)


def lookup(task: Task, train: Sequence) -> Fitted:
    """Each word's commonest tag in the training set, lower case, and the commonest tag of all for a
    word that is not in it: what a tagger across languages gets from names, numbers and punctuation
    alone."""
    counts = {}
    for sentence in train:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            counts.setdefault(word.lower(), Counter())[tag] += 1
    tags = {word: _commonest(task, count.elements()) for word, count in counts.items()}
    commonest = _commonest(task, _tags(train))

    def tags_of(record: Any) -> list[str]:
        return [tags.get(word.lower(), commonest) for word in record.words]

    return lambda records: [tags_of(record) for record in records]


def _tags(sentences: Sequence) -> Iterable[str]:
    for sentence in sentences:
        yield from sentence.tags


def _commonest(task: Task, labels: Iterable[str]) -> str:
    counts = Counter(labels)
    # Counter's own order is that of the file, which another copy may not have.
    order = {label: i for i, label in enumerate(task.labels)}
    return min(counts, key=lambda label: (-counts[label], order.get(label, len(order))))


BASELINES = {
    "majority": (majority, ("classification", "ranking", "tagging")),
    "lookup": (lookup, ("tagging",)),
}
"""{name: (what makes it of a task and its training set, the kinds of tasks that it is for)}."""


# ---- its cell ------------------------------------------------------------------------------------


def score_baseline(request: Request, say: Say) -> None:
    """Writes the cell of a baseline, on the test sets that `transfer` is tested on. Raises
    UserError where they have no answers."""
    task = request.task
    bound = _macros(request)
    split = bound["TEST_SPLIT"]
    requested = split_list(bound["TEST_LANGUAGES"])
    require_tested(task, request.data, split, requested, request.allow_missing)
    # Of the language that transfer trains on: a baseline that sees target labels is no floor of it.
    train = read(task, request.data, bound["TRAIN_SPLIT"], task.trained_on)
    for file, message in trained_on_tests(request, bound):
        say(f"warning: {file}: {message}")
    make, _ = BASELINES[request.strategy]
    fitted = make(task, train)
    languages = chosen_languages(task, request.data, split, requested)
    # A cell as of a training, so that the score card
    # shows it beside the models without knowing of it.
    folder = Cell.of(request, request.strategy, {}, {}, 0).folder
    test = score(
        lambda records, *_: fitted(records),
        task,
        request.data,
        split,
        languages,
        folder / "predictions",
        (task.trained_on,),
    )
    if not test["means"]:
        raise UserError(
            f"{task.full_name}: the {split} sets have no answers to score {request.strategy}"
            " against"
        )
    write_scores(folder, task, request.strategy, test)
    shown = ", ".join(f"{name} {value:.2f}" for name, value in test["means"].items())
    say(f"{task.full_name}, {request.strategy}: {shown}")


def _macros(request: Request) -> Mapping:
    """{macro: value} of what `transfer` would bind. What only a training needs is made up."""
    made_up = {"DATA": "''", "INIT_FROM": "''", "TRAIN_STEPS": "1"}
    placed = [f"TASK={request.task.full_name!r}"]
    placed += [f"{name}={value}" for name, value in made_up.items()]
    # The splits and languages must be those of the models that it stands beside.
    files = [*FILES, *request.files, f"strategies/{TEACHER}.gin"]
    bound = values_of(bindings(files, [*placed, *request.overrides]))
    return bound | splits_of(request, macros_given(request), bound)
