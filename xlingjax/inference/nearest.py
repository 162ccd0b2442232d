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
from typing import Any, Protocol

import numpy as np
from jax.sharding import Mesh

from xlingjax.errors import UserError
from xlingjax.inference.search import neighbours, unit_rows
from xlingjax.inference.vector_files import DiskRows
from xlingjax.runtime.packages import package

KINDS = ("exact", "ivf")
LARGEST_EXACT = 200_000**2
"""Comparisons up to which nobody has to choose."""
BLOCK_BYTES = 1 << 28
"""Of the rows of the index that are in memory at a time."""
QUERIES = 16384
SAMPLE = 1 << 18
"""Rows that lists are made from at most: their memory must not grow with the index."""


class Rows(Protocol):
    """An array [S, D], or what reads like one by slices: `vector_files.ShardedRows`."""

    @property
    def shape(self) -> Any: ...

    def __len__(self) -> int: ...

    def __getitem__(self, chosen: Any) -> Any: ...


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
    middles: np.ndarray | None = None,
) -> tuple[Rows, Rows]:
    """(products [Q, k], rows of the index [Q, k]) as `search.neighbours` gives them, best first; of
    equals the first row wins (of ivf among the k + 8 best of a block).

    folder: where the results lie, for those that memory does not hold; None: in memory. mesh: see
    `search.neighbours`, of exact search. middles: of the lists, where `list_middles` has made them.
    A query whose lists hold fewer than k rows is searched exactly, and so are fewer queries than
    lists: it costs less than to fill them.
    """
    k = min(k, len(index))
    in_memory = isinstance(queries, np.ndarray) and isinstance(index, np.ndarray)
    few = len(queries) <= search.lists_of(len(index))
    if few:
        search = Search()
    if search.exact and in_memory:
        return neighbours(queries, index, k, mesh=mesh)
    found = _Best(len(queries), k, folder)

    def exactly(block: np.ndarray) -> Callable:
        return lambda rows, _: neighbours(rows, block, k, mesh=mesh)

    if search.exact:
        _blocks(queries, index, exactly, found)
        return found.products, found.rows
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        if middles is None:
            middles = list_middles(index, search)
        lists = Lists(queries, middles, k, search, Path(scratch))
        _blocks(queries, index, lists.of_block, found)
    left = found.unfilled()
    if left.size:
        rest = _Best(len(left), k, None)
        _blocks(queries[left], index, exactly, rest)
        found.put(left, rest)
    return found.products, found.rows


class _Best:
    """The k best of each query so far."""

    def __init__(self, queries: int, k: int, folder: Path | None):
        shape = (queries, k)
        self.products: Any
        self.rows: Any
        if folder is None:
            self.products = np.empty(shape, np.float32)
            self.rows = np.empty(shape, np.int64)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self.products = DiskRows(folder / "products.npy", shape, np.float32)
            self.rows = DiskRows(folder / "rows.npy", shape, np.int64)
        for part in _parts(queries):
            self.products[part] = -np.inf
            self.rows[part] = -1

    def merge(self, part: slice, products: np.ndarray, rows: np.ndarray):
        products = np.concatenate([self.products[part], products], axis=1)
        rows = np.concatenate([self.rows[part], rows], axis=1)
        # Stable: rows of earlier blocks stand first among equals.
        order = np.argsort(-products, axis=1, kind="stable")
        order = order[:, : self.rows.shape[1]]
        self.products[part] = np.take_along_axis(products, order, axis=1)
        self.rows[part] = np.take_along_axis(rows, order, axis=1)

    def unfilled(self) -> np.ndarray:
        """Queries with fewer than k rows."""
        numbers = [np.zeros(0, np.int64)]
        for part in _parts(len(self.rows)):
            lacking = np.flatnonzero(self.rows[part][:, -1] < 0)
            numbers.append(lacking + part.start)
        return np.concatenate(numbers)

    def put(self, queries: np.ndarray, other: "_Best") -> None:
        for i, query in enumerate(queries.tolist()):
            at = slice(query, query + 1)
            self.products[at] = other.products[i]
            self.rows[at] = other.rows[i]


def _parts(count: int, size: int = QUERIES) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _blocks(
    queries: Rows, index: Rows, searcher: Callable[[np.ndarray], Callable], found: _Best
) -> None:
    """Every block of the index with every part of the queries; a block is read once, and the
    queries with each."""
    dim = index.shape[1]
    # Of whole chunks of the exact search, so that its programs are the same for each.
    size = max(1, BLOCK_BYTES // (4 * dim) // 1024) * 1024
    for block in _parts(len(index), size):
        search = searcher(index[block])
        for part in _parts(len(queries)):
            products, rows = search(queries[part], part)
            known = np.where(rows >= 0, rows + block.start, -1)
            found.merge(part, products, known)


def list_middles(index: Rows, search: Search) -> np.ndarray:
    """float32 [lists, D]: what the rows of an index are divided by (k-means on a sample, whose seed
    is that of `search`)."""
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


class Lists:
    """The lists of an index, and which of them each query looks through."""

    def __init__(self, queries: Rows, middles: np.ndarray, k: int, search: Search, scratch: Path):
        self.k = k
        self.faiss = library()
        self.lists, dim = middles.shape
        self.probes = min(search.probes, self.lists)
        self.coarse = self.faiss.IndexFlatIP(dim)
        self.coarse.add(middles)
        shape = (len(queries), self.probes)
        # Once for all blocks: it costs as much as a block's rows.
        self.of_query = DiskRows(scratch / "lists.npy", shape, np.int32)
        for part in _parts(len(queries)):
            _, lists = self.coarse.search(_floats(queries[part]), self.probes)
            self.of_query[part] = lists

    def of_block(self, block_CD: np.ndarray) -> Callable:
        block_CD = _floats(block_CD)
        ivf = self.faiss.IndexIVFFlat(
            self.coarse, block_CD.shape[1], self.lists, self.faiss.METRIC_INNER_PRODUCT
        )
        ivf.nprobe = self.probes
        ivf.add(block_CD)
        # More than are asked for: its sums are rounded in another order.
        width = self.k + 8

        def search(queries_QD: np.ndarray, part: slice):
            queries_QD = _floats(queries_QD)
            lists_QP = self.of_query[part].astype(np.int64)
            _, rows_QK = ivf.search_preassigned(
                queries_QD, width, lists_QP, np.zeros(lists_QP.shape, np.float32)
            )
            products = np.empty((len(queries_QD), self.k), np.float32)
            rows = np.empty((len(queries_QD), self.k), np.int64)
            for some in _parts(len(queries_QD), 1024):
                products[some], rows[some] = rescored(
                    queries_QD[some], block_CD, rows_QK[some], self.k
                )
            return products, rows

        return search


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
    if order.shape[1] < k:
        raise ValueError(f"{rows_QK.shape[1]} candidates, and {k} are asked for")
    return (
        np.take_along_axis(products_QK, order, axis=1),
        np.take_along_axis(rows_QK, order, axis=1),
    )


def _floats(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows, dtype=np.float32)
