"""The steps that a recipe's run would compile, compiled for devices that are not there, in a
process of its own: a compiler that fails takes nothing else with it."""

import dataclasses
import math
import re
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax

from xlingjax.config.recipe import read_recipe
from xlingjax.data.features import FIELDS
from xlingjax.errors import UserError, in_one_line
from xlingjax.model.build import build_model
from xlingjax.model.memory import SHARE, device_bytes
from xlingjax.model.partition import (
    MeshConfig,
    batch_sharding,
    make_mesh,
    mesh_sizes,
    replicated,
)
from xlingjax.runtime.traced_program import dot_flops
from xlingjax.training.feed import Feed, Turn
from xlingjax.training.loop import require_loss_scale
from xlingjax.training.optimizer import OptimizerConfig, make_optimizer
from xlingjax.training.schedule import check as check_schedule
from xlingjax.training.stages import latest, starts
from xlingjax.training.step import abstract_state, make_train_step
from xlingjax.workflows.plan.machines import devices_of, machine_named
from xlingjax.workflows.plan.roofline import sent_of
from xlingjax.workflows.plan.traffic import traffic
from xlingjax.workflows.tables.flops import columns, step_flops

LOOKED_AT = 100  # steps of a stage whose turns are looked up; the rest are as these
HERE = "here"  # in place of a machine: the devices of this one


def answer(files: Sequence[str], overrides: Sequence[str], on: str) -> dict[str, Any]:
    """The compiler's answer on each program of the run, and the setting. Raises UserError."""
    try:
        bound = read_recipe(files, overrides).bound
        devices = None
        if on != HERE:
            devices = devices_of(machine_named(on))
            require_all(bound["mesh"], len(devices))
        mesh = make_mesh(bound["mesh"], devices)
        programs = _programs(bound, mesh)
    except UserError as error:
        # gin's own kind of it does not pass from process to process.
        raise UserError(in_one_line(error)) from None
    return {
        "programs": programs,
        "steps": bound["steps"],
        "mesh": dict(mesh.shape),
        "room": 0 if devices else int(SHARE * device_bytes()),
        "dtype": bound["model"].dtype,
    }


def require_all(mesh: MeshConfig, devices: int) -> None:
    """Raise UserError unless a mesh takes all devices: a run of several processes does."""
    used = math.prod(mesh_sizes(mesh, devices))
    if used != devices:
        raise UserError(
            f"a mesh of {used} devices (MESH_DATA={mesh.data}, MESH_FSDP={mesh.fsdp},"
            f" MESH_TENSOR={mesh.tensor}) on a machine of {devices}: set one of them to -1"
        )


def _programs(bound: dict[str, Any], mesh: jax.sharding.Mesh) -> list[dict[str, Any]]:
    """Raises UserError for what `train` refuses before it reads text."""
    config: OptimizerConfig = bound.get("optimizer", OptimizerConfig())
    require_loss_scale(bound["model"], config)
    microbatches = bound.get("microbatches", 1)
    model = build_model(bound["model"], mesh)
    optimizer = make_optimizer(config, bound["steps"], model.abstract())
    state = abstract_state(mesh, model, optimizer, config)
    feed = Feed(bound["objectives"], model, mesh, microbatches)
    key = jax.eval_shape(lambda: jax.random.key(0, impl=bound.get("rng_impl", "threefry2x32")))
    key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=replicated(mesh))
    found = []
    for name, (turn, first, steps) in _turns(bound, feed, config).items():
        step = make_train_step(
            shardings=jax.tree.map(lambda x: x.sharding, state),
            model=model,
            objective=turn.objective,
            languages=max(model.config.num_languages, 1),
            optimizer=optimizer,
            config=config,
            microbatches=microbatches,
            stage=latest(starts([config.frozen]), first),
        )
        batch = _batch(feed, turn)
        runs = [feed.runs[one] for one in turn.factors]
        tokens = sum(columns(run.objective, run.batches.shapes) for run in runs)
        traced = step.trace(state, batch, key)
        useful = sum(step_flops(run.objective, model.config, run.batches.shapes) for run in runs)
        found.append(
            {
                "program": name,
                "steps": steps,
                "tokens": tokens,
                "useful": useful / mesh.size,
                # With what is recomputed; a kernel of Pallas counts what its author says.
                "flops": dot_flops(traced.jaxpr) / mesh.size,
                "sent": sent_of(model.config, tokens, dict(mesh.shape), microbatches),
                "bytes": {
                    "parameters": bytes_of_device(state.params),
                    "moments": bytes_of_device(state.opt_state),
                    "batch": bytes_of_device(batch),
                },
                **compiled(traced.lower()),
            }
        )
    return found


