"""Metrics on Weights & Biases are those of metrics.jsonl and evaluations.jsonl."""

import json
import struct
import sys
from types import SimpleNamespace

import pytest

from xlingjax.errors import UserError
from xlingjax.training.tracker import Tracker, flatten

LINE = {"objective": "mlm", "loss": 2.5, "batch_hash": "ab", "loss_by_language": {"de": 2.0}}
OTHER = {"objective": "tlm", "loss": 1.0 / 3, "grad_norm": 1e-7}
VALUES = {"mean": 0.25, "kind": "probe", "layers": {"1": 0.5}}


def track(workdir, project="project"):
    tracker = Tracker(workdir, 10, wandb=project)
    tracker.begin(0)
    tracker.metrics(1, [LINE, OTHER])
    tracker.evaluation(1, "probe", VALUES)
    tracker.metrics(2, [LINE])
    tracker.close()


def written(workdir):
    """{step: {name: number}} of the run's own files."""
    numbers = {}
    for file, prefix in (("metrics.jsonl", "objective"), ("evaluations.jsonl", "name")):
        for line in map(json.loads, (workdir / file).read_text().splitlines()):
            values = line.get("values", line)
            of_step = numbers.setdefault(line["step"], {})
            for name, value in flatten(values).items():
                of_step[f"{line[prefix]}/{name}"] = value
    for of_step in numbers.values():
        # The files say the step in each line.
        for name in [name for name in of_step if name.endswith("/step")]:
            del of_step[name]
    return numbers


class Wandb:
    """As much of the package as is called."""

    Error = type("Error", (Exception,), {})
    Settings = staticmethod(dict)

    def __init__(self, mode="offline", error=None):
        self.mode, self.error = mode, error
        self.begun, self.logged, self.finished = [], {}, 0

    def setup(self):
        return SimpleNamespace(settings=SimpleNamespace(mode=self.mode))

    def login(self):
        if self.error:
            raise self.Error(self.error)

    def init(self, **given):
        self.begun.append(given)
        return SimpleNamespace(
            url="https://w/run", dir="", offline=False, log=self._log, finish=self._finish
        )

    def _log(self, values, step):
        self.logged.setdefault(step, {}).update(values)

    def _finish(self):
        self.finished += 1


def test_every_number_of_the_files_is_logged_at_its_step(tmp_path, monkeypatch, capsys):
    stub = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", stub)
    (tmp_path / "run.json").write_text('{"seed": 3}')
    track(tmp_path)
    assert stub.logged == written(tmp_path)
    assert stub.logged[1]["mlm/loss_by_language/de"] == 2.0 and stub.finished == 1
    track(tmp_path)
    first, again = stub.begun
    # A run that goes on is the same run there.
    assert first["id"] == again["id"] and first["resume"] == "allow"
    assert (first["project"], first["dir"], first["name"]) == ("project", tmp_path, tmp_path.name)
    assert first["config"] == {"seed": 3}
    assert "metrics on wandb too: https://w/run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("project", "module", "message"),
    [
        ("project", None, "--wandb project needs pip install 'xlingjax\\[wandb\\]'"),
        (
            "project",
            Wandb("online", "No API key configured.\nmore"),
            "--wandb project: No API key configured. Run `wandb login`, or set WANDB_MODE=offline",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_the_run_begins(
    project, module, message, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "wandb", module)
    with pytest.raises(UserError, match=message):
        Tracker(tmp_path, 10, wandb=project)
    assert not any(tmp_path.iterdir())


def test_other_processes_and_other_runs_do_without(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    Tracker(tmp_path, 10, primary=False, wandb="project")
    Tracker(tmp_path, 10)


@pytest.mark.long
def test_offline_the_package_keeps_the_same_numbers(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    wandb.teardown()  # settings of before
    track(tmp_path)
    wandb.teardown()  # waits for the process that writes
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    kept = {}
    for record in map(Record.FromString, records(file.read_bytes())):
        if record.WhichOneof("record_type") != "history":
            continue
        values = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        kept[values["_step"]] = {name: x for name, x in values.items() if name[0] != "_"}
    assert kept == written(tmp_path)


def records(raw):
    """The records of a file in LevelDB's log format: blocks of 32 KiB, a header of 7 bytes."""
    at, whole = 7, b""
    while at + 7 <= len(raw):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", raw[at : at + 7])
        whole += raw[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or its last part
            yield whole
            whole = b""
