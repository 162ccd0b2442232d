"""xFNP: several future words at once, by the predicting streams of an n-stream decoder (XGLUE §4.2;
ProphetNet §3)."""

import dataclasses

import jax.numpy as jnp

from xlingjax.data.features import DECODER_FIELDS
from xlingjax.errors import UserError, require_choice, require_numbers
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import Fields, Mask, bidirectional, first_side
from xlingjax.model.ngram_decoder import NgramSeq2Seq, from_first
from xlingjax.objectives.base import INPUTS, Array, Batch, Params, Predictions
from xlingjax.objectives.ramp import Ramp
from xlingjax.objectives.translation import Translation, at_target, with_decoder

SKIPS = ("target", "runs", "none")  # of what stream i does not predict the first i words


@dataclasses.dataclass(frozen=True)
class XFNP(Translation):
    """Cross-entropy of every word of the target by every stream, stream i from the source and the
    words that stand more than i before it. alphas: factor of each stream's sum; the loss is their
    sum divided by the predictions of all.

    skip: of what stream i does not predict the first i words. "target": of all hidden runs
    together, as in the sums of XGLUE §4.2 (y_t+i from y_<t); "runs": of each run, as in the
    pretraining that ProphetNet's code has; "none": it predicts every word, for the targets of
    `Translation` (fine-tuning).

    At the start of a run, too, stream i does not see the last i words that the decoder has read.
    What it sees of the runs before stands at its own positions in the text, so no word of theirs
    passes for one right before this run.
    """

    name: str = "xfnp"
    alphas: tuple[float, ...] = (1.0, 1.0)
    skip: str = "target"

    def __post_init__(self):
        super().__post_init__()
        require_choice(self, SKIPS, "skip", f"{self.name}: ")
        require_numbers(self, "[0, inf)", "alphas", f"{self.name}: ")
        if not any(self.alphas):
            raise UserError(
                f"{self.name}: alphas={self.alphas} must not be all 0; give one per stream"
                " (streams says how many)"
            )

    @property
    def reads(self) -> tuple[str, ...]:
        if self.skip == "none":
            return INPUTS + DECODER_FIELDS
        # The loss of "target" does not, but pages tell by it that the source hides the target.
        return (*INPUTS, *DECODER_FIELDS, "run_offsets")

    @property
    def terms(self) -> list[str]:
        return [f"{self.name}_{i}" for i in range(len(self.alphas))]

    @property
    def coefficients(self) -> dict[str, float | Ramp]:
        factor = super().coefficients[self.name]
        return {term: alpha * factor for term, alpha in zip(self.terms, self.alphas, strict=True)}

    def masks(self) -> dict[str, Mask]:
        """Over the columns of `words`, those of the main stream behind those of the encoder."""
        return {f"stream {i}": stream_prefix(i) for i in range(len(self.alphas))}

    def evidence(self) -> dict[str, Mask]:
        """Over the columns of `words`."""
        return dict(zip(self.terms, self.masks().values(), strict=True))

    def weights(self, batch: Batch) -> dict[str, Array]:
        """Of every term the predictions of all streams."""
        # One divisor for all: the alphas are the only relative weights of the streams.
        streams = range(len(self.alphas))
        total = sum(self._weights_BT(batch, i).sum(dtype=jnp.float32) for i in streams)
        return dict.fromkeys(self.terms, total)

    def _weights_BT(self, batch: Batch, i: int) -> Array:
        """1 where stream i predicts."""
        weights_BT = batch["decoder_weights"]
        if self.skip == "none":
            return weights_BT
        if self.skip == "runs":
            # The word i before a run's first i words belongs to the run before.
            return weights_BT * (batch["run_offsets"] >= i)
        # y_(t+i) from y_<t: of the first i words there is no such y_<t.
        decoder = {"input_ids": batch["decoder_ids"], "pack_ids": batch["decoder_pack_ids"]}
        return weights_BT * (from_first(Fields.from_batch(decoder)).position >= i)

    def predictions(
        self,
        model: Encoder,
        params: Params,
        batch: Batch,
        rng: Array | None = None,
        shift_BLD: Array | None = None,
    ) -> dict[str, Predictions]:
        """shift_BLD: of the columns of `words`."""
        decode = with_streams(model, self.name, len(self.alphas)).decode_streams
        h_NBTD = self.decoded(decode, model, params, batch, rng, shift_BLD)
        # All streams at a column have the same target; stream i has seen i words less before it.
        return {
            term: at_target(h_BTD, batch, self._weights_BT(batch, i))
            for i, (term, h_BTD) in enumerate(zip(self.terms, h_NBTD, strict=True))
        }


def stream_prefix(i: int) -> Mask:
    """As `prefix`, without the last i words of the target; its first column is never hidden
    (`ngram_stream`)."""

    def allow(q: Fields, k: Fields) -> Array:
        target = (k.pack == q.pack) & (k.side > 0) & (q.side > 0)
        beyond = k.position.shape[-1]
        # The column that opens a target holds no word of it, and a stream must see something.
        first = jnp.where(target, k.position, beyond).min(-1, keepdims=True)
        return target & ((k.position <= q.position - i) | (k.position == first))

    return (bidirectional & (first_side | Mask("lagging", allow))).named(f"stream_prefix({i})")


def with_streams(model: Encoder, name: str, streams: int) -> NgramSeq2Seq:
    """The model. Raises UserError for one whose decoder has not so many predicting streams."""
    if with_decoder(model, name).config.streams != streams:
        raise UserError(
            f"objective {name} trains {streams} predicting streams and the decoder of model"
            f" {model.config.name} has {model.config.streams}: set STREAMS={streams}"
            " (model.streams), or other alphas"
        )
    return model
