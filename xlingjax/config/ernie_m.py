"""ERNIE-M (Ouyang et al. 2021) on the text of a run: CAMLM on pairs, BTMLM on monolingual text."""

import dataclasses

from xlingjax.config.corpus import Corpus
from xlingjax.config.text import TextSource
from xlingjax.data.sampling import Sampling
from xlingjax.errors import UserError
from xlingjax.objectives.ernie_m import BTMLM, CAMLM
from xlingjax.preprocessors.ernie_m import (
    ALL_MASK,
    BtmlmFeatures,
    CamlmFeatures,
)
from xlingjax.preprocessors.xlm import Masking
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight


def camlm(
    text: TextSource,
    batch: int = 16,
    length: int = 256,
    masking: Masking = ALL_MASK,
    layout: str = "in_place",
    own_masks: str = "all",
    max_pieces: int = 100,
    reset_positions: bool = False,
    packing: bool = True,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """CAMLM (ERNIE-M §3.1) on the corpus's pairs. layout, reset_positions: see `CamlmFeatures`;
    own_masks: `CAMLM`."""
    objective = CAMLM(own_masks=own_masks, chunk=chunk)
    features = CamlmFeatures(
        masking,
        layout,
        max_pieces,
        reset_positions,
        packing,
    )
    return ObjectiveRun(
        objective,
        text.batches(features, batch, length),
        weight,
    )


def btmlm(
    text: TextSource,
    batch: int = 16,
    length: int = 256,
    masking: Masking = Masking(),
    proportion: float = 0.15,
    reset_positions: bool = False,
    decode: str = "argmax",
    special: bool = False,
    own_masks: str = "self",
    target_languages: str = "share",
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """BTMLM (ERNIE-M §3.1) on the corpus's monolingual text. target_languages: pseudo tokens are in
    a language that the corpus has pairs of, drawn by their `share` as the text is sampled, or
    `uniform`. decode, special, own_masks: see `BTMLM`.
    """
    if target_languages not in ("share", "uniform"):
        raise UserError(
            f"btmlm: PSEUDO_LANGUAGES={target_languages!r} is neither share nor uniform",
        )
    objective = BTMLM(
        decode=decode,
        special=special,
        own_masks=own_masks,
        chunk=chunk,
    )
    features = BtmlmFeatures(masking, proportion, reset_positions)

    # Shares count the pairs of files, which are not there when a recipe is only looked at.
    def complete(features: BtmlmFeatures) -> BtmlmFeatures:
        sampling = text.sampling
        if target_languages == "uniform":
            # Shares to the power of 0 are all alike.
            sampling = Sampling(alpha=0.0)
        shares = pair_shares(text.corpus, sampling)
        return dataclasses.replace(features, targets=tuple(shares.items()))

    source = text.batches(features, batch, length, complete=complete)
    return ObjectiveRun(objective, source, weight)


def pair_shares(corpus: Corpus, sampling: Sampling) -> dict[int, float]:
    """{language id: share} of the languages that the corpus has translations of, by their number of
    pairs; pairs within one language are none.

    Raises UserError where a language of monolingual text has none.
    """
    from xlingjax.data.sources import find_pairs, find_text
    from xlingjax.data.tokenise import tokenise

    counts: dict[str, float] = {}
    pairs = []
    if corpus.parallel:
        pairs = find_pairs(corpus.parallel)
    pairs = [pair for pair in pairs if pair.translates]
    firsts = tokenise([pair.first for pair in pairs], corpus.vocabulary)
    for pair, first in zip(pairs, firsts, strict=True):
        # Both languages count: a pair teaches to translate from either side into the other.
        for language in pair.languages:
            counts[language] = counts.get(language, 0) + sum(first.sentences)
    # The model would write pseudo tokens of a language into which nothing taught it to translate.
    if lacking := sorted(
        {text.language for text in find_text(corpus.mono)} - set(counts),
    ):
        raise UserError(
            f"btmlm: no parallel data for {', '.join(lacking)}, so nothing teaches the model to"
            " translate from there; add pairs to PARALLEL, or leave the language's text out of"
            " MONO",
        )
    return {
        corpus.languages.index(language): share
        for language, share in sampling.shares(counts).items()
    }


OBJECTIVES = {"camlm": camlm, "btmlm": btmlm}
