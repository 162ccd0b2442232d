"""ERNIE-M (Ouyang et al. 2021) on the text of a run: CAMLM on pairs, BTMLM on monolingual text."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from xlingjax.config.text import TextSource, of_text
from xlingjax.data.sampling import Sampling
from xlingjax.data.store.tokenise import tokenise
from xlingjax.data.text.sources import find_pairs
from xlingjax.errors import UserError, require_choice
from xlingjax.objectives.ernie_m import BTMLM, CAMLM
from xlingjax.preprocessors.ernie_m import BtmlmFeatures, CamlmFeatures


def _languages(target_languages: str = "share", pairs: TextSource | None = None) -> dict[str, Any]:
    """target_languages: pseudo tokens are in a language that the corpus has pairs of (or the
    mixture of `pairs`), drawn by their `share` as the text is sampled, or `uniform`."""
    chosen = {"target_languages": target_languages}
    require_choice(chosen, ("share", "uniform"), "target_languages", "btmlm: ")
    return {}


# Shares count the pairs of files, which are not there when a recipe is only looked at.
def _with_targets(
    text: TextSource, features: BtmlmFeatures, given: Mapping[str, Any]
) -> BtmlmFeatures:
    sampling = text.sampling
    if given["target_languages"] == "uniform":
        # Shares to the power of 0 are all alike.
        sampling = Sampling(alpha=0.0)
    shares = pair_shares(text, sampling, given["pairs"])
    return dataclasses.replace(features, targets=tuple(shares.items()))


def pair_shares(
    text: TextSource, sampling: Sampling, pairs: TextSource | None = None
) -> dict[int, float]:
    """{language id: share} of the languages that the corpus, or the mixture of `pairs`, has
    translations of, by their number of pairs; pairs within one language are none. Text may be in
    any language: the model is taught to write in these alone (ERNIE-M, appendix A: text of 96
    languages, pairs of 14 with English).

    Raises UserError where there are none.
    """
    counts: dict[str, float] = {}
    for languages, sentences in _translations(text, pairs):
        # Both languages count: a pair teaches to translate from either side into the other.
        for language in languages:
            counts[language] = counts.get(language, 0) + sentences
    # Nothing would teach the model to write in any other language than the text's own.
    if not any(counts.values()):
        raise UserError(
            "btmlm: no parallel data, so nothing teaches the model to translate; give pairs"
            " (PARALLEL)"
        )
    return {
        text.corpus.languages.index(language): share
        for language, share in sampling.shares(counts).items()
    }


def _translations(
    text: TextSource, pairs: TextSource | None
) -> Iterator[tuple[tuple[str, ...], int]]:
    """(the languages, the number of pairs) of each parallel text."""
    if pairs is not None and pairs.mixture:
        for of_task in pairs.texts():
            if len({*of_task.languages}) > 1:
                yield of_task.languages, of_task.sentences[0]
        return
    corpus = text.corpus
    found = []
    if corpus.parallel:
        found = [one for one in find_pairs(corpus.parallel) if one.translates]
    firsts = tokenise([pair.first for pair in found], corpus.vocabulary)
    for pair, first in zip(found, firsts, strict=True):
        yield pair.languages, sum(first.sentences)


OBJECTIVES = {
    "camlm": of_text(CAMLM, CamlmFeatures, chunk=0),
    "btmlm": of_text(
        BTMLM,
        BtmlmFeatures,
        change=_languages,
        complete=_with_targets,
        hidden=("targets",),
        chunk=0,
    ),
}
