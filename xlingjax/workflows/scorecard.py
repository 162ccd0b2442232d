"""The score card: the scores of many runs as tables by task, strategy and language, means over
seeds; and of a suite its average."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.labelled.task import TRAINED, Task
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.averages import averaged_languages, groups, task_metrics
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.evaluation.task import means
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
    cells = [(path.parent, json.loads(path.read_text(encoding="utf-8"))) for path in paths]
    return [cell | {"curve": _curve(folder, cell)} for folder, cell in cells]


def _curve(folder: Path, cell: Cell) -> list[list[float]]:
    together = "TASKS" in cell["variant"]  # one training, above the folders of its tasks
    path, found = (folder.parent if together else folder) / "run" / "evaluations.jsonl", {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        if (entry := json.loads(line))["name"] != "dev":
            continue
        values = (
            entry["values"]["by_task"][cell["task"].partition("/")[2]]
            if together
            else entry["values"]
        )
        if values.get("mean") is not None:
            found[entry["step"]] = values["mean"]
    return [[step, found[step]] for step in sorted(found)]


def mean_and_sd(values: Sequence[float]) -> dict[str, float]:
    """sd: of a sample (n - 1); left out where there is one value."""
    found = {"mean": float(np.mean(values))}
    return found | ({"sd": float(np.std(values, ddof=1))} if len(values) > 1 else {})


# ---- rows ----------------------------------------------------------------------------------------


def rows_of(cells: Iterable[Cell]) -> list[Row]:
    """A row for each task, strategy, variant, first weights and test languages: the seeds of the
    settings that are best on dev, each seed tested at its own best checkpoint. `tried`: how many
    settings there were to choose from. The models of translate-train, each tested in the language
    that it was trained in, are one row."""
    groups: dict[tuple, dict[str, list[Cell]]] = {}
    for cell in cells:
        key = (
            *_across(cell),
            json.dumps(cell["variant"], sort_keys=True),
            *sorted(cell["test"]["by_language"]),
        )
        groups.setdefault(key, {}).setdefault(
            json.dumps(cell["settings"], sort_keys=True), []
        ).append(cell)
    rows: dict[tuple, list[tuple[list[Cell], int]]] = {}
    for key, by_settings in groups.items():
        best = _best(by_settings)
        rows.setdefault(_across(best[0]) if _of_one_target(best[0]) else key, []).append(
            (best, len(by_settings))
        )
    return [
        _joined(parts) if _of_one_target(parts[0][0][0]) else _row(*parts[0])
        for parts in rows.values()
    ]


def _across(cell: Cell) -> tuple[str, ...]:
    """What rows of several variants and languages have in common. Random weights are told by the
    run whose shape they have."""
    start = cell["start"]
    return cell["task"], cell["strategy"], cell["test"]["split"], _weights(start), *_chosen_by(cell)


def _chosen_by(cell: Cell) -> tuple[str, ...]:
    """What chose the checkpoint, and the prefix of sentences: figures of several policies are not
    compared. The models of several targets have a dev set of their own each."""
    select = cell["select"]
    languages = () if "TARGET" in cell["variant"] else sorted(cell["dev"].get("by_language", ()))
    return (
        select["by"],
        select["split"],
        str(select.get("limit", "")),
        select.get("prefix", ""),
        *languages,
    )


def _weights(start: Mapping[str, str]) -> str:
    return (
        start["sha256"]
        if start["sha256"] not in ("", "random")
        else f"{start['sha256']} {start['run']}"
    )


def _of_one_target(cell: Cell) -> bool:
    return [cell["variant"].get("TARGET")] == [*cell["test"]["by_language"]]


def _best(by_settings: Mapping[str, list[Cell]]) -> list[Cell]:
    """The seeds of the best settings."""

    def on_dev(cells: list[Cell]) -> float:
        by = cells[0]["select"]["by"]
        own = [
            cell["dev"]["means"].get(by, cell["dev"]["means"].get("mean", 0.0)) for cell in cells
        ]
        # "value": of all tasks that were trained together, for which one setting is chosen
        return float(
            np.mean(
                [cell["select"].get("value", mean) for cell, mean in zip(cells, own, strict=True)]
            )
        )

    cells = (
        max(by_settings.values(), key=on_dev)
        if len(by_settings) > 1
        else next(iter(by_settings.values()))
    )
    return sorted(cells, key=lambda cell: cell["seed"])


def _row(cells: Sequence[Cell], tried: int) -> Row:
    first = cells[0]
    languages = [*first["test"]["by_language"]]
    metrics = [*next(iter(first["test"]["by_language"].values()), {})]
    return {
        **{name: first[name] for name in ("task", "strategy", "variant", "settings")},
        "tried": tried,
        "seeds": [cell["seed"] for cell in cells],
        "by_language": {
            metric: {
                language: mean_and_sd(
                    [cell["test"]["by_language"][language][metric] for cell in cells]
                )
                for language in languages
            }
            for metric in metrics
        },
        "means": {
            name: mean_and_sd([cell["test"]["means"][name] for cell in cells])
            for name in first["test"]["means"]
        },
        "averaged": _averaged(first["task"], languages),
        "examples": first["test"]["examples"],
        "split": first["test"]["split"],
        "select": first["select"] | {"step": [cell["select"]["step"] for cell in cells]},
        "dev_languages": _of_dev_mean(first),
        **_trained(cells),
        "start": first["start"],
        "machine": first["machine"],
        "curves": [cell["curve"] for cell in cells if cell.get("curve")],
        **({"layers": first["layers"]} if "layers" in first else {}),
    }


def _of_dev_mean(cell: Cell) -> list[str]:
    """The languages whose mean on dev is that of the task, as `means` takes it; []: nothing was
    measured there."""
    there, official = sorted(cell["dev"].get("by_language", ())), task_named(cell["task"]).averaged
    return [language for language in there if official is None or language in official] or there


def _trained(cells: Iterable[Cell]) -> dict[str, Any]:
    """{"trained": {"split", "examples": the counts that there are}}; {}: the cells do not tell."""
    told = [cell["trained"] for cell in cells if cell.get("trained")]
    if not told:
        return {}
    return {
        "trained": {
            "split": told[0]["split"],
            "examples": sorted({each["examples"] for each in told}),
        }
    }


def _averaged(task: str, languages: Iterable[str]) -> list[int]:
    """[languages of the official average that are here, all of them]."""
    official = averaged_languages(task_named(task))
    return [len({*official} & {*languages}), len(official)]


def _joined(parts: Sequence[tuple[list[Cell], int]]) -> Row:
    """One row of the models of several targets; it has a mean where all have the same seeds."""
    of = {cells[0]["variant"]["TARGET"]: cells for cells, _ in parts}
    rows = {
        language: _row(cells, tried)
        for (language, cells), (_, tried) in zip(of.items(), parts, strict=True)
    }
    first, seeds = (
        next(iter(rows.values())),
        {language: row["seeds"] for language, row in rows.items()},
    )
    found = {}
    if all(each == first["seeds"] for each in seeds.values()):
        task, per_seed = task_named(first["task"]), []
        for at in range(len(first["seeds"])):
            by_language = {
                language: cells[at]["test"]["by_language"][language]
                for language, cells in of.items()
            }
            per_seed.append(means(by_language, task, [*of])["mean"])
        found = {"mean": mean_and_sd(per_seed)}
    settings = {language: row["settings"] for language, row in rows.items()}
    one = all(each == first["settings"] for each in settings.values())
    return first | {
        "variant": {},
        "settings": first["settings"] if one else {},
        "settings_by_target": {} if one else settings,
        "tried": max(row["tried"] for row in rows.values()),
        "seeds_by_target": seeds,
        "means": found,
        "seeds": sorted({seed for each in seeds.values() for seed in each}),
        "by_language": {
            metric: {
                language: row["by_language"][metric][language] for language, row in rows.items()
            }
            for metric in first["by_language"]
        },
        "averaged": _averaged(first["task"], rows),
        "examples": {
            name: count for row in rows.values() for name, count in row["examples"].items()
        },
        "select": (
            first["select"]
            | {"step": {language: row["select"]["step"] for language, row in rows.items()}}
        ),
        "dev_languages": (
            ["the target language"]
            if all(row["dev_languages"] == [language] for language, row in rows.items())
            else sorted({name for row in rows.values() for name in row["dev_languages"]})
        ),
        **_trained(cell for cells in of.values() for cell in cells),
        "curves": [curve for row in rows.values() for curve in row["curves"]],
    }


# ---- the card ------------------------------------------------------------------------------------


def card(*folders: str | Path) -> dict[str, Any]:
    """{"folders", "overall": see `overall_of`, "tables": a table for each task}; a table: task,
    metrics with signatures, rows, papers, "mean": what its mean is of. Seeds of several folders are
    not put together: each folder has rows of its own. Raises UserError for a folder without cells.
    """
    above = (
        os.path.commonpath([os.path.abspath(folder) for folder in folders])
        if len(folders) > 1
        else ""
    )
    rows = []
    for folder in folders:
        name = os.path.relpath(os.path.abspath(folder), above) if above else ""
        rows += [row | {"folder": name} for row in rows_of(read_scores(folder))]
    tables: dict[str, dict[str, Any]] = {}
    for row in rows:
        metrics = {name: METRICS[name].signature for name in row["by_language"]}
        found = tables.setdefault(row["task"], {"task": row["task"], "metrics": {}, "rows": []})
        found["metrics"] |= metrics
        found["rows"].append(row)
    for name, found in tables.items():
        _tell_apart(found["rows"])
        both = len(task_metrics(task_named(name))) > 1
        figure = METRICS[task_named(name).metrics[0]].name if both else ""
        found["mean"] = "mean of F1 and EM" if both else "mean"
        found["papers"] = [
            {
                "model": model,
                "strategy": strategy,
                "mean": value,
                "source": source,
                "figure": figure,
            }
            for task, model, strategy, value, source in PAPERS
            if task == name
        ]
    return {
        "folders": [str(folder) for folder in folders], "overall": overall_of(rows),
        "tables": [tables[name] for name in sorted(tables)],
    }  # fmt: skip


def _tell_apart(rows: Sequence[Row]) -> None:
    """Gives rows that would have one name "of": what they differ in, their folder, their run or its
    weights."""
    alike: dict[str, list[Row]] = {}
    for row in rows:
        alike.setdefault(said(row), []).append(row)
    ways: list[Callable[[Row], str]] = [
        lambda row: row.get("folder", ""),
        lambda row: Path(row["start"]["run"]).name,
        lambda row: row["start"]["sha256"][:8],
        lambda row: row.get("split", ""),
        lambda row: policy(row) if "select" in row else "",
    ]
    for same in alike.values():
        differ = [way for way in ways if len({way(row) for row in same}) > 1]
        enough = next(
            ([way] for way in differ if len({way(row) for row in same}) == len(same)), differ
        )
        for row in same:
            if of := ", ".join(text for way in enough if (text := way(row))):
                row["of"] = of


def overall_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of each suite with an average of its own, [{"suite", "rows"}]: XTREME's, the mean of the
    tasks' means, and XGLUE's of understanding and of generation.

    A row for each strategy, variant and first weights with two tasks or more: "tasks" {full name:
    mean}, "averages" {name: {"mean", "tasks", "of", "lacks": why it is no official average, in
    words; none: it is}} of what has two tasks or more. Retrieval and mining, which train nothing,
    count to `transfer` as measured on the weights it started from ("untrained": their names).
    """
    found = []
    for suite in ("xtreme", "xglue"):
        tasks = {task.full_name: task for task in suite_tasks(suite)}
        own: dict[tuple, dict[str, list[Row]]] = {}
        for row in rows:
            if row["task"] in tasks and "mean" in row["means"]:
                key = (
                    row["strategy"],
                    json.dumps(row["variant"], sort_keys=True),
                    _weights(row["start"]),
                )
                own.setdefault(key, {}).setdefault(row["task"], []).append(row)
        untrained: dict[str, dict[str, list[Row]]] = {}
        for (_, _, weights), of in own.items():
            for name in (name for name in of if tasks[name].kind not in TRAINED):
                untrained.setdefault(weights, {}).setdefault(name, []).extend(of[name])
        made = []
        for (strategy, _, weights), of in own.items():
            more = untrained.get(weights, {}) if strategy == "transfer" else {}
            if len(of) > 1:
                made.append(
                    _overall(suite, [*tasks.values()], of | more) | {"untrained": sorted(more)}
                )
        if made := [row for row in made if row["averages"]]:
            _tell_apart(made)
            found.append({"suite": suite, "rows": made})
    return found


