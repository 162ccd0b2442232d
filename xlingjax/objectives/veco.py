"""VECO's variable encoder: masked LM with the cross-attention plugged out and plugged in (VECO §3.2)."""

import dataclasses

import jax
import jax.numpy as jnp

from xlingjax.model.attention import AttentionSpec
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import bidirectional, own_side, partner
from xlingjax.objectives.base import Array, Batch, Loss, Params, together
from xlingjax.objectives.xlm import CHUNK, INPUTS, SLOTS, halves, masked_loss


@dataclasses.dataclass(frozen=True)
class VECO:
    """Four terms, each a mean of its own (VECO §3.2, eq. 3-9): the masked words of x and of y from the side alone (H,
    plugged out), and from both (S, plugged in: every layer attends to the final H of the other side).

    plug_out False leaves the two terms of H out, as in the first phase, where only the cross-attention is trained and
    they have no gradient. stop_gradient: no gradient reaches the other side through its states. separator: the id that
    opens y where a fifth term, TLM, reads both sides as one text with positions running on; None leaves it out.
    """

    name: str = "veco"
    plug_out: bool = True
    stop_gradient: bool = True
    separator: int | None = None
    chunk: int = CHUNK
    reads = (*INPUTS, "sides", *SLOTS)

    def _sides(self, kind: str) -> tuple[str, str]:
        return f"{self.name}_{kind}_x", f"{self.name}_{kind}_y"

    @property
    def coefficients(self) -> dict[str, float]:
        kinds = ("plug_out", "plug_in") if self.plug_out else ("plug_in",)
        names = [name for kind in kinds for name in self._sides(kind)]
        return dict.fromkeys([*names, *([f"{self.name}_tlm"] if self.separator is not None else [])], 1.0)

    def attention(self) -> AttentionSpec:
        """Self-attention of H and of S; the cross-attention has the mask `partner`, TLM `bidirectional`."""
        return AttentionSpec(own_side)

    def weights(self, batch: Batch) -> dict[str, Array]:
        counts = {
            term: batch["masked_weights"][:, half].sum()
            for kind in ("plug_out", "plug_in")
            for term, half in halves(self._sides(kind), batch)
        }
        counts[f"{self.name}_tlm"] = batch["masked_weights"].sum()
        return {term: counts[term] for term in self.coefficients}

    def loss(self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int) -> Loss:
        keys = [None] * 3 if rng is None else jax.random.split(rng, 3)

        def terms(kind, h_BLD):
            return [
                masked_loss(term, model, params, h_BLD, batch, languages, self.chunk, half)
                for term, half in halves(self._sides(kind), batch)
            ]

        h_BLD, s_BLD = self.states(model, params, batch, keys[0], keys[1])
        losses = [*(terms("plug_out", h_BLD) if self.plug_out else ()), *terms("plug_in", s_BLD)]
        if self.separator is not None:
            one_text = as_one_text(batch, self.separator)
            t_BLD = model.encode(params, one_text, AttentionSpec(bidirectional), rng=keys[2])
            losses.append(masked_loss(f"{self.name}_tlm", model, params, t_BLD, batch, languages, self.chunk))
        return together(*losses)

    def states(
        self, model: Encoder, params: Params, batch: Batch, h_rng: Array | None = None, s_rng: Array | None = None
    ) -> tuple[Array, Array]:
        """(H_BLD, S_BLD) of both sides."""
        h_BLD = model.encode(params, batch, self.attention(), rng=h_rng)
        memory_BLD = jax.lax.stop_gradient(h_BLD) if self.stop_gradient else h_BLD
        return h_BLD, model.encode(
            params, batch, self.attention(), rng=s_rng, memory=(memory_BLD, AttentionSpec(partner))
        )


def as_one_text(batch: Batch, separator: int) -> dict[str, Array]:
    """The batch with each pair as one text: y opens with `separator`, positions run on (XLM-R's pairs)."""
    packs_BL, sides_BL = batch["pack_ids"], batch["sides"]
    before_BL = jnp.pad(packs_BL[:, :-1], ((0, 0), (1, 0)))
    columns_L = jnp.arange(packs_BL.shape[1])
    first_BL = jax.lax.cummax(jnp.where(packs_BL != before_BL, columns_L, 0), axis=1)
    opens_BL = (sides_BL == 1) & (jnp.pad(sides_BL[:, :-1], ((0, 0), (1, 0))) == 0)
    return {
        **batch,
        "input_ids": jnp.where(opens_BL, separator, batch["input_ids"]),
        "position_ids": jnp.where(packs_BL > 0, columns_L - first_BL, 0),
    }
