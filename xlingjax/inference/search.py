"""Exact search for the nearest rows on devices; the index may be spread over a mesh."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

CHUNK = 1024


def neighbours(
    queries_QD: np.ndarray,
    index_SD: np.ndarray,
    k: int,
    chunk: int = CHUNK,
    mesh: Mesh | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(products [Q, k], rows of the index [Q, k]) of the k rows of the index whose dot product with
    each query is highest, in float32, highest first; exact; among equals the first row wins. Rows
    of length 1 make it the cosine.

    mesh: every device of it compares its part of the rows; None: the first device compares all.
    `chunk` queries are compared with 8 times as many rows at a time.
    """
    size, dim = index_SD.shape
    # A small text may have fewer rows than neighbours are asked for.
    k = min(k, size)
    devices = 1 if mesh is None else mesh.size
    whole = mesh and NamedSharding(mesh, PartitionSpec())
    split = mesh and NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    # A block has k rows at least, or its own best k would not be there to merge.
    block = -(-max(k, min(8 * chunk, _rounded(size))) // devices) * devices
    rows = min(chunk, _rounded(len(queries_QD)))
    search = _program(k, mesh)
    products = np.full((len(queries_QD), k), -np.inf, np.float32)
    numbers = np.full((len(queries_QD), k), -1)
    for start in range(0, size, block):
        count = min(block, size - start)
        index = _placed(index_SD[start : start + block], (block, dim), split)
        for first in range(0, len(queries_QD), rows):
            part = slice(first, min(first + rows, len(queries_QD)))
            queries = _placed(queries_QD[part], (rows, dim), whole)
            found, at = (np.asarray(one) for one in search(queries, index, np.int32(count)))
            of_part = part.stop - first
            merge(products, numbers, part, found[:of_part], at[:of_part] + start)
    return products, numbers


def merge(
    products: np.ndarray, rows: np.ndarray, part: slice, found: np.ndarray, at: np.ndarray
) -> None:
    """The best of `part` of the queries so far, with what was found in a later block."""
    found = np.concatenate([products[part], found], axis=1)
    at = np.concatenate([rows[part], at], axis=1)
    # Stable: rows of earlier blocks stand first among equals.
    order = np.argsort(-found, axis=1, kind="stable")[:, : products.shape[1]]
    products[part] = np.take_along_axis(found, order, axis=1)
    rows[part] = np.take_along_axis(at, order, axis=1)


def _rounded(rows: int) -> int:
    """Up to a multiple of 128: few shapes, so few compilations."""
    return -(-max(rows, 1) // 128) * 128


def _placed(
    rows: np.ndarray, shape: tuple[int, int], sharding: NamedSharding | None
) -> np.ndarray | jax.Array:
    """Filled up to a compiled shape. Every process has all rows and gives its devices' parts."""
    filled = np.zeros(shape, np.float32)
    filled[: len(rows)] = rows
    if sharding is None:
        return filled
    return jax.make_array_from_callback(shape, sharding, lambda at: filled[at])


@functools.lru_cache(maxsize=32)
def _program(k: int, mesh: Mesh | None) -> Callable:
    """jit of (queries [Q, D], rows [C, D], count of them) -> (products [Q, k], rows [Q, k])."""

    def search(queries_QD, rows_CD, count):
        # By default an accelerator multiplies float32 in fewer bits, which would change the order.
        highest = jax.lax.Precision.HIGHEST
        products_QC = jnp.einsum("qd,cd->qc", queries_QD, rows_CD, precision=highest)
        products_QC = jnp.where(jnp.arange(len(rows_CD)) < count, products_QC, -jnp.inf)
        if mesh is not None:
            products_QC = jax.lax.with_sharding_constraint(products_QC, whole)
        return jax.lax.top_k(products_QC, k)

    whole = mesh and NamedSharding(mesh, PartitionSpec())
    return jax.jit(search, out_shardings=whole) if mesh else jax.jit(search)


def unit_rows(x_SD: np.ndarray) -> np.ndarray:
    """Rows of length 1; a zero row stays zero."""
    norms = np.linalg.norm(x_SD, axis=-1, keepdims=True)
    return x_SD / np.maximum(norms, 1e-12)
