"""XGLUE's Unicoder (Liang et al. 2020) on the text of a run: xFNP."""

from collections.abc import Sequence
from typing import Any

from xlingjax.config.text import of_text
from xlingjax.errors import UserError, require_whole
from xlingjax.model.config import MOST
from xlingjax.objectives.xglue import XFNP
from xlingjax.preprocessors.xglue import XfnpFeatures


def _of_streams(
    streams: int = 2,
    alphas: Sequence[float] | None = None,
    skip: str = "target",
    block: int = 64,
    span: int = 9,
) -> dict[str, Any]:
    """streams: those of the model; alphas: the factor of each, default: 1. Raises UserError for a
    stream that no run is long enough for."""
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
    return {"alphas": (1.0,) * streams if alphas is None else tuple(map(float, alphas))}


OBJECTIVES = {
    "xfnp": of_text(XFNP, XfnpFeatures, batch=64, length=512, change=_of_streams, chunk=0)
}
