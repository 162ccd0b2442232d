"""The tables of the score card: of each task and metric, of a suite's averages, of layers, of
pivots; and the notes beneath them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.report import intervals
from xlingjax.tasks import task_named
from xlingjax.workflows import number_study
from xlingjax.workflows.number_study import trained_on
from xlingjax.workflows.scorecard_names import policy, said

MEANS = {"mean": "mean", "mean_other": "untrained languages", "gap": "gap"}
_FLATTERS = "A best layer that is chosen on the test set flatters: choose it on other sentences."


@dataclass(frozen=True)
class Grid:
    caption: str
    head: list[str]
    rows: list[list[str]]
    values: list[list[float | None]] | None = None
    """Of a heat-map, without the first column."""


def figure(value: dict[str, float] | None, between: str = " ± ") -> str:
    if value is None:
        return "–"
    mean = number(value["mean"])
    if "sd" not in value:
        return mean
    return f"{mean}{between}{number(value['sd'])}"


def number(value: float | None) -> str:
    if value is None:
        return "–"
    # z: no -0.0.
    return f"{value:z.1f}"


def grid(table: dict[str, Any], metric: str) -> tuple[list[str], list[list[str]]]:
    """(head, rows) of one metric of a task: a row for each strategy, then those of papers, which
    have a mean alone. The means are of the task's score and stand in its grid only."""
    measured = [row for row in table["rows"] if metric in row["by_language"]]
    languages = _languages(measured, metric)
    is_score = metric == next(iter(table["metrics"]))
    papers = []
    means = []
    if is_score:
        papers = table["papers"]
        means = _means_of(measured, papers)
    head = [""]
    for name in means:
        if name == "mean":
            head.append(table.get("mean", "mean"))
        else:
            head.append(MEANS[name])
    head += [*languages, "seeds"]
    rows = []
    for row in measured:
        cells = [said(row)]
        for name in means:
            cells.append(_mean(row, name))
        for language in languages:
            cells.append(figure(row["by_language"][metric].get(language)))
        cells.append(_seeds(row))
        rows.append(cells)
    for paper in papers:
        name = f"{paper['model']}, {paper['strategy'].replace('_', ' ')} (paper)"
        mean = number(paper["mean"])
        if paper["figure"]:
            mean += f" ({paper['figure']})"
        # Papers' figures by language are not kept, nor their seeds.
        blank = ["–"] * (len(means) - 1 + len(languages))
        rows.append([name, mean, *blank, ""])
    return head, rows


def _languages(rows: Iterable[dict[str, Any]], metric: str) -> list[str]:
    languages = set()
    for row in rows:
        languages.update(row["by_language"][metric])
    return sorted(languages)


def _means_of(rows: Iterable[dict[str, Any]], papers: Sequence[Any]) -> list[str]:
    """The means that a row or a paper has, in their usual order."""
    names = set()
    for row in rows:
        names.update(row["means"])
    if papers:
        names.add("mean")
    return [name for name in MEANS if name in names]


def _mean(row: dict[str, Any], name: str) -> str:
    text = figure(row["means"].get(name))
    here, official = row["averaged"]
    if name == "mean" and "mean" in row["means"] and here < official:
        text += f" ({here} of {official} languages)"
    return text


def _seeds(row: dict[str, Any]) -> str:
    by_target = row.get("seeds_by_target", {"": row["seeds"]})
    counts = sorted({len(seeds) for seeds in by_target.values()})
    if len(counts) == 1:
        return str(counts[0])
    return f"{counts[0]} to {counts[-1]}"


def notes(table: dict[str, Any]) -> list[str]:
    """What a figure of the table means, in lines."""
    lines = []
    for name, signature in table["metrics"].items():
        lines.append(f"{name}: {signature}")
    overlap = task_named(table["task"]).overlap
    if overlap:
        lines.append(overlap)
    for row in table["rows"]:
        lines += _notes_of_row(row)
    papers = table["papers"]
    if any(paper["figure"] for paper in papers):
        lines.append(
            f"papers: {papers[0]['figure']} alone, where the mean is of F1 and exact match"
        )
    for paper in papers:
        lines.append(f"{paper['model']}: {paper['source']}")
    return lines


