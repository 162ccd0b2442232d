"""A corpus into the token cache, before any run reads it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from xlingjax.data.beam import NO_RUNNER, pipeline_options
from xlingjax.data.store.entries import cache_root
from xlingjax.data.store.tokenise import SHARDS, TokenFile, id_dtype, tokenise
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
    say: Callable[[str], None] = print,
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
    begun = time.perf_counter()
    if options is not None:
        from xlingjax.data.store.tokenise_beam import tokenise_in_beam

        tokenise_in_beam(texts, vocabulary, options)
    files = tokenise(texts, vocabulary, processes)
    seconds = time.perf_counter() - begun
    tokens = sum(sum(file.tokens) for file in files)
    shards = sum(len(file.lines) for file in files)
    megabytes = tokens * id_dtype(vocabulary).itemsize / 1e6
    say(
        f"{len(files)} files: {tokens:,} tokens in {shards} shards, {megabytes:.1f} MB in"
        f" {cache_root() / SHARDS}, {seconds:.1f} s"
    )
    return files
