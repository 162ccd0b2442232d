"""What a run writes, and what it refuses."""

import dataclasses
import json
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import tiny, tiny_run
from tests.helpers.sources import array_source
from xlingjax.data.batches.loader import Batches
from xlingjax.data.features import batch_shapes
from xlingjax.errors import UserError
from xlingjax.model.config import preset
from xlingjax.model.encoder import Encoder
from xlingjax.objectives.veco import VECO
from xlingjax.objectives.xlm import MLM
from xlingjax.runtime.lock import alone_in
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.training.checkpoint_params import load_params
from xlingjax.training.evaluator import Evaluator
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.loop import ADDED, CheckpointConfig
from xlingjax.training.optimizer import OptimizerConfig

ONLY_LAST = CheckpointConfig(every=0)


class Probe(Evaluator):
    name = "probe"

    def __init__(self, values=None):
        self.values, self.calls = values, []

    def __call__(self, model, params, step, mesh):
        self.calls.append(step)
        table = float(np.asarray(params["embeddings"]["tokens"]["embedding"]).std())
        return {
            "std": table,
            "value": (self.values or {}).get(step, 0.0),
            "by_language": {"de": 1.5},
            "grid": [[1, 2]],
        }

    def verdict(self, values):
        return f"{values['probe'].get('value', 0):g} of 7"


def tokens(taken):
    """Of the first batches of each objective, of five in turn. taken: [(objective, how many)]."""
    batches = [tiny.batch(name, i % 5) for name, count in taken for i in range(count)]
    return sum((batch["pack_ids"] > 0).sum() for batch in batches)


@pytest.mark.long
def test_files_of_a_run(tmp_path, capsys):
    probe = Probe({4: -1.0})
    kept = CheckpointConfig(every=2, keep_best=1, best_metric="probe/value")
    config = {"recipe": "tiny"}
    options = dict(steps=7, evaluators=[probe], checkpoint=kept)
    result = tiny_run.run(tmp_path, **options, log_every=3, eval_every=4, extra_config=config)
    assert probe.calls == [4, 7]
    lines = tiny_run.lines(tmp_path)
    # Log lines at every third step, at checkpoints (every second), and at the end; one per
    # objective that ran.
    assert sorted({line["step"] for line in lines}) == [2, 3, 4, 6, 7]
    assert sum(line["steps"] for line in lines) == 7
    # Weights 1 : 2 make the cycle tlm, mlm, tlm, from step 0 on.
    assert sum(line["steps"] for line in lines if line["objective"] == "tlm") == 5
    assert lines[-1]["tokens_seen"] == tokens([("mlm", 2), ("tlm", 5)])
    line = lines[0]
    np.testing.assert_allclose(line["perplexity"], np.exp(line["loss"]))
    assert line["accuracy"] <= 1 and line["tokens_per_second"] > 0 and line["grad_norm"] > 0
    # Of the second step.
    np.testing.assert_allclose(line["learning_rate"], 1e-7 + (3e-3 - 1e-7) / 3, rtol=1e-5)
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["languages"] == list(tiny.LANGUAGES) and run["config"] == config
    assert run["identity"]["data"]["mlm"] == {"vocabulary": {"sha256": "abc"}}
    assert run["sessions"][0]["versions"]["jax"] == jax.__version__
    totals = json.loads((tmp_path / "result.json").read_text())
    assert totals["evaluations"]["probe"]["grid"] == [[1, 2]] and totals["peak_memory_bytes"] > 1e6
    assert set(totals["compile_seconds"]) == {"mlm", "tlm"}
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["4", "6", "7"]
    assert totals["best"] == {"probe/value": {"step": 4, "value": -1.0}}
    # Its last line, which is written behind the result, counts too.
    assert totals["hashes"]["log.txt"][0] == (tmp_path / "log.txt").stat().st_size
    assert list((tmp_path / "tensorboard").iterdir())
    said = capsys.readouterr().out.splitlines()
    assert any(line.startswith("weights: random (seed 3)") for line in said)
    # The verdict before the last line.
    assert said[-2:] == ["0 of 7", "finished at step 7"]
    assert result.metrics["tlm"]["loss"] < 5.5
    assert result.evaluations["probe"]["by_language"] == {"de": 1.5}
    # A finished run that is started again does nothing.
    again = tiny_run.run(tmp_path, **options)
    assert (again.steps, again.exit_reason, probe.calls) == (7, "finished", [4, 7])
    assert json.loads((tmp_path / "result.json").read_text()) == totals


