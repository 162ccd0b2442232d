"""Machines by their names."""

import pytest

from xlingjax.errors import UserError
from xlingjax.workflows.plan.machines import machine_named


@pytest.mark.parametrize(
    ("name", "devices", "written"),
    [
        ("H100:8", 8, "H100:8"),
        ("h100:16", 16, "H100:16"),
        ("V100:1", 1, "V100:1"),
        ("v5e:4x4", 16, "v5e:4x4"),
        ("v5e:1", 1, "v5e:1x1"),
        ("v4:2x2x2", 8, "v4:2x2x2"),
        ("V5P:2x2x4", 16, "v5p:2x2x4"),
    ],
)
def test_machines_are_found_by_their_names(name, devices, written):
    machine = machine_named(name)
    assert machine.devices == devices and machine.name == written


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("H10O:8", "no device 'H10O' .*; H100 is meant?"),
        ("TPU", "no device 'TPU'"),
        ("", "no device ''"),
        ("H100", "how many?"),
        ("H100:0", "how many?"),
        ("H100:²", "how many?"),
        ("H100:2x4", "the number of devices"),
        ("H100:12", "several machines of 8"),
        ("v5e:16", "2 directions"),
        ("v4:2x2", "3 directions"),
        ("v5e:4x", "how many?"),
        ("v5e:3x5", "1 or even numbers in the first two directions, as v5e:4x4"),
    ],
)
def test_others_are_refused_in_a_line(name, said):
    with pytest.raises(UserError, match=said):
        machine_named(name)


def test_links_of_a_machine_and_between_machines():
    assert machine_named("H100:8").link(8) == 450e9
    # A ring over several machines crosses between two of them by the network of all eight.
    assert machine_named("H100:16").link(16) == 400e9
    assert machine_named("H100:16").link(8) == 450e9
    assert machine_named("v5e:8x8").link(64) == 200e9
