"""Cross-lingual word embeddings: the rows of an encoder's token table as vectors of words (XLM
§4.5, Table 5).

Translations of a dictionary should lie close to each other (cosine, L2, retrieval), and the cosine
of two words should follow how alike people find them (SemEval-2017 task 2). A word that has no
vector is counted: every figure stands beside its coverage.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xlingjax.data.text_files import read_lines
from xlingjax.errors import UserError
from xlingjax.inference.search import neighbours, unit_rows

PIECES = ("single", "mean")
CSLS_NEIGHBOURS = 10

Similarity = tuple[str, str, float]


def read_dictionary(path: str | Path) -> list[tuple[str, str]]:
    """Pairs of words, `word TAB word` or `word word` (MUSE, XLING) on a line, in order, each once.
    Raises UserError naming the line: another number of words; or no pairs."""
    pairs = {}
    for number, line in read_lines(path):
        if not line.strip():
            continue
        cells = [
            cell.strip()
            for cell in (line.split("\t") if "\t" in line else line.split())
        ]
        if len(cells) != 2 or not all(cells):
            raise UserError(
                f"{path}, line {number}: {line.strip()!r} is not a word, a tab and its translation"
            )
        pairs[cells[0], cells[1]] = None
    if not pairs:
        raise UserError(
            f"{path} is empty: a dictionary has a word, a tab and its translation on each line"
        )
    return list(pairs)


def read_similarity(path: str | Path) -> list[Similarity]:
    """(word, word, score) of lines `word TAB word TAB score`. A file named as SemEval's,
    `NAME.data.txt`, has two columns; its scores stand line by line in `NAME.gold.txt` beside it or
    in `../keys`. Raises UserError naming the line: another number of columns, a score that is no
    number; no pairs; another number of scores.
    """
    path = Path(path)
    lines = [
        (number, line.strip("\r\n").split("\t"))
        for number, line in read_lines(path)
        if line.strip()
    ]
    if not lines:
        raise UserError(
            f"{path} is empty: it has a word, a tab, a word, a tab and a score on each line"
        )
    keys = _keys(path) if path.name.endswith(".data.txt") else None
    if keys is not None:
        golds = [
            (number, line.strip()) for number, line in read_lines(keys) if line.strip()
        ]
        if len(golds) != len(lines):
            raise UserError(
                f"{keys} has {len(golds)} scores for the {len(lines)} pairs of {path}"
            )
        for (number, cells), (_, gold) in zip(lines, golds, strict=True):
            if len(cells) != 2:
                raise UserError(
                    f"{path}, line {number}: {len(cells)} columns, not two words with a tab between"
                )
            cells.append(gold)
    rows = []
    for place, (number, cells) in enumerate(lines):
        cells = [cell.strip() for cell in cells]
        if len(cells) != 3 or not all(cells):
            raise UserError(
                f"{path}, line {number}: {len(cells)} columns, not a word, a word and a score"
                " between tabs"
            )
        try:
            score = float(cells[2])
            if not np.isfinite(score):
                raise ValueError
        except ValueError:
            where = (
                f"{path}, line {number}"
                if keys is None
                else f"{keys}, line {golds[place][0]}"
            )
            raise UserError(
                f"{where}: the score {cells[2]!r} is not a number"
            ) from None
        rows.append((cells[0], cells[1], score))
    return rows


def _keys(path: Path) -> Path:
    name = path.name.removesuffix(".data.txt") + ".gold.txt"
    places = [path.with_name(name), path.parent.parent / "keys" / name]
    for place in places:
        if place.is_file():
            return place
    raise UserError(
        f"{path}: its scores, {name}, are neither beside it nor in {places[1].parent}"
    )


def word_vectors(
    words: Sequence[str],
    language: str,
    vocabulary,
    table_VD: np.ndarray,
    pieces: str = "single",
) -> dict[str, np.ndarray]:
    """{word: its vector [D]} of the words that have one.

    pieces: "single", words that are one piece of the vocabulary; "mean", all words, the mean of
    their pieces. A word with an unknown piece has none, nor has one without pieces. A phrase is
    read as one word.
    """
    if pieces not in PIECES:
        raise UserError(f"pieces {pieces!r} is not one of {', '.join(PIECES)}")
    found = {}
    for word in dict.fromkeys(words):
        # The vectors of pieces that write nothing, as the space before a word, are no part of the
        # word's.
        ids = [
            piece
            for piece in vocabulary.encode(word)
            if vocabulary.decode([piece]).strip()
        ]
        if ids and vocabulary.unk_id not in ids and (len(ids) == 1 or pieces == "mean"):
            found[word] = np.asarray(table_VD[ids], np.float32).mean(axis=0)
    return found


def score_dictionary(
    pairs: Sequence[tuple[str, str]],
    languages: tuple[str, str],
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
    sides = [
        word_vectors(
            [pair[i] for pair in pairs], language, vocabulary, table_VD, pieces
        )
        for i, language in enumerate(languages)
    ]
    kept = [(a, b) for a, b in pairs if a in sides[0] and b in sides[1]]
    counts = {
        "pairs": len(pairs),
        "covered": len(kept),
        "coverage": len(kept) / len(pairs),
    }
    if not kept:
        names = ("cosine", "l2", "spelled_alike", "p_at_1_nearest", "p_at_1_csls")
        return counts | {"words": 0} | dict.fromkeys(names)
    first_PD, second_PD = (
        np.stack([sides[i][pair[i]] for pair in kept]) for i in (0, 1)
    )
    queries, targets = (list(dict.fromkeys(pair[i] for pair in kept)) for i in (0, 1))
    query_QD, index_SD = (
        unit_rows(np.stack([side[w] for w in words]))
        for side, words in zip(sides, (queries, targets), strict=True)
    )
    translations = set(kept)

    def precision(found: np.ndarray) -> float:
        return float(
            np.mean(
                [
                    (word, targets[row]) in translations
                    for word, row in zip(queries, found, strict=True)
                ]
            )
        )

    # CSLS is 2 cos(x, y) - r(x) - r(y); r(x) is one number for all y. The last column takes r(y)
    # off in the product.
    crowding_S = neighbours(index_SD, query_QD, CSLS_NEIGHBOURS)[0].mean(
        axis=1, keepdims=True
    )
    by_csls = (
        np.hstack([2 * query_QD, -np.ones((len(queries), 1))]),
        np.hstack([index_SD, crowding_S]),
    )
    return counts | {
        "words": len(queries),
        "cosine": float(
            np.mean(np.sum(unit_rows(first_PD) * unit_rows(second_PD), axis=1))
        ),
        "l2": float(np.mean(np.linalg.norm(first_PD - second_PD, axis=1))),
        "spelled_alike": float(np.mean([a == b for a, b in kept])),
        "p_at_1_nearest": precision(neighbours(query_QD, index_SD, 1)[1][:, 0]),
        "p_at_1_csls": precision(neighbours(*by_csls, 1)[1][:, 0]),
    }


def score_similarity(
    rows: Sequence[Similarity],
    languages: tuple[str, str],
    vocabulary,
    table_VD: np.ndarray,
    pieces: str = "single",
) -> dict[str, float | int | None]:
    """How far the cosine of two words follows the gold scores: `pearson` and `spearman` over all
    pairs, those without vectors getting the mean cosine of the others; the same over covered pairs
    alone, `pearson_covered`, `spearman_covered`; `pairs`, `covered`, `coverage`. None where they
    are not defined: fewer than two pairs covered, or no spread."""
    sides = [
        word_vectors([row[i] for row in rows], language, vocabulary, table_VD, pieces)
        for i, language in enumerate(languages)
    ]
    gold = np.array([score for _, _, score in rows])
    known = np.array([a in sides[0] and b in sides[1] for a, b, _ in rows])
    cosines = np.zeros(len(rows))
    for i in np.flatnonzero(known):
        x, y = unit_rows(
            np.stack([sides[0][rows[i][0]], sides[1][rows[i][1]]]).astype(np.float64)
        )
        cosines[i] = x @ y
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

    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None, None
    return float(pearsonr(x, y).statistic), float(spearmanr(x, y).statistic)
