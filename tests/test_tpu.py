"""Programs for TPUs, compiled by their compiler without one: `make test-tpu` installs it (the wheel
libtpu)."""

import importlib.util
import json
import os
import re

import jax
import jax.numpy as jnp
import pytest

from tests.helpers import tiny
from xlingjax.cli import main
from xlingjax.model import masks
from xlingjax.model.attention import bind
from xlingjax.model.build import build_model
from xlingjax.model.config import preset
from xlingjax.model.masks import Fields
from xlingjax.model.partition import MeshConfig, batch_sharding, make_mesh, replicated, row_devices
from xlingjax.training.optimizer import OptimizerConfig, make_optimizer
from xlingjax.training.step import abstract_state, make_train_step

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu, the compiler of TPUs, is not installed: make test-tpu",
)

SIZES = ((1, 1, 1), (8, 1, 1), (1, 8, 1), (4, 1, 2))
ONE, DATA, FSDP, TENSOR = (MeshConfig(*sizes) for sizes in SIZES)
HEADS, HEAD_DIM = 4, 64
KERNELS = {"forward", "backward"}
"""Layers are looped over, so that a program has those of one."""


@pytest.fixture(scope="module")
def chips():
    """{number: devices}: 8 chips of a TPU v5e, and one. No program of theirs is kept: the cache
    could not read it."""
    from jax.experimental.topologies import get_topology_desc

    # Else it asks the cloud which machine this is, and lets one process at a time in.
    for name in ("TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD"):
        os.environ.setdefault(name, "1")
    kept_from = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e6)
    pod = get_topology_desc(platform="tpu", topology_name="v5e:2x4")
    alone = dict(topology_name="v5e:1x1", chips_per_host_bounds=[1, 1, 1])
    one = get_topology_desc(platform="tpu", **alone)
    yield {8: pod.devices, 1: one.devices}
    jax.config.update("jax_persistent_cache_min_compile_time_secs", kept_from)


def a_model(mesh, **overrides):
    sizes = dict(layers=2, dim=HEADS * HEAD_DIM, heads=HEADS, ffn=128, vocab_size=512)
    sizes |= dict(max_positions=512, num_languages=len(tiny.LANGUAGES), unroll=1)
    kind = dict(dtype="bfloat16", attention_backend="flash")
    return build_model(preset("tiny", **sizes, **kind, **overrides), mesh)


def abstract(mesh, objective, rows, length, source=None):
    """What the objective reads of a batch. source: tokens of a row's source, where they are not
    `length` too."""
    fields, lies = tiny.batch(objective.name, rows=rows, length=length), batch_sharding(mesh)
    shapes = {name: fields[name].shape for name in objective.reads}
    if source:
        shapes |= {name: (rows, source) for name in shapes if not name.startswith("decoder")}

    def placed(name):
        return jax.ShapeDtypeStruct(shapes[name], fields[name].dtype, sharding=lies)

    return {name: placed(name) for name in shapes}


def compiled_step(model, mesh, objective, batch, microbatches=1):
    """The program that a run compiles for a turn of the objective, as `training/loop.py` asks for
    it; as text."""
    config = OptimizerConfig()
    optimizer = make_optimizer(config, 10, model.abstract())
    state = abstract_state(mesh, model, optimizer, config)
    fixed = dict(model=model, objective=objective, optimizer=optimizer, config=config)
    fixed |= dict(languages=len(tiny.LANGUAGES), microbatches=microbatches)
    step = make_train_step(shardings=jax.tree.map(lambda x: x.sharding, state), **fixed)
    key = jax.eval_shape(lambda: jax.random.key(0))
    key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=replicated(mesh))
    return step.lower(state, batch, key).compile().as_text()


