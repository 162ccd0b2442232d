"""What an objective is: the fields it reads, who may see whom, and sums that only `step.py` divides."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from xlingjax.model.attention import AttentionSpec
from xlingjax.model.encoder import Encoder

Array = jax.Array
Batch = Mapping[str, Array]
Params = dict[str, Any]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Loss:
    """What one (micro)batch adds up to. Adding two of them leaf by leaf gives that of both batches together."""

    terms: dict[str, Array]
    """Scalar float32 sums over predictions, to be divided by the objective's `weights`."""
    metrics: dict[str, tuple[Array, Array]]
    """name -> (sum, weight), of equal shape: a scalar, or [G] for one value per language."""


class Objective(Protocol):
    """Total loss = sum over terms of coefficient * sum of the term / sum of its weight, over the global batch."""

    name: str
    reads: tuple[str, ...]
    coefficients: dict[str, float]

    def attention(self) -> AttentionSpec: ...

    def weights(self, batch: Batch) -> dict[str, Array]:
        """Per term the number of predictions, a float32 scalar; a function of the batch alone."""
        ...

    def loss(self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int) -> Loss:
        """`rng` None = evaluation, no dropout. `languages`: G, the length of the per-language metrics."""
        ...


def metrics_by_language(name: str, values: dict[str, Array], weights_T: Array, languages_T: Array, languages: int):
    """`name/KEY` and `name/KEY_by_language` for every per-token `values[KEY]`, as (sum, weight) pairs."""
    weights_GT = weights_T * (languages_T == jnp.arange(languages)[:, None])
    metrics = {}
    for key, value_T in values.items():
        metrics[f"{name}/{key}"] = ((value_T * weights_T).sum(), weights_T.sum())
        metrics[f"{name}/{key}_by_language"] = ((weights_GT * value_T).sum(-1), weights_GT.sum(-1))
    return metrics


def together(*losses: Loss) -> Loss:
    """The terms and metrics of several losses, of different names, as one."""
    return Loss(
        {name: term for loss in losses for name, term in loss.terms.items()},
        {name: metric for loss in losses for name, metric in loss.metrics.items()},
    )
