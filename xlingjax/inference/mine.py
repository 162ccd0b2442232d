"""Bitext mining: which sentences of two texts translate each other? By the margin between a pair's
cosine and that of each side's neighbours (Artetxe & Schwenk 2019, §3)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jax.sharding import Mesh

from xlingjax.errors import UserError
from xlingjax.inference.search import neighbours, unit_rows

MARGINS = ("ratio", "distance", "absolute")


@dataclass(frozen=True)
class Mined:
    """Pairs of rows and their scores, best first."""

    source: np.ndarray
    target: np.ndarray
    scores: np.ndarray


def margin_scores(
    cosines: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    margin: str,
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
    source_SD: np.ndarray,
    target_TD: np.ndarray,
    *,
    k: int = 4,
    margin: str = "ratio",
    threshold: float | None = None,
    mesh: Mesh | None = None,
) -> Mined:
    """Candidates are every sentence of either side with that of its k neighbours which scores
    highest; they are taken from the best on, each sentence once (the paper's "max" retrieval).
    threshold: the lowest score kept; None: all. mesh: see `search.neighbours`."""
    if not len(source_SD) or not len(target_TD):
        raise UserError(
            "mining needs sentences on both sides, and one is empty",
        )
    # Products of rows of length 1 are cosines.
    source, target = unit_rows(source_SD), unit_rows(target_TD)
    # Both ways: a sentence's neighbours are those on the other side.
    forward_Sk, targets_Sk = neighbours(source, target, k, mesh=mesh)
    backward_Tk, sources_Tk = neighbours(target, source, k, mesh=mesh)
    left, right = forward_Sk.mean(axis=1), backward_Tk.mean(axis=1)
    forward_Sk = margin_scores(
        forward_Sk,
        left[:, None],
        right[targets_Sk],
        margin,
    )
    backward_Tk = margin_scores(
        backward_Tk,
        left[sources_Tk],
        right[:, None],
        margin,
    )
    best_S, best_T = forward_Sk.argmax(axis=1), backward_Tk.argmax(axis=1)
    each_S, each_T = np.arange(len(source)), np.arange(len(target))
    rows = np.concatenate([each_S, sources_Tk[each_T, best_T]])
    columns = np.concatenate([targets_Sk[each_S, best_S], each_T])
    scores = np.concatenate(
        [forward_Sk[each_S, best_S], backward_Tk[each_T, best_T]],
    )
    free_rows, free_columns = (
        np.ones(len(source), bool),
        np.ones(len(target), bool),
    )
    kept = []
    # Greedy from the best on, as the paper's "max": a sentence has one translation.
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
