"""VECO's variable encoder: masked LM with the cross-attention plugged out and plugged in (VECO
§2.1-2.2)."""

import dataclasses

import jax
import jax.numpy as jnp

from xlingjax.errors import UserError, require_choice, require_numbers
from xlingjax.model.config import CHOICES
from xlingjax.model.encoder import Encoder
from xlingjax.model.layers import split_key
from xlingjax.model.masks import Mask, bidirectional, first_columns, itself, own_side, partner
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
from xlingjax.objectives.ramp import Ramp

KINDS = ("plug_out", "plug_in", "tlm")  # of terms: both sides from H, both from S, and the fifth


@dataclasses.dataclass(frozen=True)
class VECO(TokenObjective):
    """Four terms, each a mean of its own (VECO §2, eq. 3-9): the masked words of x and of y from
    the side alone (H, plugged out), and from both (S, plugged in: every layer attends to the final
    H of the other side).

    plug_out False leaves the two terms of H out, as in the first phase, where only the
    cross-attention is trained and they have no gradient. stop_gradient: no gradient reaches the
    other side through its states. tlm: a fifth term, TLM, reads both sides as one text with
    positions running on; reset_positions: restarting at y, as XLM's TLM. query: the model's
    `cross_attention_query`; raises UserError where it is not. factors: (kind, factor of its terms)
    of kinds whose factor is not 1; a number or a ramp by the step of the run, 0 leaves the terms
    out; raises UserError for a kind not of `KINDS`, a factor that is negative or no number, and
    where no term is left.

    The batch has each pair as TLM reads it, `<s> x </s> </s> y </s>`; for H and S y too opens as x
    does.
    """

    name: str = "veco"
    plug_out: bool = True
    stop_gradient: bool = True
    tlm: bool = False
    query: str = "self_attention"
    factors: tuple[tuple[str, float | str], ...] = ()
    reset_positions: bool = False
    chunk: int = CHUNK
    reads = (*INPUTS, "sides", *SLOTS)
    adds = ("cross_attention",)

    def __post_init__(self):
        choices = CHOICES["cross_attention_query"]
        require_choice(self, choices, "query", f"{self.name}: ")
        for kind, factor in self.factors:
            if kind not in KINDS:
                raise UserError(
                    f"{self.name}: factors of {kind!r}: the terms are {', '.join(KINDS)}"
                    " (VECO_FACTORS)"
                )
            values = {"factors": {kind: Ramp.parse(factor).values}}
            require_numbers(values, "[0, inf)", "factors", f"{self.name}: ")
        if not self._terms:
            raise UserError(
                f"{self.name}: VECO_FACTORS leaves no term; in the first phase (FIRST_PHASE) there"
                " is plug_in alone"
            )

    @property
    def _terms(self) -> dict[str, tuple[str, str, float | str]]:
        """(kind, side, factor) of each term that it has, by name: those of x and of y, or one."""
        found = {}
        kinds = {"plug_out": self.plug_out, "plug_in": True, "tlm": self.tlm}
        for kind, there in kinds.items():
            factor = dict(self.factors).get(kind, 1.0)
            if there and any(Ramp.parse(factor).values):
                for side in ("",) if kind == "tlm" else ("_x", "_y"):
                    found[f"{self.name}_{kind}{side}"] = kind, side, factor
        return found

    @property
    def coefficients(self) -> dict[str, float | Ramp]:
        return {term: Ramp.coefficient(factor) for term, (*_, factor) in self._terms.items()}

    def attention(self) -> Mask:
        """Self-attention of H and of S."""
        return own_side

    def masks(self) -> dict[str, Mask]:
        masks: dict[str, Mask] = {}
        kinds = {kind for kind, *_ in self._terms.values()}
        if kinds != {"tlm"}:
            masks["self-attention of H and S"] = own_side
        if "plug_in" in kinds:
            masks["cross-attention of S to H"] = partner
        if "tlm" in kinds:
            masks["TLM"] = bidirectional
        return masks

    def evidence(self) -> dict[str, Mask]:
        seen = {"plug_out": own_side, "plug_in": bidirectional, "tlm": bidirectional}
        if self.query != "self_attention":
            # Without self-attention a state of S knows its own word and the other side.
            seen["plug_in"] = partner | bidirectional & itself
        return {term: seen[kind] for term, (kind, *_) in self._terms.items()}

    def weights(self, batch: Batch) -> dict[str, Array]:
        weights_BM = batch["masked_weights"]
        slots = self._slots(batch)
        return {
            term: weights_BM[:, slots[side]].sum() for term, (_, side, _) in self._terms.items()
        }

    def _slots(self, batch: Batch) -> dict[str, slice]:
        """Those of each side, and of both."""
        return {"": slice(None), **dict(halves(("_x", "_y"), batch))}

    def predictions(
        self,
        model: Encoder,
        params: Params,
        batch: Batch,
        rng: Key = None,
        shift_BLD: Array | None = None,
    ) -> dict[str, Predictions]:
        # Each pass has a dropout of its own.
        keys = split_key(rng, 3)
        h_BLD, s_BLD = self.states(model, params, batch, keys[0], keys[1], shift_BLD)
        # What no term is paid for is not handed on, and XLA drops it.
        states = {"plug_out": h_BLD, "plug_in": s_BLD}
        if self.tlm:
            one_text = dict(batch) if self.reset_positions else as_one_text(batch)
            states["tlm"] = model.encode(
                params, one_text, bidirectional, rng=keys[2], shift_BLD=shift_BLD
            )
        slots = self._slots(batch)
        return {
            term: at_slots(states[kind], batch, slots[side])
            for term, (kind, side, _) in self._terms.items()
        }

    def states(
        self,
        model: Encoder,
        params: Params,
        batch: Batch,
        h_rng: Key = None,
        s_rng: Key = None,
        shift_BLD: Array | None = None,
        texts: int = 1,
    ) -> tuple[Array, Array]:
        """(H_BLD, S_BLD) of both sides. texts: 2 where each side has half of the row (see
        `Encoder.encode`)."""
        if model.config.cross_attention_query != self.query:
            raise UserError(
                f"model {model.config.name} has"
                f" cross_attention_query={model.config.cross_attention_query!r} and the objective"
                f" query={self.query!r}: set CROSS_ATTENTION_QUERY, which sets both"
            )
        batch = as_two_texts(batch)
        h_BLD = model.encode(
            params, batch, self.attention(), rng=h_rng, shift_BLD=shift_BLD, texts=texts
        )
        # Keys and values of every layer of S are the other side's final H (§2.1), so that one pass
        # gives them for all layers.
        memory_BLD = self.memory(batch, h_BLD, texts)
        s_BLD = model.encode(
            params,
            batch,
            self.attention(),
            rng=s_rng,
            memory=(memory_BLD, partner),
            shift_BLD=shift_BLD,
            texts=texts,
        )
        return h_BLD, s_BLD

    def memory(self, batch: Batch, h_BLD: Array, texts: int) -> Array:
        """[B, L, D]: the states of both sides that S reads, each side those of the other; batch and
        texts: of the pass that gave H."""
        return jax.lax.stop_gradient(h_BLD) if self.stop_gradient else h_BLD


def as_one_text(batch: Batch) -> dict[str, Array]:
    """The batch with the positions of each pair running on from x to y."""
    # VECO does not say how its TLM counts; XLM-R's pairs have positions that run on.
    first_BL = first_columns(batch["pack_ids"])
    columns_L = jnp.arange(first_BL.shape[1])
    positions_BL = jnp.where(batch["pack_ids"] > 0, columns_L - first_BL, 0)
    return {**batch, "position_ids": positions_BL}


def as_two_texts(batch: Batch) -> dict[str, Array]:
    """The batch with y opening as x does (the first token of neither is ever masked)."""
    sides_BL = batch["sides"]
    before_BL = jnp.pad(sides_BL[:, :-1], ((0, 0), (1, 0)))
    opens_BL = (sides_BL == 1) & (before_BL == 0)
    first_BL = first_columns(batch["pack_ids"])
    opening_BL = jnp.take_along_axis(batch["input_ids"], first_BL, axis=1)
    return {**batch, "input_ids": jnp.where(opens_BL, opening_BL, batch["input_ids"])}
