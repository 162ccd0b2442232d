"""What a recipe plans for the run and what its objectives really feed the model: real batches,
token by token, who may see whom, and the realised mask rate; on the terminal and as a page."""

from collections.abc import Mapping, Sequence
from itertools import chain, cycle
from pathlib import Path
from typing import Any

from xlingjax.data.batches.loader import BatchSource
from xlingjax.data.rows import left_out
from xlingjax.objectives.base import Objective
from xlingjax.report import drawing, html, schedule
from xlingjax.report.rows import (
    STATISTICS_HEAD,
    TOKENS_HEAD,
    as_values,
    mask_statistics,
    read_row,
    statistics_rows,
    with_masks,
)
from xlingjax.runtime.files import write_text

STYLES = {"mask": "yellow", "random": "red", "kept": "green"}  # of predicted words; else cyan


def inspect(
    objectives: Mapping[str, tuple[Objective, BatchSource]],
    vocabulary,
    *,
    record: Mapping | None = None,
    rows: int = 2,
    batches: int = 20,
    console: Any = None,
    output: str | Path | None = None,
) -> dict:
    """Shows the schedule on the terminal, the first `rows` rows of every objective (by name; of
    each stage where it has several), and the mask rate realised in `batches` batches.

    record: of the run to come, as `run_record.schedule_record` makes it. output: a folder for
    inspect.html, which has the masks and a line for each token, too. console: a rich Console; None
    makes one. Returns {name: mask statistics}, empty for objectives without masks.
    """
    from rich.console import Console

    console = console or Console()
    statistics = {}
    sections = []

    def add(anchor: str, title: str, macro: str, values: Any) -> None:
        if output:
            sections.append((anchor, title, html.part("sections", macro, values)))

    if record:
        course = schedule.rows(record)
        print_table(console, "schedule", ("what", "objective", "value"), course)
        add("schedule", "Schedule", "schedule", {"rows": course, "figures": []})
    for name, (objective, source) in objectives.items():
        first = source.next()
        statistics[name] = {}
        if {"masked_positions", "run_offsets"} & {*objective.reads}:
            drawn = [first, *(source.next() for _ in range(1, batches))]
            statistics[name] = mask_statistics(drawn, vocabulary, source.languages)
        shown = []
        for number in range(min(rows, len(first["input_ids"]))):
            view = read_row(objective, first, number, vocabulary, source.languages)
            console.rule(f"{name}, row {number}")
            row = as_values(f"row {number}", objective, source, view)
            for line in running_text(row):
                console.print(line)
            if output:
                row["tokens"] = [token.cells for token in view.tokens]
                shown.append(with_masks(row, view))
        lines = statistics_rows(statistics[name])
        if lines:
            print_table(console, f"{name}: realised masking", STATISTICS_HEAD, lines)
        lacking = left_out.message(name, source)
        if lacking:
            console.print(f"warning: {lacking}", markup=False, highlight=False)
        values = {
            "rows": shown,
            "tokens_head": TOKENS_HEAD,
            "statistics": lines,
            "statistics_head": STATISTICS_HEAD,
            "warning": lacking,
        }
        add(name, name.upper(), "inspected", values)
    if output:
        write_page(Path(output), "What the objectives read", sections)
        console.print(f"wrote {Path(output) / 'inspect.html'}", markup=False)
    return statistics


def write_page(folder: Path, heading: str, sections: Sequence[tuple[str, str, str]]) -> None:
    """inspect.html. sections: anchor, title and body, which is HTML."""
    folder.mkdir(parents=True, exist_ok=True)
    title = "inspect · xlingjax"
    page = html.render("inspect.html", title=title, heading=heading, sections=sections)
    write_text(folder / "inspect.html", page)


def print_table(console, title: str, head: Sequence[str], lines: Sequence[Sequence]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(*head, title=title, box=None, header_style="dim", title_justify="left")
    for line in lines:
        # As `Text`, or rich would read brackets as its markup.
        table.add_row(*(Text(html.number(cell)) for cell in line))
    console.print(table)


def running_text(row: Mapping) -> list:
    """Lines for rich of what `as_values` gives: its facts, one for each side of an example, and the
    key."""
    from rich.text import Text

    # Where there are more languages than colours they begin again.
    colour = dict(zip(row["languages"], cycle(drawing.COLOURS), strict=False))
    shown = [Text(row["facts"], style="dim")]
    for side in chain.from_iterable(row["examples"]):
        line = Text(" + ".join(side["names"]) + " ", style="bold")
        for language, words in side["stretches"]:
            plain = f"not bold {colour[language] if len(side['names']) > 1 else ''}".strip()
            for how, gap, piece, word in words:
                if how == "special":
                    line.append(f" {word} ", style="not bold dim")
                elif how:
                    line.append(gap)
                    line.append(_form(how, piece, word), style=STYLES.get(how, "cyan"))
                else:
                    line.append(gap + word, style=plain)
        shown.append(line)
    if row["marks"]:
        key = [f"{_form(how, 'shown', 'word')} {meaning}" for how, meaning in row["marks"].items()]
        shown.append(Text("to be predicted: " + "; ".join(key), style="dim"))
    return shown


def _form(how: str, shown: str, word: str) -> str:
    """How a word that is to be predicted is marked without colours."""
    return {"random": f"[{shown}→{word}]", "kept": f"[={word}]"}.get(how, f"[{word}]")
