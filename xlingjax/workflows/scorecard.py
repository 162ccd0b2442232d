"""The score card: the scores of many runs as tables by task, strategy and language, means over
seeds; and of a suite its average."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.labelled.task import TRAINED, Task
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.averages import (
    averaged_languages,
    groups,
    task_metrics,
)
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.evaluation.task.scores import means
from xlingjax.tasks import suite_tasks, task_named
from xlingjax.workflows.published import PAPERS

SCORES = "scores.json"
AS_IT_IS = "as_it_is"
"""The strategy of what `evaluate --mixture` measures."""
DEV_OF_OTHERS = {"xtreme/xquad": "English SQuAD's"}
"""Tasks whose dev set is of another data set; on it they do not count in an average."""
TESTS = ("test", "translate_test")
Cell = dict[str, Any]
Row = dict[str, Any]


def read_scores(folder: str | Path) -> list[Cell]:
    """Every scores.json below `folder`, with "curve": [[step, mean of the dev sets], ...] of its
    training. Raises UserError where there is none."""
    paths = sorted(Path(folder).glob(f"cells/**/{SCORES}"))
    if not paths:
        raise UserError(
            f"{folder}: no cells/**/{SCORES} there; `xlingjax finetune --task` and `evaluate"
            " --suite` write them"
        )
    cells = []
    for path in paths:
        cell = json.loads(path.read_text(encoding="utf-8"))
        cells.append(cell | {"curve": _curve(path.parent, cell)})
    return cells


def _curve(folder: Path, cell: Cell) -> list[list[float]]:
    together = "TASKS" in cell["variant"]
    run = folder / "run"
    if together:
        # One training, above the folders of its tasks.
        run = folder.parent / "run"
    path = run / "evaluations.jsonl"
    if not path.is_file():
        return []
    _, _, task = cell["task"].partition("/")
    means_by_step = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["name"] != "dev":
            continue
        values = entry["values"]
        if together:
            values = values["by_task"][task]
        if values.get("mean") is not None:
            means_by_step[entry["step"]] = values["mean"]
    return [[step, means_by_step[step]] for step in sorted(means_by_step)]


def mean_and_sd(values: Sequence[float]) -> dict[str, float]:
    """sd: of a sample (n - 1); left out where there is one value."""
    result = {"mean": float(np.mean(values))}
    if len(values) > 1:
        result["sd"] = float(np.std(values, ddof=1))
    return result


# ---- rows ----------------------------------------------------------------------------------------


def rows_of(cells: Iterable[Cell]) -> list[Row]:
    """A row for each task, strategy, variant, first weights and test languages: the seeds of the
    settings that are best on dev, each seed tested at its own best checkpoint. `tried`: how many
    settings there were to choose from. The models of translate-train, each tested in the language
    that it was trained in, are one row."""
    groups: dict[tuple, dict[str, list[Cell]]] = {}
    for cell in cells:
        variant = json.dumps(cell["variant"], sort_keys=True)
        key = (*_across(cell), variant, *sorted(cell["test"]["by_language"]))
        settings = json.dumps(cell["settings"], sort_keys=True)
        groups.setdefault(key, {}).setdefault(settings, []).append(cell)
    # What becomes one row: the seeds of a group's best settings, or those of several targets.
    parts_by_row: dict[tuple, list[tuple[list[Cell], int]]] = {}
    for key, by_settings in groups.items():
        seeds = _best(by_settings)
        if _of_one_target(seeds[0]):
            key = _across(seeds[0])
        parts_by_row.setdefault(key, []).append((seeds, len(by_settings)))
    rows = []
    for parts in parts_by_row.values():
        seeds, tried = parts[0]
        if _of_one_target(seeds[0]):
            rows.append(_joined(parts))
        else:
            rows.append(_row(seeds, tried))
    return rows


def _across(cell: Cell) -> tuple[str, ...]:
    """What rows of several variants and languages have in common. Random weights are told by the
    run whose shape they have."""
    weights = _weights(cell["start"])
    return (
        cell["task"],
        cell["strategy"],
        cell["test"]["split"],
        weights,
        *_chosen_by(cell),
    )


def _chosen_by(cell: Cell) -> tuple[str, ...]:
    """What chose the checkpoint, and the prefix of sentences: figures of several policies are not
    compared. The models of several targets have a dev set of their own each."""
    select = cell["select"]
    languages = []
    if "TARGET" not in cell["variant"]:
        languages = sorted(cell["dev"].get("by_language", ()))
    limit = str(select.get("limit", ""))
    return select["by"], select["split"], limit, select.get("prefix", ""), *languages


def _weights(start: Mapping[str, str]) -> str:
    sha256 = start["sha256"]
    if sha256 in ("", "random"):
        return f"{sha256} {start['run']}"
    return sha256


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
    for name in test["means"]:
        means_over_seeds[name] = mean_and_sd(
            [cell["test"]["means"][name] for cell in cells]
        )
    steps = [cell["select"]["step"] for cell in cells]
    row = {name: first[name] for name in ("task", "strategy", "variant", "settings")}
    row |= {
        "tried": tried,
        "seeds": [cell["seed"] for cell in cells],
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
        "curves": [cell["curve"] for cell in cells if cell.get("curve")],
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


def _joined(parts: Sequence[tuple[list[Cell], int]]) -> Row:
    """One row of the models of several targets; it has a mean where all have the same seeds."""
    cells_of = {}
    rows = {}
    for cells, tried in parts:
        language = cells[0]["variant"]["TARGET"]
        cells_of[language] = cells
        rows[language] = _row(cells, tried)
    first = next(iter(rows.values()))
    settings = {language: row["settings"] for language, row in rows.items()}
    joined = first | {"variant": {}, "settings": {}, "settings_by_target": settings}
    if all(each == first["settings"] for each in settings.values()):
        joined["settings"] = first["settings"]
        joined["settings_by_target"] = {}
    joined["tried"] = max(row["tried"] for row in rows.values())
    seeds = {language: row["seeds"] for language, row in rows.items()}
    joined["seeds_by_target"] = seeds
    joined["means"] = {}
    if all(each == first["seeds"] for each in seeds.values()):
        joined["means"] = {"mean": _mean_over_targets(cells_of)}
    joined["seeds"] = sorted({seed for each in seeds.values() for seed in each})
    by_language = {}
    for metric in first["by_language"]:
        by_language[metric] = {
            language: row["by_language"][metric][language]
            for language, row in rows.items()
        }
    joined["by_language"] = by_language
    joined["averaged"] = _averaged(first["task"], rows)
    joined["examples"] = {}
    for row in rows.values():
        joined["examples"] |= row["examples"]
    steps = {language: row["select"]["step"] for language, row in rows.items()}
    joined["select"] = first["select"] | {"step": steps}
    if all(row["dev_languages"] == [language] for language, row in rows.items()):
        joined["dev_languages"] = ["the target language"]
    else:
        names = {name for row in rows.values() for name in row["dev_languages"]}
        joined["dev_languages"] = sorted(names)
    joined |= _trained(cell for cells in cells_of.values() for cell in cells)
    joined["curves"] = []
    for row in rows.values():
        joined["curves"] += row["curves"]
    return joined


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
        per_seed.append(means(by_language, task, list(cells_of))["mean"])
    return mean_and_sd(per_seed)


# ---- the card ------------------------------------------------------------------------------------


def card(*folders: str | Path) -> dict[str, Any]:
    """{"folders", "overall": see `overall_of`, "tables": a table for each task}; a table: task,
    metrics with signatures, rows, papers, "mean": what its mean is of. Seeds of several folders are
    not put together: each folder has rows of its own. Raises UserError for a folder without cells.
    """
    rows = []
    for folder, name in zip(folders, _short_names(folders), strict=True):
        rows += [row | {"folder": name} for row in rows_of(read_scores(folder))]
    tables: dict[str, dict[str, Any]] = {}
    for row in rows:
        table = tables.setdefault(
            row["task"], {"task": row["task"], "metrics": {}, "rows": []}
        )
        for name in row["by_language"]:
            table["metrics"][name] = METRICS[name].signature
        table["rows"].append(row)
    for name, table in tables.items():
        _tell_apart(table["rows"])
        task = task_named(name)
        table["mean"] = "mean"
        # Papers give one figure where a task's mean is of several: it is named beside theirs.
        figure = ""
        if len(task_metrics(task)) > 1:
            table["mean"] = "mean of F1 and EM"
            figure = METRICS[task.metrics[0]].name
        table["papers"] = _papers(name, figure)
    return {
        "folders": [str(folder) for folder in folders],
        "overall": overall_of(rows),
        "tables": [tables[name] for name in sorted(tables)],
    }


def _short_names(folders: Sequence[str | Path]) -> list[str]:
    """What tells the folders apart; nothing of a single one."""
    if len(folders) < 2:
        return [""] * len(folders)
    paths = [os.path.abspath(folder) for folder in folders]
    above = os.path.commonpath(paths)
    return [os.path.relpath(path, above) for path in paths]


def _papers(name: str, figure: str) -> list[dict[str, Any]]:
    """The published figures of a task."""
    papers = []
    for task, model, strategy, mean, source in PAPERS:
        if task != name:
            continue
        paper = {
            "model": model,
            "strategy": strategy,
            "mean": mean,
            "source": source,
            "figure": figure,
        }
        papers.append(paper)
    return papers


def _tell_apart(rows: Sequence[Row]) -> None:
    """Gives rows that would have one name "of": what they differ in, their folder, their run or its
    weights."""
    alike: dict[str, list[Row]] = {}
    for row in rows:
        alike.setdefault(said(row), []).append(row)
    for same in alike.values():
        differ = []
        for values in zip(*map(_marks, same), strict=True):
            if len(set(values)) > 1:
                differ.append(values)
        # One that tells all of them apart is enough.
        for values in differ:
            if len(set(values)) == len(same):
                differ = [values]
                break
        for i, row in enumerate(same):
            marks = [values[i] for values in differ if values[i]]
            if marks:
                row["of"] = ", ".join(marks)


def _marks(row: Row) -> list[str]:
    """In what rows of one name may differ, the plainest first."""
    start = row["start"]
    chosen_by = ""
    # A row of averages has no policy of its own.
    if "select" in row:
        chosen_by = policy(row)
    return [
        row.get("folder", ""),
        Path(start["run"]).name,
        start["sha256"][:8],
        row.get("split", ""),
        chosen_by,
    ]


def overall_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of each suite with an average of its own, [{"suite", "rows"}]: XTREME's, the mean of the
    tasks' means, and XGLUE's of understanding and of generation.

    A row for each strategy, variant and first weights with two tasks or more: "tasks" {full name:
    mean}, "averages" {name: {"mean", "tasks", "of", "lacks": why it is no official average, in
    words; none: it is}} of what has two tasks or more. Retrieval and mining, which train nothing,
    count to `transfer` as measured on the weights it started from ("untrained": their names).
    """
    overall = []
    for suite in ("xtreme", "xglue"):
        rows_of_suite = _overall_rows(suite, rows)
        if rows_of_suite:
            _tell_apart(rows_of_suite)
            overall.append({"suite": suite, "rows": rows_of_suite})
    return overall


