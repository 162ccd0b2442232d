"""What came of a bake-off as Markdown: mean ± standard deviation over seeds, and by layer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from xlingjax.report import html
from xlingjax.runtime.files import write_text

Cells = Sequence[Mapping[str, Any]]
PAGE = "bakeoff.md"
TITLES = {
    "retrieval": "retrieval",
    "retrieval_centred": "centred",
    "alignment_error": "AER itermax",
    "alignment_error_intersection": "AER intersection",
    "masked_accuracy": "masked accuracy",
    "tokens": "tokens",
    "tokens_per_second": "tokens/s",
}
BY_LAYER = {
    "raw": "retrieval, raw cosine",
    "centred": "retrieval, language means removed",
    "itermax": "alignment error, itermax",
}


def by_mix(cells: Cells, of: str = "figures") -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Means and standard deviations over seeds, a row for each mix, of the figures that every seed
    of it has, else NaN; of one seed the deviation is 0. of: which figures of a cell (see
    `runs.summary`)."""
    table = pandas.DataFrame([{"mix": cell["mix"], **cell[of]} for cell in cells])
    seeds = table.groupby("mix", sort=False)
    means = seeds.agg(lambda values: values.mean(skipna=False)).dropna(axis="columns", how="all")
    return means, seeds.std(ddof=1).fillna(0.0)[[*means]]


def table(cells: Cells, of: str = "figures") -> pandas.DataFrame:
    means, deviations = by_mix(cells, of)
    texts = {
        TITLES.get(name, name.replace("_", " ")): [
            shown(name, *figures) for figures in zip(means[name], deviations[name], strict=True)
        ]
        for name in means
    }
    return pandas.DataFrame(texts, index=means.index)


def shown(name: str, mean: float, deviation: float) -> str:
    if np.isnan(mean):
        return "–"
    if name.startswith("tokens"):
        return f"{mean:,.0f}"
    if not deviation:
        return f"{mean:.3f}"
    return f"{mean:.3f} ± {deviation:.3f}"


def markdown(result: Mapping[str, Any]) -> str:
    cells = result["cells"]
    by_layer = {}
    for kind, title in BY_LAYER.items():
        # A table in which some mixes are missing would look like a comparison of the others.
        if all(cell["by_layer"][kind] for cell in cells):
            layers = [{"mix": cell["mix"], **cell["by_layer"]} for cell in cells]
            by_layer[title] = table(layers, kind)
    tokens = result["config"]["tokens"]
    return html.render("bakeoff.md", figures=table(cells), tokens=tokens, by_layer=by_layer)


def write(result: Mapping[str, Any], folder: Path) -> Path:
    """Writes `bakeoff.md`; returns its path."""
    write_text(folder / PAGE, markdown(result))
    return folder / PAGE
