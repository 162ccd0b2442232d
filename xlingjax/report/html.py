"""The look of a report: one page, no script, nothing fetched from anywhere."""

import html
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

esc = html.escape


def page(title: str, body: str) -> str:
    """A whole HTML document."""
    css = resources.files("xlingjax.report").joinpath("report.css").read_text("utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{esc(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>\n{css}</style></head><body><main>\n{body}\n</main></body></html>\n"
    )


def section(anchor: str, title: str, *parts: str) -> str:
    """A section, or nothing where all its parts are empty."""
    body = "\n".join(part for part in parts if part)
    return f'<section id="{anchor}"><h2>{esc(title)}</h2>\n{body}\n</section>' if body else ""


def table(
    head: Sequence[str], rows: Iterable[Sequence[Any]], mean_rows: int = 0, words: bool = False
) -> str:
    """Cells are escaped, numbers written by `number`; the last `mean_rows` rows stand out. words:
    cells hold text."""
    rows = list(rows)
    lines = ["<tr>" + "".join(f"<th>{esc(name)}</th>" for name in head) + "</tr>"]
    for i, row in enumerate(rows):
        mark = ' class="mean"' if i >= len(rows) - mean_rows else ""
        lines.append(
            f"<tr{mark}>" + "".join(f"<td>{esc(number(cell))}</td>" for cell in row) + "</tr>"
        )
    kind = ' class="words"' if words else ""
    return f'<div class="scroll"><table{kind}>' + "\n".join(lines) + "</table></div>"


def number(value: Any) -> str:
    """Digits a person reads: four significant ones, thousands apart, an absent value as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def percent(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.1f}"


def note(text: str) -> str:
    return f'<p class="note">{esc(text)}</p>'


def figure(svg_text: str, label: str) -> str:
    return f'<figure role="img" aria-label="{esc(label)}">{svg_text}</figure>'


def details(title: str, text: str) -> str:
    return f"<details><summary>{esc(title)}</summary><pre>{esc(text)}</pre></details>"


def tiles(entries: Iterable[tuple[str, Any]]) -> str:
    """Name and value of each headline figure."""
    cells = "".join(
        f'<div class="tile"><b>{esc(number(v))}</b><span>{esc(name)}</span></div>'
        for name, v in entries
    )
    return f'<div class="tiles">{cells}</div>' if cells else ""
