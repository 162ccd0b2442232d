"""The report of a run: report.html, one self-contained page, and report.json, its figures.

Each section is a function here, which gives values, and a macro of its name in
templates/sections.html.j2, which gives HTML.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from xlingjax.evaluation.alignment import METHODS
from xlingjax.report import drawing, html, pictures, rows, schedule, summary
from xlingjax.report.run import Run, Runs, read_run, warn
from xlingjax.runtime.files import write_json, write_text
from xlingjax.runtime.machine import first_line
from xlingjax.training.stages import stage_of

_MISSHAPEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, TemplateError)


def build_report(
    run: str | Path,
    compare: Mapping[str, str | Path] | None = None,
    finetuned: str | Path | Sequence[str | Path] = (),
    output: str | Path | None = None,
) -> Path:
    """Writes report.html and report.json into `output` (default: the run); returns the page's path.

    compare: {name: run folder} to draw beside this run (MLM alone, a control). finetuned: runs
    whose accuracy per language is shown. A run
    that has not finished gives a report of what is there. Raises UserError when a folder is no run
    folder.
    """
    main = read_run(run)
    others = {name: read_run(path) for name, path in (compare or {}).items()}
    # A string is a sequence of strings, too: each letter would be a run.
    if isinstance(finetuned, str | Path):
        finetuned = [finetuned]
    # All folders are read before anything is written: a wrong name leaves the old page.
    tuned = [read_run(path) for path in finetuned]
    folder = Path(output or main.path)
    name = "this run" if main.path.name in others else main.path.name
    runs = {name: main} | others
    values = _of_any_shape(main, "figures", lambda: summary.summarise(main, others, tuned), {})
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "report.html"
    # Each whole or not at all: a run writes its page while someone reads it.
    write_text(page, render(runs, tuned, values))
    write_json(folder / "report.json", figures(main, others, tuned, values))
    return page


def figures(run: Run, others: Runs, tuned: Sequence[Run], values: Mapping) -> dict:
    """What report.json holds: the summary, and the last values of all evaluations shown."""

    def latest(run: Run) -> dict:
        return {line["name"]: {"step": line["step"]} | line["values"] for line in run.evaluations}

    # Names of folders and no paths: the report is read on other machines.
    compared = {
        name: {"run": other.path.name, "evaluations": latest(other)}
        for name, other in others.items()
    }
    return {
        "summary": dict(values),
        "run": run.path.name,
        "languages": run.languages,
        "evaluations": latest(run),
        "compare": compared,
        "finetuned": {one.path.name: latest(one) for one in tuned},
        "sampling": _of_any_shape(run, "sampling", lambda: sampling_tables(run), {}),
        "versions": run.last_start.get("versions", {}),
    }


def render(runs: Runs, tuned: Sequence[Run], values: Mapping) -> str:
    """The page."""
    name, *compared = runs
    run = runs[name]
    all_runs = [*tuned, run]
    shown = (
        ("retrieval", "Sentence retrieval", retrieval, runs),
        ("alignment", "Word alignment", alignment, run),
        ("accuracy", "Zero-shot classification", by_language, all_runs, "accuracy"),
        ("tagging", "Zero-shot tagging", by_language, all_runs, "tagging"),
        ("answers", "Zero-shot question answering", by_language, all_runs, "span_qa"),
        ("generated", "Generated text", generated, [run, *tuned]),
        ("perplexity", "Held-out perplexity", perplexity, runs),
        ("training", "Training", training, runs),
        ("samples", "Masked words", samples, run),
        ("rows", "What the objectives read", rows.section, run.rows),
        ("sampling", "What was sampled", sampling_tables, run),
        ("schedule", "Schedule", course, run),
        ("setting", "Setting", setting, run),
    )
    sections = []
    for anchor, title, *of_section in shown:
        make = functools.partial(_body, anchor, *of_section)
        if body := _of_any_shape(run, title, make, ""):
            sections.append((anchor, title, body))

    def head() -> dict:
        columns = ["", "this run", *compared]
        figures = {"head": columns, "rows": summary.headline(values, compared)}
        state = html.part("sections", "state", run)
        return {"state": state, "facts": html.part("sections", "size", values), "figures": figures}

    empty = {"state": "", "facts": "", "figures": {"rows": []}}
    return html.render(
        "report.html",
        title=f"{run.path.name} · xlingjax",
        run=run,
        begun=bool(run.metrics),
        sections=sections,
        **_of_any_shape(run, "headline figures", head, empty),
    )


def _body(anchor: str, values_of: Callable[..., Any], *given: Any) -> str:
    values = values_of(*given)
    return html.part("sections", anchor, values) if values else ""


def _of_any_shape(run: Run, what: str, make: Callable[[], Any], otherwise: Any) -> Any:
    """A part of the page; `otherwise`, and a warning, where a damaged file of the run, or one of
    another version, has values of a shape that nothing can be made of."""
    try:
        return make()
    except _MISSHAPEN as error:
        warn(
            f"report: {what}: left out, since a file of {run.path} (or of a run beside it) has"
            f" values of another shape ({type(error).__name__}: {first_line(error)})"
        )
        return otherwise


def _last_of(runs: Runs, kind: str) -> dict:
    """{name of a run: its last values of an evaluator}, of those that have some."""
    last = {name: run.last(kind) for name, run in runs.items()}
    return {name: values for name, values in last.items() if values}


def retrieval(runs: Runs) -> dict | None:
    run = next(iter(runs.values()))
    values = run.last("retrieval")
    if not values:
        return None
    # Of several poolings the first, which the plain figures are of.
    pooling = next(iter(values["by_layer"]))
    return {
        "over_training": drawing.labelled(pictures.retrieval(runs), "retrieval"),
        "pooling": pooling,
        "values": values,
        "kinds": pictures.KINDS,
        "examples": values.get("examples", ()),
        "pivot": values.get("pivot", "en"),
        "beside": pictures.beside_layers(values, run.last("floors")),
    }


def alignment(run: Run) -> Any:
    values = run.last("alignment")
    return values and {"values": values, "methods": list(METHODS)}


def by_language(runs: Sequence[Run], kind: str) -> dict | None:
    """Classification, tagging and answers (F1 / exact match): (title, values) of each evaluator."""
    evaluated = _evaluated(runs, kind)
    counts = [count for _, of in evaluated for count in of.get("examples", {}).values()]
    values = {
        "evaluated": evaluated,
        "languages": _keys(of["by_language"] for _, of in evaluated),
        "kind": kind,
        "few": any(count < html.FEW for count in counts),
    }
    return values if evaluated else None


def generated(runs: Sequence[Run]) -> list[tuple[str, dict]]:
    return _evaluated(runs, "generation")


def _evaluated(runs: Sequence[Run], kind: str) -> list[tuple[str, dict]]:
    """(title, last values) of the evaluators of one kind; the step is among the values."""
    return [
        (f"{run.path.name}: {name}", {**values, "step": step})
        for run in runs
        for name, evaluations in run.evaluated(kind).items()
        for step, values in evaluations[-1:]
    ]


def _keys(tables: Iterable[Iterable]) -> list:
    """Those of all tables, in their order, each once."""
    return [*dict.fromkeys(key for table in tables for key in table)]


def perplexity(runs: Runs) -> dict | None:
    text = _last_of(runs, "perplexity")
    pairs = _last_of(runs, "translation_perplexity")
    if not text and not pairs:
        return None
    return {
        "text": text,
        "languages": _keys(values["by_language"] for values in text.values()),
        "guess": {name: run.vocabulary_size for name, run in runs.items()},
        "pairs": pairs,
        "sides": _keys(
            [(pair, side) for pair, sides in values["hidden"].items() for side in sides]
            for values in pairs.values()
        ),
    }


def training(runs: Runs) -> list:
    return drawing.labelled(pictures.losses(runs), "training loss per objective")


def samples(run: Run) -> list[dict]:
    """Masked words, and the model's guesses. pieces: (text, the first is right; None: seen)."""
    shown = []
    for sample in run.last("masked_samples").get("texts", ()):
        pieces = []
        pieces += [(piece.replace("▁", " "), None) for piece in sample["pieces"]]
        for slot in sample["slots"]:
            (best, _), *_ = slot["predictions"]
            pieces[slot["column"]] = (slot["target"].replace("▁", " "), best == slot["target"])
        # Without the tokens that begin and end the text.
        shown.append({**sample, "pieces": pieces[1:-1]})
    return shown


