"""`xlingjax verify`: does every prediction depend on what its objective promises, and on nothing
else?"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from xlingjax.data.batches.loader import BatchSource
from xlingjax.model.encoder import Encoder
from xlingjax.objectives.base import Objective
from xlingjax.objectives.leak import Visibility, prediction_visibility

LEAST_MOVED = 0.5
"""In less than float32 a shift of one word among hundreds may round to nothing; of those seen this
share must move."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One entry of an objective's `predictions`: pairs (prediction, word) of real words."""

    objective: str
    predictions: str
    hidden: int
    leaks: int
    seen: int
    moved: int
    exact: bool  # whether every word that is seen must move the prediction (float32)

    @property
    def verdict(self) -> str:
        if self.leaks:
            return "leaks"
        share = LEAST_MOVED
        if self.exact:
            share = 1.0
        if not self.seen or self.moved < self.seen * share:
            return "blind"
        return "ok"


def verify(
    objectives: Mapping[str, tuple[Objective, BatchSource]], model: Encoder, rows: int
) -> Iterator[Finding]:
    """The leak test of every objective on the first rows of a batch of its own, with random
    parameters. objectives: by the names of their stages."""
    params = random_parameters(model)
    for stage, (objective, source) in objectives.items():
        # Of real text, so that packs, sides and padding are those of a run.
        drawn = source.next()
        batch = {name: np.asarray(drawn[name][:rows]) for name in objective.reads}
        # Back-translation predicts from a source that it writes first: the second pass is tested.
        objective, batch = objective.as_read(model, params, batch)
        batch = {name: np.asarray(values) for name, values in batch.items()}
        exact = model.config.dtype == "float32"
        words = objective.words(batch)
        for name, seen in prediction_visibility(objective, model, params, batch).items():
            yield finding(stage, name, seen, words, exact=exact)


def finding(
    objective: str, predictions: str, found: Visibility, batch: dict[str, np.ndarray], exact: bool
) -> Finding:
    # A slot that nothing may reach and nothing reached is an unused one.
    made_BM1 = found.allowed.any(-1, keepdims=True) | found.moved.any(-1, keepdims=True)
    words_BMS = made_BM1 & (batch["pack_ids"] > 0)[:, None, :]
    return Finding(
        objective,
        predictions,
        hidden=int((words_BMS & ~found.allowed).sum()),
        leaks=len(found.leaks),
        seen=int(found.allowed.sum()),
        moved=int((found.allowed & found.moved).sum()),
        exact=exact,
    )


def random_parameters(model: Encoder) -> Any:
    """Initial parameters with noise, so that none is 0 and none hides what it should pass on."""

    def noisy(leaf, key):
        scale = jax.numpy.maximum(jax.numpy.std(leaf), 0.02)
        return leaf + 0.5 * scale * jax.random.normal(key, leaf.shape)

    @jax.jit
    def make(key):
        params = model.init(key)
        # A key for each leaf, or leaves of one shape would get the same noise.
        leaves, tree = jax.tree.flatten(params)
        keys = jax.random.split(jax.random.fold_in(key, 1), len(leaves))
        leaves = [noisy(leaf, key) for leaf, key in zip(leaves, keys, strict=True)]
        return tree.unflatten(leaves)

    return make(jax.random.key(0))


def table(findings: Sequence[Finding], title: str) -> Any:
    """A rich table, a line per finding."""
    from rich.table import Table

    result = Table(title=title, title_justify="left", box=None, header_style="dim")
    for name in ("objective", "predictions"):
        # rich would shorten names to fit a narrow terminal.
        result.add_column(name, no_wrap=True, overflow="ignore")
    for name in ("hidden pairs", "leaks", "seen pairs", "moved"):
        result.add_column(name, justify="right", no_wrap=True)
    result.add_column("verdict")
    for f in findings:
        style = "green" if f.verdict == "ok" else "red"
        counts = (f"{count:,}" for count in (f.hidden, f.leaks, f.seen, f.moved))
        result.add_row(f.objective, f.predictions, *counts, f"[{style}]{f.verdict}[/]")
    return result
