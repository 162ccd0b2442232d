"""Metric sums: added up on the device, fetched at log steps only, divided once."""

import hashlib
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@partial(jax.jit, donate_argnums=0)
def _add(total: Any, more: Any) -> Any:
    return jax.tree.map(jnp.add, total, more)


class Interval:
    """What one objective's steps add up to between two log lines. Adding does not wait for the
    device."""

    def __init__(self):
        self._total: Any = None
        self._hashes: list[str] = []
        self._steps = 0
        self._tokens = 0

    def tokens_per_step(self) -> float:
        """Mean over all steps that were closed."""
        return self._tokens / max(1, self._steps)

    def add(self, sums: dict[str, Any], batch_hash: str = "") -> None:
        """`sums`: what `step.train_step` returns; `batch_hash`: of the step's batch, if it is to be
        logged."""
        if self._total is None:
            self._total = sums
        else:
            # On the device: the host would have to wait for the numbers to add them.
            self._total = _add(self._total, sums)
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
        # The one place where the host waits for them, once for all.
        total = jax.tree.map(np.asarray, self._total)
        hashes = self._hashes
        self._total = None
        self._hashes = []
        steps = int(total["steps"])
        good = int(total["good"])
        tokens = int(total["tokens"])
        self._steps += steps
        self._tokens += tokens
        line = summarise(total["metrics"], languages)
        # By good steps: one that was skipped adds nothing to either.
        for key in ("total", "grad_norm"):
            line[key] = ratio(total[key], good)
        line["steps"] = steps
        line["skipped"] = steps - good
        if len(hashes) == 1:
            line["batch_hash"] = hashes[0]
        elif hashes:
            line["batch_hash"] = hashlib.sha256("".join(hashes).encode()).hexdigest()
        return line, tokens


def apart(sums: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """{objective: its part} of what a step of several adds up to: its metrics and tokens, and a
    copy of what all share (`Interval` gives buffers away)."""
    shared = dict(sums)
    for name in ("metrics", "tokens"):
        shared.pop(name, None)
    parts = {}
    for name, metrics in sums["metrics"].items():
        part = jax.tree.map(jnp.copy, shared)
        part["metrics"] = metrics
        part["tokens"] = sums["tokens"][name]
        parts[name] = part
    return parts


def ratio(total: Any, weight: Any) -> float | None:
    """total / weight, or None where nothing was counted."""
    if float(weight) > 0:
        return float(total) / float(weight)
    return None


def perplexity(nll: float) -> float:
    """exp of a mean negative log-likelihood in nats; infinite instead of an overflow."""
    if nll < 700:
        return math.exp(nll)
    return math.inf


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
        totals, weights = zip(*of_terms.values(), strict=True)
        pairs = {key: (sum(totals), sum(weights))}
        # Of one term the mean is that of all; per language only the mean of all is kept.
        if len(of_terms) > 1 and np.ndim(pairs[key][0]) == 0:
            for term, pair in of_terms.items():
                pairs[f"{term}/{key}"] = pair
        for name, (total, weight) in pairs.items():
            value = _mean(total, weight, languages)
            if value is None or value == {}:
                continue
            means[name] = value
            if name == "loss":
                means["perplexity"] = perplexity(value)
    return means


def _mean(total: Any, weight: Any, languages: Sequence[str]) -> Any:
    if np.ndim(total) == 0:
        return ratio(total, weight)
    means = {}
    for language, t, w in zip(languages, total, weight, strict=True):
        # A language that was not seen in the interval has no mean, rather than 0.
        if w > 0:
            means[language] = ratio(t, w)
    return means
