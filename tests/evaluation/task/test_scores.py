"""A task's score over languages, and which of them a paper's average leaves out."""

import pytest

from xlingjax.evaluation.task.scores import means
from xlingjax.tasks import task_named

ACCURACY = {"de": 60.0, "en": 80.0, "fr": 40.0}


def accuracies(**values):
    return {language: {"accuracy": value} for language, value in values.items()}


def test_means_gap_and_languages_without_training():
    task = task_named("xtreme/xnli")
    assert means(accuracies(**ACCURACY), task, ("en",)) == {
        "mean": 60,
        "en": 80,
        "gap": 30,
        "mean_other": 50,
    }
    assert means(accuracies(**ACCURACY), task, ("de", "en"))["mean_other"] == 40
    for trained_on in (("all",), (*ACCURACY,)):  # all were trained on: there is no other
        assert means(accuracies(**ACCURACY), task, trained_on) == {"mean": 60, "en": 80, "gap": 30}
    assert means(accuracies(de=60.0, fr=40.0), task, ("en",)) == {"mean": 50, "mean_other": 50}


def test_averages_are_the_tasks_own():
    """XQA leaves English out; XTREME takes F1 and exact match of questions, XGLUE F1 alone."""
    assert means(accuracies(**ACCURACY), task_named("applications/xqa"), ("en",))["mean"] == 50
    answers = {
        language: {"mlqa_f1": 60.0, "mlqa_em": em} for language, em in (("de", 20.0), ("en", 40.0))
    }
    assert means(answers, task_named("xtreme/mlqa"), ("en",)) == pytest.approx(
        {"mean": 45, "en": 50, "gap": 10, "mean_other": 40}
    )
    assert means(answers, task_named("xglue/mlqa"), ("en",))["mean"] == 60
    rated = {"de": {"ndcg_wpr": 70.0, "accuracy": 10.0}}
    assert means(rated, task_named("xglue/wpr"), ("en",))["mean"] == 70
