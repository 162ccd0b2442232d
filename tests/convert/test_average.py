"""The mean of several checkpoints is NumPy's, and what is not there is asked for in vain."""

import json

import jax
import numpy as np
import pytest

from tests.helpers import tiny_run, written_run
from xlingjax.cli import main
from xlingjax.model.build import build_model
from xlingjax.model.config import preset
from xlingjax.training.checkpoint_params import load_params

MODEL = preset("tiny", layers=1, dim=16, heads=2, ffn=32, vocab_size=96, decoder_layers=1)
STEPS = (2, 10, 30)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(workdir, {step: parameters})"""
    folder, given = tmp_path_factory.mktemp("run") / "run", {}
    for step in STEPS:
        rng = np.random.default_rng(step)
        draw = lambda x, rng=rng: rng.normal(0, 1, x.shape).astype(np.float32)  # noqa: E731
        given[step] = jax.tree.map(draw, build_model(MODEL).abstract())
        written_run.write(folder, MODEL, given[step], step)
    (folder / "config.gin").write_text("# a recipe")
    (folder / "vocab.model").write_bytes(b"pieces")
    return folder, given


@pytest.mark.parametrize(
    "options, steps",
    [(("--last", "2"), (10, 30)), (("--steps", "30", "2"), (2, 30)), (("--last", "3"), STEPS)],
)
def test_the_mean(options, steps, run, tmp_path, capsys):
    folder, given = run
    output = tmp_path / "mean"
    assert main.main(["average", str(folder), *options, "--to", str(output)]) == 0
    assert (
        f"{output}: mean of {len(steps)} checkpoints: {folder}/checkpoints/"
        in capsys.readouterr().out
    )
    mean = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *(given[step] for step in steps))
    found, new = load_params(f"{output}@{steps[-1]}", jax.tree.map(jax.numpy.zeros_like, mean))
    assert not new
    expected = tiny_run.flat(mean)
    for name, value in tiny_run.flat(found).items():
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, expected[name], atol=1e-6, err_msg=name)
    record = json.loads((output / "run.json").read_text())
    names = [f"{folder}/checkpoints/{step}" for step in steps]
    assert record["averaged"] == {"checkpoints": names, "method": "mean", "base": None}
    assert record["model"] == json.loads((folder / "run.json").read_text())["model"]
    assert (output / "vocab.model").read_bytes() == b"pieces"
    assert "# a recipe" in (output / "config.gin").read_text()


def test_runs_are_merged_by_ties(run, tmp_path):
    """By hand, weight by weight: of each model the largest fifth of its changes stays, of those the
    ones of the stronger sign, whose mean is added."""
    folder, given = run
    first = tiny_run.flat(given[2])
    rng = np.random.default_rng(0)
    learnt = []
    for number in range(3):
        change = {name: rng.normal(0, 1, leaf.shape) for name, leaf in first.items()}
        learnt.append({name: change[name].astype(np.float32) for name in first})
        values = [first[name] + learnt[-1][name] for name in first]
        params = jax.tree.unflatten(jax.tree.structure(given[2]), values)
        written_run.write(tmp_path / str(number), MODEL, params)
    runs = [str(tmp_path / str(number)) for number in range(3)]
    options = ["--method", "ties", "--base", f"{folder}@2", "--to", str(tmp_path / "merged")]
    assert main.main(["average", *runs, *options]) == 0
    wanted = jax.tree.map(jax.numpy.zeros_like, given[2])
    found, _ = load_params(tmp_path / "merged", wanted)
    sizes = [np.concatenate([abs(x).ravel() for x in one.values()]) for one in learnt]
    limits = [np.quantile(one, 0.8) for one in sizes]
    for name, leaf in tiny_run.flat(found).items():
        for place in list(np.ndindex(leaf.shape))[:50]:
            kept = [float(one[name][place]) for one in learnt]
            kept = [x for x, limit in zip(kept, limits, strict=True) if abs(x) > limit]
            kept = [x for x in kept if x * sum(kept) > 0]
            expected = first[name][place] + (sum(kept) / len(kept) if kept else 0)
            np.testing.assert_allclose(leaf[place], expected, atol=2e-6)
    other = ["average", runs[0], str(tmp_path / "other"), "--to", str(tmp_path / "no")]
    model = MODEL.replace(norm_order="pre")
    written_run.write(tmp_path / "other", model, jax.tree.map(np.zeros_like, given[2]))
    assert main.main(other) == 2


@pytest.mark.parametrize(
    "options, message",
    [
        (("--last", "4"), "has the checkpoints 2, 10, 30; name some of them"),
        (("--last", "0"), "--last: '0' is not a whole number above 0"),
        ((), "name some of them"),
        (("--steps", "2", "5", "30"), "--steps 2 5 30: "),
        (("--steps", "last"), "'last' is not a whole number"),
    ],
)
def test_refusals(options, message, run, tmp_path, capsys):
    assert main.main(["average", str(run[0]), *options, "--to", str(tmp_path / "mean")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line and not (tmp_path / "mean").exists()
