"""The headline figures of a run, as they stand in report.json."""

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.report.run import Run


def final_losses(run: Run) -> dict[str, float]:
    """{objective: its last logged training loss}."""
    return {
        name: run.lines(name)[-1]["loss"]
        for name in run.objectives
        if run.lines(name)[-1].get("loss") is not None
    }


def tokens_per_second(run: Run) -> float | None:
    """Of the whole run where it finished; before that the median of the log lines."""
    if run.result.get("tokens_per_second") is not None:
        return run.result["tokens_per_second"]
    rates = [
        line["tokens_per_second"]
        for line in run.metrics
        if line.get("tokens_per_second") is not None
    ]
    return statistics.median(rates) if rates else None


def key(name: str) -> str:
    """A run's name as the end of a key of the summary: "MLM only" -> "mlm_only"."""
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
    that has them (else from the run itself), on test where there are dev and test; so do tagging_en
    and tagging_mean_other, qa_en and
    qa_mean_other (F1), and the scores of generated text, bleu_mean and others.
    """
    tokens = [line["tokens_seen"] for line in run.metrics if line.get("tokens_seen") is not None]
    retrieval = run.last("retrieval") or {}
    out: dict[str, Any] = {
        "steps": run.result.get("steps", run.step),
        "steps_planned": run.record.get("steps"),
        "exit_reason": run.result.get("exit_reason", "not finished"),
        "parameters": run.record.get("parameters"),
        "tokens_seen": run.result.get("tokens_seen", tokens[-1] if tokens else None),
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
        out[f"retrieval_mean_{key(name)}"], out[f"retrieval_mean_{key(name)}_centred"] = (
            raw,
            centred,
        )
        out[f"tokens_seen_{key(name)}"] = summarise(other, {}, ()).get("tokens_seen")
    for floor, value in (run.last("floors") or {}).get("mean", {}).items():
        out[f"retrieval_mean_{floor}"] = value
    out["perplexity_mean"] = (run.last("perplexity") or {}).get("mean")
    for side in ("visible", "hidden"):
        out[f"tlm_perplexity_{side}"] = (run.last("translation_perplexity") or {}).get(
            f"{side}_mean"
        )
    accuracy = next((v for r in (*finetuned, run) if (v := r.last("accuracy", prefer="test"))), {})
    out["nli_en"], out["nli_mean_other"] = accuracy.get("en"), accuracy.get("mean_other")
    tagging = next((v for r in (*finetuned, run) if (v := r.last("tagging", prefer="test"))), {})
    out["tagging_en"], out["tagging_mean_other"] = tagging.get("en"), tagging.get("mean_other")
    answers = next((v for r in (*finetuned, run) if (v := r.last("span_qa", prefer="test"))), {})
    out["qa_en"], out["qa_mean_other"] = answers.get("en"), answers.get("mean_other")
    written = next((v for r in (*finetuned, run) if (v := r.last("generation", prefer="test"))), {})
    for figure in ("bleu", "chrf", "rouge_l", "wrong_language_rate"):
        for group in ("mean", "trained", "others"):
            out[f"{figure}_{group}"] = written.get(f"{figure}_{group}")
    out["alignment_error"] = (run.last("alignment") or {}).get("alignment_error")
    return {name: value for name, value in out.items() if value is not None}
