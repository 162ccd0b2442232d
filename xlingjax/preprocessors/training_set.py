"""What a task is trained on: gold examples, translations of them, what a teacher labelled, or all
files of a user's task."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlingjax.data.fingerprint import fingerprint
from xlingjax.data.labelled.task import Task, find, languages_present, part_of, read, require_gold
from xlingjax.data.labelled.teacher import labelled_path, read_labelled
from xlingjax.errors import UserError

ALL = "all"
_THIS_PROCESS = uuid.uuid4().hex


def told(code: str | None) -> str:
    """A fingerprint; of code that has none a word of this process, in which it stays the same."""
    return code or _THIS_PROCESS


@dataclass(frozen=True)
class Training:
    """What a task is trained on, beside its files: {origin: languages}, "all" for those that have
    such files."""

    gold: tuple[str, ...] = ("en",)
    translated: tuple[str, ...] = ()
    """Languages into which the training set of `Task.trained_on` was translated."""
    split: str = "train"
    """Of gold examples: "train[:90%]" where the rest is dev."""
    labelled: str | None = None
    """A folder of examples that a teacher labelled (see `write_labelled`)."""

    def parts(self, task: Task, data: str | Path) -> list[tuple[str, str]]:
        """(origin, language) of every part, sorted. Raises UserError where none is left."""
        found = []
        for origin, split, requested in (
            ("gold", "train", self.gold),
            ("translated", "translate_train", self.translated),
        ):
            languages = {*requested}
            if ALL in requested:
                languages = {*languages_present(task, data, split)}
                # The gold of one language alone would be transfer, and not "all".
                if len(languages) < (2 if origin == "gold" else 1):
                    there = ", ".join(languages) or "no language"
                    raise UserError(
                        f"{task.full_name}: {there} has {split} files below {data}, and the"
                        " strategy is of several: get the others, or name languages"
                    )
            found += [(origin, language) for language in sorted(languages)]
        if self.labelled:
            names = sorted(Path(self.labelled).glob(f"{task.name}.*.jsonl"))
            if not names:
                raise UserError(f"LABELLED={self.labelled}: no {task.name}.LANGUAGE.jsonl there")
            for path in names:
                _, _, language = path.name.removesuffix(".jsonl").rpartition(".")
                found.append(("labelled", language))
        if not found:
            raise UserError(
                f"{task.full_name}: nothing to train on: set TRAIN_LANGUAGES (gold), TRANSLATED or"
                " LABELLED"
            )
        return found

    def records(self, task: Task, data: str | Path, origin: str, language: str) -> Sequence[Any]:
        """The examples of one part; what a translation lost is "" and has no answers (see
        `learnable`). Raises UserError as `read` and `require_gold` do."""
        if origin == "labelled":
            found = read_labelled(labelled_path(self.labelled, task, language), task)
            # Of rows that were held out no translation is learnt either.
            _, chosen = part_of(self.split)
            return found[chosen(len(found))]
        split = self.split
        if origin != "gold":
            split = "translate_train" + self.split.removeprefix("train")
        found = read(task, data, split, language)
        if origin == "translated":
            require_gold(task, data, language, found)
        return found

    def place(
        self, task: Task, data: str | Path, origin: str, language: str
    ) -> tuple[str, tuple[Path, ...]]:
        """(what tells how they are read, the files) of the examples of one part; ("", ()): there
        are none."""
        if origin == "labelled":
            return "labelled", (labelled_path(self.labelled, task, language),)
        split = "train" if origin == "gold" else "translate_train"
        found = find(task, data, split, language)
        if found is None:
            return "", ()
        # With what its code does, which may be a user's and change.
        reader = told(fingerprint(found.files.read))
        return f"{found.files.place} {reader}", found.paths

    def described(self, task: Task, data: str | Path, origin: str, language: str) -> str:
        """What an error in the examples of one part names: their file and language."""
        _, paths = self.place(task, data, origin, language)
        return f"{paths[0]}, {language}"


@dataclass(frozen=True)
class OwnFiles(Training):
    """All files of a user's task (see `own_task`)."""

    def parts(self, task: Task, data: str | Path) -> list[tuple[str, str]]:
        return [("own", language) for language in task.languages]

    def records(self, task: Task, data: str | Path, origin: str, language: str) -> Sequence[Any]:
        # Not by `read`: a question without an answer is named, also where none has one.
        found = find(task, data, "train", language)
        return found.files.read(found.paths, task, language)

    def place(
        self, task: Task, data: str | Path, origin: str, language: str
    ) -> tuple[str, tuple[Path, ...]]:
        # Those of the pivot, which it is asked for as gold, lie beside the others.
        return super().place(task, data, "gold", language)
