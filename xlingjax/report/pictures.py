"""The pictures of a report as files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlingjax.report.drawing import save
from xlingjax.report.plots import losses
from xlingjax.report.retrieval_plots import (
    retrieval_by_layer,
    retrieval_layers,
    retrieval_runs,
    similarity,
)
from xlingjax.report.run import Run


def save_pictures(runs: Mapping[str, Run], folder: Path, more: Mapping[str, Any]) -> list[Path]:
    """The report's figures as PNG files in `folder`, and `more` of them; the first run is the
    report's. Returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    run = next(iter(runs.values()))
    figures = {
        "losses": losses(runs),
        "retrieval_by_layer": retrieval_by_layer(run),
        "retrieval_layers": retrieval_layers(run),
        "retrieval_runs": retrieval_runs(runs),
        "similarity": similarity(run),
        **more,
    }
    written = []
    for name, figure in figures.items():
        if figure is not None:
            path = folder / f"{name}.png"
            save(figure, path, dpi=150)
            written.append(path)
    return written
