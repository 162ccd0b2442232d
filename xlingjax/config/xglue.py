"""XGLUE's Unicoder (Liang et al. 2020) on the text of a run: xFNP."""

from collections.abc import Sequence

from xlingjax.config.text import TextSource
from xlingjax.errors import UserError, require_whole
from xlingjax.model.config import MOST
from xlingjax.objectives.xglue import XFNP
from xlingjax.preprocessors.xglue import XfnpFeatures
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight


def xfnp(
    text: TextSource,
    batch: int = 64,
    length: int = 512,
    block: int = 64,
    span: int = 9,
    random_range: str = "ordinary",
    packing: bool = True,
    streams: int = 2,
    alphas: Sequence[float] | None = None,
    skip: str = "target",
    smoothing: float = 0.0,
    factor: str | float = 1.0,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """xFNP (XGLUE §4.2) on the corpus's monolingual text. streams: those of the model; alphas: the
    factor of each, default: 1. skip: see `XFNP`; smoothing, factor: see `Translation`; block to
    packing: see `XfnpFeatures`. Raises UserError for a stream that no run is long enough for.
    """
    sizes = {"streams": streams, "block": block, "span": span}
    require_whole(sizes, f"[1, {MOST['streams']}]", "streams", "xfnp: ")
    require_whole(sizes, "[1, inf)", "block span", "xfnp: ")
    if skip == "runs" and streams > span:
        raise UserError(
            f"xfnp: of a run of XFNP_SPAN={span} tokens the last of {streams} streams would predict"
            f" none (XFNP_SKIP=runs): XFNP_SPAN={streams} or more, fewer STREAMS, or"
            " XFNP_SKIP=target"
        )
    # All alike, as α0 = α1 = 1 in the paper.
    if alphas is None:
        alphas = (1.0,) * streams
    objective = XFNP(
        smoothing=smoothing, factor=factor, chunk=chunk, alphas=tuple(map(float, alphas)), skip=skip
    )
    features = XfnpFeatures(block, span, random_range, packing)
    return ObjectiveRun(objective, text.batches(features, batch, length), weight)


OBJECTIVES = {"xfnp": xfnp}
