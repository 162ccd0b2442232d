"""Gin text of anyone, damaged and hostile: read or refused in one line; what came with a run
imports nothing and fetches nothing.

XLINGJAX_FUZZ_SECONDS=3600 makes an hour of it, XLINGJAX_FUZZ_SEED others.
"""

import collections
import random
import sys
import time

import pytest

from tests.data.test_fuzz_readers import SECONDS, SEED, damaged, outcome
from xlingjax.config import recipe as recipes
from xlingjax.convert import import_model
from xlingjax.data.text import sources

CANARY = "module_of_run"
NAMES = ["corpus.tasks", "text.tasks", "s/text.tasks", "TASKS", "x/macro.value", "macro.value"]
NAMES += ["MONO", "corpus.mono", "INIT_FROM", "VOCABULARY", "train.steps", "mlm.text", "X", "s/X"]
NAMES += ["gin.singleton.constructor", "x/gin.macro.value", "train.evaluators", "corpus.labelled"]
VALUES = [f"'{CANARY}'", f"['{CANARY}', 'os']", f"{{0: '{CANARY}'}}", "@x/macro()", "@macro"]
VALUES += ["@x/gin.singleton()", "%x", "%X", "@mlm()", "@mlm", "@s/corpus()", "%gin.REQUIRED"]
VALUES += ["'hf:a/b'", "'s3://a/b'", "'reference::x'", "'zip://x::http://a'", "None", "-1", "1e999"]
VALUES += ["{}", "[[]]", "{1: [2]}", "'\\0'", "'\\ud800'", "9" * 400, "(1, 2)", "@", "'", "[", "%"]
STATEMENTS = [f"import {CANARY}", f"from {CANARY} import x", f"from x import {CANARY}", "import os"]
STATEMENTS += ["from __gin__ import dynamic_registration", "include 'evil.gin'", "include 'x'"]
STATEMENTS += [
    f"corpus:\n  tasks = '{CANARY}'",
    f"x/macro:\n  value = '{CANARY}'",
    "import xlingjax.y",
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"{CANARY}.py").write_text("")
    (tmp_path / "evil.gin").write_text(f"import {CANARY}\n")
    (tmp_path / "run").mkdir()

    def reached(*args):
        raise AssertionError("something was fetched")

    monkeypatch.setattr(sources, "fetched", reached)
    monkeypatch.setattr(import_model, "imported", reached)
    return tmp_path


def hostile(text, rng):
    lines = text.split("\n")
    for _ in range(rng.choice([1, 2, 3, 6])):
        line = f"{rng.choice(NAMES)} = {rng.choice(VALUES)}"
        lines.insert(rng.randrange(len(lines) + 1), rng.choice([line, line, *STATEMENTS]))
    return "\n".join(lines)


def test_gin_text_is_read_or_refused_and_nothing_runs(here, capsys):
    rng = random.Random(SEED)
    given = ["MONO=m/*", "VOCABULARY=v", "LANGUAGES=de en", "VOCABULARY_SIZE=80"]
    whole = recipes.read_recipe(["xlm_tiny"], given).config
    path = here / "run" / "config.gin"
    counts = collections.Counter()
    failures = {}
    end = time.process_time() + 2 * SECONDS
    while time.process_time() < end and len(failures) < 5:
        text = hostile(whole, rng) if rng.random() < 0.7 else whole
        content = damaged(text.encode(), rng) if rng.random() < 0.5 else text.encode()
        path.write_bytes(content)
        found = outcome(lambda path: recipes.read_recipe([str(path)], ()), path)
        if CANARY in sys.modules:
            found = "it was imported"
            del sys.modules[CANARY]
        counts[found if found in ("read", "refused") else "failed"] += 1
        if found not in ("read", "refused"):
            failures.setdefault(found[-200:], (content, found))
    with capsys.disabled():
        print(f"\ngin: {sum(counts.values()):,} foreign recipes, {dict(counts)}")
    for content, found in failures.values():
        different = [line for line in content.split(b"\n") if line.decode("latin-1") not in whole]
        print(*different, found, sep="\n")
    assert not failures and counts["refused"] > 10
