"""Bitext mining: which sentences of two texts translate each other? By the margin between a pair's
cosine and that of each side's neighbours (Artetxe & Schwenk 2019, §3)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jax.sharding import Mesh

from xlingjax.errors import UserError
from xlingjax.inference.nearest import Rows, Search, Unit, nearest
from xlingjax.inference.search import unit_rows

MARGINS = ("ratio", "distance", "absolute")
PART = 65536  # sentences that are scored at a time


@dataclass(frozen=True)
class Mined:
    """Pairs of rows and their scores, best first."""

    source: np.ndarray
    target: np.ndarray
    scores: np.ndarray


def margin_scores(
    cosines: np.ndarray, left: np.ndarray, right: np.ndarray, margin: str
) -> np.ndarray:
    """Score of candidates from their cosine and the mean cosine of each side's neighbours."""
    # Some sentences are near to everything (hubs): what counts is how far a pair stands out.
    around = (left + right) / 2
    if margin == "ratio":
        # Neighbours that cancel out would divide by zero.
        return cosines / np.where(np.abs(around) < 1e-9, 1e-9, around)
    if margin == "distance":
        return cosines - around
    if margin == "absolute":
        return cosines
    raise UserError(f"margin {margin!r} is not one of {', '.join(MARGINS)}")


def mine(
    source_SD: Rows,
    target_TD: Rows,
    *,
    k: int = 4,
    margin: str = "ratio",
    threshold: float | None = None,
    mesh: Mesh | None = None,
    search: Search = Search(),
    folder: Path | None = None,
) -> Mined:
    """Candidates are every sentence of either side with that of its k neighbours which scores
    highest; they are taken from the best on, each sentence once (the paper's "max" retrieval).
    threshold: the lowest score kept; None: all. mesh: see `search.neighbours`; search, folder: see
    `nearest.nearest`."""
    if not len(source_SD) or not len(target_TD):
        raise UserError("mining needs sentences on both sides, and one is empty")
    source, target = _unit(source_SD), _unit(target_TD)
    forward_Sk, targets_Sk = nearest(source, target, k, search, mesh, folder)
    backward_Tk, sources_Tk = nearest(target, source, k, search, mesh, folder)
    left, right = forward_Sk.mean(axis=1), backward_Tk.mean(axis=1)
    columns_S, scores_S = _best(forward_Sk, targets_Sk, left, right, margin)
    rows_T, scores_T = _best(backward_Tk, sources_Tk, right, left, margin)
    rows = np.concatenate([np.arange(len(source)), rows_T])
    columns = np.concatenate([columns_S, np.arange(len(target))])
    scores = np.concatenate([scores_S, scores_T])
    kept = _greedy(rows, columns, scores, len(source), len(target), threshold)
    return Mined(rows[kept], columns[kept], scores[kept])


def _unit(rows: Rows) -> Rows:
    return unit_rows(rows) if isinstance(rows, np.ndarray) else Unit(rows)


def _best(
    products_Sk: np.ndarray,
    others_Sk: np.ndarray,
    own_S: np.ndarray,
    others_T: np.ndarray,
    margin: str,
) -> tuple[np.ndarray, np.ndarray]:
    """([S] which of its neighbours each sentence scores highest with, [S] that score)."""
    scores_Sk = margin_scores(products_Sk, own_S[:, None], others_T[others_Sk], margin)
    best_S1 = scores_Sk.argmax(axis=1)[:, None]
    numbers, scores = (np.take_along_axis(one, best_S1, axis=1) for one in (others_Sk, scores_Sk))
    return numbers[:, 0], scores[:, 0]


def _greedy(
    rows: np.ndarray,
    columns: np.ndarray,
    scores: np.ndarray,
    sources: int,
    targets: int,
    threshold: float | None,
) -> np.ndarray:
    """Candidates from the best on, as the paper's "max": a sentence has one translation."""
    free_rows, free_columns = np.ones(sources, bool), np.ones(targets, bool)
    order = np.argsort(-scores, kind="stable")
    if threshold is not None:
        order = order[scores[order] >= threshold]
    kept = [np.zeros(0, np.int64)]
    # In parts, since Python's numbers take several times the memory of NumPy's.
    for start in range(0, len(order), PART):
        part = order[start : start + PART]
        taken = np.zeros(len(part), bool)
        pairs = zip(rows[part].tolist(), columns[part].tolist(), strict=True)
        for i, (row, column) in enumerate(pairs):
            if free_rows[row] and free_columns[column]:
                free_rows[row] = free_columns[column] = False
                taken[i] = True
        kept.append(part[taken])
    return np.concatenate(kept)
