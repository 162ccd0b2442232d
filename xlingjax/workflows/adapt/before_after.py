"""What a model measured before it went on learning, and after; and whether it got worse."""

import math
from collections.abc import Sequence

from xlingjax.report.run import Run

VISIBLE = "perplexity beside the translation, mean"
HIDDEN = "the same words, the translation hidden, mean"
RETRIEVAL = "retrieval en to xx, mean"
CENTRED = "the same, each language's mean subtracted"
ALIGNMENT = "alignment error rate"
ERRORS = ("perplexity, mean", VISIBLE, ALIGNMENT)
"""Lower is better. Of the means alone: one language may pay for another."""
RISE = 0.01  # of an error, as a share of it: the same words are hidden, so little is chance
STANDARD_ERRORS = 2  # of the difference of two shares of the same number of pairs
_FIGURES = (
    ("perplexity", "mean", "perplexity, mean"),
    ("translation_perplexity", "visible_mean", VISIBLE),
    ("translation_perplexity", "hidden_mean", HIDDEN),
    ("retrieval", "retrieval_mean", RETRIEVAL),
    ("retrieval", "retrieval_mean_centred", CENTRED),
    ("alignment", "alignment_error", ALIGNMENT),
)


def compared(before: Run, after: Run) -> list[dict]:
    """Rows {"figure", "before", "after"} of the last measurements of both."""
    earlier = _figures(before)
    return [
        {"figure": name, "before": earlier.get(name), "after": value}
        for name, value in _figures(after).items()
    ]


def _figures(run: Run) -> dict[str, float]:
    by_language = run.last("perplexity").get("by_language", {})
    figures = {f"perplexity {code}": value for code, value in sorted(by_language.items())}
    for kind, key, name in _FIGURES:
        if values := run.last(kind):
            figures[name] = values[key]
    return figures


def pairs_of(run: Run) -> int:
    """How many held-out pairs retrieval was measured on, all languages together."""
    return sum(run.last("retrieval").get("pairs", {}).values())


def worse(rows: Sequence[dict], pairs: int) -> list[str]:
    """The figures that got worse, each with both values; []: none.

    rows: of `compared`. A mean perplexity or an alignment error counts when it rose by more than
    `RISE` of what it was; retrieval when it fell by more than `STANDARD_ERRORS` of the difference
    of two shares of `pairs`. What was not measured before does not count.
    """
    fallen = []
    for row in rows:
        name, before, after = row["figure"], row["before"], row["after"]
        if before is None:
            continue
        if name in ERRORS and after > (1 + RISE) * before:
            fallen.append(f"{name} {before:.4g} -> {after:.4g}")
        if name in (RETRIEVAL, CENTRED) and before - after > noise(before, after, pairs):
            fallen.append(f"{name} {before:.4f} -> {after:.4f} of {pairs:,} pairs")
    return fallen


def noise(before: float, after: float, pairs: int) -> float:
    """By how much two shares of `pairs` differ by chance: `STANDARD_ERRORS` of the difference."""
    variances = before * (1 - before) + after * (1 - after)
    return STANDARD_ERRORS * math.sqrt(variances / max(pairs, 1))