def _turns(
    bound: dict[str, Any], feed: Feed, config: OptimizerConfig
) -> dict[str, tuple[Turn, int, float]]:
    """{program: (its turn, a step at which it runs, how many steps of the run are its own)}, of all
    stages of the run; where turns are drawn, about as many."""
    found: dict[str, tuple[Turn, int, float]] = {}
    last = bound["steps"]
    schedule = bound.get("schedule", "alternate")
    check_schedule(feed.weights, schedule, last)
    frozen_from = starts([config.frozen])
    begins = {0, *feed.starts, *frozen_from, *starts(feed.weights)}
    for begin, end in pairwise([*sorted(one for one in begins if one < last), last]):
        looked_at = min(end - begin, LOOKED_AT)
        for step in range(begin, begin + looked_at):
            turn = feed.turn(step, bound.get("seed", 0), schedule)
            stage = latest(frozen_from, step)
            name = turn.label + (f" from step {stage}" if stage else "")
            _, first, steps = found.get(name, (turn, step, 0.0))
            found[name] = (turn, first, steps + (end - begin) / looked_at)
    return found


def _batch(feed: Feed, turn: Turn) -> Any:
    """Shapes of a turn's batch, the longest where they vary."""
    batch: dict[str, Any] = {}
    for name in turn.factors:
        run = feed.runs[name]
        if not run.batches.shapes:
            raise UserError(
                f"objective {name}: the shapes of its batches are not known before its text is"
                " open, so nothing can be planned"
            )
        batch[name] = {
            field: jax.ShapeDtypeStruct(
                run.batches.shapes[field], FIELDS[field].dtype, sharding=batch_sharding(feed.mesh)
            )
            for field in run.objective.reads
        }
    return batch if turn.summed else batch[turn.label]


def bytes_of_device(tree: Any) -> int:
    """Of one device's part of arrays, or of their shapes, with shardings."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        part = leaf.sharding.shard_shape(leaf.shape)
        total += math.prod(part) * leaf.dtype.itemsize
    return total


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
        return {"seconds": time.perf_counter() - begun, "options": options, **refusal(str(error))}
    seconds = time.perf_counter() - begun
    memory = program.memory_analysis()
    arguments, results = memory.argument_size_in_bytes, memory.output_size_in_bytes
    temporaries = memory.temp_size_in_bytes
    # Compilers of GPUs that are not there give no costs; others count a loop once.
    costs = program.cost_analysis() or {}
    parts = {} if costs else traffic(program.as_text())
    accessed = costs.get("bytes accessed", sum(one.bytes for one in parts.values()))
    return {
        "seconds": seconds,
        "error": "",
        "options": options,
        "temporaries": temporaries,
        # The new state takes the memory of the old one.
        "peak": arguments + results - memory.alias_size_in_bytes + temporaries,
        # At least: each byte is read or written once, of temporaries both.
        "moved": max(accessed, arguments + results + 2 * temporaries),
        "traffic": {part: dataclasses.asdict(one) for part, one in parts.items()},
    }


def refusal(message: str) -> dict[str, Any]:
    """Why the compiler refused a program, and how much it would have needed, if it tells."""
    # As the compiler of TPUs says it.
    for pattern in (
        r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm",
        r"total memory required .*?\(([\d.]+)([KMGT]?)\) exceeds available HBM",
    ):
        if found := re.search(pattern, message):
            size = float(found[1]) * 1024 ** "_KMGT".find(found[2] or "_")
            return {"error": "does not fit", "peak": int(size)}
    return {"error": in_one_line(message.splitlines()[0]), "peak": None}
