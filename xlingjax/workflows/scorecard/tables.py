"""The score card's tables, of tasks, metrics, averages, layers and pivots, and their notes."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from xlingjax.report import html
from xlingjax.tasks import task_named
from xlingjax.workflows.scorecard.averages import by_number
from xlingjax.workflows.scorecard.rows import Row, policy, row_name

MEANS = {"mean": "mean", "mean_other": "untrained languages", "gap": "gap"}
ABSENT = "–"
BY_NUMBER = (
    "mean score by number of training languages, over all test languages and over those trained on"
)


@dataclass(frozen=True)
class Grid:
    caption: str
    texts: pd.DataFrame  # its index names the rows


@dataclass(frozen=True)
class Section:
    title: str
    grids: list[Grid]
    notes: list[str]


def sections_of(card: dict) -> list[Section]:
    sections = [overall(suite) for suite in card["overall"]]
    for table in card["tables"]:
        grids = [Grid(metric, by_metric(table, metric)) for metric in table["metrics"]]
        lines = notes(table)
        grids += _by_number(table["rows"])
        for row in table["rows"]:
            if "layers" in row:
                grids.append(layers(row))
                lines.append(
                    f"{row_name(row)}, layers: 0 is the embeddings; *: of the row above and the"
                    " submission. A best layer that is chosen on the test set flatters: choose it"
                    " on other sentences."
                )
        sections.append(Section(table["task"], grids, lines))
    return sections


def number(value: float | None) -> str:
    if value is None or pd.isna(value):
        return ABSENT
    # z: no -0.0.
    return f"{value:z.1f}"


def figure(value: dict[str, float]) -> str:
    mean = number(value["mean"])
    if "sd" not in value:
        return mean
    return f"{mean} ± {number(value['sd'])}"


def by_metric(table: dict, metric: str) -> pd.DataFrame:
    """One metric of a task: a row for each strategy, then those of papers, which have a mean alone.
    The means are of the task's score and stand in its grid only."""
    is_score = metric == next(iter(table["metrics"]))
    texts = []
    names = []
    languages = set()
    for row in table["rows"]:
        if metric not in row["by_language"]:
            continue
        scores = row["by_language"][metric]
        languages.update(scores)
        cells = {language: figure(value) for language, value in scores.items()}
        if is_score:
            cells |= {name: _mean(row, name) for name in MEANS if name in row["means"]}
        texts.append(cells | {"seeds": str(len(row["seeds"]))})
        names.append(row_name(row))
    for paper in table["papers"] if is_score else ():
        mean = number(paper["mean"])
        if paper["figure"]:
            mean += f" ({paper['figure']})"
        texts.append({"mean": mean, "seeds": ""})
        names.append(f"{paper['model']}, {paper['strategy'].replace('_', ' ')} (paper)")
    frame = pd.DataFrame(texts, index=names)
    columns = [*(name for name in MEANS if name in frame), *sorted(languages), "seeds"]
    heads = MEANS | {"mean": table.get("mean", "mean")}
    return frame.reindex(columns=columns).fillna(ABSENT).rename(columns=heads)


def _mean(row: Row, name: str) -> str:
    text = figure(row["means"][name])
    measured, official = row["averaged"]
    if name == "mean" and measured < official:
        text += f" ({measured} of {official} languages)"
    return text


def overall(suite: dict) -> Section:
    """The averages of a suite and the means of its tasks."""
    lines = [
        "average: mean of the tasks' means, of a task with several rows none; *: no official one:"
        " tasks or languages lack, or a task was tested on another split"
    ]
    averages = []
    tasks = []
    for row in suite["rows"]:
        name = row_name(row)
        if row["untrained"]:
            names = ", ".join(map(_without_suite, row["untrained"]))
            lines.append(f"{name}: {names} as measured on the weights that it started from")
        texts = {}
        for part, average in row["averages"].items():
            star = "" if average["official"] else "*"
            of = f"({average['tasks']} of {average['of']} tasks)"
            texts[part] = f"{number(average['mean'])}{star} {of}"
        averages.append(texts)
        tasks.append(row["tasks"])
    means = pd.DataFrame(tasks).sort_index(axis=1).rename(columns=_without_suite).map(number)
    frame = pd.concat([pd.DataFrame(averages).fillna(ABSENT), means], axis=1)
    frame.index = [row_name(row) for row in suite["rows"]]
    return Section(suite["suite"], [Grid("mean over tasks", frame)], lines)


def _without_suite(task: str) -> str:
    """ "xnli" of "xtreme/xnli"."""
    return task.partition("/")[2]


def layers(row: Row) -> Grid:
    """Of a row that was measured at several layers or poolings: pooling by layer, mean over
    languages. *: of the row itself."""
    own = row["layers"]
    tables = {name: pd.DataFrame(of) for name, of in own["by_language"].items()}
    means = pd.DataFrame({name: table.mean(axis=1) for name, table in tables.items()})
    # JSON has layers as text, in which 10 comes before 2.
    texts = means.reindex(sorted(means.index, key=int)).map(number).T
    stars = {name: f"{name}*" for name in (own["pooling"], str(own["layer"]))}
    caption = f"{row_name(row)}, pooling by layer, mean over languages"
    return Grid(caption, texts.rename(index=stars, columns=stars))


def _by_number(rows: Iterable[Row]) -> list[Grid]:
    lines = by_number([*rows])
    if not lines:
        return []
    frame = pd.DataFrame(
        {
            "mean": [number(line["mean"]) for line in lines],
            "in the languages trained on": [number(line["own"]) for line in lines],
            "of the rows": [", ".join(line["rows"]) for line in lines],
        },
        index=pd.Index([str(line["languages"]) for line in lines], name="languages"),
    )
    return [Grid(BY_NUMBER, frame)]


def notes(table: dict) -> list[str]:
    """What a figure of the table means, in lines."""
    overlap = task_named(table["task"]).overlap
    functions = {"row_name": row_name, "policy": policy, "span": _span}
    return html.render("notes.txt", table=table, overlap=overlap, **functions).splitlines()


def _span(counts: Iterable[int]) -> str:
    least, most = min(counts), max(counts)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
