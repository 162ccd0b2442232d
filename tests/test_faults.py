"""What wrong, damaged and hostile input gets: one line, no traceback, and nothing half-written.

The telling inputs of a larger study (docs/results/faults.md)."""

import contextlib
import gc
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from xlingjax.cli import main
from xlingjax.inference.run import open_run
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
PRETRAIN = "pretrain --gin_file own.gin --workdir run"
ENCODE = "encode run --language de --input held.txt --output v.npy"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder of text, a vocabulary, a recipe and its finished run."""
    root = tmp_path_factory.mktemp("faults") / "whole"
    for code in WORDS:
        lines = [
            f"{who} {act} {n} ." for n in range(12) for who in WORDS[code] for act in ACTS[code]
        ]
        (root / "mono" / code).mkdir(parents=True)
        (root / "mono" / code / "a.txt").write_text("\n".join(lines) + "\n")
    held = "".join(f"{who} {act} !\n" for who in WORDS["de"] for act in ACTS["de"])
    (root / "held.txt").write_text(held)
    (root / "own.gin").write_text(RECIPE)
    with contextlib.chdir(root), pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLINGJAX_CACHE", str(root / "cache"))
        assert main.main(["vocab", "--mono", "mono", "--size", "90", "--output", "vocab"]) == 0
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


def folder(path):
    def replace(place):
        (place / path).unlink()
        (place / path).mkdir()

    return replace


def appended(path, text):
    return lambda place: (place / path).write_text((place / path).read_text() + text)


def flipped(pattern):
    def flip(place):
        path = sorted(place.glob(pattern))[-1]
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)

    return flip


def looped(path):
    def replace(place):
        shutil.rmtree(place / path)
        (place / path).symlink_to(place / path)

    return replace


def removed(path):
    return lambda place: shutil.rmtree(place / path)


CASES = {
    # files of a run
    "run.json of brackets": (write("run/run.json", b"[" * 100_000), ENCODE, 2, "not valid JSON"),
    "run.json that is a list": (write("run/run.json", b"[1]"), ENCODE, 2, "it is no table"),
    "metrics.jsonl not UTF-8": (
        write("run/metrics.jsonl", b'{"step": 1, "objective": "mlm"}\n{"\xff": 1}\n'),
        "report run",
        0,
        "metrics.jsonl line 2: not UTF-8; left out",
    ),
    "best.json cut short": (
        write("run/best.json", b'{"perp'),
        ENCODE.replace("run ", "run@perplexity/mean "),
        2,
        "best.json: not valid JSON",
    ),
    "a folder named config.gin": (
        folder("run/config.gin"),
        f"{PRETRAIN} --gin.TRAIN_STEPS=7",
        2,
        "move the folder away",
    ),
    "a recipe that imports": (
        appended("run/config.gin", "\nimport this\n"),
        "evaluate run",
        2,
        "this file came with a run, and has module 'this' imported",
    ),
    "a flipped bit in a checkpoint": (
        flipped("run/checkpoints/6/params/**/d/*"),
        f"{PRETRAIN} --gin.TRAIN_STEPS=7",
        0,
        "set aside as 6.unreadable",
    ),
    "the same, to read": (
        flipped("run/checkpoints/6/params/**/d/*"),
        ENCODE,
        2,
        "has other bytes than were written; name an older one",
    ),
    "checkpoints that are gone": (removed("run/checkpoints"), PRETRAIN, 2, "are gone: put them"),
    "a link to itself": (looped("run/checkpoints"), ENCODE, 2, "no checkpoint in"),
    "a flipped bit in the vocabulary": (flipped("run/vocab.model"), ENCODE, 2, "vocab.model"),
    # settings
    "a misspelt setting": (
        appended("own.gin", "\nTRAIN_STEP = 3\n"),
        PRETRAIN,
        2,
        "did you mean 'TRAIN_STEPS'?",
    ),
    "a number too large": (None, f"{PRETRAIN} --gin.BATCH=1e999", 2, "BATCH"),
    "a misspelt verb": (None, "pretrian", 2, "did you mean 'pretrain'?"),
    # text and outputs
    "lines of old Macs": (write("held.txt", b"eins\rzwei\r"), ENCODE, 2, "its lines end in CR"),
    "an empty text": (write("held.txt", b""), ENCODE, 2, "no sentence in it"),
    "an output that is a device": (
        None,
        ENCODE.replace("v.npy", "/dev/null"),
        2,
        "is no ordinary file",
    ),
    "an output that is the input": (
        None,
        ENCODE.replace("held.txt", "v.npy"),
        2,
        "is the file of --input",
    ),
    "text that is not there": (None, f"{PRETRAIN} --gin.MONO=/none/*.txt", 2, "matches '/none/*"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_input_gets_its_line(name, place, capsys):
    make, words, status, line = CASES[name]
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
        (
            lambda: limited(resource.RLIMIT_FSIZE, 2048),
            "export run --to v.npy --unverified",
            "File too large",
        ),
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


# ---- kills ---------------------------------------------------------------------------------------


def made(run):
    """(bytes of the parameters, the loss of each step)."""
    leaves = jax.tree.leaves(open_run(str(run)).params)
    return [np.asarray(leaf).tobytes() for leaf in leaves], (run / "metrics.jsonl").read_text()


@pytest.mark.parametrize("kind, after", [(signal.SIGKILL, 150), (signal.SIGTERM, 60)])
def test_a_run_that_is_killed_ends_in_the_bits_of_one_that_is_not(kind, after, place):
    words = [*PRETRAIN.split(), "--gin.TRAIN_STEPS=200", "--gin.EVAL_EVERY=0"]
    words += ["--gin.CHECKPOINT_EVERY=40", "--gin.KEEP_BEST=0"]
    command = [sys.executable, "-m", "xlingjax", *words, "--workdir"]
    # One thread of computation: threads that wait for others may add in another order.
    environment = {**os.environ, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    options = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*command, "once"], check=True, **options)
    process = subprocess.Popen([*command, "killed"], **options)
    log = place / "killed" / "metrics.jsonl"
    while not log.exists() or log.read_text().count("\n") < after:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(kind)
    assert process.wait() == (75 if kind == signal.SIGTERM else -kind)
    subprocess.run([*command, "killed"], check=True, **options)
    params, _ = made(place / "once")
    assert made(place / "killed")[0] == params
