"""The score card: the scores of many runs as tables by task, strategy and language, means over seeds."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.errors import UserError
from xlingjax.evaluation.papers import PAPERS
from xlingjax.evaluation.scores import METRICS

SCORES = "scores.json"


def read_scores(folder: str | Path) -> list[dict[str, Any]]:
    """Every scores.json below `folder`. Raises UserError where there is none."""
    paths = sorted(Path(folder).glob(f"cells/**/{SCORES}"))
    if not paths:
        raise UserError(
            f"{folder}: no cells/**/{SCORES} there; `xlingjax finetune --task` and `evaluate --suite` write them"
        )
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def mean_and_sd(values: Sequence[float]) -> dict[str, float]:
    """sd: of a sample (n - 1); left out where there is one value."""
    found = {"mean": float(np.mean(values))}
    return found | ({"sd": float(np.std(values, ddof=1))} if len(values) > 1 else {})


def rows_of(cells: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each task, strategy, variant, first weights and test languages: the seeds of the settings that are best
    on dev, each seed tested at its own best checkpoint. `tried`: how many settings there were to choose from."""
    groups: dict[tuple, dict[str, list[dict[str, Any]]]] = {}
    for cell in cells:
        tested = (cell["test"]["split"], cell["start"]["sha256"], *sorted(cell["test"]["by_language"]))
        key = (cell["task"], cell["strategy"], json.dumps(cell["variant"], sort_keys=True), tested)
        groups.setdefault(key, {}).setdefault(json.dumps(cell["settings"], sort_keys=True), []).append(cell)
    return [_row(by_settings) for by_settings in groups.values()]


def _row(by_settings: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    def on_dev(cells: list[dict[str, Any]]) -> float:
        by = cells[0]["select"]["by"]
        own = [cell["dev"]["means"].get(by, cell["dev"]["means"].get("mean", 0.0)) for cell in cells]
        # "value": of all tasks that were trained together, for which one setting is chosen
        return float(np.mean([cell["select"].get("value", mean) for cell, mean in zip(cells, own, strict=True)]))

    cells = max(by_settings.values(), key=on_dev) if len(by_settings) > 1 else next(iter(by_settings.values()))
    cells = sorted(cells, key=lambda cell: cell["seed"])
    first = cells[0]
    languages = [language for language in first["test"]["by_language"]]
    metrics = [*next(iter(first["test"]["by_language"].values()), {})]
    return {
        **{name: first[name] for name in ("task", "strategy", "variant", "settings")},
        "tried": len(by_settings), "seeds": [cell["seed"] for cell in cells],
        "by_language": {
            metric: {
                language: mean_and_sd([cell["test"]["by_language"][language][metric] for cell in cells])
                for language in languages
            }
            for metric in metrics
        },
        "means": {
            name: mean_and_sd([cell["test"]["means"][name] for cell in cells]) for name in first["test"]["means"]
        },
        "examples": first["test"]["examples"],
        "split": first["test"]["split"],
        "select": first["select"] | {"step": [cell["select"]["step"] for cell in cells]},
        "start": first["start"], "machine": first["machine"],
    }  # fmt: skip


def card(folder: str | Path) -> dict[str, Any]:
    """{"tables": a table for each task, "folder"}; a table: task, metrics with signatures, rows, papers."""
    tables: dict[str, dict[str, Any]] = {}
    for row in rows_of(read_scores(folder)):
        metrics = {name: METRICS[name].signature for name in row["by_language"]}
        found = tables.setdefault(row["task"], {"task": row["task"], "metrics": {}, "rows": []})
        found["metrics"] |= metrics
        found["rows"].append(row)
    for name, found in tables.items():
        found["papers"] = [
            {"model": model, "strategy": strategy, "mean": value, "source": source}
            for task, model, strategy, value, source in PAPERS
            if task == name
        ]
    return {"folder": str(folder), "tables": [tables[name] for name in sorted(tables)]}


def said(row: dict[str, Any]) -> str:
    """The name of a row: its strategy, variant and settings."""
    parts = [row["strategy"].replace("_", " "), *row["variant"].values()]
    parts += [f"{name}={value}" for name, value in row["settings"].items()]
    return " ".join(parts)


def policy(row: dict[str, Any]) -> str:
    """How the row's checkpoints, and settings, were chosen."""
    select = row["select"]
    if select["by"] in ("none", "last"):
        return {"none": "nothing is trained", "last": "the last checkpoint"}[select["by"]]
    over = "the mean of all dev languages" if select["by"] == "mean" else f"dev in {select['by']}"
    over += " and of all tasks" if "TASKS" in row["variant"] else ""
    tried = f", as was one of {row['tried']} settings" if row["tried"] > 1 else ""
    return f"checkpoint chosen by {over} ({select['split']}){tried}"
