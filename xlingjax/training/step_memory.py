"""What the steps of a run will need of a device's memory, told before anything is compiled.

What the forward pass keeps for the backward pass is what `jax.vjp` of the loss holds, by its shapes
alone: of any objective, however many passes it takes.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh

from xlingjax.data.features import FIELDS
from xlingjax.errors import UserError
from xlingjax.model.attention import Refused
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig
from xlingjax.model.memory import SHARE, device_bytes
from xlingjax.model.partition import row_devices
from xlingjax.training.feed import ObjectiveRun, in_stages
from xlingjax.training.optimizer import OptimizerConfig, make_optimizer
from xlingjax.training.step import TrainState, abstract_state

RECOMPUTED = {"none": 1.0, "dots": 1.02, "full": 4 / 3}
"""Products of a step by REMAT, as shares of those that are useful: a third of them is forward."""
MORE = 1.2
"""What an estimate leaves free: compilers of GPUs need up to that much more, those of TPUs may need
far more (docs/scaling.md)."""
OF_A_PART = 0.005
"""What each microbatch adds to a step, of its time: a guess, which prefers few."""


@dataclasses.dataclass(frozen=True)
class Kept:
    """Bytes of one row that the forward pass keeps."""

    whole: float
    """On every device of the tensor axis."""
    split: float
    """Shared out over it: what has a place for each head, or the feed-forward's width."""

    def on(self, rows: int, tensor: int) -> int:
        return int(rows * (self.whole + self.split / tensor))


