"""`mixture_source`: batches of a registered SeqIO mixture, in the rows of one objective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import seqio

from xlingjax.data.batches.loader import (
    KINDS,
    BatchSettings,
    BatchSource,
    require_taken,
    text_source,
)
from xlingjax.data.rows.plan import Preprocessor
from xlingjax.data.seqio import keep_tensorflow_off_accelerators
from xlingjax.data.seqio.task_text import declared_languages, task_text
from xlingjax.data.seqio.vocabulary import SeqioVocabulary
from xlingjax.data.store.tokenise import BlockText
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError


def mixture_source(
    mixture: str,
    preprocessor: Preprocessor,
    *,
    batch: int,
    length: int,
    split: str = "train",
    use_cached: bool = False,
    vocabulary: Vocabulary | None = None,
    **settings: Any,
) -> BatchSource:
    """Batches of `batch` rows of `length` tokens from a registered SeqIO mixture or task.

    The output features of its tasks are `LanguageFeature`s (see `tasks/xlm.py`), one for text, two
    for pairs, or SeqIO's own, whose names and ids `task_text` understands. vocabulary: the
    run's; default: that of the first task's features. settings: those of `BatchSettings`.

    `identity` holds what must be equal to continue, and `identity["sampling_table"]` the shares and
    epochs.
    Raises UserError: unknown mixture or split, empty text, text that fits no row, a bad size.
    """
    # First of all: TensorFlow cannot be told once it has made a tensor.
    keep_tensorflow_off_accelerators()
    tasks = tasks_of(mixture, split, preprocessor)
    if vocabulary is None:
        vocabulary = vocabulary_of(tasks[0])
    drawn = BatchSettings(**settings)
    languages = drawn.languages or ()
    texts = _texts(tasks, split, languages, vocabulary, preprocessor, use_cached)
    rates = {name: rate_of(mixture, task) for name, (task, _) in texts.items()}
    of_names = {name: text for name, (_, text) in texts.items()}
    source = text_source(preprocessor, vocabulary, of_names, batch, length, drawn, rates)
    source.identity["split"] = split
    return source


def tasks_of(mixture: str, split: str, preprocessor: Preprocessor | None = None) -> list[Any]:
    """The tasks of text of a mixture that have the split, in the mixture's order; of rows the text
    that they are made of. preprocessor: of a mixture of objectives the text of this one, where it
    is among them, else all that it can read."""
    try:
        provider = seqio.get_mixture_or_task(mixture)
    except ValueError:
        raise UserError(
            f"no SeqIO task or mixture '{mixture}' is registered; import the module that adds it"
        ) from None
    # Of a mixture only some tasks may have held-out text.
    tasks = [task for task in seqio.get_subtasks(provider) if split in task.splits]
    if not tasks:
        raise UserError(f"no task of '{mixture}' has a split '{split}'")
    rows = [task for task in tasks if hasattr(task, "text")]
    if rows and preprocessor is not None:
        own = [task for task in rows if task.rows.preprocessor.name == preprocessor.name]
        fitting = [task for task in rows if task.rows.preprocessor.sides == preprocessor.sides]
        tasks = own or fitting or tasks
    # Several objectives of a mix may read one text.
    return [*{task.name: task for task in map(text_of, tasks)}.values()]


def text_of(task: Any) -> Any:
    """The task of text that a task's rows are made of; one of text itself."""
    return getattr(task, "text", task)


def vocabulary_of(task: Any) -> Vocabulary:
    """The vocabulary of a task's features. SeqIO demands one per feature name of a mixture, so the
    first task's is everybody's. Raises UserError where it is not ours, and so may have no MASK."""
    feature = next(iter(task.output_features.values()))
    if not isinstance(feature.vocabulary, SeqioVocabulary):
        raise UserError(
            f"task {task.name}: its features have {type(feature.vocabulary).__name__}; say which"
            " vocabulary the rows are made with: vocabulary=Vocabulary.load(path)"
        )
    return feature.vocabulary.vocabulary


def _texts(
    tasks: list[Any],
    split: str,
    languages: Sequence[str],
    vocabulary: Vocabulary,
    preprocessor: Preprocessor,
    use_cached: bool,
) -> dict[str, tuple[Any, BlockText]]:
    """{name in weights and tables: (task, its text)} of tasks whose languages are taken."""
    found = []
    seen = []
    for task in tasks:
        codes = declared_languages(task)
        # What is not taken need not be read, where that is known before.
        if codes:
            require_sides(task, len(codes), preprocessor)
        if not codes or preprocessor.takes(codes):
            text = task_text(task, split, vocabulary, use_cached, languages)
            require_sides(task, text.sides, preprocessor)
            codes = text.languages
            if preprocessor.takes(codes):
                found.append((task, text))
        seen.append(codes)
    require_taken(preprocessor, seen)
    # By languages where it can be, since sampling weights and tables are written so; by its task
    # where several texts are in the same languages.
    often = Counter(text.name for _, text in found)
    return {text.name if often[text.name] == 1 else task.name: (task, text) for task, text in found}


def require_sides(task: Any, sides: int, preprocessor: Preprocessor) -> None:
    if sides != preprocessor.sides:
        raise UserError(
            f"task {task.name} cannot feed '{preprocessor.name}', which reads"
            f" {KINDS[preprocessor.sides][0]}"
        )


def rate_of(mixture: str, task: Any, of_rows: Any = None) -> float:
    """How often a mixture draws a task of text. of_rows: SeqIO gives the task whose rate it is."""
    provider = seqio.get_mixture_or_task(mixture)
    if isinstance(provider, seqio.Mixture):
        return sum(provider.get_rate(one) for one in provider.tasks if text_of(one) is task)
    # A task alone is the whole of what is drawn.
    return 1.0
