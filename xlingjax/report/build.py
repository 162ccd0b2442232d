"""The report of a run: report.html, one self-contained page, and report.json, its figures.

Each section is a function here, which gives values, and a macro of its name in
templates/sections.html.j2, which gives HTML.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from xlingjax.errors import UserError
from xlingjax.evaluation.alignment import METHODS
from xlingjax.evaluation.floors import FLOORS
from xlingjax.report import drawing, html, intervals, pictures, rows, schedule, summary
from xlingjax.report.pictures import save_pictures
from xlingjax.report.run import Run, read_run, warn
from xlingjax.runtime.files import write_json, write_text
from xlingjax.runtime.machine import first_line
from xlingjax.training.stages import stage_of

_MISSHAPEN = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    ArithmeticError,
    TemplateError,
)
Runs = Mapping[str, Run]
"""The run of the report first, then those beside it."""


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
    folder = Path(output or main.path)
    name = "this run" if main.path.name in others else main.path.name
    runs = {name: main} | others
    values = _of_any_shape(main, "figures", lambda: summary.summarise(main, others, tuned), {})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / "report.html"
        # Each whole or not at all: a run writes its page while someone reads it.
        write_text(page, render(runs, tuned, values))
        write_json(folder / "report.json", figures(main, others, tuned, values))
        if pictures:
            save_pictures(runs, Path(pictures))
    except OSError as error:
        # The file at fault, which may be a picture in another folder.
        place = error.filename or folder
        raise UserError(
            f"cannot write the report to {place}: {error.strerror}: choose another folder"
        ) from None
    return page


def figures(
    run: Run, others: Runs, tuned: Sequence[Run], values: Mapping[str, Any]
) -> dict[str, Any]:
    """What report.json holds: the summary, and the latest values of every evaluation of every run
    shown."""

    def latest(run: Run) -> dict[str, Any]:
        # The lines are in the order of steps, so a later one takes the place of an earlier one.
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
        "answers": ("Zero-shot question answering", lambda: answers([*tuned, run])),
        "generated": ("Generated text", lambda: generated([run, *tuned])),
        "perplexity": ("Held-out perplexity", lambda: perplexity(runs)),
        "shares": ("Perplexity by pseudo tokens", lambda: shares(runs)),
        "similarity": ("How similar the languages look", lambda: similarity(run)),
        "training": ("Training", lambda: training(runs)),
        "samples": ("Masked words", lambda: samples(run)),
        "attention": ("Attention of pairs", lambda: attention(run)),
        "rows": ("What the objectives read", lambda: rows.section(run.rows)),
        "sampling": ("What was sampled", lambda: sampling(run)),
        "schedule": ("Schedule", lambda: schedule.rows(run.record)),
        "setting": ("Setting", lambda: setting(run)),
    }
    sections = []
    for anchor, (title, make) in shown.items():
        body = _of_any_shape(run, title, lambda a=anchor, m=make: _body(a, m()), "")
        # A section that has nothing to show has no link either.
        if body:
            sections.append((anchor, title, body))

    def head() -> dict[str, Any]:
        tiles = summary.tiles(run, values, compared)
        return {"state": _state(run), "facts": summary.facts(values), "tiles": tiles}

    empty = {"state": "", "facts": "", "tiles": []}
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
    if stopped:
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


# ---- tables --------------------------------------------------------------------------------------


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
    """In percent; of few cases with what it may be."""
    low, high = intervals.of_share(share, count)
    interval = f" ({100 * low:.0f}–{100 * high:.0f})" if count < intervals.FEW else ""
    return f"{html.percent(share)}{interval}"


def _last_of(runs: Runs, kind: str) -> dict[str, Any]:
    """{name of a run: its last values of an evaluator}, of those that have some."""
    last = {name: run.last(kind) for name, run in runs.items()}
    return {name: values for name, values in last.items() if values}


# ---- results -------------------------------------------------------------------------------------


def retrieval(runs: Runs) -> dict[str, Any] | None:
    run = next(iter(runs.values()))
    values = run.last("retrieval")
    if values is None:
        return None
    pairs = values["pairs"]
    columns: dict[str, dict[str, Any]] = {"pairs": pairs | {"mean": ""}}

    def add(title: str, by_language: Mapping[str, float], mean: float) -> None:
        of_pairs = {name: share for name, share in by_language.items() if name in pairs}
        column = {name: _with_interval(share, pairs[name]) for name, share in of_pairs.items()}
        columns[f"{title} (%)"] = column | {"mean": html.percent(mean)}

    for name, last in _last_of(runs, "retrieval").items():
        # Of several poolings the first, which the plain figures are of.
        pooling = next(iter(last["by_language"]))
        for kind, title in pictures.KINDS.items():
            score = f"{kind}_en_to_xx"
            best = last["best"][pooling][score]
            layer = str(best["layer"])
            table = last["by_language"][pooling].items()
            shares = {language: layers[layer][score] for language, layers in table}
            # One run alone needs no name.
            add(title if len(runs) == 1 else f"{name}, {title}", shares, best["value"])
    # Floors stand in the same table: a figure below them says nothing of alignment.
    floors = run.last("floors") or {}
    for floor, title in FLOORS.items():
        if floors.get(floor):
            scores = {name: one["raw_en_to_xx"] for name, one in floors[floor].items()}
            # Over the languages that the floor was measured on, which may be fewer.
            add(title, scores, floors["mean"][floor])
    chance = {language: html.percent(1 / count) for language, count in pairs.items()}
    columns["chance (%)"] = chance | {"mean": html.percent(pictures.chance(values))}
    return _table("language", columns, ["mean"]) | {
        "over_training": drawing.labelled(pictures.retrieval(runs), "retrieval"),
        "pooling": next(iter(values["by_layer"])),
        "few": min(pairs.values()) < intervals.FEW,
        "by_layer": pictures.retrieval_grids(values),
    }


def similarity(run: Run) -> Any:
    values = run.last("retrieval")
    return values and pictures.similarity_grid(values)


def alignment(run: Run) -> dict[str, Any] | None:
    values = run.last("alignment")
    if values is None:
        return None
    columns = {}
    for method in METHODS:
        columns[f"{method} (%)"] = {
            pictures.layer_name(layer): html.percent(errors.get(method))
            for layer, errors in values["by_layer"].items()
        }
    return _table("mean over languages", columns) | {"by_layer": pictures.alignment_grids(values)}


def _evaluated(runs: Sequence[Run], kind: str) -> Iterable[tuple[str, Any]]:
    """("RUN: EVALUATOR", its last values) of all evaluators of a kind."""
    for run in runs:
        for name, evaluations in run.evaluated(kind).items():
            yield f"{run.path.name}: {name}", evaluations[-1][1]


OTHERS = "mean of the others"


def by_language(runs: Sequence[Run], kind: str) -> dict[str, Any] | None:
    """Classification and tagging."""
    units = {"f1": "F1, %", "accuracy": "accuracy, %"}
    columns = {}
    fewest = intervals.FEW
    for title, values in _evaluated(runs, kind):
        counts = values.get("examples", {})
        fewest = min([fewest, *counts.values()])
        column = {}
        for language, share in values["by_language"].items():
            column[language] = _with_interval(share, counts.get(language, intervals.FEW))
        column[OTHERS] = html.percent(values.get("mean_other"))
        columns[f"{title} ({units.get(values.get('metric'), '%')})"] = column
        if "commonest" in values:
            shares = values["commonest"].items()
            commonest = {language: html.percent(share) for language, share in shares}
            columns[f"{title}: commonest label (%)"] = commonest
    if not columns:
        return None
    return _table("language", columns, [OTHERS]) | {"few": fewest < intervals.FEW}


def answers(runs: Sequence[Run]) -> dict[str, Any] | None:
    columns = {}
    for title, values in _evaluated(runs, "span_qa"):
        f1 = values["by_language"] | {OTHERS: values.get("mean_other")}
        exact = values["exact_match_by_language"] | {OTHERS: values.get("mean_other_exact_match")}
        column = {}
        for language, share in f1.items():
            if share is not None:
                column[language] = f"{html.percent(share)} / {html.percent(exact[language])}"
        columns[f"{title} ({values['metric']})"] = column
    if not columns:
        return None
    return _table("language", columns, [OTHERS]) | {"few": False}


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


def shares(runs: Runs) -> dict[str, Any] | None:
    """BTMLM's held-out perplexity by the share of pseudo tokens (ERNIE-M, figure 5)."""
    columns = {}
    for name, values in _last_of(runs, "pseudo_perplexity").items():
        columns[name] = {
            f"{100 * float(share):g} %": values.get(f"share_{share}")
            for share in values["by_language"]
        }
    return columns and _table("pseudo tokens", columns)


