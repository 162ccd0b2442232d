"""The programs that a recipe's run would compile, compiled for devices that are not there. It is a
process of its own, started by `plan.measured`: a compiler that fails takes nothing else with it.

`python -m xlingjax.workflows.plan_programs` reads a request from its standard input and writes the
figures to the file that the request names, both JSON.
"""

import dataclasses
import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from xlingjax.config.recipe import Recipe, read_recipe
from xlingjax.data.features import FIELDS, TOKEN_FIELDS
from xlingjax.errors import UserError, in_one_line
from xlingjax.inference.forward import compiled as program_of
from xlingjax.inference.forward import on_xla
from xlingjax.inference.generate import search_texts
from xlingjax.model.build import build_model
from xlingjax.model.decoding import Decoding, Ids
from xlingjax.model.memory import SHARE, device_bytes
from xlingjax.model.partition import (
    MeshConfig,
    batch_sharding,
    first_device,
    make_mesh,
    mesh_sizes,
    replicated,
    row_devices,
)
from xlingjax.model.seq2seq import Seq2Seq
from xlingjax.runtime.accelerators import machine_named
from xlingjax.runtime.compilers import devices_of
from xlingjax.runtime.program_text import Collective, Program, by_kind
from xlingjax.runtime.traced_program import dot_flops
from xlingjax.training.feed import Feed, Turn
from xlingjax.training.loop import require_loss_scale
from xlingjax.training.optimizer import Optimizer, OptimizerConfig, make_optimizer
from xlingjax.training.programs import AHEAD
from xlingjax.training.schedule import check as check_schedule
from xlingjax.training.stages import latest, starts
from xlingjax.training.step import (
    TrainState,
    abstract_state,
    eval_step,
    lower_state,
    make_train_step,
)
from xlingjax.training.step_memory import Needs, bytes_of_device
from xlingjax.workflows.table_flops import step_flops

HERE = "here"
"""In place of a machine: the devices of this one."""
EVALUATED_ROWS = 16
"""Rows of a batch on which a run measures itself."""
SEARCHED = Decoding(beams=5)
"""As `xlingjax translate` searches."""
SEARCHED_TOKENS = 4096
"""Of the sources of a batch, times the beams: its default, too."""


@dataclasses.dataclass
class Use:
    """Of a program."""

    turn: Turn
    first: int
    """A step at which it runs."""
    steps: float = 0.0
    """How many of the run are its own; where turns are drawn, about."""


