import shutil

import pytest

from xlingjax.data.labelled.task import read
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.tasks import task_named

seqio = pytest.importorskip("seqio")

from xlingjax.tasks.registry import record_of, register, tasks_of  # noqa: E402


class Recorder:
    """A metric that keeps what it is given."""

    def compute(self, gold, predicted, language):
        self.seen = (gold, predicted, language)
        return 50.0


@pytest.fixture(scope="module")
def xtreme(official):
    return register("xtreme", official / "xtreme", METRICS, allow_missing=True, name="xtreme_small")


@pytest.mark.parametrize(
    "name, split",
    [
        ("xtreme/xnli", "dev"), ("xtreme/xnli", "test"), ("xtreme/udpos", "train"),
        ("xtreme/udpos", "test"), ("xtreme/mlqa", "dev"), ("xtreme/bucc2018", "dev"),
        ("xtreme/bucc2018", "test"), ("xtreme/tatoeba", "test"),
    ],
)  # fmt: skip
def test_examples_of_a_task_are_its_files(official, xtreme, name, split):
    task = task_named(name)
    own = seqio.TaskRegistry.get(f"{xtreme}.{task.name}.de")
    found = list(own.get_dataset(None, split, shuffle=False, num_epochs=1))
    assert [record_of(example, task.kind) for example in found] == read(
        task, official / "xtreme", split, "de"
    )
    assert found[0]["language"].numpy() == b"de"


def test_the_mixture_holds_every_language_of_every_task(xtreme):
    tasks = {task.name for task in seqio.MixtureRegistry.get(xtreme).tasks}
    assert {"xtreme_small.xnli.en", "xtreme_small.panx.fr", "xtreme_small.tatoeba.ru"} <= tasks
    assert len([name for name in tasks if ".mlqa." in name]) == 2  # de, en
    assert {task.name for task in seqio.MixtureRegistry.get("xtreme_small.bucc2018").tasks} == {
        f"xtreme_small.bucc2018.{code}" for code in ("de", "fr", "ru")
    }
    english = seqio.TaskRegistry.get("xtreme_small.xquad.en")
    assert english.splits == ("train", "dev", "test")


def test_metrics_score_what_postprocessing_gives(official, xtreme):
    task = seqio.TaskRegistry.get("xtreme_small.xnli.de")
    examples = list(task.get_dataset(None, "dev[:4]", shuffle=False, num_epochs=1))
    targets = [task.postprocess_fn(None, example=example, is_target=True) for example in examples]
    gold = [example["label"].numpy().decode() for example in examples]
    assert [task.postprocess_fn(label, example=None, is_target=False) for label in gold] == gold
    wrong = [*gold[:3], "none"]
    assert [fn(targets, wrong) for fn in task.metric_fns] == [{"accuracy": 75.0}]
    with pytest.raises(UserError, match="accuracy: 1 predictions for 4 examples"):
        task.metric_fns[0](targets, wrong[:1])


def test_predictions_reach_a_metric_in_its_form(official):
    answers, rows = Recorder(), Recorder()
    metrics = METRICS | {"mlqa_f1": answers, "tatoeba_accuracy": rows}
    register("xtreme", official / "xtreme", metrics, allow_missing=True, name="xtreme_seen")
    question, *_ = read(task_named("xtreme/mlqa"), official / "xtreme", "dev", "de")
    mlqa = seqio.TaskRegistry.get("xtreme_seen.mlqa.de").metric_fns
    assert mlqa[0]([question], ["im Park"]) == {"mlqa_f1": 50}
    assert answers.seen == ([question], {question.id: "im Park"}, "de")
    assert mlqa[1]([question], [question.answers[0]]) == {"mlqa_em": 100}
    bitext = read(task_named("xtreme/tatoeba"), official / "xtreme", "test", "fr")
    found = list(range(len(bitext[0].target)))[::-1]
    seqio.TaskRegistry.get("xtreme_seen.tatoeba.fr").metric_fns[0](bitext, [found])
    assert rows.seen == (bitext, found, "fr")
    bucc = read(task_named("xtreme/bucc2018"), official / "xtreme", "dev", "de")
    half = sorted(bucc[0].gold)[: len(bucc[0].gold) // 2]
    scores = [
        fn(bucc, [half]) for fn in seqio.TaskRegistry.get("xtreme_seen.bucc2018.de").metric_fns
    ]
    f1 = {"bucc_f1": pytest.approx(200 / 3)}
    assert scores == [f1, {"bucc_precision": 100.0}, {"bucc_recall": 50.0}]


def test_files_of_the_chosen_tasks_alone_are_needed(official, tmp_path):
    shutil.copytree(official / "xtreme" / "bucc2018", tmp_path / "bucc2018")
    for path in [*(tmp_path / "bucc2018").glob("ru-en.*")]:
        code = path.name.replace("ru-en", "zh-en").replace(".ru", ".zh")
        shutil.copy(path, path.with_name(code))
    name = register("xtreme", tmp_path, METRICS, tasks=("bucc2018",), name="bucc_alone")
    (found,) = tasks_of(name)
    assert found[0].name == "bucc2018" and sorted(found[1]) == ["de", "fr", "ru", "zh"]
    with pytest.raises(UserError, match="xtreme/xnli: no test files of"):
        register("xtreme", tmp_path, METRICS, name="bucc_and_others")


def test_registering(official, xtreme, tmp_path):
    again = register(
        "xtreme", official / "xtreme", METRICS, allow_missing=True, name="xtreme_small"
    )
    assert again == xtreme
    with pytest.raises(UserError, match="'xtreme_small' is registered for other files"):
        register("xglue", official / "xglue", METRICS, allow_missing=True, name="xtreme_small")
    with pytest.raises(UserError, match="no files of xglue in"):
        register("xglue", tmp_path, METRICS, allow_missing=True)
    assert "xglue" not in seqio.MixtureRegistry.names()
