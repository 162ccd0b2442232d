"""The report of a run: report.html, one self-contained page, and report.json, its figures.

Each section is a function here, which gives values, and a macro of its name in
templates/sections.html.j2, which gives HTML.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from xlingjax.report import drawing, html, pictures, rows, schedule, summary
from xlingjax.report.run import Run, read_run, warn
from xlingjax.runtime.files import write_json, write_text
from xlingjax.runtime.machine import first_line
from xlingjax.training.stages import stage_of

_MISSHAPEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, TemplateError)
FEW = 1000  # cases, below which a share is shown with its interval
Runs = Mapping[str, Run]  # the run of the report first, then those beside it


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


def figures(
    run: Run, others: Runs, tuned: Sequence[Run], values: Mapping[str, Any]
) -> dict[str, Any]:
    """What report.json holds: the summary, and the last values of all evaluations shown."""

    def latest(run: Run) -> dict[str, Any]:
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


def render(runs: Runs, tuned: Sequence[Run], values: Mapping[str, Any]) -> str:
    """The page."""
    name, *compared = runs
    run = runs[name]
    shown: dict[str, tuple[str, Callable[[], Any]]] = {
        "retrieval": ("Sentence retrieval", lambda: retrieval(runs)),
        "alignment": ("Word alignment", lambda: alignment(run)),
        "accuracy": ("Zero-shot classification", lambda: by_language([*tuned, run], "accuracy")),
        "tagging": ("Zero-shot tagging", lambda: by_language([*tuned, run], "tagging")),
        "answers": ("Zero-shot question answering", lambda: by_language([*tuned, run], "span_qa")),
        "generated": ("Generated text", lambda: generated([run, *tuned])),
        "perplexity": ("Held-out perplexity", lambda: perplexity(runs)),
        "training": ("Training", lambda: training(runs)),
        "samples": ("Masked words", lambda: samples(run)),
        "rows": ("What the objectives read", lambda: rows.section(run.rows)),
        "sampling": ("What was sampled", lambda: sampling(run)),
        "schedule": ("Schedule", lambda: course(run)),
        "setting": ("Setting", lambda: setting(run)),
    }
    sections = []
    for anchor, (title, make) in shown.items():
        body = _of_any_shape(run, title, lambda a=anchor, m=make: _body(a, m()), "")
        if body:
            sections.append((anchor, title, body))

    def head() -> dict[str, Any]:
        columns = ["", "this run", *compared]
        figures = {"head": columns, "rows": summary.headline(values, compared)}
        return {"state": _state(run), "facts": summary.facts(values), "figures": figures}

    empty = {"state": "", "facts": "", "figures": {"rows": []}}
    return html.render(
        "report.html",
        title=f"{run.path.name} · xlingjax",
        name=run.path.name,
        begun=bool(run.metrics),
        sections=sections,
        **_of_any_shape(run, "headline figures", head, empty),
    )


def _body(anchor: str, values: Any) -> str:
    return html.part("sections", anchor, values) if values else ""


def _state(run: Run) -> str:
    # result.json is written at the end, so a run without it goes on or was killed.
    state = run.result.get("exit_reason", "not finished")
    state += f" at step {run.step:,} of {run.record.get('steps') or '?'}"
    stopped = run.result.get("stopped_early")
    if stopped and "why" in stopped:
        state += f" · {stopped['why']}"
    elif stopped:
        state += (
            f" · stopped early: {stopped['metric']} not better in {stopped['patience']} evaluations"
            f" than {stopped['best']:.4g} of step {stopped['best_step']:,}"
        )
    if run.last_start.get("machine"):
        state += f" · {run.last_start['machine']}"
    return state


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


def _table(
    first: str, columns: Mapping[str, Mapping[str, Any]], last: Sequence[str] = ()
) -> dict[str, Any]:
    """{"head", "rows"} of columns {row: cell}, which may lack some; `last`: the rows that stand
    behind the others."""
    names = dict.fromkeys(name for column in columns.values() for name in column)
    lines = []
    for name in (*(name for name in names if name not in last), *last):
        lines.append([name, *(column.get(name) for column in columns.values())])
    return {"head": [first, *columns], "rows": lines}


def _with_interval(share: float, count: int) -> str:
    """In percent; of few cases with Wilson's 95 % interval."""
    if count >= FEW:
        return f"{html.percent(share)}"
    from scipy.stats import binomtest

    interval = binomtest(round(share * count), count).proportion_ci(method="wilson")
    return f"{html.percent(share)} ({100 * interval.low:.0f}–{100 * interval.high:.0f})"


def _last_of(runs: Runs, kind: str) -> dict[str, Any]:
    """{name of a run: its last values of an evaluator}, of those that have some."""
    last = {name: run.last(kind) for name, run in runs.items()}
    return {name: values for name, values in last.items() if values}


def retrieval(runs: Runs) -> dict[str, Any] | None:
    run = next(iter(runs.values()))
    values = run.last("retrieval")
    return values and {
        "over_training": drawing.labelled(pictures.retrieval(runs), "retrieval"),
        # Of several poolings the first, which the plain figures are of.
        "pooling": next(iter(values["by_layer"])),
        "by_layer": pictures.retrieval_grids(values, run.last("floors") or {}),
    }


def alignment(run: Run) -> Any:
    values = run.last("alignment")
    return values and pictures.alignment_grids(values)


