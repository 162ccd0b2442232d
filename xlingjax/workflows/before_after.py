"""What a model measured before it went on learning, and after; and whether it got worse."""

import math
from collections.abc import Sequence
from typing import Any

from xlingjax.report import intervals
from xlingjax.report.run import Run

VISIBLE = "perplexity beside the translation, mean"
HIDDEN = "the same words, the translation hidden, mean"
RETRIEVAL = "retrieval en to xx, mean, best layer"
CENTRED = "the same, each language's mean subtracted"
ALIGNMENT = "alignment error rate"
ERRORS = ("perplexity, mean", VISIBLE, ALIGNMENT)
"""Lower is better. Of the means alone: one language may pay for another."""
RISE = 0.01
"""Of an error, as a share of what it was: the same words are hidden both times, so that little is
chance."""
STANDARD_ERRORS = 2
"""Of the difference of two shares of the same number of pairs."""


def compared(before: Run, after: Run) -> list[dict[str, Any]]:
    """Rows {"figure", "before", "after"} of the last measurements of both."""
    earlier = _figures(before)
    rows = []
    for name, value in _figures(after).items():
        rows.append({"figure": name, "before": earlier.get(name), "after": value})
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
        figures[VISIBLE] = translation["visible_mean"]
        figures[HIDDEN] = translation["hidden_mean"]
    retrieval = run.last("retrieval")
    if retrieval:
        figures[RETRIEVAL] = retrieval["retrieval_mean"]
        figures[CENTRED] = retrieval["retrieval_mean_centred"]
    alignment = run.last("alignment")
    if alignment:
        figures[ALIGNMENT] = alignment["alignment_error"]
    return figures


def pairs_of(run: Run) -> int:
    """How many held-out pairs retrieval was measured on, all languages together."""
    retrieval = run.last("retrieval")
    if not retrieval:
        return 0
    return sum(retrieval["pairs"].values())


def worse(rows: Sequence[dict[str, Any]], pairs: int) -> list[str]:
    """The figures that got worse, each with both values; []: none.

    rows: of `compared`. A mean perplexity or an alignment error counts when it rose by more than
    `RISE` of what it was; retrieval when it fell by more than `STANDARD_ERRORS` of the difference
    of two shares of `pairs`. What was not measured before does not count.
    """
    found = []
    for row in rows:
        name = row["figure"]
        before = row["before"]
        after = row["after"]
        if before is None:
            continue
        if name in ERRORS and after > (1 + RISE) * before:
            found.append(f"{name} {before:.4g} -> {after:.4g}")
        fall = before - after
        if name in (RETRIEVAL, CENTRED) and fall > noise(before, after, pairs):
            found.append(f"{name} {before:.4f} -> {after:.4f} of {pairs:,} pairs")
    return found


def noise(before: float, after: float, pairs: int) -> float:
    """By how much two shares of `pairs` may differ by chance: `STANDARD_ERRORS` of their
    difference, as if the pairs were drawn anew."""
    variances = before * (1 - before) + after * (1 - after)
    return STANDARD_ERRORS * math.sqrt(variances / max(pairs, 1))


def notes(rows: Sequence[dict[str, Any]], pairs: int) -> list[str]:
    """What a reader of the table could overlook: how sure a retrieval of few pairs is (as if all
    were of one language), a translation that hurts, a retrieval that fell by no more than
    chance."""
    values = {row["figure"]: (row["before"], row["after"]) for row in rows}
    lines = []
    if RETRIEVAL in values and 0 < pairs < intervals.FEW:
        _, after = values[RETRIEVAL]
        low, high = intervals.of_share(after, pairs)
        lines.append(f"{RETRIEVAL}: of {pairs:,} pairs, 95 % between {low:.4f} and {high:.4f}")
    if VISIBLE in values and HIDDEN in values:
        _, visible = values[VISIBLE]
        _, hidden = values[HIDDEN]
        if visible > hidden:
            lines.append(
                f"the translation hurts: words are harder to guess beside it (perplexity"
                f" {visible:.4g}) than without it ({hidden:.4g}); more steps on pairs (tlm), or"
                " more pairs, teach the model to use it"
            )
    for name in (RETRIEVAL, CENTRED):
        before, after = values.get(name, (None, None))
        if before is None:
            continue
        if 0 < before - after <= noise(before, after, pairs):
            lines.append(
                f"{name}: lower, by no more than the chance of {pairs:,} pairs"
                f" ({noise(before, after, pairs):.4f})"
            )
    return lines


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Before and after, for the terminal."""
    lines = [f"{'':<46}{'before':>12}{'after':>12}"]
    for row in rows:
        before = ""
        if row["before"] is not None:
            before = f"{row['before']:.4f}"
        lines.append(f"{row['figure']:<46}{before:>12}{row['after']:>12.4f}")
    return "\n".join(lines)
