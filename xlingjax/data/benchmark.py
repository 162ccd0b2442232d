"""What a task of a benchmark is: its kind, languages and labels, where its official files lie and what reads them.

The tables stand in `tasks/` (xtreme, xglue, xnli, applications). A task is called "SUITE/NAME": "xtreme/udpos".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xlingjax.errors import UserError

KINDS = {
    "classification": "Example",
    "ranking": "Example",
    "tagging": "Tagged",
    "span_qa": "Question",
    "retrieval": "Bitext",
    "mining": "Bitext",
    "generation": "SourceTarget",
}
"""Kind -> the record of `data/labelled.py` that its readers give. "ranking": classification of (query, page) whose
score compares the pages of a query."""

TRAINED = ("classification", "ranking", "tagging", "span_qa", "generation")
"""Kinds that are fine-tuned; the others read the states of a model as it is."""


@dataclass(frozen=True)
class Files:
    """Where the files of a split may lie, below the folder of the benchmark, and what reads them."""

    patterns: tuple[str, ...]
    """Paths with {language}; several where an example's parts lie in several files ("qg.{language}.src.dev", ".tgt.")."""
    read: Callable[..., Sequence[Any]]
    """(paths in the order of `patterns`, the task) -> records."""


@dataclass(frozen=True)
class Task:
    suite: str
    name: str
    kind: str
    languages: tuple[str, ...]
    """Of the official test sets."""
    files: Mapping[str, tuple[Files, ...]]
    """Split -> the places where its files may lie, the first that is there is read. Splits: "train", "dev", "test",
    "translate_train" (the English training set, translated into {language}), "translate_test" (the test set of
    {language}, translated into English)."""
    metrics: tuple[str, ...]
    """Names of `evaluation/scores.py`; the first is the task's score."""
    submission: str
    """Path of the official prediction file, with {language}."""
    labels: tuple[str, ...] = ()
    """Classes or tags in the official order of ids."""
    trained_on: str = "en"
    """The language of the official training set."""
    averaged: tuple[str, ...] | None = field(default=None)
    """Languages of the official average; None: all."""

    def __post_init__(self):
        if self.kind not in KINDS:
            raise UserError(f"task {self.full_name}: kind {self.kind!r} is not one of {', '.join(KINDS)}")

    @property
    def full_name(self) -> str:
        return f"{self.suite}/{self.name}"
