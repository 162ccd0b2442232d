"""The rows of the score card: seeds of the settings that are best on dev, means over them; what
they are called, and what tells them apart."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.evaluation.metrics.averages import averaged_languages
from xlingjax.evaluation.task.scores import means
from xlingjax.tasks import task_named
from xlingjax.workflows.scorecard.cells import AS_IT_IS, Cell, group_key, row_key, settings_key

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
    parts_by_row: dict[tuple, list[list[Cell]]] = {}
    tried_by_row: dict[tuple, int] = {}
    for key, by_settings in groups.items():
        seeds = _best(by_settings)
        if _is_of_one_target(seeds[0]):
            # Without the variant: the models of translate-train differ in it and are one row.
            key = row_key(seeds[0])
        parts_by_row.setdefault(key, []).append(seeds)
        tried_by_row[key] = max(tried_by_row.get(key, 0), len(by_settings))
    return [_row(parts, tried_by_row[key]) for key, parts in parts_by_row.items()]


def _is_of_one_target(cell: Cell) -> bool:
    return [cell["variant"].get("TARGET")] == list(cell["test"]["by_language"])


def _best(by_settings: Mapping[str, list[Cell]]) -> list[Cell]:
    """The seeds of the best settings."""
    candidates = list(by_settings.values())
    best = candidates[0]
    # Cells of one setting need no score on dev: some have none.
    if len(candidates) > 1:
        best = max(candidates, key=lambda cells: np.mean([_dev_score(cell) for cell in cells]))
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


def _row(parts: Sequence[list[Cell]], tried: int) -> Row:
    """parts: seeds of one training; of translate-train those of each target."""
    cells = [cell for seeds in parts for cell in seeds]
    first = cells[0]
    scores: dict[str, dict[str, list[float]]] = {}
    examples: dict[str, int] = {}
    for cell in cells:
        examples |= cell["test"]["examples"]
        for language, values in cell["test"]["by_language"].items():
            for metric, value in values.items():
                scores.setdefault(metric, {}).setdefault(language, []).append(value)
    by_language: dict[str, dict[str, Any]] = {}
    for metric, by_code in scores.items():
        by_language[metric] = {code: mean_and_sd(values) for code, values in by_code.items()}
    official = averaged_languages(task_named(first["task"]))
    tested = {*official} & {code for by_code in scores.values() for code in by_code}
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
        "curves": [cell["curve"] for cell in cells if cell.get("curve")],
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
    firsts = {target: seeds[0] for target, seeds in models.items()}
    first = next(iter(firsts.values()))
    settings = {target: cell["settings"] for target, cell in firsts.items()}
    differ = any(values != first["settings"] for values in settings.values())
    seeds = {target: [cell["seed"] for cell in cells] for target, cells in models.items()}
    steps = {}
    for target, cells in models.items():
        steps[target] = [cell["select"]["step"] for cell in cells]
    chosen_by = {target: _dev_languages(cell) for target, cell in firsts.items()}
    if all(languages == [target] for target, languages in chosen_by.items()):
        dev_languages = ["the target language"]
    else:
        dev_languages = sorted({code for codes in chosen_by.values() for code in codes})
    row = {
        "variant": {},
        "settings": {} if differ else first["settings"],
        "settings_by_target": settings if differ else {},
        "seeds_by_target": seeds,
        "means": {},
        "select": first["select"] | {"step": steps},
        "dev_languages": dev_languages,
    }
    # A mean of models of other seeds would have no deviation over seeds.
    if len({*map(tuple, seeds.values())}) == 1:
        per_seed = []
        for cells in zip(*models.values(), strict=True):
            scores: dict[str, Any] = {}
            for cell in cells:
                scores |= cell["test"]["by_language"]
            # Every language was trained on, by its own model, so none counts as another.
            per_seed.append(means(scores, task_named(first["task"]), list(models))["mean"])
        row["means"] = {"mean": mean_and_sd(per_seed)}
    return row


def _dev_languages(cell: Cell) -> list[str]:
    """The languages whose mean on dev is that of the task, as `means` takes it; []: nothing was
    measured there."""
    measured = sorted(cell["dev"].get("by_language", ()))
    official = task_named(cell["task"]).averaged
    if official is None:
        return measured
    return [language for language in measured if language in official] or measured


# ---- names ---------------------------------------------------------------------------------------


def row_name(row: Row) -> str:
    """Its strategy, variant and settings, and what tells it from another one."""
    parts = [row["strategy"].replace("_", " "), *row["variant"].values()]
    parts += [f"{name}={value}" for name, value in row["settings"].items()]
    if row.get("of"):
        parts.append(f"({row['of']})")
    return " ".join(parts)


def policy(row: Row) -> str:
    """How the row's checkpoints, and settings, were chosen."""
    select = row["select"]
    tried = row["tried"]
    note = f", {select['note']}" if "note" in select else ""
    split = select["split"]
    if "limit" in select:
        split += f", {select['limit']} examples of each language"
    if select["by"] == "none":
        if row["strategy"] == AS_IT_IS:
            return f"as it is: the run's own training{note}"
        return f"nothing is trained{note}"
    if select["by"] == "last":
        chosen = ""
        if tried > 1:
            chosen = f"; one of {tried} settings chosen by {_dev_mean(row)} ({split})"
        return f"the last checkpoint{note}{chosen}"
    over = f"dev in {select['by']}"
    if select["by"] == "mean":
        over = _dev_mean(row)
    if "TASKS" in row["variant"]:
        over += " and of all tasks"
    settings = f", as was one of {tried} settings" if tried > 1 else ""
    return f"checkpoint chosen by {over} ({split}){settings}"


def _dev_mean(row: Row) -> str:
    languages = row.get("dev_languages")
    # A cell that does not tell them.
    if not languages:
        return "the mean of all dev languages"
    mean_of = "the mean of " if len(languages) > 1 else ""
    return f"{mean_of}dev in {', '.join(languages)}"


def tell_apart(rows: Sequence[Row]) -> None:
    """Gives rows that would have one name "of": what they differ in, their folder, their run or its
    weights."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row_name(row), []).append(row)
    for same in by_name.values():
        differ = [values for values in zip(*map(_marks, same), strict=True) if len({*values}) > 1]
        # One that tells all of them apart is enough.
        enough = [values for values in differ if len({*values}) == len(same)]
        for i, row in enumerate(same):
            marks = [values[i] for values in enough[:1] or differ if values[i]]
            if marks:
                row["of"] = ", ".join(marks)


def _marks(row: Row) -> list[str]:
    """In what rows of one name may differ, the plainest first."""
    start = row["start"]
    # A row of averages has no policy of its own.
    chosen_by = policy(row) if "select" in row else ""
    return [
        row.get("folder", ""),
        Path(start["run"]).name,
        start["sha256"][:8],
        row.get("split", ""),
        chosen_by,
    ]
