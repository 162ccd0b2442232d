"""The token table that a run begins with: vectors of pieces by latent semantic indexing."""

import numpy as np

from xlingjax.config.corpus import Corpus
from xlingjax.errors import UserError
from xlingjax.training.first_state import TokenVectors


def lsi_tokens(corpus: Corpus, run: bool = True) -> TokenVectors | None:
    """Of the corpus's pairs, whose files are read when the training starts; None: run=False."""
    if not run:
        return None
    if not corpus.parallel:
        raise UserError(
            "LSI_TOKENS=True reads the files of PARALLEL, which is not set; set LSI_TOKENS=False",
        )

    def make(width: int) -> tuple[np.ndarray, str]:
        # Here, since scikit-learn takes long to import.
        from xlingjax.data.vocabulary.lsi import piece_vectors

        vectors, pairs = piece_vectors(
            corpus.vocabulary,
            corpus.parallel,
            width,
        )
        return vectors, f"token table by LSI of {pairs:,} pairs"

    return make


BINDABLE = {"lsi_tokens": lsi_tokens}
