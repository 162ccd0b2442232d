"""What an objective is: the fields it reads, who may see whom, and sums that only
`training/step.py` divides."""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from xlingjax.errors import UserError
from xlingjax.model.encoder import Encoder
from xlingjax.model.layers import Key
from xlingjax.model.masks import Mask, bidirectional, same_side
from xlingjax.objectives.losses import cross_entropy, gather_positions
from xlingjax.objectives.ramp import Ramp

Array = jax.Array
Batch = Mapping[str, Array]
Params = dict[str, Any]
Head = Callable[[Params, Array], tuple[Array, Array, Array]]  # as `Encoder.vocab_head`

INPUTS = ("input_ids", "position_ids", "language_ids", "pack_ids")
SLOTS = ("masked_positions", "masked_targets", "masked_weights")

# Most tokens whose logits exist at once: at a vocabulary of 250 000, 2 GB for the logits.
CHUNK = 2048

EACH_TEXT_ALONE = bidirectional & same_side


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Loss:
    """What one (micro)batch adds up to. Adding two of them leaf by leaf gives that of both batches
    together."""

    terms: dict[str, Array]
    """Scalar float32 sums over predictions, to be divided by the objective's `weights`."""
    metrics: dict[str, tuple[Array, Array]]
    """name -> (sum, weight), of equal shape: a scalar, or [G] for one value per language."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Predictions:
    """M predictions per row and what they are made from."""

    states: Array  # h_BMD
    columns: Array  # [B, M]: the column of the row whose state it is
    targets: Array  # [B, M]: the id, or class, to predict
    weights: Array  # [B, M]: 1, or 0 where nothing is predicted
    languages: Array  # [B, M]: whose metric it counts for


class Objective(abc.ABC):
    """Total loss = sum over terms of coefficient * sum of the term / sum of its weight, over the
    global batch. A method with a body here is a default."""

    name: str
    reads: tuple[str, ...]
    """The fields of a batch that it takes (`data/features.py`)."""
    weighed_by: str = "example_weights"
    """The field that `weights` adds up."""
    whole_batch: bool = False
    """Its terms are not sums over rows: it has the whole batch in a run in microbatches, too, and
    computes `in_parts`."""
    adds: tuple[str, ...] = ()
    """The parts that a model must have for it and a released encoder lacks: switches of
    `ModelConfig`."""
    continues_encoder: bool = True
    """Whether a released encoder goes on learning by it (`xlingjax adapt`): not by fine-tuning, nor
    by what needs a decoder or hides what comes after a word."""

    def in_parts(self, parts: int) -> "Objective":
        """Itself with a batch computed so: less memory, the same result. Of a `whole_batch`."""
        return self

    @property
    def coefficients(self) -> Mapping[str, float | Ramp]:
        """Of the terms; a ramp is by the step of the run."""
        return {self.name: 1.0}

    def attention(self) -> Mask:
        """Who sees whom in the encoder's self-attention: by default all of one example."""
        return bidirectional

    def masks(self) -> dict[str, Mask]:
        """Every mask that the objective uses, by what it is for; the first is that of
        `attention`."""
        return {"attention": self.attention()}

    def evidence(self) -> dict[str, Mask]:
        """What the objective promises, per entry of `predictions`: whose word the prediction at a
        column may depend on, after any number of layers. `leak.py` holds the model to it. Empty:
        nothing, as of objectives that predict no hidden word."""
        return {}

    def predictions(
        self,
        model: Encoder,
        params: Params,
        batch: Batch,
        rng: Key = None,
        shift_BLD: Array | None = None,
    ) -> dict[str, Predictions]:
        """By term, in the order of `coefficients`, then those that no loss is taken of. `shift_BLD`
        is added to the word embeddings that the model reads. Empty where `evidence` is; else by
        default what `read` makes of one pass of the encoder."""
        if not self.evidence():
            return {}
        h_BLD = model.encode(params, batch, self.attention(), rng=rng, shift_BLD=shift_BLD)
        return self.read(h_BLD, batch)

    def read(self, h_BLD: Array, batch: Batch) -> dict[str, Predictions]:
        """`predictions` from the encoder's states."""
        raise UserError(f"objective {self.name}: it has `evidence`; write its `predictions`, too")

    def words(self, batch: Batch) -> dict[str, Any]:
        """The token fields of all columns whose words the model reads: those of the batch, unless a
        decoder reads more."""
        return dict(batch)

    def as_read(
        self, model: Encoder, params: Params, batch: Batch, rng: Key = None
    ) -> tuple["Objective", dict[str, Any]]:
        """The objective and the batch of the pass that predicts: its own, or what an earlier pass
        made of them."""
        return self, dict(batch)

    def weights(self, batch: Batch) -> dict[str, Array]:
        """Per term the number of predictions, a float32 scalar; a function of the batch alone."""
        return {self.name: jnp.sum(batch[self.weighed_by], dtype=jnp.float32)}

    @abc.abstractmethod
    def loss(self, model: Encoder, params: Params, batch: Batch, rng: Key, languages: int) -> Loss:
        """`rng` None = evaluation, no dropout. `languages`: G, the length of the per-language
        metrics."""


