"""The mesh of a cell: as many of the devices as its batch divides over."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from xlingjax.errors import UserError
from xlingjax.model.partition import MeshConfig, check_shares, mesh_sizes


def _mesh(bound: Mapping[str, Any]) -> MeshConfig:
    return MeshConfig(bound["MESH_DATA"], bound["MESH_FSDP"], bound["MESH_TENSOR"])


def rows_apart(bound: Mapping[str, Any], devices: int, processes: int = 1) -> int:
    """MESH_DATA of a cell: where it is -1, the most copies of the model on `devices` whose rows of
    a microbatch are as many each; of several processes all devices have to be used. Raises
    UserError where none are."""
    mesh = _mesh(bound)
    batch = bound["BATCH"]
    parts = bound["MICROBATCHES"]
    data, fsdp, _ = mesh_sizes(mesh, devices, processes)
    if mesh.data != -1 or processes > 1:
        check_shares(data, fsdp, batch, parts, f"BATCH={batch}")
        return mesh.data
    for copies in range(data, 0, -1):
        if batch % (copies * fsdp * parts) == 0:
            return copies
    raise UserError(
        f"BATCH={batch} does not divide by MESH_FSDP={fsdp} devices x MICROBATCHES={parts}: choose"
        " others"
    )


def sizes_of(bound: Mapping[str, Any], devices: int) -> tuple[int, int, int]:
    """The sizes (data, fsdp, tensor) of the mesh that a cell takes."""
    mesh = _mesh(bound)
    mesh = dataclasses.replace(mesh, data=rows_apart(bound, devices))
    return mesh_sizes(mesh, devices)


def idle(bound: Mapping[str, Any], devices: int, jobs: int = 1) -> str:
    """What is said of a cell that cannot use all of its devices; "": it does. jobs: cells that run
    side by side, on so many devices each."""
    sizes = sizes_of(bound, devices)
    used = math.prod(sizes)
    # Who has chosen a number knows.
    if used == devices or bound["MESH_DATA"] != -1:
        return ""
    said = (
        f"BATCH={bound['BATCH']} trains on {used} of {devices} devices, over which it divides"
        f" (MESH_DATA={sizes[0]})"
    )
    for more in range(2, devices + 1):
        if devices % more == 0 and _uses_all(bound, devices // more):
            return f"{said}; --jobs {jobs * more} has all at work, {devices // more} for a cell"
    return said


def _uses_all(bound: Mapping[str, Any], devices: int) -> bool:
    try:
        return math.prod(sizes_of(bound, devices)) == devices
    # Fewer devices than the model is shared out over.
    except UserError:
        return False
