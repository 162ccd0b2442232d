"""The score card as Markdown, LaTeX, JSON and a page."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.evaluation import number_study
from xlingjax.evaluation.number_study import trained_on
from xlingjax.evaluation.scorecard import policy, said
from xlingjax.report import html

MEANS = {"mean": "mean", "mean_other": "untrained languages", "gap": "gap"}
_ABOUT = (
    "All figures in 0 to 100, mean ± standard deviation over seeds. mean: of the languages of the official average "
    "that are here; untrained languages: without training examples; gap: English less the mean of the others."
)


def write(card: dict[str, Any], folder: Path) -> list[Path]:
    """card.json, card.md, card.tex and card.html in `folder`."""
    made = {
        "card.json": json.dumps(card, indent=1, ensure_ascii=False) + "\n",
        "card.md": markdown(card),
        "card.tex": latex(card),
        "card.html": page(card),
    }
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in made]


def figure(value: dict[str, float] | None, between: str = " ± ") -> str:
    if value is None:
        return "–"
    return f"{value['mean']:.1f}" + (f"{between}{value['sd']:.1f}" if "sd" in value else "")


def grid(table: dict[str, Any], metric: str) -> tuple[list[str], list[list[str]]]:
    """(head, rows) of one metric of a task: a row for each strategy, then those of papers, which have a mean alone. The
    means are of the task's score and stand in its grid only."""
    rows = [row for row in table["rows"] if metric in row["by_language"]]
    languages = sorted({language for row in rows for language in row["by_language"][metric]})
    score = metric == next(iter(table["metrics"]))
    means = [name for name in MEANS if any(name in row["means"] for row in rows)] if score else []
    head = ["", *(MEANS[name] for name in means), *languages, "seeds"]
    found = []
    for row in rows:
        of = row["by_language"][metric]
        figures = [figure(row["means"].get(name)) for name in means] + [figure(of.get(name)) for name in languages]
        found.append([said(row), *figures, str(len(row["seeds"]))])
    if score:
        for paper in table["papers"]:
            blank = ["–"] * (len(means) - 1 + len(languages))
            found.append(
                [f"{paper['model']}, {paper['strategy'].replace('_', ' ')} (paper)", f"{paper['mean']:.1f}", *blank, ""]
            )
    return head, found


def notes(table: dict[str, Any]) -> list[str]:
    """What a figure of the table means, in lines."""
    lines = [f"{name}: {signature}" for name, signature in table["metrics"].items()]
    for row in table["rows"]:
        counts = sorted({*row["examples"].values()})
        size = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
        start = row["start"]["sha256"][:12]
        lines.append(
            f"{said(row)}: tested on {row['split']} ({size} examples a language); {policy(row)}"
            + (f"; from {row['start']['run']} ({start})" if start else "")
            + (f"; {row['machine']}" if row["machine"] else "")
        )
    return lines + [f"{paper['model']}: {paper['source']}" for paper in table["papers"]]


def markdown(card: dict[str, Any]) -> str:
    parts = ["# Score card", _ABOUT]
    for table in card["tables"]:
        parts.append(f"## {table['task']}")
        for metric in table["metrics"]:
            head, rows = grid(table, metric)
            lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
            parts += [f"{metric}:", "\n".join(lines)]
        head, rows = number_study.grid(table["rows"])
        if rows:
            lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
            parts += [f"{number_study.CAPTION}:", "\n".join(lines)]
        parts.append("\n".join(f"- {line}" for line in notes(table)))
    return "\n\n".join(parts) + "\n"


def latex(card: dict[str, Any]) -> str:
    """Tables for `booktabs`."""
    parts = [f"% {_ABOUT}"]
    for table in card["tables"]:
        for metric in table["metrics"]:
            head, rows = grid(table, metric)
            body = [" & ".join(map(_escaped, row)) + r" \\" for row in rows]
            parts.append(
                "\n".join([
                    *(f"% {line}" for line in notes(table)),
                    r"\begin{table}\centering\small",
                    rf"\caption{{{_escaped(table['task'])}, {_escaped(metric)}}}",
                    rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule",
                    " & ".join(map(_escaped, head)) + r" \\", r"\midrule", *body, r"\bottomrule", r"\end{tabular}",
                    r"\end{table}",
                ])
            )  # fmt: skip
    return "\n\n".join(parts) + "\n"


_LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
          "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--"}  # fmt: skip


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def page(card: dict[str, Any]) -> str:
    sections = [html.note(_ABOUT)]
    for table in card["tables"]:
        parts = []
        for metric in table["metrics"]:
            head, rows = grid(table, metric)
            parts += [f"<h3>{html.esc(metric)}</h3>", html.table(head, rows, mean_rows=0)]
        head, rows = number_study.grid(table["rows"])
        parts += [f"<h3>{number_study.CAPTION}</h3>", html.table(head, rows, words=True)] if rows else []
        parts += [_pivots(table), html.details("what the figures are", "\n".join(notes(table)))]
        sections.append(html.section(table["task"].replace("/", "-"), table["task"], *parts))
    return html.page("Score card", "<h1>Score card</h1>\n" + "\n".join(sections))


def _pivots(table: dict[str, Any]) -> str:
    """A heat-map of pivot, or languages trained on, x test language, where there are several."""
    rows = [row for row in table["rows"] if trained_on(row)]
    if len(rows) < 2:
        return ""
    metric = next(iter(table["metrics"]))
    languages = sorted({language for row in rows for language in row["by_language"][metric]})
    values = [[row["by_language"][metric].get(language, {}).get("mean") for language in languages] for row in rows]
    return "<h3>trained on (row) by test language</h3>" + _heat([trained_on(row) for row in rows], languages, values)


def _heat(names: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float | None]]) -> str:
    known = [value for row in values for value in row if value is not None]
    low, high = min(known), max(known)

    def cell(value: float | None) -> str:
        if value is None:
            return "<td>–</td>"
        share = (value - low) / (high - low) if high > low else 0.5
        return f'<td style="background:rgba(31,119,180,{0.05 + 0.55 * share:.2f})">{value:.1f}</td>'

    head = "<tr><th></th>" + "".join(f"<th>{html.esc(name)}</th>" for name in columns) + "</tr>"
    body = [
        f"<tr><td>{html.esc(name)}</td>" + "".join(map(cell, row)) + "</tr>"
        for name, row in zip(names, values, strict=True)
    ]
    return f'<div class="scroll"><table>{head}{"".join(body)}</table></div>'