@pytest.mark.long
def test_summed_objectives_have_a_line_each_of_every_step(tmp_path):
    tiny_run.run(tmp_path, steps=4, schedule="summed", log_every=4, checkpoint=ONLY_LAST)
    mlm, tlm = tiny_run.lines(tmp_path)
    assert [(line["objective"], line["steps"]) for line in (mlm, tlm)] == [("mlm", 4), ("tlm", 4)]
    assert mlm["total"] == tlm["total"] > 1.5 * mlm["loss"] and mlm["loss"] != tlm["loss"]
    assert tlm["tokens_seen"] == tokens([("mlm", 4), ("tlm", 4)])


@pytest.mark.long
def test_a_log_line_is_of_one_stage(tmp_path):
    """VECO's terms change at step 3, within the interval of a log line."""
    source = array_source([tiny.batch("veco")], languages=tiny.LANGUAGES)
    stages = {
        begin: ObjectiveRun(VECO(plug_out=plugged), lambda: source)
        for begin, plugged in ((0, False), (3, True))
    }
    model = dataclasses.replace(base_config(), cross_attention=True)
    options = dict(model=model, objectives=[stages], log_every=4, checkpoint=ONLY_LAST)
    tiny_run.run(tmp_path, steps=6, **options)
    lines = tiny_run.lines(tmp_path)
    assert [(line["step"], line["steps"]) for line in lines] == [(3, 3), (4, 1), (6, 2)]
    assert ["veco_plug_out_x/loss" in line for line in lines] == [False, True, True]