def _notes_of_row(row: dict[str, Any]) -> list[str]:
    split = row["split"]
    size = f"{_range(row['examples'].values())} examples"
    if row["by_language"]:
        parts = [f"tested on {split} ({size} a language{_sure(row)})"]
    else:
        parts = [
            f"no figures for {split} ({size} a language): predicted; the files have no answers"
        ]
    trained = row.get("trained")
    if trained:
        parts.append(f"trained on {_range(trained['examples'])} examples ({trained['split']})")
    parts.append(policy(row))
    weights = row["start"]["sha256"][:12]
    if weights:
        parts.append(f"from {row['start']['run']} ({weights})")
    if row["machine"]:
        parts.append(row["machine"])
    lines = [f"{said(row)}: {'; '.join(parts)}"]
    seeds = row.get("seeds_by_target")
    if seeds:
        lines.append(
            f"{said(row)}: each language has a model of its own, trained and tested in it"
            + _unequal(row)
        )
        if not row["means"]:
            by_language = []
            for language, numbers in seeds.items():
                by_language.append(f"{language} {' '.join(map(str, numbers))}")
            lines.append(
                f"{said(row)}: no mean, since the languages have other seeds:"
                f" {'; '.join(by_language)}"
            )
    return lines


def _sure(row: dict[str, Any]) -> str:
    """By how much chance alone may move a language's accuracy of few examples; "": of many, and of
    other metrics, whose cases are no examples."""
    halves = []
    for language, value in row["by_language"].get("accuracy", {}).items():
        count = row["examples"][language]
        if count < intervals.FEW:
            low, high = intervals.of_share(value["mean"] / 100, count)
            halves.append(100 * (high - low) / 2)
    if not halves:
        return ""
    return f"; 95 % of so few: accuracy ± {max(halves):.1f}"


def _range(counts: Iterable[int]) -> str:
    counts = list(counts)
    low = min(counts)
    high = max(counts)
    if low == high:
        return f"{low:,}"
    return f"{low:,} to {high:,}"


def _unequal(row: dict[str, Any]) -> str:
    """The settings that dev chose, where they differ by language."""
    if not row["settings_by_target"]:
        return ""
    parts = []
    for language, settings in row["settings_by_target"].items():
        values = " ".join(f"{name}={value}" for name, value in settings.items())
        parts.append(f"{language} {values}")
    return f", with settings of its own: {'; '.join(parts)}"


def overall(suite: dict[str, Any]) -> tuple[Grid, list[str]]:
    """The averages of a suite and the means of its tasks, and what they lack to be official, in
    lines."""
    averages: dict[str, None] = {}
    all_tasks = set()
    for row in suite["rows"]:
        averages |= dict.fromkeys(row["averages"])
        all_tasks.update(row["tasks"])
    tasks = sorted(all_tasks)
    lines = ["average: mean of the tasks' means; *: no official one"]
    rows = []
    for row in suite["rows"]:
        if row["untrained"]:
            names = ", ".join(map(_without_suite, row["untrained"]))
            lines.append(f"{said(row)}: {names} as measured on the weights that it started from")
        cells = [said(row)]
        for name in averages:
            average = row["averages"].get(name)
            if average is None:
                cells.append("–")
                continue
            cells.append(_average(average))
            if average["lacks"]:
                lacks = "; ".join(average["lacks"])
                lines.append(f"{said(row)}, {name}: no official average: {lacks}")
        cells += [number(row["tasks"].get(name)) for name in tasks]
        rows.append(cells)
    head = ["", *averages, *map(_without_suite, tasks)]
    return Grid("mean over tasks", head, rows), lines


