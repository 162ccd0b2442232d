"""Unicoder (Huang et al. 2019) on a run's text: word recovery, and masked LM on mixed documents."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from xlingjax.config.corpus import Corpus
from xlingjax.config.text import TextSource, of_text
from xlingjax.data.store.tokenise import tokenise
from xlingjax.data.text.sources import find_pairs
from xlingjax.errors import UserError
from xlingjax.objectives.unicoder import CLMLM, CLPC, CLWR
from xlingjax.preprocessors.unicoder import ClMlmFeatures, ClpcFeatures, ClwrFeatures


def _negatives(text: TextSource, negatives_mixture: str | None = None) -> dict[str, Any]:
    """Wrong partners are those of `negatives_mixture`, of three sides, or of the corpus's tables of
    negatives where it has some; else drawn from its pairs at random."""
    # Mined negatives are the hard ones, so they replace random partners altogether.
    mined = bool(negatives_mixture or text.corpus.negatives)
    if mined:
        text = dataclasses.replace(text, mixture=negatives_mixture)
    return {"mined": mined, "text": text}


# Reads all of the text, so it waits until training opens it.
def _documents(text: TextSource, features: ClMlmFeatures, _: Mapping[str, Any]) -> ClMlmFeatures:
    """Aligned documents: blank lines part them in files, sides both empty in a mixture."""
    if text.mixture:
        check_mixture(text)
    else:
        check_documents(text.corpus)
    return features


def check_documents(corpus: Corpus) -> None:
    """Raises UserError for aligned files without a line that is blank on both sides: they are one
    document, or sentences in no order."""
    for pair in find_pairs(corpus.parallel) if corpus.parallel else ():
        first, second = tokenise([pair.first, pair.second], corpus.vocabulary)
        if first.lines != second.lines:
            raise pair.mismatch(sum(first.lines), sum(second.lines))
        if not any(_both_blank(one, other) for one, other in zip(first, second, strict=True)):
            raise UserError(
                f"cl_mlm: {pair.first.path} has no line that is blank on both sides, so it holds no"
                " aligned documents; name files of pairs with a blank line after each document in"
                " DOCUMENTS"
            )


def check_mixture(text: TextSource) -> None:
    """Raises UserError for text of a mixture without a line that is empty on both sides."""
    for of_task in text.texts():
        # Each to its end, as it is read.
        if not any([_both_blank(*records.sides) for records in of_task.each()]):
            raise UserError(
                f"cl_mlm: {of_task.name} of '{text.mixture}' has no example that is empty on both"
                " sides, so it holds no aligned documents; let the task give one after each"
                " document"
            )


def _both_blank(first: Any, second: Any) -> bool:
    return bool(((first.lengths == 0) & (second.lengths == 0)).any())


OBJECTIVES = {
    "clwr": of_text(CLWR, ClwrFeatures, chunk=0),
    "clpc": of_text(CLPC, ClpcFeatures, change=_negatives, hidden=("mined",)),
    "cl_mlm": of_text(CLMLM, ClMlmFeatures, complete=_documents, chunk=0),
}
