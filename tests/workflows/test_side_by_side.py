"""One command as several, each on its part of the devices."""

import sys
from types import SimpleNamespace

import pytest

from xlingjax.errors import UserError
from xlingjax.workflows import side_by_side
from xlingjax.workflows.jobs.many import Command, Stop
from xlingjax.workflows.side_by_side import device_groups


def test_cpu_devices_are_shared_out():
    groups = device_groups(2, "cpu", 8)
    assert [(one.devices, one.words) for one in groups] == [(4, ("--devices", "4"))] * 2
    # One each where nobody asked for some.
    assert [one.words for one in device_groups(3, "cpu")] == [("--devices", "1")] * 3


def test_every_command_sees_its_own_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    groups = device_groups(2, "gpu")
    assert [one.environment for one in groups] == [
        {"CUDA_VISIBLE_DEVICES": "4,5"},
        {"CUDA_VISIBLE_DEVICES": "6,7"},
    ]
    assert {one.devices for one in groups} == {2}


def test_gpus_are_those_that_nvidia_smi_lists(monkeypatch):
    card = "GPU {0}: NVIDIA H100 80GB HBM3 (UUID: GPU-{0})\n"
    listed = f"{card.format(0)}  MIG 1g.10gb     Device  0: (UUID: MIG-1)\n{card.format(1)}"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(side_by_side, "_has_tpu", lambda: False)
    told = SimpleNamespace(stdout=listed)
    monkeypatch.setattr(side_by_side.subprocess, "run", lambda *_, **__: told)
    groups = device_groups(2)
    assert [one.environment["CUDA_VISIBLE_DEVICES"] for one in groups] == ["0", "1"]


@pytest.mark.parametrize(
    "jobs, platform, devices, said",
    [
        (3, "cpu", 8, r"--jobs 3 does not share out 8 devices: give one of 1, 2, 4, 8"),
        (16, "cpu", 8, "give one of 1, 2, 4, 8"),
        (3, "gpu", None, "--jobs 3 does not share out 4 devices: give one of 1, 2, 4"),
        (2, "tpu", None, "start the same command on each host, with one --to"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(jobs, platform, devices, said, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    with pytest.raises(UserError, match=said):
        device_groups(jobs, platform, devices)


def test_no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match="--jobs 2: nvidia-smi names no GPU"):
        device_groups(2, "gpu")


def test_what_a_command_prints_has_its_number_before_it_and_its_variables_are_its_own():
    said = []
    code = "import os, sys; print(os.environ['A']); print('b', file=sys.stderr); sys.exit(3)"
    line = [sys.executable, "-c", code]
    options = {"prefix": "[1] ", "environment": {"A": "4,5"}, "passed": (3,)}
    command = Command("one", line, Stop("table"), said.append, **options)
    assert command.run() == 3
    assert sorted(said[1:]) == ["[1] 4,5", "[1] b"]
    command.passed = ()
    with pytest.raises(UserError, match="table: one ended with status 3"):
        command.run()