def _overall_rows(suite: str, rows: Sequence[Row]) -> list[Row]:
    tasks = {task.full_name: task for task in suite_tasks(suite)}
    # {what an average is over: {task: its rows}}.
    members: dict[tuple, dict[str, list[Row]]] = {}
    for row in rows:
        if row["task"] not in tasks or "mean" not in row["means"]:
            continue
        variant = json.dumps(row["variant"], sort_keys=True)
        key = (row["strategy"], variant, _weights(row["start"]))
        members.setdefault(key, {}).setdefault(row["task"], []).append(row)
    # {weights: {task: its rows}}.
    untrained: dict[str, dict[str, list[Row]]] = {}
    for (_, _, weights), by_task in members.items():
        for name, rows_of_task in by_task.items():
            if tasks[name].kind not in TRAINED:
                untrained.setdefault(weights, {}).setdefault(name, []).extend(
                    rows_of_task
                )
    overall = []
    for (strategy, _, weights), by_task in members.items():
        if len(by_task) < 2:
            continue
        more = {}
        if strategy == "transfer":
            more = untrained.get(weights, {})
        row = _overall(suite, list(tasks.values()), by_task | more)
        row["untrained"] = sorted(more)
        if row["averages"]:
            overall.append(row)
    return overall


def _overall(
    suite: str, tasks: Sequence[Task], by_task: Mapping[str, Sequence[Row]]
) -> Row:
    # A task of several rows counts with none of them: nothing says which.
    scores = {}
    for name, rows in by_task.items():
        if len(rows) == 1 and not _on_dev_of_others(rows[0]):
            scores[name] = rows[0]["means"]["mean"]["mean"]
    parts = {"average": tasks}
    if suite == "xglue":
        parts = groups(tasks)
    averages = {}
    for part, members in parts.items():
        values = [
            scores[task.full_name] for task in members if task.full_name in scores
        ]
        if len(values) < 2:
            continue
        lacks = []
        if len(values) < len(members):
            lacks.append(f"{len(values)} of {len(members)} tasks")
        for task in members:
            lacks += _lacks(task, by_task.get(task.full_name, ()))
        averages[part] = {
            "mean": float(np.mean(values)),
            "tasks": len(values),
            "of": len(members),
            "lacks": lacks,
        }
    first = next(iter(by_task.values()))[0]
    row = {name: first[name] for name in ("strategy", "variant", "start")}
    return row | {"settings": {}, "tasks": scores, "averages": averages}


