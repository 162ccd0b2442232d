"""A run on batches of several lengths: a program for each, and what holds for one length."""

import json

import numpy as np
import pytest

from tests.data.batches.test_labelled import TRANSLATED, source
from tests.helpers import tiny_run
from tests.preprocessors import test_task
from tests.preprocessors.test_task import Hashed
from xlingjax.data.batches.loader import Batches
from xlingjax.data.features import batch_shapes
from xlingjax.model.config import preset
from xlingjax.model.partition import MeshConfig
from xlingjax.objectives.finetuning import Classification
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.training.checkpoint import CheckpointConfig
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.loop import train
from xlingjax.training.optimizer import OptimizerConfig

folder = test_task.folder
LENGTH = 32
SIZES = dict(layers=1, dim=16, heads=2, ffn=32, vocab_size=Hashed().size, max_positions=LENGTH)
PLAIN = dict(dropout=0.0, attention_dropout=0.0, dtype="float32", unroll=1)
MODEL = preset("tiny", **SIZES, **PLAIN, num_labels=3, classifier="xlm")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path / "cache"))


def run(folder, workdir, steps=8, mesh=(1, 1, 1), **options):
    objective = Classification(3)

    def opened():
        return source(folder, "xnli", Reading(LENGTH), TRANSLATED, by_length=True)

    def shapes(length):
        return batch_shapes(objective.reads, batch=8, length=length)

    batches = Batches(shapes(LENGTH), opened, shortest=shapes(16))
    result = train(
        workdir=workdir,
        model=MODEL,
        objectives=[ObjectiveRun(objective, batches)],
        steps=steps,
        mesh=MeshConfig(*mesh),
        optimizer=OptimizerConfig(
            learning_rate=1e-2, schedule="constant", warmup_steps=0, eps=1e-4
        ),
        checkpoint=CheckpointConfig(every=3),
        log_every=1,
        hash_batches=True,
        **options,
    )
    return tiny_run.flat(result.params)


def lines(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.long
def test_microbatches_devices_and_a_restart_give_the_same(folder, tmp_path, capsys):
    whole = run(folder, tmp_path / "whole")
    # A length each, and no more.
    assert capsys.readouterr().out.count("compiled the classification step") == 2
    for name, options in {"k": {"microbatches": 2}, "mesh": {"mesh": (4, 2, 1)}}.items():
        other = run(folder, tmp_path / name, **options)
        for path, values in whole.items():
            np.testing.assert_allclose(other[path], values, atol=2e-5, err_msg=path)
    run(folder, tmp_path / "parts", steps=4)
    for path, values in run(folder, tmp_path / "parts").items():
        np.testing.assert_array_equal(values, whole[path], err_msg=path)
    hashes = [line["batch_hash"] for line in lines(tmp_path / "whole")]
    assert [line["batch_hash"] for line in lines(tmp_path / "parts")] == hashes
    # Tokens are those of the texts, however they are padded.
    batches = source(folder, "xnli", Reading(LENGTH), TRANSLATED, by_length=True)
    tokens = sum(int(batches.next()["pack_ids"].sum()) for _ in range(8))
    assert lines(tmp_path / "whole")[-1]["tokens_seen"] == tokens
    record = json.loads((tmp_path / "whole/run.json").read_text())
    assert record["shapes"]["classification"]["input_ids"] == [8, LENGTH]
