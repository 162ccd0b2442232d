"""Meshes and shardings; the table of a real model on a real mesh."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from xlingjax.errors import UserError
from xlingjax.optim import path_names
from xlingjax.partition import MeshConfig, batch_sharding, check_rows, make_mesh, param_shardings, state_shardings


def test_mesh_sizes():
    assert dict(make_mesh().shape) == {"data": 8, "fsdp": 1, "tensor": 1}
    assert dict(make_mesh(MeshConfig(2, -1, 2)).shape) == {"data": 2, "fsdp": 2, "tensor": 2}
    assert make_mesh(MeshConfig(1, 2, 2)).devices.size == 4
    assert dict(make_mesh(MeshConfig(), jax.devices()[:3]).shape)["data"] == 3


@pytest.mark.parametrize(
    "config, message",
    [
        (MeshConfig(3, -1, 1), "data=3 x fsdp=-1 x tensor=1 does not divide 8 devices"),
        (MeshConfig(4, 4, 1), "needs 16 devices, 8 are there"),
        (MeshConfig(-1, -1, 1), "at most one is -1"),
        (MeshConfig(0, 1, 1), "sizes are positive"),
    ],
)
def test_mesh_refusals(config, message):
    with pytest.raises(UserError, match=message):
        make_mesh(config)


def test_rules_on_the_model(tiny_encoder):
    """Golden: the sharding of every parameter on data 2 x fsdp 2 x tensor 2."""
    shapes = tiny_encoder.abstract()
    shardings = param_shardings(make_mesh(MeshConfig(2, 2, 2)), tiny_encoder.logical_axes(), shapes)
    specs = dict(zip(path_names(shapes), (s.spec for s in jax.tree.leaves(shardings)), strict=True))
    assert specs["embeddings/tokens/embedding"] == P(("fsdp", "tensor"), None)
    assert specs["head/bias"] == P(("fsdp", "tensor"))
    assert specs["encoder/layers/attention/query/kernel"] == P(None, "fsdp", "tensor", None)
    sharded = {name for name, spec in specs.items() if any(spec)}
    assert not any("norm" in name for name in sharded)


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
    on_params = param_shardings(mesh, {"mlp": {"kernel": ("embed", "mlp")}, "frozen": (None,)}, params)
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
    with pytest.raises(UserError, match="mlm: a batch of 12 rows .* 2 microbatches x 4 devices .* multiple of 8"):
        check_rows(mesh, 12, 2, "objective mlm")
