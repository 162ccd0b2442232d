"""What the loop measures now and then: the contract of `evaluation/`."""

import abc
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from xlingjax.data.overlap import HeldOut
from xlingjax.model.config import ModelConfig
from xlingjax.model.encoder import Encoder


class Evaluator(abc.ABC):
    """Measures a model between two steps; `train(evaluators=[...])` takes them."""

    name: str
    """In evaluations.jsonl, and before the name of a metric: "nli_dev/mean"."""
    at_end = False
    """True: not before the last step, for what takes long."""

    def require(self, model: ModelConfig) -> None:  # noqa: B027, most ask for nothing
        """Raises UserError, before the first step, for a model that it cannot measure."""

    def held_out(self) -> Sequence[HeldOut]:
        """Lines that it measures on and no training text should have."""
        return ()

    def examples(self) -> Iterable[tuple[str, Sequence[Any]]]:
        """(file, labelled records) that it measures on and none of which should be trained on."""
        return ()

    @abc.abstractmethod
    def __call__(
        self, model: Encoder, params: Any, step: int, mesh: jax.sharding.Mesh | None
    ) -> dict[str, Any]:
        """Scalars, or dicts and lists of them. All processes call it; it must not keep `params`."""

    def verdict(self, values: Mapping[str, Mapping[str, Any]]) -> str:
        """A line that is said at the run's end; "": none. values: the last of each evaluator."""
        return ""
