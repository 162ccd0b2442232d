"""Metric sums: added up on the device, fetched at log steps only, divided once."""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_add = jax.jit(lambda total, more: jax.tree.map(jnp.add, total, more), donate_argnums=0)


class Interval:
    """What one objective's steps add up to between two log lines. Adding does not wait for the
    device."""

    def __init__(self):
        self._total: Any = None
        self._hashes: list[str] = []
        self._steps = self._tokens = 0

    def tokens_per_step(self) -> float:
        """Mean over all steps that were closed."""
        return self._tokens / max(1, self._steps)

    def add(self, sums: dict[str, Any], batch_hash: str = "") -> None:
        """`sums`: what `step.train_step` returns; `batch_hash`: of the step's batch, if it is to be
        logged."""
        self._total = sums if self._total is None else _add(self._total, sums)
        if batch_hash:
            self._hashes.append(batch_hash)

    def close(self, languages: Sequence[str]) -> tuple[dict[str, Any], int] | None:
        """(log line, tokens) and start again from nothing; None if nothing was added. Waits for the
        device.

        The line's `loss` is the mean over predictions, `total` and `grad_norm` the mean over steps
        that were not skipped, `batch_hash` the batch's hash, or with several steps the SHA-256 of
        all of theirs in order.
        """
        if self._total is None:
            return None
        total, hashes = jax.tree.map(np.asarray, self._total), self._hashes
        self._total, self._hashes = None, []
        steps, good = int(total["steps"]), int(total["good"])
        line = summarise(total["metrics"], languages)
        line |= {key: ratio(total[key], good) for key in ("total", "grad_norm")}
        line |= {"steps": steps, "skipped": steps - good}
        self._steps, self._tokens = self._steps + steps, self._tokens + int(total["tokens"])
        if hashes:
            line["batch_hash"] = (
                hashes[0]
                if len(hashes) == 1
                else hashlib.sha256("".join(hashes).encode()).hexdigest()
            )
        return line, int(total["tokens"])


def apart(sums: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """{objective: its part} of what a step of several adds up to: its metrics and tokens, and a
    copy of what all share (`Interval` gives buffers away)."""
    common = {name: value for name, value in sums.items() if name not in ("metrics", "tokens")}
    return {
        name: {**jax.tree.map(jnp.copy, common), "metrics": metrics, "tokens": sums["tokens"][name]}
        for name, metrics in sums["metrics"].items()
    }


def ratio(total: Any, weight: Any) -> float | None:
    """total / weight, or None where nothing was counted."""
    return float(total) / float(weight) if float(weight) > 0 else None


def perplexity(nll: float) -> float:
    """exp of a mean negative log-likelihood in nats; infinite instead of an overflow."""
    return math.exp(nll) if nll < 700 else math.inf


def summarise(metrics: dict[str, tuple[Any, Any]], languages: Sequence[str]) -> dict[str, Any]:
    """Means from (sum, weight) pairs. The name of the term is cut from "mlm/loss"; of several terms
    "loss" is the mean over all their predictions, and each has its own "veco_plug_in_x/loss" beside
    it. An array over languages becomes {language: mean} of those that were seen; a metric that
    counted nothing is left out. `perplexity` stands beside the `loss`."""
    terms: dict[str, dict[str, tuple[Any, Any]]] = {}
    for name, pair in metrics.items():
        term, _, key = name.rpartition("/")
        terms.setdefault(key, {})[term] = pair
    means: dict[str, Any] = {}
    for key, of_terms in terms.items():
        pooled = tuple(sum(parts) for parts in zip(*of_terms.values(), strict=True))
        several = len(of_terms) > 1 and np.ndim(pooled[0]) == 0
        alone = {f"{term}/{key}": pair for term, pair in of_terms.items()} if several else {}
        for name, (total, weight) in {key: pooled, **alone}.items():
            if np.ndim(total) == 0:
                value = ratio(total, weight)
            else:
                value = {
                    lang: ratio(t, w)
                    for lang, t, w in zip(languages, total, weight, strict=True)
                    if w > 0
                }
            if value is None or value == {}:
                continue
            means[name] = value
            if name == "loss":
                means["perplexity"] = perplexity(value)
    return means
