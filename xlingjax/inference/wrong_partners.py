"""Which sentence is the wrong partner of each: near to its translation, and none."""

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xlingjax.inference.nearest import Rows, Search, Unit, nearest
from xlingjax.inference.search import unit_rows

PART = 16384  # sentences that are chosen for at a time


@dataclass(frozen=True)
class Meanings:
    """What lines say, and which say the same, case, punctuation and spaces left out.

    source_S, target_S: of each line the number of the first that says the same; right: the pairs
    of those that translate each other, as one number each, ascending.
    """

    source_S: np.ndarray
    target_S: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, sides: Sequence[Iterable[str]]) -> "Meanings":
        source, target = (first_of_equal_keys(map(normalised, side)) for side in sides)
        # A sentence may stand in the text several times with several right translations.
        right = np.unique(source * len(target) + target)
        return cls(source, target, right)

    def distinct(self) -> np.ndarray:
        """Lines of the target that say what none before them says."""
        # Equal sentences would fill the places of the nearest.
        return np.flatnonzero(self.target_S == np.arange(len(self.target_S)))

    def wrong(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Whether these target lines translate no line that says what the source lines say."""
        pairs = self.source_S[sources] * len(self.target_S)
        pairs = pairs + self.target_S[targets]
        at = np.searchsorted(self.right, pairs)
        return self.right[np.minimum(at, len(self.right) - 1)] != pairs


def choose(
    sides: Sequence[Iterable[str]],
    vectors: Sequence[Rows],
    config,
    search: Search = Search(),
    folder: Path | None = None,
) -> Iterator[tuple[int, float, str]]:
    """(line of the wrong partner, its cosine to the sentence, "hard" or "random") for every line;
    (-1, 0, "") where there is none. config: a `NegativesConfig`; search, folder: see
    `nearest.nearest`.

    Never one that says the translation, or the translation of the same sentence elsewhere: compared
    without case, punctuation and spaces. Of lines that say the same the first stands for all.
    """
    meanings = Meanings.of(sides)
    distinct = meanings.distinct()
    first, second = vectors
    near = nearest_wrong(meanings, first, second, config.k, search, folder)
    # Drawn in the order of the lines: each draw is the same at every start.
    rng = np.random.default_rng(config.seed)
    for start in range(0, len(first), PART):
        drawn = []
        for i, candidates in enumerate(near[start : start + PART], start):
            kind = "hard"
            candidates = candidates[candidates >= 0]
            if rng.random() < config.random_share:
                kind = "random"
                # Twenty draws, since some of them may be right ones.
                lines = rng.choice(distinct, 20)
                candidates = lines[meanings.wrong(np.array(i), lines)][:1]
            if len(candidates):
                drawn.append((int(candidates[rng.integers(len(candidates))]), kind))
            else:
                drawn.append((-1, ""))
        own = unit_rows(first[start : start + PART])
        others = unit_rows(second[np.array([max(j, 0) for j, _ in drawn])])
        for (j, kind), x, y in zip(drawn, own, others, strict=True):
            yield j, float(x @ y) if kind else 0.0, kind


def nearest_wrong(
    meanings: Meanings,
    first: Rows,
    second: Rows,
    k: int,
    search: Search = Search(),
    folder: Path | None = None,
) -> np.ndarray:
    """int [S, k]: lines nearest to each source and wrong, best first; -1 where there are fewer."""
    distinct = meanings.distinct()
    index: Rows = Unit(second, distinct)
    queries: Rows = Unit(first)
    if isinstance(first, np.ndarray):
        index, queries = unit_rows(second)[distinct], unit_rows(first)
    # 4 bytes: of a large text the table fills most of the memory.
    found_Sk = np.full((len(first), k), -1, np.int32)
    left = np.arange(len(first))
    width = k + 8
    # Wider for those of which right ones took the places.
    while left.size:
        asked = queries[left] if left.size < len(queries) else queries
        _, rows = nearest(asked, index, width, search, folder=folder)
        for start in range(0, len(left), PART):
            part = left[start : start + PART]
            lines = distinct[rows[start : start + PART]]
            wrong = meanings.wrong(part[:, None], lines)
            # Stable: the wrong ones first, as near as they stood.
            order = np.argsort(~wrong, axis=1, kind="stable")[:, :k]
            kept = np.where(
                np.take_along_axis(wrong, order, axis=1),
                np.take_along_axis(lines, order, axis=1),
                -1,
            )
            found_Sk[part, : kept.shape[1]] = kept
        if width >= len(distinct):
            break
        left = left[found_Sk[left, -1] < 0]
        # So that few rounds do, also where a sentence stands in the text hundreds of times.
        width *= 4
    return found_Sk


def first_of_equal_keys(texts: Iterable[str]) -> np.ndarray:
    """int64 [S]: the first text equal to each, by 128 bits of a hash: memory may not hold all."""
    hashes = np.fromiter(map(_hash, texts), np.dtype("2u8"))
    # Stable, so that the first of equal ones stands before the others.
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    ordered = hashes[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.empty(len(order), np.int64)
    first[order] = order[begins][np.cumsum(begins) - 1]
    return first


def _hash(text: str) -> tuple[int, int]:
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return (int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little"))


def normalised(text: str) -> str:
    """Letters and digits of a text, in one case: texts that differ in nothing else say the same."""
    # NFKC first: full-width letters and ligatures are the same letters.
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in folded if unicodedata.category(c)[0] in "LMN")
