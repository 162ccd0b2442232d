"""Meshes and shardings; the table of a real model on a real mesh."""

import json
import math
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from xlingjax.errors import UserError
from xlingjax.model.config import preset
from xlingjax.model.encoder import Encoder
from xlingjax.model.params import path_names
from xlingjax.model.partition import (
    MeshConfig,
    batch_sharding,
    check_rows,
    make_mesh,
    param_shardings,
    state_shardings,
)


def test_mesh_sizes():
    assert dict(make_mesh().shape) == {"data": 8, "fsdp": 1, "tensor": 1}
    assert dict(make_mesh(MeshConfig(2, -1, 2)).shape) == {"data": 2, "fsdp": 2, "tensor": 2}
    assert make_mesh(MeshConfig(1, 2, 2)).devices.size == 4
    assert dict(make_mesh(MeshConfig(), jax.devices()[:3]).shape)["data"] == 3


@pytest.mark.parametrize("sizes", [(3, -1, 1), (4, 4, 1), (-1, -1, 1)])
def test_mesh_refusals(sizes):
    with pytest.raises(UserError, match="mesh data=.* does not fit 8 devices"):
        make_mesh(MeshConfig(*sizes))


@pytest.mark.parametrize("name", ["xlm_15", "xlmr_large"])
def test_shardings_are_the_golden_ones(name):
    """Every parameter on data 2 x fsdp 2 x tensor 2.

    `XLINGJAX_GOLDEN=write pytest tests/model/test_partition.py` writes them.
    """
    encoder = Encoder(preset(name, num_labels=3))
    shapes = encoder.abstract()
    shardings = param_shardings(make_mesh(MeshConfig(2, 2, 2)), encoder.logical_axes(), shapes)
    found = {
        path: f"{list(leaf.shape)} {tuple(s.spec)} -> {list(s.shard_shape(leaf.shape))}"
        for path, leaf, s in zip(
            path_names(shapes), jax.tree.leaves(shapes), jax.tree.leaves(shardings), strict=True
        )
    }
    golden = Path(__file__).parents[1] / "golden" / "shardings" / f"{name}.json"
    if os.environ.get("XLINGJAX_GOLDEN") == "write":
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(golden.read_text())
    sizes = [leaf.size for leaf in jax.tree.leaves(shapes)]
    shards = [
        math.prod(s.shard_shape(x.shape))
        for s, x in zip(*map(jax.tree.leaves, (shardings, shapes)), strict=True)
    ]
    assert sum(shards) < 0.3 * sum(sizes)  # a device of fsdp 2 x tensor 2 holds about a quarter


def test_an_axis_that_does_not_divide_is_replicated_and_none_is_used_twice():
    mesh = make_mesh(MeshConfig(2, 2, 2))
    shapes = {"odd": jnp.zeros((3, 4)), "twice": jnp.zeros((4, 4)), "odd_vocab": jnp.zeros((6, 4))}
    axes = {"odd": ("mlp", "embed"), "twice": ("embed", "embed"), "odd_vocab": ("vocab", "embed")}
    specs = jax.tree.map(lambda s: s.spec, param_shardings(mesh, axes, shapes))
    # 6 vocabulary rows do not divide by 4 devices: replicated, which leaves fsdp to the model axis.
    assert specs == {"odd": P(None, "fsdp"), "twice": P("fsdp", None), "odd_vocab": P(None, "fsdp")}


def test_state_copies_lie_as_their_parameters():
    mesh = make_mesh(MeshConfig(2, 2, 2))
    params = {"mlp": {"kernel": jnp.zeros((4, 6))}, "frozen": jnp.zeros((2,))}
    on_params = param_shardings(
        mesh, {"mlp": {"kernel": ("embed", "mlp")}, "frozen": (None,)}, params
    )
    state = {
        "mu": {"mlp": {"kernel": jnp.zeros((4, 6))}, "frozen": None},
        "factored": {"mlp": {"kernel": jnp.zeros((4,))}, "frozen": None},
        "count": jnp.zeros(()),
    }
    specs = jax.tree.map(lambda s: s.spec, state_shardings(mesh, state, params, on_params))
    assert specs["mu"]["mlp"]["kernel"] == P("fsdp", "tensor")
    assert specs["factored"]["mlp"]["kernel"] == specs["count"] == P()


def test_rows():
    mesh = make_mesh(MeshConfig(2, 2, 2))
    assert batch_sharding(mesh).shard_shape((8, 16)) == (2, 16)
    check_rows(mesh, 8, 2, "objective mlm")
    with pytest.raises(
        UserError, match="mlm: a batch of 12 rows .* 2 microbatches x 4 devices .* multiple of 8"
    ):
        check_rows(mesh, 12, 2, "objective mlm")