def sampling_tables(run: Run) -> dict[str, list[dict]]:
    """{stage of an objective: its data's sampling table}, with epochs for the steps taken."""
    tables = {}
    data = run.record.get("identity", {}).get("data", {})
    for name, identity in data.items():
        texts = identity.get("sampling_table", [])
        if not texts:
            continue
        objective, start = stage_of(name)
        later = [begin for other, begin in map(stage_of, data) if other == objective]
        end = min((begin for begin in later if begin > start), default=math.inf)
        # A line is of one stage: training logs where one begins. By steps: objectives take turns.
        lines = run.lines(objective)
        taken = sum(line.get("steps", 0) for line in lines if start < line["step"] <= end)
        tables[name] = [
            row | {"epochs": row["epochs_per_1000_steps"] * taken / 1000} for row in texts
        ]
    return tables


def course(run: Run) -> dict | None:
    rows = schedule.rows(run.record)
    panels = schedule.panels(run.record, sampling_tables(run)) if rows else []
    drawn = drawing.labelled(drawing.draw(panels), "course of the run")
    return {"rows": rows, "figures": drawn} if rows else None


def setting(run: Run) -> dict | None:
    versions = run.last_start.get("versions", {})
    # A run that was stopped may have gone on elsewhere, with other versions.
    sessions = run.record.get("sessions", [])
    if not versions and not sessions and not run.config:
        return None
    return {"versions": versions, "sessions": sessions, "config": run.config}
