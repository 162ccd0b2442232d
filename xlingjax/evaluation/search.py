"""Exact search for the nearest rows: with NumPy on a CPU, elsewhere on the devices, the index spread over them.

Both give the same rows. On a CPU XLA's top-k is slower than NumPy's partition and every size compiles anew.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

CHUNK = 1024


def neighbours(
    queries_QD: np.ndarray, index_SD: np.ndarray, k: int, chunk: int = CHUNK, mesh: Mesh | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(products [Q, k], rows of the index [Q, k]) of the k rows of the index whose dot product with each query is
    highest, highest first; exact; among equals the first row wins. Rows of length 1 make it the cosine.

    `chunk` rows of either side are compared at a time and bound the memory, not the result. mesh: the devices of an
    accelerator to search on, in float32; None: the first.
    """
    if jax.default_backend() == "cpu":
        return on_host(queries_QD, index_SD, k, chunk)
    return on_devices(queries_QD, index_SD, k, chunk, mesh)


def on_host(queries_QD: np.ndarray, index_SD: np.ndarray, k: int, chunk: int = CHUNK) -> tuple[np.ndarray, np.ndarray]:
    """`neighbours` by NumPy, in the type of the arrays."""
    k = min(k, len(index_SD))
    found = []
    for start in range(0, len(queries_QD), chunk):
        queries = queries_QD[start : start + chunk]
        products = np.empty((len(queries), 0), np.result_type(queries_QD, index_SD))
        rows = np.empty((len(queries), 0), int)
        for first in range(0, len(index_SD), chunk):
            block = index_SD[first : first + chunk]
            numbers = np.broadcast_to(np.arange(first, first + len(block)), (len(queries), len(block)))
            products = np.concatenate([products, queries @ block.T], axis=1)
            rows = np.concatenate([rows, numbers], axis=1)
            best = _highest(products, min(k, products.shape[1]))
            products, rows = (np.take_along_axis(x, best, axis=1) for x in (products, rows))
        found.append((products, rows))
    products, rows = zip(*found, strict=True)
    return np.concatenate(products), np.concatenate(rows)


def _highest(scores_QC: np.ndarray, k: int) -> np.ndarray:
    """[Q, k]: the columns of the k highest of each row, highest first; of equals the first."""
    if k == 1:
        return scores_QC.argmax(axis=1)[:, None]
    top = np.argpartition(-scores_QC, k - 1, axis=1)[:, :k]
    lowest = np.take_along_axis(scores_QC, top, axis=1).min(axis=1, keepdims=True)
    tied = (scores_QC >= lowest).sum(axis=1) > k  # there argpartition took any of the equals
    top[tied] = np.argsort(-scores_QC[tied], axis=1, kind="stable")[:, :k]
    top.sort(axis=1)
    order = np.argsort(-np.take_along_axis(scores_QC, top, axis=1), axis=1, kind="stable")
    return np.take_along_axis(top, order, axis=1)


def on_devices(
    queries_QD: np.ndarray, index_SD: np.ndarray, k: int, chunk: int = CHUNK, mesh: Mesh | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """`neighbours` in float32 on the devices of a mesh (None: the first device). Each holds its part of the index and
    searches it block by block; the best of all are merged. A device needs its part of the index and `chunk` x `chunk`
    products."""
    size = len(index_SD)
    k = min(k, size)
    devices = 1 if mesh is None else mesh.size
    block = max(k, min(chunk, _rounded(-(-size // devices))))
    blocks = -(-size // (devices * block))
    blocks_NCD = np.zeros((devices * blocks, block, index_SD.shape[1]), np.float32)
    blocks_NCD.reshape(-1, index_SD.shape[1])[:size] = index_SD
    whole, split = None, None
    if mesh is not None:
        whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    index = _placed(blocks_NCD, split)
    search = _program(k, mesh)
    rows = min(chunk, _rounded(len(queries_QD)))
    found = []
    for start in range(0, len(queries_QD), rows):
        part = queries_QD[start : start + rows]
        queries = np.zeros((rows, queries_QD.shape[1]), np.float32)
        queries[: len(part)] = part
        found.append([np.asarray(x)[: len(part)] for x in search(_placed(queries, whole), index, np.int32(size))])
    products, numbers = zip(*found, strict=True)
    return np.concatenate(products), np.concatenate(numbers).astype(int)


def _rounded(rows: int) -> int:
    """Up to a multiple of 128: few shapes, so few compilations."""
    return -(-max(rows, 1) // 128) * 128


def _placed(array: np.ndarray, sharding: NamedSharding | None) -> jax.Array:
    """Every process holds the whole array and gives the parts of its devices."""
    if sharding is None:
        return jnp.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda at: array[at])


@functools.lru_cache(maxsize=32)
def _program(k: int, mesh: Mesh | None) -> Callable:
    """jit of (queries [Q, D], blocks [N, C, D], size) -> (products [Q, k], rows [Q, k])."""

    def local(queries_QD, blocks_NCD, size):
        count, block, _ = blocks_NCD.shape
        device = 0 if mesh is None else jax.lax.axis_index(mesh.axis_names)

        def step(best, entry):
            block_CD, first = entry
            products_QC = jnp.einsum("qd,cd->qc", queries_QD, block_CD, precision=jax.lax.Precision.HIGHEST)
            products_QC = jnp.where(products_QC == 0, 0.0, products_QC)  # to top_k, -0 is below 0
            here = first + jnp.arange(block)
            products_QC = jnp.where(here < size, products_QC, -jnp.inf)
            top, columns = jax.lax.top_k(products_QC, k)  # of equals the first
            return _merged(jnp.stack([best[0], top]), jnp.stack([best[1], first + columns]), k), None

        starts = (device * count + jnp.arange(count)) * block
        empty = jnp.full((len(queries_QD), k), -jnp.inf), jnp.zeros((len(queries_QD), k), jnp.int32)
        (products, rows), _ = jax.lax.scan(step, empty, (blocks_NCD, starts.astype(jnp.int32)))
        if mesh is None:
            return products, rows
        gathered = (jax.lax.all_gather(x, mesh.axis_names) for x in (products, rows))  # in the order of the rows
        return _merged(*gathered, k)

    if mesh is None:
        return jax.jit(local)
    names, whole = PartitionSpec(mesh.axis_names), PartitionSpec()
    # check_vma: that all devices hold the same after the merge is not seen by the checker.
    spread = jax.shard_map(local, mesh=mesh, in_specs=(whole, names, whole), out_specs=whole, check_vma=False)
    return jax.jit(spread, out_shardings=NamedSharding(mesh, whole))


def _merged(products_PQK: jax.Array, rows_PQK: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The k best of P lists that follow each other in the index, each best first."""
    products, rows = (jnp.concatenate(list(x), axis=1) for x in (products_PQK, rows_PQK))
    best, at = jax.lax.top_k(products, k)
    return best, jnp.take_along_axis(rows, at, axis=1)
