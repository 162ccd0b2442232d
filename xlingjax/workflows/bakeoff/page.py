"""What came of a bake-off: one table, mean ± standard deviation over seeds, and pictures, as a
page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas

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


def by_mix(cells: Cells, of: str = "figures") -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Means and standard deviations over seeds, a row for each mix, of the figures that every seed
    of it has, else NaN; of one seed the deviation is 0. of: which figures of a cell (see
    `runs.summary`)."""
    table = pandas.DataFrame([{"mix": cell["mix"], **cell[of]} for cell in cells])
    seeds = table.groupby("mix", sort=False)
    # A mean over other seeds than the rest of the row would not compare with it.
    means = seeds.agg(lambda values: values.mean(skipna=False)).dropna(axis="columns", how="all")
    # Seeds are a sample, so n - 1.
    return means, seeds.std(ddof=1).fillna(0.0)[[*means]]


def frame(result: Mapping[str, Any]) -> pandas.DataFrame:
    """The table, as text."""
    means, deviations = by_mix(result["cells"])
    texts = {
        TITLES.get(name, name.replace("_", " ")): [
            shown(name, *figures) for figures in zip(means[name], deviations[name], strict=True)
        ]
        for name in means
    }
    return pandas.DataFrame(texts, index=means.index)


def markdown(result: Mapping[str, Any]) -> str:
    """The table, for the terminal and a README."""
    return frame(result).to_markdown(tablefmt="github", disable_numparse=True) + "\n"


def shown(name: str, mean: float, deviation: float) -> str:
    if np.isnan(mean):
        return "–"
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
    measured = [kind for kind in kinds if all(cell[kind] for cell in flat)]
    if not measured:
        return None
    figures, axes = drawing.panels(len(measured))
    for axis, kind in zip(axes, measured, strict=True):
        means, deviations = by_mix(flat, kind)
        numbers = [int(name) for name in means]
        for number, mix in enumerate(means.index):
            colour = drawing.COLOURS[number % len(drawing.COLOURS)]
            marker = drawing.MARKERS[number % len(drawing.MARKERS)]
            values = 100 * means.loc[mix]
            error = {"fmt": "none", "ecolor": colour, "capsize": 2}
            axis.errorbar(numbers, values, 100 * deviations.loc[mix], **error)
            axis.plot(numbers, values, label=mix, color=colour, marker=marker)
        # The whole range: a cut axis makes small differences large.
        axis.set(title=f"{kind} (%)", xlabel="layer", ylim=(0, 100))
        axis.set_xticks(numbers)
        drawing.legend_below(axis)
    return figures


def write(result: Mapping[str, Any], folder: Path) -> Path:
    """Writes `bakeoff.html`, its picture beside it as PNG, and the table as `bakeoff.md`; returns
    the page."""
    cells = result["cells"]
    pictures = []
    if figures := by_layer(cells):
        drawing.save(figures, folder / "layers.png", dpi=110)
        pictures.append(drawing.drawn(figures, "layers"))
    table = frame(result)
    reads = "trains for the steps of its recipe"
    if result["config"]["tokens"]:
        reads = "reads as many tokens"
    mixes = html.table(["mix", *table], table.itertuples(name=None))
    sections = [
        html.section("table", "Mixes", mixes, html.note(NOTE.format(reads=reads))),
        html.section("layers", "By layer", *pictures),
        html.section("setting", "Setting", html.details("bake-off", str(result["config"]))),
    ]
    head_line = f"<header><h1>{html.esc(folder.name)}</h1></header>"
    page = folder / "bakeoff.html"
    text = html.page(f"{folder.name} · bake-off", "\n".join([head_line, *sections]))
    write_text(page, text)
    write_text(folder / "bakeoff.md", markdown(result))
    return page
