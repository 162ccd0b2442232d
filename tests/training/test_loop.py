"""What a run writes, and what it refuses."""

import dataclasses
import json
import os
import shutil
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import tiny, tiny_run
from xlingjax.data.batches.loader import Batches, array_source
from xlingjax.data.features import batch_shapes
from xlingjax.errors import UserError
from xlingjax.model.config import preset
from xlingjax.model.encoder import Encoder
from xlingjax.objectives.unicoder import DAN
from xlingjax.objectives.veco import VECO
from xlingjax.objectives.xlm import MLM
from xlingjax.runtime.lock import alone_in
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.training import step
from xlingjax.training.checkpoint_params import load_params
from xlingjax.training.evaluator import Evaluator
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.loop import ADDED, CheckpointConfig
from xlingjax.training.optimizer import OptimizerConfig


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


@pytest.mark.long
def test_files_of_a_run(tmp_path, capsys):
    probe = Probe({4: -1.0})
    kept = CheckpointConfig(every=2, keep_best=1, best_metric="probe/value")
    result = tiny_run.run(
        tmp_path,
        steps=7,
        log_every=3,
        evaluators=[probe],
        eval_every=4,
        extra_config={"recipe": "tiny"},
        checkpoint=kept,
    )
    assert probe.calls == [4, 7]
    lines = tiny_run.lines(tmp_path)
    # Log lines at every third step, at checkpoints (every second), and at the end; one per
    # objective that ran.
    assert sorted({line["step"] for line in lines}) == [2, 3, 4, 6, 7]
    assert sum(line["steps"] for line in lines) == 7
    # Weights 1 : 2 make the cycle tlm, mlm, tlm, from step 0 on.
    assert {line["objective"] for line in lines if line["step"] == 2} == {"mlm", "tlm"}
    assert sum(line["steps"] for line in lines if line["objective"] == "tlm") == 5
    taken = [("mlm", 0), ("mlm", 1), *(("tlm", i) for i in range(5))]
    assert lines[-1]["tokens_seen"] == sum(
        (tiny.batch(*which)["pack_ids"] > 0).sum() for which in taken
    )
    line = lines[0]
    assert (
        set(line["loss_by_language"]) <= set(tiny.LANGUAGES)
        and line["accuracy"] <= 1
        and line["skipped"] == 0
    )
    np.testing.assert_allclose(line["perplexity"], np.exp(line["loss"]))
    assert line["tokens_per_second"] > 0 and line["grad_norm"] > 0
    np.testing.assert_allclose(
        line["learning_rate"], 1e-7 + (3e-3 - 1e-7) / 3, rtol=1e-5
    )  # of the second step
    evaluations = tiny_run.lines(tmp_path, "evaluations.jsonl")
    assert [(line["step"], line["name"]) for line in evaluations] == [(4, "probe"), (7, "probe")]
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["languages"] == list(tiny.LANGUAGES) and run["config"] == {"recipe": "tiny"}
    assert run["identity"]["data"]["mlm"] == {"vocabulary": {"sha256": "abc"}}
    assert run["sessions"][0]["versions"]["jax"] == jax.__version__
    totals = json.loads((tmp_path / "result.json").read_text())
    assert totals["evaluations"]["probe"]["grid"] == [[1, 2]] and totals["peak_memory_bytes"] > 1e6
    assert set(totals["compile_seconds"]) == {"mlm", "tlm"}
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["4", "6", "7"]
    assert totals["best"] == json.loads((tmp_path / "best.json").read_text())
    assert totals["best"] == {"probe/value": {"step": 4, "value": -1.0}}
    assert list((tmp_path / "tensorboard").iterdir())
    assert "weights: random (seed 3)" in capsys.readouterr().out
    assert result.metrics["tlm"]["loss"] < 5.5 and result.evaluations["probe"]["by_language"] == {
        "de": 1.5
    }
    # A finished run that is started again does nothing.
    again = tiny_run.run(tmp_path, steps=7, evaluators=[probe], checkpoint=kept)
    assert (again.steps, again.exit_reason, probe.calls) == (7, "finished", [4, 7])
    assert json.loads((tmp_path / "result.json").read_text()) == totals


