"""Batches from text files, with the settings of batches as keywords."""

from xlingjax.data.batches.loader import BatchSettings, file_batches
from xlingjax.data.vocabulary.sentencepiece import Vocabulary

FILES = ("mono", "parallel", "negatives", "holdout")


def file_source(features, vocabulary, batch, length, **options):
    """`file_batches`; vocabulary: it or its path, options: files and fields of `BatchSettings`."""
    if not isinstance(vocabulary, Vocabulary):
        vocabulary = Vocabulary.load(vocabulary)
    files = {name: options.pop(name) for name in FILES if name in options}
    return file_batches(features, vocabulary, batch, length, BatchSettings(**options), **files)
