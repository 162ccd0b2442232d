"""The files of a user as a task."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.questions import read_squad
from xlingjax.data.labelled.task import Listed, Task
from xlingjax.data.labelled.text import read_own_table
from xlingjax.data.labelled.words import read_tagged


def _read_own_words(paths: Sequence[Path], task: Task, language: str) -> Sequence[Any]:
    # Test files may have tags that are not learnt.
    return read_tagged(paths[0])


_OWN_READERS = {
    "classification": read_own_table,
    "tagging": _read_own_words,
    # Numbered: the ids of TyDiQA's files come twice.
    "span_qa": functools.partial(read_squad, numbered=True),
}


def own_task(
    kind: str,
    split: str,
    files: Mapping[str, str | Path],
    labels: Sequence[str] = (),
    metrics: Sequence[str] = (),
    pivot: str | None = None,
    head: str | None = None,
) -> Task:
    """The files of a user, {language: path}, as a task that has this split alone.

    pivot: the language whose file the others translate line by line (`trained_on`), for plug-in
    fine-tuning. head: the name of the task's, of a model with several.
    """
    languages = tuple(sorted({*files} - {pivot}))
    paths = {language: (Path(files[language]),) for language in languages}
    if pivot is not None:
        pivot_path = Path(files[pivot])
        for language in languages:
            paths[language] += (pivot_path,)
        paths[pivot] = (pivot_path,)
    return Task(
        suite="files",
        name=head or kind,
        kind=kind,
        languages=languages,
        files={split: (Listed(paths, _OWN_READERS[kind]),)},
        metrics=tuple(metrics),
        submission="",
        labels=tuple(labels),
        trained_on=pivot or "",
    )
