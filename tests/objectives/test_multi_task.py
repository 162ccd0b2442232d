"""Several tasks on one encoder, each with a head of its own."""

import dataclasses
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tests.helpers import tiny_run, toy
from xlingjax.config import recipe as recipes
from xlingjax.config.multi_task import multi_task, multi_task_accuracy
from xlingjax.errors import UserError
from xlingjax.evaluation.classification import predict
from xlingjax.model.build import count_parameters
from xlingjax.model.config import ModelConfig
from xlingjax.model.encoder import Encoder
from xlingjax.model.params import flattened
from xlingjax.model.partition import MeshConfig
from xlingjax.objectives.finetuning import Classification
from xlingjax.preprocessors.finetuning import Example, classification_rows
from xlingjax.training.loop import train
from xlingjax.training.optimizer import OptimizerConfig

TASKS = {"xnli": ("contradiction", "entailment", "neutral"), "pawsx": ("0", "1")}
COUNTS = (("pawsx", 2), ("xnli", 3))
CORPUS = SimpleNamespace(vocabulary=toy.ToyVocabulary(), languages=toy.LANGUAGES)


@pytest.fixture(scope="module", params=["xlm", pytest.param("pooler", marks=pytest.mark.long)])
def model(request):
    return toy.model(task_labels=COUNTS, classifier=request.param)


def batch(task: str, count: int = 6):
    texts, labels = toy.sentences(2 * count, seed=len(task)), TASKS[task]
    examples = [
        Example(texts[2 * i], texts[2 * i + 1], labels[i % len(labels)]) for i in range(count)
    ]
    rows = classification_rows(examples, CORPUS.vocabulary, 24, labels, 1)
    rows["example_weights"][-1] = 0
    return rows


@pytest.mark.long
def test_loss_against_numpy_and_zero_gradient_to_the_other_head(model):
    encoder, params = model
    for task, labels in COUNTS:
        objective, rows = Classification(labels, task=task), batch(task)

        def total(params, objective=objective, rows=rows):
            loss = objective.loss(encoder, params, rows, None, 3)
            return loss.terms[objective.name], loss

        grads, loss = jax.jit(jax.grad(total, has_aux=True))(params)
        x = np.asarray(encoder.encode(params, rows, objective.attention()), np.float64)[:, 0]
        head = params["classifiers"][task]
        if encoder.config.classifier == "pooler":
            x = np.tanh(x @ np.asarray(head["dense"]["kernel"]) + np.asarray(head["dense"]["bias"]))
        logits = x @ np.asarray(head["out"]["kernel"]) + np.asarray(head["out"]["bias"])
        nll = np.log(np.exp(logits).sum(1)) - logits[np.arange(6), rows["labels"]]
        assert {*loss.terms} == {*objective.coefficients} == {f"classification_{task}"}
        np.testing.assert_allclose(loss.terms[objective.name], nll[:5].sum(), rtol=1e-5)
        assert float(objective.weights(rows)[objective.name]) == 5
        assert (
            predict(encoder, params, rows, batch_size=4, task=task).tolist()
            == logits.argmax(1).tolist()
        )
        for name, gradient in flattened(grads).items():
            other = name.startswith("classifiers/") and not name.startswith(f"classifiers/{task}/")
            assert bool(np.any(gradient)) != (other or name.startswith("head/")), name


def test_microbatches_add_up(model):
    encoder, params = model
    objective, rows = Classification(3, task="xnli"), batch("xnli")
    loss_of = jax.jit(
        lambda rows: objective.loss(encoder, params, rows, None, 3).terms[objective.name]
    )
    parts = [loss_of({name: values[i::2] for name, values in rows.items()}) for i in range(2)]
    np.testing.assert_allclose(sum(parts), loss_of(rows), rtol=1e-5)


