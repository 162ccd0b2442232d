"""ERNIE-M's two objectives: cross-attention masked LM on pairs, back-translation masked LM on single texts (§3.2)."""

import dataclasses

import jax
import jax.numpy as jnp

from xlingjax.losses import best_ids, gather_positions
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import bidirectional, camlm, camlm_alone, pseudo_tokens
from xlingjax.objectives.base import Array, Batch, Loss, Params, together
from xlingjax.objectives.xlm import CHUNK, INPUTS, SLOTS, halves, masked_loss


@dataclasses.dataclass(frozen=True)
class CAMLM:
    """Cross-attention masked LM (ERNIE-M §3.2, eq. 1-3): each MASK is predicted from the other sentence and the MASKs
    of its own; mean cross-entropy of each side, summed.

    own_masks: a MASK sees "all" MASKs of its side, or "self" alone. Whether masked words stay in place or in slots of
    their own behind the pair is the features' matter; both have the same mask.
    """

    name: str = "camlm"
    own_masks: str = "all"
    chunk: int = CHUNK
    reads = (*INPUTS, "sides", "is_mask", *SLOTS)

    @property
    def terms(self) -> tuple[str, str]:
        return f"{self.name}_x", f"{self.name}_y"

    @property
    def coefficients(self) -> dict[str, float]:
        return dict.fromkeys(self.terms, 1.0)

    def attention(self) -> AttentionSpec:
        return AttentionSpec(camlm if self.own_masks == "all" else camlm_alone)

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {term: batch["masked_weights"][:, half].sum() for term, half in halves(self.terms, batch)}

    def loss(self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int) -> Loss:
        h_BLD = model.encode(params, batch, self.attention(), rng=rng)
        return together(
            *(
                masked_loss(term, model, params, h_BLD, batch, languages, self.chunk, half)
                for term, half in halves(self.terms, batch)
            )
        )


@dataclasses.dataclass(frozen=True)
class BTMLM:
    """Back-translation masked LM (ERNIE-M §3.2, eq. 4-6), both stages in one step.

    First the model itself fills P placeholders behind the whole text, in a language of the features' choice, without
    gradient or dropout. Then the masked words of the text are predicted from the rest of it and the pseudo tokens.
    decode: the likeliest id (`argmax`) or a draw (`sample`; argmax in evaluation). banned: ids never generated.
    """

    name: str = "btmlm"
    decode: str = "argmax"
    banned: tuple[int, ...] = ()
    chunk: int = CHUNK
    reads = (*INPUTS, "sides", "is_mask", "original_ids", "pseudo_positions", "pseudo_weights", *SLOTS)

    @property
    def coefficients(self) -> dict[str, float]:
        return {self.name: 1.0}

    def attention(self) -> AttentionSpec:
        """Of the second stage; the first has the mask `pseudo_tokens`."""
        return AttentionSpec(bidirectional)

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: batch["masked_weights"].sum()}

    def loss(self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int) -> Loss:
        ids_BP = self.pseudo_ids(model, params, batch, None if rng is None else jax.random.fold_in(rng, 1))
        h_BLD = model.encode(params, self.with_pseudo(batch, ids_BP), self.attention(), rng=rng)
        return masked_loss(self.name, model, params, h_BLD, batch, languages, self.chunk)

    def pseudo_ids(self, model: Encoder, params: Params, batch: Batch, key: Array | None = None) -> Array:
        """int32 ids_BP for the placeholders, from the text as it is (first stage)."""
        params = jax.lax.stop_gradient(params)
        whole = {**batch, "input_ids": batch["original_ids"]}
        h_BLD = model.encode(params, whole, AttentionSpec(pseudo_tokens))
        g_BPD, table_VD, bias_V = model.vocab_head(params, gather_positions(h_BLD, batch["pseudo_positions"]))
        ids_T = best_ids(
            g_BPD.reshape(-1, g_BPD.shape[-1]),
            table_VD,
            bias_V,
            vocab_size=model.config.vocab_size,
            banned=self.banned,
            chunk=self.chunk,
            key=key if self.decode == "sample" else None,
        )
        return ids_T.reshape(g_BPD.shape[:2])

    @staticmethod
    def with_pseudo(batch: Batch, ids_BP: Array) -> dict[str, Array]:
        """The batch with these ids in place of the placeholders (second stage's input)."""
        positions_BP = batch["pseudo_positions"]
        there_BP = jnp.take_along_axis(batch["input_ids"], positions_BP, axis=1)
        ids_BP = jnp.where(batch["pseudo_weights"] > 0, ids_BP, there_BP)
        rows_B1 = jnp.arange(positions_BP.shape[0])[:, None]
        return {**batch, "input_ids": batch["input_ids"].at[rows_B1, positions_BP].set(ids_BP)}
