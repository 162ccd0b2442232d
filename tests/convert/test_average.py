"""The mean of several checkpoints is NumPy's, and what is not there is asked for in vain."""

import json
import shutil

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
    [(("--last", "2"), (10, 30)), (("--steps", "30,2"), (2, 30)), (("--last", "3"), STEPS)],
)
def test_the_mean(options, steps, run, tmp_path, capsys):
    folder, given = run
    output = tmp_path / "mean"
    assert main.main(["average", str(folder), *options, "--output", str(output)]) == 0
    names = ", ".join(map(str, steps))
    assert (
        capsys.readouterr().out.strip()
        == f"{output}: the mean of {len(steps)} checkpoints of {folder}: steps {names}"
    )
    mean = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *(given[step] for step in steps))
    found, new = load_params(f"{output}@{steps[-1]}", jax.tree.map(jax.numpy.zeros_like, mean))
    assert not new
    expected = tiny_run.flat(mean)
    for name, value in tiny_run.flat(found).items():
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, expected[name], atol=1e-6, err_msg=name)
    record = json.loads((output / "run.json").read_text())
    assert record["averaged"] == {"run": str(folder), "steps": list(steps)}
    assert record["model"] == json.loads((folder / "run.json").read_text())["model"]
    assert (output / "vocab.model").read_bytes() == b"pieces" and "# a recipe" in (
        output / "config.gin"
    ).read_text()


@pytest.mark.parametrize(
    "options, message",
    [
        (("--last", "4"), "has the checkpoints 2, 10, 30; name some of them"),
        (("--last", "0"), "--last: '0' is not a whole number above 0"),
        ((), "name some of them"),
        (("--steps", "2,5,30"), "--steps 2,5,30: "),
        (("--steps", "last"), "'last' is not a list of steps like 1000,2000"),
        (("--steps", "2", "--last", "1"), "leave out either"),
    ],
)
def test_refusals(options, message, run, tmp_path, capsys):
    assert main.main(["average", str(run[0]), *options, "--output", str(tmp_path / "mean")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line and not (tmp_path / "mean").exists()


def test_what_is_there_stays(run, tmp_path, capsys):
    (tmp_path / "file").write_text("kept")
    for output, given in (
        (tmp_path, run[0]),
        (tmp_path / "file", run[0]),
        (tmp_path / "new", tmp_path / "nowhere"),
        (run[0] / "checkpoints/9", run[0]),
    ):
        assert main.main(["average", str(given), "--last", "2", "--output", str(output)]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        told = ("is not empty; choose", "no checkpoint in", "lies among the checkpoints of")
        assert any(message in line for message in told)
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize(
    "spoil, why", [("bytes", "line 2: not UTF-8"), ("folder", "cannot be read")]
)
def test_a_recipe_that_cannot_be_read(spoil, why, run, tmp_path, capsys):
    """Once a traceback, and a mean without a recipe."""
    folder = tmp_path / "run"
    shutil.copytree(run[0], folder)
    recipe = folder / "config.gin"
    if spoil == "bytes":
        recipe.write_bytes(b"# a recipe\n\xff")
    else:
        recipe.unlink()
        recipe.mkdir()
    words = ["average", str(folder), "--last", "1", "--output", str(tmp_path / "mean")]
    assert main.main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {recipe}") and why in error and error.count("\n") == 1
    assert not (tmp_path / "mean").exists()
