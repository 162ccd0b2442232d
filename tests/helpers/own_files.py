"""Labelled files of a user, {language: path}, as a source of batches and as an evaluator."""

from tests.helpers import toy
from xlingjax.data.labelled.own_task import own_task
from xlingjax.evaluation.task.scores import OwnScore
from xlingjax.preprocessors.parts import task_source
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import OwnFiles


def source(kind, files, labels=(), pivot=None, *, vocabulary, batch_size=32, seed=0, **reading):
    task = own_task(kind, "train", files, labels, pivot=pivot)
    given = (task, "", OwnFiles(), vocabulary, toy.LANGUAGES, Reading(**reading))
    return task_source(*given, batch_size=batch_size, seed=seed, paired=pivot is not None)


def score(
    kind, files, labels=(), metrics=("accuracy",), pivot=None, *, vocabulary, reading, **options
):
    task = own_task(kind, "test", files, labels, metrics, pivot)
    reading = Reading(**reading)
    return OwnScore(task, "", vocabulary, toy.LANGUAGES, reading, split="test", **options)
