"""Tables of mined wrong partners, as the inspector and the report show them."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.data.text.files import read_lines
from xlingjax.data.text.sources import find_negatives
from xlingjax.data.text.texts import Text
from xlingjax.errors import UserError
from xlingjax.report import html

HEAD = ("similarity", "kind", "sentence", "its translation", "wrong partner")
NOTE = (
    "Similarity: cosine of the light model between the sentence and its wrong partner. hard: among"
    " the nearest; random: any sentence."
)


def read(patterns: Sequence[str], shown: int = 8) -> list[dict[str, Any]]:
    """Of each table that `xlingjax mine --negatives` wrote, JSON values: {"table", "languages",
    "pairs", "similarity": {kind: mean}, "rows": the first `shown` as [similarity, kind, sentence,
    translation, wrong partner]}. A table may lack similarity and kind. Raises UserError for what is
    no such table."""
    if not patterns:
        return []
    tables = []
    for triple in find_negatives(patterns):
        path = triple.first.path
        # Held whole: means are over all, though only a few are shown.
        texts = list(triple.lines())
        cells = _column(triple.first, "similarity", len(texts))
        kinds = _column(triple.first, "kind", len(texts))
        by_kind: dict[str, list[float]] = {}
        rows = []
        for cell, kind, sentences in zip(cells, kinds, texts, strict=True):
            score = _number(cell, path)
            if score is not None:
                # Apart by kind: hard ones are near and random
                # ones far, and their mean would be of neither.
                by_kind.setdefault(kind or "all", []).append(score)
            rows.append([score, kind, *sentences])
        means = {}
        for kind, scores in sorted(by_kind.items()):
            means[kind] = statistics.fmean(scores)
        table = {
            "table": path.name,
            # The wrong partner is in the second of them.
            "languages": list(triple.languages[:2]),
            "pairs": len(texts),
            "similarity": means,
            "rows": rows[:shown],
        }
        tables.append(table)
    return tables


def _column(text: Text, name: str, count: int) -> list[str | None]:
    """The cells of a column that a table need not have."""
    _, header = next(read_lines(text.path))
    if name not in header.split("\t"):
        return [None] * count
    return list(Text(text.path, text.language, name).lines())


def _number(cell: str | None, path: Any) -> float | None:
    if cell is None:
        return None
    try:
        return float(cell)
    except ValueError:
        raise UserError(
            f"{path}: similarity {cell!r} is not a number: mine the table again"
        ) from None


def section(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """The parts of the section of a page."""
    if not tables:
        return []
    parts = []
    for table in tables:
        parts.append(f"<h3>{html.esc(title(table))}</h3>")
        parts.append(html.table(HEAD, table["rows"], words=True))
    return [*parts, html.note(NOTE)]


def title(table: Mapping[str, Any]) -> str:
    means = ", ".join(f"{kind} {mean:.3f}" for kind, mean in table["similarity"].items())
    text = f"{table['table']}: {table['pairs']:,} pairs"
    if means:
        text += f"; mean similarity: {means}"
    return text
