"""A training that is killed (SIGKILL) or stopped (SIGTERM, SIGHUP) at a drawn moment, and what the
same command then ends with: the bits of the run that nothing stopped? Alone on the machine: threads
that wait for others may add in another order."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

from benchmarks.faults.place import Place
from xlingjax.inference.run import open_run

STEPS = 800
# Each step is logged: a run that is stopped logs what it has, and a line of several steps would be
# two.
SETTINGS = ("CHECKPOINT_EVERY=50", "EVAL_EVERY=200", "LOG_EVERY=1")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
"""In turn, each at a drawn moment."""


def kills(place: Place, count: int, seed: int) -> int:
    """Prints a table of `count` kills; the exit status."""
    draw = np.random.default_rng(seed)
    place.recipe(STEPS)
    # The first one compiles.
    for name in ("first", "whole"):
        whole = place.root / name
        began = time.monotonic()
        _end(_start(place, whole))
        seconds = time.monotonic() - began
    wanted = _made(whole)
    print(
        f"the whole run: {STEPS} steps in {seconds:.1f} s\n\n"
        "| Signal | after, s | at step | status | goes on from | the same bits |\n"
        "|---|--:|--:|--:|--:|---|"
    )
    wrong = 0
    for number in range(count):
        kind = SIGNALS[number % len(SIGNALS)]
        run = place.root / f"killed-{number}"
        moment = float(draw.uniform(0, seconds))
        process = _start(place, run)
        time.sleep(moment)
        process.send_signal(kind)
        status = process.wait()
        at = _last_step(run)
        _end(_start(place, run))
        verdict = "yes"
        if _made(run) != wanted:
            verdict = "NO"
            wrong += 1
        record = json.loads((run / "run.json").read_text("utf-8"))
        _, *again = record["sessions"]
        # A run that had ended, or had not begun, is begun once.
        goes_on = "-"
        if again:
            goes_on = again[-1]["step"]
        print(
            f"| {kind.name} | {moment:.1f} | {at} | {status} | {goes_on} | {verdict} |", flush=True
        )
    print(f"\n{count} kills, seed {seed}: {count - wrong} end in the bits of the whole run")
    return int(wrong > 0)


def _start(place: Place, run: Path) -> subprocess.Popen:
    words = ["--gin_file", place.gin, "--workdir", run]
    words += [f"--gin.{setting}" for setting in SETTINGS]
    return subprocess.Popen(
        [sys.executable, "-m", "xlingjax", "pretrain", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _end(process: subprocess.Popen) -> None:
    if status := process.wait():
        raise SystemExit(f"a run that nothing stopped ended with status {status}")


def _made(run: Path) -> tuple:
    """(bytes of the parameters, what was logged of each step)."""
    params = jax.tree.leaves(open_run(str(run)).params)
    lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    logged = [
        (record["step"], record["objective"], record["loss"]) for record in map(json.loads, lines)
    ]
    return [np.asarray(one).tobytes() for one in params], logged


def _last_step(run: Path) -> int:
    """That metrics.jsonl tells of; 0: none."""
    path = run / "metrics.jsonl"
    if not path.exists():
        return 0
    # Behind the last end of a line stands nothing, or half a line.
    whole = path.read_text("utf-8").split("\n")[:-1]
    if not whole:
        return 0
    return json.loads(whole[-1])["step"]
