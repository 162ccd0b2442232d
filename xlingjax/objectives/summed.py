"""Several objectives in one update (the other reading of Unicoder §3: their losses summed, not
taken in turn)."""

import dataclasses
from collections.abc import Mapping

import jax

from xlingjax.model.encoder import Encoder
from xlingjax.objectives.base import Array, Batch, Loss, Objective, Params
from xlingjax.objectives.ramp import Ramp


@dataclasses.dataclass(frozen=True)
class Summed:
    """The sum of the objectives' losses, each times its factor and over a batch of its own. The
    batch is {name: batch of that objective}, and so are the metrics; a term is called "name/term".
    """

    parts: Mapping[str, tuple[Objective, float]]  # {name: (objective, factor)}

    @property
    def coefficients(self) -> dict[str, float | Ramp]:
        # With the name of its objective, since two may call a term alike.
        return {
            f"{name}/{term}": factor * coefficient
            for name, (objective, factor) in self.parts.items()
            for term, coefficient in objective.coefficients.items()
        }

    @property
    def whole_batch(self) -> bool:
        return any(objective.whole_batch for objective, _ in self.parts.values())

    def in_parts(self, parts: int) -> "Summed":
        cut = {name: (one.in_parts(parts), factor) for name, (one, factor) in self.parts.items()}
        return dataclasses.replace(self, parts=cut)

    def weights(self, batch: Mapping[str, Batch]) -> dict[str, Array]:
        return {
            f"{name}/{term}": weight
            for name, (objective, _) in self.parts.items()
            for term, weight in objective.weights(batch[name]).items()
        }

    def loss(
        self,
        model: Encoder,
        params: Params,
        batch: Mapping[str, Batch],
        rng: Array | None,
        languages: int,
    ) -> Loss:
        terms, metrics = {}, {}
        for number, (name, (objective, _)) in enumerate(self.parts.items()):
            # No two objectives drop the same units.
            part_rng = None if rng is None else jax.random.fold_in(rng, number)
            loss = objective.loss(model, params, batch[name], part_rng, languages)
            terms |= {f"{name}/{term}": value for term, value in loss.terms.items()}
            metrics[name] = loss.metrics
        return Loss(terms, metrics)
