"""`make help` has a line for every target, and names every extra that `.ready-EXTRA` installs."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")
def test_every_target_has_its_line_and_every_extra_is_named():
    # The tests themselves may be run by make, which tells a make within it so.
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    options = dict(cwd=ROOT, env=alone, capture_output=True, text=True, check=True)
    said = subprocess.run(["make", "help", "VENV=.venv"], **options).stdout
    lines = dict(line.strip().split(maxsplit=1) for line in said.splitlines()[1:])
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    # A rule begins its line; `:=` and `?=` set variables.
    targets = re.findall(r"^([^\s#.=:][^\s=:]*):(?!=)", text, re.MULTILINE)
    shown = [target.replace("$(VENV)", ".venv").replace("%", "EXTRA") for target in targets]
    assert [*lines] == shown and {"help", "test-long", ".venv/.ready-EXTRA"} < {*shown}
    phony = re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE)[1].split()
    assert {*phony} == {target for target in targets if re.fullmatch(r"[a-z-]+", target)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {*project["optional-dependencies"]} - {"t5-needs"}  # which .ready has
    assert extras <= {*re.findall(r"\b[a-z0-9]+\b", lines[".venv/.ready-EXTRA"].split(":")[1])}