@pytest.mark.long
def test_summed_objectives_have_a_line_each_of_every_step(tmp_path):
    tiny_run.run(
        tmp_path, steps=4, schedule="summed", log_every=4, checkpoint=CheckpointConfig(every=0)
    )
    mlm, tlm = tiny_run.lines(tmp_path)
    assert [(line["objective"], line["steps"]) for line in (mlm, tlm)] == [("mlm", 4), ("tlm", 4)]
    assert mlm["total"] == tlm["total"] > 1.5 * mlm["loss"] and mlm["loss"] != tlm["loss"]
    taken = [(name, i) for name in ("mlm", "tlm") for i in range(4)]
    assert tlm["tokens_seen"] == sum((tiny.batch(*which)["pack_ids"] > 0).sum() for which in taken)
    totals = json.loads((tmp_path / "result.json").read_text())
    assert set(totals["compile_seconds"]) == {"mlm + tlm"}


@pytest.mark.long
def test_a_log_line_is_of_one_stage(tmp_path):
    """VECO's terms change at step 3, within the interval of a log line."""
    from xlingjax.data.batches.loader import array_source

    source = array_source([tiny.batch("veco")], languages=tiny.LANGUAGES)
    stages = {
        begin: ObjectiveRun(VECO(plug_out=plugged), lambda: source)
        for begin, plugged in ((0, False), (3, True))
    }
    model = dataclasses.replace(base_config(), cross_attention=True)
    tiny_run.run(
        tmp_path,
        steps=6,
        model=model,
        objectives=[stages],
        log_every=4,
        checkpoint=CheckpointConfig(every=0),
    )
    lines = tiny_run.lines(tmp_path)
    assert [(line["step"], line["steps"]) for line in lines] == [(3, 3), (4, 1), (6, 2)]
    assert ["veco_plug_out_x/loss" in line for line in lines] == [False, True, True]


@pytest.mark.long
def test_nan_batches_are_skipped_counted_and_the_last_one_saved(tmp_path, capsys):
    """Of 5 batches in turn the last three are poisoned: two good steps, then three bad ones reach
    the limit."""

    def poisoned(name, seed):
        batch = tiny.batch(name, seed)
        return (
            batch
            if seed < 2
            else batch | {"masked_weights": batch["masked_weights"] * np.float32("nan")}
        )

    options = dict(
        objectives=("mlm",), batch=poisoned, steps=9, checkpoint=CheckpointConfig(every=0)
    )
    with pytest.raises(UserError, match=r"step 4 \(mlm\): 3 updates in a row .*bad_batch-4.npz"):
        tiny_run.run(tmp_path, max_bad_steps=3, **options)
    saved = np.load(tmp_path / "bad_batch-4.npz")
    np.testing.assert_array_equal(saved["input_ids"], tiny.batch("mlm", 4)["input_ids"])
    assert np.isnan(saved["masked_weights"]).any()
    out = capsys.readouterr().out
    assert (
        "step 2 (mlm): update skipped for a loss or gradient that is not finite (1 in a row)" in out
    )
    # Under the limit the run goes on: of 9 steps those on batches 2, 3, 4 and 2, 3 are skipped.
    result = tiny_run.run(tmp_path / "b", max_bad_steps=4, **options)
    assert json.loads((tmp_path / "b" / "result.json").read_text())["skipped"] == 5
    assert all(np.isfinite(leaf).all() for leaf in tiny_run.flat(result.params).values())
    skipped = [line["skipped"] for line in tiny_run.lines(tmp_path / "b")]
    assert skipped == [0, 0, 1, 1, 1, 0, 0, 1, 1]


