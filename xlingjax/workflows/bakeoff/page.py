"""What came of a bake-off as Markdown: mean ± standard deviation over seeds, and by layer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas

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
    means = seeds.agg(lambda values: values.mean(skipna=False)).dropna(axis="columns", how="all")
    return means, seeds.std(ddof=1).fillna(0.0)[[*means]]


def table(cells: Cells, of: str = "figures") -> str:
    means, deviations = by_mix(cells, of)
    texts = {
        TITLES.get(name, name.replace("_", " ")): [
            shown(name, *figures) for figures in zip(means[name], deviations[name], strict=True)
        ]
        for name in means
    }
    frame = pandas.DataFrame(texts, index=means.index)
    return frame.to_markdown(tablefmt="github", disable_numparse=True)


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
    tokens = result["config"]["tokens"]
    reads = "reads as many tokens" if tokens else "trains for the steps of its recipe"
    parts = [table(cells), NOTE.format(reads=reads)]
    for kind, title in BY_LAYER.items():
        # A table in which some mixes are missing would look like a comparison of the others.
        if all(cell["by_layer"][kind] for cell in cells):
            layers = [{"mix": cell["mix"], **cell["by_layer"]} for cell in cells]
            parts += [f"{title}, by layer:", table(layers, kind)]
    return "\n\n".join(parts) + "\n"


def write(result: Mapping[str, Any], folder: Path) -> Path:
    """Writes `bakeoff.md`; returns its path."""
    write_text(folder / PAGE, markdown(result))
    return folder / PAGE
