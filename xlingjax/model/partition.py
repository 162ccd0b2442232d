"""Device mesh, logical-axis rules, and the shardings of everything that lives on it.

A parameter names its axes logically ("vocab", "embed", "mlp", ...); `RULES` says which mesh axes
carry them. Rows of a batch lie on ("data", "fsdp"). Imports nothing of the project but its error.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)

from xlingjax.errors import UserError, require_whole

AXES = ("data", "fsdp", "tensor")
ROW_AXES = ("data", "fsdp")

# In a tuple of logical axes, the first to claim a mesh axis keeps it. The token table ("vocab",
# "embed") is therefore sharded on vocabulary alone, over both axes: sharding its model axis too
# makes XLA rematerialise it at every lookup.
RULES: Mapping[str, tuple[str, ...]] = {
    "vocab": ("fsdp", "tensor"),
    "embed": ("fsdp",),
    "mlp": ("tensor",),
    "heads": ("tensor",),
}


@dataclass(frozen=True)
class MeshConfig:
    """How many devices along each axis; -1 (one axis at most) takes what the others leave."""

    data: int = -1
    fsdp: int = 1
    tensor: int = 1

    def __post_init__(self):
        sizes = {axis: getattr(self, axis) for axis in AXES if getattr(self, axis) != -1}
        require_whole(sizes, "[1, inf)", " ".join(AXES), "mesh: ")


def first_device(mesh: Mesh | None) -> jax.Device:
    """Of a mesh; None: the one that JAX takes by itself."""
    if mesh is None:
        return jax.devices()[0]
    return mesh.devices.flat[0]


def make_mesh(
    config: MeshConfig = MeshConfig(), devices: Sequence[jax.Device] | None = None
) -> Mesh:
    """A mesh with axes ("data", "fsdp", "tensor") over `devices` (default: all). Sizes may use
    fewer devices than there are, but only in a single process. Raises UserError when the sizes do
    not fit the devices."""
    if devices is None:
        devices = jax.devices()
    sizes = mesh_sizes(config, len(devices), jax.process_count())
    used = math.prod(sizes)
    # Auto: XLA decides on the shardings of what stands between those that are given.
    axis_types = (AxisType.Auto,) * len(AXES)
    return jax.make_mesh(sizes, AXES, axis_types=axis_types, devices=devices[:used])


def mesh_sizes(config: MeshConfig, devices: int, processes: int = 1) -> tuple[int, int, int]:
    """How long the axes ("data", "fsdp", "tensor") are on so many devices, of which none is looked
    at. Raises UserError as `make_mesh` does."""
    sizes = [config.data, config.fsdp, config.tensor]
    fixed = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and not devices % fixed:
        sizes[sizes.index(-1)] = devices // fixed
    used = math.prod(sizes)
    # Devices left out would leave a process without any, or with fewer than the others.
    if -1 in sizes or used > devices or (used < devices and processes > 1):
        requested = " x ".join(f"{axis}={getattr(config, axis)}" for axis in AXES)
        raise UserError(
            f"mesh {requested} does not fit {devices} devices: choose sizes whose product divides"
            " them, one of them -1 to take what the others leave"
        )
    data, fsdp, tensor = sizes
    return data, fsdp, tensor


def mesh_of_all() -> Mesh | None:
    """A mesh over all devices, rows over them; None where there is one device."""
    if jax.device_count() > 1:
        return make_mesh()
    return None


def partition_spec(mesh: Mesh, names: Sequence[str | None], shape: Sequence[int]) -> PartitionSpec:
    """What carries each axis of an array, by the axes' logical names; one that its mesh axes do not
    divide evenly is replicated."""
    taken: set[str] = set()
    spec: list[str | tuple[str, ...] | None] = []
    for name, size in zip(names, shape, strict=True):
        carriers = RULES.get(name or "", ())
        axes = tuple(axis for axis in carriers if axis not in taken)
        # Replicated and not padded, so that every mesh has the same parameters.
        if size % math.prod(mesh.shape[axis] for axis in axes):
            axes = ()
        taken.update(axes)
        spec.append(axes[0] if len(axes) == 1 else axes or None)
    return PartitionSpec(*spec)


def param_shardings(mesh: Mesh, logical_axes: Any, shapes: Any) -> Any:
    """Shardings for a tree of parameters.

    logical_axes: same tree, of tuples of logical names or None; shapes: same tree, of anything with
    `.shape`. An axis that its mesh axes do not divide evenly is replicated.
    """

    def one(leaf, names):
        return NamedSharding(mesh, partition_spec(mesh, names, leaf.shape))

    return jax.tree.map(one, shapes, logical_axes)


def abstract_params(model: Any, mesh: Mesh | None = None) -> Any:
    """Shapes of a model's parameters that lie on a mesh, or on the first device: each device then
    reads its own part of a checkpoint alone."""
    shapes = model.abstract()
    if mesh is None:
        return with_shardings(shapes, SingleDeviceSharding(jax.local_devices()[0]))
    return with_shardings(shapes, param_shardings(mesh, model.logical_axes(), shapes))


def with_shardings(shapes: Any, shardings: Any) -> Any:
    """A tree of `jax.ShapeDtypeStruct`. shardings: the same tree, or one for all."""
    if isinstance(shardings, Sharding):
        shardings = jax.tree.map(lambda _: shardings, shapes)
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings
    )


def state_shardings(mesh: Mesh, abstract: Any, params: Any, shardings: Any) -> Any:
    """Shardings for a tree that contains copies of the parameters (optimizer moments): a leaf whose
    path ends in a parameter's path and whose shape is the parameter's lies as the parameter does;
    every other leaf is replicated."""
    with_paths, _ = jax.tree_util.tree_flatten_with_path(params)
    known = {}
    for (path, leaf), sharding in zip(with_paths, jax.tree.leaves(shardings), strict=True):
        known[path] = (leaf.shape, sharding)

    def one(path, leaf):
        # By path and shape: a moment may be kept in another shape than its parameter, and a state
        # knows nothing of the names of axes.
        for start in range(len(path)):
            shape, sharding = known.get(path[start:], (None, None))
            if shape == leaf.shape:
                return sharding
        return replicated(mesh)

    return jax.tree_util.tree_map_with_path(one, abstract)


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def cut_rows(batch: Any, parts: int, mesh: Mesh | None) -> Any:
    """Each array [B, ...] as [parts, B / parts, ...]. Part j is rows j, j+k, j+2k...: a device's
    rows are contiguous, so each part takes an equal share of every device's own and none moves."""

    def cut(x):
        by_part = x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1)
        if mesh is None:
            return by_part
        rows = NamedSharding(mesh, PartitionSpec(None, ROW_AXES))
        return jax.lax.with_sharding_constraint(by_part, rows)

    return jax.tree.map(cut, batch)


