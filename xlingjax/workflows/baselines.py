"""What is scored without a model: the baselines that stand beside every table."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from xlingjax.config.recipe import bindings
from xlingjax.data.labelled.task import Task, read
from xlingjax.data.sources import split_list
from xlingjax.errors import UserError
from xlingjax.evaluation.task.scores import means, scored
from xlingjax.evaluation.task.tested import chosen_languages, has_gold, require_tested
from xlingjax.runtime.files import write_json
from xlingjax.workflows.cell import FILES, TEACHER, Cell, Request, macros_given, values_of
from xlingjax.workflows.cell_splits import splits_of
from xlingjax.workflows.scorecard.cells import SCORES

Predictor = Callable[[Sequence[Any]], Any]


def majority(task: Task, train: Sequence[Any]) -> Predictor:
    """Always the commonest label, or tag, of the training set; of equals the first in the task's
    order."""
    if task.kind in ("classification", "ranking"):
        label = _commonest(task, (example.label for example in train))
        return lambda records: [label] * len(records)
    if task.kind == "tagging":
        tag = _commonest(task, _tags(train))
        return lambda records: [[tag] * len(record.words) for record in records]
    raise UserError(f"{task.full_name}: there is no majority of {task.kind}")


def lookup(task: Task, train: Sequence[Any]) -> Predictor:
    """Each word's commonest tag in the training set, lower case, and the commonest tag of all for a
    word that is not in it: what a tagger across languages gets from names, numbers and punctuation
    alone."""
    if task.kind != "tagging":
        raise UserError(f"{task.full_name}: lookup tags words; for {task.kind} there is majority")
    counts: dict[str, Counter] = {}
    for sentence in train:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            counts.setdefault(word.lower(), Counter())[tag] += 1
    tags = {word: _commonest(task, count.elements()) for word, count in counts.items()}
    commonest = _commonest(task, _tags(train))

    def tags_of(record: Any) -> list[str]:
        return [tags.get(word.lower(), commonest) for word in record.words]

    return lambda records: [tags_of(record) for record in records]


def _tags(sentences: Sequence[Any]) -> Iterable[str]:
    for sentence in sentences:
        yield from sentence.tags


def _commonest(task: Task, labels: Iterable[str]) -> str:
    counts = Counter(labels)
    # Counter's own order is that of the file, which another copy may not have.
    order = {label: i for i, label in enumerate(task.labels)}
    return min(counts, key=lambda label: (-counts[label], order.get(label, len(order))))


BASELINES: dict[str, Callable[[Task, Sequence[Any]], Predictor]] = {
    "majority": majority,
    "lookup": lookup,
}


def applies(name: str, task: Task) -> bool:
    """Whether the baseline `name`, or a strategy that is none, is one of the task's kind."""
    kinds = {"majority": ("classification", "ranking", "tagging"), "lookup": ("tagging",)}
    return task.kind in kinds.get(name, (task.kind,))


# ---- its cell ------------------------------------------------------------------------------------


def score_baseline(request: Request, say: Callable[[str], None]) -> None:
    """Writes the cell of a baseline, on the test sets that `transfer` is tested on. Raises
    UserError where they have no answers."""
    task = request.task
    bound = _macros(request)
    split = bound["TEST_SPLIT"]
    languages = split_list(bound["TEST_LANGUAGES"])
    require_tested(task, request.data, split, languages, request.allow_missing)
    # Of the language that transfer trains on: a baseline that sees target labels is no floor of it.
    train = read(task, request.data, bound["TRAIN_SPLIT"], task.trained_on)
    fitted = BASELINES[request.strategy](task, train)
    by_language = {}
    examples = {}
    for language in chosen_languages(task, request.data, split, languages):
        records = read(task, request.data, split, language)
        if has_gold(task, records):
            by_language[language] = scored(task, records, fitted(records), language)
            examples[language] = len(records)
    if not by_language:
        raise UserError(
            f"{task.full_name}: the {split} sets have no answers to score {request.strategy}"
            " against"
        )
    overall = means(by_language, task, (task.trained_on,))
    # A cell as of a training, so that the score card
    # shows it beside the models without knowing of it.
    cell = Cell.of(request.output, task, request.strategy, {}, {}, 0)
    cell.folder.mkdir(parents=True, exist_ok=True)
    scores = {
        "task": task.full_name,
        "strategy": request.strategy,
        "variant": {},
        "settings": {},
        "seed": 0,
        "start": {"run": "", "sha256": ""},
        "select": {"split": "", "by": "none", "step": 0, "steps": 0},
        "dev": {"means": {}, "by_language": {}},
        "test": {
            "split": split,
            "means": overall,
            "by_language": by_language,
            "examples": examples,
        },
        "machine": "",
    }
    write_json(cell.folder / SCORES, scores)
    shown = ", ".join(f"{name} {value:.2f}" for name, value in overall.items())
    say(f"{task.full_name}, {request.strategy}: {shown}")


def _macros(request: Request) -> Mapping[str, Any]:
    """{macro: value} of what `transfer` would bind. What only a training needs is made up."""
    values = {
        "TASK": repr(request.task.full_name),
        "DATA": "''",
        "INIT_FROM": "''",
        "TRAIN_STEPS": "1",
    }
    for override in request.overrides:
        name, value = override.split("=", 1)
        values[name] = value
    # The splits and languages must be those of the models that it stands beside.
    files = [*FILES, *request.files, f"strategies/{TEACHER}.gin"]
    bound = values_of(bindings(files, [f"{name}={value}" for name, value in values.items()]))
    return bound | splits_of(request, macros_given(request), bound)
