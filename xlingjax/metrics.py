"""Metric sums: added up on the device, fetched at log steps only, divided once."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_add = jax.jit(lambda total, more: jax.tree.map(jnp.add, total, more), donate_argnums=0)


class Accumulator:
    """Adds up a tree of sums without waiting for the device."""

    def __init__(self):
        self._total = None

    def add(self, sums: Any) -> None:
        self._total = sums if self._total is None else _add(self._total, sums)

    def fetch(self) -> Any | None:
        """The sums since the last fetch as NumPy arrays (None if there were none), and start again from nothing."""
        total, self._total = self._total, None
        return None if total is None else jax.tree.map(np.asarray, total)


def ratio(total: Any, weight: Any) -> float | None:
    """total / weight, or None where nothing was counted."""
    return float(total) / float(weight) if float(weight) > 0 else None


def perplexity(nll: float | None) -> float | None:
    """exp of a mean negative log-likelihood in nats; infinite instead of an overflow."""
    if nll is None:
        return None
    return math.exp(nll) if nll < 700 else math.inf


def summarise(metrics: dict[str, tuple[Any, Any]], languages: Sequence[str]) -> dict[str, Any]:
    """Means from (sum, weight) pairs. The objective's name is cut from "mlm/loss"; an array over languages becomes
    {language: mean} of those that were seen; a metric that counted nothing is left out. `perplexity` stands beside
    every `loss`."""
    means: dict[str, Any] = {}
    for name, (total, weight) in metrics.items():
        short = name.split("/", 1)[-1]
        if np.ndim(total) == 0:
            value = ratio(total, weight)
        else:
            value = {language: ratio(t, w) for language, t, w in zip(languages, total, weight, strict=True) if w > 0}
        if value is None or value == {}:
            continue
        means[short] = value
        if short == "loss":
            means["perplexity"] = perplexity(value)
    return means
