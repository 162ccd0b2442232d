"""What the inspector shows on the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlingjax.data.batches.loader import BatchSource
from xlingjax.objectives.base import Objective
from xlingjax.report import html, running_text
from xlingjax.report.masking import STATISTICS_HEAD, statistics_rows
from xlingjax.report.rows import TOKENS_HEAD, Row, facts

SHOWN_ON_TERMINAL = 40
"""Tokens of a row."""
TOKENS_JUSTIFY = {"column": "right", "position": "right", "pack": "right", "side": "right"}


def print_table(console, title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    # Here, since a page alone needs no rich.
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=None, header_style="dim", title_justify="left")
    for name in head:
        table.add_column(name)
    for row in rows:
        # As `Text`, or rich would read brackets as its markup.
        table.add_row(*map(Text, map(html.number, row)))
    console.print(table)


def print_objective(
    console,
    name: str,
    objective: Objective,
    source: BatchSource,
    views: Sequence[Row],
    statistics: Mapping[str, Any],
    tokens: bool,
) -> None:
    """The rows of an objective, and its mask statistics where it has some. tokens: a line for each
    token, too."""
    for number, view in enumerate(views):
        console.rule(f"{name}, row {number}")
        _print_row(console, objective, source, view, tokens)
    if statistics:
        _print_statistics(console, f"{name}: realised masking", statistics)


def _print_row(console, objective: Objective, source: BatchSource, view: Row, tokens: bool) -> None:
    from rich.text import Text

    console.print(Text(facts(objective, source, view), style="dim"))
    for part in running_text.as_text(view.tokens, source.languages):
        console.print(part)
    shown = shown_tokens(view, "decoder_ids" in objective.reads)
    if tokens:
        _print_tokens(console, view, shown)
    for use, grid_LL in view.grids_LL.items():
        if grid_LL.all():
            console.print(Text(f"{use}: every token sees all tokens", style="dim"))
            continue
        console.print(Text(f"{use}: who sees whom", style="dim"))
        console.print(Text(grid_text(view, grid_LL, shown)))
    if len(view.tokens) > len(shown):
        console.print(Text(f"{len(shown)} of {len(view.tokens)} tokens in grids", style="dim"))


def _print_tokens(console, view: Row, shown: Sequence[int]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False)
    for head in TOKENS_HEAD:
        table.add_column(head, justify=TOKENS_JUSTIFY.get(head, "left"))
    for index in shown:
        token = view.tokens[index]
        # As `Text`, as above: pieces may be "[de]".
        cells = [Text(str(cell)) for cell in token.cells]
        table.add_row(*cells, style=running_text.STYLES.get(token.how))
    console.print(table)


def _print_statistics(console, title: str, statistics: Mapping[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=title, box=None, header_style="dim", title_justify="left")
    language, *figures = STATISTICS_HEAD
    table.add_column(language, justify="left")
    for head in figures:
        table.add_column(head, justify="right")
    for row in statistics_rows(statistics):
        table.add_row(*map(html.number, row))
    console.print(table)


def shown_tokens(view: Row, decoder: bool) -> list[int]:
    """Which tokens of a row the terminal shows: the first ones; with a decoder half of them of the
    target."""
    count = len(view.tokens)
    if not decoder:
        return list(range(min(SHOWN_ON_TERMINAL, count)))
    # The target stands behind the source, and would be cut off.
    half = SHOWN_ON_TERMINAL // 2
    source = sum(token.side == 0 for token in view.tokens)
    return [*range(min(half, source)), *range(source, min(source + half, count))]


def grid_text(view: Row, grid_LL: np.ndarray, shown: Sequence[int]) -> str:
    """The rows and columns `shown` of an attention grid in characters, a line per query: ■ sees, ·
    does not."""
    lines = []
    for query in shown:
        # Only what the table above shows: a wider grid would wrap.
        seen = grid_LL[query, list(shown)]
        signs = "".join("·■"[int(sees)] for sees in seen)
        lines.append(f"{view.tokens[query].column:4d} {signs}")
    return "\n".join(lines)
