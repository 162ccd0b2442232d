"""The score card as Markdown, LaTeX, JSON and a page."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.report import html, plots
from xlingjax.tasks import task_named
from xlingjax.workflows import number_study, scorecard, scorecard_plots
from xlingjax.workflows.number_study import trained_on
from xlingjax.workflows.scorecard import policy, said

MEANS = {"mean": "mean", "mean_other": "untrained languages", "gap": "gap"}
_ABOUT = (
    "All figures in 0 to 100, mean ± standard deviation over seeds. mean: of the languages of the"
    " official average that are here; untrained languages: without training examples; gap: English"
    " less the mean of the others."
)
_FLATTERS = "A best layer that is chosen on the test set flatters: choose it on other sentences."


@dataclass(frozen=True)
class Grid:
    caption: str
    head: list[str]
    rows: list[list[str]]
    values: list[list[float | None]] | None = None
    """Of a heat-map, without the first column."""


def write(card: dict[str, Any], folder: Path) -> list[Path]:
    """card.json, card.md, card.tex and card.html in `folder`, and a picture of each task in its
    folder images."""
    made = {
        "card.json": json.dumps(card, indent=1, ensure_ascii=False) + "\n",
        "card.md": markdown(card),
        "card.tex": latex(card),
        "card.html": page(card),
    }
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    written = [folder / name for name in made]
    for table in card["tables"]:
        if drawing := scorecard_plots.by_language(table):
            written.append(folder / "images" / f"{table['task'].replace('/', '-')}.png")
            written[-1].parent.mkdir(exist_ok=True)
            plots.save(drawing, written[-1])
    return written


# ---- tables --------------------------------------------------------------------------------------


def figure(value: dict[str, float] | None, between: str = " ± ") -> str:
    if value is None:
        return "–"
    return _number(value["mean"]) + (f"{between}{_number(value['sd'])}" if "sd" in value else "")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:z.1f}"  # z: no -0.0


def grid(table: dict[str, Any], metric: str) -> tuple[list[str], list[list[str]]]:
    """(head, rows) of one metric of a task: a row for each strategy, then those of papers, which
    have a mean alone. The means are of the task's score and stand in its grid only."""
    rows = [row for row in table["rows"] if metric in row["by_language"]]
    languages = sorted({language for row in rows for language in row["by_language"][metric]})
    score = metric == next(iter(table["metrics"]))
    named = {name for row in rows for name in row["means"]} | (
        {"mean"} if table["papers"] else set()
    )
    means = [name for name in MEANS if name in named] if score else []
    head = [
        "",
        *(table.get("mean", "mean") if name == "mean" else MEANS[name] for name in means),
        *languages,
        "seeds",
    ]
    found = []
    for row in rows:
        of = row["by_language"][metric]
        figures = [_mean(row, name) for name in means] + [
            figure(of.get(name)) for name in languages
        ]
        found.append([said(row), *figures, _seeds(row)])
    if score:
        for paper in table["papers"]:
            blank = ["–"] * (len(means) - 1 + len(languages))
            name = f"{paper['model']}, {paper['strategy'].replace('_', ' ')} (paper)"
            found.append(
                [
                    name,
                    _number(paper["mean"]) + (f" ({of})" if (of := paper["figure"]) else ""),
                    *blank,
                    "",
                ]
            )
    return head, found


def _mean(row: dict[str, Any], name: str) -> str:
    shown = figure(row["means"].get(name))
    here, official = row["averaged"]
    return (
        f"{shown} ({here} of {official} languages)"
        if name == "mean" in row["means"] and here < official
        else shown
    )


def _seeds(row: dict[str, Any]) -> str:
    counts = sorted(
        {len(seeds) for seeds in row.get("seeds_by_target", {"": row["seeds"]}).values()}
    )
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def notes(table: dict[str, Any]) -> list[str]:
    """What a figure of the table means, in lines."""
    lines = [f"{name}: {signature}" for name, signature in table["metrics"].items()]
    if overlap := task_named(table["task"]).overlap:
        lines.append(overlap)
    for row in table["rows"]:
        start, split, size = (
            row["start"]["sha256"][:12],
            row["split"],
            f"{_range(row['examples'].values())} examples",
        )
        hidden = f"no figures for {split} ({size} a language): predicted; the files have no answers"
        trained = row.get("trained")
        lines.append(
            f"{said(row)}: "
            + (f"tested on {split} ({size} a language)" if row["by_language"] else hidden)
            + (
                f"; trained on {_range(trained['examples'])} examples ({trained['split']})"
                if trained
                else ""
            )
            + f"; {policy(row)}"
            + (f"; from {row['start']['run']} ({start})" if start else "")
            + (f"; {row['machine']}" if row["machine"] else "")
        )
        if seeds := row.get("seeds_by_target"):
            lines.append(
                f"{said(row)}: each language has a model of its own, trained and tested in it"
                + _unequal(row)
            )
            if not row["means"]:
                told = "; ".join(
                    f"{language} {' '.join(map(str, each))}" for language, each in seeds.items()
                )
                lines.append(f"{said(row)}: no mean, since the languages have other seeds: {told}")
    if any(paper["figure"] for paper in table["papers"]):
        lines.append(
            f"papers: {table['papers'][0]['figure']} alone, where the mean is of F1 and exact match"
        )
    return lines + [f"{paper['model']}: {paper['source']}" for paper in table["papers"]]


