"""Whether a model's head is one for a task, and what the model predicts for the task's records."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.task import Task
from xlingjax.errors import UserError
from xlingjax.evaluation import classification
from xlingjax.evaluation.span_qa import predict_answers
from xlingjax.evaluation.tagging import predict_tags
from xlingjax.inference.encode import language_index
from xlingjax.inference.generate import Generator
from xlingjax.inference.run import TrainedRun
from xlingjax.model.decoding import Decoding
from xlingjax.preprocessors.beside import standing_beside
from xlingjax.preprocessors.finetuning import classification_rows
from xlingjax.preprocessors.task_rows import Beside, Reading, beside_rows

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
    """The name of the task's head among several; None: the one that stands alone."""
    if model.config.labels_of(task.name):
        return task.name
    return None


def head_fault(model, task: Task, labels: Sequence[str] | None = None) -> str:
    """Why the model's head does not suit the task; "": it does. labels: the head's, where known."""
    config = model.config
    if task.kind == "generation":
        return "" if config.decoder_layers else "the model has no decoder"
    count = config.labels_of(head_of(model, task))
    if not count and config.task_labels:
        return f"the model has heads of {', '.join(name for name, _ in config.task_labels)} alone"
    if not count:
        return "the model has no head: fine-tune it (`xlingjax finetune --task`)"
    kind = _KIND_OF_CLASSIFIER.get(config.classifier, "classification")
    # Ranks are those of a class's probability (XGLUE's WPR).
    if kind != task.kind and (kind, task.kind) != ("classification", "ranking"):
        return f"the model's head is one of {kind}"
    # The two outputs of a head of spans, first and last, are no labels of the task.
    if kind == "span_qa":
        return ""
    ours = ", ".join(task.labels[:4])
    if labels is not None and not named_alike(task, labels):
        heads = ", ".join(labels[:4]) or "not told"
        # Of another number they cannot mean the same.
        order = "; where they mean the same, give the task's in the order of the head's by --labels"
        more = order if count == len(task.labels) else ""
        return f"its labels are {ours} ... and the head's {heads} ...{more}"
    # Names that are not known (None) leave the number to tell.
    if count != len(task.labels):
        return f"it has {len(task.labels)} labels ({ours} ...) and the model's head {count}"
    return ""


def require_head(model, task: Task) -> None:
    """Raise UserError unless the model's head is one for the task."""
    if fault := head_fault(model, task):
        raise UserError(f"{task.full_name}: {fault}: give a run that was fine-tuned on this task")


def predict(
    run: TrainedRun,
    task: Task,
    records: Sequence[Any],
    language: str,
    reading: Reading,
    pivot: Sequence[Any] | None = None,
) -> Any:
    """What the task's metrics take: label strings, tags of every word, {id: answer}. pivot: for a
    plugged-in model, what it reads beside each record, in `Task.trained_on` (see `translations`).

    Raises UserError where the head is not the task's, or the model does not embed the language.
    """
    model = run.model
    # First of all: a language that the model does not embed is refused before rows are made.
    index = language_index(language, run)
    beside = None
    if pivot is not None:
        second = language_index(task.trained_on, run)
        beside = Beside(pivot, task.trained_on, second)
    if task.kind == "span_qa":
        return predict_answers(run, records, language, reading, beside)
    # Not of spans: `predict_answers` refuses a model that is not for them.
    require_head(model, task)
    if task.kind == "generation":
        decoding = Decoding(reading.beams, no_repeat_ngram=reading.no_repeat_ngram)
        of = model, run.params, run.vocabulary, run.languages
        generator = Generator(*of, decoding, run.mesh, truncate=True)
        made = generator.generate([record.source for record in records], language, language)
        return [best.text for best, *_ in made]
    if task.kind == "tagging":
        marks = reading.marks or task.marks
        return predict_tags(run, records, task.labels, language, reading, marks, beside)
    if pivot is not None:
        return predict_beside(run, task, records, language, reading, pivot)[0]
    if task.kind in ("classification", "ranking"):
        rows = classification_rows(
            records, run.vocabulary, reading.length, task.labels, index, reading.reset_positions
        )
        # By name where there are several heads, since outputs of another have other labels.
        head = head_of(model, task)
        classes = classification.predict(model, run.params, rows, mesh=run.mesh, task=head)
        return [task.labels[i] for i in classes]
    raise UserError(f"{task.full_name}: {task.kind} is not predicted here")


def predict_beside(
    run: TrainedRun,
    task: Task,
    records: Sequence[Any],
    language: str,
    reading: Reading,
    pivot: Sequence[Any],
) -> tuple[list[str], list[str]]:
    """Label strings of a plugged-in model: from the side of `records`, and from that of `pivot`,
    the same examples in `Task.trained_on`. The rest: see `predict`."""
    indices = language_index(language, run), language_index(task.trained_on, run)
    rows = beside_rows(task, records, pivot, run.vocabulary, reading, language, indices)
    own, beside = classification.predict(run.model, run.params, rows, mesh=run.mesh)
    return [task.labels[i] for i in own], [task.labels[i] for i in beside]


def translations(
    model, task: Task, data: str | Path, split: str, language: str
) -> Sequence[Any] | None:
    """What a model that is plugged in reads beside the examples of a language, in their order:
    their translations into `Task.trained_on` (see `standing_beside`). None: the model is not
    plugged in."""
    if not model.config.plugged_in:
        return None
    return standing_beside(task, data, split, language)[0]
