"""The look of a report: one page, no script, nothing fetched from anywhere."""

import html
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

esc = html.escape


def page(title: str, body: str) -> str:
    """A whole HTML document."""
    # Read as a resource of the package, which may lie in a zip file.
    css = resources.files("xlingjax.report").joinpath("report.css").read_text("utf-8")
    # The style within it, so that the file can be sent as it is.
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{esc(title)}</title>'
        # Whatever a folder of others brought into the page: nothing in it runs or is fetched.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<style>\n{css}</style></head><body><main>\n{body}\n</main></body></html>\n"
    )


def section(anchor: str, title: str, *parts: str) -> str:
    """A section, or nothing where all its parts are empty."""
    # Parts are "" where a run has nothing of the kind.
    body = "\n".join(filter(None, parts))
    if not body:
        return ""
    return f'<section id="{esc(anchor)}"><h2>{esc(title)}</h2>\n{body}\n</section>'


def table(
    head: Sequence[str], rows: Iterable[Sequence[Any]], mean_rows: int = 0, words: bool = False
) -> str:
    """Cells are escaped, numbers written by `number`; the last `mean_rows` rows stand out. words:
    cells hold text."""
    rows = list(rows)
    lines = [_row("th", head)]
    for i, row in enumerate(rows):
        mark = ""
        if i >= len(rows) - mean_rows:
            mark = ' class="mean"'
        lines.append(_row("td", map(number, row), mark))
    kind = ""
    if words:
        kind = ' class="words"'
    body = "\n".join(lines)
    # A wide table scrolls in itself, and the page keeps its width.
    return f'<div class="scroll"><table{kind}>{body}</table></div>'


def _row(tag: str, cells: Iterable[str], mark: str = "") -> str:
    body = "".join(f"<{tag}>{esc(cell)}</{tag}>" for cell in cells)
    return f"<tr{mark}>{body}</tr>"


def heat(
    head: Sequence[str],
    rows: Iterable[tuple[str, Sequence[float | None]]],
    form: str = "{:.0f}",
    low: float = 0,
    high: float = 100,
) -> str:
    """A table of numbers (a name and values a row), coloured from `low` to `high`; an absent value
    is a dash."""
    span = (high - low) or 1
    lines = [_row("th", head)]
    for name, values in rows:
        cells = [f"<td>{esc(name)}</td>"]
        for value in values:
            if value is None:
                cells.append("<td>–</td>")
                continue
            share = min(max((value - low) / span, 0), 1)
            # At most 0.6, so that the page's ink can be read on it.
            cells.append(f'<td style="--heat:{0.6 * share:.2f}">{esc(form.format(value))}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="scroll"><table class="heat">{"".join(lines)}</table></div>'


def number(value: Any) -> str:
    """Digits a person reads: four significant ones, thousands apart, an absent value as a dash."""
    if value is None:
        return "–"
    # To Python True is a number.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 10_000:
        return f"{value:,.0f}"
    if abs(value) >= 1000:
        return f"{value:,.1f}"
    return f"{value:.4g}"


def percent(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{100 * value:.1f}"


def note(text: str) -> str:
    return f'<p class="note">{esc(text)}</p>'


def figure(svg_text: str, label: str) -> str:
    return f'<figure role="img" aria-label="{esc(label)}">{svg_text}</figure>'


def titled(title: str, part: str) -> str:
    return f"<div><h3>{esc(title)}</h3>{part}</div>"


def beside(parts: Iterable[str]) -> str:
    """The parts beside each other, below each other where there is no room."""
    return f'<div class="panels">{"".join(parts)}</div>'


def details(title: str, text: str) -> str:
    return f"<details><summary>{esc(title)}</summary><pre>{esc(text)}</pre></details>"


def tiles(entries: Iterable[tuple[str, Any, Sequence[str]]]) -> str:
    """Name, value and lines below it of each headline figure."""
    cells = []
    for name, value, below in entries:
        lines = "".join(f"<small>{esc(line)}</small>" for line in below)
        cells.append(
            f'<div class="tile"><span>{esc(name)}</span><b>{esc(number(value))}</b>{lines}</div>'
        )
    if not cells:
        return ""
    return f'<div class="tiles">{"".join(cells)}</div>'
