"""The encoder: embeddings, stack and heads behind one plain object of pure functions.

Parameter paths (also the names on disk):
`embeddings/{tokens,positions,languages,segments}/embedding`, `embeddings/norm/{scale,bias}`,
`encoder/layers/*` (stacked on axis 0), `encoder/final_norm/*` (pre-LN),
`encoder/distances/embedding` (T5), also `encoder/distances_norm/{scale,bias}` (DeBERTa),
`head/{dense/{kernel,bias},norm/{scale,bias},tokens/embedding,bias}`,
`classifier/{{dense,out}/{kernel,bias},norm/{scale,bias}}`, of several tasks
`classifiers/TASK/{dense,out}/{kernel,bias}`, `word_recovery/kernel`,
`paraphrase/out/{kernel,bias}`, `dan/{in,out}/{kernel,bias}`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from xlingjax.errors import UserError
from xlingjax.model.attention import bind, turns_of
from xlingjax.model.block import WEIGHTS
from xlingjax.model.config import ModelConfig
from xlingjax.model.distances import Distances, distances_of
from xlingjax.model.heads import (
    Classifier,
    DeepAveraging,
    FirstState,
    TaskClassifiers,
    VocabularyHead,
    WordRecovery,
)
from xlingjax.model.layers import Embed, Key, Norm, dropout, split_key
from xlingjax.model.masks import Fields, Mask, bidirectional, near
from xlingjax.model.stack import Stack

Array = jax.Array
Params = dict[str, Any]
Batch = Mapping[str, Array]


class Embeddings(nn.Module):
    """Token + position (+ language) embeddings, Norm, dropout (XLM §3.1)."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self,
        batch: Batch,
        key: Key,
        words_BLD: Array | None = None,
        shift_BLD: Array | None = None,
    ) -> Array:
        c = self.config
        # Split over the vocabulary alone (see `partition.RULES`); the other tables are small, and
        # stand whole on every device.
        tokens = Embed(c, c.padded_vocab_size, ("vocab", None), name="tokens")
        x_BLD = words_BLD
        if words_BLD is None:
            x_BLD = tokens(batch["input_ids"])
        # Before the scale and the norm, as if the table had held another word.
        if shift_BLD is not None:
            x_BLD = x_BLD + shift_BLD
        if c.embedding_scale:
            x_BLD = x_BLD * c.dim**0.5
        if c.positions == "learned":
            # Padding keeps the row just below the first position (XLM-R's row 1).
            padding_row = max(c.position_offset - 1, 0)
            positions_BL = jnp.where(
                batch["pack_ids"] > 0, batch["position_ids"] + c.position_offset, padding_row
            )
            x_BLD += Embed(c, c.max_positions, (None, None), name="positions")(positions_BL)
        elif c.positions == "sinusoidal":
            x_BLD += waves(batch["position_ids"] + c.position_offset, c.dim)
        if c.has_languages:
            init = None
            if c.language_init == "zero":
                init = nn.initializers.zeros
            languages = Embed(c, c.num_languages, (None, None), init, name="languages")
            x_BLD += languages(batch["language_ids"])
        if c.segments:
            sides_BL = batch.get("sides", jnp.zeros_like(batch["input_ids"]))
            sides_BL = jnp.minimum(sides_BL, c.segments - 1)
            x_BLD += Embed(c, c.segments, (None, None), name="segments")(sides_BL)
        if c.embedding_norm:
            x_BLD = Norm(c, name="norm")(x_BLD)
        # Sums and norm in float32, the layers in the compute type.
        return dropout(x_BLD.astype(c.dtype), c.dropout, key)


def waves(positions_BL: Array, dim: int) -> Array:
    """[B, L, D]: sines of the positions times 10000^(-2i/(D-2)), then cosines."""
    half = dim // 2
    speeds = jnp.exp(jnp.arange(half) * (-math.log(10_000) / (half - 1)))
    angles = positions_BL[..., None] * speeds
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


