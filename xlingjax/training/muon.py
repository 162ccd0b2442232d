"""Muon: orthogonal updates of the blocks' matrices."""

import math
from typing import Any

import jax
import optax
import optax.contrib

from xlingjax.model.params import path_name


def scale_by_muon() -> optax.GradientTransformation:
    """Momentum of the blocks' matrices, orthogonalised by Newton-Schulz (Jordan 2024), all heads of
    a projection as one matrix; scaled to the size of Adam's updates, so that one learning rate and
    decay serve both (Liu et al. 2025).
    """

    def scaled(updates, _):
        return jax.tree.map(_to_the_size_of_adams, updates, matrix_axes(updates))

    # `scale_by_muon` leaves the size of an orthogonal matrix, so the factor comes behind it.
    return optax.chain(
        optax.contrib.scale_by_muon(beta=0.95, weight_dimension_numbers=matrix_axes),
        optax.stateless(scaled),
    )


def _to_the_size_of_adams(update: jax.Array, axes: optax.contrib.MuonDimensionNumbers):
    # An orthogonal update has entries of about 1 / sqrt(larger side), Adam's of about 0.2.
    rows = math.prod(update.shape[axis] for axis in axes.reduction_axis)
    columns = math.prod(update.shape[axis] for axis in axes.output_axis)
    return update * (0.2 * math.sqrt(max(rows, columns)))


def muon_or_adam(params: Any) -> Any:
    """Per leaf "muon" (the kernels of the stacked blocks) or "adam" (embeddings, heads, biases,
    LayerNorm)."""

    def label(path, _):
        name = path_name(path)
        # Rows of a table are looked up one by one: to orthogonalise them would mix pieces.
        if "/layers/" in name and name.endswith("/kernel"):
            return "muon"
        return "adam"

    return jax.tree_util.tree_map_with_path(label, params)


def matrix_axes(kernels: Any) -> Any:
    """Which axes of a stack of kernels are the rows and which the columns of its matrices: [N, D,
    F], [N, D, H, K], and [N, H, K, D] of the attention's output."""

    def axes(path, kernel):
        columns_from = 2
        # There the heads are what it reads, elsewhere what it writes.
        if path_name(path).endswith("attention/out/kernel"):
            columns_from = kernel.ndim - 1
        return optax.contrib.MuonDimensionNumbers(
            reduction_axis=tuple(range(1, columns_from)),
            output_axis=tuple(range(columns_from, kernel.ndim)),
        )

    return jax.tree_util.tree_map_with_path(axes, kernels)
