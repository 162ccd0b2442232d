"""What a run's files were when it ended, and are no longer."""

import json

import pytest

from xlingjax.report.run import read_run
from xlingjax.runtime.files import write_json
from xlingjax.training import run_record
from xlingjax.training.run_record import read_result

# By the command of the package, `xxhsum -H128`.
HASH_OF_ABC = "06b05ab6733a618578af5f94892f3950"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run.json").write_text("abc")
    (tmp_path / "config.gin").write_text("LENGTH = 32\n")
    lines = [{"step": step, "objective": "mlm", "loss": 4.25} for step in (1, 2)]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text)
    result = {"steps": 2, "evaluations": {"x": {"y": 0.1}}}
    write_json(tmp_path / "result.json", result)
    run_record.write_hashes(tmp_path)
    run_record._warn.cache_clear()
    return tmp_path


def said(capsys):
    lines = capsys.readouterr().err.splitlines()
    run_record._warn.cache_clear()
    return [
        line.removesuffix(" when the run ended: edited, damaged or removed since") for line in lines
    ]


def test_a_whole_run_says_nothing(run, capsys):
    run_record.warn_of_changes(run)
    with open(run / "metrics.jsonl", "a") as file:
        file.write("more\n")
    run_record.warn_of_changes(run)
    assert read_result(run)["evaluations"] == {"x": {"y": 0.1}}
    assert said(capsys) == []
    hashes = json.loads((run / "result.json").read_text())["hashes"]
    assert hashes["run.json"] == [3, HASH_OF_ABC] and "best.json" not in hashes


def test_each_change_is_said_once(run, capsys):
    path = run / "metrics.jsonl"
    content = path.read_bytes()
    for changed in (content[:-1], content.replace(b"4.25", b"4.75"), None):
        path.unlink()
        if changed is not None:
            path.write_bytes(changed)
        run_record.warn_of_changes(run)
        run_record.warn_of_changes(run)
        assert said(capsys) == [f"warning: {path} is not what it was"]
    # The report reads it, and says so.
    path.write_bytes(content.replace(b"4.25", b"4.75"))
    (run / "run.json").unlink()
    assert read_run(run).metrics[0]["loss"] == 4.75
    names = ("run.json", "metrics.jsonl")
    assert said(capsys) == [f"warning: {run / name} is not what it was" for name in names]
    # Lines that are written behind the result are sealed too.
    run_record.write_hashes(run)
    run_record.warn_of_changes(run)
    assert said(capsys) == []
    result = run / "result.json"
    result.write_text(result.read_text().replace("0.1", "0.9"))
    assert read_result(run)["evaluations"] == {"x": {"y": 0.9}}
    assert said(capsys) == [f"warning: {result} is not what it was"]
