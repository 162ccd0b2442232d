"""The lines that `xlingjax adapt` keeps out of the training and measures on, before and after."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from xlingjax.data.check import Findings
from xlingjax.data.held_out_pairs import pivot_of
from xlingjax.data.holdout import held_out_of
from xlingjax.data.text.sources import find_pairs, find_text
from xlingjax.workflows.adapt.request import Request

HELDOUT_LINES = 200  # wanted of the smallest text; at most a tenth of it


def heldout_shares(findings: Findings, request: Request) -> dict[str, float]:
    """{"text", "pairs": share}: one for both where they are the same files, so that no line is on
    both sides."""
    smallest = {
        kind: min(row["sentences"] for row in rows)
        for kind, rows in findings.tables.items()
        if rows
    }
    if not request.mono:
        # Without --mono the sides of the pairs are the text: two shares would hold out other lines
        # of the same file, and text would train on what pairs are measured on.
        smallest = dict.fromkeys(("text", "pairs"), min(smallest.values()))
    # A share and no count, since `holdout` of a recipe is one for all of its texts.
    return {
        kind: min(0.1, HELDOUT_LINES / max(smallest.get(kind, 1), 1)) for kind in ("text", "pairs")
    }


def write_heldout(
    mono: Sequence[str], parallel: Sequence[str], share: Mapping[str, float], folder: Path
) -> dict[str, int]:
    """Writes the lines that objectives with such a `holdout` leave out: `text/XX.txt`, and of pairs
    with the pivot `pairs/XX-en.XX` beside `.en`. Returns {file: lines}; of a text too short for the
    share there is none."""
    written = {}
    texts = {}
    for text in find_text(mono):
        texts.setdefault(text.language, []).append(text)
    for language, files in texts.items():
        lines = _held(files, share["text"])
        if any(lines):
            path = folder / "text" / f"{language}.txt"
            _write_lines(path, lines)
            written[path.name] = len(lines)
    pairs = {}
    found = find_pairs(parallel) if parallel else []
    pivot = pivot_of(found)
    for pair in found:
        if pivot in pair.languages and pair.translates:
            pairs.setdefault(pair.languages, []).append(pair)
    for languages, files in pairs.items():
        lines = [line for line in _held(files, share["pairs"]) if all(line)]
        if not lines:
            continue
        # The names that held-out folders have, whichever side English is on.
        (other,) = {*languages} - {pivot}
        for code, side in zip(languages, zip(*lines, strict=True), strict=True):
            path = folder / "pairs" / f"{other}-{pivot}.{code}"
            _write_lines(path, side)
            written[path.name] = len(side)
    return written


def first_lines(content: bytes, count: int) -> bytes:
    """Ended by line feeds alone: what else may end a line would part the sides of a pair."""
    return b"".join(line + b"\n" for line in content.split(b"\n")[:-1][:count])


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _held(files: Sequence, share: float) -> list:
    # Counted first: which blocks are held out depends on the length of the files together.
    counts = [sum(1 for _ in file.lines()) for file in files]
    held = []
    for file, mask in zip(files, held_out_of(files, counts, share), strict=True):
        held += itertools.compress(file.lines(), mask)
    return held
