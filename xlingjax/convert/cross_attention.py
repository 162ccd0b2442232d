"""VECO's cross-attention plugged out of a trained model, or into one (VECO §3.1).

Plugged out, the model is an encoder like XLM-R, whose states are VECO's H.
"""

from typing import Any

import jax

from xlingjax.errors import UserError
from xlingjax.inference.run import open_run
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.training.workdir import write_workdir

SLOT = "cross_attention"


def plug_out(run: str, output: str) -> str:
    """Writes `run`'s model without cross-attention to the workdir `output`; says what was done."""
    trained = open_run(run)
    if not trained.model.config.cross_attention:
        raise UserError(
            f"{run} has no cross-attention to plug out: it is model {trained.model.config.name}"
            " without it"
        )
    layers = {k: v for k, v in trained.params["encoder"]["layers"].items() if k != SLOT}
    plain = trained.model.config.replace(cross_attention=False)
    _write(run, output, plain, trained.params, layers)
    return f"{output}: the cross-attention plugged out, all other parameters as they were"


def plug_in(run: str, output: str, source: str | None = None, seed: int = 0) -> str:
    """Writes the model of `run` with a cross-attention: that of the run `source`, which asks by
    what it asked by there, or a random one. Returns what was done. Raises UserError where there is
    one already, and where that of `source` has another shape or another order of its LayerNorm."""
    trained = open_run(run)
    config = trained.model.config
    if config.cross_attention:
        raise UserError(
            f"{run} has its cross-attention plugged in already; plug it out first to replace it"
        )
    whole = config.replace(cross_attention=True)
    if source:
        donor = open_run(source)
        if not donor.model.config.cross_attention:
            raise UserError(
                f"{source} has no cross-attention to take; name the workdir of a VECO run"
            )
        added = donor.params["encoder"]["layers"][SLOT]
        origin = source
        theirs = donor.model.config
        # Weights that were trained on the one query mean nothing for the other.
        whole = whole.replace(cross_attention_query=theirs.cross_attention_query)
        wanted = build_model(whole).abstract()["encoder"]["layers"][SLOT]
        if _shapes(wanted) != _shapes(added) or theirs.norm_order != config.norm_order:
            raise UserError(
                f"the cross-attention of {source} does not fit {run}: the models differ in layers,"
                " width or norm_order; give another --source"
            )
    else:
        drawn = jax.jit(build_model(whole).init)(jax.random.key(seed))
        added = drawn["encoder"]["layers"][SLOT]
        origin = f"random (seed {seed})"
    layers = {**trained.params["encoder"]["layers"], SLOT: added}
    _write(run, output, whole, trained.params, layers)
    return f"{output}: cross-attention from {origin} plugged in, all others as they were"


def _write(run: str, output: str, config: ModelConfig, params: Any, layers: Any) -> None:
    params = {**params, "encoder": {**params["encoder"], "layers": layers}}
    changed = {
        "cross_attention": config.cross_attention,
        "cross_attention_query": config.cross_attention_query,
    }
    write_workdir(run, output, find_checkpoint(run).name, params, "plug", {}, **changed)


def _shapes(params: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.shape, params)
