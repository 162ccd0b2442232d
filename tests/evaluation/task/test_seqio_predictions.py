"""`seqio.Evaluator` on benchmark mixtures: the numbers of the score card."""

import pytest
import seqio

from tests.helpers import tiny
from tests.helpers.files import write
from xlingjax.data.labelled.task import languages_present, read
from xlingjax.data.vocabulary.training import train_vocabulary
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.evaluation.task.scores import TaskScore
from xlingjax.evaluation.task.seqio_predictions import seqio_predict_fn
from xlingjax.inference.run import TrainedRun
from xlingjax.model.build import build_model
from xlingjax.model.config import preset
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.tasks import task_named
from xlingjax.tasks.registry import register
from xlingjax.tasks.seqio_evaluation import RecordConverter, encoded
from xlingjax.tasks.seqio_scores import evaluated
from xlingjax.tasks.text_to_text import text_of

LANGUAGES = ("de", "en", "fr", "ru")
READING = Reading(length=48, stride=8, max_question=12, longest=8)
# Task, split, and the head of a model for it.
TASKS = {
    "xtreme/xnli": ("dev", {"classifier": "xlm"}),
    "xtreme/udpos": ("dev", {"classifier": "tagging"}),
    "xtreme/mlqa": ("dev", {"classifier": "spans", "num_labels": 2}),
    "xglue/ntg": ("dev", {"decoder_layers": 1}),
}


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory, official):
    root = tmp_path_factory.mktemp("vocabulary")
    text = []
    for record in read(task_named("xtreme/xnli"), official / "xtreme", "dev", "de"):
        text += [record.premise, record.hypothesis]
    write(root / "mono/de/a.txt", "\n".join(text) + "\n")
    return train_vocabulary(
        root / "v", mono=str(root / "mono"), size=120, character_coverage=1.0, threads=1
    )


@pytest.fixture(scope="module")
def mixtures(official):
    for suite in ("xtreme", "xglue"):
        register(suite, official / suite, METRICS, allow_missing=True, name=f"{suite}_evaluated")


def model_for(task, head, vocabulary):
    classes = {}
    if task.labels:
        classes = {"num_labels": len(task.labels)}
    config = preset(
        "tiny", vocab_size=vocabulary.size, num_languages=len(LANGUAGES), max_positions=96,
        layers=1, **{**classes, **head},
    )  # fmt: skip
    model = build_model(config)
    return model, tiny.params(model, seed=1)


@pytest.mark.parametrize(
    "name",
    [
        "xtreme/xnli",
        pytest.param("xtreme/mlqa", marks=pytest.mark.long),
        pytest.param("xtreme/udpos", marks=pytest.mark.long),
        pytest.param("xglue/ntg", marks=pytest.mark.long),
    ],
)
def test_numbers_are_the_score_cards(official, mixtures, vocabulary, name):
    task = task_named(name)
    split, head = TASKS[name]
    model, params = model_for(task, head, vocabulary)
    predict_fn = seqio_predict_fn(TrainedRun(model, params, vocabulary, LANGUAGES), task, READING)
    suite = name.split("/")[0]
    evaluator = seqio.Evaluator(
        f"{suite}_evaluated.{task.name}", RecordConverter(task.kind), eval_split=split
    )
    own = [one for one in evaluator.eval_tasks if one.name.rpartition(".")[2] in LANGUAGES]
    evaluator._eval_tasks = own
    found, _ = evaluator.evaluate(compute_metrics=True, predict_fn=predict_fn)
    found = found.result()
    codes = [one.name.rpartition(".")[2] for one in own]
    score = TaskScore(task, str(official / suite), vocabulary, LANGUAGES, READING, split, codes)
    card = score(model, params, 0)
    assert len(card["by_language"]) > 1
    for language, expected in card["by_language"].items():
        assert found[f"{suite}_evaluated.{task.name}.{language}"] == pytest.approx(expected)


def test_predictions_of_a_part_are_scored(official, mixtures):
    """By `seqio.Evaluator`, which asks for splits by name: halves of dev choose and test."""
    task = task_named("xtreme/udpos")
    code = next(iter(languages_present(task, official / "xtreme", "dev")))
    own = seqio.TaskRegistry.get(f"xtreme_evaluated.udpos.{code}")
    records = read(task, official / "xtreme", "dev[50%:]", code)
    predicted = [list(one.tags) for one in records]
    predicted[0] = predicted[0][:-1]
    ids = encoded([text_of(one, task.kind) for one in predicted])
    scores = evaluated(own, RecordConverter(task.kind), "dev[50%:]", lambda *_: [*enumerate(ids)])
    whole = read(task, official / "xtreme", "dev", code)
    assert 0 < len(records) < len(whole)
    for name, value in scores.items():
        by_hand = METRICS[name].compute(
            records, [["O-none"] * len(records[0].tags), *predicted[1:]], "de"
        )
        assert value == pytest.approx(by_hand) and value < 100, name
