"""The headline figures of a run, as they stand in report.json and on top of its page, there with
what each is to be compared with."""

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.evaluation.floors import FLOORS
from xlingjax.report import html, intervals, pictures
from xlingjax.report.run import Run

Tile = tuple[str, Any, list[str]]
FINETUNED = (
    ("nli", "accuracy", "classification, English"),
    ("tagging", "tagging", "tagging, English"),
    ("qa", "span_qa", "answers (F1), English"),
)
"""(key of the summary, kind of evaluation, title)."""


def key(name: str) -> str:
    """A run's name as the end of a key of the summary: "MLM only" -> "mlm_only"."""
    # Keys of JSON that a program can write down without quoting.
    return re.sub(r"\W+", "_", name.strip().lower())


def summarise(run: Run, compare: Mapping[str, Run], finetuned: Sequence[Run]) -> dict[str, Any]:
    """All headline figures; a figure that the run does not have is left out.

    Of every compared run NAME: retrieval_mean_NAME, retrieval_mean_NAME_centred, tokens_seen_NAME.
    Accuracies and retrieval in 0..1. nli_en and nli_mean_other come from the first fine-tuned run
    that has them (else from the run itself), on test where there are dev and test; so do
    nli_commonest_en (share of the commonest label), nli_examples_en, tagging_en and
    tagging_mean_other, qa_en and qa_mean_other (F1), and the scores of generated text, bleu_mean
    and others.
    """
    retrieval = run.last("retrieval") or {}
    speeds = run.logged("tokens_per_second")
    # The median: one interval in which the machine was busy with something else must not weigh.
    speed = statistics.median(speeds) if speeds else None
    losses = {name: run.lines(name)[-1].get("loss") for name in run.objectives}
    out: dict[str, Any] = {
        "steps": run.result.get("steps", run.step),
        "steps_planned": run.record.get("steps"),
        "exit_reason": run.result.get("exit_reason", "not finished"),
        "stopped_early": run.result.get("stopped_early"),
        "parameters": run.record.get("parameters"),
        "tokens_seen": run.tokens_seen,
        "tokens_per_second": run.result.get("tokens_per_second", speed),
        "wall_seconds": run.wall_seconds(),
        "final_loss": _known(losses),
    }
    for name, value in retrieval.items():
        if name.startswith("retrieval_"):
            out[name] = value
    for name, other in compare.items():
        values = other.last("retrieval") or {}
        out[f"retrieval_mean_{key(name)}"] = values.get("retrieval_mean")
        out[f"retrieval_mean_{key(name)}_centred"] = values.get("retrieval_mean_centred")
        out[f"tokens_seen_{key(name)}"] = other.tokens_seen
    for floor, value in (run.last("floors") or {}).get("mean", {}).items():
        out[f"retrieval_mean_{floor}"] = value
    out["perplexity_mean"] = (run.last("perplexity") or {}).get("mean")
    translation = run.last("translation_perplexity") or {}
    for side in ("visible", "hidden"):
        out[f"tlm_perplexity_{side}"] = translation.get(f"{side}_mean")
    # A run that is itself a fine-tuning has its own scores.
    candidates = [*finetuned, run]
    for name, kind, _ in FINETUNED:
        values = _first_last(candidates, kind)
        out[f"{name}_en"] = values.get("en")
        out[f"{name}_mean_other"] = values.get("mean_other")
        # What guessing reaches, and of how many examples the figure is.
        out[f"{name}_commonest_en"] = values.get("commonest", {}).get("en")
        out[f"{name}_examples_en"] = values.get("examples", {}).get("en")
    generated = _first_last(candidates, "generation")
    for figure in ("bleu", "chrf", "rouge_l", "wrong_language_rate"):
        for group in ("mean", "trained", "others"):
            out[f"{figure}_{group}"] = generated.get(f"{figure}_{group}")
    out["alignment_error"] = (run.last("alignment") or {}).get("alignment_error")
    # A figure that is not there is left out: null would look like one that failed.
    return _known(out)


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _first_last(runs: Sequence[Run], kind: str) -> dict[str, Any]:
    """The latest values of the first run that has some; {}: none has."""
    # Dev chose the checkpoint, so its figures flatter.
    found = (run.last(kind, prefer="test") for run in runs)
    return next(filter(None, found), {})


