"""The score card as Markdown, LaTeX, JSON and a page."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from xlingjax.report import drawing, html
from xlingjax.runtime.files import write_text
from xlingjax.workflows import scorecard, scorecard_plots
from xlingjax.workflows.scorecard_tables import Grid, pivots, sections_of

_ABOUT = (
    "All figures in 0 to 100, mean ± standard deviation over seeds. mean: of the languages of the"
    " official average that are here; untrained languages: without training examples; gap: English"
    " less the mean of the others."
)


def write(card: dict[str, Any], folder: Path) -> list[Path]:
    """card.json, card.md, card.tex and card.html in `folder`, and a picture of each task in its
    folder images."""
    texts = {
        "card.json": json.dumps(card, indent=1, ensure_ascii=False) + "\n",
        "card.md": markdown(card),
        "card.tex": latex(card),
        "card.html": page(card),
    }
    written = []
    for name, text in texts.items():
        path = folder / name
        write_text(path, text)
        written.append(path)
    for table in card["tables"]:
        figures = scorecard_plots.by_language(table)
        if figures is None:
            continue
        name = table["task"].replace("/", "-")
        path = folder / "images" / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        drawing.save(figures, path)
        written.append(path)
    return written


def markdown(card: dict[str, Any]) -> str:
    parts = ["# Score card", _ABOUT]
    for title, grids, lines, _ in sections_of(card):
        parts.append(f"## {title}")
        for each in grids:
            rule = ["---"] * len(each.head)
            rows = []
            for row in (each.head, rule, *each.rows):
                rows.append("| " + " | ".join(row) + " |")
            parts += [f"{each.caption}:", "\n".join(rows)]
        parts.append("\n".join(f"- {line}" for line in lines))
    return "\n\n".join(parts) + "\n"


def latex(card: dict[str, Any]) -> str:
    """Tables for `booktabs`."""
    parts = [f"% {_ABOUT}"]
    for title, grids, lines, _ in sections_of(card):
        for each in grids:
            table = [
                *(f"% {line}" for line in lines),
                r"\begin{table}\centering\small",
                rf"\caption{{{_escaped(title)}, {_escaped(each.caption)}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(each.head) - 1)}}}",
                r"\toprule",
                _latex_row(each.head),
                r"\midrule",
                *map(_latex_row, each.rows),
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
            ]
            parts.append("\n".join(table))
    return "\n\n".join(parts) + "\n"


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
}


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(map(_escaped, cells)) + r" \\"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def page(card: dict[str, Any]) -> str:
    sections = [html.note(_ABOUT)]
    for title, grids, lines, table in sections_of(card):
        parts = []
        if table:
            figures = scorecard_plots.by_language(table)
            parts.append(drawing.drawn(figures, f"{title}: score by language"))
            grids = grids + pivots(table)
        for each in grids:
            if each.values:
                shown = _heat(each)
            else:
                shown = html.table(each.head, each.rows)
            parts.append(f"<h3>{html.esc(each.caption)}</h3>{shown}")
        if table:
            label = "mean of the dev sets over steps; thin: a training, thick: their mean"
            drawn = drawing.drawn(scorecard_plots.curves(table["rows"]), f"{title}: {label}")
            if drawn:
                parts.append(f"<h3>{label}</h3>{drawn}")
        parts.append(html.details("what the figures are", "\n".join(lines)))
        sections.append(html.section(title.replace("/", "-"), title, *parts))
    return html.page("Score card", "<h1>Score card</h1>\n" + "\n".join(sections))


def _heat(each: Grid) -> str:
    known = []
    for row in each.values:
        known += [value for value in row if value is not None]
    names = [name for name, *_ in each.rows]
    rows = zip(names, each.values, strict=True)
    return html.heat(each.head, rows, "{:.1f}", min(known), max(known))


def show(*folders: str | Path, output: str | Path = "") -> str:
    """Writes the score card of folders of cells, of one into itself; returns it as Markdown, and
    where it is."""
    card = scorecard.card(*folders)
    folder = Path(output or folders[0])
    paths = write(card, folder)
    return f"{markdown(card)}\nscore card: {', '.join(map(str, paths))}"
