"""What a run trains on: its objectives in stages, a source of batches for each, checked before the
first step."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from xlingjax.data.features import FIELDS
from xlingjax.data.loader import BatchSource, to_global
from xlingjax.errors import UserError
from xlingjax.model.encoder import Encoder
from xlingjax.model.partition import batch_sharding, check_rows
from xlingjax.objectives.base import Objective
from xlingjax.training.run_record import check_length, required_fields, run_languages
from xlingjax.training.schedule import Weight
from xlingjax.training.stages import stage_name


@dataclasses.dataclass(frozen=True)
class ObjectiveRun:
    """One objective of a run, where its batches come from, and its weight (see
    `schedule.turns`)."""

    objective: Objective
    source: Callable[[], BatchSource]
    weight: Weight = 1.0


def in_stages(entry: ObjectiveRun | Mapping[int, ObjectiveRun]) -> Mapping[int, ObjectiveRun]:
    """{first step: what runs from there on}."""
    return entry if isinstance(entry, Mapping) else {0: entry}


class Feed:
    """The batches of a run, by stage: an objective that changes has one for each (see
    `stages.stage_name`)."""

    names: list[str]
    """Of the objectives, in order."""
    weights: list[Weight]
    starts: set[int]
    """Steps at which a stage begins."""
    runs: dict[str, ObjectiveRun]
    """By stage."""
    sources: dict[str, BatchSource]
    shapes: dict[str, dict[str, tuple[int, ...]]]
    """By stage, of the fields that it reads."""
    languages: tuple[str, ...]

    def __init__(
        self,
        objectives: Sequence[ObjectiveRun | Mapping[int, ObjectiveRun]],
        model: Encoder,
        mesh: jax.sharding.Mesh,
        microbatches: int,
    ):
        """Raises UserError for what can be refused before any text is read."""
        self._stages = [in_stages(entry) for entry in objectives]
        self._model, self._mesh, self._microbatches = model, mesh, microbatches
        self.names = [of[0].objective.name for of in self._stages]
        if len({*self.names}) != len(self.names) or not self.names:
            raise UserError(f"a run needs objectives of different names, got {self.names}")
        self.weights = [of[0].weight for of in self._stages]
        self.starts = {begin for of in self._stages for begin in of}
        self.runs = {
            stage_name(run.objective.name, begin): run
            for of in self._stages
            for begin, run in of.items()
        }
        self.sources = {}
        for name, run in self.runs.items():
            if known := getattr(run.source, "shapes", None):
                self._check(name, known)

    def open(self) -> None:
        """Raises UserError for data that does not fit its objective, the model or the mesh."""
        for name, run in self.runs.items():
            self.sources[name] = run.source()
        self.languages = run_languages(self.sources, self._model.config)
        self.shapes = {
            name: required_fields(name, run.objective.reads, self.sources[name].shapes)
            for name, run in self.runs.items()
        }
        for name, run in self.runs.items():
            if not getattr(run.source, "shapes", None):
                self._check(name, self.shapes[name])

    def _check(self, name: str, shapes: Mapping[str, Any]) -> None:
        objective = self.runs[name].objective
        if self._microbatches > 1 and getattr(objective, "whole_batch", False):
            raise UserError(
                f"objective {name} compares the rows of a batch with each other:"
                f" {self._microbatches} microbatches would make it another one; set MICROBATCHES=1"
            )
        settings = getattr(self.runs[name].source, "settings", {})
        tokens = settings.get("language_tokens")
        if tokens is not None and tokens != bool(self._model.config.language_tokens):
            raise UserError(
                f"objective {name}: LANGUAGE_TOKENS={tokens}, and model {self._model.config.name}"
                f" has {self._model.config.language_tokens or 'no'} tokens of languages; set it as"
                " the model has it"
            )
        if (
            "directions" in settings
            and not settings["within"]
            and not tokens
            and not self._model.config.num_languages
        ):
            targets = {way.split("-")[1] for way in settings["directions"]}
            if len(targets) != 1:
                raise UserError(
                    f"objective {name} writes"
                    f" {' and '.join(sorted(targets)) or 'both languages of its pairs'}, and"
                    " nothing tells the decoder which: set LANGUAGE_TOKENS=True,"
                    " LANGUAGE_EMBEDDING=True, or DIRECTIONS into one language"
                )
        required = required_fields(name, objective.reads, shapes)
        positions = getattr(self.runs[name].source, "positions", 0)
        check_length(name, shapes["input_ids"][1], self._model.config, positions)
        check_rows(self._mesh, shapes["input_ids"][0], self._microbatches, f"objective {name}")
        batch = {
            field: jax.ShapeDtypeStruct(shape, FIELDS[field].dtype)
            for field, shape in required.items()
        }
        loss = partial(objective.loss, self._model, rng=jax.random.key(0), languages=1)
        jax.eval_shape(
            loss, self._model.abstract(), batch
        )  # the model or the attention backend may refuse

    def stage(self, index: int, step: int) -> str:
        """The stage that objective number `index` is in at a step."""
        return stage_name(
            self.names[index], max(begin for begin in self._stages[index] if begin <= step)
        )

    def next(self, name: str, when: str) -> dict[str, np.ndarray]:
        """This host's rows of the next batch of a stage. Raises UserError when its data has
        ended."""
        try:
            return self.sources[name].next()
        except StopIteration:
            raise UserError(f"the data of {name} ended at {when}; let it repeat") from None

    def on_devices(self, name: str, rows: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        """The fields that the objective reads, as global arrays."""
        rows = {field: rows[field] for field in self.shapes[name]}
        return to_global(rows, batch_sharding(self._mesh), self.shapes[name])

    def close(self) -> None:
        for source in self.sources.values():
            source.close()
