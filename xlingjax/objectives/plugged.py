"""What plug-in fine-tuning has in common, whatever it predicts (VECO §3.1)."""

import jax.numpy as jnp

from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig
from xlingjax.model.encoder import Encoder
from xlingjax.objectives.base import Array, Batch, Params
from xlingjax.objectives.veco import VECO


def require_plugged_in(config: ModelConfig, classifier: str, num_labels: int, what: str) -> None:
    """Raise UserError unless the model has this classifier, so many classes and a cross-attention.
    what: the classes, for messages."""
    if config.num_labels != num_labels or config.classifier != classifier:
        raise UserError(
            f"model {config.name} has num_labels={config.num_labels},"
            f" classifier={config.classifier!r}; the task has {num_labels} {what}"
            f' and needs classifier="{classifier}"'
        )
    if not config.cross_attention:
        raise UserError(
            f"model {config.name} has no cross-attention, which plug-in fine-tuning goes"
            " through: let INIT_FROM be a VECO run, or what `xlingjax plug in RUN --source"
            " VECO_RUN` writes"
        )


def plugged_states(
    model: Encoder,
    params: Params,
    batch: Batch,
    h_rng: Array | None,
    s_rng: Array | None,
    stop_gradient: bool,
) -> Array:
    """[H; S]_BLE of both sides, of twice the model's width. stop_gradient: no gradient reaches the
    other side through its H, as in pretraining."""
    veco = VECO(stop_gradient=stop_gradient, query=model.config.cross_attention_query)
    # A side has half of the columns, and may fill the model's positions.
    h_BLD, s_BLD = veco.states(model, params, batch, h_rng, s_rng, texts=2)
    return jnp.concatenate([h_BLD, s_BLD], axis=-1)


def first_columns(batch: Batch) -> tuple[Array, Array]:
    """([B, 1], [B, 1]): the first column of each side."""
    # `argmax` gives the first of equal values.
    second_B1 = batch["sides"].argmax(axis=1)[:, None]
    return jnp.zeros_like(second_B1), second_B1


def side_languages(batch: Batch) -> Array:
    """[2 B]: the language of x of every row, then that of y: that of a side's first token."""
    languages = []
    for column_B1 in first_columns(batch):
        languages.append(jnp.take_along_axis(batch["language_ids"], column_B1, axis=1)[:, 0])
    return jnp.concatenate(languages)
