"""Bitext mining: which sentences of two texts translate each other? By the margin between a pair's cosine and that of
each side's neighbours (Artetxe & Schwenk 2019, §3)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from xlingjax.errors import UserError
from xlingjax.evaluation.retrieval import unit_rows

MARGINS = ("ratio", "distance", "absolute")


@dataclass(frozen=True)
class Mined:
    """Pairs of rows and their scores, best first."""

    source: np.ndarray
    target: np.ndarray
    scores: np.ndarray


def neighbours(
    queries_QD: np.ndarray, index_SD: np.ndarray, k: int, chunk: int = 1024
) -> tuple[np.ndarray, np.ndarray]:
    """(cosines [Q, k], rows of the index [Q, k]) of the k nearest, nearest first; exact; among equals the first row
    wins. `chunk` rows of either side are compared at a time and bound the memory, not the result."""
    k = min(k, len(index_SD))
    found = []
    for start in range(0, len(queries_QD), chunk):
        queries = queries_QD[start : start + chunk]
        cosines = np.empty((len(queries), 0), np.result_type(queries_QD, index_SD))
        rows = np.empty((len(queries), 0), int)
        for first in range(0, len(index_SD), chunk):
            block = index_SD[first : first + chunk]
            numbers = np.broadcast_to(np.arange(first, first + len(block)), (len(queries), len(block)))
            cosines = np.concatenate([cosines, queries @ block.T], axis=1)
            rows = np.concatenate([rows, numbers], axis=1)
            best = _highest(cosines, min(k, cosines.shape[1]))
            cosines, rows = (np.take_along_axis(x, best, axis=1) for x in (cosines, rows))
        found.append((cosines, rows))
    cosines, rows = zip(*found, strict=True)
    return np.concatenate(cosines), np.concatenate(rows)


def _highest(scores_QC: np.ndarray, k: int) -> np.ndarray:
    """[Q, k]: the columns of the k highest of each row, highest first; of equals the first."""
    top = np.argpartition(-scores_QC, k - 1, axis=1)[:, :k]
    lowest = np.take_along_axis(scores_QC, top, axis=1).min(axis=1, keepdims=True)
    tied = (scores_QC >= lowest).sum(axis=1) > k  # there argpartition took any of the equals
    top[tied] = np.argsort(-scores_QC[tied], axis=1, kind="stable")[:, :k]
    top.sort(axis=1)
    order = np.argsort(-np.take_along_axis(scores_QC, top, axis=1), axis=1, kind="stable")
    return np.take_along_axis(top, order, axis=1)


def margin_scores(cosines: np.ndarray, left: np.ndarray, right: np.ndarray, margin: str) -> np.ndarray:
    """Score of candidates from their cosine and the mean cosine of each side's neighbours."""
    around = (left + right) / 2
    if margin == "ratio":
        return cosines / np.where(np.abs(around) < 1e-9, 1e-9, around)
    if margin == "distance":
        return cosines - around
    if margin == "absolute":
        return cosines
    raise UserError(f"margin {margin!r} is not one of {', '.join(MARGINS)}")


def mine(
    source_SD: np.ndarray, target_TD: np.ndarray, *, k: int = 4, margin: str = "ratio", threshold: float | None = None
) -> Mined:
    """Candidates are the k neighbours of every sentence in both directions; taken from the best on, each sentence once
    (the paper's "max" retrieval). threshold: the lowest score kept; None: all."""
    if not len(source_SD) or not len(target_TD):
        raise UserError("mining needs sentences on both sides, and one is empty")
    source, target = unit_rows(source_SD), unit_rows(target_TD)
    forward, targets = neighbours(source, target, k)
    backward, sources = neighbours(target, source, k)
    left, right = forward.mean(axis=1), backward.mean(axis=1)
    rows = np.concatenate([np.repeat(np.arange(len(source)), targets.shape[1]), sources.ravel()])
    columns = np.concatenate([targets.ravel(), np.repeat(np.arange(len(target)), sources.shape[1])])
    cosines = np.concatenate([forward.ravel(), backward.ravel()])
    scores = margin_scores(cosines, left[rows], right[columns], margin)
    free_rows, free_columns = np.ones(len(source), bool), np.ones(len(target), bool)
    kept = []
    for candidate in np.argsort(-scores, kind="stable").tolist():
        if threshold is not None and scores[candidate] < threshold:
            break
        row, column = rows[candidate], columns[candidate]
        if free_rows[row] and free_columns[column]:
            free_rows[row] = free_columns[column] = False
            kept.append(candidate)
    return Mined(rows[kept], columns[kept], scores[kept])


def unique(lines: list[str]) -> Iterator[tuple[int, str]]:
    """(number, line) of the first of equal lines; blank lines are left out."""
    seen = set()
    for number, line in enumerate(lines):
        if line and line not in seen:
            seen.add(line)
            yield number, line
