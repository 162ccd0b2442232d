"""What is scored without a model: the floors that stand beside every table."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from xlingjax.data.labelled.task import Task
from xlingjax.errors import UserError

Predictor = Callable[[Sequence[Any]], Any]


def majority(task: Task, train: Sequence[Any]) -> Predictor:
    """Always the commonest label, or tag, of the training set; of equals the first in the task's
    order."""
    if task.kind in ("classification", "ranking"):
        most = _commonest(task, (example.label for example in train))
        return lambda records: [most] * len(records)
    if task.kind == "tagging":
        most = _commonest(task, (tag for sentence in train for tag in sentence.tags))
        return lambda records: [[most] * len(record.words) for record in records]
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
    known = {word: _commonest(task, of.elements()) for word, of in counts.items()}
    most = _commonest(task, (tag for sentence in train for tag in sentence.tags))
    return lambda records: [
        [known.get(word.lower(), most) for word in record.words] for record in records
    ]


def _commonest(task: Task, labels) -> str:
    counts = Counter(labels)
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