# ---- on top of the page --------------------------------------------------------------------------


def facts(summary: Mapping[str, Any]) -> str:
    """One line of how large the run is and how long it took."""
    parts = []
    for name in ("parameters", "tokens_seen", "tokens_per_second"):
        if name in summary:
            parts.append(f"{html.number(int(summary[name]))} {name.replace('_', ' ')}")
    if summary.get("wall_seconds"):
        parts.append(f"{summary['wall_seconds'] / 60:,.1f} minutes, everything included")
    return " · ".join(parts)


def tiles(run: Run, summary: Mapping[str, Any], compared: Sequence[str] = ()) -> list[Tile]:
    """(name, value, lines below it) of what was measured; `compared`: names of the runs beside this
    one."""
    tiles = _retrieval(run, summary, compared)
    if "alignment_error" in summary:
        error = _percent(summary["alignment_error"])
        tiles.append(("word alignment, error rate", error, ["0 is best, 100 worst"]))
    for name, _, title in FINETUNED:
        english = summary.get(f"{name}_en")
        others = summary.get(f"{name}_mean_other")
        if english is None and others is None:
            continue
        below = [f"{_percent(others)} mean of the other languages"]
        examples = summary.get(f"{name}_examples_en")
        if examples and english is not None:
            below.append(_interval([english], [examples], "examples"))
        if f"{name}_commonest_en" in summary:
            below.append(f"commonest label {_percent(summary[f'{name}_commonest_en'])}")
        tiles.append((title, _percent(english), below))
    if "bleu_mean" in summary:
        bleu = f"{summary['bleu_mean']:.1f}"
        tiles.append(("generated text, BLEU", bleu, ["mean over directions"]))
    guess = [f"uniform guess {run.vocabulary_size:,}"] if run.vocabulary_size else []
    if "perplexity_mean" in summary:
        below = ["mean over languages", *guess]
        tiles.append(("held-out perplexity", summary["perplexity_mean"], below))
    if {"tlm_perplexity_visible", "tlm_perplexity_hidden"} <= summary.keys():
        visible, hidden = summary["tlm_perplexity_visible"], summary["tlm_perplexity_hidden"]
        below = [f"{html.number(hidden)} with it hidden", *guess]
        # Without that a reader would take the pair of figures for a gain.
        if visible >= hidden:
            below.insert(1, "the translation does not help")
        tiles.append(("perplexity, translation visible", visible, below))
    return tiles


def _retrieval(run: Run, summary: Mapping[str, Any], compared: Sequence[str]) -> list[Tile]:
    values = run.last("retrieval")
    if values is None:
        return []
    # Of several poolings the first, which the plain figures are of.
    pooling = next(iter(values["by_language"]))
    table = values["by_language"][pooling]
    floors = [f"chance {_percent(pictures.chance(values))}"]
    for floor, name in FLOORS.items():
        if f"retrieval_mean_{floor}" in summary:
            floors.append(f"{name} {_percent(summary[f'retrieval_mean_{floor}'])}")
    tiles: list[Tile] = []
    for kind, title in pictures.KINDS.items():
        ending = pictures.ENDINGS[kind]
        score = f"{kind}_en_to_xx"
        layer = str(values["best"][pooling][score]["layer"])
        shares = [table[language][layer][score] for language in values["pairs"]]
        below = [_interval(shares, list(values["pairs"].values()), "pairs a language"), *floors]
        for name in compared:
            other = summary.get(f"retrieval_mean_{key(name)}{ending}")
            if other is not None:
                below.append(f"{name} {_percent(other)}")
        mean = summary[f"retrieval_mean{ending}"]
        # First, since all else that is said of such vectors misleads.
        if mean <= summary.get("retrieval_mean_char_tfidf", -1):
            below.insert(0, "not above TF-IDF, which has learnt nothing")
        tiles.append((f"retrieval en→xx, {title}", _percent(mean), below))
    return tiles


def _interval(shares: Sequence[float], counts: Sequence[int], cases: str) -> str:
    count = f"{min(counts):,} {cases}"
    if min(counts) >= intervals.FEW:
        return count
    low, high = intervals.of_mean(shares, counts)
    return f"95 %: {100 * low:.1f}–{100 * high:.1f}; {count}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{html.percent(share)} %"
