"""Every file of a run, damaged in every way: what five verbs then say, and whether what they give
is what they give of the whole run."""

import collections
import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults.place import STEPS, Place, Said, cli
from xlingjax.inference import run
from xlingjax.model import build
from xlingjax.workflows import launch

FINE = "as of the whole run"
TOLD = "with a warning"
REFUSED = "refused in a line"
WRONG = ("traceback", "silently wrong")


def half(path: Path, draw: np.random.Generator) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def empty(path: Path, draw: np.random.Generator) -> None:
    path.write_bytes(b"")


def flipped(path: Path, draw: np.random.Generator) -> None:
    """One bit."""
    content = bytearray(path.read_bytes())
    if content:
        content[draw.integers(len(content))] ^= 1 << int(draw.integers(8))
    path.write_bytes(content)


def a_folder(path: Path, draw: np.random.Generator) -> None:
    path.unlink()
    path.mkdir()


def removed(path: Path, draw: np.random.Generator) -> None:
    path.unlink()


def foreign(path: Path, draw: np.random.Generator) -> None:
    """Other bytes in the middle."""
    content = bytearray(path.read_bytes())
    at = len(content) // 2
    content[at : at + 64] = draw.bytes(64)
    path.write_bytes(content)


DAMAGES = (half, empty, flipped, a_folder, removed, foreign)


# ---- the verbs, each with what it made -----------------------------------------------------------


def encode(place: Place) -> tuple[Said, Any]:
    output = place.root / "v.npy"
    words = ("--input", place.root / "held/de.txt", "--output", output)
    said = cli("encode", place.run, "--language", "de", *words)
    return said, _bytes(output)


def report(place: Place) -> tuple[Said, Any]:
    said = cli("report", place.run)
    return said, _bytes(place.run / "report.json")


def evaluate(place: Place) -> tuple[Said, Any]:
    said = cli("evaluate", place.run)
    lines = [x for x in said.out.splitlines() if x.startswith("step ")]
    return said, lines


def export(place: Place) -> tuple[Said, Any]:
    folder = place.root / "export"
    said = cli("export", place.run, "--to", folder, "--unverified")
    return said, _bytes(folder / "model.safetensors")


def resumed(place: Place) -> tuple[Said, Any]:
    """A training that goes on: the same bits, from whichever checkpoint."""
    said = place.pretrain(steps=STEPS + 2)
    values = []
    for line in _bytes(place.run / "metrics.jsonl").splitlines():
        # Of damaged lines, which are left as they are, nothing is known.
        try:
            record = json.loads(line)
            values.append((record["step"], record["loss"]))
        except (ValueError, KeyError, TypeError):
            continue
    return said, values[-1:]


VERBS: dict[str, Callable[[Place], tuple[Said, Any]]] = {
    "encode": encode,
    "report": report,
    "evaluate": evaluate,
    "export": export,
    "pretrain": resumed,
}


def _bytes(path: Path) -> bytes:
    if path.is_file():
        return path.read_bytes()
    return b""


def damaged(place: Place, seconds: float, seed: int) -> int:
    """Prints a table of counts; the exit status."""
    _compile_once()
    whole = {}
    for name, verb in VERBS.items():
        said, whole[name] = verb(place)
        if said.status != 0 or not whole[name]:
            raise SystemExit(f"{name} of the whole run: {said.line} {said.trace}")
        place.fresh()
    files = sorted(path for path in place.run.rglob("*") if path.is_file())
    names = [path.relative_to(place.run) for path in files]
    counts: dict[str, collections.Counter] = {}
    problems = []
    tried = 0
    for file, damage, verb, draw in _drawn(names, seconds, seed):
        place.fresh()
        damage(place.run / file, draw)
        said, made = VERBS[verb](place)
        outcome = _outcome(said, made == whole[verb])
        counts.setdefault(verb, collections.Counter())[outcome] += 1
        tried += 1
        if outcome in WRONG:
            problem = f"{file}, {damage.__name__}, {verb}: {outcome}"
            problems.append(problem)
            print(f"{problem}: {said.wrong or said.line}", flush=True)
    outcomes = (FINE, TOLD, REFUSED, *WRONG)
    print(f"\n| verb | {' | '.join(outcomes)} |\n|---|{'---|' * len(outcomes)}")
    for verb, of_verb in counts.items():
        numbers = " | ".join(str(of_verb[outcome]) for outcome in outcomes)
        print(f"| {verb} | {numbers} |")
    possible = len(names) * len(DAMAGES) * len(VERBS)
    print(
        f"\n{tried} of {possible} (file, damage, verb) of {len(names)} files, seed {seed}:"
        f" {len(problems)} wrong"
    )
    return int(bool(problems))


def _compile_once() -> None:
    """Equal configurations are one model, so that the verbs share what is compiled for it."""
    shared = functools.lru_cache(build.build_model)
    for module in (run, launch):
        module.build_model = shared


def _drawn(
    names: list[Path], seconds: float, seed: int
) -> Iterator[tuple[Path, Callable, str, np.random.Generator]]:
    """Each (file, damage, verb) once, in a drawn order, for so long."""
    end = time.monotonic() + seconds
    every = [(file, damage, verb) for file in names for damage in DAMAGES for verb in VERBS]
    order = np.random.default_rng(seed).permutation(len(every))
    for number in order.tolist():
        if time.monotonic() > end:
            return
        file, damage, verb = every[number]
        # Of its own, so that one can be had again.
        mark = hashlib.sha256(f"{seed} {file} {damage.__name__} {verb}".encode())
        draw = np.random.default_rng([*mark.digest()])
        yield file, damage, verb, draw


def _outcome(said: Said, same: bool) -> str:
    if said.wrong:
        return WRONG[0]
    if said.status == 2:
        return REFUSED
    warned = "warning: " in said.out + said.err or "set aside" in said.out
    if same and not warned:
        return FINE
    if warned:
        return TOLD
    return WRONG[1]
