"""docs/add-a-paper.md is run as it stands: a sixth paper is five files, and every verb knows it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import small_corpus

PAGE = Path(__file__).resolve().parents[1] / "docs" / "add-a-paper.md"
FILES = dict(
    re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', PAGE.read_text("utf-8"), re.M | re.S)
)
# As if the files stood in the package's own folders.
COMMANDS = """
import importlib, sys
for room in ("preprocessors", "objectives", "config"):
    importlib.import_module(f"xlingjax.{room}").__path__.append(f"{sys.argv[1]}/xlingjax/{room}")
from xlingjax.cli.main import main
recipe = sys.argv[2:]
corpus = sys.argv[1] + "/corpus"
adapt = ["adapt", "run", "--to", "adapted", "--objectives", "mlm", "xlco", "--unverified"]
adapt += ["--mono", corpus + "/mono", "--parallel", corpus + "/pairs/*"]
adapt += ["--steps", "2", "--batch", "8", "--length", "32"]
for words in (
    ["pretrain", *recipe, "--to", "run"],
    ["verify", *recipe, "--rows", "2"],
    adapt,
):
    assert main(words) == 0, words
"""


@pytest.mark.long
def test_the_paper_of_the_page_trains_and_is_known_to_every_verb(tmp_path):
    corpus = tmp_path / "corpus"
    small_corpus.build(corpus)
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    given = small_corpus.options(corpus) | {"TRAIN_STEPS": 6, "XLCO_BATCH": 8, "XLCO_LENGTH": 48}
    words = ["--gin-file", "recipes/infoxlm_text.gin"]
    words += [f"--gin.{name}={value}" for name, value in given.items()]
    command = [sys.executable, "-c", COMMANDS, str(tmp_path), *words]
    done = subprocess.run(command, cwd=tmp_path / "gin", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "xlco" in (tmp_path / "gin/run/report.html").read_text(encoding="utf-8")
    assert "not tested, since they predict no hidden words: xlco" in done.stdout
    adapted = tmp_path / "gin/adapted"
    lines = (adapted / "recipe.gin").read_text(encoding="utf-8").splitlines()
    assert "train.objectives = [@mlm(), @xlco()]" in lines
    metrics = (adapted / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["objective"] for line in metrics} == {"mlm", "xlco"}
    assert (adapted / "model/config.json").is_file()
    assert len(FILES) == 5
