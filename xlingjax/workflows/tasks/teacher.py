"""The translated training sets as a teacher labels them (hard labels)."""

import dataclasses
import shutil
from pathlib import Path

from xlingjax.config.recipe import bindings
from xlingjax.data.labelled.task import languages_present, read
from xlingjax.data.labelled.teacher import labelled_path, write_labelled
from xlingjax.inference.run import open_run
from xlingjax.model.partition import mesh_of_all
from xlingjax.runtime.records import read_record
from xlingjax.workflows.scorecard.cells import SCORES
from xlingjax.workflows.tasks.cell import has_begun
from xlingjax.workflows.tasks.request import RECIPE, Cell, Request, reading_of, values_of
from xlingjax.workflows.tasks.scores import predictor


def label(request: Request, teacher: Cell, cell: Cell) -> Path:
    """The folder of the translated training sets as the teacher's model labels them."""
    folder = cell.folder / "labelled"
    task = request.task
    # Labelled anew, a training would read other examples.
    if folder.is_dir() and has_begun(cell):
        return folder
    remedy = "delete it and start again: it is measured anew"
    scores = read_record(teacher.folder / SCORES, {"select": {"step": int}}, remedy)
    # The checkpoint that the teacher's scores are of.
    run = f"{teacher.folder / 'run'}@{scores['select']['step']}"
    trained = open_run(run, mesh=mesh_of_all())
    reading = reading_of(values_of(bindings([str(teacher.folder / RECIPE)], ())))
    predict_records = predictor(trained, task, request.data, reading)
    languages = languages_present(task, request.data, "translate_train")
    # Whole or not at all: a student would train on what a stopped teacher left.
    partial = folder.with_name("labelled.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for language in languages:
        records = read(task, request.data, "translate_train", language)
        labelled = []
        predicted = predict_records(records, "translate_train", language)
        for record, output in zip(records, predicted, strict=True):
            answer = {"tags": tuple(output)} if task.kind == "tagging" else {"label": output}
            labelled.append(dataclasses.replace(record, **answer))
        write_labelled(labelled_path(partial, task, language), labelled)
    shutil.rmtree(folder, ignore_errors=True)  # of a cell that was not trained
    partial.rename(folder)
    return folder