def training(runs: Runs) -> dict[str, Any] | None:
    lines = []
    for name, run in runs.items():
        for objective in run.objectives:
            last = run.lines(objective)[-1]
            figures = [last.get(key) for key in ("step", "tokens_seen", "loss", "accuracy")]
            lines.append([name, objective, *figures])
    if not lines:
        return None
    return {
        "figures": drawing.labelled(pictures.losses(runs), "training loss per objective"),
        "rows": lines,
    }


# ---- samples of what was learnt ------------------------------------------------------------------


def samples(run: Run) -> dict[str, Any] | None:
    """Masked words, and the model's guesses."""
    values = run.last("masked_samples")
    if values is None:
        return None
    return {kind: [_sample(one) for one in values[kind]] for kind in ("texts", "pairs")}


def _sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    """pieces: (text, whether the first guess, with the partner if there is one, is it; None: not
    hidden)."""
    pieces: list[tuple[str, bool | None]] = []
    for piece in sample["pieces"]:
        pieces.append((piece.replace("▁", " "), None))
    for slot in sample["slots"]:
        (best, _), *_ = slot.get("with_partner", slot["predictions"])
        pieces[slot["column"]] = (slot["target"].replace("▁", " "), best == slot["target"])
    return {
        "language": sample["language"],
        # Without the tokens that begin and end the text.
        "pieces": pieces[1:-1],
        "partner": sample.get("partner", ""),
        "slots": [{"with_partner": None} | slot for slot in sample["slots"]],
    }