@pytest.mark.long
def test_nan_batches_are_skipped_counted_and_the_last_one_saved(tmp_path, capsys):
    """Of 5 batches in turn the last three are poisoned: two good steps, then three bad ones reach
    the limit."""

    def poisoned(name, seed):
        batch = tiny.batch(name, seed)
        bad = {"masked_weights": batch["masked_weights"] * np.float32("nan")}
        return batch if seed < 2 else batch | bad

    options = dict(objectives=("mlm",), batch=poisoned, steps=9, checkpoint=ONLY_LAST)
    with pytest.raises(UserError, match=r"step 4 \(mlm\): 3 updates in a row .*bad_batch-4.npz"):
        tiny_run.run(tmp_path, max_bad_steps=3, **options)
    saved = np.load(tmp_path / "bad_batch-4.npz")
    np.testing.assert_array_equal(saved["input_ids"], tiny.batch("mlm", 4)["input_ids"])
    assert np.isnan(saved["masked_weights"]).any()
    assert "step 2 (mlm): update skipped for a loss or gr" in capsys.readouterr().out
    # Under the limit the run goes on: of 9 steps those on batches 2, 3, 4 and 2, 3 are skipped.
    result = tiny_run.run(tmp_path / "b", max_bad_steps=4, **options)
    assert json.loads((tmp_path / "b" / "result.json").read_text())["skipped"] == 5
    assert all(np.isfinite(leaf).all() for leaf in tiny_run.flat(result.params).values())
    skipped = [line["skipped"] for line in tiny_run.lines(tmp_path / "b")]
    assert skipped == [0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert "finished at step 9, 5 updates of it skipped" in (tmp_path / "b/log.txt").read_text()


@pytest.mark.long
def test_a_run_whose_every_update_was_skipped_has_not_finished(tmp_path):
    """The scale of float16 falls by half a step, and these are too few."""
    half = dict(
        model=base_config(dtype="float16"),
        optimizer=OptimizerConfig(learning_rate=1e-3, loss_scale=2.0**40),
    )
    # Started again it is no other.
    for _ in range(2):
        with pytest.raises(UserError, match="none of 4 updates was made, nothing is learnt"):
            tiny_run.run(tmp_path, steps=4, objectives=("mlm",), **half)
    assert not (tmp_path / "result.json").exists()


def test_init_from_takes_parameters_and_names_what_is_new(tiny_finished, tmp_path, capsys):
    base, result = tiny_finished
    expected = tiny_run.flat(result.params)
    tuned = tiny_run.run(
        tmp_path,
        steps=1,
        objectives=("mlm",),
        model=base_config(num_labels=3),
        init_from=base,
        optimizer=OptimizerConfig(frozen=("^(?!classifier/|head/bias)",)),
        checkpoint=ONLY_LAST,
    )
    found = tiny_run.flat(tuned.params)
    for name in expected.keys() - {"head/bias"}:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    new = sorted(found.keys() - expected.keys())
    assert new and all(name.startswith("classifier/") for name in new)
    assert f"weights: {base}, new and random: {', '.join(new)}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "part", ["cross_attention", "word_recovery", "paraphrase", "classifier", "classifiers"]
)
def test_what_an_objective_adds_may_be_missing(part, tiny_finished):
    """Unicoder and VECO start from a masked LM, which has none of it."""
    base, result = tiny_finished
    added = {
        "classifier": {"num_labels": 3},
        "classifiers": {"task_labels": {"xnli": 3, "pawsx": 2}},
    }
    model = Encoder(base_config(**added.get(part, {part: True})))
    before = tiny.params(model, 7)
    loaded, new = load_params(base, before, ADDED)
    ours, random, theirs = map(tiny_run.flat, (loaded, before, result.params))
    assert new and {*new} == ours.keys() - theirs.keys() and all(part in name for name in new)
    for name, value in ours.items():
        expected = random if name in new else theirs
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_init_from_refuses_what_does_not_fit(tiny_finished, tmp_path):
    def load(folder, vocabulary=None, **changes):
        shapes = Encoder(base_config(**changes)).abstract()
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape), shapes)
        return load_params(folder, zeros, ("classifier/",), vocabulary)

    base, result = tiny_finished
    loaded, new = load(base, {"sha256": "abc"})
    jax.tree.map(np.testing.assert_array_equal, loaded, result.params)
    assert new == []
    with pytest.raises(
        UserError, match=r"embeddings/tokens/embedding: checkpoint \(128, 16\), model \(256, 16\)"
    ):
        load(base, vocab_size=200)
    with pytest.raises(UserError, match="was trained on another vocabulary .*set VOCABULARY"):
        load(base, {"sha256": "xyz"})
    with pytest.raises(UserError, match="head/dense/kernel is missing"):
        load(base, head="transform")
    with pytest.raises(UserError, match="no checkpoint in .*nowhere"):
        load(tmp_path / "nowhere")


def base_config(**changes):
    options = dict(
        layers=1, dim=16, heads=2, ffn=32, vocab_size=tiny.VOCAB, max_positions=32, num_languages=3
    )
    return preset("tiny", **{**options, "dropout": 0.2, "attention_dropout": 0.0, **changes})


