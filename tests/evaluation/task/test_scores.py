"""A task's score over languages, and which of them a paper's average leaves out."""

import numpy as np
import pytest

from tests.helpers import own_files, toy
from xlingjax.errors import UserError
from xlingjax.evaluation.classification import summarise
from xlingjax.evaluation.task.scores import means
from xlingjax.tasks import task_named

ACCURACY = {"de": 60.0, "en": 80.0, "fr": 40.0}


def accuracies(**values):
    return {language: {"accuracy": value} for language, value in values.items()}


def test_means_gap_and_languages_without_training():
    task = task_named("xtreme/xnli")
    expected = {"mean": 60, "en": 80, "gap": 30, "mean_other": 50}
    assert means(accuracies(**ACCURACY), task, ("en",)) == expected
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


def test_accuracy_by_language_and_the_commonest_label(tmp_path):
    """A head that always answers "neutral": accuracy is the share of that label."""
    model, params = toy.model(num_labels=3)
    head = {"kernel": np.zeros((16, 3)), "bias": np.array([0.0, 0.0, 1.0])}
    params = params | {"classifier": {"out": head}}
    files = {}
    for language, neutral in {"de": 3, "en": 8, "fr": 5}.items():
        files[language] = tmp_path / f"test-{language}.tsv"
        lines = [f"a b\tc d\t{'neutral' if i < neutral else 'entailment'}" for i in range(10)]
        files[language].write_text("\n".join(lines) + "\n")

    def measured(labels=("contradiction", "entailment", "neutral"), **options):
        options |= dict(vocabulary=toy.ToyVocabulary(), reading=dict(length=16))
        return own_files.score("classification", files, labels, **options)(model, params, 0)

    values = measured()
    assert values["by_language"] == {"de": 0.3, "en": 0.8, "fr": 0.5}
    assert values["en"] == 0.8 and values["mean_other"] == pytest.approx(0.4)
    assert summarise(values["by_language"], trained_on=("en", "fr"))["mean_other"] == 0.3
    # 7 of de's ten are entailment; of the first four 3 are neutral.
    assert values["examples"] == {"de": 10, "en": 10, "fr": 10}
    assert values["commonest"] == {"de": 0.7, "en": 0.8, "fr": 0.5}
    assert measured(limit=4)["by_language"]["de"] == 0.75
    with pytest.raises(UserError, match="2 labels .* and the model's head 3"):
        measured(labels=("neutral", "entailment"))
