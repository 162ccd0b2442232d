"""Cross-lingual word embeddings: rows of the token table as vectors (XLM §4.5, Table 5).

Translations of a dictionary should lie close to each other (cosine, L2, retrieval), and the cosine
of two words should follow how alike people find them (SemEval-2017 task 2). A word that has no
vector is counted: every figure stands beside its coverage.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xlingjax.data.text.files import read_lines
from xlingjax.errors import UserError
from xlingjax.inference.search import neighbours, unit_rows

PIECES = ("single", "mean")
CSLS_NEIGHBOURS = 10

Similarity = tuple[str, str, float]


def read_dictionary(path: str | Path) -> list[tuple[str, str]]:
    """Pairs of words, `word TAB word` or `word word` (MUSE, XLING) on a line, in order, each once.
    Raises UserError naming the line: another number of words; or no pairs."""
    pairs = {}
    for number, line in _written(path, "a dictionary has a word, a tab and its translation"):
        # MUSE's dictionaries have spaces or tabs, by file; with a tab, a side may be a phrase.
        cells = [cell.strip() for cell in line.split("\t" if "\t" in line else None)]
        if len(cells) != 2 or not all(cells):
            raise UserError(
                f"{path}, line {number}: {line!r} is not a word, a tab and its translation"
            )
        pairs[cells[0], cells[1]] = None
    return list(pairs)


def _written(path: str | Path, what: str) -> list[tuple[int, str]]:
    """(number, line) of those that are not blank. Raises UserError where all are."""
    lines = [(number, line.strip()) for number, line in read_lines(path) if line.strip()]
    if not lines:
        raise UserError(f"{path} is empty: {what} on each line")
    return lines


def read_similarity(path: str | Path) -> list[Similarity]:
    """(word, word, score) of lines `word TAB word TAB score`. Raises UserError naming the line:
    another number of columns, a score that is no number; no pairs."""
    rows = []
    for number, line in _written(path, "it has a word, a tab, a word, a tab and a score"):
        cells = [cell.strip() for cell in line.split("\t")]
        try:
            first, second, gold = cells
            score = float(gold)
        except ValueError:
            score = float("nan")
        if not all(cells) or not np.isfinite(score):
            raise UserError(
                f"{path}, line {number}: {line!r} is not a word, a word and a score (a"
                " number) between tabs"
            )
        rows.append((first, second, score))
    return rows


def word_vectors(
    words: Sequence[str], vocabulary, table_VD: np.ndarray, pieces: str = "single"
) -> dict[str, np.ndarray]:
    """{word: its vector [D]} of the words that have one.

    pieces: "single", words that are one piece of the vocabulary; "mean", all words, the mean of
    their pieces. A word with an unknown piece has none, nor has one without pieces.
    """
    if pieces not in PIECES:
        raise UserError(f"pieces {pieces!r} is not one of {', '.join(PIECES)}")
    found = {}
    for word in dict.fromkeys(words):
        # The vectors of pieces that write nothing, as the space before a word, are no part of the
        # word's, and the row of the unknown piece is no vector of this word.
        ids = [piece for piece in vocabulary.encode(word) if vocabulary.decode([piece]).strip()]
        if ids and vocabulary.unk_id not in ids and (len(ids) == 1 or pieces == "mean"):
            found[word] = np.asarray(table_VD[ids], np.float32).mean(axis=0)
    return found


def score_dictionary(
    pairs: Sequence[tuple[str, str]],
    vocabulary,
    table_VD: np.ndarray,
    pieces: str = "single",
) -> dict[str, float | int | None]:
    """Of the pairs of which both words have a vector:

    pairs, covered, coverage   in the dictionary; of these with vectors; their share
    cosine, l2                 mean over covered pairs; l2 of the vectors as they are, not
    normalised
    spelled_alike              share of covered pairs that are one word in both languages, so one
    row
    words                      different first words among them: the queries of
    p_at_1_nearest, p_at_1_csls   share of queries whose nearest is a translation, among the covered
                               words of the other language in the dictionary, by cosine and by CSLS
                               (10 neighbours; Conneau et al. 2018)
    None where nothing is covered.
    """
    firsts, seconds = _both_sides(pairs, vocabulary, table_VD, pieces)
    # Figures are over the covered pairs alone, so `coverage` stands beside them.
    kept = [(a, b) for a, b in pairs if a in firsts and b in seconds]
    counts = {"pairs": len(pairs), "covered": len(kept), "coverage": len(kept) / len(pairs)}
    if not kept:
        names = ("cosine", "l2", "spelled_alike", "p_at_1_nearest", "p_at_1_csls")
        return counts | {"words": 0} | dict.fromkeys(names)
    first_PD = np.stack([firsts[a] for a, _ in kept])
    second_PD = np.stack([seconds[b] for _, b in kept])
    queries = list(dict.fromkeys(a for a, _ in kept))
    targets = list(dict.fromkeys(b for _, b in kept))
    query_QD = unit_rows(np.stack([firsts[word] for word in queries]))
    index_SD = unit_rows(np.stack([seconds[word] for word in targets]))
    translations = set(kept)

    def precision(found_Q1: np.ndarray) -> float:
        found = zip(queries, found_Q1[:, 0], strict=True)
        return sum((word, targets[row]) in translations for word, row in found) / len(queries)

    # CSLS is 2 cos(x, y) - r(x) - r(y); r(x) is one number for all y. The last column takes r(y)
    # off in the product.
    nearest_Sk, _ = neighbours(index_SD, query_QD, CSLS_NEIGHBOURS)
    crowding_S1 = nearest_Sk.mean(axis=1, keepdims=True)
    csls_query = np.hstack([2 * query_QD, -np.ones((len(queries), 1))])
    csls_index = np.hstack([index_SD, crowding_S1])
    _, by_cosine_Q1 = neighbours(query_QD, index_SD, 1)
    _, by_csls_Q1 = neighbours(csls_query, csls_index, 1)
    cosine_P = np.sum(unit_rows(first_PD) * unit_rows(second_PD), axis=1)
    distance_P = np.linalg.norm(first_PD - second_PD, axis=1)
    return counts | {
        "words": len(queries),
        "cosine": float(np.mean(cosine_P)),
        "l2": float(np.mean(distance_P)),
        "spelled_alike": float(np.mean([a == b for a, b in kept])),
        "p_at_1_nearest": precision(by_cosine_Q1),
        "p_at_1_csls": precision(by_csls_Q1),
    }


def _both_sides(rows: Sequence[Sequence], vocabulary, table_VD, pieces) -> list[dict]:
    """`word_vectors` of the first and of the second words of the rows."""
    return [
        word_vectors([row[side] for row in rows], vocabulary, table_VD, pieces) for side in (0, 1)
    ]


def score_similarity(
    rows: Sequence[Similarity],
    vocabulary,
    table_VD: np.ndarray,
    pieces: str = "single",
) -> dict[str, float | int | None]:
    """How far the cosine of two words follows the gold scores: `pearson` and `spearman` over all
    pairs, those without vectors getting the mean cosine of the others; the same over covered pairs
    alone, `pearson_covered`, `spearman_covered`; `pairs`, `covered`, `coverage`. None where they
    are not defined: fewer than two pairs covered, or no spread."""
    first, second = _both_sides(rows, vocabulary, table_VD, pieces)
    gold = np.array([score for _, _, score in rows])
    known = np.array([a in first and b in second for a, b, _ in rows])
    cosines = np.zeros(len(rows))
    for i in np.flatnonzero(known):
        a, b, _ = rows[i]
        x, y = unit_rows(np.stack([first[a], second[b]]).astype(np.float64))
        cosines[i] = x @ y
    # A pair without vectors is guessed: the mean leans to neither side.
    if known.any():
        cosines[~known] = cosines[known].mean()
    pearson, spearman = correlations(cosines, gold)
    covered = correlations(cosines[known], gold[known])
    return {
        "pairs": len(rows),
        "covered": int(known.sum()),
        "coverage": float(known.mean()),
        "pearson": pearson,
        "spearman": spearman,
        "pearson_covered": covered[0],
        "spearman_covered": covered[1],
    }


def correlations(x: np.ndarray, y: np.ndarray) -> tuple[float | None, float | None]:
    """Pearson's and Spearman's, None where they are not defined: fewer than two values, or no
    spread."""
    from scipy.stats import pearsonr, spearmanr

    # scipy gives NaN there, which JSON has not.
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None, None
    return float(pearsonr(x, y).statistic), float(spearmanr(x, y).statistic)