class Planned:
    """A recipe's run on a mesh, up to its programs."""

    def __init__(self, recipe: Recipe, mesh: Mesh):
        """Raises UserError for what `train` refuses before it reads text."""
        bound = recipe.bound
        require_loss_scale(bound["model"], bound.get("optimizer", OptimizerConfig()))
        self.mesh = mesh
        self.steps: int = bound["steps"]
        self.schedule: str = bound.get("schedule", "alternate")
        self.seed: int = bound.get("seed", 0)
        self.microbatches: int = bound.get("microbatches", 1)
        self.config: OptimizerConfig = bound.get("optimizer", OptimizerConfig())
        self.model = build_model(bound["model"], mesh)
        self.optimizer: Optimizer = make_optimizer(self.config, self.steps, self.model.abstract())
        self.state: TrainState = abstract_state(mesh, self.model, self.optimizer, self.config)
        self.feed = Feed(bound["objectives"], self.model, mesh, self.microbatches)
        check_schedule(self.feed.weights, self.schedule, self.steps)
        self.frozen_from = starts([self.config.frozen])
        self.languages = self.feed.languages_before_open() or 1
        self._rng_impl: str = bound.get("rng_impl", "threefry2x32")

    def turns(self) -> dict[str, Use]:
        """{name of a program: what it is used for}, of all stages of the run."""
        found: dict[str, Use] = {}
        begins = {0, *self.feed.starts, *self.frozen_from}
        begins.update(starts(self.feed.weights))
        bounds = [*sorted(one for one in begins if one < self.steps)]
        for begin, end in pairwise([*bounds, self.steps]):
            looked_at = min(end - begin, AHEAD)
            for step in range(begin, begin + looked_at):
                turn = self.feed.turn(step, self.seed, self.schedule)
                stage = latest(self.frozen_from, step)
                name = turn.label
                if stage:
                    name += f" from step {stage}"
                use = found.setdefault(name, Use(turn, step))
                # The rest of the stage is as its beginning.
                use.steps += (end - begin) / looked_at
        return found

    def batch(self, turn: Turn, rows: int = 0) -> Any:
        """Shapes of a turn's batch, the longest where they vary. rows: of it, 0: the run's."""
        lies = batch_sharding(self.mesh)
        batch: dict[str, Any] = {}
        for name in turn.factors:
            run = self.feed.runs[name]
            shapes = run.batches.shapes
            if not shapes:
                raise UserError(
                    f"objective {name}: the shapes of its batches are not known before its text is"
                    " open, so nothing can be planned"
                )
            batch[name] = {}
            for field in run.objective.reads:
                count, *rest = shapes[field]
                batch[name][field] = jax.ShapeDtypeStruct(
                    (rows or count, *rest), FIELDS[field].dtype, sharding=lies
                )
        if turn.summed:
            return batch
        return batch[turn.label]

    def step(self, turn: Turn, step: int) -> jax.stages.Traced:
        made = make_train_step(
            shardings=jax.tree.map(lambda x: x.sharding, self.state),
            model=self.model,
            objective=turn.objective,
            languages=self.languages,
            optimizer=self.optimizer,
            config=self.config,
            microbatches=self.microbatches,
            stage=latest(self.frozen_from, step),
        )
        return made.trace(self.state, self.batch(turn), self._key())

    def evaluation(self, turn: Turn) -> jax.stages.Traced:
        """As a run measures an objective: forward alone, on attention backend "xla"."""
        model = on_xla(self.model, self.mesh)
        multiple = row_devices(self.mesh)
        rows = math.ceil(EVALUATED_ROWS / multiple) * multiple

        def run(params, batch):
            return eval_step(
                params, batch, model=model, objective=turn.objective, languages=self.languages
            )

        made = jax.jit(run, out_shardings=replicated(self.mesh))
        return made.trace(self.state.params, self.batch(turn, rows))

    def decoding(self, turn: Turn) -> jax.stages.Traced:
        """The search for texts, from sources as long as the turn's."""
        [name] = turn.factors
        _, length = self.feed.runs[name].batches.shapes["input_ids"]
        multiple = row_devices(self.mesh)
        most = SEARCHED_TOKENS // (length * SEARCHED.beams * multiple)
        rows = multiple * max(1, most)
        lies = batch_sharding(self.mesh)
        batch = {}
        for field in TOKEN_FIELDS:
            batch[field] = jax.ShapeDtypeStruct((rows, length), FIELDS[field].dtype, sharding=lies)
        numbers = jax.ShapeDtypeStruct((rows,), jnp.int32, sharding=lies)
        scale, more = SEARCHED.max_length
        columns = min(int(scale * length) + more, self.model.longest_target)
        run = program_of(
            search_texts,
            self.model,
            self.mesh,
            # No vocabulary is read; which ids they are changes no size.
            Ids(2, 1),
            SEARCHED,
            columns,
        )
        return run.trace(self.state.params, batch, 2, 0, 0, numbers)

    def first_state(self) -> jax.stages.Lowered:
        return lower_state(
            self.model, self.optimizer, self.config, jax.tree.map(lambda x: x.sharding, self.state)
        )

    def useful_flops(self, turn: Turn) -> float | None:
        """Of a step, all devices together; None: an objective of a user's own, not counted."""
        total = 0.0
        for name in turn.factors:
            run = self.feed.runs[name]
            try:
                total += step_flops(run.objective, self.model.config, run.batches.shapes)
            except UserError:
                return None
        return total

    def tokens(self, turn: Turn) -> int:
        """Columns of a step's rows."""
        total = 0
        for name in turn.factors:
            shapes = self.feed.runs[name].batches.shapes
            for field in ("input_ids", "decoder_ids"):
                if field in self.feed.runs[name].objective.reads:
                    total += math.prod(shapes[field])
        return total

    def needs(self, turn: Turn) -> dict[str, int]:
        """What is told of a step's memory before it is compiled; {}: of several objectives."""
        if turn.summed:
            return {}
        run = self.feed.runs[turn.label]
        needs = Needs(self.model.config, self.config, [run], first_device(self.mesh).platform)
        return needs.on(self.mesh, self.microbatches)

    def _key(self) -> jax.ShapeDtypeStruct:
        key = jax.eval_shape(lambda: jax.random.key(0, impl=self._rng_impl))
        return jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=replicated(self.mesh))


def figures(planned: Planned, evaluations: bool) -> Iterator[dict[str, Any]]:
    """Of each program in turn, compiled. evaluations: the first state and evaluations too."""
    mesh = planned.mesh
    devices = mesh.devices.size
    fixed = {
        "parameters": bytes_of_device(planned.state.params),
        "moments": bytes_of_device(planned.state.opt_state),
    }
    for name, use in planned.turns().items():
        turn = use.turn
        traced = planned.step(turn, use.first)
        useful = planned.useful_flops(turn)
        needs = planned.needs(turn)
        all_of_them = dot_flops(traced.jaxpr)
        found = {
            "program": name,
            "kind": "step",
            "steps": use.steps,
            "tokens": planned.tokens(turn),
            "flops": {
                "useful": None if useful is None else useful / devices,
                "computed": all_of_them / devices,
            },
            "bytes": {**fixed, "batch": bytes_of_device(planned.batch(turn))},
            "estimated": needs,
        }
        yield found | compiled(traced.lower())
    if not evaluations:
        return
    yield {"program": "first state", "kind": "first state", "bytes": {**fixed}} | compiled(
        planned.first_state()
    )
    for turn in _objectives(planned):
        traced = planned.evaluation(turn)
        yield {
            "program": f"evaluation of {turn.label}",
            "kind": "evaluation",
            "bytes": {"parameters": fixed["parameters"]},
            "flops": {"computed": dot_flops(traced.jaxpr) / devices},
        } | compiled(traced.lower())
    if not isinstance(planned.model, Seq2Seq):
        return
    for turn in _objectives(planned):
        yield {
            "program": f"decoding as in {turn.label}",
            "kind": "decoding",
            "bytes": {"parameters": fixed["parameters"]},
        } | compiled(planned.decoding(turn).lower())


