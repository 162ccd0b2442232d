"""What a bake-off found: one table, mean ± standard deviation over seeds, and pictures; on the
terminal, as a page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.report import html, plots

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
    "Mean ± standard deviation over the seeds; every mix begins from the same weights of its seed"
    " and {reads}. retrieval: English finds its translation, mean over languages, raw cosine and"
    " with each language's mean removed, at the best layer. AER: error rate of word alignments from"
    " the similarity of states, lower is better, at the best layer. masked accuracy: held-out text,"
    " mean over languages. other: mean of the languages that the fine-tuning did not see. tokens/s:"
    " of runs that shared the machine as the bake-off's jobs say."
)

COST = html.note(
    "Of each objective. In brackets: the time of a token over that of one of MLM in the same mix."
)


def by_mix(
    cells: Cells, of: str = "figures"
) -> dict[str, dict[str, tuple[float, float]]]:
    """{mix: {figure: (mean, standard deviation over seeds)}} of the figures that every seed has; of
    one seed the deviation is 0. of: which figures of a cell (see
    `xlingjax.workflows.bakeoff.summary`)."""
    groups: dict[str, list[Mapping[str, float]]] = {}
    for cell in cells:
        groups.setdefault(cell["mix"], []).append(cell[of])
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for mix, figures in groups.items():
        names = [name for name in figures[0] if all(name in one for one in figures)]
        values = {
            name: np.array([one[name] for one in figures], float) for name in names
        }
        found[mix] = {
            n: (float(v.mean()), float(v.std(ddof=1)) if v.size > 1 else 0.0)
            for n, v in values.items()
        }
    return found


def _rows(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the table."""
    rows = by_mix(found["cells"])
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    head = ["mix", *(TITLES.get(name, name.replace("_", " ")) for name in names)]
    return head, [
        [mix, *(shown(name, row.get(name)) for name in names)]
        for mix, row in rows.items()
    ]


def table(found: Mapping[str, Any]) -> Any:
    """A rich table, a row per mix."""
    from rich.table import Table

    head, rows = _rows(found)
    result = Table(box=None, header_style="dim")
    for i, name in enumerate(head):
        result.add_column(name, justify="right" if i else "left")
    for row in rows:
        result.add_row(*row)
    return result


def markdown(found: Mapping[str, Any]) -> str:
    """The same table for a README."""
    head, rows = _rows(found)
    lines = [head, ["---", *("--:" for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def shown(name: str, value: tuple[float, float] | None) -> str:
    if value is None:
        return "–"
    mean, deviation = value
    if name.startswith("tokens"):
        return f"{mean:,.0f}"
    return f"{mean:.3f} ± {deviation:.3f}" if deviation else f"{mean:.3f}"


@plots.styled
def by_layer(cells: Cells):
    """Retrieval, raw and centred, and alignment error over the layers, a line per mix; None without
    any."""
    kinds = (
        "retrieval, raw cosine",
        "retrieval, language means removed",
        "alignment error, itermax",
    )
    values = [
        [*cell["retrieval_by_layer"].values(), cell["alignment_error_by_layer"]]
        for cell in cells
    ]
    flat = [
        {"mix": cell["mix"], **dict(zip(kinds, of, strict=True))}
        for cell, of in zip(cells, values, strict=True)
    ]
    shown_kinds = [kind for kind in kinds if all(cell[kind] for cell in flat)]
    if not shown_kinds:
        return None
    figure, axes = plots.panels(len(shown_kinds), columns=3)
    for axis, kind in zip(axes, shown_kinds, strict=True):
        found = by_mix(flat, kind)
        coloured = plots.colours(found)
        for mix, layers in found.items():
            means, deviations = np.array(list(layers.values())).T
            axis.errorbar(
                [int(n) for n in layers],
                means,
                deviations,
                label=mix,
                color=coloured[mix],
                capsize=2,
            )
        axis.set_title(kind)
        axis.set_xlabel("layer")
        axis.set_ylim(bottom=0)
        axis.set_xticks([int(n) for n in layers])
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside right upper"
    )  # many mixes would hide lines
    return figure


@plots.styled
def bars(cells: Cells, of: str, title: str):
    """A group of bars per mix, one per key of the cells' `of`; None without any."""
    if not all(cell[of] for cell in cells):
        return None
    found = by_mix(cells, of)
    keys = sorted({key for row in found.values() for key in row})
    figure, (axis,) = plots.panels(1, size=(2 * plots.PANEL[0], plots.PANEL[1]))
    width = 0.8 / len(keys)
    for i, (key, colour) in enumerate(plots.colours(keys).items()):
        at = [(x, row[key]) for x, row in enumerate(found.values()) if key in row]
        axis.bar(
            [x + (i - (len(keys) - 1) / 2) * width for x, _ in at],
            [mean for _, (mean, _) in at],
            width,
            yerr=[deviation for _, (_, deviation) in at],
            label=key,
            color=colour,
            capsize=2,
        )
    axis.set_xticks(range(len(found)), list(found))
    axis.set_title(title)
    axis.legend(ncols=len(keys))
    return figure


def objectives_table(cells: Cells) -> tuple[list[str], list[list[str]]]:
    """Tokens per second of each objective within each mix, and what a token costs beside one of MLM
    in the same mix."""
    found = by_mix(cells, "tokens_per_second_by_objective")
    names = list(dict.fromkeys(name for row in found.values() for name in row))

    def speed(row: Mapping[str, tuple[float, float]], name: str) -> str:
        if name not in row:
            return "–"
        return f"{row[name][0]:,.0f}" + (
            f" ({row['mlm'][0] / row[name][0]:.2f} x)" if "mlm" in row else ""
        )

    return ["mix", *names], [
        [mix, *(speed(row, name) for name in names)] for mix, row in found.items()
    ]


def note(found: Mapping[str, Any]) -> str:
    """What the figures are. The mixes take as many steps each where the bake-off names no number of
    tokens."""
    return NOTE.format(
        reads=(
            "reads as many tokens"
            if found["config"]["tokens"]
            else "trains for the steps of its recipe"
        )
    )


def write(found: Mapping[str, Any], folder: Path) -> Path:
    """Writes `bakeoff.html`, its pictures beside it as PNG, and the table as `bakeoff.md`; returns
    the page."""
    cells = found["cells"]
    drawn = {
        "layers": by_layer(cells),
        "masked_accuracy": bars(
            cells, "masked_accuracy_by_language", "masked accuracy on held-out text"
        ),
    }
    pictures = {name: figure for name, figure in drawn.items() if figure is not None}
    for name, figure in pictures.items():
        figure.savefig(folder / f"{name}.png", dpi=110)
    head, rows = objectives_table(cells)
    sections = [
        html.section(
            "table", "Mixes", html.table(*_rows(found)), html.note(note(found))
        ),
        html.section(
            "layers",
            "By layer",
            *(html.figure(plots.svg(f), name) for name, f in pictures.items()),
        ),
        html.section(
            "cost",
            "Tokens per second",
            *([html.table(head, rows), COST] if head[1:] else []),
        ),
        html.section(
            "setting", "Setting", html.details("bake-off", str(found["config"]))
        ),
    ]
    title = f"<header><h1>{html.esc(folder.name)}</h1></header>"
    page = folder / "bakeoff.html"
    page.write_text(
        html.page(f"{folder.name} · bake-off", "\n".join([title, *sections])),
        encoding="utf-8",
    )
    (folder / "bakeoff.md").write_text(markdown(found), encoding="utf-8")
    return page
