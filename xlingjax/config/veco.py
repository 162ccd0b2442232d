"""VECO (Luo et al. 2021) on the text of a run: pairs, and adjacent segments."""

from collections.abc import Mapping
from typing import Any

from xlingjax.config.text import of_text
from xlingjax.errors import UserError
from xlingjax.objectives.veco import VECO
from xlingjax.preprocessors.veco import VecoFeatures, VecoTextFeatures

Factors = Mapping[str, float | str] | None


def _of_pairs(factors: Factors = None, plug_out: bool = True, tlm: bool = True) -> dict[str, Any]:
    """plug_out False: the first phase. Raises UserError for a factor of TLM without it."""
    if not tlm and (factors or {}).get("tlm"):
        raise UserError(
            "veco: VECO_FACTORS weighs TLM, and VECO_TLM=False leaves it out: drop one of them"
            " (VECO_FACTORS=None weighs all terms alike)"
        )
    # The first phase trains the cross-attention alone, through which TLM does not pass.
    return {**_of_segments(factors), "tlm": tlm and plug_out}


def _of_segments(factors: Factors = None) -> dict[str, Any]:
    # Options are tuples, since objectives are hashed.
    return {"factors": tuple((factors or {}).items())}


OBJECTIVES = {
    "veco": of_text(VECO, VecoFeatures, change=_of_pairs, chunk=0),
    # Adjacent segments are of one language, and TLM is of translations.
    "veco_text": of_text(
        VECO,
        VecoTextFeatures,
        change=_of_segments,
        hidden=("tlm", "reset_positions"),
        name="veco_text",
        chunk=0,
    ),
}
