"""What stands on the terminal, in the log and in the files."""

import errno
import json
import os

import numpy as np
import pytest

from xlingjax.training.tracker import Curves, Tracker, finite, flatten, keep_until

LINE = {
    "objective": "mlm",
    "loss": 2.5,
    "tokens_per_second": 1234.5,
    "batch_hash": "ab",
    "loss_by_language": {"de": 2.0},
}


def test_lines_are_printed_and_logged(tmp_path, capsys):
    tracker = Tracker(tmp_path, 10)
    tracker.say("weights: random [seed 0]")
    tracker.say("")
    tracker.begin(0)
    skipped = {"objective": "tlm", "loss": None, "total": None, "tokens_per_second": 1234.5}
    tracker.metrics(1, [LINE, skipped])
    tracker.evaluation(2, "probe", {"mean": 0.25, "grid": [1, 2]})
    tracker.metrics(3, [LINE])
    tracker.close()
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "weights: random [seed 0]",
        "step 1/10  mlm 2.5000  tlm skipped  1,234 tokens/s",
        "step 2: probe: mean 0.2500",
        "step 3/10  mlm 2.5000  1,234 tokens/s",
    ]
    assert [line[20:] for line in (tmp_path / "log.txt").read_text().splitlines()] == lines


def test_files_and_tensorboard(tmp_path):
    from tensorboardX.proto.event_pb2 import Event

    tracker = Tracker(tmp_path, 10)
    tracker.begin(0)
    tracker.metrics(1, [{**LINE, "grad_norm": float("inf"), "accuracy": np.float32(0.5)}])
    tracker.evaluation(1, "probe", {"mean": 0.25, "layers": {"1": 0.5}})
    tracker.close()
    record = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert record["step"] == 1 and record["grad_norm"] is None and record["accuracy"] == 0.5
    assert json.loads((tmp_path / "evaluations.jsonl").read_text()) == {
        "step": 1, "name": "probe", "values": {"mean": 0.25, "layers": {"1": 0.5}},
    }  # fmt: skip
    raw, values = next((tmp_path / "tensorboard").iterdir()).read_bytes(), {}
    while raw:  # TFRecord: length, its checksum, the record, its checksum
        size = int.from_bytes(raw[:8], "little")
        for value in Event.FromString(raw[12 : 12 + size]).summary.value:
            values[value.tag] = value.simple_value
        raw = raw[16 + size :]
    assert (
        values["mlm/loss"] == 2.5
        and values["mlm/loss_by_language/de"] == 2.0
        and values["probe/layers/1"] == 0.5
    )
    assert "mlm/batch_hash" not in values


@pytest.mark.parametrize("when", ["at the start", "later"])
def test_a_run_goes_on_without_tensorboard(when, tmp_path, capsys, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    if when == "at the start":
        (tmp_path / "tensorboard").write_text("")
    else:
        monkeypatch.setattr(Curves, "add", refuse)
    tracker = Tracker(tmp_path, 10)
    tracker.begin(0)
    for step in (1, 2):
        tracker.metrics(step, [LINE])
    tracker.close()
    assert capsys.readouterr().out.count("; the run goes on without its curves\n") == 1
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_lines_beyond_the_checkpoint_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"ste')
    keep_until(path, 2)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    keep_until(tmp_path / "absent.jsonl", 2)
    assert not (tmp_path / "absent.jsonl").exists()


def test_small_things():
    assert flatten({"a": {"b": 1}, "c": [1], "d": True, "e": np.int64(2)}) == {"a/b": 1.0, "e": 2.0}
    assert finite({"a": np.array([1.0, np.nan]), 2: (np.float32(1), None)}) == {
        "a": [1.0, None],
        "2": [1.0, None],
    }
