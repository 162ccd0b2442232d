"""The score card as Markdown, LaTeX, JSON and a page."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from xlingjax.report import drawing, html
from xlingjax.runtime.files import write_text
from xlingjax.workflows.scorecard import card as score_card
from xlingjax.workflows.scorecard import plots
from xlingjax.workflows.scorecard.tables import Grid, pivots, sections_of

_ABOUT = (
    "All figures in 0 to 100, mean ± standard deviation over seeds. mean: of the languages of the"
    " official average that are here; untrained languages: without training examples; gap: English"
    " less the mean of the others."
)
_LATEX = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "–": "--",
    }
)


def show(*folders: str | Path, output: str | Path = "") -> str:
    """Writes the score card of folders of cells, of one into itself; returns it as Markdown, and
    where it is."""
    card = score_card.card(*folders)
    paths = write(card, Path(output or folders[0]))
    return f"{markdown(card)}\nscore card: {', '.join(map(str, paths))}"


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
        write_text(folder / name, text)
        written.append(folder / name)
    for table in card["tables"]:
        figures = plots.by_language(table)
        if figures is None:
            continue
        path = folder / "images" / f"{table['task'].replace('/', '-')}.png"
        path.parent.mkdir(exist_ok=True)
        drawing.save(figures, path)
        written.append(path)
    return written


def markdown(card: dict[str, Any]) -> str:
    parts = ["# Score card", _ABOUT]
    for section in sections_of(card):
        parts.append(f"## {section.title}")
        for grid in section.grids:
            text = grid.texts.to_markdown(tablefmt="github", disable_numparse=True)
            parts += [f"{grid.caption}:", text]
        parts.append("\n".join(f"- {line}" for line in section.notes))
    return "\n\n".join(parts) + "\n"


def latex(card: dict[str, Any]) -> str:
    """Tables for `booktabs`."""
    parts = [f"% {_ABOUT}"]
    for section in sections_of(card):
        for grid in section.grids:
            parts.append("\n".join(f"% {line}" for line in section.notes))
            caption = f"{section.title}, {grid.caption}".translate(_LATEX)
            texts = grid.texts.rename_axis(index=None).rename(index=_escaped, columns=_escaped)
            text = texts.map(_escaped).to_latex(
                caption=caption, column_format="l" + "r" * len(texts.columns)
            )
            parts.append(text.replace(r"\begin{table}", r"\begin{table}\centering\small", 1))
    return "\n\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    return text.translate(_LATEX)


def page(card: dict[str, Any]) -> str:
    parts = ["<h1>Score card</h1>", html.note(_ABOUT)]
    for section in sections_of(card):
        title = section.title
        grids = section.grids
        pictures = []
        if section.table:
            grids = grids + pivots(section.table)
            bars = drawing.drawn(plots.by_language(section.table), f"{title}: score by language")
            pictures.append(bars)
        tables = [f"<h3>{html.esc(grid.caption)}</h3>{_shown(grid)}" for grid in grids]
        if section.table:
            label = "mean of the dev sets over steps; thin: a training, thick: their mean"
            drawn = drawing.drawn(plots.curves(section.table["rows"]), f"{title}: {label}")
            if drawn:
                tables.append(f"<h3>{label}</h3>{drawn}")
        about = html.details("what the figures are", "\n".join(section.notes))
        parts.append(html.section(title.replace("/", "-"), title, *pictures, *tables, about))
    return html.page("Score card", "\n".join(parts))


def _shown(grid: Grid) -> str:
    head = [grid.texts.index.name or "", *grid.texts.columns]
    values = grid.values
    if values is None:
        return html.table(head, grid.texts.itertuples(name=None))
    low, high = values.min(axis=None), values.max(axis=None)
    rows = []
    for name, *scores in values.itertuples(name=None):
        rows.append((name, [None if pd.isna(score) else score for score in scores]))
    return html.heat(head, rows, "{:.1f}", low, high)
