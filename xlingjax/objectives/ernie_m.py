"""ERNIE-M's two objectives: cross-attention masked LM on pairs, back-translation masked LM on
single texts (§3.1)."""

import dataclasses

import jax
import jax.numpy as jnp

from xlingjax.errors import require_choice
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import (
    Mask,
    bidirectional,
    camlm,
    camlm_alone,
    itself,
    mask_keys,
    own_side,
    partner,
    pseudo_tokens,
    pseudo_tokens_together,
)
from xlingjax.objectives.base import (
    CHUNK,
    INPUTS,
    SLOTS,
    Array,
    Batch,
    Key,
    Params,
    Predictions,
    TokenObjective,
    at_slots,
    halves,
)
from xlingjax.objectives.losses import best_ids, gather_positions


@dataclasses.dataclass(frozen=True)
class CAMLM(TokenObjective):
    """Cross-attention masked LM (ERNIE-M §3.1, eq. 1-3): each MASK is predicted from the other
    sentence and the MASKs of its own; mean cross-entropy of each side, summed.

    own_masks: a MASK sees "all" MASKs of its side, or "self" alone. Whether masked words stay in
    place or in slots of their own behind the pair is the features' matter; both have the same mask.
    """

    name: str = "camlm"
    own_masks: str = "all"
    chunk: int = CHUNK
    reads = (*INPUTS, "sides", "is_mask", *SLOTS)

    def __post_init__(self):
        require_choice(self, ("all", "self"), "own_masks", f"{self.name}: ")

    @property
    def terms(self) -> tuple[str, str]:
        return f"{self.name}_x", f"{self.name}_y"

    @property
    def coefficients(self) -> dict[str, float]:
        return dict.fromkeys(self.terms, 1.0)

    def attention(self) -> Mask:
        if self.own_masks == "all":
            return camlm
        return camlm_alone

    def evidence(self) -> dict[str, Mask]:
        # A MASK carries its position and language, not the word that it hides.
        own = own_side & mask_keys
        if self.own_masks == "self":
            # `bidirectional` as well, which leaves padding out.
            own = bidirectional & itself
        return dict.fromkeys(self.terms, (partner & ~mask_keys) | own)

    def weights(self, batch: Batch) -> dict[str, Array]:
        # L = L_x + L_y (eq. 3): each side has a mean of its own.
        weights_BM = batch["masked_weights"]
        return {term: weights_BM[:, half].sum() for term, half in halves(self.terms, batch)}

    def read(self, h_BLD: Array, batch: Batch) -> dict[str, Predictions]:
        return {term: at_slots(h_BLD, batch, half) for term, half in halves(self.terms, batch)}


@dataclasses.dataclass(frozen=True)
class BTMLM(TokenObjective):
    """Back-translation masked LM (ERNIE-M §3.1, eq. 4-6), both stages in one step.

    First the model itself fills P placeholders behind the whole text, in a language of the
    features' choice, without gradient or dropout. Then the masked words of the text are predicted
    from the rest of it and the pseudo tokens. decode: the likeliest id (`argmax`) or a draw
    (`sample`; argmax in evaluation), and no special token. own_masks:
    of the placeholders each sees "self" alone, or "all".
    """

    name: str = "btmlm"
    decode: str = "argmax"
    own_masks: str = "self"
    chunk: int = CHUNK
    reads = (
        *INPUTS,
        "sides",
        "is_mask",
        "original_ids",
        "pseudo_positions",
        "pseudo_weights",
        "special_ids",
        *SLOTS,
    )

    def __post_init__(self):
        require_choice(self, ("argmax", "sample"), "decode", f"{self.name}: ")
        require_choice(self, ("self", "all"), "own_masks", f"{self.name}: ")

    @property
    def _first_stage(self) -> Mask:
        if self.own_masks == "self":
            return pseudo_tokens
        return pseudo_tokens_together

    def masks(self) -> dict[str, Mask]:
        # In the second the pseudo tokens are words as others: the text sees them, and they it.
        return {"second stage": bidirectional, "first stage": self._first_stage}

    def evidence(self) -> dict[str, Mask]:
        pseudo = bidirectional
        if self.own_masks == "self":
            # Placeholders bear `is_mask`, so one sees the text and itself.
            pseudo = bidirectional & ~mask_keys | bidirectional & itself
        return {self.name: bidirectional, f"{self.name}_pseudo": pseudo}

    def predictions(
        self,
        model: Encoder,
        params: Params,
        batch: Batch,
        rng: Key = None,
        shift_BLD: Array | None = None,
    ) -> dict[str, Predictions]:
        # The key draws pseudo tokens, where they are drawn; the first stage has no dropout.
        key = rng
        if rng is not None:
            key = jax.random.fold_in(rng, 1)
        first = self.placeholders(model, params, batch, key, shift_BLD)
        filled = self.filled(batch, first.targets)
        h_BLD = model.encode(params, filled, self.attention(), rng=rng, shift_BLD=shift_BLD)
        # The second is no term of the loss: the leak test looks at it, and samples show it.
        return {self.name: at_slots(h_BLD, batch), f"{self.name}_pseudo": first}

    def placeholders(
        self,
        model: Encoder,
        params: Params,
        batch: Batch,
        key: Key = None,
        shift_BLD: Array | None = None,
    ) -> Predictions:
        """First stage: the placeholders' states, read from the text as it is, and the pseudo tokens
        as `targets`."""
        # Pseudo tokens are data to the second stage; without a key there is no dropout.
        params = jax.lax.stop_gradient(params)
        # Written from the whole text, or a pseudo token could not translate what is masked.
        whole = {**batch, "input_ids": batch["original_ids"]}
        h_BLD = model.encode(params, whole, self._first_stage, shift_BLD=shift_BLD)
        columns_BP = batch["pseudo_positions"]
        states_BPD = gather_positions(h_BLD, columns_BP)
        g_BPD, table_VD, bias_V = model.vocab_head(params, states_BPD)
        g_TD = g_BPD.reshape(-1, g_BPD.shape[-1])
        ids_T = best_ids(
            g_TD,
            table_VD,
            bias_V,
            vocab_size=model.config.vocab_size,
            # All rows carry the same ids: a field of a batch has an axis of rows.
            banned=batch["special_ids"][0],
            chunk=self.chunk,
            key=key if self.decode == "sample" else None,
        )
        languages_BP = jnp.take_along_axis(batch["language_ids"], columns_BP, axis=1)
        return Predictions(
            states_BPD,
            columns_BP,
            ids_T.reshape(columns_BP.shape),
            batch["pseudo_weights"],
            languages_BP,
        )

    @staticmethod
    def filled(batch: Batch, ids_BP: Array) -> dict[str, Array]:
        """The batch with these ids in place of the placeholders: what the second stage reads."""
        columns_BP = batch["pseudo_positions"]
        there_BP = jnp.take_along_axis(batch["input_ids"], columns_BP, axis=1)
        # Added, not set: unused slots all name column 0, and add 0 to it.
        added_BP = jnp.where(batch["pseudo_weights"] > 0, ids_BP - there_BP, 0)
        rows_B1 = jnp.arange(columns_BP.shape[0])[:, None]
        ids_BL = jnp.asarray(batch["input_ids"]).at[rows_B1, columns_BP].add(added_BP)
        return {**batch, "input_ids": ids_BL}
