"""A released encoder and real text, where the machine has them: tests skip, and say why, where it
has not."""

import os
import random
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("XLINGJAX_RELEASED", ""))
DATA = Path(os.environ.get("XLINGJAX_DATA", ""))
needs_released = pytest.mark.skipif(
    not os.environ.get("XLINGJAX_RELEASED"),
    reason="XLINGJAX_RELEASED names no folder of a released encoder",
)
needs_data = pytest.mark.skipif(
    not os.environ.get("XLINGJAX_DATA"), reason="XLINGJAX_DATA names no folder of real data"
)


def sentences(per_language: int) -> list[str]:
    """So many lines of the monolingual text of each language, drawn with seed 0."""
    found = []
    for folder in sorted((DATA / "pretrain" / "mono").iterdir()):
        lines = []
        for path in sorted(folder.glob("*.txt")):
            lines += [line.rstrip("\n") for line in path.open(encoding="utf-8") if line.strip()]
        found += random.Random(0).sample(lines, min(per_language, len(lines)))
    return found
