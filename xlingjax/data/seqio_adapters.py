"""Our vocabulary and our token records as SeqIO sees them."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf

from xlingjax.data.holdout import held_out_of
from xlingjax.data.texts import Pair, Text
from xlingjax.data.token_cache import (
    Records,
    end_sentences,
    joined,
    load_or_write,
    pair_records,
    text_records,
)
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

SIDES = ("first", "second", "third")
"""Features of aligned text."""


@dataclasses.dataclass(frozen=True)
class LanguageFeature(seqio.Feature):
    """A `seqio.Feature` of text in one known language; `mixture_source` reads the language here."""

    language: str = ""


class TextFiles(seqio.DataSource):
    """Plain files as a SeqIO data source: {"text"} per line, or {"first", "second"} per aligned
    line.

    `splits` maps a split to `Text`s or `Pair`s of one language or pair; with `holdout` above 0 the
    split "validation" is that share of the lines of "train". `mixture_source` reads the same lines
    from the token cache instead.
    """

    def __init__(
        self,
        splits: Mapping[str, Sequence[Text] | Sequence[Pair]],
        holdout: float = 0.0,
    ):
        self.files = {split: tuple(files) for split, files in splits.items()}
        self.holdout = holdout
        names = tuple(splits)
        # Only then: SeqIO would offer an empty split otherwise.
        if holdout:
            names = (*names, "validation")
        super().__init__(splits=names)

    @property
    def supports_arbitrary_sharding(self) -> bool:
        # SeqIO asks before it shards. A generator over lines has one shard and cannot be cut.
        return False

    def list_shards(self, split: str) -> Sequence[str]:
        return [split]

    def _selection(self, split: str) -> tuple[tuple, bool]:
        """(the files of a split, whether it is their held-out lines)."""
        if not self.holdout:
            return self.files[split], False
        return self.files["train"], split == "validation"

    def records(self, split: str, vocabulary: Vocabulary) -> Records:
        """The tokenised lines of a split. Raises UserError: unreadable or empty text, sides of
        unequal length."""
        files, held = self._selection(split)
        read = text_records
        if isinstance(files[0], Pair):
            read = pair_records
        return read(files, vocabulary, self.holdout, held)

    def num_input_examples(self, split: str) -> int:
        return sum(1 for _ in self._lines(split))

    def _lines(self, split: str) -> Iterator[dict[str, str]]:
        files, held = self._selection(split)
        # Read once to count: which lines are held out depends on how many there are.
        counts = []
        for file in files:
            counts.append(sum(1 for _ in file.lines()))
        masks = held_out_of(files, counts, self.holdout)
        for file, mask in zip(files, masks, strict=True):
            for keep, line in zip(mask == held, file.lines(), strict=True):
                if not keep:
                    continue
                if isinstance(line, str):
                    yield {"text": line}
                else:
                    # Not strict, since pairs have two sides of three.
                    yield dict(zip(SIDES, line, strict=False))

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused,
    ) -> tf.data.Dataset:
        first = self.files["train"][0]
        names = ("text",)
        if isinstance(first, Pair):
            names = SIDES[: len(first.sides)]
        signature = {name: tf.TensorSpec((), tf.string) for name in names}
        return tf.data.Dataset.from_generator(
            lambda: self._lines(split),
            output_signature=signature,
        )


def task_records(
    task: seqio.Task,
    split: str,
    vocabulary: Vocabulary,
    use_cached: bool = False,
) -> Records:
    """The tokens of any SeqIO task whose output features are one or two `LanguageFeature`s.

    Plain files come from the token cache; any other source that reads files (TFDS, TFRecords, a
    SeqIO cache with `use_cached`) is read once through the task's own preprocessors and kept there
    too, under the task's name, files and preprocessors. A source without files, a function, is read
    at every start: nothing would tell that its data changed. Raises UserError when `use_cached`
    finds no cache.
    """
    if isinstance(task.source, TextFiles) and not use_cached:
        return task.source.records(split, vocabulary)
    # Their order is that of the sides.
    names = list(task.output_features)
    if use_cached and not task.cache_dir:
        raise UserError(
            f"task {task.name} has no SeqIO cache; write it with `seqio_cache_tasks"
            f" --tasks={task.name} --output_cache_dir=DIR` and name DIR with"
            " `seqio.add_global_cache_dirs`, or set use_cached=False",
        )
    gfile = tf.io.gfile
    # A SeqIO cache stands in for the source, so its files are what may change.
    if use_cached:
        shards = gfile.glob(f"{task.cache_dir}/*{split}*")
    else:
        shards = task.source.list_shards(split)

    def sides() -> list[list[tuple[np.ndarray, np.ndarray]]]:
        chunks = [[] for _ in names]
        # In the order of the files and once, so that the record is the same at every start.
        data = task.get_dataset(
            None,
            split,
            use_cached=use_cached,
            shuffle=False,
            num_epochs=1,
            try_in_mem_cache=False,
        )
        data = data.map(
            # Preprocessors may leave other features ("inputs_pretokenized"), which need not batch.
            lambda example: {name: example[name] for name in names},
        ).ragged_batch(1024)
        for batch in data:
            for name, chunks_of_side in zip(names, chunks, strict=True):
                ids = batch[name].flat_values.numpy().astype(np.int32)
                lengths = batch[name].row_lengths().numpy().astype(np.int32)
                chunks_of_side.append(
                    end_sentences(ids, lengths, vocabulary.eos_id),
                )
        return chunks

    languages = tuple(
        feature.language for feature in task.output_features.values()
    )
    files = _stamps(shards)
    if files is None:
        # Not cached, since nothing would tell that the function gives other data now.
        tokens = [joined(chunks, vocabulary) for chunks in sides()]
        return Records(languages, tuple(tokens))
    # Not by content, as plain files are: TFRecords would have to be read whole for a hash.
    key = f"seqio:{task.name}:{split}:{use_cached}:{files}:{task.source}:{task.preprocessors}"
    # Addresses of functions are new in every process.
    key = re.sub(" at 0x[0-9a-f]+", "", key)
    # All sides come out of one pass, made when the first that is not cached asks for it.
    sides_once = functools.lru_cache(sides)
    tokens = []
    for i, name in enumerate(names):
        record = load_or_write(
            f"{key}:{name}",
            vocabulary,
            lambda i=i: sides_once()[i],
            f"task {task.name}",
        )
        tokens.append(record)
    return Records(languages, tuple(tokens))


def _stamps(shards: Sequence[str]) -> list[tuple[str, int, int]] | None:
    """(name, size, time of change) of each shard; None where one is no file, as of a source that is
    a function."""
    gfile = tf.io.gfile
    stamps = []
    for name in sorted(shards):
        # The only shard of a function is the name of the split.
        if not gfile.exists(name) or gfile.isdir(name):
            return None
        stat = gfile.stat(name)
        stamps.append((name, stat.length, stat.mtime_nsec))
    return stamps
