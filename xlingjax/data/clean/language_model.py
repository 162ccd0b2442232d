"""Perplexity of texts, and the parts of a corpus by it: CCNet's head, middle and tail (Wenzek et
al. 2020, §3.3)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from xlingjax.data.clean.extras import package
from xlingjax.data.clean.settings import KEEP
from xlingjax.errors import UserError


class Scorer(Protocol):
    def losses(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Negative log-likelihoods in nats, and counts of predictions, of each text: [T], [T]."""


class KenLm:
    """A file of KenLM, `.arpa` or `.bin`; beside "de.arpa.bin" may stand "de.sp.model", the
    SentencePiece model whose pieces are its words, as CCNet's are.

    Raises UserError: no such file, not a model, a package is missing.
    """

    def __init__(self, path: str):
        kenlm = package("kenlm", f"--language_model {path}", "xlingjax[kenlm]")
        try:
            self._model = kenlm.Model(path)
        except OSError as error:
            raise UserError(f"--language_model {path}: {error}") from None
        self._pieces = None
        pieces = Path(_stem(path) + ".sp.model")
        if pieces.is_file():
            from sentencepiece import SentencePieceProcessor

            self._pieces = SentencePieceProcessor(model_file=str(pieces))

    def losses(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        losses = np.zeros(len(texts))
        counts = np.zeros(len(texts), np.int64)
        for row, text in enumerate(texts):
            words = text.split()
            if self._pieces is not None:
                words = self._pieces.encode(text, out_type=str)
            # With the end of the sentence, which is predicted too.
            counts[row] = len(words) + 1
            losses[row] = -self._model.score(" ".join(words)) * np.log(10)
        return losses, counts


def _stem(path: str) -> str:
    return path.removesuffix(".bin").removesuffix(".arpa")


def is_kenlm(path: str) -> bool:
    return path.endswith((".arpa", ".bin", ".arpa.gz"))


@functools.cache
def kenlm_scorer(path: str) -> Scorer:
    """One per process."""
    return KenLm(path)


def limits(
    perplexities: np.ndarray, keep: Sequence[str], percentiles: tuple[float, float]
) -> list[tuple[float, float]]:
    """The half-open ranges of perplexity that stay: of head (the lowest), middle and tail those
    that are kept."""
    low, high = np.percentile(
        perplexities,
        percentiles,
        # One of the values, and not one between two, so that it is the same on every machine.
        method="inverted_cdf",
    )
    edges = [0.0, float(low), float(high), float("inf")]
    ranges = []
    for number, name in enumerate(KEEP):
        if name in keep:
            ranges.append((edges[number], edges[number + 1]))
    return ranges