def attention(run: Run) -> list[Any]:
    return attention_pictures((run.last("attention_maps") or {"maps": []})["maps"])


def attention_pictures(maps: Sequence[Mapping[str, Any]]) -> list[Any]:
    figures = [figure for one in maps for figure in pictures.attention(one)]
    return drawing.labelled(figures, "attention of a pair")


# ---- what the run was ----------------------------------------------------------------------------


def sampling_tables(run: Run) -> dict[str, list[dict[str, Any]]]:
    """{stage of an objective: the sampling table of its data}, epochs added for the steps that it
    took."""
    tables = {}
    data = run.record.get("identity", {}).get("data", {})
    for name, identity in data.items():
        texts = identity.get("sampling_table", [])
        if not texts:
            continue
        objective, start = stage_of(name)
        later = [begin for other, begin in map(stage_of, data) if other == objective]
        end = min((begin for begin in later if begin > start), default=math.inf)
        # A line is of one stage: training logs where one begins. By steps and not by the last
        # step: objectives take turns.
        lines = run.lines(objective)
        taken = sum(line.get("steps", 0) for line in lines if start < line["step"] <= end)
        tables[name] = [
            row | {"epochs": row["epochs_per_1000_steps"] * taken / 1000} for row in texts
        ]
    return tables


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