def _on_dev_of_others(row: Row) -> bool:
    return row["task"] in DEV_OF_OTHERS and row["split"] not in TESTS


def _lacks(task: Task, rows: Sequence[Row]) -> list[str]:
    """What keeps an average with the rows of this task from being official, in words."""
    if not rows:
        return []
    if len(rows) > 1:
        return [f"{task.name} has {len(rows)} rows, none of which counts"]
    split = rows[0]["split"]
    if _on_dev_of_others(rows[0]):
        owner = DEV_OF_OTHERS[task.full_name]
        return [
            f"{task.name} left out: tested on {split}, which is {owner} and not its own"
        ]
    lacks = []
    here, official = rows[0]["averaged"]
    if here < official:
        lacks.append(f"{here} of {official} languages of {task.name}")
    if split not in TESTS:
        lacks.append(f"{task.name} tested on {split}")
    return lacks


def said(row: Row) -> str:
    """The name of a row: its strategy, variant and settings, and what tells it from another one."""
    parts = [row["strategy"].replace("_", " "), *row["variant"].values()]
    parts += [f"{name}={value}" for name, value in row["settings"].items()]
    name = " ".join(parts)
    if row.get("of"):
        name += f" ({row['of']})"
    return name


def policy(row: Row) -> str:
    """How the row's checkpoints, and settings, were chosen."""
    select = row["select"]
    tried = row["tried"]
    note = ""
    if "note" in select:
        note = f", {select['note']}"
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
    settings = ""
    if tried > 1:
        settings = f", as was one of {tried} settings"
    return f"checkpoint chosen by {over} ({split}){settings}"


def _dev_mean(row: Row) -> str:
    languages = row.get("dev_languages")
    # A cell that does not tell them.
    if not languages:
        return "the mean of all dev languages"
    where = f"dev in {', '.join(languages)}"
    if len(languages) > 1:
        return f"the mean of {where}"
    return where
