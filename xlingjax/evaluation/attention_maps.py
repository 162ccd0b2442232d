"""Which words of a pair attend to which, in one layer (VECO, figure 1 and appendix B)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlingjax.errors import UserError
from xlingjax.evaluation.perplexity import Rows
from xlingjax.inference.forward import by_row, compiled
from xlingjax.model.masks import bidirectional, partner
from xlingjax.objectives.unicoder import CLWR
from xlingjax.objectives.veco import VECO, as_one_text, as_two_texts

SELF, CROSS, RECOVERY = "self-attention", "cross-attention", "word recovery"


def middle(layers: int) -> int:
    """The number of the middle layer, from 1, that the paper shows (appendix B)."""
    return max(1, round(layers / 2))


def _attention(model, layer: int, reset_positions: bool, params, batch):
    """{use: float32 [B, H, L, L]} of layer `layer`, from 1; "word recovery" has no layer and one
    head. The batch has pairs as `pair_rows` gives them, positions restarting."""
    config = model.config
    # The pair as one text, as TLM reads it.
    one_text = as_one_text(batch) if not reset_positions else batch
    weights = model.attention_weights(params, one_text, bidirectional)
    found = {SELF: weights[SELF][layer - 1]}
    two_texts = as_two_texts(batch)
    if config.cross_attention:
        # The pass that plugs it in: from each side to the other's last states (VECO §2.2).
        own = VECO(query=config.cross_attention_query).attention()
        h_BLD = model.encode(params, two_texts, own)
        weights = model.attention_weights(params, two_texts, own, memory=(h_BLD, partner))
        found[CROSS] = weights[CROSS][layer - 1]
    if config.word_recovery:
        _, attention_BLL = CLWR().mixtures(model, params, two_texts)
        found[RECOVERY] = attention_BLL[:, None]
    return found


def maps_of(
    model,
    params,
    vocabulary,
    rows: Rows,
    names: Sequence[tuple[str, str]],
    *,
    layer: int | None = None,
    head: int | None = None,
    reset_positions: bool = False,
) -> list[dict[str, Any]]:
    """The maps of each pair, one for each use of attention that the model has: {"use", "languages"
    of both texts, "layer" (None of "word recovery"), "head", "pieces" of both texts, "second", the
    number of the first piece of the second one, "attention": a row of shares of `pieces` for each
    of them, which sums to 1}.

    rows: those of `pair_rows`, positions restarting; names: the languages of each. layer: from 1,
    None: the middle one. head: from 1, None: the mean over them. reset_positions: whether they
    restart when both texts are read as one, as the model was trained. Raises UserError for a layer
    or a head that the model does not have.
    """
    config = model.config
    if layer is None:
        layer = middle(config.layers)
    for option, number, most in (("layer", layer, config.layers), ("head", head, config.heads)):
        if number is not None and not 1 <= number <= most:
            raise UserError(
                f"--{option} {number}: attention of this model has {option}s 1 to {most}"
            )
    run = compiled(_attention, model, None, layer, reset_positions)
    found = by_row(run, params, rows, len(names))
    maps = []
    for row, languages in enumerate(names):
        real = np.flatnonzero(rows["pack_ids"][row] > 0)
        ids = rows["input_ids"][row, real].tolist()
        second = int(np.argmax(rows["sides"][row, real] > 0))
        # JAX gives a dict back in the order of its names.
        for use in (SELF, CROSS, RECOVERY):
            if use not in found:
                continue
            weights_HLL = np.float64(found[use][row])
            has_heads = use != RECOVERY
            chosen_LL = weights_HLL.mean(axis=0)
            if head is not None and has_heads:
                chosen_LL = weights_HLL[head - 1]
            pieces = vocabulary.pieces(ids)
            if use != SELF:
                # Each text is read alone, and opens as one does.
                pieces[second] = pieces[0]
            of_one = {
                "use": use,
                "languages": list(languages),
                "layer": layer if has_heads else None,
                "head": head if has_heads else None,
                "pieces": pieces,
                "second": second,
                "attention": chosen_LL[np.ix_(real, real)].round(4).tolist(),
            }
            maps.append(of_one)
    return maps
