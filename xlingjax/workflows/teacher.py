"""The translated training sets as a teacher labels them (hard labels)."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.config.recipe import bindings
from xlingjax.data.labelled.task import Task, languages_present, read
from xlingjax.data.labelled.teacher import labelled_path, write_labelled
from xlingjax.errors import UserError
from xlingjax.inference.run import open_run
from xlingjax.model.partition import mesh_of_all
from xlingjax.runtime.records import read_record
from xlingjax.workflows.cell import RECIPE, Cell, Request, reading_of, values_of
from xlingjax.workflows.cell_training import has_begun
from xlingjax.workflows.predictions import predicted
from xlingjax.workflows.scorecard.cells import SCORES


def label(request: Request, teacher: Cell, cell: Cell) -> Path:
    """The folder of the translated training sets as the teacher's model labels them. Raises
    UserError where there are none."""
    folder = cell.folder / "labelled"
    task = request.task
    # Labelled anew, a training would read other examples.
    if folder.is_dir() and has_begun(cell):
        return folder
    scores = teacher.folder / SCORES
    remedy = "delete it and start again: it is measured anew"
    record = read_record(scores, {"select": {"step": int}}, remedy)
    # The checkpoint that the teacher's scores are of.
    run = f"{teacher.folder / 'run'}@{record['select']['step']}"
    trained = open_run(run, mesh=mesh_of_all())
    reading = reading_of(values_of(bindings([str(teacher.folder / RECIPE)], ())))
    languages = languages_present(task, request.data, "translate_train")
    if not languages:
        raise UserError(
            f"{task.full_name}: no translated training sets below {request.data} for the teacher to"
            " label"
        )
    # Whole or not at all: a student would train on what a stopped teacher left.
    partial = folder.with_name("labelled.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for language in languages:
        records = read(task, request.data, "translate_train", language)
        outputs = predicted(trained, task, records, language, reading)
        write_labelled(labelled_path(partial, task, language), _relabelled(task, records, outputs))
    shutil.rmtree(folder, ignore_errors=True)  # of a cell that was not trained
    partial.rename(folder)
    return folder


def _relabelled(task: Task, records: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """The records with the outputs in place of their labels or tags."""
    labelled = []
    for record, output in zip(records, outputs, strict=True):
        if task.kind == "tagging":
            labelled.append(dataclasses.replace(record, tags=tuple(output)))
        else:
            labelled.append(dataclasses.replace(record, label=output))
    return labelled
