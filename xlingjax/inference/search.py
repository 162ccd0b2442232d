"""Exact search for the nearest rows on devices, as one program; the index may be spread over a
mesh."""

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

    mesh: every device of it searches its part of the index, and the best of all are merged; None:
    the first device searches all. `chunk` rows of either side are compared at a time: beside its
    part of the index a device holds that many products squared.
    """
    size = len(index_SD)
    # A small text may have fewer rows than neighbours are asked for.
    k = min(k, size)
    devices = 1
    whole, split = None, None
    if mesh is not None:
        devices = mesh.size
        whole = NamedSharding(mesh, PartitionSpec())
        split = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    # A block has k rows at least, or its own best k would not be there to merge.
    block = max(k, min(chunk, _rounded(-(-size // devices))))
    blocks = -(-size // (devices * block))
    # As many blocks on each device, filled up: what is mapped over a mesh has equal parts.
    blocks_NCD = np.zeros((devices * blocks, block, index_SD.shape[1]), np.float32)
    blocks_NCD.reshape(-1, index_SD.shape[1])[:size] = index_SD
    index = _placed(blocks_NCD, split)
    search = _program(k, mesh)
    rows = min(chunk, _rounded(len(queries_QD)))
    products, numbers = [], []
    for start in range(0, len(queries_QD), rows):
        part = queries_QD[start : start + rows]
        # The last part is filled up as well: another shape would be compiled.
        queries = np.zeros((rows, queries_QD.shape[1]), np.float32)
        queries[: len(part)] = part
        found = search(_placed(queries, whole), index, np.int32(size))
        products_Qk, numbers_Qk = found
        products.append(np.asarray(products_Qk)[: len(part)])
        numbers.append(np.asarray(numbers_Qk)[: len(part)])
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
        device = jax.lax.axis_index(mesh.axis_names) if mesh is not None else 0

        def step(best, entry):
            block_CD, first = entry
            products_QC = jnp.einsum(
                "qd,cd->qc",
                queries_QD,
                block_CD,
                # By default an accelerator multiplies float32
                # in fewer bits, which would change the order.
                precision=jax.lax.Precision.HIGHEST,
            )
            # Rows that fill the last block up are no rows of the index.
            products_QC = jnp.where(first + jnp.arange(block) < size, products_QC, -jnp.inf)
            # Of equals top_k takes the first, here and in every merge.
            top, columns = jax.lax.top_k(products_QC, k)
            # Only k of each block stay: products of all rows would not fit.
            return _merged((best[0], top), (best[1], first + columns), k), None

        # Rows are numbered over the whole index, wherever a block lies.
        starts = ((device * count + jnp.arange(count)) * block).astype(jnp.int32)
        nothing = (
            jnp.full((len(queries_QD), k), -jnp.inf),
            jnp.zeros((len(queries_QD), k), jnp.int32),
        )
        # A scan, so that the products of one block are in memory at a time.
        found, _ = jax.lax.scan(step, nothing, (blocks_NCD, starts))
        if mesh is None:
            return found
        products, rows = found
        # Gathered in the order of the devices, which is that of the rows.
        every_products = jax.lax.all_gather(products, mesh.axis_names)
        every_rows = jax.lax.all_gather(rows, mesh.axis_names)
        return _merged(every_products, every_rows, k)

    if mesh is None:
        return jax.jit(local)
    names, whole = PartitionSpec(mesh.axis_names), PartitionSpec()
    # check_vma: that all devices hold the same after the merge is not seen by the checker.
    spread = jax.shard_map(
        local, mesh=mesh, in_specs=(whole, names, whole), out_specs=whole, check_vma=False
    )
    return jax.jit(spread, out_shardings=NamedSharding(mesh, whole))


def _merged(products, rows, k: int) -> tuple[jax.Array, jax.Array]:
    """The k best of lists [Q, k] that follow each other in the index, each best first."""
    products_QK = jnp.concatenate(list(products), axis=1)
    rows_QK = jnp.concatenate(list(rows), axis=1)
    best, at = jax.lax.top_k(products_QK, k)
    return best, jnp.take_along_axis(rows_QK, at, axis=1)


def unit_rows(x_SD: np.ndarray) -> np.ndarray:
    """Rows of length 1; a zero row stays zero."""
    norms = np.linalg.norm(x_SD, axis=-1, keepdims=True)
    return x_SD / np.maximum(norms, 1e-12)
