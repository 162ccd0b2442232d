"""Programs for NVIDIA GPUs, compiled by their compiler without one (`make test-cuda`)."""

import json

import pytest

from xlingjax.cli import main
from xlingjax.errors import UserError
from xlingjax.runtime import compilers


@pytest.fixture(autouse=True)
def _compiler():
    try:
        compilers.environment("cuda")
    except UserError as error:
        pytest.skip(f"{error}")


@pytest.mark.parametrize(
    ("machine", "dtype", "room"),
    [
        # Of V100s, whose matrix units know float16 alone.
        ("V100:8", ["--gin.DTYPE=float16", "--gin.optimizer.loss_scale=65536.0"], 25.6e9),
        ("H100:16", ["--gin.DTYPE=bfloat16"], 63.7e9),
    ],
)
def test_a_plan_says_what_the_compiler_says(tmp_path, machine, dtype, room):
    output = tmp_path / "plan.json"
    argv = ["plan", "--gin_file", "xlmr_base", "--on", machine, "--output", str(output)]
    assert main.main([*argv, *dtype, "--gin.LAYERS=2", "--gin.BATCH=128"]) == 0
    [record] = json.loads(output.read_text(encoding="utf-8"))
    [mlm] = record["programs"]
    assert record["room"] == pytest.approx(room, rel=0.01)
    # Before it was compiled.
    assert sum(mlm["estimated"].values()) == pytest.approx(mlm["peak"], rel=0.2)
    assert mlm["collectives"].keys() == {"all-reduce"}
    assert mlm["collectives"]["all-reduce"]["bytes"] > mlm["bytes"]["parameters"]
    assert mlm["flops"]["computed"] == pytest.approx(mlm["flops"]["useful"], rel=0.05)
    assert mlm["bound"]["links"] > 0


def test_half_precision_without_a_loss_scale_is_refused(tmp_path, capsys):
    argv = ["plan", "--gin_file", "xlmr_base", "--on", "V100:8", "--gin.DTYPE=float16"]
    assert main.main(argv) == 2
    assert "without a loss scale" in capsys.readouterr().err
