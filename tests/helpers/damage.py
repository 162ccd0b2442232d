"""Damage to files, drawn at random: what disks, half copies and editors do to them."""

import json
import os
import shutil
import time

import numpy as np

VALUES = (None, True, -1, 3.5, 10**30, float("nan"), "x", "", [], [1], {}, {"a": 1})


def until(seconds):
    """Numbers from 0 on for so many seconds; XLINGJAX_FUZZ_SECONDS instead, by hand."""
    begun = time.monotonic()
    seconds = float(os.environ.get("XLINGJAX_FUZZ_SECONDS", seconds))
    number = 0
    while number < 3 or time.monotonic() - begun < seconds:
        yield number
        number += 1


def damage(path, draw):
    """Damages a file; what was done, in words."""
    kinds = [flipped, cut, emptied, gone, a_folder, overwritten, doubled]
    if path.suffix in (".json", ".jsonl"):
        kinds += 3 * [of_another_type]
    kind = kinds[draw.integers(len(kinds))]
    kind(path, draw)
    return f"{path.name}: {kind.__name__}"


def flipped(path, draw):
    content = bytearray(path.read_bytes())
    for _ in range(int(draw.integers(1, 4))):
        if content:
            content[draw.integers(len(content))] ^= 1 << int(draw.integers(8))
    path.write_bytes(content)


def cut(path, draw):
    content = path.read_bytes()
    path.write_bytes(content[: draw.integers(len(content) + 1)])


def emptied(path, draw):
    path.write_bytes(b"")


def gone(path, draw):
    path.unlink()


def a_folder(path, draw):
    path.unlink()
    path.mkdir()


def overwritten(path, draw):
    content = bytearray(path.read_bytes())
    at = int(draw.integers(len(content) + 1))
    content[at : at + 30] = draw.bytes(30)
    path.write_bytes(content)


def doubled(path, draw):
    path.write_bytes(2 * path.read_bytes())


def of_another_type(path, draw):
    """Another value, or none, at a random place of a JSON value."""
    lines = path.read_text(encoding="utf-8").splitlines()
    number = int(draw.integers(len(lines) + 1)) - 1
    if path.suffix == ".json":
        lines, number = ["".join(lines)], 0
    value = _changed(json.loads(lines[number]), draw)
    lines[number] = json.dumps(value)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _changed(value, draw):
    if not isinstance(value, dict | list) or not value or draw.integers(5) == 0:
        return VALUES[draw.integers(len(VALUES))]
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = keys[draw.integers(len(keys))]
    if draw.integers(4) == 0:
        del value[key]
    else:
        value[key] = _changed(value[key], draw)
    return value


def files_below(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def restore(folder, whole):
    """The folder as it was."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)


def seeded(number):
    return np.random.default_rng([33, number])