class Needs:
    """Of the steps of a run, whatever the mesh and the number of microbatches."""

    def __init__(
        self,
        config: ModelConfig,
        optimizer: OptimizerConfig,
        objectives: Sequence[ObjectiveRun | Mapping[int, ObjectiveRun]],
    ):
        """objectives: of `train`, those whose shapes are known before their text is open."""
        self.config = config
        self._optimizer = optimizer
        self._runs: list[ObjectiveRun] = []
        for entry in objectives:
            for run in in_stages(entry).values():
                if run.batches.shapes:
                    self._runs.append(run)
        # Traces of seconds each, asked for once.
        self._kept_before: dict[tuple[int, str], Kept] = {}
        self._states: dict[tuple[int, ...], TrainState] = {}

    def on(
        self,
        mesh: Mesh | AbstractMesh,
        microbatches: int,
        remat: str | None = None,
        chunk: int | None = None,
    ) -> dict[str, int]:
        """{what: bytes of one device} in the step that needs most. remat: in place of the model's;
        chunk: of the objectives', of the loss."""
        state = self._state(mesh)
        found = [
            self._of(number, state, mesh, microbatches, remat, chunk)
            for number in range(len(self._runs))
        ]
        return max(found, key=lambda one: sum(one.values()))

    def microbatches(self, mesh: Mesh) -> list[int]:
        """Into how many the batches of all can be cut; none where no shapes are known."""
        if not self._runs:
            return []
        if any(run.objective.whole_batch for run in self._runs):
            return [1]
        rows = [run.batches.shapes["input_ids"][0] for run in self._runs]
        each = math.gcd(*rows) // row_devices(mesh)
        return [n for n in range(1, each + 1) if not each % n]

    def _of(
        self,
        number: int,
        state: TrainState,
        mesh: Mesh | AbstractMesh,
        microbatches: int,
        remat: str | None,
        chunk: int | None,
    ) -> dict[str, int]:
        run = self._runs[number]
        remat = remat or self.config.remat
        parameters = bytes_of_device(state.params)
        rows = run.batches.shapes["input_ids"][0]
        rows = -(-rows // (row_devices(mesh) * microbatches))
        tensor = mesh.shape["tensor"]
        activations = self._kept(number, remat).on(rows, tensor)
        if remat != "none":
            # Those of the layer that is being recomputed.
            layers = self.config.layers + self.config.decoder_layers
            once = self._kept(number, "none").on(rows, tensor)
            activations += once // max(layers, 1)
        gradients = parameters
        if microbatches > 1:
            # Those of a microbatch, and the sum of all.
            gradients *= 2
        return {
            "parameters": parameters,
            "moments": bytes_of_device(state.opt_state),
            "gradients": gradients,
            "activations": activations,
            "vocabulary": self._vocabulary(run, rows, mesh, chunk),
        }

    def _vocabulary(
        self,
        run: ObjectiveRun,
        rows: int,
        mesh: Mesh | AbstractMesh,
        chunk: int | None,
    ) -> int:
        """Logits, and the gradient of the table that they make."""
        predictions = rows * predictions_of_row(run)
        chunk = chunk_of(run, chunk)
        if chunk:
            # A chunk spans the devices.
            predictions = min(predictions, -(-chunk // row_devices(mesh)))
        size = self.config.padded_vocab_size // mesh.shape["tensor"]
        table = 4 * size * self.config.dim // mesh.shape["fsdp"]
        # Of each the logit in float32, and its gradient in the type that the products are in.
        each = 4 + jnp.dtype(self.config.dtype).itemsize
        return each * predictions * size + table

    def _state(self, mesh: Mesh | AbstractMesh) -> TrainState:
        sizes = tuple(mesh.shape.values())
        if sizes not in self._states:
            model = build_model(self.config)
            # Of any length: its state has the same arrays.
            rule = make_optimizer(self._optimizer, 10**9, model.abstract())
            found = abstract_state(mesh, model, rule, self._optimizer)
            self._states[sizes] = found
        return self._states[sizes]

    def _kept(self, number: int, remat: str) -> Kept:
        if (number, remat) not in self._kept_before:
            found = self._traced(self._runs[number], remat)
            self._kept_before[number, remat] = found
        return self._kept_before[number, remat]

    def _traced(self, run: ObjectiveRun, remat: str) -> Kept:
        config = self.config.replace(remat=remat, attention_backend="xla")
        if self.config.attention_backend != "xla":
            # No other keeps scores, and this one is traced whatever the device.
            config = config.replace(attention_backend="chunked")
        try:
            one, two = (_residuals(config, run, rows) for rows in (1, 2))
        except Refused:
            # Rows that are not cut into blocks: with the scores, which is too much.
            config = config.replace(attention_backend="xla")
            one, two = (_residuals(config, run, rows) for rows in (1, 2))
        whole = split = 0.0
        # What does not grow with the rows is no activation: parameters, and what is made of them.
        for few, many in zip(one, two, strict=True):
            size = _bytes(many) - _bytes(few)
            if {config.heads, config.ffn} & {*few.shape}:
                split += size
            else:
                whole += size
        return Kept(whole, split)


def predictions_of_row(run: ObjectiveRun) -> int:
    """Room for so many in each row of an objective."""
    shapes = run.batches.shapes
    for field in ("decoder_ids", "masked_positions"):
        if field in run.objective.reads:
            return shapes[field][1]
    return shapes["input_ids"][1]


def chunk_of(run: ObjectiveRun, asked: int | None) -> int:
    """Predictions of a chunk of its loss, 0: all at once. asked: in place of the objective's."""
    own = getattr(run.objective, "chunk", None)
    # One that has none is not cut.
    if own is None:
        return 0
    if asked is None:
        return own
    return asked


def _residuals(
    config: ModelConfig,
    run: ObjectiveRun,
    rows: int,
) -> list[jax.ShapeDtypeStruct]:
    """What the forward pass over so many rows keeps, by shapes."""
    model = build_model(config)
    objective = run.objective
    batch = {}
    for field in objective.reads:
        shape = run.batches.shapes[field]
        batch[field] = jax.ShapeDtypeStruct(
            (rows, *shape[1:]),
            FIELDS[field].dtype,
        )

    def kept(params, batch, key):
        def loss(params):
            made = objective.loss(model, params, batch, key, 1)
            return sum(made.terms.values())

        return jax.vjp(loss, params)[1]

    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.tree.leaves(
        jax.eval_shape(kept, model.abstract(), batch, key),
    )


def _bytes(leaf: Any) -> int:
    # Of a random key, and of what no gradient flows into.
    if not jnp.issubdtype(leaf.dtype, jnp.number) and leaf.dtype != jnp.bool_:
        return 0
    return math.prod(leaf.shape) * jnp.dtype(leaf.dtype).itemsize


def bytes_of_device(tree: Any) -> int:
    """Of one device's part of arrays, or of their shapes, with shardings."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        part = jax.ShapeDtypeStruct(
            leaf.sharding.shard_shape(leaf.shape),
            leaf.dtype,
        )
        total += _bytes(part)
    return total


def microbatches_for(needs: Needs, mesh: Mesh, batch: int) -> int:
    """Into how many parts batches of so many rows, spread over the mesh, must be cut to fit its
    devices. Raises UserError where one row a device is too much."""
    devices = row_devices(mesh)
    room = SHARE * device_bytes()
    per_device = batch // devices
    if batch % devices:
        raise UserError(
            f"a batch of {batch} rows does not spread over {devices} devices; give a multiple",
        )
    needed = 0
    # Fewest parts first: larger microbatches keep a device busier.
    for parts in range(1, per_device + 1):
        # Microbatches are equal, or a step would be compiled for two sizes.
        if per_device % parts:
            continue
        needed = sum(needs.on(mesh, parts).values())
        if needed <= room:
            return parts
    raise UserError(
        f"one row needs about {needed / 1e9:.1f} GB, and the device has {room / SHARE / 1e9:.1f}"
        " GB; shorten the rows (--length), or train a smaller model",
    )


def what_fits(
    needs: Needs,
    mesh: Mesh,
    microbatches: int,
    room: float,
) -> str:
    """Microbatches and REMAT, as flags, that cost the least time of those estimated to fit a
    device; "" where none do. microbatches: of steps that did not fit, whatever their estimate."""
    parts = needs.microbatches(mesh)
    if not parts:
        return ""
    failed = sum(needs.on(mesh, microbatches).values())
    # What did not fit needed more than the room: the estimate is known to be that far off.
    correction = MORE * max(1.0, room / failed)

    def price(settings: tuple[int, str]) -> float:
        parts, remat = settings
        return RECOMPUTED[remat] * (1 + OF_A_PART * parts)

    for one, remat in sorted(itertools.product(parts, RECOMPUTED), key=price):
        guess = sum(needs.on(mesh, one, remat).values())
        if guess * correction <= room:
            return f"--gin.MICROBATCHES={one} --gin.REMAT={remat}"
    return ""


def table(needed: Mapping[str, int]) -> str:
    lines = [
        f"{what:<16} {size / 1e9:8.2f} GB" for what, size in needed.items()
    ]
    together = f"{'together':<16} {sum(needed.values()) / 1e9:8.2f} GB"
    return "\n".join([*lines, f"{together} (estimated)"])