def _range(counts: Iterable[int]) -> str:
    low, high = min(counts := [*counts]), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _unequal(row: dict[str, Any]) -> str:
    """The settings that dev chose, where they differ by language."""
    told = [
        f"{language} {' '.join(f'{name}={value}' for name, value in settings.items())}"
        for language, settings in row["settings_by_target"].items()
    ]
    return f", with settings of its own: {'; '.join(told)}" if told else ""


def overall(suite: dict[str, Any]) -> tuple[Grid, list[str]]:
    """The averages of a suite and the means of its tasks, and what they lack to be official, in
    lines."""
    averages = list(dict.fromkeys(name for row in suite["rows"] for name in row["averages"]))
    tasks = sorted({name for row in suite["rows"] for name in row["tasks"]})
    rows, lines = [], []
    for row in suite["rows"]:
        cells = [said(row)]
        if row["untrained"]:
            names = ", ".join(name.partition("/")[2] for name in row["untrained"])
            lines.append(f"{said(row)}: {names} as measured on the weights that it started from")
        for name in averages:
            found = row["averages"].get(name)
            cells.append(_average(found) if found else "–")
            if found and found["lacks"]:
                lines.append(
                    f"{said(row)}, {name}: no official average: {'; '.join(found['lacks'])}"
                )
        rows.append(cells + [_number(row["tasks"].get(name)) for name in tasks])
    lines.insert(0, "average: mean of the tasks' means; *: no official one")
    head = ["", *averages, *(name.partition("/")[2] for name in tasks)]
    return Grid("mean over tasks", head, rows), lines


def _average(found: dict[str, Any]) -> str:
    return (
        f"{_number(found['mean'])}{'*' if found['lacks'] else ''} ({found['tasks']} of"
        f" {found['of']} tasks)"
    )


def layers(row: dict[str, Any]) -> tuple[list[Grid], list[str]]:
    """Of a row that was measured at several layers or poolings: pooling by layer, mean over
    languages; of each pooling language by layer; and what stands in them, in lines. *: of the row
    itself."""
    of, chosen, pooled = (
        row["layers"]["by_language"],
        row["layers"]["layer"],
        row["layers"]["pooling"],
    )
    names = sorted(
        {layer for by in of.values() for values in by.values() for layer in values}, key=int
    )
    head = [f"{name}*" if int(name) == chosen else name for name in names]

    def shown(caption: str, rows: Mapping[str, Sequence[float | None]]) -> Grid:
        texts = [[name, *map(_number, values)] for name, values in rows.items()]
        return Grid(caption, ["", *head], texts, [list(values) for values in rows.values()])

    means = {
        f"{pooling}*" if pooling == pooled else pooling: [
            (
                float(np.mean(there))
                if (there := [values[name] for values in by.values() if name in values])
                else None
            )
            for name in names
        ]
        for pooling, by in of.items()
    }
    grids = [shown(f"{said(row)}: pooling by layer, mean over languages", means)]
    for pooling, by in of.items():
        values = {language: [by[language].get(name) for name in names] for language in sorted(by)}
        grids.append(shown(f"{said(row)}, pooled by {pooling}: language by layer", values))
    return grids, [
        f"{said(row)}, layers: 0 is the embeddings; *: of the row above and the submission."
        f" {_FLATTERS}"
    ]


def _pivots(table: dict[str, Any]) -> list[Grid]:
    """A heat-map of pivot, or languages trained on, x test language, where there are several."""
    metric = next(iter(table["metrics"]), "")  # "": the files have no answers
    rows = [row for row in table["rows"] if trained_on(row) and metric in row["by_language"]]
    if len(rows) < 2:
        return []
    languages = sorted({language for row in rows for language in row["by_language"][metric]})
    values = [
        [row["by_language"][metric].get(language, {}).get("mean") for language in languages]
        for row in rows
    ]
    names = [[trained_on(row)] for row in rows]
    return [Grid("trained on (row) by test language", ["", *languages], names, values)]