UNOPENED = ObjectiveRun(
    MLM(), Batches(batch_shapes(MLM().reads, batch=8, length=40, slots=3), lambda: [][0])
)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mesh": (3, 1, 1)}, "mlm: a batch of 8 rows does not divide by 1 .* x 3 devices"),
        ({"microbatches": 16}, "8 rows does not divide by 16 microbatches .* a multiple of 16"),
        ({"microbatches": 0}, "MICROBATCHES=0: a batch is at least one"),
        ({"model": base_config(attention_backend="flash")}, "flash needs a TPU"),
        ({"mesh": (4, 4, 4)}, "does not fit 8 devices"),
        ({"model": base_config(max_positions=12)}, "has 12; lower LENGTH .*max_positions=16"),
        ({"model": base_config(dtype="float16")}, "float16 .* set optimizer.loss_scale=65536"),
        ({"model": base_config(num_languages=2)}, "has 3 languages, model.num_languages is 2"),
        # Before any text is read, where the shapes are known by then.
        ({"objectives": [UNOPENED]}, "rows of 40 tokens"),
        ({"objectives": ("mlm", "mlm")}, "objectives of different names"),
        ({"runtime": RuntimeConfig(platform="abacus")}, "'abacus' is not one of cpu, gpu, tpu"),
        (
            {"batch": lambda name, i: {"input_ids": np.zeros((8, 4), np.int32)}},
            "mlm reads 'position_ids'",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_refusals_before_the_first_step(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        tiny_run.run(tmp_path, **options)
    assert not (tmp_path / "metrics.jsonl").exists() and not (tmp_path / "run.json").exists()


def test_workdir_without_permission_or_space(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file/run: cannot be written .*; choose another folder"):
        tiny_run.run(tmp_path / "file" / "run")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 100_000))
    with pytest.raises(
        UserError, match=r"workdir .* has 0.1 MB free, .*; make room or choose another --to"
    ):
        tiny_run.run(tmp_path / "full")


def test_a_second_run_in_a_workdir_is_refused_and_changes_nothing(tmp_path):
    with alone_in(tmp_path):
        (tmp_path / "metrics.jsonl").write_text('{"step": 9}\n')
        before = sorted(path.name for path in tmp_path.iterdir())
        with pytest.raises(UserError, match=f"is in use: process {os.getpid()} on .*--to"):
            tiny_run.run(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 9}\n'


class Exhausted(Probe):
    def __call__(self, *_):
        raise jax.errors.JaxRuntimeError(
            "RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes.\nbuffers ..."
        )


def test_out_of_memory_names_what_to_change(tmp_path):
    options = {"steps": 1, "objectives": ["mlm"], "checkpoint": ONLY_LAST}
    with pytest.raises(UserError, match="^out of device memory: RES.*; raise MICROBATCHES "):
        tiny_run.run(tmp_path, evaluators=[Exhausted()], **options)
    # What was trained is not lost with the evaluation that failed.
    assert tiny_run.run(tmp_path, evaluators=[Probe()], **options).steps == 1
    assert "checkpoint 1 of" in (tmp_path / "log.txt").read_text()


@pytest.mark.long
def test_a_run_that_goes_on_says_what_of_its_course_is_another(tmp_path, capsys):
    tiny_run.run(tmp_path, steps=2, objectives=("mlm",))
    tiny_run.run(tmp_path, steps=2, objectives=("mlm",))
    assert "note:" not in capsys.readouterr().out
    tiny_run.run(tmp_path, steps=4, objectives=("mlm",))
    assert "note: steps is 4, was 2, from step 2 on" in capsys.readouterr().out


def test_a_run_that_goes_on_has_no_result_until_it_ends(tmp_path):
    """What an earlier, shorter start left would hide from the report that the run still goes."""
    result = tmp_path / "result.json"

    class Looks(Probe):
        def __call__(self, *arguments):
            self.calls.append(result.exists())
            return {}

    looks = Looks()
    tiny_run.run(tmp_path, steps=2, objectives=("mlm",))
    assert json.loads(result.read_text())["steps"] == 2
    tiny_run.run(tmp_path, steps=4, objectives=("mlm",), evaluators=[looks], eval_every=1)
    assert looks.calls == [False, False, False]  # steps 2, which nothing had measured, 3 and 4
    assert json.loads(result.read_text())["steps"] == 4
    tiny_run.run(tmp_path, steps=3, objectives=("mlm",))  # nothing to do: keeps what it has
    assert json.loads(result.read_text())["steps"] == 4
