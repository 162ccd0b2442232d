"""Tokenising in Apache Beam: each shard of a file of lines is a piece of work of its own.

Every worker must see the files and the folder of the token cache (`$XLINGJAX_CACHE`) under the same
names. Shards are those that one process writes, byte for byte.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

from xlingjax.data.store.entries import cache_root
from xlingjax.data.store.tokenise import Work, do, vocabulary_folder, work_of
from xlingjax.data.text.texts import Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.runtime.quiet import quiet_stderr


def tokenise_in_beam(texts: Sequence[Text], vocabulary: Vocabulary, options: Any) -> None:
    """Writes the shards of texts that are not there; options: Beam's.

    What is wrong with a text is left for `tokenise` to say, which finds its shards missing.
    """
    work = work_of(texts, vocabulary)
    if not work:
        return
    # Its import warns of clients that nothing here needs.
    with quiet_stderr():
        import apache_beam as beam

    written = functools.partial(
        _write, files=vocabulary.files(), cache=str(cache_root().absolute())
    )
    with quiet_stderr(), beam.Pipeline(options=options) as pipeline:
        _ = (
            pipeline
            | beam.Create(work)
            # A piece to a worker, and not all to one that makes the list.
            | beam.Reshuffle()
            | beam.Map(written)
        )


def _write(work: Work, files: dict[str, bytes], cache: str) -> None:
    # Read by all that writes to the cache, on whichever machine this is.
    os.environ["XLINGJAX_CACHE"] = cache
    try:
        do(work, _vocabulary(tuple(sorted(files.items()))))
    except UserError:
        # A retry would end alike; the command says it when the pipeline is through.
        return


@functools.lru_cache(maxsize=1)
def _vocabulary(files: tuple[tuple[str, bytes], ...]) -> Vocabulary:
    with vocabulary_folder(dict(files)) as folder:
        return Vocabulary.load(folder)
