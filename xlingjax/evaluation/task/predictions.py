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
    batch_size: int = 64,
) -> Any:
    """What the task's metrics take: label strings, tags of every word, {id: answer}. pivot: for a
    plugged-in model, what it reads beside each record, in `Task.trained_on` (see `translations`).

    Raises UserError where the head is not the task's, or the model does not embed the language.
    """
    model, params, vocabulary = run.model, run.params, run.vocabulary
    # First of all: a language that the model does not embed is refused before rows are made.
    index = language_index(language, run.languages, model)
    how: dict[str, Any] = {"batch_size": batch_size, "mesh": run.mesh}
    beside = None
    if pivot is not None:
        second = language_index(task.trained_on, run.languages, model)
        beside = Beside(pivot, task.trained_on, second)
    if task.kind == "span_qa":
        sizes = ("length", "stride", "max_question", "longest", "reset_positions")
        how |= {name: getattr(reading, name) for name in sizes} | {"beside": beside}
        return predict_answers(model, params, records, vocabulary, index, **how)
    # Not of spans: `predict_answers` refuses a model that is not for them.
    require_head(model, task)
    if task.kind == "generation":
        decoding = Decoding(reading.beams, no_repeat_ngram=reading.no_repeat_ngram)
        generator = Generator(
            model, params, vocabulary, run.languages, decoding, run.mesh, truncate=True
        )
        made = generator.generate([record.source for record in records], language, language)
        return [best.text for best, *_ in made]
    if task.kind == "tagging":
        how |= {"length": reading.length, "apart": reading.apart, "beside": beside}
        of = model, params, records, vocabulary, task.labels, language, index
        return predict_tags(*of, marks=reading.marks or task.marks, **how)
    if pivot is not None:
        return predict_beside(run, task, records, language, reading, pivot, batch_size)[0]
    if task.kind in ("classification", "ranking"):
        rows = classification_rows(
            records, vocabulary, reading.length, task.labels, index, reading.reset_positions
        )
        # By name where there are several heads, since outputs of another have other labels.
        classes = classification.predict(model, params, rows, task=head_of(model, task), **how)
        return [task.labels[i] for i in classes]
    raise UserError(f"{task.full_name}: {task.kind} is not predicted here")


def predict_beside(
    run: TrainedRun,
    task: Task,
    records: Sequence[Any],
    language: str,
    reading: Reading,
    pivot: Sequence[Any],
    batch_size: int = 64,
) -> tuple[list[str], list[str]]:
    """Label strings of a plugged-in model: from the side of `records`, and from that of `pivot`,
    the same examples in `Task.trained_on`. The rest: see `predict`."""
    indices = tuple(
        language_index(code, run.languages, run.model) for code in (language, task.trained_on)
    )
    rows = beside_rows(task, records, pivot, run.vocabulary, reading, language, indices)
    own, beside = classification.predict(
        run.model, run.params, rows, batch_size=batch_size, mesh=run.mesh
    )
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