@pytest.mark.long
def test_first_token_heads_of_a_single_task_keep_their_paths_and_first_values():
    """Tasks add `classifiers/TASK/*` and change nothing else: not the head that stands alone, not
    the encoder."""
    plain = ModelConfig(**dataclasses.asdict(toy.model(num_labels=3, classifier="xlmr")[0].config))
    several = plain.replace(task_labels={"xnli": 3, "pawsx": 2})
    assert several.task_labels == COUNTS and (several.labels_of(), several.labels_of("pawsx")) == (
        3,
        2,
    )
    assert ModelConfig(**json.loads(json.dumps(dataclasses.asdict(several)))) == several
    before, after = (
        flattened(jax.jit(Encoder(c).init)(jax.random.key(0))) for c in (plain, several)
    )
    assert {*after} - {*before} == {
        f"classifiers/{task}/{layer}/{leaf}"
        for task in TASKS
        for layer in ("dense", "out")
        for leaf in ("kernel", "bias")
    }
    assert after["classifiers/pawsx/out/kernel"].shape == (16, 2)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    assert np.any(after["classifiers/pawsx/dense/kernel"] != after["classifiers/xnli/dense/kernel"])
    assert count_parameters(several) - count_parameters(plain) == sum(
        value.size for name, value in after.items() if name not in before
    )


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: multi_task(CORPUS, labels={"xnli": "a b"}), "give two tasks or more"),
        (
            lambda: multi_task(CORPUS, "x-{language}.tsv", labels=TASKS),
            r"write \{task\} where the task's name",
        ),
        (
            lambda: multi_task(CORPUS, "{task}-{language}", labels=TASKS, weights={"xnli": 1}),
            "TASK_WEIGHTS are of xnli and TASK_LABELS of xnli, pawsx",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two tasks that can be learnt: the class is told by the first word of the premise, or of the
    hypothesis."""
    folder = tmp_path_factory.mktemp("tasks")
    for task, labels in TASKS.items():
        for language in ("de", "en"):
            texts = toy.sentences(160, seed=len(language + task), longest=4)
            lines = []
            for i in range(80):
                label, sides = i % len(labels), [texts[2 * i], texts[2 * i + 1]]
                sides[task == "pawsx"] = f"{'xyz'[label]} {sides[task == 'pawsx']}"
                lines.append("\t".join([*sides, labels[label]]) + "\n")
            (folder / f"{task}-{language}.tsv").write_text("".join(lines))
    return f"{folder}/{{task}}-{{language}}.tsv"


def trained(workdir, files, steps, mesh=1, **options):
    objectives = multi_task(
        CORPUS, files, labels=TASKS, weights={"xnli": 3, "pawsx": 2}, batch=8, length=16
    )
    return train(
        workdir=workdir,
        model=toy.model(task_labels=COUNTS)[0].config,
        objectives=objectives,
        steps=steps,
        mesh=MeshConfig(mesh, 1, 1),
        log_every=50,
        **options,
        optimizer=OptimizerConfig(learning_rate=1e-2, schedule="linear", warmup_steps=1, eps=1e-3),
    )


@pytest.mark.long
def test_a_run_of_two_tasks_learns_both(tmp_path, files):
    tested = multi_task_accuracy(CORPUS, files, labels=TASKS, split="test", length=16)
    result = trained(tmp_path, files, 200, evaluators=tested())
    assert {*result.evaluations} == {"xnli_test", "pawsx_test"}
    for name, values in result.evaluations.items():
        assert {*values["by_language"]} == {"de", "en"} and values["en"] > 0.9, (name, values)
    assert {*result.metrics} == {"classification_xnli", "classification_pawsx"}
    assert result.metrics["classification_pawsx"]["accuracy"] > 0.9
    assert json.loads((tmp_path / "run.json").read_text())["model"]["task_labels"] == [
        ["pawsx", 2],
        ["xnli", 3],
    ]
    again = trained(tmp_path, files, 200)  # of equal identity, read back from JSON
    assert again.steps == 200


@pytest.mark.long
def test_eight_devices_and_microbatches_take_the_same_steps(tmp_path, files):
    one, eight = (
        tiny_run.flat(trained(tmp_path / str(mesh), files, 4, mesh, microbatches=parts).params)
        for mesh, parts in ((1, 2), (8, 1))
    )
    for name, value in one.items():
        np.testing.assert_allclose(eight[name], value, atol=1e-5, err_msg=name)


def test_the_recipe_layer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    record = {"model": dataclasses.asdict(toy.model()[0].config), "languages": toy.LANGUAGES}
    (tmp_path / "run" / "run.json").write_text(
        json.dumps(record | {"config": {"vocabulary": "vocab"}})
    )
    layers = ["runs/finetune.gin", "runs/multi_task.gin", "optim/adamw_linear.gin", "mesh/data.gin"]
    given = [
        "INIT_FROM=run",
        "TRAIN_STEPS=4",
        "TRAIN_FILES={task}-{language}",
        "TEST_FILES={task}-{language}",
    ]
    given += [
        "TASK_LABELS={'xnli': 'a b c', 'pawsx': '0 1'}",
        "TASK_WEIGHTS={'xnli': 392702, 'pawsx': 49401}",
    ]
    bound = recipes.read_recipe(layers, [*given, "SCHEDULE=weighted"]).bound
    assert (bound["model"].task_labels, bound["model"].num_labels) == (COUNTS, 0)
    names = [(run.objective.name, run.objective.task, run.weight) for run in bound["objectives"]]
    assert names == [
        ("classification_xnli", "xnli", 392702),
        ("classification_pawsx", "pawsx", 49401),
    ]
    assert (bound["schedule"], len(bound["evaluators"])) == ("weighted", 2)