class TokenObjective(Objective):
    """The loss of objectives that predict tokens: cross-entropy of every term's predictions,
    `chunk` at a time."""

    chunk: int
    smoothing = 0.0  # of the targets, see `cross_entropy`
    weighed_by = "masked_weights"

    def head(self, model: Encoder) -> Head:
        """Which of the model's vocabulary heads predicts."""
        return model.vocab_head

    def loss(self, model: Encoder, params: Params, batch: Batch, rng: Key, languages: int) -> Loss:
        terms: dict[str, Array] = {}
        metrics: dict[str, Any] = {}
        for name, predictions in self.predictions(model, params, batch, rng).items():
            # Others are for the leak test and for samples alone, as BTMLM's pseudo tokens.
            if name not in self.coefficients:
                continue
            # The logits, B M V of them, are nowhere made at once: `cross_entropy` goes by chunks.
            g_BMD, table_VD, bias_V = self.head(model)(params, predictions.states)
            weights_T = jnp.float32(predictions.weights).reshape(-1)
            terms[name], nll_T, correct_T = cross_entropy(
                g_BMD.reshape(-1, g_BMD.shape[-1]),
                table_VD,
                bias_V,
                predictions.targets.reshape(-1),
                weights_T,
                vocab_size=model.config.vocab_size,
                chunk=self.chunk,
                smoothing=self.smoothing,
            )
            values = {"loss": nll_T, "accuracy": correct_T}
            metrics |= metrics_by_language(
                name, values, weights_T, predictions.languages.reshape(-1), languages
            )
        return Loss(terms, metrics)


@dataclasses.dataclass(frozen=True)
class Judged:
    """What is paid for T predictions of labels, and what their metrics are."""

    loss_T: Array
    correct_T: Array  # bool
    weights_T: Array
    languages_T: Array


class LabelObjective(Objective):
    """The mean loss of predictions that are no words: classes, spans, partners."""

    continues_encoder = False

    @abc.abstractmethod
    def judged(self, model: Encoder, params: Params, batch: Batch, rng: Key) -> Judged:
        """Every prediction of the batch; those of weight 0 count for nothing."""

    def loss(self, model: Encoder, params: Params, batch: Batch, rng: Key, languages: int) -> Loss:
        found = self.judged(model, params, batch, rng)
        values = {"loss": found.loss_T, "accuracy": jnp.float32(found.correct_T)}
        metrics = metrics_by_language(
            self.name, values, found.weights_T, found.languages_T, languages
        )
        return Loss({self.name: (found.loss_T * found.weights_T).sum()}, metrics)


def first_language(batch: Batch) -> Array:
    """[B]: the language of each row's first token."""
    return batch["language_ids"][:, 0]


def used_rows(batch: Batch) -> Array:
    """float32 [B]: 1 for a row with text, 0 for one that only fills the batch."""
    return (batch["pack_ids"] > 0).any(axis=1).astype(jnp.float32)


def at_slots(h_BLD: Array, batch: Batch, slots: slice = slice(None)) -> Predictions:
    """The predictions at the slots of a batch, or at some of them."""
    columns_BM = batch["masked_positions"][:, slots]
    return Predictions(
        gather_positions(h_BLD, columns_BM),
        columns_BM,
        batch["masked_targets"][:, slots],
        batch["masked_weights"][:, slots],
        jnp.take_along_axis(batch["language_ids"], columns_BM, axis=1),
    )


def at_all(h_BLD: Array, targets_BL: Array, weights_BL: Array, languages_BL: Array) -> Predictions:
    """A prediction at every column."""
    # Each column predicts from itself, which is what `evidence` is asked about.
    columns_BL = jnp.broadcast_to(jnp.arange(h_BLD.shape[1]), h_BLD.shape[:2])
    return Predictions(h_BLD, columns_BL, targets_BL, weights_BL, languages_BL)


def halves(terms: tuple[str, str], batch: Batch) -> list[tuple[str, slice]]:
    """[(first term, slots of side 0), (second term, slots of side 1)] where the slots are masked
    side by side."""
    # The features give both sides the same number of slots.
    half = batch["masked_positions"].shape[1] // 2
    x_term, y_term = terms
    return [(x_term, slice(0, half)), (y_term, slice(half, None))]


def metrics_by_language(
    name: str, values: dict[str, Array], weights_T: Array, languages_T: Array, languages: int
):
    """`name/KEY` and `name/KEY_by_language` for every per-token `values[KEY]`, as (sum, weight)
    pairs."""
    # By comparison and not by a scatter: every device adds up the same [G].
    weights_GT = weights_T * (languages_T == jnp.arange(languages)[:, None])
    # Sums and weights, not means: they are added over microbatches and devices before anything is
    # divided.
    metrics = {}
    for key, value_T in values.items():
        metrics[f"{name}/{key}"] = ((value_T * weights_T).sum(), weights_T.sum())
        metrics[f"{name}/{key}_by_language"] = ((weights_GT * value_T).sum(-1), weights_GT.sum(-1))
    return metrics
