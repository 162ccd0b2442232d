"""What a model measured before it went on learning, and after."""

from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.report.run import Run


def compared(before: Run, after: Run) -> list[dict[str, Any]]:
    """Rows {"figure", "before", "after"} of the last measurements of both."""
    earlier = _figures(before)
    rows = []
    for name, value in _figures(after).items():
        rows.append(
            {"figure": name, "before": earlier.get(name), "after": value},
        )
    return rows


def _figures(run: Run) -> dict[str, float]:
    """{name: value} of the last measurements."""
    figures: dict[str, float] = {}
    perplexity = run.last("perplexity")
    if perplexity:
        for code, value in sorted(perplexity["by_language"].items()):
            figures[f"perplexity {code}"] = value
        figures["perplexity, mean"] = perplexity["mean"]
    translation = run.last("translation_perplexity")
    if translation:
        figures["perplexity beside the translation, mean"] = translation[
            "visible_mean"
        ]
    retrieval = run.last("retrieval")
    if retrieval:
        figures["retrieval en to xx, mean, best layer"] = retrieval[
            "retrieval_mean"
        ]
        figures["the same, each language's mean subtracted"] = retrieval[
            "retrieval_mean_centred"
        ]
    alignment = run.last("alignment")
    if alignment:
        figures["alignment error rate"] = alignment["alignment_error"]
    return figures


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Before and after, for the terminal."""
    lines = [f"{'':<44}{'before':>12}{'after':>12}"]
    for row in rows:
        before = ""
        if row["before"] is not None:
            before = f"{row['before']:.4f}"
        lines.append(f"{row['figure']:<44}{before:>12}{row['after']:>12.4f}")
    return "\n".join(lines)