def test_init_from_takes_parameters_and_names_what_is_new(tiny_finished, tmp_path, capsys):
    base, result = tiny_finished
    expected = tiny_run.flat(result.params)
    tuned = tiny_run.run(
        tmp_path,
        steps=1,
        objectives=("mlm",),
        model=base_config(num_labels=3),
        init_from=base,
        optimizer=frozen_everything_but("classifier/|head/bias"),
        checkpoint=CheckpointConfig(every=0),
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
    ours, random, theirs = (
        tiny_run.flat(loaded),
        tiny_run.flat(before),
        tiny_run.flat(result.params),
    )
    assert new and {*new} == ours.keys() - theirs.keys() and all(part in name for name in new)
    for name, value in ours.items():
        np.testing.assert_array_equal(
            value, (random if name in new else theirs)[name], err_msg=name
        )


def test_init_from_refuses_what_does_not_fit(tiny_finished, tmp_path):
    def load(folder, vocabulary=None, **changes):
        zeros = jax.jit(
            lambda: jax.tree.map(
                lambda x: jnp.zeros(x.shape), Encoder(base_config(**changes)).abstract()
            )
        )
        return load_params(folder, zeros(), ("classifier/",), vocabulary)

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


def frozen_everything_but(pattern):
    return OptimizerConfig(
        learning_rate=1e-2, schedule="constant", warmup_steps=0, frozen=(f"^(?!{pattern})",)
    )


DAN_RUN = ObjectiveRun(DAN(), lambda: array_source([tiny.batch("tlm")], languages=tiny.LANGUAGES))


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"mesh": (3, 1, 1)},
            r"objective mlm: a batch of 8 rows does not divide by 1 .* x 3 devices",
        ),
        (
            {"microbatches": 16},
            r"a batch of 8 rows does not divide by 16 microbatches .* BATCH .* to a multiple of 16",
        ),
        ({"microbatches": 0}, "MICROBATCHES=0: a batch is at least one"),
        ({"eval_every": -1}, "EVAL_EVERY=-1: give a number of steps, or 0"),
        ({"model": base_config(attention_backend="cudnn")}, "cudnn"),
        ({"mesh": (4, 4, 4)}, "does not fit 8 devices"),
        (
            {"model": base_config(max_positions=12)},
            "use 16 positions and model .* has 12; lower LENGTH .*max_positions=16",
        ),
        ({"model": base_config(dtype="float16")}, "float16 .* set optimizer.loss_scale=65536"),
        (
            {"model": base_config(num_languages=2)},
            "the run has 3 languages, model.num_languages is 2",
        ),
        ({"objectives": ("mlm", "mlm")}, "objectives of different names"),
        (
            {"objectives": [DAN_RUN], "model": base_config(dan=8), "microbatches": 2},
            "objective dan compares the rows .* 2 microbatches .* set MICROBATCHES=1",
        ),
        (
            {"runtime": RuntimeConfig(platform="abacus")},
            "platform 'abacus' is not one of cpu, gpu, tpu",
        ),
        ({"schedule": "chance"}, "schedule 'chance' is not one of alternate"),
        (
            {"batch": lambda name, i: {"input_ids": np.zeros((8, 4), np.int32)}},
            "mlm reads 'position_ids' .*rows",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_refusals_before_the_first_step(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        tiny_run.run(tmp_path, **options)
    assert not (tmp_path / "metrics.jsonl").exists() and not (tmp_path / "run.json").exists()


def test_a_platform_that_is_not_there_is_never_replaced(tmp_path):
    """Tests run on CPU: the GPU must be missed, not silently replaced."""
    before = jax.config.jax_platforms
    try:
        with pytest.raises(
            UserError, match="platform 'gpu' was asked for, JAX runs on 'cpu'; install xlingjax"
        ):
            tiny_run.run(tmp_path, runtime=RuntimeConfig(platform="gpu"))
    finally:
        jax.config.update("jax_platforms", before)
    assert not (tmp_path / "run.json").exists()


def test_workdir_without_permission_or_space(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file/run: cannot be written .*; choose another folder"):
        tiny_run.run(tmp_path / "file" / "run")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 100_000))
    with pytest.raises(
        UserError, match=r"workdir .* has 0.1 MB free, .*; make room or choose another --workdir"
    ):
        tiny_run.run(tmp_path / "full")


def test_a_second_run_in_a_workdir_is_refused_and_changes_nothing(tmp_path):
    with alone_in(tmp_path):
        (tmp_path / "metrics.jsonl").write_text('{"step": 9}\n')
        before = sorted(path.name for path in tmp_path.iterdir())
        with pytest.raises(
            UserError,
            match=rf"{tmp_path} is in use: process {os.getpid()} on .*; let that end, or choose"
            " another --workdir",
        ):
            tiny_run.run(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 9}\n'


class Exhausted(Probe):
    def __call__(self, *_):
        raise jax.errors.JaxRuntimeError(
            "RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes.\nbuffers ..."
        )


def test_out_of_memory_names_what_to_change(tmp_path):
    options = {"steps": 1, "evaluators": [Exhausted()], "checkpoint": CheckpointConfig(every=0)}
    with pytest.raises(
        UserError,
        match="^out of device memory: RESOURCE_EXHAUSTED: Out of memory .*; raise"
        " MICROBATCHES .* `xlingjax plan --search`",
    ):
        tiny_run.run(tmp_path, objectives=["mlm"], **options)


def test_what_the_source_publishes_is_checked_before_it_is_opened(tmp_path):
    """Reading a large corpus takes long."""

    def source():
        raise AssertionError("opened")

    for options, message in (
        ({}, "rows of 40 tokens"),
        ({"mesh": (3, 1, 1)}, "8 rows does not divide"),
    ):
        shapes = batch_shapes(MLM().reads, batch=8, length=16 if options else 40, slots=3)
        objective = ObjectiveRun(MLM(), Batches(shapes, source))
        with pytest.raises(UserError, match=message):
            tiny_run.run(tmp_path, objectives=(objective,), **options)


@pytest.mark.long
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


def test_an_evaluation_that_fails_does_not_lose_the_training(tmp_path):
    class Broken(Probe):
        def __call__(self, *_):
            raise ValueError("a file of the evaluation is gone")

    only_last = CheckpointConfig(every=0)
    with pytest.raises(ValueError, match="is gone"):
        tiny_run.run(
            tmp_path, steps=3, objectives=("mlm",), evaluators=[Broken()], checkpoint=only_last
        )
    probe = Probe()
    again = tiny_run.run(
        tmp_path, steps=3, objectives=("mlm",), evaluators=[probe], checkpoint=only_last
    )
    assert again.steps == 3
    assert "checkpoint 3 of" in (tmp_path / "log.txt").read_text()


def test_the_verdict_is_said_before_the_last_line(tmp_path):
    class Judge(Probe):
        name = "judge"

        def verdict(self, values):
            return f"{values['judge']['value']:g} of 7"

    options = dict(objectives=("mlm",), evaluators=[Judge({2: 4.0}), Probe()], eval_every=1)
    tiny_run.run(tmp_path, steps=2, **options)
    lines = [line[20:] for line in (tmp_path / "log.txt").read_text().splitlines()]
    assert lines[-2:] == ["4 of 7", "finished at step 2"]


@pytest.mark.long
def test_all_seeds_share_one_program(tmp_path, monkeypatch):
    """The second seed of a sweep finds its step in the compile cache: the key is an argument, not a
    constant."""
    make, texts, keys = step.make_train_step, [], []

    def noted(**fixed):
        def lower(state, batch, key):
            lowered = make(**fixed).lower(state, batch, key)
            texts.append(lowered.as_text())
            keys.append(jax.random.key_data(key).tolist())
            return lowered

        return SimpleNamespace(lower=lower)

    monkeypatch.setattr(step, "make_train_step", noted)
    for seed in (3, 4):
        tiny_run.run(tmp_path / str(seed), objectives=("mlm",), steps=1, seed=seed)
    assert texts[0] == texts[1] and keys == [[0, 3], [0, 4]]
    losses = [tiny_run.lines(tmp_path / str(seed))[0]["loss"] for seed in (3, 4)]
    assert losses[0] != losses[1]


def test_the_result_has_the_hash_of_the_whole_log(tiny_finished):
    """Its last line, which is written behind the result, too."""
    base, _ = tiny_finished
    size, _ = json.loads((base / "result.json").read_text())["hashes"]["log.txt"]
    lines = (base / "log.txt").read_bytes()
    assert size == len(lines) and b" finished at step " in lines.splitlines()[-1]