class _Modules(nn.Module):
    """Every module with parameters, and one method that runs them all, so that init makes every
    slot."""

    config: ModelConfig
    mesh: Mesh | None

    def setup(self):
        self.embeddings = Embeddings(self.config)
        self.encoder = Stack(self.config, self.mesh)
        # Heads are made only where the configuration has
        # them: no checkpoint holds what is not used.
        self.head = VocabularyHead(self.config)
        if self.config.num_labels:
            self.classifier = Classifier(self.config)
        if self.config.task_labels:
            self.classifiers = TaskClassifiers(self.config)
        if self.config.word_recovery:
            self.word_recovery = WordRecovery(self.config)
        if self.config.paraphrase:
            self.paraphrase = FirstState(self.config)
        if self.config.dan:
            self.dan = DeepAveraging(self.config)

    def encode(
        self,
        batch: Batch,
        mask: Mask,
        key: Key = None,
        all_layers: bool = False,
        memory: tuple[Array, Mask] | None = None,
        words_BLD: Array | None = None,
        shift_BLD: Array | None = None,
        states_BLD: Array | None = None,
    ):
        c = self.config
        keys = split_key(key)
        fields = Fields.from_batch(batch)

        keys_of_rows = seen_fields(c, batch)

        def bound(mask, theta=c.rotary_theta, apart=True):
            turns = None
            distances = self.distances(batch) if apart else None
            if c.positions == "rotary":
                turns = turns_of(batch["position_ids"] / c.rotary_scale, c.head_dim, theta)
            backend = c.attention_backend, c.attention_dropout, self.mesh
            return bind(mask, fields, keys_of_rows, *backend, turns, distances)

        if states_BLD is None:
            x_BLD = self.embeddings(batch, keys[0], words_BLD, shift_BLD)
        else:
            # The states stand for all that the embeddings give, their dropout included.
            x_BLD = states_BLD.astype(c.dtype)
        if memory is not None:
            memory_BSD, memory_spec = memory
            memory = (memory_BSD, bound(memory_spec, apart=False))
        attention = bound(mask)
        if c.window:
            attention = attention, bound(mask & near(c.window), c.local_theta or c.rotary_theta)
        return self.encoder(x_BLD, keys[1], attention, memory, all_layers)

    def distances(self, batch: Batch) -> Distances | None:
        positions_BL = batch["position_ids"]
        if self.config.has_biases:
            # An example's columns are one behind the other: those of one row do for all.
            positions_BL = Fields.from_batch(batch).position[:1]
        return distances_of(self.config, positions_BL, positions_BL)

    def everything(self):
        # Flax makes a parameter where it is first used, so each module is called once.
        batch = one_token()
        fields = Fields.from_batch(batch)
        # On "xla", which takes rows of any length: the parameters are the same for every backend.
        attention = other = bind(bidirectional, fields, fields)
        attention = dataclasses.replace(attention, distances=self.distances(batch))
        x_BLD = self.embeddings(batch, None)
        h_BLD = self.encoder(x_BLD, None, attention, (x_BLD, other))
        self.head(h_BLD)
        read_BLE = h_BLD
        if self.config.plugged_in:
            read_BLE = jnp.concatenate([h_BLD, h_BLD], axis=-1)
        if self.config.num_labels:
            self.classifier(read_BLE, None, fields)
        if self.config.task_labels:
            self.classifiers(read_BLE, None, fields)
        if self.config.word_recovery:
            self.word_recovery(x_BLD, x_BLD, bidirectional(fields, fields))
        if self.config.paraphrase:
            self.paraphrase(h_BLD, None)
        if self.config.dan:
            self.dan(x_BLD, fields.valid)


def seen_fields(config: ModelConfig, batch: Batch) -> Fields:
    """Of what other tokens may see."""
    if config.unseen is None:
        return Fields.from_batch(batch)
    seen_BL = batch["pack_ids"] * (batch["input_ids"] != config.unseen)
    return Fields.from_batch({**batch, "pack_ids": seen_BL})


def one_token() -> dict[str, Array]:
    """A batch of one row of one token: shapes of parameters depend on no other."""
    one = jnp.ones((1, 1), jnp.int32)
    zero = jnp.zeros((1, 1), jnp.int32)
    return {"input_ids": one, "pack_ids": one, "position_ids": zero, "language_ids": zero}


