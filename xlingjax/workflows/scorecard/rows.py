"""The score card's rows: seeds of the settings best on dev, means over them, their names."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xlingjax.evaluation.metrics.averages import averaged_languages
from xlingjax.evaluation.task.scores import means
from xlingjax.report import html
from xlingjax.tasks import task_named
from xlingjax.workflows.scorecard.cells import AS_IT_IS, Cell, group_key, row_key, settings_key

Row = dict[str, Any]


def rows_of(cells: Iterable[Cell]) -> list[Row]:
    """A row for each task, strategy, variant, first weights and test languages: the seeds of the
    settings that are best on dev, each seed tested at its own best checkpoint. `tried`: how many
    settings there were to choose from. The models of translate-train, each tested in the language
    that it was trained in, are one row."""
    groups = {}  # {what a row has in common: {settings: their cells}}
    for cell in cells:
        by_settings = groups.setdefault(group_key(cell), {})
        by_settings.setdefault(settings_key(cell), []).append(cell)
    # What becomes one row: the seeds of a group's best settings, or those of several targets.
    parts_by_row = {}  # {key of a row: the seeds of each of its parts}
    tried_by_row = {}
    for key, by_settings in groups.items():
        seeds = sorted(max(by_settings.values(), key=_dev_score), key=lambda cell: cell["seed"])
        if _is_of_one_target(seeds[0]):
            key = row_key(seeds[0])
        parts_by_row.setdefault(key, []).append(seeds)
        tried_by_row[key] = max(tried_by_row.get(key, 0), len(by_settings))
    return [_row(parts, tried_by_row[key]) for key, parts in parts_by_row.items()]


def _is_of_one_target(cell: Cell) -> bool:
    return [cell["variant"].get("TARGET")] == list(cell["test"]["by_language"])


def _dev_score(cells: Sequence[Cell]) -> float:
    """What settings are compared by: the mean over their seeds."""
    scores = []
    for cell in cells:
        select, of_dev = cell["select"], cell["dev"].get("means", {})
        # "value" is of all tasks that were trained together, for which one setting is chosen.
        score = select.get("value", of_dev.get(select["by"], of_dev.get("mean", 0.0)))
        scores.append(score)
    return float(np.mean(scores))


def mean_and_sd(values: Sequence[float]) -> dict[str, float]:
    """sd: of a sample (n - 1); left out where there is one value."""
    sd = {"sd": float(np.std(values, ddof=1))} if len(values) > 1 else {}
    return {"mean": float(np.mean(values)), **sd}


def _row(parts: Sequence[list[Cell]], tried: int) -> Row:
    """parts: seeds of one training; of translate-train those of each target."""
    cells = [cell for seeds in parts for cell in seeds]
    first = cells[0]
    examples = {}
    for cell in cells:
        examples |= cell["test"]["examples"]
    scores = pd.DataFrame(
        [
            (metric, language, value)
            for cell in cells
            for language, values in cell["test"]["by_language"].items()
            for metric, value in values.items()
        ],
        columns=["metric", "language", "value"],
    )
    by_language = {}
    for (metric, language), values in scores.groupby(["metric", "language"], sort=False)["value"]:
        by_language.setdefault(metric, {})[language] = mean_and_sd(values)
    official = averaged_languages(task_named(first["task"]))
    tested = {*official} & {*scores["language"]}
    row = {
        "task": first["task"],
        "strategy": first["strategy"],
        "variant": first["variant"],
        "settings": first["settings"],
        "tried": tried,
        "seeds": sorted({cell["seed"] for cell in cells}),
        "by_language": by_language,
        # [languages of the official average that are here, all of them].
        "averaged": [len(tested), len(official)],
        "examples": examples,
        "split": first["test"]["split"],
        "start": first["start"],
        "machine": first["machine"],
    }
    if _is_of_one_target(first):
        row |= _of_targets({seeds[0]["variant"]["TARGET"]: seeds for seeds in parts})
    else:
        # The mean over seeds of the seeds' means, which has a deviation of its own.
        row["means"] = {
            name: mean_and_sd([cell["test"]["means"][name] for cell in cells])
            for name in first["test"]["means"]
        }
        row["select"] = first["select"] | {"step": [cell["select"]["step"] for cell in cells]}
        row["dev_languages"] = _dev_languages(first)
    trained = [cell["trained"] for cell in cells if cell.get("trained")]
    if trained:
        counts = sorted({one["examples"] for one in trained})
        row["trained"] = {"split": trained[0]["split"], "examples": counts}
    if "layers" in first:
        row["layers"] = first["layers"]
    return row


def _of_targets(models: Mapping[str, Sequence[Cell]]) -> Row:
    """What the row of several targets has of its own. models: {target: its seeds}."""
    cells = [cell for seeds in models.values() for cell in seeds]
    first = cells[0]
    dev_languages = sorted({code for cell in cells for code in _dev_languages(cell)})
    if all(_dev_languages(cell) == [cell["variant"]["TARGET"]] for cell in cells):
        dev_languages = ["the target language"]
    alike = all(cell["settings"] == first["settings"] for cell in cells)
    row = {
        "variant": {},
        "settings": first["settings"] if alike else {},
        "targets": True,
        "means": {},
        "select": first["select"] | {"step": [cell["select"]["step"] for cell in cells]},
        "dev_languages": dev_languages,
    }
    if len({tuple(cell["seed"] for cell in seeds) for seeds in models.values()}) == 1:
        per_seed = []
        for of_seed in zip(*models.values(), strict=True):
            scores = {}
            for cell in of_seed:
                scores |= cell["test"]["by_language"]
            per_seed.append(means(scores, task_named(first["task"]), list(models))["mean"])
        row["means"] = {"mean": mean_and_sd(per_seed)}
    return row


def _dev_languages(cell: Cell) -> list[str]:
    """Languages whose mean on dev is the task's, as `means` takes it; []: none was measured."""
    measured = sorted(cell["dev"].get("by_language", ()))
    official = task_named(cell["task"]).averaged
    if official is None:
        return measured
    return [language for language in measured if language in official] or measured


def row_name(row: Row) -> str:
    """Its strategy, variant and settings, and what tells it from another one."""
    parts = [row["strategy"].replace("_", " "), *row["variant"].values()]
    parts += [f"{name}={value}" for name, value in row["settings"].items()]
    if row.get("of"):
        parts.append(f"({row['of']})")
    return " ".join(parts)


def policy(row: Row) -> str:
    """How the row's checkpoints, and settings, were chosen."""
    return html.render("policy.txt", row=row, as_it_is=AS_IT_IS)


def tell_apart(rows: Sequence[Row]) -> None:
    """Gives rows that would have one name "of": the first of folder, run, weights, split and policy
    in which all of them differ, else all in which they differ."""
    by_name = {}
    for row in rows:
        by_name.setdefault(row_name(row), []).append(row)
    for same in by_name.values():
        marks = [
            (
                row.get("folder", ""),
                Path(row["start"]["run"]).name,
                row["start"]["sha256"][:8],
                row.get("split", ""),
                # A row of averages has no policy of its own.
                policy(row) if "select" in row else "",
            )
            for row in same
        ]
        differ = [values for values in zip(*marks, strict=True) if len({*values}) > 1]
        enough = [values for values in differ if len({*values}) == len(same)]
        for i, row in enumerate(same):
            if of := ", ".join(values[i] for values in enough[:1] or differ if values[i]):
                row["of"] = of
