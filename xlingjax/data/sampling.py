"""How often each language or pair is drawn: exponent smoothing, or given weights.

XLM §3.1: p_i = n_i / sum n, q_i = p_i^alpha / sum p^alpha. A temperature T is alpha = 1 / T.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.errors import UserError, require_choice, require_numbers


def smoothed(counts: Sequence[float], alpha: float) -> np.ndarray:
    """q_i ~ (n_i / sum n)^alpha, of sum 1: alpha 1 keeps shares, 0 evens them. Raises UserError."""
    # In float64: counts of tokens go beyond what float32 holds exactly.
    n = np.asarray(counts, np.float64)
    if n.size == 0 or (n < 0).any() or n.sum() == 0:
        raise UserError(f"sampling needs counts above zero, got {list(counts)}")
    # Written so that NaN is refused, too.
    if not alpha >= 0:
        raise UserError(f"the sampling exponent must not be negative, got {alpha}")
    # 0 ** 0 is 1: with alpha 0 a language without text would get a share.
    q = np.where(n > 0, (n / n.sum()) ** alpha, 0.0)
    return q / q.sum()


OTHERS = "*"


@dataclass(frozen=True)
class Sampling:
    """How rows (or batches) are drawn over the tasks of a mixture.

    By `alpha` (default 0.7, XLM §3.1), or by `weights`, by language (`"de"`) or pair (`"de-en"`).
    The weight of `"*"` is that of all others together, among which `alpha` shares it. `counts` says
    what n_i is: `sentences` (XLM), `tokens`, or `mixture`, the rates of the SeqIO mixture.
    `same_language`: one language or pair in a batch (XLM) or mixed rows (fairseq).
    """

    alpha: float | None = None
    weights: Mapping[str, float] | None = None
    counts: str = "sentences"
    same_language: bool = True

    def __post_init__(self):
        require_choice(self, ("sentences", "tokens", "mixture"), "counts", "sampling: ")
        require_numbers(self, "[0, inf)", "alpha weights", "sampling: ")
        # Which one is meant is unknown, and either choice would give a run that nobody asked for.
        if self.alpha is not None and self.weights is not None and OTHERS not in self.weights:
            raise UserError(
                "sampling options alpha and weights exclude each other; give one, or weights a '*'"
            )

    def shares(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Each name's share in the draws, of sum 1. Raises UserError where `weights` misfit."""
        names = list(counts)
        alpha = 0.7 if self.alpha is None else self.alpha
        if self.weights is not None:
            weights = dict(self.weights)
            # A name that is left out could mean "none of it" or be mistyped, so all must be named.
            missing = sorted(set(names) - set(weights))
            if missing and OTHERS in weights:
                spread = smoothed([counts[name] for name in missing], alpha)
                weights |= zip(missing, weights.pop(OTHERS) * spread, strict=True)
                missing = []
            unknown = sorted(set(weights) - set(names))
            if unknown or missing:
                raise UserError(
                    f"sampling weights must name exactly {', '.join(names)}; unknown:"
                    f" {', '.join(unknown) or 'none'}, missing: {', '.join(missing) or 'none'}"
                )
            # Exponent 1: given weights are taken as they are and only brought to sum 1.
            shares = smoothed([weights[name] for name in names], 1.0)
        else:
            shares = smoothed(list(counts.values()), alpha)
        return dict(zip(names, shares.tolist(), strict=True))


def sampling_table(
    sizes: Mapping[str, Mapping[str, float]], shares: Mapping[str, float], *, rows_per_step: int
) -> list[dict[str, Any]]:
    """One JSON row per language or pair: sentences, tokens, rows, share, epochs in 1000 steps.

    `sizes[name]`: `sentences`, `tokens`, `rows` of one pass; a step draws `rows_per_step`.
    """
    table = []
    for name, share in shares.items():
        size = sizes[name]
        # Per thousand steps, since a source does not know how long its run is.
        epochs = 1000 * rows_per_step * share / size["rows"]
        row = {
            "name": name,
            **{count: round(size[count]) for count in ("sentences", "tokens", "rows")},
            "share": round(share, 6),
            "epochs_per_1000_steps": round(epochs, 4),
        }
        table.append(row)
    return table


def format_table(table: Sequence[Mapping[str, Any]], steps: int | None = None) -> str:
    """The sampling table for the terminal; with `steps`, epochs of a run of that many steps."""
    title = "epochs/1k steps"
    if steps:
        title = "epochs"
    lines = [f"{'text':<10}{'sentences':>12}{'tokens':>14}{'rows':>10}{'share':>9}{title:>17}"]
    for row in table:
        epochs = row["epochs_per_1000_steps"] * (steps or 1000) / 1000
        lines.append(
            f"{row['name']:<10}{row['sentences']:>12,}{row['tokens']:>14,}{row['rows']:>10,}{row['share']:>9.2%}{epochs:>17.2f}"
        )
    return "\n".join(lines)
