"""Word alignment from the similarity of states (SimAlign: Jalili Sabet et al. 2020, §3), without
attention or training.

Words are aligned where any of their pieces are. A sentence is words with spaces between them; in
scripts without spaces the model reads them joined.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.held_out_pairs import PIVOT, aligned_lines, lines_of
from xlingjax.data.vocabulary.word_pieces import pieces_of_words
from xlingjax.errors import UserError
from xlingjax.inference.encode import language_index, token_states
from xlingjax.inference.search import unit_rows
from xlingjax.training.evaluator import Evaluator

Links = set[tuple[int, int]]


def argmax_intersection(similarity_LS: np.ndarray) -> np.ndarray:
    """bool [L, S]: pairs of which each is the other's most similar."""
    forward = similarity_LS == similarity_LS.max(axis=1, keepdims=True)
    return forward & (similarity_LS == similarity_LS.max(axis=0, keepdims=True))


def itermax(
    similarity_LS: np.ndarray, rounds: int = 2, alpha: float = 0.9
) -> np.ndarray:
    """bool [L, S]: `argmax_intersection`, then again among what is left: similarities of which one
    side is aligned count `alpha`, of which both are nothing (SimAlign's IterMax)."""
    links = argmax_intersection(similarity_LS)
    for _ in range(rounds - 1):
        left, right = links.any(axis=1, keepdims=True), links.any(axis=0, keepdims=True)
        if left.all() or right.all():
            break
        weight = np.where(left & right, 0.0, np.where(left | right, alpha, 1.0))
        links = links | (
            argmax_intersection(np.maximum(similarity_LS, 0) * weight) & (weight > 0)
        )
    return links


METHODS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "intersection": argmax_intersection,
    "itermax": itermax,
}


def word_links(
    links_LS: np.ndarray, left: Sequence[int], right: Sequence[int]
) -> Links:
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
            raise UserError(
                f"alignment method {method!r} is not one of {', '.join(METHODS)}"
            )
        return word_links(METHODS[method](self.similarity), self.left, self.right)


def align(
    model,
    params,
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
    languages: tuple[str, str],
    run_languages: Sequence[str],
    vocabulary,
    *,
    layers: Sequence[int],
    mesh=None,
) -> list[list[Alignment]]:
    """The alignments of pairs of sentences in words, from the states of each layer (0: the
    embedding output)."""
    sides = []
    for side, language in enumerate(languages):
        pieces = [pieces_of_words(pair[side], language, vocabulary) for pair in pairs]
        states = token_states(
            model,
            params,
            [[vocabulary.bos_id, *ids, vocabulary.eos_id] for ids, _ in pieces],
            language_index(language, run_languages, model),
            vocabulary,
            layers=layers,
            mesh=mesh,
        )
        sides.append(
            [
                (unit_rows(h_NLD[:, 1:-1]), owners)
                for h_NLD, (_, owners) in zip(states, pieces, strict=True)
            ]
        )
    return [
        [
            Alignment(
                left_NLD[n] @ right_NSD[n].T,
                left[: left_NLD.shape[1]],
                right[: right_NSD.shape[1]],
            )
            for (left_NLD, left), (right_NSD, right) in zip(*sides, strict=True)
        ]
        for n in range(len(layers))
    ]


def error_rate(found: Iterable[Links], gold: Iterable[Links]) -> float:
    """Alignment error rate where all gold links are sure: 1 - 2 |A and S| / (|A| + |S|) over all
    sentences (Och & Ney 2003)."""
    both, total = 0, 0
    for a, s in zip(found, gold, strict=True):
        both, total = both + len(a & s), total + len(a) + len(s)
    return 1 - 2 * both / total if total else 0.0


def pharaoh(links: Links) -> str:
    """ "0-0 1-2": as fast_align and others write alignments."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def read_links(
    path: Path, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> list[Links]:
    """The links of a file in Pharaoh's format, a line per pair of sentences in words. Raises
    UserError naming the line: another format, a word that the sentence has not; or another number
    of lines."""
    lines = lines_of(path)
    if len(lines) != len(pairs):
        raise UserError(f"{path} has {len(lines)} lines for {len(pairs)} pairs")
    found = []
    for number, (line, (first, second)) in enumerate(zip(lines, pairs, strict=True), 1):
        try:
            links = {
                (int(i), int(j)) for i, j in (link.split("-") for link in line.split())
            }
        except ValueError:
            raise UserError(
                f"{path}, line {number}: {line!r} is no alignment like 0-0 1-2"
            ) from None
        for i, j in links:
            if i >= len(first) or j >= len(second):
                raise UserError(
                    f"{path}, line {number}: link {i}-{j} of sentences of {len(first)} and"
                    f" {len(second)} words; words count from 0, those of the first sentence come"
                    " first"
                )
        found.append(links)
    return found


@dataclass(frozen=True)
class Gold:
    """Pairs of sentences in words, (language, English), and their links."""

    pairs: list[tuple[list[str], list[str]]]
    links: list[Links]


def read_gold(
    folder: str | Path, languages: Sequence[str], limit: int = 0
) -> dict[str, Gold]:
    """{language: gold} of `XX-en.XX`, `XX-en.en` and `XX-en.txt` (Pharaoh) in a folder. Raises
    UserError: none there, unequal lengths. limit: the first so many pairs of each; 0: all."""
    found = {}
    for path in sorted(Path(folder).glob(f"*-{PIVOT}.txt")):
        language = path.name.removesuffix(f"-{PIVOT}.txt")
        if language not in languages:
            continue
        lines = aligned_lines(
            *(path.with_suffix(f".{end}") for end in (language, PIVOT))
        )
        pairs = [(foreign.split(), english.split()) for foreign, english in lines]
        links = read_links(path, pairs)
        found[language] = Gold(pairs[: limit or None], links[: limit or None])
    if not found:
        raise UserError(
            f"{folder}: no gold alignments XX-{PIVOT}.txt of the run's languages"
            f" {', '.join(languages)}"
        )
    return found


@dataclass
class AlignmentProbe(Evaluator):
    """Alignment error rate against gold links, by layer and method, as an evaluator of the training
    loop.

    Values: by_layer {layer: {method: mean over languages}}, by_language {language: {layer: {method:
    rate}}}, and `alignment_error`, `alignment_error_intersection` at the layers where they are
    lowest, chosen on these pairs.
    """

    gold: Mapping[str, Gold]
    vocabulary: Any
    languages: Sequence[str]
    name: str = "alignment"

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        layers = range(model.config.layers + 1)
        by_language: dict[str, dict[str, dict[str, float]]] = {}
        for language, gold in self.gold.items():
            found = align(
                model,
                params,
                gold.pairs,
                (language, PIVOT),
                self.languages,
                self.vocabulary,
                layers=layers,
                mesh=mesh,
            )
            by_language[language] = {
                str(layer): {
                    m: error_rate([one.links(m) for one in found[layer]], gold.links)
                    for m in METHODS
                }
                for layer in layers
            }
        by_layer = {
            str(n): {
                m: float(np.mean([of[str(n)][m] for of in by_language.values()]))
                for m in METHODS
            }
            for n in layers
        }
        best = {
            m: min(by_layer, key=lambda layer, m=m: by_layer[layer][m]) for m in METHODS
        }
        return {
            "kind": "alignment",
            "alignment_error": by_layer[best["itermax"]]["itermax"],
            "alignment_error_intersection": by_layer[best["intersection"]][
                "intersection"
            ],
            "alignment_best_layer": int(best["itermax"]),
            "by_layer": by_layer,
            "by_language": by_language,
        }
