"""BTMLM's held-out perplexity by the share of pseudo tokens (ERNIE-M, figure 5)."""

from collections.abc import Mapping
from typing import Any

from xlingjax.report import drawing, html, plots
from xlingjax.report.run import Run

NOTE = (
    "Perplexity of the masked words of held-out text beside so many pseudo tokens for each token of"
    " it, which the model itself writes; the words are the same at every share, and 0 is masked LM"
    " alone. How far a curve lies below that of 0 is what the model draws from them."
)


def section(runs: Mapping[str, Run]) -> list[str]:
    run = next(iter(runs.values()))
    last = {}
    for name, one in runs.items():
        values = one.last("pseudo_perplexity")
        if values:
            last[name] = values
    if not last:
        return []
    shares: dict[str, None] = {}
    for values in last.values():
        shares |= dict.fromkeys(values["by_language"])
    rows = []
    for share in shares:
        row: list[Any] = [f"{100 * float(share):g} %"]
        for values in last.values():
            row.append(values.get(f"share_{share}"))
        rows.append(row)
    figure = drawing.drawn(
        plots.pseudo_perplexities(run), "held-out perplexity by share of pseudo tokens"
    )
    return [figure, html.table(["pseudo tokens", *last], rows), html.note(NOTE)]
