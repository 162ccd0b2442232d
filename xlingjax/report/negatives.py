"""Tables of mined wrong partners, as the inspector and the report show them."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.data.sources import Text, find_negatives, read_lines
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
    found = []
    for triple in find_negatives(patterns) if patterns else ():
        path, texts = triple.first.path, list(triple.lines())
        scores = [_number(score, path) for score in _column(triple.first, "similarity", len(texts))]
        kinds = _column(triple.first, "kind", len(texts))
        by_kind: dict[str, list[float]] = {}
        for kind, score in zip(kinds, scores, strict=True):
            if score is not None:
                by_kind.setdefault(kind or "all", []).append(score)
        rows = [
            [score, kind, *three] for score, kind, three in zip(scores, kinds, texts, strict=True)
        ]
        found.append(
            {
                "table": path.name,
                "languages": list(triple.languages[:2]),
                "pairs": len(texts),
                "similarity": {kind: statistics.fmean(of) for kind, of in sorted(by_kind.items())},
                "rows": rows[:shown],
            }
        )
    return found


def _column(text: Text, name: str, count: int) -> list[str | None]:
    """The cells of a column that a table need not have."""
    header = next(read_lines(text.path))[1].split("\t")
    return list(Text(text.path, text.language, name).lines()) if name in header else [None] * count


def _number(cell: str | None, path: Any) -> float | None:
    try:
        return None if cell is None else float(cell)
    except ValueError:
        raise UserError(
            f"{path}: similarity {cell!r} is not a number: mine the table again"
        ) from None


def section(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """The parts of the section of a page."""
    parts = []
    for table in tables:
        parts += [f"<h3>{html.esc(title(table))}</h3>", html.table(HEAD, table["rows"], words=True)]
    return [*parts, html.note(NOTE)] if parts else []


def title(table: Mapping[str, Any]) -> str:
    means = ", ".join(f"{kind} {mean:.3f}" for kind, mean in table["similarity"].items())
    return f"{table['table']}: {table['pairs']:,} pairs" + (
        f"; mean similarity: {means}" if means else ""
    )
