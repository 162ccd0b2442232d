"""Is a model's head one for the task, and whose labels do its outputs stand for?"""

import dataclasses
from collections.abc import Sequence

from xlingjax.data.labelled.task import Task
from xlingjax.errors import UserError

_KIND_OF_CLASSIFIER = {
    "tagging": "tagging",
    "plug_in_tagging": "tagging",
    "spans": "span_qa",
    "plug_in_spans": "span_qa",
}
"""Of the others it is "classification"."""


def named_alike(task: Task, labels: Sequence[str]) -> tuple[str, ...]:
    """The task's labels in the order of a head's outputs. labels: the head's, which may be written
    in other capitals; (): they are not the task's."""
    # Released heads write ENTAILMENT where the benchmark has entailment.
    ours = {label.casefold(): label for label in task.labels}
    theirs = [label.casefold() for label in labels]
    # Labels that differ in capitals alone cannot be told apart here.
    if len(ours) != len(task.labels) or sorted(theirs) != sorted(ours):
        return ()
    return tuple(ours[label] for label in theirs)


def in_order_of(task: Task, labels: Sequence[str]) -> Task:
    """The task with its labels in the order of a head's outputs. labels: the head's."""
    return dataclasses.replace(task, labels=named_alike(task, labels) or task.labels)


def head_of(model, task: Task) -> str | None:
    """The name of the task's head in a model that has one for each of several tasks; None: the head
    that stands alone."""
    return task.name if model.config.labels_of(task.name) else None


def head_fault(model, task: Task, labels: Sequence[str] | None = None) -> str:
    """Why the model's head is not one for the task; "": it is. labels: the head's, where they are
    known."""
    config = model.config
    if task.kind == "generation":
        return "" if config.decoder_layers else "the model has no decoder"
    count = config.labels_of(head_of(model, task))
    if not count and config.task_labels:
        return f"the model has heads of {', '.join(name for name, _ in config.task_labels)} alone"
    if not count:
        return "the model has no head: fine-tune it (`xlingjax finetune --task`)"
    kind = _KIND_OF_CLASSIFIER.get(config.classifier, "classification")
    wanted = task.kind
    if wanted == "ranking":
        # Ranks are those of a class's probability (XGLUE's WPR).
        wanted = "classification"
    if kind != wanted:
        return f"the model's head is one of {kind}"
    # The two outputs of a head of spans, first and last, are no labels of the task.
    if kind == "span_qa":
        return ""
    if labels is not None and not named_alike(task, labels):
        return _other_labels(task, labels, count)
    # Names that are not known (None) leave the number to tell.
    if count != len(task.labels):
        names = ", ".join(task.labels[:4])
        return f"it has {len(task.labels)} labels ({names} ...) and the model's head {count}"
    return ""


def _other_labels(task: Task, labels: Sequence[str], count: int) -> str:
    ours = ", ".join(task.labels[:4]) or "not told"
    heads = ", ".join(labels[:4]) or "not told"
    fault = f"its labels are {ours} ... and the head's {heads} ..."
    # Of another number they cannot mean the same.
    if count == len(task.labels):
        fault += (
            "; where they mean the same, give the task's in the order of the head's by --labels"
        )
    return fault


def require_head(model, task: Task) -> None:
    """Raise UserError unless the model's head is one for the task."""
    if fault := head_fault(model, task):
        raise UserError(f"{task.full_name}: {fault}: give a run that was fine-tuned on this task")
