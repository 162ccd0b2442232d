"""Programs for NVIDIA GPUs, compiled by their compiler without one (`make test-cuda`)."""

import json
import re
import subprocess
import sys

import pytest

from xlingjax.cli import main
from xlingjax.errors import UserError
from xlingjax.workflows.plan import machines as compilers


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
    argv = ["plan", "--gin-file", "xlmr_base", "--on", machine, "--to", str(output)]
    assert main.main([*argv, *dtype, "--gin.LAYERS=2", "--gin.BATCH=128"]) == 0
    [record] = json.loads(output.read_text(encoding="utf-8"))
    [mlm] = record["programs"]
    assert record["room"] == pytest.approx(room, rel=0.01)
    assert mlm["flops"] == pytest.approx(mlm["useful"], rel=0.05)
    assert mlm["bound"]["links"] > 0 and mlm["bound"]["memory"] > 0


def test_rows_for_which_triton_has_no_tiles(tmp_path, capsys):
    """64 rows of 511 target tokens in bfloat16: XLA refuses what it chose itself."""
    output = tmp_path / "plan.json"
    argv = ["plan", "--gin-file", "xdae", "--on", "A100:1", "--gin.DTYPE=bfloat16"]
    small = ["--gin.LAYERS=1", "--gin.VOCABULARY_SIZE=1000", "--gin.BATCH=64"]
    assert main.main([*argv, *small, "--to", str(output)]) == 0
    [record] = json.loads(output.read_text(encoding="utf-8"))
    assert record["programs"][0]["options"] == {"xla_gpu_enable_triton_gemm": False}
    assert "s, xla_gpu_enable_triton_gemm=false)" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["bidirectional", "camlm", "prefix", "pseudo_tokens_together"])
def test_masks_of_the_papers_with_dropout_in_kernels(tmp_path, name):
    """Forward and backward on a mesh of eight H100s; no device makes an array of [L, L]."""
    text = compiled_text(tmp_path, "H100:8", name)
    for kernel in ("flash_forward", "flash_queries", "flash_keys"):
        assert kernel in text
    # Behind the fusions, whose insides are never written to memory.
    assert not re.search(r"\[[\d,]*512,512\]", text[text.index("\nENTRY") :])


PROGRAM = """
import sys
import jax, jax.numpy as jnp
from xlingjax.model import masks
from xlingjax.model.attention import bind
from xlingjax.model.masks import Fields
from xlingjax.model.partition import MeshConfig, batch_sharding, make_mesh, replicated
from xlingjax.workflows.plan.machines import machine_named
from xlingjax.workflows.plan.machines import devices_of
machine, name, output = sys.argv[1:]
mesh = make_mesh(MeshConfig(4, 1, 2), devices_of(machine_named(machine)))
mask = getattr(masks, name)
def run(q, batch, key):
    fields = Fields.from_batch(batch)
    def total(q, k, v):
        return bind(mask, fields, fields, "flash", 0.1, mesh)(q, k, v, key).astype("f4").sum()
    return jax.value_and_grad(total, (0, 1, 2))(q, q, q)
def like(shape, dtype):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=batch_sharding(mesh))
key = jax.eval_shape(lambda: jax.random.key(0))
key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=replicated(mesh))
batch = {one: like((16, 512), "i4") for one in ("input_ids", "pack_ids", "sides", "is_mask")}
lowered = jax.jit(run).lower(like((16, 512, 4, 64), jnp.bfloat16), batch, key)
open(output, "w").write(lowered.compile().as_text())
"""


def compiled_text(tmp_path, machine, name):
    """In a process of its own, as `plan` does."""
    output = tmp_path / "program.txt"
    words = [sys.executable, "-c", PROGRAM, machine, name, str(output)]
    subprocess.run(words, env=compilers.environment("cuda"), check=True, capture_output=True)
    return output.read_text(encoding="utf-8")
