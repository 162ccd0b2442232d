"""VECO (Luo et al. 2021) on the text of a run: pairs, and adjacent segments."""

from collections.abc import Mapping

from xlingjax.config.text import TextSource
from xlingjax.errors import UserError
from xlingjax.objectives.veco import VECO
from xlingjax.preprocessors.veco import VecoFeatures, VecoTextFeatures
from xlingjax.preprocessors.xlm import Masking
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight


def veco(
    text: TextSource,
    batch: int = 16,
    length: int = 256,
    masking: Masking = Masking(rate=0.25),
    max_pieces: int = 100,
    packing: bool = True,
    plug_out: bool = True,
    tlm: bool = True,
    reset_positions: bool = False,
    stop_gradient: bool = True,
    query: str = "self_attention",
    factors: Mapping[str, float | str] | None = None,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """VECO (§2.1-2.2) on the corpus's pairs. plug_out False: the first phase, without the terms
    that have no gradient there; tlm: with TLM as a fifth term; reset_positions, factors: see
    `VECO`. Raises UserError for a factor of TLM without it."""
    if not tlm and (factors or {}).get("tlm"):
        raise UserError(
            "veco: VECO_FACTORS weighs TLM, and VECO_TLM=False leaves it out: drop one of them"
            " (VECO_FACTORS=None weighs all terms alike)"
        )
    objective = VECO(
        plug_out=plug_out,
        stop_gradient=stop_gradient,
        # The first phase trains the cross-attention alone, through which TLM does not pass.
        tlm=tlm and plug_out,
        reset_positions=reset_positions,
        query=query,
        factors=tuple((factors or {}).items()),
        chunk=chunk,
    )
    features = VecoFeatures(masking, max_pieces, packing)
    return ObjectiveRun(objective, text.batches(features, batch, length), weight)


def veco_text(
    text: TextSource,
    batch: int = 16,
    length: int = 256,
    masking: Masking = Masking(),
    packing: bool = True,
    plug_out: bool = True,
    stop_gradient: bool = True,
    query: str = "self_attention",
    factors: Mapping[str, float | str] | None = None,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """VECO (§2.1-2.2) on adjacent segments of the corpus's monolingual text."""
    # Adjacent segments are of one language, and TLM is of translations.
    objective = VECO(
        "veco_text",
        plug_out=plug_out,
        stop_gradient=stop_gradient,
        query=query,
        factors=tuple((factors or {}).items()),
        chunk=chunk,
    )
    features = VecoTextFeatures(masking, packing)
    return ObjectiveRun(objective, text.batches(features, batch, length), weight)


OBJECTIVES = {"veco": veco, "veco_text": veco_text}