def _sections(card: dict[str, Any]) -> list[tuple[str, list[Grid], list[str], dict[str, Any]]]:
    """(title, tables, notes, the table of the card) of each part."""
    found = []
    for suite in card["overall"]:
        made, lines = overall(suite)
        found.append((suite["suite"], [made], lines, {}))
    for table in card["tables"]:
        grids, lines = (
            [Grid(metric, *grid(table, metric)) for metric in table["metrics"]],
            notes(table),
        )
        if number_study.by_number(table["rows"]):
            grids.append(Grid(number_study.CAPTION, *number_study.grid(table["rows"])))
        for row in table["rows"]:
            if "layers" in row:
                more, told = layers(row)
                grids, lines = grids + more, lines + told
        found.append((table["task"], grids, lines, table))
    return found


# ---- their forms ---------------------------------------------------------------------------------


def markdown(card: dict[str, Any]) -> str:
    parts = ["# Score card", _ABOUT]
    for title, grids, lines, _ in _sections(card):
        parts.append(f"## {title}")
        for each in grids:
            rows = [
                "| " + " | ".join(row) + " |"
                for row in [each.head, ["---"] * len(each.head), *each.rows]
            ]
            parts += [f"{each.caption}:", "\n".join(rows)]
        parts.append("\n".join(f"- {line}" for line in lines))
    return "\n\n".join(parts) + "\n"


def latex(card: dict[str, Any]) -> str:
    """Tables for `booktabs`."""
    parts = [f"% {_ABOUT}"]
    for title, grids, lines, _ in _sections(card):
        for each in grids:
            body = [" & ".join(map(_escaped, row)) + r" \\" for row in each.rows]
            parts.append(
                "\n".join(
                    [
                        *(f"% {line}" for line in lines),
                        r"\begin{table}\centering\small",
                        rf"\caption{{{_escaped(title)}, {_escaped(each.caption)}}}",
                        rf"\begin{{tabular}}{{l{'r' * (len(each.head) - 1)}}}",
                        r"\toprule",
                        " & ".join(map(_escaped, each.head)) + r" \\",
                        r"\midrule",
                        *body,
                        r"\bottomrule",
                        r"\end{tabular}",
                        r"\end{table}",
                    ]
                )
            )
    return "\n\n".join(parts) + "\n"


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
}


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def page(card: dict[str, Any]) -> str:
    sections = [html.note(_ABOUT)]
    for title, grids, lines, table in _sections(card):
        parts = []
        if drawn := plots.drawn(
            scorecard_plots.by_language(table) if table else None, f"{title}: score by language"
        ):
            parts.append(drawn)
        for each in [*grids, *(_pivots(table) if table else ())]:
            shown = _heat(each) if each.values else html.table(each.head, each.rows)
            parts.append(f"<h3>{html.esc(each.caption)}</h3>{shown}")
        if table:
            label = "mean of the dev sets over steps; thin: a training, thick: their mean"
            if drawn := plots.drawn(scorecard_plots.curves(table["rows"]), f"{title}: {label}"):
                parts.append(f"<h3>{label}</h3>{drawn}")
        parts.append(html.details("what the figures are", "\n".join(lines)))
        sections.append(html.section(title.replace("/", "-"), title, *parts))
    return html.page("Score card", "<h1>Score card</h1>\n" + "\n".join(sections))


def _heat(each: Grid) -> str:
    known = [value for row in each.values for value in row if value is not None]
    low, high = min(known), max(known)

    def cell(value: float | None) -> str:
        if value is None:
            return "<td>–</td>"
        share = (value - low) / (high - low) if high > low else 0.5
        colour = f"rgba(31,119,180,{0.05 + 0.55 * share:.2f})"
        return f'<td style="background:{colour}">{_number(value)}</td>'

    head = "<tr>" + "".join(f"<th>{html.esc(name)}</th>" for name in each.head) + "</tr>"
    body = [
        f"<tr><td>{html.esc(name)}</td>" + "".join(map(cell, row)) + "</tr>"
        for (name, *_), row in zip(each.rows, each.values, strict=True)
    ]
    return f'<div class="scroll"><table>{head}{"".join(body)}</table></div>'


def show(*folders: str | Path, output: str | Path = "") -> str:
    """Writes the score card of folders of cells, of one into itself; returns it as Markdown, and
    where it is."""
    made = scorecard.card(*folders)
    paths = write(made, Path(output or folders[0]))
    return f"{markdown(made)}\nscore card: {', '.join(map(str, paths))}"
