"""The nearest rows of an index that may be larger than memory: exactly, or among the rows of a few
of its lists (an inverted file, faiss), whose products are then computed as the exact ones are.

Cost of exact search: queries x rows. Of `ivf`: queries x (lists + rows x probes / lists), and lists
are 4 times the root of the rows, so twice the text costs 2.8 times as much and not four times.
"""

import math
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh

from xlingjax.errors import UserError
from xlingjax.inference.search import merge, neighbours, unit_rows
from xlingjax.runtime.packages import package

KINDS = ("exact", "ivf")
LARGEST_EXACT = 200_000**2  # comparisons up to which nobody has to choose
BLOCK_BYTES = 1 << 28  # of the rows of the index that are in memory at a time
QUERIES = 16384
SAMPLE = 1 << 18  # rows that lists are made from at most: their memory must not grow with the index


Rows = Any  # [S, D], or what is sliced and indexed like it: `vector_files.ShardedRows`


@dataclass(frozen=True)
class Search:
    """How the nearest rows are found. kind: one of KINDS; lists: that the rows of an index are
    divided into (None: 4 times the root of their number); probes: of them a query looks through;
    seed: of the rows that the lists are made from."""

    kind: str = "exact"
    lists: int | None = None
    probes: int = 32
    seed: int = 0

    @property
    def exact(self) -> bool:
        return self.kind == "exact"

    def lists_of(self, rows: int) -> int:
        return min(self.lists or max(1, round(4 * math.sqrt(rows))), rows)

    def said(self, rows: int) -> str:
        """For people, of an index of so many rows."""
        if self.exact:
            return "exact search"
        lists = self.lists_of(rows)
        return f"approximate search (ivf, {min(self.probes, lists)} of {lists} lists)"

    def record(self, rows: int) -> dict[str, Any]:
        """For a file that says what a table was made with."""
        if self.exact:
            return {"kind": "exact"}
        lists = self.lists_of(rows)
        version = library().__version__
        return {**asdict(self), "lists": lists, "faiss": version}


def chosen_search(
    kind: str | None, lists: int | None, probes: int | None, seed: int, sizes: tuple[int, int]
) -> Search:
    """What was asked for; exact where nothing was and the texts are small. Raises UserError for
    large ones, where the user has to choose, and where the library is missing."""
    if kind != "ivf" and (lists or probes):
        raise UserError("--lists, --probes: only --search ivf reads this; leave it out")
    if kind is None:
        if sizes[0] * sizes[1] > LARGEST_EXACT:
            raise UserError(
                f"{sizes[0]:,} x {sizes[1]:,} sentences: say --search ivf (approximate, for large"
                " texts; `pip install 'xlingjax[search]'`) or --search exact (compares all with"
                " all)"
            )
        kind = "exact"
    if kind == "exact":
        return Search()
    library()
    return Search(kind, lists, probes or Search.probes, seed)


def library():
    """faiss. Raises UserError where it is not installed."""
    return package("faiss", "--search ivf", "xlingjax[search]")


@dataclass(frozen=True)
class Unit:
    """Rows of length 1 of `rows`; numbers: of these alone, ascending."""

    rows: Rows
    numbers: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.rows.shape[1]

    def __len__(self) -> int:
        return len(self.rows) if self.numbers is None else len(self.numbers)

    def __getitem__(self, chosen: Any) -> np.ndarray:
        if self.numbers is not None:
            chosen = self.numbers[chosen]
        return unit_rows(self.rows[chosen])


