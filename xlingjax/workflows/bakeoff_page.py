"""What came of a bake-off: one table, mean ± standard deviation over seeds, and pictures; on the
terminal, as a page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.report import drawing, html
from xlingjax.runtime.files import write_text

Cells = Sequence[Mapping[str, Any]]
TITLES = {
    "retrieval": "retrieval",
    "retrieval_centred": "centred",
    "alignment_error": "AER itermax",
    "alignment_error_intersection": "AER intersection",
    "masked_accuracy": "masked accuracy",
    "tokens": "tokens",
    "tokens_per_second": "tokens/s",
}
NOTE = (
    "Mean ± standard deviation over the seeds; every mix begins from the weights that its seed"
    " gives its model and {reads}. retrieval: English finds its translation, mean over languages,"
    " raw cosine and with each language's mean removed, at the best layer. AER: error rate of word"
    " alignments from the similarity of states, lower is better, at the best layer. masked"
    " accuracy: held-out text, mean over languages. other: mean of the languages that the"
    " fine-tuning did not see. tokens/s: of runs that shared the machine as the bake-off's jobs"
    " say."
)

COST = html.note(
    "Of each objective. In brackets: the time of a token over that of one of MLM in the same mix."
)


def by_mix(cells: Cells, of: str = "figures") -> dict[str, dict[str, tuple[float, float]]]:
    """{mix: {figure: (mean, standard deviation over seeds)}} of the figures that every seed has; of
    one seed the deviation is 0. of: which figures of a cell (see
    `xlingjax.workflows.bakeoff.summary`)."""
    groups: dict[str, list[Mapping[str, float]]] = {}
    for cell in cells:
        groups.setdefault(cell["mix"], []).append(cell[of])
    rows: dict[str, dict[str, tuple[float, float]]] = {}
    for mix, figures in groups.items():
        rows[mix] = {}
        for name in figures[0]:
            # A mean over other seeds than the rest of the row would not compare with it.
            if not all(name in one for one in figures):
                continue
            values = np.array([one[name] for one in figures], float)
            deviation = 0.0
            if values.size > 1:
                # Seeds are a sample, so n - 1.
                deviation = float(values.std(ddof=1))
            rows[mix][name] = (float(values.mean()), deviation)
    return rows


def _names(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The figures that any mix has, as they come."""
    names: dict[str, None] = {}
    for row in rows.values():
        names |= dict.fromkeys(row)
    return list(names)