def kernels(program):
    """[(which, rows, heads, queries, keys)] of every kernel of a device's program, which has 2 rows
    or more."""
    found = []
    for line in program.splitlines():
        if 'custom_call_target="tpu_custom_call"' in line:
            which = re.search(r"%flash_([a-z]+)", line)[1]
            operands = line.split("operand_layout_constraints=")[1]
            shapes = re.findall(r"bf16\[(\d+),(\d+),(\d+)\]", operands)[:2]
            (rows, queries, lanes), (_, keys, _) = [map(int, one) for one in shapes]
            found.append((which, rows, lanes // HEAD_DIM, queries, keys))
    return found


@pytest.mark.parametrize(
    "name, mesh, rows, length, microbatches",
    [
        ("mlm", DATA, 16, 128, 1),
        ("mlm", FSDP, 16, 512, 1),
        ("clm", TENSOR, 8, 256, 1),
        ("clm", FSDP, 32, 128, 2),
        ("mlm", ONE, 4, 128, 1),
    ],
    ids=lambda value: (
        "x".join(map(str, vars(value).values())) if isinstance(value, MeshConfig) else None
    ),
)
def test_every_device_computes_the_attention_of_its_rows_and_heads(
    chips, name, mesh, rows, length, microbatches
):
    """Packed rows, forward and backward: the compiler takes the kernel, and no device has what is
    another's."""
    size = mesh.data * mesh.fsdp * mesh.tensor
    devices = make_mesh(mesh, chips[size])
    objective = tiny.objective(name)
    batch = abstract(devices, objective, rows, length)
    program = compiled_step(a_model(devices), devices, objective, batch, microbatches)
    own = rows // (mesh.data * mesh.fsdp) // microbatches, HEADS // mesh.tensor
    assert {*kernels(program)} == {(which, *own, length, length) for which in KERNELS}


@pytest.mark.long
@pytest.mark.parametrize("mesh, heads", [(DATA, 4), (TENSOR, 2)], ids=["data", "tensor"])
def test_a_decoder_has_kernels_for_itself_and_its_sources(chips, mesh, heads):
    mesh = make_mesh(mesh, chips[8])
    objective = tiny.objective("translation")
    batch = abstract(mesh, objective, 16, 128, source=256)
    found = kernels(compiled_step(a_model(mesh, decoder_layers=2), mesh, objective, batch))
    rows = 16 // row_devices(mesh)
    # Of the encoder, of the decoder, from the decoder to the encoder.
    lengths = {(256, 256), (128, 128), (128, 256)}
    assert {*found} == {(which, rows, heads, *pair) for which in KERNELS for pair in lengths}


def a_plan(tmp_path, *settings):
    """(status, record) of XLM-R base's plan for eight chips."""
    output = tmp_path / "plan.json"
    argv = ["plan", "--gin-file", "xlmr_base", "--on", "v5e:2x4", "--to", str(output)]
    status = main.main([*argv, *settings])
    [record] = json.loads(output.read_text(encoding="utf-8"))
    return status, record


def test_a_plan_says_what_the_compiler_says(tmp_path):
    status, record = a_plan(tmp_path, "--gin.LAYERS=2", "--gin.BATCH=128")
    [mlm] = record["programs"]
    assert status == 0 and record["fits"]
    assert mlm["bound"]["matrix"] > 0 and mlm["bound"]["memory"] > 0
    # The gradients of all parameters: in a ring of eight, seven eighths, twice.
    assert mlm["sent"]["8"] == pytest.approx(7 / 4 * mlm["bytes"]["parameters"], rel=0.01)


@pytest.mark.parametrize(
    ("name", "mesh", "length"),
    [
        ("bidirectional", ONE, 512),
        ("bidirectional", ONE, 1920),
        ("camlm", DATA, 512),
        ("prefix", FSDP, 4096),
        ("pseudo_tokens_together", TENSOR, 512),
    ],
    ids=lambda value: (
        "x".join(map(str, vars(value).values())) if isinstance(value, MeshConfig) else None
    ),
)
def test_masks_of_the_papers_with_dropout_in_one_kernel(chips, name, mesh, length):
    """Forward and backward, with heads of 64; no device makes an array of [L, L]."""
    size = mesh.data * mesh.fsdp * mesh.tensor
    devices = make_mesh(mesh, chips[size])
    rows, heads, width = 16, 4, 64
    batch = {field: (rows, length) for field in ("input_ids", "pack_ids", "sides", "is_mask")}
    mask = getattr(masks, name)

    def run(q, batch, key):
        fields = Fields.from_batch(batch)

        def total(q, k, v):
            bound = bind(mask, fields, fields, "flash", 0.1, devices)
            return bound(q, k, v, key).astype(jnp.float32).sum()

        return jax.value_and_grad(total, (0, 1, 2))(q, q, q)

    def like(shape, dtype):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=batch_sharding(devices))

    key = jax.eval_shape(lambda: jax.random.key(0))
    key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=replicated(devices))
    q = like((rows, length, heads, width), jnp.bfloat16)
    fields = {field: like(shape, jnp.int32) for field, shape in batch.items()}
    text = jax.jit(run).lower(q, fields, key).compile().as_text()
    of_a_device = rows // row_devices(devices), heads // mesh.tensor
    calls = [line for line in text.splitlines() if "custom-call(" in line]
    for kernel in ("flash_forward", "flash_backward"):
        [line] = [line for line in calls if f"%{kernel}" in line]
        # Two heads fill the lanes: nothing is padded or turned around.
        assert f"bf16[{of_a_device[0]},{length},{of_a_device[1] * width}]" in line
    assert not re.search(rf"\[[\d,]*{length},{length}\]", text)
