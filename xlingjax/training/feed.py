"""What a run trains on: objectives in stages, each with its source, checked before step 1."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from xlingjax.data.batches.loader import Batches, BatchSource, to_global
from xlingjax.data.features import FIELDS, batch_hash
from xlingjax.data.store.tokenise import BlockText
from xlingjax.errors import UserError, require_numbers, require_whole
from xlingjax.model.encoder import Encoder
from xlingjax.model.partition import batch_sharding, check_rows
from xlingjax.objectives.base import Objective
from xlingjax.objectives.summed import Summed
from xlingjax.training.run_record import (
    check_length,
    required_fields,
    run_languages,
    schedule_record,
)
from xlingjax.training.schedule import Weight, turns
from xlingjax.training.stages import latest, stage_name


@dataclasses.dataclass(frozen=True)
class ObjectiveRun:
    """One objective of a run, where its batches come from, and its weight (see
    `schedule.turns`).

    source: `Batches`, or a function that opens a source of which nothing is known before.
    """

    objective: Objective
    source: Batches | Callable[[], BatchSource]
    weight: Weight = 1.0

    def __post_init__(self):
        require_numbers(self, "[0, inf)", "weight", f"{self.objective.name}: ")
        chunk = {"chunk": getattr(self.objective, "chunk", 0)}
        require_whole(chunk, "[0, inf)", "chunk", f"{self.objective.name}: ")

    @property
    def batches(self) -> Batches:
        """The source, with what is known of it before it is open."""
        if isinstance(self.source, Batches):
            return self.source
        return Batches(shapes={}, opener=self.source)


@dataclasses.dataclass(frozen=True)
class Turn:
    """What runs at one step."""

    names: str  # of its objectives, " + " between them
    label: str  # the same of their stages
    factors: dict[str, float]  # {stage: the factor of its loss}
    objective: Any  # an `Objective`, or their `Summed`

    @property
    def summed(self) -> bool:
        return isinstance(self.objective, Summed)


def in_stages(entry: ObjectiveRun | Mapping[int, ObjectiveRun]) -> Mapping[int, ObjectiveRun]:
    """{first step: what runs from there on}."""
    if isinstance(entry, Mapping):
        return entry
    return {0: entry}


@dataclasses.dataclass
class Feed:
    """The batches of a run, by stage: an objective that changes has one for each (see
    `stages.stage_name`). Raises UserError for what can be refused before any text is read."""

    given: dataclasses.InitVar[Sequence[ObjectiveRun | Mapping[int, ObjectiveRun]]]
    """The objectives."""
    model: Encoder
    mesh: jax.sharding.Mesh
    microbatches: int

    def __post_init__(self, given: Any) -> None:
        self._stages = list(map(in_stages, given))
        # Name and weight are those of the first stage: an objective keeps them.
        self.names = [stages[0].objective.name for stages in self._stages]
        self.weights = [stages[0].weight for stages in self._stages]
        if not self.names or len(set(self.names)) != len(self.names):
            raise UserError(f"a run needs objectives of different names, got {self.names}")
        self.starts = {begin for stages in self._stages for begin in stages}
        self.runs = {
            stage_name(run.objective.name, begin): run
            for stages in self._stages
            for begin, run in stages.items()
        }
        self.sources: dict[str, BatchSource] = {}
        for name, run in self.runs.items():
            # What a source says of its shapes spares the reading of a large corpus.
            if run.batches.shapes:
                self._check(name, run.batches.shapes)
            # Lengths are multiples of the shortest: a backend that takes that takes all.
            if run.batches.shortest:
                shortest = required_fields(name, run.objective.reads, run.batches.shortest)
                self._trace(run.objective, shortest)

    def open(self) -> None:
        """Raises UserError for data that does not fit its objective, the model or the mesh."""
        for name, run in self.runs.items():
            self.sources[name] = run.source()
        # Ids of languages index the model's embedding, so all sources must number them alike.
        self.languages = run_languages(self.sources, self.model.config)
        # Of the fields that an objective reads.
        self.shapes = {
            name: required_fields(name, run.objective.reads, self.sources[name].shapes)
            for name, run in self.runs.items()
        }
        for name, run in self.runs.items():
            if not run.batches.shapes:
                self._check(name, self.shapes[name])

    @property
    def texts(self) -> list[BlockText]:
        """What the sources read, where it is text."""
        texts = [getattr(source, "texts", ()) for source in self.sources.values()]
        return [text for of_source in texts for text in of_source]

    @property
    def objectives(self) -> dict[str, Objective]:
        """By stage."""
        return {name: run.objective for name, run in self.runs.items()}

    def course(self, steps: int, schedule: str, optimizer: Any) -> dict[str, Any]:
        """What run.json says of the course of a run of `steps` steps."""
        record = schedule_record(
            self.runs, dict(zip(self.names, self.weights, strict=True)), steps, schedule, optimizer
        )
        return {"microbatches": self.microbatches, **record}

    def _check(self, name: str, shapes: Mapping[str, Any]) -> None:
        run = self.runs[name]
        objective = run.objective
        self._check_languages(name, run.batches.settings)
        required = required_fields(name, objective.reads, shapes)
        rows, length = shapes["input_ids"]
        check_length(name, length, self.model.config, run.batches.positions)
        check_rows(self.mesh, rows, self.microbatches, f"objective {name}")
        self._trace(objective, required)

    def _trace(self, objective: Objective, shapes: Mapping[str, Any]) -> None:
        """Computes nothing, but the model or the attention backend may refuse."""
        batch = {
            field: jax.ShapeDtypeStruct(shape, FIELDS[field].dtype)
            for field, shape in shapes.items()
        }
        loss = partial(objective.loss, self.model, rng=jax.random.key(0), languages=1)
        jax.eval_shape(loss, self.model.abstract(), batch)

    def _check_languages(self, name: str, settings: Mapping[str, Any]) -> None:
        """The data names languages by tokens exactly where the model has such tokens, and a decoder
        that writes several languages must be able to know which."""
        tokens = settings.get("language_tokens")
        config = self.model.config
        of_model = "both" if config.source_tokens else bool(config.language_tokens)
        if tokens is not None and tokens != of_model:
            raise UserError(
                f"objective {name}: LANGUAGE_TOKENS={tokens!r}, and model {config.name}"
                f" has {config.language_tokens or 'no'} tokens of languages: set {of_model!r}"
            )
        if "directions" not in settings or settings["within"] or tokens or config.num_languages:
            return
        # None named means both ways, which are two languages.
        if len({direction.split("-")[1] for direction in settings["directions"]}) != 1:
            raise UserError(
                f"objective {name} writes several languages, and nothing tells the decoder which:"
                " set LANGUAGE_TOKENS=True, LANGUAGE_EMBEDDING=True, or DIRECTIONS into one"
                " language"
            )

    def stage(self, index: int, step: int) -> str:
        """The stage that objective number `index` is in at a step."""
        return stage_name(self.names[index], latest(self._stages[index], step))

    def turn(self, step: int, seed: int, schedule: str) -> Turn:
        """What runs at a step, see `schedule.turns`."""
        of_step = turns(step, seed, self.weights, schedule)
        factors = {self.stage(index, step): factor for index, factor in of_step.items()}
        # The program is compiled for the stages, not for the names: their terms may be others.
        label = " + ".join(factors)
        if schedule == "summed":
            parts = {name: (self.runs[name].objective, factor) for name, factor in factors.items()}
            objective: Any = Summed(parts)
        else:
            objective = self.runs[label].objective
        return Turn(" + ".join(self.names[n] for n in of_step), label, factors, objective)

    def next(self, turn: Turn, when: str) -> dict[str, dict[str, np.ndarray]]:
        """{stage: this host's rows of its next batch}. Raises UserError when data have ended."""
        rows = {}
        for name in turn.factors:
            try:
                rows[name] = self.sources[name].next()
            except StopIteration:
                raise UserError(f"the data of {name} ended at {when}; let it repeat") from None
        return rows

    def on_devices(self, turn: Turn, rows: Mapping[str, Mapping[str, np.ndarray]]) -> Any:
        """The batch of a turn as global arrays, of each objective the fields that it reads; of
        several {stage: batch}."""
        sharding = batch_sharding(self.mesh)
        batch = {}
        for name in turn.factors:
            read = {}
            shapes = {}
            for field, shape in self.shapes[name].items():
                read[field] = rows[name][field]
                # A batch may be padded less than the longest; of its rows this host may have some.
                shapes[field] = (shape[0], *read[field].shape[1:])
            # What no objective reads stays on the host: copying it would take the step's time.
            batch[name] = to_global(read, sharding, shapes)
        if turn.summed:
            return batch
        return batch[turn.label]

    def batch_hash(self, name: str, rows: Mapping[str, np.ndarray]) -> str:
        """Of a stage's whole batch, whose parts all hosts gather: every one of them has to ask."""
        whole = {}
        for field, array in rows.items():
            whole[field] = array
            if len(array) < self.sources[name].shapes[field][0]:
                # In the order of the processes, in which their rows stand in the batch.
                whole[field] = multihost_utils.process_allgather(array, tiled=True)
        return batch_hash(whole)

    def close(self) -> None:
        for source in self.sources.values():
            source.close()