def _objectives(planned: Planned) -> list[Turn]:
    found: dict[str, Turn] = {}
    for use in planned.turns().values():
        # A run measures one objective at a time.
        if not use.turn.summed:
            found.setdefault(use.turn.label, use.turn)
    return list(found.values())


NO_TILES = "Couldn't find output tile sizes"
"""XLA says so of matrix products for GPUs (jaxlib 0.10.2: of 511 tokens a row in bfloat16). With no
card to try on, it takes Triton's for all of one kind, in tiles that some sizes do not have."""
WITHOUT_TRITON = {"xla_gpu_enable_triton_gemm": False}
"""Matrix products by cuBLAS, to which a card that is there would come back."""


def compiled(lowered: jax.stages.Lowered) -> dict[str, Any]:
    """What the compiler says of a program, of one device."""
    begun = time.perf_counter()
    options: dict[str, bool] = {}
    try:
        try:
            program = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            if NO_TILES not in str(error):
                raise
            options = WITHOUT_TRITON
            program = lowered.compile(options)
    except jax.errors.JaxRuntimeError as error:
        seconds = time.perf_counter() - begun
        refused = refusal(str(error))
        return {"seconds": seconds, "options": options, **refused}
    seconds = time.perf_counter() - begun
    memory = program.memory_analysis()
    text = Program(program.as_text())
    arguments = memory.argument_size_in_bytes
    # The new state takes the memory of the old one.
    results = memory.output_size_in_bytes - memory.alias_size_in_bytes
    temporaries = memory.temp_size_in_bytes
    moved = text.collectives()
    return {
        "seconds": seconds,
        "error": "",
        "options": options,
        "arguments": arguments,
        "results": results,
        "temporaries": temporaries,
        "code": memory.generated_code_size_in_bytes,
        "peak": arguments + results + temporaries,
        "collectives": by_kind(moved),
        "sent": sum(one.sent for one in moved),
        "sent_in_groups": _by_group(moved),
        "moved": text.moved_bytes(),
        "cycles": text.estimated_cycles(),
        "cycles_by_source": text.cycles_by_source(),
    }


def _by_group(collectives: list[Collective]) -> dict[int, float]:
    """{devices that take part together: bytes that leave a device}."""
    sent: dict[int, float] = {}
    for one in collectives:
        sent[one.devices] = sent.get(one.devices, 0.0) + one.sent
    return sent


def refusal(message: str) -> dict[str, Any]:
    """Of a program that the compiler refused: why, and how much it would have needed where it says
    so."""
    # As the compiler of TPUs says it.
    for pattern in (
        r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm",
        r"total memory required .*?\(([\d.]+)([KMGT]?)\) exceeds available HBM",
    ):
        if found := re.search(pattern, message):
            return {"error": "does not fit", "peak": _size(found[1], found[2])}
    return {"error": in_one_line(message.splitlines()[0])}


def _size(number: str, unit: str) -> int:
    return int(float(number) * 1024 ** "_KMGT".find(unit or "_"))


def require_all(mesh: MeshConfig, devices: int) -> None:
    """Raise UserError unless a mesh takes all devices: a run of several processes does."""
    used = math.prod(mesh_sizes(mesh, devices))
    if used != devices:
        raise UserError(
            f"a mesh of {used} devices (MESH_DATA={mesh.data}, MESH_FSDP={mesh.fsdp},"
            f" MESH_TENSOR={mesh.tensor}) on a machine of {devices}: set one of them to -1"
        )


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """{"programs": `figures`, "steps", "schedule": turns of a period} or {"refused": a line}."""
    try:
        recipe = read_recipe(request["files"], request["overrides"])
        devices = None
        if request["machine"] != HERE:
            devices = devices_of(machine_named(request["machine"]))
        if devices is not None:
            require_all(recipe.bound["mesh"], len(devices))
        mesh = make_mesh(recipe.bound["mesh"], devices)
        planned = Planned(recipe, mesh)
        programs = list(figures(planned, request["evaluations"]))
    except UserError as error:
        return {"refused": in_one_line(str(error))}
    return {
        "programs": programs,
        "steps": planned.steps,
        "mesh": dict(mesh.shape),
        "kind": mesh.devices.flat[0].device_kind,
        "room": 0 if devices else int(SHARE * device_bytes()),
        "dtype": planned.model.config.dtype,
    }


def _end_with_parent() -> None:
    """Its end of the pipe closes when it is gone."""
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    answered = json.dumps(answer(request))
    with open(request["output"], "w", encoding="utf-8") as file:
        file.write(answered)


if __name__ == "__main__":
    main()
