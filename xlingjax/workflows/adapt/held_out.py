"""The lines that `xlingjax adapt` keeps out of the training and measures on, before and after."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.check import Findings
from xlingjax.data.held_out_pairs import PIVOT
from xlingjax.data.holdout import BLOCK, held_out_of
from xlingjax.data.text.sources import find_pairs, find_text
from xlingjax.data.text.texts import Pair, Text
from xlingjax.workflows.adapt.request import Request

HELDOUT_LINES = 200
"""Wanted of the smallest text; at most a tenth of it."""
_MACROS = {"text": "HELDOUT_TEXT='xx=FILE'", "pairs": "HELDOUT_PAIRS=DIR"}


def heldout_shares(findings: Findings, request: Request) -> dict[str, float]:
    """{"text", "pairs": share}: one for both where they are the same files, so that no line is on
    both sides."""
    smallest = {}
    for kind, rows in findings.tables.items():
        if rows:
            smallest[kind] = min(row["sentences"] for row in rows)
    if not request.mono:
        # Without --mono the sides of the pairs are the text: two shares would hold out other lines
        # of the same file, and text would train on what pairs are measured on.
        smallest = dict.fromkeys(("text", "pairs"), min(smallest.values()))
    shares = {}
    for kind in ("text", "pairs"):
        sentences = max(smallest.get(kind, 1), 1)
        # A share and no count, since `holdout` of a recipe is one for all of its texts.
        shares[kind] = min(0.1, HELDOUT_LINES / sentences)
    return shares


def say_unmeasured(findings: Findings, held: Mapping[str, int], share: Mapping[str, float]) -> None:
    """Of which texts, and pairs with English, nothing is held out. held: {file: lines}."""
    measured = [_codes(Path(file).stem) for file in held]
    for kind, macro in _MACROS.items():
        unmeasured = []
        for row in findings.tables.get(kind, ()):
            codes = _codes(row["name"])
            if kind == "pairs" and not {PIVOT} < codes:
                continue  # only pairs with English are measured
            if codes not in measured:
                unmeasured.append(row["name"])
        if unmeasured:
            # Whole blocks are held out, so a shorter text may not have one.
            lines = math.ceil(BLOCK / share[kind])
            print(
                f"not measured: {', '.join(unmeasured)}: a share of {share[kind]:.2%} takes nothing"
                f" of less than about {lines} lines; give more, or lines apart: --gin.{macro}"
            )


def _codes(name: str) -> set[str]:
    """The languages of a text or of a pair."""
    return {*name.split("-")}


def write_heldout(
    mono: Sequence[str], parallel: Sequence[str], share: Mapping[str, float], folder: Path
) -> dict[str, int]:
    """Writes the lines that objectives with such a `holdout` leave out: `text/XX.txt`, and of pairs
    with English `pairs/XX-en.XX` beside `.en`. Returns {file: lines}; of a text too short for the
    share there is none.
    """
    written = {}
    for language, files in _texts(mono).items():
        lines = _held(files, share["text"])
        if any(lines):
            path = folder / "text" / f"{language}.txt"
            _write_lines(path, lines)
            written[path.name] = len(lines)
    for languages, files in _pairs_with_english(parallel).items():
        # A line that lacks a side is no pair.
        lines = [line for line in _held(files, share["pairs"]) if all(line)]
        if not lines:
            continue
        # The names that held-out folders have, whichever side English is on.
        (other,) = {*languages} - {PIVOT}
        for code, side in zip(languages, zip(*lines, strict=True), strict=True):
            path = folder / "pairs" / f"{other}-{PIVOT}.{code}"
            _write_lines(path, side)
            written[path.name] = len(side)
    return written


def _texts(patterns: Sequence[str]) -> dict[str, list[Text]]:
    texts: dict[str, list[Text]] = {}
    for text in find_text(patterns):
        texts.setdefault(text.language, []).append(text)
    return texts


def _pairs_with_english(patterns: Sequence[str]) -> dict[tuple[str, ...], list[Pair]]:
    """Of the languages of both sides; without those that are no translations."""
    pairs: dict[tuple[str, ...], list[Pair]] = {}
    if not patterns:
        return pairs
    for pair in find_pairs(patterns):
        if PIVOT in pair.languages and pair.translates:
            pairs.setdefault(pair.languages, []).append(pair)
    return pairs


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _held(files: Sequence[Any], share: float) -> list[Any]:
    """The lines of the files that are held out."""
    # Counted first: which blocks are held out depends on the length of the files together.
    counts = []
    for file in files:
        counts.append(sum(1 for _ in file.lines()))
    held = []
    for file, mask in zip(files, held_out_of(files, counts, share), strict=True):
        for keep, line in zip(mask, file.lines(), strict=True):
            if keep:
                held.append(line)
    return held
