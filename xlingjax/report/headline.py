"""The figures on top of a report, each with what it is to be compared with."""

from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.evaluation.floors import FLOORS
from xlingjax.report import html, intervals, plots, retrieval_plots
from xlingjax.report.run import Run
from xlingjax.report.summary import key

Tile = tuple[str, Any, list[str]]


def tiles(run: Run, summary: Mapping[str, Any], compared: Sequence[str] = ()) -> str:
    """Of what was measured; `compared`: names of the runs beside this one."""
    return html.tiles(
        [
            *_retrieval(run, summary, compared),
            *_alignment(summary),
            *_tasks(summary),
            *_perplexities(run, summary),
        ]
    )


def facts(summary: Mapping[str, Any]) -> str:
    """One line of how large the run is and how long it took."""
    said = []
    for name, unit in (
        ("parameters", "parameters"),
        ("tokens_seen", "tokens seen"),
        ("tokens_per_second", "tokens per second"),
    ):
        if summary.get(name) is not None:
            said.append(f"{html.number(int(summary[name]))} {unit}")
    if summary.get("wall_seconds"):
        minutes = summary["wall_seconds"] / 60
        said.append(f"{minutes:,.1f} minutes, everything included")
    return " · ".join(said)


def _retrieval(run: Run, summary: Mapping[str, Any], compared: Sequence[str]) -> list[Tile]:
    values = run.last("retrieval")
    if values is None:
        return []
    # Of several poolings the first, which the plain figures are of.
    pooling = next(iter(values["by_language"]))
    table = values["by_language"][pooling]
    floors = [f"chance {_percent(retrieval_plots.chance(values))}"]
    for floor, name in FLOORS.items():
        if summary.get(f"retrieval_mean_{floor}") is not None:
            figure = _percent(summary[f"retrieval_mean_{floor}"])
            floors.append(f"{name} {figure}")
    tiles = []
    for kind, title in retrieval_plots.KINDS.items():
        ending = ""
        if kind == "centred":
            ending = "_centred"
        score = f"{kind}_en_to_xx"
        layer = str(values["best"][pooling][score]["layer"])
        shares = [table[language][layer][score] for language in values["pairs"]]
        counts = list(values["pairs"].values())
        below = _interval(shares, counts, "pairs a language")
        below += floors
        for name in compared:
            other = summary.get(f"retrieval_mean_{key(name)}{ending}")
            if other is not None:
                below.append(f"{name} {_percent(other)}")
        found = summary[f"retrieval_mean{ending}"]
        # First, since all else that is said of such vectors misleads.
        if found <= summary.get("retrieval_mean_char_tfidf", -1):
            below.insert(0, "not above TF-IDF, which has learnt nothing")
        figure = _percent(found)
        tiles.append((f"retrieval en→xx, {title}", figure, below))
    return tiles


def _interval(shares: Sequence[float], counts: Sequence[int], cases: str) -> list[str]:
    said = f"{min(counts):,} {cases}"
    if min(counts) >= intervals.FEW:
        return [said]
    low, high = intervals.of_mean(shares, counts)
    return [f"95 %: {100 * low:.1f}–{100 * high:.1f}; {said}"]


def _alignment(summary: Mapping[str, Any]) -> list[Tile]:
    if "alignment_error" not in summary:
        return []
    figure = _percent(summary["alignment_error"])
    return [("word alignment, error rate", figure, ["0 is best, 100 worst"])]


def _tasks(summary: Mapping[str, Any]) -> list[Tile]:
    """Each task's figure in English, below it that of the other languages."""
    tiles = []
    for name, title in (
        ("nli", "classification, English"),
        ("tagging", "tagging, English"),
        ("qa", "answers (F1), English"),
    ):
        english = summary.get(f"{name}_en")
        others = summary.get(f"{name}_mean_other")
        if english is None and others is None:
            continue
        below = [f"{_percent(others)} mean of the other languages"]
        examples = summary.get(f"{name}_examples_en")
        if examples and english is not None:
            below += _interval([english], [examples], "examples")
        commonest = summary.get(f"{name}_commonest_en")
        if commonest is not None:
            below.append(f"commonest label {_percent(commonest)}")
        tiles.append((title, _percent(english), below))
    if summary.get("bleu_mean") is not None:
        figure = f"{summary['bleu_mean']:.1f}"
        tiles.append(("generated text, BLEU", figure, ["mean over directions"]))
    return tiles


def _perplexities(run: Run, summary: Mapping[str, Any]) -> list[Tile]:
    pieces = plots.vocabulary_size(run)
    guess = []
    if pieces:
        guess = [f"uniform guess {pieces:,}"]
    tiles = []
    if summary.get("perplexity_mean") is not None:
        below = ["mean over languages", *guess]
        tiles.append(("held-out perplexity", summary["perplexity_mean"], below))
    visible = summary.get("tlm_perplexity_visible")
    hidden = summary.get("tlm_perplexity_hidden")
    if visible is not None and hidden is not None:
        below = [f"{html.number(hidden)} with it hidden", *guess]
        # Without that a reader would take the pair of figures for a gain.
        if visible >= hidden:
            below.insert(1, "the translation does not help")
        title = "perplexity, translation visible"
        tiles.append((title, visible, below))
    return tiles


def _percent(share: float | None) -> str:
    if share is None:
        return "–"
    return f"{html.percent(share)} %"