def _overall(suite: str, tasks: Sequence[Task], of: Mapping[str, Sequence[Row]]) -> Row:
    alone = {name: rows[0] for name, rows in of.items() if len(rows) == 1}
    stray = {
        name for name, row in alone.items() if name in DEV_OF_OTHERS and row["split"] not in TESTS
    }
    scores = {
        name: row["means"]["mean"]["mean"] for name, row in alone.items() if name not in stray
    }
    averages = {}
    for part, members in (groups(tasks) if suite == "xglue" else {"average": tasks}).items():
        there = [scores[task.full_name] for task in members if task.full_name in scores]
        if len(there) < 2:
            continue
        lacks = [f"{len(there)} of {len(members)} tasks"] if len(there) < len(members) else []
        for task in members:
            rows = of.get(task.full_name, ())
            if len(rows) > 1:
                lacks.append(f"{task.name} has {len(rows)} rows, none of which counts")
            elif task.full_name in stray:
                owner = DEV_OF_OTHERS[task.full_name]
                lacks.append(
                    f"{task.name} left out: tested on {rows[0]['split']}, which is {owner} and not"
                    " its own"
                )
            elif rows:
                here, all_ = rows[0]["averaged"]
                lacks += [f"{here} of {all_} languages of {task.name}"] if here < all_ else []
                tested = rows[0]["split"]
                lacks += [f"{task.name} tested on {tested}"] if tested not in TESTS else []
        averages[part] = {
            "mean": float(np.mean(there)), "tasks": len(there), "of": len(members), "lacks": lacks,
        }  # fmt: skip
    first = next(rows[0] for rows in of.values())
    row = {name: first[name] for name in ("strategy", "variant", "start")}
    return row | {"settings": {}, "tasks": scores, "averages": averages}