OTHERS = "mean of the others"


def by_language(runs: Sequence[Run], kind: str) -> dict[str, Any] | None:
    """Classification, tagging and answers (F1 / exact match), a column for each evaluator."""
    columns: dict[str, dict[str, Any]] = {}
    few = False
    evaluated = [
        (f"{run.path.name}: {name}", evaluations[-1][1])
        for run in runs
        for name, evaluations in run.evaluated(kind).items()
    ]
    for title, values in evaluated:
        counts = values.get("examples", {})
        few = few or any(count < FEW for count in counts.values())
        shares = values["by_language"] | {OTHERS: values.get("mean_other")}
        exact = values.get("exact_match_by_language", {})
        exact = exact | {OTHERS: values.get("mean_other_exact_match")}
        column = columns[f"{title} ({values.get('metric', kind)}, %)"] = {}
        for name, share in shares.items():
            if share is not None:
                cell = _with_interval(share, counts.get(name, FEW))
                other = html.percent(exact.get(name))
                column[name] = f"{cell} / {other}" if other else cell
        if "commonest" in values:
            commonest = values["commonest"].items()
            of_each = {language: html.percent(share) for language, share in commonest}
            columns[f"{title}: commonest label (%)"] = of_each
    return columns and _table("language", columns, [OTHERS]) | {"few": few}


def generated(runs: Sequence[Run]) -> list[dict[str, Any]]:
    evaluated = []
    for run in runs:
        for name, evaluations in run.evaluated("generation").items():
            step, values = evaluations[-1]
            lines = []
            for direction, count in values["lines"].items():
                metrics = ("bleu", "chrf", "rouge_l", "tokenised_bleu")
                scores = [round(values[metric][direction], 1) for metric in metrics]
                # The only share among figures of 0 to 100.
                wrong = html.percent(values["wrong_language_rate"][direction])
                lines.append([direction, count, *scores, wrong])
            keys = ("direction", "source", "reference", "output")
            # One for each way to cut a language into words.
            signatures = {signature["bleu"] for signature in values["signatures"].values()}
            evaluated.append(
                {
                    "title": f"{run.path.name}: {name}, step {step:,}",
                    "rows": lines,
                    "signatures": ", ".join(sorted(signatures)),
                    "texts": [[sample[key] for key in keys] for sample in values["samples"]],
                }
            )
    return evaluated


def perplexity(runs: Runs) -> dict[str, Any] | None:
    text = {}
    last = ["mean", "uniform guess"]
    for name, values in _last_of(runs, "perplexity").items():
        guess = {"mean": values.get("mean"), "uniform guess": runs[name].vocabulary_size}
        text[name] = values["by_language"] | guess
    pairs = {}
    compared = _last_of(runs, "translation_perplexity")
    for name, values in compared.items():
        for kind in ("hidden", "visible"):
            title = f"partner {kind}" if len(compared) == 1 else f"{name}, partner {kind}"
            pairs[title] = {
                f"{side} of {pair}": value
                for pair, sides in values[kind].items()
                for side, value in sides.items()
            } | {"mean": values[f"{kind}_mean"]}
    if not text and not pairs:
        return None
    return {
        "text": text and _table("running text", text, last),
        "pairs": pairs and _table("side", pairs, ["mean"]),
    }


def training(runs: Runs) -> list[Any]:
    return drawing.labelled(pictures.losses(runs), "training loss per objective")


def samples(run: Run) -> list[dict[str, Any]]:
    """Masked words, and the model's guesses. pieces: (text, the first is right; None: seen)."""
    shown = []
    for sample in (run.last("masked_samples") or {"texts": []})["texts"]:
        pieces: list[tuple[str, bool | None]] = []
        pieces += [(piece.replace("▁", " "), None) for piece in sample["pieces"]]
        for slot in sample["slots"]:
            (best, _), *_ = slot["predictions"]
            pieces[slot["column"]] = (slot["target"].replace("▁", " "), best == slot["target"])
        # Without the tokens that begin and end the text.
        shown.append({**sample, "pieces": pieces[1:-1]})
    return shown


def sampling_tables(run: Run) -> dict[str, list[dict[str, Any]]]:
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


def course(run: Run) -> dict[str, Any] | None:
    rows = schedule.rows(run.record)
    panels = schedule.panels(run.record, sampling_tables(run)) if rows else []
    drawn = drawing.labelled(drawing.draw(panels), "course of the run")
    return {"rows": rows, "figures": drawn} if rows else None


def sampling(run: Run) -> dict[str, list[Any]]:
    return {
        objective: [
            [row["name"], row["sentences"], row["tokens"], html.percent(row["share"])]
            + [round(row["epochs"], 2)]
            for row in texts
        ]
        for objective, texts in sampling_tables(run).items()
    }


def setting(run: Run) -> dict[str, Any] | None:
    versions = run.last_start.get("versions", {})
    # A run that was stopped may have gone on elsewhere, with other versions.
    keys = ("time", "step", "machine", "weights")
    starts = run.record.get("sessions", [])
    sessions = [[session.get(key) for key in keys] for session in starts]
    if not versions and not sessions and not run.config:
        return None
    named = " · ".join(f"{name} {version}" for name, version in versions.items())
    return {"versions": named, "sessions": sessions, "config": run.config}
