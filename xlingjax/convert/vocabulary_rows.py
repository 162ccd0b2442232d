"""The rows of a model's parameters for another vocabulary.

A row is found by what it means, never by its number. The parameters that have a row for each piece
are the token tables and the biases of the vocabulary heads, the encoder's and a decoder's own;
behind the pieces stand the tokens of languages, and rows of padding. The table of languages gets a
row for a new language.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlingjax.data.vocabulary import surgery
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.model.config import ModelConfig
from xlingjax.model.params import flattened, nested

NOISE = 0.1  # of the ordinary rows' standard deviation: keeps rows that begin at their mean apart


@dataclasses.dataclass(frozen=True)
class Rows:
    """Where each row of a new vocabulary comes from."""

    source: np.ndarray  # int32 [V]: the old row that it is, -1: a new one
    parts: Mapping[int, list[int]]  # {new row: the old rows whose mean it is}; else it is drawn
    drawn: str  # "mean" or "random": what it is drawn about
    summary: str  # how many of each, for people


def rows_between(old: Vocabulary, new: Vocabulary, initialise: str = "mean") -> Rows:
    """The rows of `new`: those whose meaning `old` has too, and how the others begin.

    "mean": the mean of the old rows of the pieces that `old` cuts the new piece into (Gee et al.
    2022, "Fast Vocabulary Transfer"); where one of them is unknown, N(mean, (NOISE std)^2) of all
    ordinary rows, number by number of their dimensions (Hewitt 2021, "Initializing New Word
    Embeddings for Pretrained Language Models", with little noise). "random": as in a model that was
    never trained.
    """
    source = surgery.source_rows(old, new)
    fresh = np.flatnonzero(source < 0)
    parts = {}
    about = "as in an untrained model"
    if initialise == "mean":
        about = "about the mean of all rows"
        cuts = surgery.spellings(old, new.pieces(fresh))
        for row, ids in zip(fresh.tolist(), cuts, strict=True):
            if row not in new.special_ids and ids:
                parts[row] = ids
    summary = (
        f"{(source >= 0).sum():,} rows copied, {len(parts):,} the mean of the old pieces that spell"
        f" them, {fresh.size - len(parts):,} drawn {about}"
    )
    return Rows(source, parts, initialise, summary)


def moved(
    params: Any,
    config: ModelConfig,
    new: ModelConfig,
    rows: Rows,
    ordinary: np.ndarray,
    languages: Any,
    seed: int = 0,
) -> dict[str, Any]:
    """The parameters with the rows of another vocabulary, NumPy arrays; what has none is as it was.

    config, new: the models before and after. ordinary: old rows of no special piece. languages: of
    each language after, its number before, -1: a new one.
    """

    def table_of(name: str, old: np.ndarray) -> np.ndarray:
        # By name, so that the draws of one table do not depend on which others there are.
        rng = np.random.default_rng((seed, *name.encode()))
        table = np.zeros((new.padded_vocab_size, *old.shape[1:]), np.float32)
        known = np.flatnonzero(rows.source >= 0)
        table[known] = old[rows.source[known]]
        for row, ids in rows.parts.items():
            table[row] = old[ids].mean(axis=0, dtype=np.float64)
        drawn = np.setdiff1d(np.flatnonzero(rows.source < 0), [*rows.parts])
        if drawn.size and rows.drawn == "random":
            std = new.init_std or new.dim**-0.5
            if name.endswith("bias"):
                std = 0.0
            table[drawn] = rng.normal(0, std, table[drawn].shape)
        elif drawn.size:
            # Special pieces are unlike all others and would pull the mean.
            mean = old[ordinary].mean(axis=0, dtype=np.float64)
            std = old[ordinary].std(axis=0, dtype=np.float64)
            table[drawn] = rng.normal(mean, NOISE * std, table[drawn].shape)
        if config.language_tokens:
            old_pieces = config.vocab_size - config.language_tokens
            old_languages = old[old_pieces : config.vocab_size]
            new_pieces = len(rows.source)
            table[new_pieces : new.vocab_size] = _of_languages(old_languages, languages)
        return table

    moved_leaves = {}
    for name, leaf in flattened(params).items():
        if name.endswith(("tokens/embedding", "head/bias")):
            leaf = table_of(name, np.asarray(leaf))
        elif name.endswith("languages/embedding"):
            leaf = _of_languages(np.asarray(leaf), languages)
        moved_leaves[name] = leaf
    return nested(moved_leaves)


def _of_languages(old: np.ndarray, languages: Sequence[int]) -> np.ndarray:
    # The mean stands last, where the -1 of a new language finds it.
    with_mean = np.concatenate([old, old.mean(axis=0, keepdims=True)])
    return with_mean[list(languages)]