def row_devices(mesh: Mesh) -> int:
    """How many devices the rows of a batch are spread over."""
    return math.prod(mesh.shape[axis] for axis in ROW_AXES)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows (axis 0) over ("data", "fsdp"); all other axes whole on each device."""
    return NamedSharding(mesh, PartitionSpec(ROW_AXES))


def check_counts(microbatches: int, **every: int) -> None:
    """Raise UserError unless there is a microbatch and every `SOMETHING_every` is 0 or more."""
    if microbatches < 1:
        raise UserError(f"MICROBATCHES={microbatches}: a batch is at least one microbatch")
    for name, steps in every.items():
        if steps < 0:
            raise UserError(
                f"{name.upper()}={steps}: give a number of steps, or 0 for only at the end"
            )


def check_rows(mesh: Mesh, rows: int, microbatches: int, what: str) -> None:
    """Raise UserError unless every device gets the same number of rows in each of the
    microbatches."""
    check_shares(mesh.shape["data"], mesh.shape["fsdp"], rows, microbatches, what)


def check_shares(data: int, fsdp: int, rows: int, microbatches: int, what: str) -> None:
    """As `check_rows`, of a mesh that is known by its sizes."""
    parts = data * fsdp * microbatches
    if rows % parts:
        raise UserError(
            f"{what}: a batch of {rows} rows does not divide by {microbatches} microbatches x"
            f" {data * fsdp} devices (mesh data={data} x fsdp={fsdp}); set its BATCH (tlm:"
            f" TLM_BATCH) to a multiple of {parts}"
        )


def on_each_device(
    compute: Callable[..., Any],
    mesh: Mesh | None,
    arrays: Sequence[tuple[jax.Array, tuple[str | None, ...]]],
) -> Any:
    """XLA cannot partition a kernel of Pallas: each device is told what it computes, its own rows
    and heads. arrays: each with the logical names of its axes behind the rows; what comes back lies
    as the first."""
    values = [array for array, _ in arrays]
    if mesh is None:
        return compute(*values)
    specs = []
    for array, names in arrays:
        of_row = partition_spec(mesh, names, array.shape[1:])
        specs.append(PartitionSpec(ROW_AXES, *of_row))
    return jax.shard_map(
        compute,
        mesh=mesh,
        in_specs=tuple(specs),
        out_specs=specs[0],
        # A kernel of Pallas does not say over which axes its output varies.
        check_vma=False,
    )(*values)
