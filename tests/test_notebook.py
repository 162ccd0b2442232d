"""docs/adapt.ipynb: a notebook without outputs whose cells run in order, in a process of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch"), pytest.importorskip("transformers")
NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "adapt.ipynb"
RUN = """
import json, sys

space = {"__name__": "__main__"}
for number, source in enumerate(json.loads(sys.stdin.read())):
    exec(compile(source, f"code cell {number}", "exec"), space)
print(json.dumps({"table": space["told"]["before_after"], "found": space["found"], "width": space["alike"].shape}))
"""


@pytest.fixture(scope="module")
def cells():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    return notebook["cells"]


def test_it_is_a_notebook_of_version_4_without_outputs(cells):
    assert len({cell["id"] for cell in cells}) == len(cells)
    for cell in cells:
        code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert cell["cell_type"] in ("code", "markdown") and {*cell} == {"cell_type", "id", "metadata", "source"} | code
        assert cell["metadata"] == {} and not cell.get("outputs") and cell.get("execution_count") is None
        assert all(line.endswith("\n") for line in cell["source"][:-1])
    assert NOTEBOOK.stat().st_size < 16_000


def test_its_cells_run_in_order(cells, tmp_path):
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    settings = {"NOTEBOOK_STEPS": "8", "XLINGJAX_CACHE": str(tmp_path / "cache"), "XLA_FLAGS": _one_device()}
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(code), cwd=tmp_path, env=os.environ | settings | _path(),
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    came = json.loads(done.stdout.splitlines()[-1])
    rows = {row["figure"]: row for row in came["table"]}
    assert {"perplexity de", "perplexity en", "perplexity beside the translation, mean"} <= {*rows}
    assert rows["perplexity, mean"]["after"] < 0.9 * rows["perplexity, mean"]["before"]
    assert came["width"] == [200, 200] and all(0 < value <= 1 for value in came["found"].values())
    assert (tmp_path / "adapt-notebook" / "out" / "model" / "model.safetensors").is_file()


def _one_device():
    return " ".join(flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag)


def _path():
    return {"PYTHONPATH": os.pathsep.join([str(NOTEBOOK.parent.parent), os.environ.get("PYTHONPATH", "")])}