def _without_suite(task: str) -> str:
    """ "xnli" of "xtreme/xnli"."""
    return task.partition("/")[2]


def _average(average: dict[str, Any]) -> str:
    star = ""
    if average["lacks"]:
        star = "*"
    return f"{number(average['mean'])}{star} ({average['tasks']} of {average['of']} tasks)"


def layers(row: dict[str, Any]) -> tuple[list[Grid], list[str]]:
    """Of a row that was measured at several layers or poolings: pooling by layer, mean over
    languages; of each pooling language by layer; and what stands in them, in lines. *: of the row
    itself."""
    by_pooling = row["layers"]["by_language"]
    names = set()
    for by_language in by_pooling.values():
        for scores in by_language.values():
            names.update(scores)
    # JSON has layers as text, in which 10 comes before 2.
    names = sorted(names, key=int)
    head = [""]
    for name in names:
        star = ""
        if int(name) == row["layers"]["layer"]:
            star = "*"
        head.append(f"{name}{star}")

    def heat_map(caption: str, rows: Mapping[str, Sequence[float | None]]) -> Grid:
        texts = []
        for name, values in rows.items():
            texts.append([name, *map(number, values)])
        return Grid(caption, head, texts, [*map(list, rows.values())])

    means = {}
    for pooling, by_language in by_pooling.items():
        star = ""
        if pooling == row["layers"]["pooling"]:
            star = "*"
        means[f"{pooling}{star}"] = [_mean_of_layer(by_language, name) for name in names]
    grids = [heat_map(f"{said(row)}: pooling by layer, mean over languages", means)]
    for pooling, by_language in by_pooling.items():
        values = {}
        for language in sorted(by_language):
            values[language] = [by_language[language].get(name) for name in names]
        grids.append(heat_map(f"{said(row)}, pooled by {pooling}: language by layer", values))
    note = (
        f"{said(row)}, layers: 0 is the embeddings; *: of the row above and the submission."
        f" {_FLATTERS}"
    )
    return grids, [note]


def _mean_of_layer(by_language: Mapping[str, Mapping[str, float]], name: str) -> float | None:
    """Over the languages that were measured there."""
    scores = [of_layer[name] for of_layer in by_language.values() if name in of_layer]
    if not scores:
        return None
    return float(np.mean(scores))


def pivots(table: dict[str, Any]) -> list[Grid]:
    """A heat-map of pivot, or languages trained on, x test language, where there are several."""
    # No metric: the files have no answers.
    metric = next(iter(table["metrics"]), "")
    rows = []
    for row in table["rows"]:
        if trained_on(row) and metric in row["by_language"]:
            rows.append(row)
    # One row alone is no comparison.
    if len(rows) < 2:
        return []
    languages = _languages(rows, metric)
    names = []
    values = []
    for row in rows:
        names.append([trained_on(row)])
        figures = row["by_language"][metric]
        values.append([figures.get(language, {}).get("mean") for language in languages])
    return [Grid("trained on (row) by test language", ["", *languages], names, values)]


def sections_of(card: dict[str, Any]) -> list[tuple[str, list[Grid], list[str], dict[str, Any]]]:
    """(title, tables, notes, the table of the card) of each part."""
    sections = []
    for suite in card["overall"]:
        averages, lines = overall(suite)
        sections.append((suite["suite"], [averages], lines, {}))
    for table in card["tables"]:
        grids = [Grid(metric, *grid(table, metric)) for metric in table["metrics"]]
        lines = notes(table)
        if number_study.by_number(table["rows"]):
            grids.append(Grid(number_study.CAPTION, *number_study.grid(table["rows"])))
        for row in table["rows"]:
            if "layers" in row:
                more_grids, more_lines = layers(row)
                grids += more_grids
                lines += more_lines
        sections.append((table["task"], grids, lines, table))
    return sections
