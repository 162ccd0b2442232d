"""A run's headline figures, as in report.json, on top of its page and on a model card."""

import re
import statistics
from collections.abc import Mapping, Sequence

from xlingjax.report import pictures
from xlingjax.report.run import Run

FINETUNED = {"nli": "accuracy", "tagging": "tagging", "qa": "span_qa"}  # of the summary: kind
FIGURES = {
    "perplexity_mean": (
        "perplexity of held-out text (of masked words; CLM: of each next word), mean over languages"
    ),
    "tlm_perplexity_visible": "perplexity, the translation visible",
    "tlm_perplexity_hidden": "the same words, the translation hidden",
    "retrieval_mean": "retrieval en to xx, mean over languages (0 to 1)",
    "retrieval_mean_centred": "the same, each language's mean subtracted",
    "retrieval_chance": "retrieval by chance, {retrieval_pairs:,} pairs a language",
    "retrieval_mean_char_tfidf": "retrieval by character TF-IDF, without a model",
    "retrieval_mean_lsi": "retrieval by LSI of the training pairs, without a model",
    "alignment_error": "alignment error rate (0 is best)",
    "nli_en": "accuracy in English",
    "nli_commonest_en": "share of the commonest label in English",
    "nli_mean_other": "accuracy, mean of the other languages",
    "tagging_en": "tagging in English",
    "tagging_mean_other": "tagging, mean of the other languages",
    "qa_en": "F1 of answers in English",
    "qa_mean_other": "F1 of answers, mean of the other languages",
    "bleu_mean": "BLEU of generated text (0 to 100), mean",
    "chrf_mean": "chrF of generated text (0 to 100), mean",
    "rouge_l_mean": "ROUGE-L of generated text (0 to 100), mean",
    "wrong_language_rate_mean": "share of generated texts in another language, mean",
}
"""Keys of the summary that a reader asks for first, in words."""


def key(name: str) -> str:
    """A run's name as the end of a key of the summary: "MLM only" -> "mlm_only"."""
    # Keys of JSON that a program can write down without quoting.
    return re.sub(r"\W+", "_", name.strip().lower())


def summarise(run: Run, compare: Mapping[str, Run], finetuned: Sequence[Run]) -> dict:
    """All headline figures; a figure that the run does not have is left out.

    Of every compared run NAME: retrieval_mean_NAME, retrieval_mean_NAME_centred, tokens_seen_NAME.
    Accuracies and retrieval in 0..1. nli_en and nli_mean_other come from the first fine-tuned run
    that has them (else from the run itself), on test where there are dev and test; so do
    nli_commonest_en (share of the commonest label), nli_examples_en, tagging_en and
    tagging_mean_other, qa_en and qa_mean_other (F1), and the scores of generated text, bleu_mean
    and others.
    """
    retrieval = run.last("retrieval")
    speeds = run.logged("tokens_per_second")
    # The median: one interval in which the machine was busy with something else must not weigh.
    speed = statistics.median(speeds) if speeds else None
    losses = {name: run.lines(name)[-1].get("loss") for name in run.objectives}
    out = {
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
        out["retrieval_pairs"] = min(retrieval["pairs"].values())
    for name, other in compare.items():
        values = other.last("retrieval")
        out[f"retrieval_mean_{key(name)}"] = values.get("retrieval_mean")
        out[f"retrieval_mean_{key(name)}_centred"] = values.get("retrieval_mean_centred")
        out[f"tokens_seen_{key(name)}"] = other.tokens_seen
    for floor, value in run.last("floors").get("mean", {}).items():
        out[f"retrieval_mean_{floor}"] = value
    out["perplexity_mean"] = run.last("perplexity").get("mean")
    translation = run.last("translation_perplexity")
    for side in ("visible", "hidden"):
        out[f"tlm_perplexity_{side}"] = translation.get(f"{side}_mean")
    candidates = [*finetuned, run]
    for name, kind in FINETUNED.items():
        values = _first_last(candidates, kind)
        out[f"{name}_en"] = values.get("en")
        out[f"{name}_mean_other"] = values.get("mean_other")
        out[f"{name}_commonest_en"] = values.get("commonest", {}).get("en")
        out[f"{name}_examples_en"] = values.get("examples", {}).get("en")
    generated = _first_last(candidates, "generation")
    for figure in ("bleu", "chrf", "rouge_l", "wrong_language_rate"):
        for group in ("mean", "trained", "others"):
            out[f"{figure}_{group}"] = generated.get(f"{figure}_{group}")
    out["alignment_error"] = run.last("alignment").get("alignment_error")
    # A figure that is not there is left out: null would look like one that failed.
    return _known(out)


def _known(values: Mapping) -> dict:
    return {name: value for name, value in values.items() if value is not None}


def _first_last(runs: Sequence[Run], kind: str) -> dict:
    """The latest values of the first run that has some; {}: none has."""
    # Dev chose the checkpoint, so its figures flatter.
    found = (run.last(kind, prefer="test") for run in runs)
    return next(filter(None, found), {})


def headline(summary: Mapping, compared: Sequence[str] = ()) -> list[list]:
    """[figure in words, its value, those of compared runs or None] of what was measured."""
    rows = []
    for name, what in FIGURES.items():
        if name in summary:
            _, mean, kind = name.partition("retrieval_mean")
            others = [summary.get(f"{mean}_{key(other)}{kind}") for other in compared]
            rows.append([what.format(**summary), summary[name], *others])
    return rows
