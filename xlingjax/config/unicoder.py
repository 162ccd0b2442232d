"""Unicoder (Huang et al. 2019) on the text of a run: word recovery, and masked LM on documents of
two languages."""

from xlingjax.config.corpus import Corpus
from xlingjax.config.text import TextSource
from xlingjax.data.store.tokenise import TokenFile, tokenise
from xlingjax.data.text.sources import find_pairs
from xlingjax.errors import UserError
from xlingjax.objectives.unicoder import CLMLM, CLPC, CLWR
from xlingjax.preprocessors.unicoder import ClMlmFeatures, ClpcFeatures, ClwrFeatures
from xlingjax.preprocessors.xlm import Masking
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight


def clwr(
    text: TextSource,
    batch: int = 16,
    length: int = 256,
    max_pieces: int = 100,
    packing: bool = True,
    raw: bool = False,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """Word recovery (Unicoder §3.2) on the corpus's pairs. raw: see `CLWR`."""
    features = ClwrFeatures(max_pieces, packing)
    source = text.batches(features, batch, length)
    return ObjectiveRun(CLWR(raw=raw, chunk=chunk), source, weight)


def clpc(
    text: TextSource,
    batch: int = 16,
    length: int = 256,
    negatives: int = 1,
    max_pieces: int = 100,
    reset_positions: bool = True,
    negatives_mixture: str | None = None,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """Cross-lingual paraphrase classification (Unicoder §3.2): on `negatives_mixture`, of three
    sides, or the corpus's tables of negatives where it has some, else on its pairs and `negatives`
    wrong partners of each at random.
    """
    # Mined negatives are the hard ones, so they replace random partners altogether.
    mined = bool(negatives_mixture or text.corpus.negatives)
    if mined:
        text = text.of_mixture(negatives_mixture)
    features = ClpcFeatures(mined, negatives, max_pieces, reset_positions)
    return ObjectiveRun(CLPC(), text.batches(features, batch, length), weight)


def cl_mlm(
    text: TextSource,
    batch: int = 16,
    length: int = 256,
    masking: Masking = Masking(),
    parity: str = "coin",
    packing: bool = True,
    truncate: bool = True,
    alone: bool = False,
    chunk: int = 0,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """Cross-lingual masked LM (Unicoder §3.2) on the corpus's aligned documents: pairs whose files
    have blank lines between documents, or a mixture's whose sides both are empty there. parity,
    truncate, alone: see `documents.switched_rows`."""

    # Reads all of the files, so it waits until training opens them.
    def complete(features: ClMlmFeatures) -> ClMlmFeatures:
        if text.mixture:
            check_mixture(text)
        else:
            check_documents(text.corpus)
        return features

    features = ClMlmFeatures(masking, parity, packing, truncate, alone)
    source = text.batches(features, batch, length, complete=complete)
    return ObjectiveRun(CLMLM(packed=packing, chunk=chunk), source, weight)


def check_documents(corpus: Corpus) -> None:
    """Raises UserError for aligned files without a line that is blank on both sides: they are one
    document, or sentences in no order."""
    if not corpus.parallel:
        return
    for pair in find_pairs(corpus.parallel):
        first, second = tokenise([pair.first, pair.second], corpus.vocabulary)
        if first.lines != second.lines:
            raise pair.mismatch(sum(first.lines), sum(second.lines))
        if not _parts_documents(first, second):
            raise UserError(
                f"cl_mlm: {pair.first.path} has no line that is blank on both sides, so it holds no"
                " aligned documents; name files of pairs with a blank line after each document in"
                " DOCUMENTS"
            )


def _parts_documents(first: TokenFile, second: TokenFile) -> bool:
    """Whether a line is blank on both sides."""
    for one, other in zip(first, second, strict=True):
        # A blank line separates documents, and it has no tokens.
        if ((one.lengths == 0) & (other.lengths == 0)).any():
            return True
    return False


def check_mixture(text: TextSource) -> None:
    """Raises UserError for text of a mixture without a line that is empty on both sides."""
    for of_task in text.texts():
        parted = False
        for records in of_task.each():
            first, second = records.sides
            blank = (first.lengths == 0) & (second.lengths == 0)
            parted = parted or bool(blank.any())
        if not parted:
            raise UserError(
                f"cl_mlm: {of_task.name} of '{text.mixture}' has no example that is empty on both"
                " sides, so it holds no aligned documents; let the task give one after each"
                " document"
            )


OBJECTIVES = {"clwr": clwr, "clpc": clpc, "cl_mlm": cl_mlm}