def _rows(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the table."""
    rows = by_mix(result["cells"])
    names = _names(rows)
    head = ["mix"]
    for name in names:
        head.append(TITLES.get(name, name.replace("_", " ")))
    lines = []
    for mix, row in rows.items():
        lines.append([mix, *(shown(name, row.get(name)) for name in names)])
    return head, lines


def table(result: Mapping[str, Any]) -> Any:
    """A rich table, a row per mix."""
    from rich.table import Table

    head, rows = _rows(result)
    drawn = Table(box=None, header_style="dim")
    drawn.add_column(head[0], justify="left")
    for name in head[1:]:
        drawn.add_column(name, justify="right")
    for row in rows:
        drawn.add_row(*row)
    return drawn


def markdown(result: Mapping[str, Any]) -> str:
    """The same table for a README."""
    head, rows = _rows(result)
    rule = ["---"] + ["--:"] * (len(head) - 1)
    lines = []
    for cells in (head, rule, *rows):
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def shown(name: str, value: tuple[float, float] | None) -> str:
    if value is None:
        return "–"
    mean, deviation = value
    if name.startswith("tokens"):
        return f"{mean:,.0f}"
    # One seed has no deviation, and ± 0.000 would claim that seeds agree.
    if not deviation:
        return f"{mean:.3f}"
    return f"{mean:.3f} ± {deviation:.3f}"


@drawing.styled
def by_layer(cells: Cells):
    """Retrieval, raw and centred, and alignment error over the layers, a line per mix; None without
    any."""
    kinds = (
        "retrieval, raw cosine",
        "retrieval, language means removed",
        "alignment error, itermax",
    )
    flat = []
    for cell in cells:
        values = [*cell["retrieval_by_layer"].values(), cell["alignment_error_by_layer"]]
        flat.append({"mix": cell["mix"], **dict(zip(kinds, values, strict=True))})
    # A panel in which some mixes are missing would look like a comparison of the others.
    measured = []
    for kind in kinds:
        if all(cell[kind] for cell in flat):
            measured.append(kind)
    if not measured:
        return None
    mixes = list(dict.fromkeys(cell["mix"] for cell in flat))
    figures, axes = drawing.panels(len(measured), drawing.tall(len(mixes)))
    for axis, kind in zip(axes, measured, strict=True):
        rows = by_mix(flat, kind)
        for number, (mix, layers) in enumerate(rows.items()):
            numbers = [int(name) for name in layers]
            means, deviations = np.array(list(layers.values())).T
            colour = drawing.COLOURS[number % len(drawing.COLOURS)]
            axis.errorbar(
                numbers, 100 * means, 100 * deviations, fmt="none", ecolor=colour, capsize=2
            )
            axis.plot(
                numbers,
                100 * means,
                label=mix,
                color=colour,
                marker=drawing.MARKERS[number % len(drawing.MARKERS)],
            )
        # The whole range: a cut axis makes small differences large.
        axis.set(title=f"{kind} (%)", xlabel="layer", ylim=(0, 100))
        axis.set_xticks(numbers)  # all mixes have the same layers
        drawing.label_ends(axis)
    return figures


@drawing.styled
def bars(cells: Cells, of: str, title: str):
    """A group of bars per mix, one per key of the cells' `of`, shares of 1; None without any."""
    if not all(cell[of] for cell in cells):
        return None
    rows = by_mix(cells, of)
    keys = sorted(_names(rows))
    inches = max(drawing.PANEL[0], 0.6 + 0.13 * len(rows) * (len(keys) + 1))
    figures, (axis,) = drawing.panels(1, (inches, drawing.PANEL[1]))
    width = 0.8 / len(keys)
    for i, (key, colour) in enumerate(drawing.colours(keys).items()):
        places = []
        means = []
        deviations = []
        for place, row in enumerate(rows.values()):
            if key in row:
                mean, deviation = row[key]
                # The group of a mix has its middle at the mix's tick.
                places.append(place + (i - (len(keys) - 1) / 2) * width)
                means.append(100 * mean)
                deviations.append(100 * deviation)
        axis.bar(
            places,
            means,
            width,
            yerr=deviations,
            label=key,
            color=colour,
            ecolor=drawing.INK,
            capsize=2,
        )
    axis.set_xticks(range(len(rows)), list(rows), rotation=30, ha="right")
    axis.set(title=f"{title} (%)", ylim=(0, 100))
    drawing.legend_below(axis)
    return figures


def objectives_table(cells: Cells) -> tuple[list[str], list[list[str]]]:
    """Tokens per second of each objective within each mix, and what a token costs beside one of MLM
    in the same mix."""
    rows = by_mix(cells, "tokens_per_second_by_objective")
    names = _names(rows)
    lines = []
    for mix, row in rows.items():
        lines.append([mix, *(_speed(row, name) for name in names)])
    return ["mix", *names], lines


def _speed(row: Mapping[str, tuple[float, float]], name: str) -> str:
    if name not in row:
        return "–"
    text = f"{row[name][0]:,.0f}"
    # Tokens per second depend on the machine; beside MLM
    # in the same run they say what an objective costs.
    if "mlm" in row:
        text += f" ({row['mlm'][0] / row[name][0]:.2f} x)"
    return text


def note(result: Mapping[str, Any]) -> str:
    """What the figures are. The mixes take as many steps each where the bake-off names no number of
    tokens."""
    reads = "trains for the steps of its recipe"
    if result["config"]["tokens"]:
        reads = "reads as many tokens"
    return NOTE.format(reads=reads)


def write(result: Mapping[str, Any], folder: Path) -> Path:
    """Writes `bakeoff.html`, its pictures beside it as PNG, and the table as `bakeoff.md`; returns
    the page."""
    cells = result["cells"]
    title = "masked accuracy on held-out text"
    drawn = {
        "layers": by_layer(cells),
        "masked_accuracy": bars(cells, "masked_accuracy_by_language", title),
    }
    pictures = []
    for name, figure in drawn.items():
        if figure is not None:
            drawing.save(figure, folder / f"{name}.png", dpi=110)
            pictures.append(drawing.drawn(figure, name))
    head, rows = objectives_table(cells)
    cost = []
    if head[1:]:
        cost = [html.table(head, rows), COST]
    setting = html.details("bake-off", str(result["config"]))
    sections = [
        html.section("table", "Mixes", html.table(*_rows(result)), html.note(note(result))),
        html.section("layers", "By layer", *pictures),
        html.section("cost", "Tokens per second", *cost),
        html.section("setting", "Setting", setting),
    ]
    head_line = f"<header><h1>{html.esc(folder.name)}</h1></header>"
    page = folder / "bakeoff.html"
    text = html.page(f"{folder.name} · bake-off", "\n".join([head_line, *sections]))
    write_text(page, text)
    write_text(folder / "bakeoff.md", markdown(result))
    return page
