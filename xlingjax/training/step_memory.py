"""What the steps of a run will need of a device's memory, told before anything is compiled.

What the forward pass keeps for the backward pass is what `jax.vjp` of the loss holds, by its shapes
alone: of any objective, however many passes it takes.
"""

import functools
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
from xlingjax.objectives.base import TokenObjective
from xlingjax.training.feed import ObjectiveRun, in_stages
from xlingjax.training.optimizer import OptimizerConfig, make_optimizer
from xlingjax.training.step import TrainState, abstract_state

RECOMPUTED = {"none": 1.0, "dots": 1.02, "full": 4 / 3}
"""Products of a step by REMAT, as shares of those that are useful: a third of them is forward."""
MORE = 1.05
"""What an estimate leaves free: the compiler of GPUs needs no more for the papers' recipes
(docs/scaling.md)."""
MORE_ON_TPUS = 1.2
"""That of TPUs needs up to so much more."""


class Needs:
    """Of the steps of a run, whatever the mesh and the number of microbatches."""

    def __init__(
        self,
        config: ModelConfig,
        optimizer: OptimizerConfig,
        objectives: Sequence[ObjectiveRun | Mapping[int, ObjectiveRun]],
        platform: str,
    ):
        """objectives: of `train`, those whose shapes are known before their text is open. platform:
        of the devices; the compiler of "tpu" needs more."""
        self.config = config
        self._platform = platform
        self.more = MORE_ON_TPUS if platform == "tpu" else MORE
        """What is left free of the estimates: a factor."""
        self._optimizer = optimizer
        self._runs = [
            run for entry in objectives for run in in_stages(entry).values() if run.batches.shapes
        ]
        # Traces of seconds each, made once.
        self._state = functools.cache(self._abstract_state)
        self._kept = functools.cache(lambda number, remat: _kept(config, self._runs[number], remat))
        self._predictions = functools.cache(lambda number: _predictions(config, self._runs[number]))

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
        activations = self._rows_kept(number, remat, rows, tensor)
        if remat != "none":
            # Those of the layer that is being recomputed.
            layers = self.config.layers + self.config.decoder_layers
            once = self._rows_kept(number, "none", rows, tensor)
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
            "vocabulary": self._vocabulary(number, rows, mesh, chunk),
        }

    def _rows_kept(self, number: int, remat: str, rows: int, tensor: int) -> int:
        whole, split = self._kept(number, remat)
        return int(rows * (whole + split / tensor))

    def _vocabulary(
        self, number: int, rows: int, mesh: Mesh | AbstractMesh, chunk: int | None
    ) -> int:
        """Logits of all terms, which no compiler has wait for each other, and the gradient of the
        table that they make."""
        chunk = chunk_of(self._runs[number], chunk)
        predictions = 0
        for of_row in self._predictions(number):
            of_term = rows * of_row
            if chunk:
                # A chunk spans the devices.
                of_term = min(of_term, -(-chunk // row_devices(mesh)))
            predictions += of_term
        size = self.config.padded_vocab_size // mesh.shape["tensor"]
        table = 4 * size * self.config.dim // mesh.shape["fsdp"]
        # Of each the logit in float32, and its gradient: in the type that the products are in, but
        # TPUs' compiler keeps it in float32 where the table is shared out.
        each = 4 + jnp.dtype(self.config.dtype).itemsize
        if self._platform == "tpu" and mesh.shape["fsdp"] > 1:
            each = 4 + 4
        return each * predictions * size + table

    def _abstract_state(self, mesh: Mesh | AbstractMesh) -> TrainState:
        model = build_model(self.config)
        # Of any length: its state has the same arrays.
        rule = make_optimizer(self._optimizer, 10**9, model.abstract())
        return abstract_state(mesh, model, rule, self._optimizer)


def _kept(config: ModelConfig, run: ObjectiveRun, remat: str) -> tuple[float, float]:
    """Bytes of one row that the forward pass of an objective keeps: on every device of the tensor
    axis, and shared out over it, as what has a place for each head or the feed-forward's width."""
    # No backend but "xla" keeps scores, and "chunked" is traced whatever the device.
    backend = "xla" if config.attention_backend == "xla" else "chunked"
    config = config.replace(remat=remat, attention_backend=backend)
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
    return whole, split


def chunk_of(run: ObjectiveRun, requested: int | None) -> int:
    """Predictions of a chunk of its loss, 0: all at once. asked: in place of the objective's."""
    own = getattr(run.objective, "chunk", None)
    # One that has none is not cut.
    return 0 if own is None else own if requested is None else requested


def _rows(run: ObjectiveRun, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
    """A batch of so many rows of what an objective reads, by shapes."""
    batch = {}
    for field in run.objective.reads:
        shape = run.batches.shapes[field]
        batch[field] = jax.ShapeDtypeStruct((rows, *shape[1:]), FIELDS[field].dtype)
    return batch


def _predictions(config: ModelConfig, run: ObjectiveRun) -> list[int]:
    """Of each term of an objective that predicts tokens, in one row."""
    if not isinstance(run.objective, TokenObjective):
        return []
    model = build_model(config.replace(attention_backend="xla"))
    objective = run.objective
    found = jax.eval_shape(
        lambda params, batch, key: objective.predictions(model, params, batch, key),
        model.abstract(),
        _rows(run, 1),
        jax.eval_shape(lambda: jax.random.key(0)),
    )
    # Others have no loss.
    return [found[term].states.shape[1] for term in objective.coefficients if term in found]


def _residuals(config: ModelConfig, run: ObjectiveRun, rows: int) -> list[jax.ShapeDtypeStruct]:
    """What the forward pass over so many rows keeps, by shapes."""
    model = build_model(config)
    objective = run.objective
    batch = _rows(run, rows)

    def kept(params, batch, key):
        def loss(params):
            made = objective.loss(model, params, batch, key, 1)
            return sum(made.terms.values())

        return jax.vjp(loss, params)[1]

    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.tree.leaves(jax.eval_shape(kept, model.abstract(), batch, key))


def _bytes(leaf: Any) -> int:
    # Of a random key, and of what no gradient flows into.
    if not jnp.issubdtype(leaf.dtype, jnp.number) and leaf.dtype != jnp.bool_:
        return 0
    return math.prod(leaf.shape) * jnp.dtype(leaf.dtype).itemsize


def bytes_of_device(tree: Any) -> int:
    """Of one device's part of arrays, or of their shapes, with shardings."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        part = jax.ShapeDtypeStruct(leaf.sharding.shard_shape(leaf.shape), leaf.dtype)
        total += _bytes(part)
    return total


def microbatches_for(needs: Needs, mesh: Mesh, batch: int) -> int:
    """Into how many parts batches of so many rows, spread over the mesh, must be cut to fit its
    devices. Raises UserError where one row a device is too much."""
    devices = row_devices(mesh)
    room = SHARE * device_bytes()
    per_device, left = divmod(batch, devices)
    if left:
        raise UserError(
            f"a batch of {batch} rows does not spread over {devices} devices; give a multiple"
        )
    needed = 0
    # Fewest parts first: larger microbatches keep a device busier. Microbatches are equal, or a
    # step would be compiled for two sizes.
    for parts in (n for n in range(1, per_device + 1) if per_device % n == 0):
        needed = sum(needs.on(mesh, parts).values())
        if needed <= room:
            return parts
    raise UserError(
        f"one row needs about {needed / 1e9:.1f} GB, and the device has {room / SHARE / 1e9:.1f}"
        " GB; shorten the rows (--length), or train a smaller model"
    )


def table(needed: Mapping[str, int]) -> str:
    lines = [f"{what:<16} {size / 1e9:8.2f} GB" for what, size in needed.items()]
    together = f"{'together':<16} {sum(needed.values()) / 1e9:8.2f} GB"
    return "\n".join([*lines, f"{together} (estimated)"])
