"""The mesh of a cell: as many of the devices as its batch divides over."""

import math
from collections.abc import Mapping
from typing import Any

from xlingjax.errors import UserError

MESH = ("MESH_DATA", "MESH_FSDP", "MESH_TENSOR")
"""Macros of the sizes of its axes."""


def rows_apart(
    bound: Mapping[str, Any],
    devices: int,
    processes: int = 1,
) -> int:
    """MESH_DATA of a cell: where it is -1, the most copies of the model on `devices` whose rows of
    a microbatch are as many each; of several processes all devices have to be used. Raises
    UserError where none are."""
    data, fsdp, tensor = (bound[name] for name in MESH)
    batch = bound["BATCH"]
    parts = bound["MICROBATCHES"]
    # Sizes that `make_mesh` works out or refuses, with the devices before it.
    if data != -1 or fsdp < 1 or tensor < 1 or devices % (fsdp * tensor):
        copies = data
        if data == -1:
            copies = max(1, devices // max(1, abs(fsdp) * abs(tensor)))
        if fsdp > 0 and batch % (copies * fsdp * parts):
            raise UserError(
                f"BATCH={batch} does not divide by MESH_DATA={copies} x MESH_FSDP={fsdp} devices x"
                f" MICROBATCHES={parts}: choose others, or leave MESH_DATA out, which takes as many"
                " devices as it divides over",
            )
        return data
    all_copies = devices // (fsdp * tensor)
    if processes > 1 and batch % (all_copies * fsdp * parts):
        raise UserError(
            f"BATCH={batch} does not divide over the {devices} devices of {processes} processes x"
            f" MICROBATCHES={parts}: choose others",
        )
    for copies in range(all_copies, 0, -1):
        if batch % (copies * fsdp * parts) == 0:
            return copies
    raise UserError(
        f"BATCH={batch} does not divide by MESH_FSDP={fsdp} devices x MICROBATCHES={parts}: choose"
        " others",
    )


def idle(bound: Mapping[str, Any], devices: int, jobs: int = 1) -> str:
    """What is said of a cell that cannot use all of its devices; "": it does. jobs: cells that run
    side by side, on so many devices each."""
    copies = rows_apart(bound, devices)
    if copies == -1:
        return ""
    used = copies * bound["MESH_FSDP"] * bound["MESH_TENSOR"]
    if used >= devices or bound["MESH_DATA"] != -1:
        return ""
    said = (
        f"BATCH={bound['BATCH']} trains on {used} of {devices} devices, over which it divides"
        f" (MESH_DATA={copies})"
    )
    for more in range(2, devices + 1):
        if devices % more:
            continue
        if _uses_all(bound, devices // more):
            return f"{said}; --jobs {jobs * more} has all at work, {devices // more} for a cell"
    return said


def require_shared_out(
    what: str,
    rows: int,
    parts: int,
    mesh: Any,
    devices: int,
) -> int:
    """How many of `devices` have rows of a batch on a mesh, a `MeshConfig`, in `parts`
    microbatches. Raises UserError where the mesh does not fit the devices or they do not have as
    many rows each."""
    sizes = {"data": mesh.data, "fsdp": mesh.fsdp, "tensor": mesh.tensor}
    fixed = math.prod(size for size in sizes.values() if size != -1)
    for name, size in sizes.items():
        if size == -1:
            sizes[name] = max(1, devices // fixed)
    if math.prod(sizes.values()) > devices:
        raise UserError(
            f"mesh {sizes} needs {math.prod(sizes.values())} devices, {devices} are there",
        )
    apart = sizes["data"] * sizes["fsdp"]
    if rows % (apart * parts):
        raise UserError(
            f"{what}: a batch of {rows} rows does not divide by {parts} microbatches x {apart}"
            f" devices: set MESH_DATA in its settings, or BATCH to a multiple of {apart * parts}",
        )
    return apart


def _uses_all(bound: Mapping[str, Any], devices: int) -> bool:
    beside = bound["MESH_FSDP"] * bound["MESH_TENSOR"]
    if devices % beside:
        return False
    return rows_apart(bound, devices) * beside == devices
