"""Files of text, and features in one language, as SeqIO sees them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import seqio
import tensorflow as tf

from xlingjax.data.holdout import held_out_of
from xlingjax.data.store.tokenise import BlockText, text_blocks
from xlingjax.data.text.texts import Pair, Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

SIDES = ("first", "second", "third")  # features of aligned text


@dataclasses.dataclass(frozen=True)
class LanguageFeature(seqio.Feature):
    """A `seqio.Feature` of text in one known language; `mixture_source` reads the language here.
    Raises UserError where none is named."""

    # With a default, since the fields of `seqio.Feature` before it have one.
    language: str = ""

    def __post_init__(self):
        if not self.language:
            raise UserError(
                'LanguageFeature: name its language, like language="de"; a feature whose language'
                " the task's name tells is a seqio.Feature"
            )


AT_ONCE = 1024  # lines that go from Python into TensorFlow in one step


class TextFiles(seqio.DataSource):
    """Plain files as a SeqIO data source: {"text"} or {"first", "second"} per line.

    `splits` maps a split to `Text`s or `Pair`s of one language or pair; with `holdout` above 0 the
    split "validation" is that share of the lines of "train". `mixture_source` reads the same lines
    from the token cache instead, where a task does no more than tokenise them.
    """

    def __init__(self, splits: Mapping[str, Sequence[Text] | Sequence[Pair]], holdout: float = 0.0):
        self.files = {split: tuple(files) for split, files in splits.items()}
        self.holdout = holdout
        self._counts: dict[str, int] = {}
        names = tuple(splits)
        # Only then: SeqIO would offer an empty split otherwise.
        if holdout:
            names = (*names, "validation")
        super().__init__(splits=names)

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return True

    def list_shards(self, split: str) -> Sequence[str]:
        files, _ = self._selection(split)
        return [str(file.sides[0].path) for file in files]

    def keys(self, split: str) -> list[tuple[str, ...]]:
        """What stands for the lines of a split: equal keys, equal lines."""
        files, held = self._selection(split)
        mark = (str(self.holdout), str(held))
        return [(*mark, *(side.key for side in file.sides)) for file in files]

    def _selection(self, split: str) -> tuple[tuple, bool]:
        """(the files of a split, whether it is their held-out lines)."""
        if not self.holdout:
            return self.files[split], False
        return self.files["train"], split == "validation"

    def blocks(self, split: str, vocabulary: Vocabulary) -> BlockText:
        """The tokenised lines of a split. Raises UserError: unreadable, empty, or unequal sides."""
        files, held = self._selection(split)
        return text_blocks(files, vocabulary, self.holdout, held)

    def num_input_examples(self, split: str) -> int:
        # SeqIO asks several times, and each time all files would be read.
        if split not in self._counts:
            self._counts[split] = sum(1 for _ in self._lines(split))
        return self._counts[split]

    def _lines(self, split: str) -> Iterator[dict[str, str]]:
        files, held = self._selection(split)
        # Read once to count: which lines are held out depends on how many there are.
        counts = [sum(1 for _ in file.lines()) for file in files]
        masks = held_out_of(files, counts, self.holdout)
        for file, mask in zip(files, masks, strict=True):
            for keep, line in zip(mask == held, file.lines(), strict=True):
                if not keep:
                    continue
                if isinstance(line, str):
                    yield {"text": line}
                else:
                    yield dict(zip(SIDES, line, strict=False))

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused,
    ) -> tf.data.Dataset:
        """Lines in their order, which shuffling leaves as it is: what is made of them, rows, is
        shuffled behind. A shard is a run of lines, since neighbours make a stream."""
        first = self.files["train"][0]
        names = SIDES[: len(first.sides)] if isinstance(first, Pair) else ("text",)
        signature = {name: tf.TensorSpec((None,), tf.string) for name in names}

        def lines() -> Iterator[dict[str, str]]:
            # Many at a time: each step from Python into TensorFlow costs more than a line.
            selected = iter(selection())
            while chunk := list(itertools.islice(selected, AT_ONCE)):
                yield {name: [line[name] for line in chunk] for name in names}

        def selection() -> Iterator[dict[str, str]]:
            if shard_info is None or shard_info.num_shards == 1:
                return self._lines(split)
            examples = self.num_input_examples(split)
            begin = examples * shard_info.index // shard_info.num_shards
            end = examples * (shard_info.index + 1) // shard_info.num_shards
            return itertools.islice(self._lines(split), begin, end)

        return tf.data.Dataset.from_generator(lines, output_signature=signature).unbatch()
