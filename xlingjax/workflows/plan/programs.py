"""The programs that a recipe's run would compile, compiled for devices that are not there, in a
process of its own: a compiler that fails takes nothing else with it."""

import dataclasses
import math
import re
import time
from collections.abc import Iterator, Sequence
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
from xlingjax.runtime.traced_program import dot_flops
from xlingjax.training.feed import Feed, Turn
from xlingjax.training.loop import require_loss_scale
from xlingjax.training.optimizer import OptimizerConfig, make_optimizer
from xlingjax.training.schedule import check as check_schedule
from xlingjax.training.stages import latest, starts
from xlingjax.training.step import abstract_state, eval_step, lower_state, make_train_step
from xlingjax.training.step_memory import Needs, bytes_of_device
from xlingjax.workflows.plan.machines import devices_of, machine_named
from xlingjax.workflows.plan.program_text import Program, by_kind
from xlingjax.workflows.tables.flops import step_flops

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


class Run:
    """A recipe's run on a mesh, up to its programs."""

    def __init__(self, recipe: Recipe, mesh: Mesh):
        """Raises UserError for what `train` refuses before it reads text."""
        bound = recipe.bound
        self.config: OptimizerConfig = bound.get("optimizer", OptimizerConfig())
        require_loss_scale(bound["model"], self.config)
        self.mesh = mesh
        self.steps: int = bound["steps"]
        self.schedule: str = bound.get("schedule", "alternate")
        self.seed: int = bound.get("seed", 0)
        self.microbatches: int = bound.get("microbatches", 1)
        self.model = build_model(bound["model"], mesh)
        self.optimizer = make_optimizer(self.config, self.steps, self.model.abstract())
        self.state = abstract_state(mesh, self.model, self.optimizer, self.config)
        self.shardings = jax.tree.map(lambda x: x.sharding, self.state)
        self.feed = Feed(bound["objectives"], self.model, mesh, self.microbatches)
        check_schedule(self.feed.weights, self.schedule, self.steps)
        self.frozen_from = starts([self.config.frozen])
        self.languages = self.feed.languages_before_open() or 1
        key = jax.eval_shape(lambda: jax.random.key(0, impl=bound.get("rng_impl", "threefry2x32")))
        self.key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=replicated(mesh))

    def turns(self) -> dict[str, Use]:
        """{name of a program: what it is used for}, of all stages of the run."""
        found: dict[str, Use] = {}
        begins = {0, *self.feed.starts, *self.frozen_from, *starts(self.feed.weights)}
        bounds = sorted(one for one in begins if one < self.steps)
        for begin, end in pairwise([*bounds, self.steps]):
            looked_at = min(end - begin, 100)
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
                batch[name][field] = self._rows((rows or count, *rest), FIELDS[field].dtype)
        return batch if turn.summed else batch[turn.label]

    def _rows(self, shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=batch_sharding(self.mesh))

    def step(self, turn: Turn, step: int) -> jax.stages.Traced:
        made = make_train_step(
            shardings=self.shardings,
            model=self.model,
            objective=turn.objective,
            languages=self.languages,
            optimizer=self.optimizer,
            config=self.config,
            microbatches=self.microbatches,
            stage=latest(self.frozen_from, step),
        )
        return made.trace(self.state, self.batch(turn), self.key)

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
        rows = multiple * max(1, SEARCHED_TOKENS // (length * SEARCHED.beams * multiple))
        batch = {field: self._rows((rows, length), FIELDS[field].dtype) for field in TOKEN_FIELDS}
        scale, more = SEARCHED.max_length
        columns = min(int(scale * length) + more, self.model.longest_target)
        # No vocabulary is read; which ids they are changes no size.
        ids = Ids(2, 1)
        run = program_of(search_texts, self.model, self.mesh, ids, SEARCHED, columns)
        numbers = self._rows((rows,), jnp.int32)
        return run.trace(self.state.params, batch, 2, 0, 0, numbers)

    def useful_flops(self, turn: Turn) -> float | None:
        """Of a step, all devices together; None: an objective of a user's own, not counted."""
        runs = [self.feed.runs[name] for name in turn.factors]
        try:
            return sum(
                step_flops(run.objective, self.model.config, run.batches.shapes) for run in runs
            )
        except UserError:
            return None

    def tokens(self, turn: Turn) -> int:
        """Columns of a step's rows."""
        total = 0
        for name in turn.factors:
            run = self.feed.runs[name]
            for field in {"input_ids", "decoder_ids"} & {*run.objective.reads}:
                total += math.prod(run.batches.shapes[field])
        return total

    def needs(self, turn: Turn) -> dict[str, int]:
        """What is told of a step's memory before it is compiled; {}: of several objectives."""
        if turn.summed:
            return {}
        run = self.feed.runs[turn.label]
        needs = Needs(self.model.config, self.config, [run], first_device(self.mesh).platform)
        return needs.on(self.mesh, self.microbatches)


def figures(run: Run, evaluations: bool) -> Iterator[dict[str, Any]]:
    """Of each program in turn, compiled. evaluations: the first state and evaluations too."""
    devices = run.mesh.devices.size
    parameters = {"parameters": bytes_of_device(run.state.params)}
    fixed = parameters | {"moments": bytes_of_device(run.state.opt_state)}
    uses = run.turns()
    for name, use in uses.items():
        turn = use.turn
        traced = run.step(turn, use.first)
        useful = run.useful_flops(turn)
        flops = {
            "useful": None if useful is None else useful / devices,
            "computed": dot_flops(traced.jaxpr) / devices,
        }
        yield {
            "program": name,
            "kind": "step",
            "steps": use.steps,
            "tokens": run.tokens(turn),
            "flops": flops,
            "bytes": {**fixed, "batch": bytes_of_device(run.batch(turn))},
            "estimated": run.needs(turn),
        } | compiled(traced.lower())
    if not evaluations:
        return
    state = lower_state(run.model, run.optimizer, run.config, run.shardings)
    yield {"program": "first state", "kind": "first state", "bytes": fixed} | compiled(state)
    # A run measures one objective at a time.
    turns = {use.turn.label: use.turn for use in uses.values() if not use.turn.summed}
    for label, turn in turns.items():
        traced = run.evaluation(turn)
        yield {
            "program": f"evaluation of {label}",
            "kind": "evaluation",
            "bytes": parameters,
            "flops": {"computed": dot_flops(traced.jaxpr) / devices},
        } | compiled(traced.lower())
    if isinstance(run.model, Seq2Seq):
        for label, turn in turns.items():
            name = {"program": f"decoding as in {label}", "kind": "decoding"}
            yield name | {"bytes": parameters} | compiled(run.decoding(turn).lower())


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
        return {"seconds": seconds, "options": options, **refusal(str(error))}
    seconds = time.perf_counter() - begun
    memory = program.memory_analysis()
    arguments = memory.argument_size_in_bytes
    # The new state takes the memory of the old one.
    results = memory.output_size_in_bytes - memory.alias_size_in_bytes
    temporaries = memory.temp_size_in_bytes
    text = Program(program.as_text())
    collectives = text.collectives()
    # {devices that take part together: bytes that leave a device}.
    sent_in_groups: dict[int, float] = {}
    for one in collectives:
        sent_in_groups[one.devices] = sent_in_groups.get(one.devices, 0.0) + one.sent
    return {
        "seconds": seconds,
        "error": "",
        "options": options,
        "arguments": arguments,
        "results": results,
        "temporaries": temporaries,
        "code": memory.generated_code_size_in_bytes,
        "peak": arguments + results + temporaries,
        "collectives": by_kind(collectives),
        "sent": sum(sent_in_groups.values()),
        "sent_in_groups": sent_in_groups,
        "moved": text.moved_bytes(),
        "cycles": text.estimated_cycles(),
    }


def refusal(message: str) -> dict[str, Any]:
    """Of a program that the compiler refused: why, and how much it would have needed where it says
    so."""
    # As the compiler of TPUs says it.
    for pattern in (
        r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm",
        r"total memory required .*?\(([\d.]+)([KMGT]?)\) exceeds available HBM",
    ):
        if found := re.search(pattern, message):
            size = float(found[1]) * 1024 ** "_KMGT".find(found[2] or "_")
            return {"error": "does not fit", "peak": int(size)}
    return {"error": in_one_line(message.splitlines()[0])}


def require_all(mesh: MeshConfig, devices: int) -> None:
    """Raise UserError unless a mesh takes all devices: a run of several processes does."""
    used = math.prod(mesh_sizes(mesh, devices))
    if used != devices:
        raise UserError(
            f"a mesh of {used} devices (MESH_DATA={mesh.data}, MESH_FSDP={mesh.fsdp},"
            f" MESH_TENSOR={mesh.tensor}) on a machine of {devices}: set one of them to -1"
        )


def answer(files: Sequence[str], overrides: Sequence[str], on: str, evaluations: bool) -> dict:
    """{"programs": `figures`, and what the run and the devices are}. Raises UserError."""
    try:
        recipe = read_recipe(files, overrides)
        devices = None
        if on != HERE:
            devices = devices_of(machine_named(on))
            require_all(recipe.bound["mesh"], len(devices))
        mesh = make_mesh(recipe.bound["mesh"], devices)
        run = Run(recipe, mesh)
        programs = list(figures(run, evaluations))
    except UserError as error:
        # gin's own kind of it does not pass from process to process.
        raise UserError(in_one_line(error)) from None
    return {
        "programs": programs,
        "steps": run.steps,
        "mesh": dict(mesh.shape),
        "kind": mesh.devices.flat[0].device_kind,
        "room": 0 if devices else int(SHARE * device_bytes()),
        "dtype": run.model.config.dtype,
    }
