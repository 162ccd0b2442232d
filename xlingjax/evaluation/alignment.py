"""Word alignment from the similarity of states (SimAlign: Jalili Sabet et al. 2020, §3), untrained.

Words are aligned where any of their pieces are. A sentence is words with spaces between them; in
scripts without spaces the model reads them joined.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.held_out_pairs import PIVOT, aligned_lines, lines_of
from xlingjax.data.text.files import words_of
from xlingjax.data.vocabulary.word_pieces import pieces_of_words
from xlingjax.errors import UserError
from xlingjax.evaluation.retrieval import mean_by_layer
from xlingjax.inference.encode import token_states
from xlingjax.inference.run import TrainedRun
from xlingjax.inference.search import unit_rows
from xlingjax.training.evaluator import Evaluator

Links = set[tuple[int, int]]


def argmax_intersection(similarity_LS: np.ndarray) -> np.ndarray:
    """bool [L, S]: pairs of which each is the other's most similar."""
    if not similarity_LS.size:
        return np.zeros(similarity_LS.shape, bool)
    # By comparison and not by `argmax`: of equal similarities all are the highest.
    forward = similarity_LS == similarity_LS.max(axis=1, keepdims=True)
    return forward & (similarity_LS == similarity_LS.max(axis=0, keepdims=True))


def itermax(similarity_LS: np.ndarray, rounds: int = 2, alpha: float = 0.9) -> np.ndarray:
    """bool [L, S]: `argmax_intersection`, then again among what is left: similarities of which one
    side is aligned count `alpha`, of which both are nothing (SimAlign's IterMax)."""
    links = argmax_intersection(similarity_LS)
    for _ in range(rounds - 1):
        left = links.any(axis=1, keepdims=True)
        right = links.any(axis=0, keepdims=True)
        if left.all() or right.all():
            break
        weight = np.where(left & right, 0.0, np.where(left | right, alpha, 1.0))
        # A negative similarity would grow by a weight below 1.
        weighted_LS = np.maximum(similarity_LS, 0) * weight
        # Where all is 0, all are the most similar: a weight of 0 aligns nothing.
        links = links | (argmax_intersection(weighted_LS) & (weight > 0))
    return links


METHODS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "intersection": argmax_intersection,
    "itermax": itermax,
}


def word_links(links_LS: np.ndarray, left: Sequence[int], right: Sequence[int]) -> Links:
    """{(word, word)} of links between pieces, whose words are `left` [L] and `right` [S]."""
    return {(left[i], right[j]) for i, j in np.argwhere(links_LS).tolist()}


@dataclass(frozen=True)
class Alignment:
    """One pair of sentences, similarity of its pieces [L, S] and their words."""

    similarity: np.ndarray
    left: list[int]
    right: list[int]

    def links(self, method: str = "itermax") -> Links:
        if method not in METHODS:
            raise UserError(f"alignment method {method!r} is not one of {', '.join(METHODS)}")
        return word_links(METHODS[method](self.similarity), self.left, self.right)


def align(
    run: TrainedRun,
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
    languages: tuple[str, str],
    layers: Sequence[int],
) -> list[list[Alignment]]:
    """The word alignments of pairs of sentences, from each layer's states (0: the embeddings)."""
    vocabulary = run.vocabulary
    sides = []
    # Each side by itself: the method reads two texts that do not see each other.
    for side, language in enumerate(languages):
        pieces = [pieces_of_words(pair[side], language, vocabulary) for pair in pairs]
        rows = [[vocabulary.bos_id, *ids, vocabulary.eos_id] for ids, _ in pieces]
        states = token_states(run, rows, language, layers)
        # Without the tokens that open and close a sentence. A long one was cut, words and all.
        vectors = [unit_rows(h_NLD[:, 1:-1]) for h_NLD in states]
        owners = [of[: v_NLD.shape[1]] for v_NLD, (_, of) in zip(vectors, pieces, strict=True)]
        sides.append(list(zip(vectors, owners, strict=True)))
    return [
        [
            Alignment(left_NLD[n] @ right_NSD[n].T, left, right)
            for (left_NLD, left), (right_NSD, right) in zip(*sides, strict=True)
        ]
        for n in range(len(layers))
    ]


