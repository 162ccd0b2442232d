"""The headline figures of a run, as they stand in report.json."""

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.report.run import Run


def final_losses(run: Run) -> dict[str, float]:
    """{objective: its last logged training loss}."""
    losses = {}
    for name in run.objectives:
        last = run.lines(name)[-1]
        if last.get("loss") is not None:
            losses[name] = last["loss"]
    return losses


def tokens_per_second(run: Run) -> float | None:
    """Of the whole run where it finished; before that the median of the log lines."""
    if run.result.get("tokens_per_second") is not None:
        return run.result["tokens_per_second"]
    rates = _logged(run, "tokens_per_second")
    if not rates:
        return None
    # The median: one interval in which the machine was busy with something else must not weigh.
    return statistics.median(rates)


def _logged(run: Run, name: str) -> list[float]:
    """What the log lines that have it say of it."""
    return [line[name] for line in run.metrics if line.get(name) is not None]


def key(name: str) -> str:
    """A run's name as the end of a key of the summary: "MLM only" -> "mlm_only"."""
    # Keys of JSON that a program can write down without quoting.
    return re.sub(r"\W+", "_", name.strip().lower())


def retrieval_means(run: Run) -> tuple[float | None, float | None]:
    """(raw, centred) en_to_xx accuracy, mean over languages at the best layer, of the latest
    evaluation."""
    values = run.last("retrieval") or {}
    return values.get("retrieval_mean"), values.get("retrieval_mean_centred")


def summarise(run: Run, compare: Mapping[str, Run], finetuned: Sequence[Run]) -> dict[str, Any]:
    """All headline figures; a figure that the run does not have is left out.

    Of every compared run NAME: retrieval_mean_NAME, retrieval_mean_NAME_centred, tokens_seen_NAME.
    Accuracies and retrieval in 0..1. nli_en and nli_mean_other come from the first fine-tuned run
    that has them (else from the run itself), on test where there are dev and test; so do
    nli_commonest_en (share of the commonest label), nli_examples_en, tagging_en and
    tagging_mean_other, qa_en and qa_mean_other (F1), and the scores of generated text, bleu_mean
    and others.
    """
    tokens = None
    logged = _logged(run, "tokens_seen")
    if logged:
        tokens = logged[-1]
    retrieval = run.last("retrieval") or {}
    out: dict[str, Any] = {
        "steps": run.result.get("steps", run.step),
        "steps_planned": run.record.get("steps"),
        "exit_reason": run.result.get("exit_reason", "not finished"),
        "stopped_early": run.result.get("stopped_early"),
        "parameters": run.record.get("parameters"),
        "tokens_seen": run.result.get("tokens_seen", tokens),
        "tokens_per_second": tokens_per_second(run),
        "wall_seconds": run.wall_seconds(),
        "final_loss": final_losses(run),
    }
    for name in (
        "mean",
        "mean_centred",
        "mean_xx_to_en",
        "mean_centred_xx_to_en",
        "best_layer",
        "best_layer_centred",
    ):
        out[f"retrieval_{name}"] = retrieval.get(f"retrieval_{name}")
    for name, other in compare.items():
        raw, centred = retrieval_means(other)
        out[f"retrieval_mean_{key(name)}"] = raw
        out[f"retrieval_mean_{key(name)}_centred"] = centred
        out[f"tokens_seen_{key(name)}"] = summarise(other, {}, ()).get("tokens_seen")
    for floor, value in (run.last("floors") or {}).get("mean", {}).items():
        out[f"retrieval_mean_{floor}"] = value
    out["perplexity_mean"] = (run.last("perplexity") or {}).get("mean")
    translation = run.last("translation_perplexity") or {}
    for side in ("visible", "hidden"):
        out[f"tlm_perplexity_{side}"] = translation.get(f"{side}_mean")
    # A run that is itself a fine-tuning has its own scores.
    candidates = [*finetuned, run]
    for name, kind in (("nli", "accuracy"), ("tagging", "tagging"), ("qa", "span_qa")):
        values = _first_last(candidates, kind)
        out[f"{name}_en"] = values.get("en")
        out[f"{name}_mean_other"] = values.get("mean_other")
        # What guessing reaches, and of how many examples the figure is.
        out[f"{name}_commonest_en"] = values.get("commonest", {}).get("en")
        out[f"{name}_examples_en"] = values.get("examples", {}).get("en")
    written = _first_last(candidates, "generation")
    for figure in ("bleu", "chrf", "rouge_l", "wrong_language_rate"):
        for group in ("mean", "trained", "others"):
            out[f"{figure}_{group}"] = written.get(f"{figure}_{group}")
    out["alignment_error"] = (run.last("alignment") or {}).get("alignment_error")
    # A figure that is not there is left out: null would look like one that failed.
    return {name: value for name, value in out.items() if value is not None}


def _first_last(runs: Sequence[Run], kind: str) -> dict[str, Any]:
    """The latest values of the first run that has some; {}: none has."""
    for run in runs:
        # Dev chose the checkpoint, so its figures flatter.
        values = run.last(kind, prefer="test")
        if values:
            return values
    return {}