def said(row: Row) -> str:
    """The name of a row: its strategy, variant and settings, and what tells it from another one."""
    parts = [row["strategy"].replace("_", " "), *row["variant"].values()]
    parts += [f"{name}={value}" for name, value in row["settings"].items()]
    return " ".join(parts) + (f" ({row['of']})" if row.get("of") else "")


def policy(row: Row) -> str:
    """How the row's checkpoints, and settings, were chosen."""
    select, tried = row["select"], row["tried"]
    note = f", {select['note']}" if "note" in select else ""
    split = select["split"] + (
        f", {select['limit']} examples of each language" if "limit" in select else ""
    )
    if select["by"] == "none":
        return (
            "as it is: the run's own training"
            if row["strategy"] == AS_IT_IS
            else "nothing is trained"
        ) + note
    if select["by"] == "last":
        chosen = (
            f"; one of {tried} settings chosen by {_dev_mean(row)} ({split})" if tried > 1 else ""
        )
        return "the last checkpoint" + note + chosen
    over = _dev_mean(row) if select["by"] == "mean" else f"dev in {select['by']}"
    over += " and of all tasks" if "TASKS" in row["variant"] else ""
    settings = f", as was one of {tried} settings" if tried > 1 else ""
    return f"checkpoint chosen by {over} ({split}){settings}"


def _dev_mean(row: Row) -> str:
    languages = row.get("dev_languages")
    if not languages:  # a cell that does not tell them
        return "the mean of all dev languages"
    return f"{'the mean of ' if len(languages) > 1 else ''}dev in {', '.join(languages)}"