class Encoder:
    """A transformer encoder with a tied vocabulary head and, for `num_labels` > 0, a classifier;
    for `task_labels` one per task.

    Parameters are a nested dict of float32 arrays that the caller owns; every method is a pure
    function of them.
    """

    def __init__(self, config: ModelConfig, mesh: Mesh | None = None):
        """With a mesh, rows of states stay on its ("data", "fsdp") axes through all layers (see
        `Stack`)."""
        self.config = config
        self.mesh = mesh
        self._modules = _Modules(config, mesh)

    def init(self, rng: Array) -> Params:
        """Random parameters; the same for every device layout when jitted with sharded outputs."""
        return nn.unbox(self._boxed(rng))

    def abstract(self) -> Params:
        """The tree of `init` as `jax.ShapeDtypeStruct`."""
        return nn.unbox(self._abstract_boxed())

    def logical_axes(self) -> Params:
        """The tree of `init` with a tuple of logical axis names (or None) per parameter."""

        def is_box(x):
            return isinstance(x, nn.LogicallyPartitioned)

        return jax.tree.map(lambda box: tuple(box.names), self._abstract_boxed(), is_leaf=is_box)

    def encode(
        self,
        params: Params,
        batch: Batch,
        mask: Mask,
        *,
        rng: Key = None,
        all_layers: bool = False,
        memory: tuple[Array, Mask] | None = None,
        words_BLD: Array | None = None,
        shift_BLD: Array | None = None,
        states_BLD: Array | None = None,
        texts: int = 1,
    ) -> Array:
        """h_BLD in the compute type; with `all_layers` h_[N+1]BLD, the embedding output first.

        Reads input_ids, position_ids, pack_ids and, with language embeddings, language_ids, with a
        segment embedding sides (without them: of a single text); what `mask` looks at
        besides (sides, is_mask) too. `rng` None = no dropout. memory: h_BLD of the same rows for
        the cross-attention slot, and who sees whom there. words_BLD: the word embeddings, instead
        of the rows' own; shift_BLD: what to add to them; states_BLD: instead of all that the
        embeddings give. texts: equal parts of a row, in each of which positions begin anew. Raises
        `UserError` when they are longer than the position table or the model lacks the slot for
        `memory`, `Refused` when the attention backend cannot honour `mask`.
        """
        self._check(batch, texts=texts)
        self._require("cross_attention", memory is None)
        given = rng, all_layers, memory, words_BLD, shift_BLD, states_BLD
        return self._run(params, lambda modules: modules.encode(batch, mask, *given))

    def attention_weights(
        self,
        params: Params,
        batch: Batch,
        mask: Mask,
        *,
        memory: tuple[Array, Mask] | None = None,
    ) -> dict[str, Array]:
        """{"self-attention": float32 [N, B, H, L, L]} of all layers in the pass that `encode` makes
        of these arguments, of one with `memory` also "cross-attention" (without a self-attention
        that it leaves out: `cross_attention_query` "input"). Rows sum to 1; who is not seen has 0.
        Raises what `encode` raises, and `Refused` on another backend than xla."""
        self._check(batch)
        self._require("cross_attention", memory is None)
        _, found = self._modules.apply(
            {"params": params},
            mutable=[WEIGHTS],
            method=lambda modules: modules.encode(batch, mask, memory=memory),
        )
        layers = found[WEIGHTS]["encoder"]["layers"]
        weights = {}
        if "attention" in layers:
            (weights["self-attention"],) = layers["attention"]["weights"]
        if "cross_attention" in layers:
            of_slot = layers["cross_attention"]["attention"]
            (weights["cross-attention"],) = of_slot["weights"]
        return weights

    def vocab_head(self, params: Params, h: Array) -> tuple[Array, Array, Array]:
        """(g_...D, table_VD, bias_V) such that logits are g @ table.T + bias; V is the padded
        vocabulary."""
        return self._with_table(params, self._run(params, lambda modules: modules.head(h)))

    def _with_table(self, params: Params, made: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        """What a vocabulary head makes, and the table that it projects on."""
        g, bias_V = made
        # Tied: the table that words are looked up in is the head's kernel.
        owner = "embeddings" if self.config.tied else "head"
        table_VD = params[owner]["tokens"]["embedding"]
        return g, table_VD.astype(g.dtype), bias_V

    def classify(
        self,
        params: Params,
        h_BLD: Array,
        batch: Batch,
        *,
        rng: Key = None,
        task: str | None = None,
    ) -> Array:
        """float32 logits_BC (of "tagging" logits_BLC), of the head of `task` where the model has
        several. Reads input_ids, pack_ids and, for "difference", sides. Raises `UserError` for a
        model without that head."""
        c = self.config
        if not c.labels_of(task):
            known = ", ".join(dict(c.task_labels or ())) or "none"
            raise UserError(
                f"model {c.name} has no classification head{f' of task {task!r}' if task else ''}"
                f" (of tasks: {known}); set num_labels or task_labels"
            )
        fields = seen_fields(c, batch)
        if task is None:
            return self._run(params, lambda modules: modules.classifier(h_BLD, rng, fields))
        found = self._run(params, lambda modules: modules.classifiers(h_BLD, rng, fields, task))
        return found[task]

    def recover_words(
        self, params: Params, batch: Batch, mask: Mask, *, shift_BLD: Array | None = None
    ) -> tuple[Array, Array]:
        """(x_BLD, attention_BLS): every token as a mixture of the word embeddings of those whom
        `mask` lets it see (Unicoder §3.2). shift_BLD is added to the embeddings as they are mixed,
        not as they are compared. Raises `UserError` for a model without word_recovery."""
        self._require("word_recovery")
        # Without positions and norm: words are mixed, not states.
        e_BLD = self._words(params, batch)
        values_BLD = e_BLD if shift_BLD is None else e_BLD + shift_BLD
        fields = Fields.from_batch(batch)
        allowed_BLS = mask(fields, fields)
        return self._run(
            params, lambda modules: modules.word_recovery(e_BLD, values_BLD, allowed_BLS)
        )

    def averages(self, params: Params, batch: Batch) -> tuple[Array, Array]:
        """float32 (u_BF, v_BF): the deep averaging network's vectors of the texts of a row, one
        pair per row. Raises `UserError` for a model without one."""
        self._require("dan")
        e_BLD = self._words(params, batch)
        fields = Fields.from_batch(batch)
        return self._run(
            params,
            lambda modules: tuple(
                modules.dan(e_BLD, fields.valid & (fields.side == side)) for side in (0, 1)
            ),
        )

    def classify_paraphrase(self, params: Params, h_BLD: Array, *, rng: Key = None) -> Array:
        """float32 logit_B that the two texts of a row translate each other, from the row's first
        state (Unicoder §3.2). Raises `UserError` for a model without a paraphrase head."""
        self._require("paraphrase")
        return self._run(params, lambda modules: modules.paraphrase(h_BLD, rng))

    def _words(self, params: Params, batch: Batch) -> Array:
        """[B, L, D]: rows of the token table."""
        return jnp.take(params["embeddings"]["tokens"]["embedding"], batch["input_ids"], axis=0)

    def _run(self, params: Params, method: Callable[[Any], Any]) -> Any:
        return self._modules.apply({"params": params}, method=method)

    def _boxed(self, rng):
        return self._modules.init({"params": rng}, method="everything")["params"]

    def _abstract_boxed(self):
        return _abstract_boxed(type(self), self.config)

    def _require(self, part: str, unless: bool = False) -> None:
        if not unless and not getattr(self.config, part):
            value = "WIDTH" if part == "dan" else "True"
            raise UserError(f"model {self.config.name} has no {part}; set {part}={value}")

    def _check(self, batch: Batch, ahead: int = 0, texts: int = 1) -> None:
        """`ahead`: positions that are read beyond the last token's; `texts`: see `encode`."""
        c = self.config
        # A lookup beyond the table raises nothing inside a compiled program.
        length = batch["input_ids"].shape[-1] // texts
        rows = c.max_positions - c.position_offset - ahead
        if length > rows:
            raise UserError(
                f"rows of {length} tokens do not fit model {c.name}: its position table takes"
                f" {rows}; shorten the rows or raise max_positions"
            )


# Traced once, though every objective of a run asks.
@functools.lru_cache(maxsize=16)
def _abstract_boxed(kind: type[Encoder], config: ModelConfig):
    return jax.eval_shape(kind(config)._boxed, jax.random.key(0))