def error_rate(found: Iterable[Links], gold: Iterable[Links]) -> float:
    """Alignment error rate, gold links all sure: 1 - 2 |A and S| / (|A| + |S|) (Och & Ney 2003)."""
    # Summed over all sentences before it is divided, so that long ones weigh more, as published.
    pairs = list(zip(found, gold, strict=True))
    total = sum(len(made) + len(sure) for made, sure in pairs)
    return 1 - 2 * sum(len(made & sure) for made, sure in pairs) / total if total else 0.0


def pharaoh(links: Links) -> str:
    """ "0-0 1-2": as fast_align and others write alignments."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def read_links(path: Path, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[Links]:
    """The links of a file in Pharaoh's format, a line per pair of sentences in words. Raises
    UserError naming the line: another format, a word that the sentence has not; or another number
    of lines."""
    lines = lines_of(path)
    # A missing line would shift all links behind it.
    if len(lines) != len(pairs):
        raise UserError(f"{path} has {len(lines)} lines for {len(pairs)} pairs")
    found = []
    for number, (line, (first, second)) in enumerate(zip(lines, pairs, strict=True), 1):
        try:
            links = {(int(i), int(j)) for i, j in (link.split("-") for link in line.split())}
        except ValueError:
            raise UserError(
                f"{path}, line {number}: {line!r} is no alignment like 0-0 1-2"
            ) from None
        for i, j in links:
            if i >= len(first) or j >= len(second):
                raise UserError(
                    f"{path}, line {number}: link {i}-{j} of sentences of {len(first)} and"
                    f" {len(second)} words, which count from 0"
                )
        # Also of a blank line: a pair of which nothing is aligned.
        found.append(links)
    return found


@dataclass(frozen=True)
class Gold:
    """Pairs of sentences in words, (language, English), and their links."""

    pairs: list[tuple[list[str], list[str]]]
    links: list[Links]


def read_gold(folder: str | Path, languages: Sequence[str], limit: int = 0) -> dict[str, Gold]:
    """{language: gold} of `XX-en.XX`, `XX-en.en` and `XX-en.txt` (Pharaoh) in a folder. Raises
    UserError: none there, unequal lengths. limit: the first so many pairs of each; 0: all."""
    found = {}
    for path in sorted(Path(folder).glob(f"*-{PIVOT}.txt")):
        language = path.name.removesuffix(f"-{PIVOT}.txt")
        # Folders of gold alignments hold more languages than a run knows.
        if language not in languages:
            continue
        lines = aligned_lines(path.with_suffix(f".{language}"), path.with_suffix(f".{PIVOT}"))
        pairs = [(words_of(foreign), words_of(english)) for foreign, english in lines]
        links = read_links(path, pairs)
        found[language] = Gold(pairs[: limit or None], links[: limit or None])
    if not found:
        raise UserError(
            f"{folder}: no gold alignments XX-{PIVOT}.txt of the run's languages"
            f" {', '.join(languages)}"
        )
    return found


@dataclass
class AlignmentEvaluator(Evaluator):
    """Alignment error rate against gold links, by layer and method, as an evaluator.

    Values: by_layer {layer: {method: mean over languages}}, by_language {language: {layer: {method:
    rate}}}, and `alignment_error`, `alignment_error_intersection` at the layers where they are
    lowest, chosen on these pairs.
    """

    gold: Mapping[str, Gold]
    vocabulary: Any
    languages: Sequence[str]
    name: str = "alignment"

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        run = TrainedRun(model, params, self.vocabulary, self.languages, mesh)
        layers = range(model.config.layers + 1)
        by_language: dict[str, dict[str, dict[str, float]]] = {}
        for language, gold in self.gold.items():
            aligned = align(run, gold.pairs, (language, PIVOT), layers)
            by_language[language] = {
                str(layer): {
                    method: error_rate([one.links(method) for one in found], gold.links)
                    for method in METHODS
                }
                for layer, found in zip(layers, aligned, strict=True)
            }
        by_layer = mean_by_layer(by_language)
        best = {
            method: min(by_layer, key=lambda layer, m=method: by_layer[layer][m])
            for method in METHODS
        }
        return {
            "kind": "alignment",
            "alignment_error": by_layer[best["itermax"]]["itermax"],
            "alignment_error_intersection": by_layer[best["intersection"]]["intersection"],
            "alignment_best_layer": int(best["itermax"]),
            "by_layer": by_layer,
            "by_language": by_language,
        }
