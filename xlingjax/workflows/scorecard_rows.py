"""The rows of the score card: seeds of the settings that are best on dev, means over them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from xlingjax.evaluation.metrics.averages import averaged_languages
from xlingjax.evaluation.task.scores import means
from xlingjax.tasks import task_named
from xlingjax.workflows.scorecard_cells import Cell, group_key, row_key, settings_key

Row = dict[str, Any]


def rows_of(cells: Iterable[Cell]) -> list[Row]:
    """A row for each task, strategy, variant, first weights and test languages: the seeds of the
    settings that are best on dev, each seed tested at its own best checkpoint. `tried`: how many
    settings there were to choose from. The models of translate-train, each tested in the language
    that it was trained in, are one row."""
    groups: dict[tuple, dict[str, list[Cell]]] = {}
    for cell in cells:
        by_settings = groups.setdefault(group_key(cell), {})
        by_settings.setdefault(settings_key(cell), []).append(cell)
    # What becomes one row: the seeds of a group's best settings, or those of several targets.
    parts_by_row: dict[tuple, list[tuple[list[Cell], int]]] = {}
    for key, by_settings in groups.items():
        seeds = _best(by_settings)
        if _of_one_target(seeds[0]):
            # Without the variant: the models of translate-train differ in it and are one row.
            key = row_key(seeds[0])
        parts_by_row.setdefault(key, []).append((seeds, len(by_settings)))
    rows = []
    for parts in parts_by_row.values():
        seeds, tried = parts[0]
        if _of_one_target(seeds[0]):
            rows.append(_joined(parts))
        else:
            rows.append(_row(seeds, tried))
    return rows


def _of_one_target(cell: Cell) -> bool:
    return [cell["variant"].get("TARGET")] == list(cell["test"]["by_language"])


def _best(by_settings: Mapping[str, list[Cell]]) -> list[Cell]:
    """The seeds of the best settings."""

    def on_dev(cells: list[Cell]) -> float:
        return float(np.mean([_dev_score(cell) for cell in cells]))

    candidates = list(by_settings.values())
    best = candidates[0]
    # Cells of one setting need no score on dev: some have none.
    if len(candidates) > 1:
        best = max(candidates, key=on_dev)
    return sorted(best, key=lambda cell: cell["seed"])


def _dev_score(cell: Cell) -> float:
    """What settings are compared by."""
    select = cell["select"]
    # Of all tasks that were trained together, for which one setting is chosen.
    if "value" in select:
        return select["value"]
    means_on_dev = cell["dev"]["means"]
    return means_on_dev.get(select["by"], means_on_dev.get("mean", 0.0))


# ---- one row -------------------------------------------------------------------------------------


def mean_and_sd(values: Sequence[float]) -> dict[str, float]:
    """sd: of a sample (n - 1); left out where there is one value."""
    result = {"mean": float(np.mean(values))}
    if len(values) > 1:
        result["sd"] = float(np.std(values, ddof=1))
    return result


def _row(cells: Sequence[Cell], tried: int) -> Row:
    first = cells[0]
    test = first["test"]
    languages = list(test["by_language"])
    metrics = []
    if languages:
        metrics = list(test["by_language"][languages[0]])
    by_language: dict[str, dict[str, Any]] = {}
    for metric in metrics:
        by_language[metric] = {}
        for language in languages:
            scores = [cell["test"]["by_language"][language][metric] for cell in cells]
            by_language[metric][language] = mean_and_sd(scores)
    means_over_seeds = {}
    # The mean over seeds of the seeds' means, which has a deviation of its own.
    for name in test["means"]:
        scores = [cell["test"]["means"][name] for cell in cells]
        means_over_seeds[name] = mean_and_sd(scores)
    seeds = []
    steps = []
    curves = []
    for cell in cells:
        seeds.append(cell["seed"])
        steps.append(cell["select"]["step"])
        if cell.get("curve"):
            curves.append(cell["curve"])
    row = {
        "task": first["task"],
        "strategy": first["strategy"],
        "variant": first["variant"],
        "settings": first["settings"],
        "tried": tried,
        "seeds": seeds,
        "by_language": by_language,
        "means": means_over_seeds,
        "averaged": _averaged(first["task"], languages),
        "examples": test["examples"],
        "split": test["split"],
        "select": first["select"] | {"step": steps},
        "dev_languages": _of_dev_mean(first),
        **_trained(cells),
        "start": first["start"],
        "machine": first["machine"],
        "curves": curves,
    }
    if "layers" in first:
        row["layers"] = first["layers"]
    return row


def _of_dev_mean(cell: Cell) -> list[str]:
    """The languages whose mean on dev is that of the task, as `means` takes it; []: nothing was
    measured there."""
    measured = sorted(cell["dev"].get("by_language", ()))
    official = task_named(cell["task"]).averaged
    if official is None:
        return measured
    averaged = [language for language in measured if language in official]
    return averaged or measured


def _trained(cells: Iterable[Cell]) -> dict[str, Any]:
    """{"trained": {"split", "examples": the counts that there are}}; {}: the cells do not tell."""
    trained = [cell["trained"] for cell in cells if cell.get("trained")]
    if not trained:
        return {}
    counts = sorted({each["examples"] for each in trained})
    return {"trained": {"split": trained[0]["split"], "examples": counts}}


def _averaged(task: str, languages: Iterable[str]) -> list[int]:
    """[languages of the official average that are here, all of them]."""
    official = averaged_languages(task_named(task))
    return [len(set(official) & set(languages)), len(official)]


# ---- one row of several targets ------------------------------------------------------------------


def _joined(parts: Sequence[tuple[list[Cell], int]]) -> Row:
    """One row of the models of several targets; it has a mean where all have the same seeds."""
    cells_of = {}
    rows = {}
    for cells, tried in parts:
        language = cells[0]["variant"]["TARGET"]
        cells_of[language] = cells
        rows[language] = _row(cells, tried)
    first = next(iter(rows.values()))
    joined = first | {"variant": {}, "settings": {}, "means": {}, "examples": {}}
    settings = _of_each("settings", rows)
    joined["settings_by_target"] = settings
    if _all_equal(settings):
        joined["settings"] = first["settings"]
        joined["settings_by_target"] = {}
    joined["tried"] = max(_of_each("tried", rows).values())
    seeds = _of_each("seeds", rows)
    joined["seeds_by_target"] = seeds
    # A mean of models of other seeds would have no deviation over seeds.
    if _all_equal(seeds):
        joined["means"] = {"mean": _mean_over_targets(cells_of)}
    joined["seeds"] = sorted(set().union(*seeds.values()))
    by_language: dict[str, dict[str, Any]] = {}
    for metric in first["by_language"]:
        by_language[metric] = {}
        for language, row in rows.items():
            by_language[metric][language] = row["by_language"][metric][language]
    joined["by_language"] = by_language
    joined["averaged"] = _averaged(first["task"], rows)
    steps = {}
    all_cells = []
    joined["curves"] = []
    for language, row in rows.items():
        joined["examples"] |= row["examples"]
        steps[language] = row["select"]["step"]
        joined["curves"] += row["curves"]
        all_cells += cells_of[language]
    joined["select"] = first["select"] | {"step": steps}
    joined["dev_languages"] = _dev_languages(_of_each("dev_languages", rows))
    return joined | _trained(all_cells)


def _of_each(field: str, rows: Mapping[str, Row]) -> dict[str, Any]:
    """{target: the field of its row}."""
    return {language: row[field] for language, row in rows.items()}


def _all_equal(values: Mapping[str, Any]) -> bool:
    first, *others = values.values()
    return all(value == first for value in others)


def _dev_languages(by_target: Mapping[str, list[str]]) -> list[str]:
    """What chose, in words where it was each model's own language."""
    if all(chosen_by == [target] for target, chosen_by in by_target.items()):
        return ["the target language"]
    return sorted(set().union(*by_target.values()))


def _mean_over_targets(cells_of: Mapping[str, Sequence[Cell]]) -> dict[str, float]:
    """The task's mean over the languages, each of its own model; `cells_of` {language: its seeds},
    the same seeds in all."""
    first = next(iter(cells_of.values()))
    task = task_named(first[0]["task"])
    per_seed = []
    for seed in range(len(first)):
        by_language = {}
        for language, cells in cells_of.items():
            by_language[language] = cells[seed]["test"]["by_language"][language]
        # Every language was trained on, by its own model, so none counts as another.
        per_seed.append(means(by_language, task, list(cells_of))["mean"])
    return mean_and_sd(per_seed)
