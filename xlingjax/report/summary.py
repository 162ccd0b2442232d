"""The headline figures of a run, as they stand in report.json and on top of its page, there with
what each is to be compared with."""

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.evaluation.floors import FLOORS
from xlingjax.report import html, pictures
from xlingjax.report.run import Run

Tile = tuple[str, Any, list[str]]
FINETUNED = {"nli": "accuracy", "tagging": "tagging", "qa": "span_qa"}
"""Key of the summary -> kind of evaluation."""
_BESIDE_RETRIEVAL = {"retrieval_chance": "chance"} | {
    f"retrieval_mean_{floor}": name for floor, name in FLOORS.items()
}
_PERCENT: dict[str, tuple[str, dict[str, str]]] = {
    "retrieval_mean": ("retrieval en→xx, raw cosine", _BESIDE_RETRIEVAL),
    "retrieval_mean_centred": ("retrieval en→xx, language means removed", _BESIDE_RETRIEVAL),
    "alignment_error": ("word alignment, error rate (0 is best)", {}),
} | {
    f"{name}_en": (
        title,
        {f"{name}_mean_other": "mean of the other languages", f"{name}_commonest_en": "commonest"},
    )
    for name, title in (
        ("nli", "classification, English"),
        ("tagging", "tagging, English"),
        ("qa", "answers (F1), English"),
    )
}
_OTHERS: dict[str, tuple[str, dict[str, str]]] = {
    "bleu_mean": ("generated text, BLEU, mean over directions", {}),
    "perplexity_mean": ("held-out perplexity, mean over languages", {"guess": "uniform guess"}),
    "tlm_perplexity_visible": (
        "perplexity, translation visible",
        {"tlm_perplexity_hidden": "with it hidden", "guess": "uniform guess"},
    ),
}
"""Key of the summary -> (what its tile says, {key: what else stands below})."""


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
        "final_loss": _known(losses),
    }
    for name, value in retrieval.items():
        if name.startswith("retrieval_"):
            out[name] = value
    if retrieval:
        out["retrieval_chance"] = pictures.chance(retrieval)
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
    for name, kind in FINETUNED.items():
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
    return " · ".join(parts)


def tiles(run: Run, summary: Mapping[str, Any], compared: Sequence[str] = ()) -> list[Tile]:
    """(name, value, lines below it) of what was measured; `compared`: names of the runs beside this
    one."""
    figures = {**summary, "guess": run.vocabulary_size}
    tiles: list[Tile] = []
    for shown, table in ((_percent, _PERCENT), (html.number, _OTHERS)):
        for name, (title, beside) in table.items():
            if name not in figures:
                continue
            lines = []
            for of, what in beside.items():
                if figures.get(of) is not None:
                    lines.append(f"{what} {shown(figures[of])}")
            for other in compared:
                value = figures.get(name.replace("mean", f"mean_{key(other)}"))
                if name.startswith("retrieval") and value is not None:
                    lines.append(f"{other} {shown(value)}")
            # First, since all else that is said of such vectors misleads.
            if beside is _BESIDE_RETRIEVAL and figures[name] <= figures.get(_TFIDF, -1):
                lines.insert(0, "not above TF-IDF, which has learnt nothing")
            # Without that a reader would take the pair of figures for a gain.
            hidden = figures.get("tlm_perplexity_hidden", float("inf"))
            if name == "tlm_perplexity_visible" and figures[name] >= hidden:
                lines.insert(0, "the translation does not help")
            tiles.append((title, shown(figures[name]), lines))
    return tiles


_TFIDF = "retrieval_mean_char_tfidf"


def _percent(share: float) -> str:
    return f"{html.percent(share)} %"
