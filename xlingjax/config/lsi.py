"""The token table that a run begins with: vectors of pieces by latent semantic indexing."""

from collections.abc import Sequence

import numpy as np

from xlingjax.config.corpus import Corpus
from xlingjax.data.store.tokenise import BlockText
from xlingjax.errors import UserError
from xlingjax.training.initialisation import TokenVectors


def lsi_tokens(corpus: Corpus, run: bool = True) -> TokenVectors | None:
    """Of the pairs that the objectives read, when the training starts; None: run=False."""
    if not run:
        return None

    def make(texts: Sequence[BlockText], width: int) -> tuple[np.ndarray, str]:
        # Here, since scikit-learn takes long to import.
        from xlingjax.data.lsi import piece_vectors

        vectors, pairs = piece_vectors(corpus.vocabulary, texts, width)
        if not pairs:
            raise UserError(
                "LSI_TOKENS=True begins with vectors of pairs of translations, and no objective"
                " reads any as text; set LSI_TOKENS=False"
            )
        return vectors, f"token table by LSI of {pairs:,} pairs"

    return make


BINDABLE = {"lsi_tokens": lsi_tokens}
