"""What a model predicts for the records of a task."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.task import Task
from xlingjax.errors import UserError
from xlingjax.evaluation import classification
from xlingjax.evaluation.span_qa import predict_answers
from xlingjax.evaluation.tagging import predict_tags
from xlingjax.evaluation.task.heads import head_of, require_head
from xlingjax.inference.encode import language_index
from xlingjax.inference.generate import Generator
from xlingjax.model.decoding import Decoding
from xlingjax.preprocessors.beside import standing_beside
from xlingjax.preprocessors.finetuning import classification_rows
from xlingjax.preprocessors.plug_in import Beside
from xlingjax.preprocessors.task_rows import Reading, beside_rows


def predict(
    model,
    params,
    task: Task,
    records: Sequence[Any],
    vocabulary,
    languages: Sequence[str],
    language: str,
    reading: Reading,
    batch_size: int = 64,
    mesh=None,
    pivot: Sequence[Any] | None = None,
) -> Any:
    """What the task's metrics take: label strings, tags of every word, {id: answer}. languages: the
    run's, sorted. pivot: of a model that is plugged in, what stands beside each record, in
    `Task.trained_on` (see `translations`).

    Raises UserError where the model's head is not the task's, or the language not one that the
    model embeds.
    """
    # First of all: a language that the model does not embed is refused before rows are made.
    index = language_index(language, languages, model)
    how: dict[str, Any] = {"batch_size": batch_size, "mesh": mesh}
    beside = None
    if pivot is not None:
        second = language_index(task.trained_on, languages, model)
        beside = Beside(pivot, task.trained_on, second)
    if task.kind == "span_qa":
        return predict_answers(
            model,
            params,
            records,
            vocabulary,
            index,
            length=reading.length,
            stride=reading.stride,
            max_question=reading.max_question,
            longest=reading.longest,
            reset_positions=reading.reset_positions,
            beside=beside,
            **how,
        )
    # Not of spans: `predict_answers` refuses a model that is not for them.
    require_head(model, task)
    if task.kind == "generation":
        decoding = Decoding(reading.beams, no_repeat_ngram=reading.no_repeat_ngram)
        generator = Generator(model, params, vocabulary, languages, decoding, mesh, truncate=True)
        sources = [record.source for record in records]
        # XGLUE's generation stays within a language.
        made = generator.generate(sources, language, language)
        return [best.text for best, *_ in made]
    if task.kind == "tagging":
        return predict_tags(
            model,
            params,
            records,
            vocabulary,
            task.labels,
            language,
            index,
            length=reading.length,
            apart=reading.apart,
            marks=reading.marks or task.marks,
            beside=beside,
            **how,
        )
    if pivot is not None:
        own, _ = predict_beside(
            model, params, task, records, pivot, vocabulary, languages, language, reading, **how
        )
        return own
    if task.kind in ("classification", "ranking"):
        rows = classification_rows(
            records, vocabulary, reading.length, task.labels, index, reading.reset_positions
        )
        head = head_of(model, task)
        # By name where there are several heads, since outputs of another have other labels.
        found = classification.predict(model, params, rows, task=head, **how)
        return [task.labels[i] for i in found]
    raise UserError(f"{task.full_name}: {task.kind} is not predicted here")


def predict_beside(
    model,
    params,
    task: Task,
    records: Sequence[Any],
    pivot: Sequence[Any],
    vocabulary,
    languages: Sequence[str],
    language: str,
    reading: Reading,
    **how: Any,
) -> tuple[list[str], list[str]]:
    """Label strings of a model that is plugged in: from the side of `records`, and from that of
    `pivot`, the same examples in `Task.trained_on`. The rest: see `predict`."""
    first = language_index(language, languages, model)
    second = language_index(task.trained_on, languages, model)
    rows = beside_rows(task, records, pivot, vocabulary, reading, language, (first, second))
    own, beside = classification.predict(model, params, rows, **how)
    return [task.labels[i] for i in own], [task.labels[i] for i in beside]


def translations(
    model, task: Task, data: str | Path, split: str, language: str
) -> Sequence[Any] | None:
    """What a model that is plugged in reads beside the examples of a language, in their order:
    their translations into `Task.trained_on` (see `standing_beside`). None: the model is not
    plugged in.
    """
    if not model.config.plugged_in:
        return None
    return standing_beside(task, data, split, language).records
