"""The score card as Markdown, LaTeX and JSON."""

import json
import re
from pathlib import Path
from typing import Any

from xlingjax.report import html
from xlingjax.runtime.files import write_text
from xlingjax.workflows.scorecard import card as score_card
from xlingjax.workflows.scorecard.tables import Grid, sections_of


def show(*folders: str | Path, output: str | Path = "") -> str:
    """Writes a score card of folders of cells, of one into itself; returns Markdown and path."""
    card = score_card.card(*folders)
    paths = write(card, Path(output or folders[0]))
    return f"{markdown(card)}\nscore card: {', '.join(map(str, paths))}"


def write(card: dict[str, Any], folder: Path) -> list[Path]:
    """card.json, card.md and card.tex in `folder`."""
    texts = {
        "card.json": json.dumps(card, indent=1, ensure_ascii=False) + "\n",
        "card.md": markdown(card),
        "card.tex": latex(card),
    }
    written = []
    for name, text in texts.items():
        write_text(folder / name, text)
        written.append(folder / name)
    return written


def markdown(card: dict[str, Any]) -> str:
    return html.render("scorecard.md", sections=sections_of(card))


def latex(card: dict[str, Any]) -> str:
    """Tables for `booktabs`."""
    return html.render("scorecard.tex", sections=sections_of(card), tabular=_tabular)


def _tabular(title: str, grid: Grid) -> str:
    # pandas escapes what is in the table alone.
    caption = re.sub(r"([&%$#_{}])", r"\\\1", f"{title}, {grid.caption}")
    columns = "l" + "r" * len(grid.texts.columns)
    texts = grid.texts.rename_axis(index=None)
    text = texts.to_latex(caption=caption, column_format=columns, escape=True)
    return text.replace(r"\begin{table}", r"\begin{table}\centering\small", 1)
