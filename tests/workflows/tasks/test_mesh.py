"""As many devices as a batch divides over."""

import pytest

from xlingjax.errors import UserError
from xlingjax.workflows.tasks.recipe import rows_apart


def bound(batch, data=-1, fsdp=1, tensor=1, parts=1):
    return {
        "BATCH": batch,
        "MICROBATCHES": parts,
        "MESH_DATA": data,
        "MESH_FSDP": fsdp,
        "MESH_TENSOR": tensor,
    }


@pytest.mark.parametrize(
    "batch, more, copies",
    [
        (32, {}, 8),
        (12, {}, 6),
        (11, {}, 1),
        (12, {"parts": 4}, 3),
        # Of four groups of two devices each.
        (12, {"tensor": 2}, 4),
        (12, {"fsdp": 2}, 3),
        # As it was given.
        (12, {"data": 2}, 2),
        (32, {"fsdp": -1, "data": 1}, 1),
        (8, {"fsdp": 8}, 1),
    ],
)
def test_the_most_devices_that_share_a_batch_out(batch, more, copies):
    assert rows_apart(bound(batch, **more), 8) == copies


@pytest.mark.parametrize(
    "batch, more, said",
    [
        (
            12,
            {"data": 8},
            "BATCH=12: a batch of 12 rows does not divide by 1 microbatches x 8 devices",
        ),
        (3, {"fsdp": 2}, "BATCH=3 does not divide by MESH_FSDP=2 devices x MICROBATCHES=1"),
        (3, {"parts": 2}, "x MICROBATCHES=2: choose others"),
    ],
)
def test_what_no_devices_share_out_is_refused(batch, more, said):
    with pytest.raises(UserError, match=said):
        rows_apart(bound(batch, **more), 8)


def test_several_processes_have_no_device_without_rows():
    assert rows_apart(bound(16), 8, processes=2) == -1
    with pytest.raises(UserError, match="BATCH=12: a batch of 12 rows does not divide by .* 8 dev"):
        rows_apart(bound(12), 8, processes=2)
    with pytest.raises(UserError, match="does not fit 8 devices"):
        rows_apart(bound(12, data=4), 8, processes=2)
