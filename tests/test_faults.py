"""What wrong, damaged and hostile input gets: one line, no traceback, and nothing half-written.

The telling inputs of a larger study (docs/results/faults.md)."""

import contextlib
import gc
import os
import resource
import shutil
from pathlib import Path

import pytest

from xlingjax.cli import main
from xlingjax.runtime.lock import take

pytestmark = pytest.mark.long

WORDS = {
    "de": ("der Hund", "die Katze", "ein Kind", "mein Bruder", "das Pferd"),
    "en": ("the dog", "the cat", "a child", "my brother", "the horse"),
}
ACTS = {
    "de": ("schläft", "trinkt Milch", "liest ein Buch", "geht nach Hause"),
    "en": ("sleeps", "drinks milk", "reads a book", "goes home"),
}
RECIPE = """include "recipes/xlm_text.gin"
include "models/tiny.gin"
include "objectives/mlm.gin"
include "optim/adamw_linear.gin"
MONO = "mono"
PARALLEL = None
VOCABULARY = "vocab"
HELDOUT_TEXT = "de=held.txt"
LAYERS = 1
WARMUP_STEPS = 1
BATCH = 2
MESH_DATA = 1
LENGTH = 32
TRAIN_STEPS = 6
LOG_EVERY = 1
EVAL_EVERY = 3
CHECKPOINT_EVERY = 3
KEEP_BEST = 1
BEST_METRIC = "perplexity/mean"
model.dim = 32
model.ffn = 128
model.heads = 2
"""
PRETRAIN = "pretrain --gin-file own.gin --to run"
ENCODE = "encode run --language de --input held.txt --to v.npy"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder of text, a vocabulary, a recipe and its finished run."""
    root = tmp_path_factory.mktemp("faults") / "whole"
    for code in WORDS:
        said = [f"{who} {act}" for who in WORDS[code] for act in ACTS[code]]
        lines = [f"{words} {n} ." for n in range(12) for words in said]
        (root / "mono" / code).mkdir(parents=True)
        (root / "mono" / code / "a.txt").write_text("\n".join(lines) + "\n")
    held = "".join(f"{who} {act} !\n" for who in WORDS["de"] for act in ACTS["de"])
    (root / "held.txt").write_text(held)
    (root / "own.gin").write_text(RECIPE)
    with contextlib.chdir(root), pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLINGJAX_CACHE", str(root / "cache"))
        assert main.main(["vocab", "--mono", "mono", "--size", "90", "--to", "vocab"]) == 0
        assert main.main(PRETRAIN.split()) == 0
    return root


@pytest.fixture
def place(whole, tmp_path, monkeypatch):
    root = shutil.copytree(whole, tmp_path / "place", symlinks=True)
    monkeypatch.chdir(root)
    monkeypatch.setenv("XLINGJAX_CACHE", str(root / "cache"))
    return root


def write(path, content):
    """What makes the input: in the place of a file, other content."""
    return lambda place: (place / path).write_bytes(content)


def folder(place):
    (place / "run/config.gin").unlink()
    (place / "run/config.gin").mkdir()


def appended(path, text):
    return lambda place: (place / path).write_text((place / path).read_text() + text)


def flipped(pattern):
    def flip(place):
        path = sorted(place.glob(pattern))[-1]
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)

    return flip


def looped(place):
    shutil.rmtree(place / "run/checkpoints")
    (place / "run/checkpoints").symlink_to(place / "run/checkpoints")


BEST = ENCODE.replace("run ", "run@perplexity/mean ")
LONGER = f"{PRETRAIN} --gin.TRAIN_STEPS=7"
PARAMS = "run/checkpoints/6/params/**/d/*"
LINES = b'{"step": 1, "objective": "mlm"}\n{"\xff": 1}\n'
# (what makes the input, the command, its status, the line).
CASES = [
    # files of a run
    (write("run/run.json", b"[" * 100_000), ENCODE, 2, "not valid JSON"),
    (write("run/metrics.jsonl", LINES), "report run", 0, "jsonl line 2: not UTF-8; left out"),
    (write("run/best.json", b'{"perp'), BEST, 2, "best.json: not valid JSON"),
    (folder, LONGER, 2, "move the folder away"),
    (
        appended("run/config.gin", "\nimport this\n"),
        "evaluate run",
        2,
        "has module 'this' imported",
    ),
    (flipped(PARAMS), LONGER, 0, "set aside as 6.unreadable"),
    (flipped(PARAMS), ENCODE, 2, "has other bytes than were written; name an older one"),
    (lambda place: shutil.rmtree(place / "run/checkpoints"), PRETRAIN, 2, "are gone: put them"),
    (looped, ENCODE, 2, "no checkpoint in"),
    (flipped("run/vocab.model"), ENCODE, 2, "vocab.model"),
    # settings
    (appended("own.gin", "\nTRAIN_STEP = 3\n"), PRETRAIN, 2, "did you mean 'TRAIN_STEPS'?"),
    (None, f"{PRETRAIN} --gin.BATCH=1e999", 2, "BATCH"),
    (None, "pretrian", 2, "did you mean 'pretrain'?"),
    # text and outputs
    (write("held.txt", b""), ENCODE, 2, "no sentence in it"),
    (None, ENCODE.replace("v.npy", "/dev/null"), 2, "is no ordinary file"),
    (None, ENCODE.replace("held.txt", "v.npy"), 2, "is the file of --input"),
    (None, f"{PRETRAIN} --gin.MONO=/none/*.txt", 2, "matches '/none/*"),
]


@pytest.mark.parametrize("make, words, status, line", CASES, ids=[case[3] for case in CASES])
def test_an_input_gets_its_line(make, words, status, line, place, capsys):
    if make:
        make(place)
    try:
        found = main.main(words.split())
    # argparse's own.
    except SystemExit as error:
        found = error.code
    said = capsys.readouterr()
    assert found == status, said.err
    text = said.out + said.err
    assert line in text and "Traceback" not in text
    if status == 2:
        assert sum(one.startswith("error: ") for one in said.err.splitlines()) == 1
        assert not (place / "v.npy").exists()


# ---- limits of the system, other processes -------------------------------------------------------


@contextlib.contextmanager
def limited(kind, value):
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


@contextlib.contextmanager
def no_file_left():
    """No number of a file is free. The limit is one of numbers: the gaps below it are filled."""
    gc.collect()
    gc.disable()
    taken = max(map(int, os.listdir("/proc/self/fd")))
    try:
        with contextlib.ExitStack() as opened, limited(resource.RLIMIT_NOFILE, taken + 1):
            with contextlib.suppress(OSError):
                while True:
                    opened.enter_context(open(os.devnull, "rb"))
            yield
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "limit, words, line",
    [
        (no_file_left, ENCODE, "Too many open files; raise the limit"),
        (lambda: limited(resource.RLIMIT_FSIZE, 2048), ENCODE, "File too large"),
        (lambda: take(Path("run/in_use.lock")), PRETRAIN, "is in use: process"),
        (lambda: take(Path("v.npy.in_use.lock")), ENCODE, "is in use: process"),
    ],
)
def test_what_is_refused_leaves_nothing(limit, words, line, place, capsys):
    before = sorted((place / "run").rglob("*"))
    with limit():
        status = main.main(words.split())
    assert status == 2
    (error,) = (one for one in capsys.readouterr().err.splitlines() if one.startswith("error: "))
    assert line in error
    assert sorted((place / "run").rglob("*")) == before and not (place / "v.npy").exists()
