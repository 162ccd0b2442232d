"""The report of a run: report.html, one self-contained page, and report.json, its figures."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError
from xlingjax.report import (
    attention,
    examples,
    generated,
    headline,
    html,
    negatives,
    pseudo_perplexity,
    schedule,
    sections,
)
from xlingjax.report.pictures import save_pictures
from xlingjax.report.run import Run, read_run, warn
from xlingjax.report.summary import summarise
from xlingjax.runtime.files import write_json, write_text
from xlingjax.runtime.machine import first_line

_MISSHAPEN = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)
BEFORE = (
    "The run had not logged a step when this page was written; `xlingjax report` writes it anew."
)


def build_report(
    run: str | Path,
    compare: Mapping[str, str | Path] | None = None,
    finetuned: str | Path | Sequence[str | Path] = (),
    output: str | Path | None = None,
    pictures: str | Path | None = None,
) -> Path:
    """Writes report.html and report.json into `output` (default: the run folder) and returns the
    page's path.

    compare: {name: run folder} to draw beside this run (MLM alone, a control). finetuned: runs
    whose accuracy per language is shown. pictures: a folder for the figures as PNG files. A run
    that has not finished gives a report of what is there. Raises UserError when a folder is no run
    folder or the output cannot be written.
    """
    main = read_run(run)
    others = {name: read_run(path) for name, path in (compare or {}).items()}
    # A string is a sequence of strings, too: each letter would be a run.
    if isinstance(finetuned, str | Path):
        finetuned = [finetuned]
    # All folders are read before anything is written: a wrong name leaves the old page.
    tuned = [read_run(path) for path in finetuned]
    folder = main.path
    if output:
        folder = Path(output)
    # Once, for the page and for report.json.
    summary: dict[str, Any] = _of_any_shape(
        main, "figures", lambda: summarise(main, others, tuned), {}
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / "report.html"
        # Each whole or not at all: a run writes its page while someone reads it.
        write_text(page, render(main, others, tuned, summary))
        write_json(folder / "report.json", figures(main, others, tuned, summary))
        if pictures:
            runs = {_name(main, others): main} | others
            save_pictures(runs, Path(pictures), {"bleu": generated.curves(runs)})
    except OSError as error:
        # The file at fault, which may be a picture in another folder.
        place = error.filename or folder
        raise UserError(
            f"cannot write the report to {place}: {error.strerror}: choose another folder"
        ) from None
    return page


def figures(
    run: Run, others: Mapping[str, Run], tuned: Sequence[Run], summary: Mapping[str, Any]
) -> dict[str, Any]:
    """What report.json holds: the summary, and the latest values of every evaluation of every run
    shown."""

    def latest(run: Run) -> dict[str, Any]:
        # The lines are in the order of steps, so a later one takes the place of an earlier one.
        evaluations = {}
        for line in run.evaluations:
            evaluations[line["name"]] = {"step": line["step"]} | line["values"]
        return evaluations

    compared = {}
    for name, other in others.items():
        # Names of folders and no paths: the report is read on other machines.
        compared[name] = {"run": other.path.name, "evaluations": latest(other)}
    return {
        "summary": dict(summary),
        "run": run.path.name,
        "languages": run.languages,
        "evaluations": latest(run),
        "compare": compared,
        "finetuned": {one.path.name: latest(one) for one in tuned},
        "sampling": _of_any_shape(run, "sampling", lambda: sections.sampling_tables(run), {}),
        "versions": run.last_start.get("versions", {}),
    }


def render(
    run: Run, others: Mapping[str, Run], tuned: Sequence[Run], summary: Mapping[str, Any]
) -> str:
    """The page."""
    # The run itself first: sections take the first one for it.
    runs = {_name(run, others): run} | dict(others)
    mined = run.record.get("config", {}).get("negatives", ())
    # Results first; then the course of the training, what it read and how it was set.
    shown: dict[str, tuple[str, Callable[[], Sequence[str]]]] = {
        "retrieval": ("Sentence retrieval", lambda: sections.retrieval(run, runs)),
        "alignment": ("Word alignment", lambda: sections.alignment(run)),
        "accuracy": ("Zero-shot classification", lambda: sections.accuracy([*tuned, run])),
        "tagging": ("Zero-shot tagging", lambda: sections.tagging([*tuned, run])),
        "answers": ("Zero-shot question answering", lambda: sections.answers([*tuned, run])),
        "generated": ("Generated text", lambda: generated.section(runs, tuned)),
        "perplexity": ("Held-out perplexity", lambda: sections.perplexity(runs)),
        "shares": ("Perplexity by pseudo tokens", lambda: pseudo_perplexity.section(runs)),
        "similarity": ("How similar the languages look", lambda: sections.similarity(run)),
        "training": ("Training", lambda: sections.training(run, runs)),
        "languages": ("Training per language", lambda: sections.languages(run)),
        "samples": ("Masked words", lambda: examples.masked(run)),
        "recovery": ("Word recovery", lambda: examples.recovery(run)),
        "attention": ("Attention of pairs", lambda: attention.section(run)),
        "pseudo": ("Pseudo tokens", lambda: examples.pseudo(run)),
        "rows": ("What the objectives read", lambda: sections.rows(run)),
        "negatives": ("Mined negatives", lambda: negatives.section(mined)),
        "sampling": ("What was sampled", lambda: sections.sampling(run)),
        "schedule": ("Schedule", lambda: schedule.section(run.record)),
        "setting": ("Setting", lambda: sections.setting(run)),
    }
    links = []
    rendered = []
    for anchor, (title, make) in shown.items():
        text = html.section(anchor, title, *_of_any_shape(run, title, make, []))
        rendered.append(text)
        # A section that has nothing to show has no link either.
        if text:
            links.append(f'<a href="#{anchor}">{html.esc(title)}</a>')
    # result.json is written at the end, so a run without it goes on or was killed.
    state = run.result.get("exit_reason", "not finished")
    subtitle = f"{state} at step {run.step:,} of {run.record.get('steps') or '?'}"
    subtitle += _of_any_shape(
        run, "early stop", lambda: _early_stop(run.result.get("stopped_early")), ""
    )
    machine = run.last_start.get("machine", "")
    if machine:
        subtitle += f" · {machine}"
    empty = ""
    if not run.metrics:
        empty = html.section("empty", "Nothing yet", html.note(BEFORE))
    size = _of_any_shape(run, "size", lambda: headline.facts(summary), "")
    title = f"<h1>{html.esc(run.path.name)}</h1><p>{html.esc(subtitle)}</p><p>{html.esc(size)}</p>"
    head = f"<header>{title}<nav>{' '.join(links)}</nav></header>"
    tiles = _of_any_shape(run, "figures", lambda: headline.tiles(run, summary, list(others)), "")
    return html.page(f"{run.path.name} · xlingjax", "\n".join([head, tiles, empty, *rendered]))


def _early_stop(stopped: Mapping[str, Any] | None) -> str:
    if not stopped:
        return ""
    return (
        f" · stopped early: {stopped['metric']} not better in"
        f" {stopped['patience']} evaluations than {stopped['best']:.4g} of"
        f" step {stopped['best_step']:,}"
    )


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


def _name(run: Run, others: Mapping[str, Run]) -> str:
    """What the run is called beside the others: by default the name of its folder."""
    if run.path.name in others:
        return "this run"
    return run.path.name