def nearest(
    queries: Rows,
    index: Rows,
    k: int,
    search: Search = Search(),
    mesh: Mesh | None = None,
    folder: Path | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(products [Q, k], rows of the index [Q, k]) as `search.neighbours` gives them, best first; of
    equals the first row wins (of ivf among the k + 8 best of a block).

    folder: where the results lie, for those that memory does not hold; None: in memory. mesh: see
    `search.neighbours`, of exact search.
    A query whose lists hold fewer than k rows is searched exactly, and so are fewer queries than
    lists: it costs less than to fill them.
    """
    k = min(k, len(index))
    if len(queries) <= search.lists_of(len(index)):
        search = Search()
    if search.exact and isinstance(queries, np.ndarray) and isinstance(index, np.ndarray):
        return neighbours(queries, index, k, mesh=mesh)
    products, rows = _empty((len(queries), k), folder)

    def exactly(block: np.ndarray) -> Callable:
        return lambda queries, _: neighbours(queries, block, k, mesh=mesh)

    if search.exact:
        _blocks(queries, index, exactly, products, rows)
        return products, rows
    middles = list_middles(index, search)
    of_block = _searcher(queries, middles, k, min(search.probes, len(middles)), folder)
    _blocks(queries, index, of_block, products, rows)
    left = np.flatnonzero(rows[:, -1] < 0)
    if left.size:
        found = _empty((len(left), k), None)
        _blocks(queries[left], index, exactly, *found)
        products[left], rows[left] = found
    return products, rows


def _empty(shape: tuple[int, int], folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Products and rows of results that are not found yet; in files of a folder."""
    products, rows = (_array(folder, shape, kind) for kind in (np.float32, np.int64))
    products[:] = -np.inf
    rows[:] = -1
    return products, rows


def _array(folder: Path | None, shape: tuple[int, int], kind: Any) -> np.ndarray:
    if folder is None:
        return np.empty(shape, kind)
    folder.mkdir(parents=True, exist_ok=True)
    # Its pages are the system's to take back.
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        return np.lib.format.open_memmap(file.name, "w+", kind, shape)


def _parts(count: int, size: int | None = None) -> list[slice]:
    size = size or QUERIES
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _blocks(
    queries: Rows, index: Rows, searcher: Callable, products: np.ndarray, rows: np.ndarray
) -> None:
    """Merges each block of the index, read once, with all queries into the best so far."""
    # Of whole chunks of the exact search, so that its programs are the same for each.
    size = max(1, BLOCK_BYTES // (4 * index.shape[1]) // 1024) * 1024
    for block in _parts(len(index), size):
        search = searcher(index[block])
        for part in _parts(len(queries)):
            found, at = search(queries[part], part)
            merge(products, rows, part, found, np.where(at >= 0, at + block.start, -1))


def list_middles(index: Rows, search: Search) -> np.ndarray:
    """float32 [lists, D]: what an index is divided by (k-means on a sample, `search`'s seed)."""
    lists = search.lists_of(len(index))
    size = min(len(index), SAMPLE, 32 * lists)
    # As many rows as lists are needed, which the cap may not give.
    size = max(size, lists)
    rng = np.random.default_rng(search.seed)
    sample = np.sort(rng.choice(len(index), size, replace=False))
    kmeans = library().Kmeans(
        index.shape[1],
        lists,
        niter=10,
        seed=search.seed,
        spherical=True,
        # Else it draws from the sample again, or warns.
        max_points_per_centroid=size,
        min_points_per_centroid=1,
    )
    kmeans.train(_floats(index[sample]))
    return kmeans.centroids


def _searcher(
    queries: Rows, middles: np.ndarray, k: int, probes: int, folder: Path | None
) -> Callable:
    """What searches the lists of a block that each query looks through."""
    faiss = library()
    coarse = faiss.IndexFlatIP(middles.shape[1])
    coarse.add(middles)
    lists_QP = _array(folder, (len(queries), probes), np.int32)
    for part in _parts(len(queries)):
        _, lists_QP[part] = coarse.search(_floats(queries[part]), probes)

    def of_block(block_CD: np.ndarray) -> Callable:
        block_CD = _floats(block_CD)
        metric = faiss.METRIC_INNER_PRODUCT
        ivf = faiss.IndexIVFFlat(coarse, block_CD.shape[1], len(middles), metric)
        ivf.nprobe = probes
        ivf.add(block_CD)

        def search(queries_QD: np.ndarray, part: slice):
            queries_QD = _floats(queries_QD)
            chosen = lists_QP[part].astype(np.int64)
            distances = np.zeros(chosen.shape, np.float32)
            # More than are asked for: its sums are rounded in another order.
            _, rows_QK = ivf.search_preassigned(queries_QD, k + 8, chosen, distances)
            found = [
                rescored(queries_QD[some], block_CD, rows_QK[some], k)
                for some in _parts(len(queries_QD), 1024)
            ]
            return [np.concatenate(parts) for parts in zip(*found, strict=True)]

        return search

    return of_block


def rescored(
    queries_QD: np.ndarray, index_CD: np.ndarray, rows_QK: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """(products [Q, k], rows [Q, k]) of the k best candidates of each query, highest first, of
    equals the first row; -1 is none, with a product of minus infinity."""
    # In the order of the rows first, so that the first of equals is taken.
    rows_QK = np.sort(rows_QK, axis=1)
    products_QK = np.matmul(index_CD[rows_QK], queries_QD[:, :, None])[..., 0]
    products_QK = np.where(rows_QK >= 0, products_QK, -np.inf)
    order = np.argsort(-products_QK, axis=1, kind="stable")[:, :k]
    return (
        np.take_along_axis(products_QK, order, axis=1),
        np.take_along_axis(rows_QK, order, axis=1),
    )


def _floats(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows, dtype=np.float32)
