"""A corpus into the token cache, before any run reads it."""

from __future__ import annotations

from collections.abc import Sequence

from xlingjax.data.beam import NO_RUNNER, pipeline_options
from xlingjax.data.store.entries import cache_root
from xlingjax.data.store.tokenise import SHARDS, TokenFile, tokenise
from xlingjax.data.text.sources import find_pairs, find_text
from xlingjax.data.text.texts import Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError


def fill_cache(
    mono: Sequence[str],
    parallel: Sequence[str],
    vocabulary_path: str,
    processes: int | None = None,
    runner: str = NO_RUNNER,
    workers: int = 1,
    beam: Sequence[str] = (),
) -> list[TokenFile]:
    """Tokenises all files of the patterns that are not in the cache.

    processes: of this machine (None: one a core), or Beam's `runner`, `workers` and further
    options. Raises UserError: no pattern, a file that cannot be read, no room, Beam is missing.
    """
    if not (mono or parallel):
        raise UserError("nothing to tokenise: give --mono or --parallel")
    # Before the files are read, which may take long.
    options = None
    if runner != NO_RUNNER:
        options = pipeline_options(runner, workers, beam)
    vocabulary = Vocabulary.load(vocabulary_path)
    texts: list[Text] = []
    if mono:
        texts += find_text(mono)
    if parallel:
        for pair in find_pairs(parallel):
            texts += pair.sides
    if options is not None:
        from xlingjax.data.store.tokenise_beam import tokenise_in_beam

        tokenise_in_beam(texts, vocabulary, options)
    files = tokenise(texts, vocabulary, processes)
    tokens = sum(sum(file.tokens) for file in files)
    print(f"{len(files)} files: {tokens:,} tokens in {cache_root() / SHARDS}")
    return files
