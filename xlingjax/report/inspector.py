"""What an objective really feeds the model: real batches, token by token, who may see whom, and the
realised mask rate; and what a recipe plans for the run.

The attention grids come from the objective's own mask predicates, the ones the attention backends
use.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from xlingjax.data.batches.loader import BatchSource, OfText, Peekable
from xlingjax.data.rows import left_out
from xlingjax.errors import UserError
from xlingjax.objectives.base import Objective
from xlingjax.report import drawing, html, negatives, running_text, schedule
from xlingjax.report.masking import STATISTICS_HEAD, mask_statistics, statistics_rows
from xlingjax.report.rows import TOKENS_HEAD, Batch, Row, Token, facts, read_row
from xlingjax.report.terminal import print_objective, print_table
from xlingjax.runtime.files import write_text
from xlingjax.training.stages import stage_of

GRID = (2.3, 2.4)
"""Inches of a grid in a page."""
GRID_COLOUR = (0.20, 0.51, 0.74, 1.0)
"""Seen on white and on black."""
GRID_NOTE = (
    "A grid: coloured where the token of the row sees that of the column, from the mask that"
    " attention uses."
)


def inspect(
    objectives: Mapping[str, tuple[Objective, BatchSource]],
    vocabulary,
    *,
    record: Mapping[str, Any] | None = None,
    tables: Sequence[Mapping[str, Any]] = (),
    rows: int = 2,
    batches: int = 20,
    tokens: bool = False,
    console: Any = None,
    output: str | Path | None = None,
) -> dict[str, Any]:
    """Shows the schedule on the terminal, the first `rows` rows of every objective (by name; of
    each stage where it has several), and the mask rate realised in `batches` batches.

    record: of the run to come, as `run_record.schedule_record` makes it. tables: of negatives, as
    `negatives.read` gives them. output: a folder for inspect.html, schedule.png and one PNG per
    attention grid. tokens: on the terminal, too, a line for each token of a row. console: a rich
    Console; None makes one. Returns {name: mask statistics}, empty
    for objectives without masks. The sources advance.
    """
    # Here, since a report of a finished run shows nothing on a terminal.
    from rich.console import Console

    if console is None:
        console = Console()
    statistics: dict[str, Any] = {}
    parts = []
    pictures: dict[str, Any] = {}
    if record:
        print_table(console, "schedule", ("what", "objective", "value"), schedule.rows(record))
        figure = schedule.picture(record)
        if figure is not None:
            pictures["schedule"] = figure
        parts.append(html.section("schedule", "Schedule", *schedule.section(record)))
    for name, (objective, source) in objectives.items():
        first, statistics[name] = _draw(objective, source, vocabulary, batches)
        views = []
        for row in range(min(rows, len(first["input_ids"]))):
            views.append(read_row(objective, first, row, vocabulary, source.languages))
        print_objective(console, name, objective, source, views, statistics[name], tokens)
        lacking = ""
        if isinstance(source, OfText):
            lacking = left_out.of_source(name, source)
        if lacking:
            console.print(f"warning: {lacking}", markup=False, highlight=False)
        if output:
            pictures |= _row_pictures(views, name)
            parts.append(_section(name, objective, source, views, statistics[name]))
            if lacking:
                parts.append(html.note(f"Warning: {lacking}"))
    for table in tables:
        print_table(console, negatives.title(table), negatives.HEAD, table["rows"])
    parts.append(html.section("negatives", "Mined negatives", *negatives.section(tables)))
    if output:
        write_page(Path(output), "What the objectives read", parts, pictures)
        console.print(f"wrote {Path(output) / 'inspect.html'}", markup=False)
    return statistics


def _draw(
    objective: Objective, source: BatchSource, vocabulary, batches: int
) -> tuple[Batch, dict[str, Any]]:
    """The first batch, and the mask statistics of `batches`, {} of an objective that hides no
    word."""
    first = source.next()
    if not {"masked_positions", "run_offsets"} & set(objective.reads):
        return first, {}
    # One batch is enough to show rows; a rate needs more of them.
    drawn = [first]
    for _ in range(1, batches):
        drawn.append(source.next())
    return first, mask_statistics(drawn, vocabulary, source.languages)


def _row_pictures(views: Sequence[Row], name: str) -> dict[str, Any]:
    """{file name: figure} of every attention grid."""
    pictures = {}
    for number, view in enumerate(views):
        for use in view.grids_LL:
            file = f"{name}-{number}-{use.replace(' ', '-')}"
            pictures[file] = attention_picture(view, use, name)
    return pictures


def _grids(view: Row, uses: Iterable[str]) -> list[str]:
    """Attention grids as HTML: small, beside each other, those that hide most first. One in which
    all sees all is said and not drawn."""
    hidden = {use: float(np.mean(~view.grids_LL[use])) for use in uses}
    figures = []
    for use in sorted(hidden, key=hidden.__getitem__, reverse=True):
        if hidden[use]:
            (figure,) = small_grid(view, use)
            figures.append(html.figure(drawing.svg(figure), f"{use}: grid"))
    parts = []
    if figures:
        parts.append(html.beside(figures))
        parts.append(html.note(GRID_NOTE))
    open_uses = [use for use, share in hidden.items() if not share]
    if open_uses:
        parts.append(html.note(f"{', '.join(open_uses)}: every token sees all tokens."))
    return parts


def _section(
    name: str, objective, source, views: Sequence[Row], statistics: Mapping[str, Any]
) -> str:
    parts = []
    for i, view in enumerate(views):
        parts += [f"<h3>row {i}</h3>", html.note(facts(objective, source, view))]
        parts.append(running_text.as_html(view.tokens, source.languages))
        parts.append(running_text.key(view.tokens))
        parts += _grids(view, view.grids_LL)
        table = html.table(TOKENS_HEAD, [token.cells for token in view.tokens])
        parts.append(f"<details><summary>token by token</summary>{table}</details>")
    if statistics:
        table = html.table(STATISTICS_HEAD, statistics_rows(statistics), mean_rows=1)
        parts += ["<h3>Realised masking</h3>", table]
    return html.section(name, name.upper(), *parts)


def first_rows(objectives: Mapping[str, tuple[Objective, Peekable]], vocabulary) -> str:
    """What a report shows of the first batches, as HTML: of every objective the first of the rows
    in most languages, and of all masks one grid. A later stage is left out unless it brings a mask
    of its own.
    """
    parts = []
    shown_tokens: list[Token] = []
    shown_masks = set()
    for name, (objective, source) in objectives.items():
        # The objectives of a run often share a mask, and its grid looks the same in each.
        masks = objective.masks()
        new_uses = [use for use, mask in masks.items() if mask.name not in shown_masks]
        _, start = stage_of(name)
        if start and not new_uses:
            continue
        for use in new_uses:
            shown_masks.add(masks[use].name)
        # Of an objective that has not had a turn it is looked at and not taken.
        batch = source.first()
        row = _most_mixed(batch)
        view = read_row(objective, batch, row, vocabulary, source.languages)
        parts += [f"<h3>{html.esc(name.upper())}</h3>", html.note(facts(objective, source, view))]
        parts.append(running_text.as_html(view.tokens, source.languages))
        shown_tokens += view.tokens
        parts += _grids(view, new_uses)
    parts.append(running_text.key(shown_tokens))
    return "\n".join(filter(None, parts))


def _most_mixed(batch: Batch) -> int:
    """The first of the rows in most languages."""
    counts = []
    rows = zip(batch["language_ids"], batch["pack_ids"], strict=True)
    for language_L, pack_L in rows:
        counts.append(len(np.unique(language_L[pack_L > 0])))
    return int(np.argmax(counts))


@drawing.styled
def attention_picture(view: Row, use: str, name: str) -> Any:
    """A grid as a figure; pieces along both sides where there is room to read them."""
    count = len(view.tokens)
    side = float(np.clip(1.2 + 0.16 * count, 3.0, 9.0))
    figures, (axis,) = drawing.panels(1, (side, side))
    axis.grid(False)
    axis.imshow(~view.grids_LL[use], cmap="gray", vmin=-0.6, vmax=1.0, interpolation="nearest")
    # More labels than that would lie on each other.
    if count <= 72:
        labels = [token.piece for token in view.tokens]
        axis.set_xticks(range(count), labels, rotation=90, fontsize=7)
        axis.set_yticks(range(count), labels, fontsize=7)
    axis.set(title=f"{name}, {use}: dark = the row's token sees the column's")
    return figures


@drawing.styled
def small_grid(view: Row, use: str) -> Any:
    """A grid as a small figure, lines where another side or example begins."""
    figures, (axis,) = drawing.panels(1, GRID)
    axis.grid(False)
    # Transparent where nothing is seen, so that it is the page's own colour.
    picture = np.zeros((*view.grids_LL[use].shape, 4))
    picture[view.grids_LL[use]] = GRID_COLOUR
    axis.imshow(picture, interpolation="nearest")
    parts = [(token.pack, token.side) for token in view.tokens]
    starts = []
    for i, (before, part) in enumerate(pairwise(parts), 1):
        if before != part:
            starts.append(i - 0.5)
    for start in starts:
        axis.axhline(start, color=drawing.SOFT, linewidth=0.8)
        axis.axvline(start, color=drawing.SOFT, linewidth=0.8)
    # Named where they are few: a row packed with many examples has no room.
    if len(starts) < 4:
        edges = [-0.5, *starts, len(parts) - 0.5]
        middles = [(a + b) / 2 for a, b in pairwise(edges)]
        names = []
        for middle in middles:
            names.append(view.tokens[int(middle + 0.5)].language)
        labels = drawing.piece_labels(names)
        axis.set_xticks(middles, labels)
        axis.set_yticks(middles, labels)
    else:
        axis.set_xticks([])
        axis.set_yticks([])
    axis.tick_params(length=0)
    axis.set_title("\n".join(wrap(use, 30)))
    return figures


def write_page(folder: Path, title: str, parts: Sequence[str], pictures: Mapping[str, Any]) -> None:
    """inspect.html, and a PNG of each picture by its name. Raises UserError where they cannot be
    written."""
    head = f"<header><h1>{html.esc(title)}</h1></header>"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page = html.page("inspect · xlingjax", "\n".join([head, *parts]))
        write_text(folder / "inspect.html", page)
        for name, picture in pictures.items():
            drawing.save(picture, folder / f"{name}.png")
    except OSError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror}: choose another --output"
        ) from None
