"""Rows of an objective as SeqIO gives them: a preprocessor that makes them of the lines of a task,
and the converter that makes batches of them.

Rows are planned, looked up and masked by the functions that feed the trainer (`Preprocessor`,
`RowReader`); only what draws the numbers is SeqIO's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from xlingjax.data.draws import Draws
from xlingjax.data.features import FIELDS, TOKEN_FIELDS
from xlingjax.data.preprocessor import Preprocessor
from xlingjax.data.row_reader import RowReader
from xlingjax.data.rows import join
from xlingjax.data.task_records import lines_of, open_task
from xlingjax.data.tokens import Records, Tokens, joined
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

READ_AT_ONCE = 256
"""Rows that are looked up in one call."""


class ObjectiveRows:
    """A SeqIO preprocessor, the last of a task's: tokenised lines -> rows of one objective, masked.

    With `sequence_length={"input_ids": L}` each example is a row of L tokens: the preprocessor's
    `fields` without the batch axis. With `{"inputs": L, "targets": T}` each is an example of an
    encoder-decoder, alone, as SeqIO's own `EncDecFeatureConverter` takes it.

    Rows are planned over `lines` lines at a time (all, if there are fewer): what is packed together
    stood that near. Draws are SeqIO's: equal seeds give equal rows and masks. Raises
    UserError where the text fits no row.
    """

    def __init__(
        self,
        preprocessor: Preprocessor,
        vocabulary: Vocabulary,
        task: seqio.Task,
        languages: Sequence[str],
        run_languages: Sequence[str],
        counts: Callable[[], np.ndarray],
        lines: int,
    ):
        """task: the one of text that the rows are made of. languages: of its sides.
        counts: -> the frequencies [V] that subsampling goes by."""
        self._preprocessor = preprocessor
        self._vocabulary = vocabulary
        self._task = task
        self._languages = tuple(languages)
        lacking = sorted({*languages} - {*run_languages})
        if lacking:
            raise UserError(
                f"task {task.name} has text in {', '.join(lacking)}, which languages="
                f"{', '.join(run_languages)} lack: add them"
            )
        self._ids = [list(run_languages).index(code) for code in languages]
        self._counts = counts
        self._lines = lines
        self._lines_of_text: int | None = None

    def __call__(
        self, dataset: tf.data.Dataset, sequence_length: Mapping[str, int] | None
    ) -> tf.data.Dataset:
        asked = sequence_length or {}
        text_to_text = "inputs" in asked
        if not text_to_text and "input_ids" not in asked:
            raise UserError(
                f"{self._preprocessor.name}: rows need a length: give task_feature_lengths"
                ' {"input_ids": 256}'
            )
        if text_to_text and "decoder_targets" not in self._preprocessor.fields:
            raise UserError(
                f"{self._preprocessor.name} is no objective of an encoder-decoder and has no"
                ' `inputs` and `targets`; give task_feature_lengths {"input_ids": 256} and'
                " xlingjax.data.seqio_rows.RowConverter"
            )
        length = asked["inputs" if text_to_text else "input_ids"]
        rows = tf.data.Dataset.from_generator(
            lambda: self._blocks(dataset, length, seeds), output_signature=self._signature(length)
        ).unbatch()
        rows = self._masked(rows, length)
        # Behind the masks, whose seeds are SeqIO's first.
        seeds = seqio.map_over_dataset(lambda _, seed: _one_seed(seed), num_seeds=1)(
            tf.data.Dataset.counter()
        )
        if text_to_text:
            return rows.flat_map(_examples)
        return rows

    def _blocks(
        self, dataset: tf.data.Dataset, length: int, seeds: tf.data.Dataset
    ) -> Iterator[dict[str, np.ndarray]]:
        """The token fields [n, columns] of the rows, some at a time. seeds: of the wrong partners
        of the rows that are planned together; SeqIO repeats a text before it comes here, so each
        epoch has others."""
        sides: list[list[tuple[np.ndarray, np.ndarray]]] | None = None
        read = 0
        passed = 0
        any_rows = False
        most = self._lines_up_to(self._lines)
        seed = seeds.as_numpy_iterator()
        for chunk in lines_of(self._task, dataset, self._vocabulary):
            if sides is None:
                sides = [[] for _ in chunk]
            for chunks, (ids, lengths) in zip(sides, chunk, strict=True):
                chunks.append((ids, lengths))
            read += chunk[0][1].size
            if read >= most:
                for block in self._planned(sides, length, int(next(seed))):
                    any_rows = True
                    yield block
                passed += read
                # Text that is repeated without end would be read for ever. Counted only where the
                # first lines fit no row: it takes a pass.
                if not any_rows and passed >= self._lines_up_to(None):
                    raise self._no_rows(length)
                sides = None
                read = 0
        if sides is not None:
            for block in self._planned(sides, length, int(next(seed))):
                any_rows = True
                yield block
        if not any_rows:
            raise self._no_rows(length)

    def _no_rows(self, length: int) -> UserError:
        name = Records(self._languages, ()).name
        return UserError(
            f"no {name} text of task {self._task.name} fits rows of {length} tokens; raise the"
            " length or the limit of pieces"
        )

    def _lines_up_to(self, most: int | None) -> int:
        """The lines of the text, counted up to `most`. No more are planned together: SeqIO repeats
        a dataset before it comes here, and a small one would be read hundreds of times before its
        first row."""
        if self._lines_of_text is None:
            task = self._task
            cached = bool(task.supports_caching and task.cache_dir)
            # Behind the task's preprocessors, which may drop lines or make several of an example.
            count = _examples_in(open_task(task, "train", cached), most)
            if most is not None and count >= most:
                return most
            self._lines_of_text = count
        return min(self._lines_of_text, most or self._lines_of_text)

    def _planned(
        self, sides: Sequence[Sequence[tuple[np.ndarray, np.ndarray]]], length: int, seed: int
    ) -> Iterator[dict[str, np.ndarray]]:
        tokens: list[Tokens] = []
        for chunks in sides:
            tokens.append(joined(chunks, self._vocabulary))
        records = Records(self._languages, tuple(tokens))
        ids, bases = join(records, self._vocabulary.eos_id)
        plan = self._preprocessor.rows(records, bases, length, self._vocabulary)
        if not plan.count:
            return
        reader = RowReader.of_arrays(
            ids,
            plan,
            self._ids,
            self._preprocessor.columns(length),
            pad_id=self._vocabulary.pad_id,
            bos_id=self._vocabulary.bos_id,
            seed=seed,
        )
        for first in range(0, plan.count, READ_AT_ONCE):
            rows = np.arange(first, min(first + READ_AT_ONCE, plan.count))
            yield reader(rows, np.zeros_like(rows))

    def _signature(self, length: int) -> dict[str, tf.TensorSpec]:
        columns = self._preprocessor.columns(length)
        signature = {}
        for name in TOKEN_FIELDS:
            signature[name] = tf.TensorSpec([None, columns], tf.int32)
        if "labels" in self._preprocessor.fields:
            signature["labels"] = tf.TensorSpec([None], tf.int32)
            signature["example_weights"] = tf.TensorSpec([None], tf.float32)
        return signature

    def _masked(self, rows: tf.data.Dataset, length: int) -> tf.data.Dataset:
        mask = self._preprocessor.map(self._vocabulary, self._counts(), length)
        fields = self._preprocessor.fields

        @tf.autograph.experimental.do_not_convert
        def masked(example: Any, seed: Any) -> dict[str, Any]:
            # The number of the row is its step, so that masks of validation, whose seed is fixed,
            # are those of the row.
            draws = Draws(_one_seed(seed), example["number"], rows=1)
            batch = {name: x[None] for name, x in example["row"].items()}
            made = mask(batch, draws)
            return {name: made[name][0] for name in fields}

        numbered = rows.enumerate().map(lambda number, row: {"number": number, "row": row})
        return seqio.map_over_dataset(masked, num_seeds=1)(numbered)


def _examples_in(data: tf.data.Dataset, most: int | None) -> int:
    """How many a dataset has, counted up to `most`."""
    known = int(data.cardinality())
    if known >= 0:
        return known
    if most is not None:
        data = data.take(most)
    count = 0
    for batch in data.map(lambda _: 1).batch(1024):
        count += len(batch)
    return count


def _one_seed(pair: Any) -> Any:
    """One number of SeqIO's seed, which is two of 32 bits."""
    first, second = tf.unstack(tf.cast(pair, tf.int64))
    return tf.bitwise.left_shift(first, tf.constant(32, tf.int64)) + second


def _examples(row: Mapping[str, Any]) -> tf.data.Dataset:
    """The examples of a row, {"inputs", "targets"} each."""
    examples = tf.reduce_max(row["pack_ids"])
    inputs = _by_pack(row["input_ids"], row["pack_ids"], row["pack_ids"] > 0, examples)
    targets = _by_pack(
        row["decoder_targets"], row["decoder_pack_ids"], row["decoder_weights"] > 0, examples
    )
    return tf.data.Dataset.from_tensor_slices({"inputs": inputs, "targets": targets})


def _by_pack(ids: Any, packs: Any, kept: Any, examples: Any) -> Any:
    """Ragged [examples, tokens]: those of `ids` that are kept, by the example they belong to."""
    return tf.RaggedTensor.from_value_rowids(
        tf.boolean_mask(ids, kept),
        tf.cast(tf.boolean_mask(packs, kept) - 1, tf.int64),
        nrows=tf.cast(examples, tf.int64),
    )


class RowConverter(seqio.FeatureConverter):
    """The fields of one objective's rows, as the trainer's batches have them (batch what it gives).

    For every objective: of an encoder, an encoder-decoder, an n-stream decoder. Rows come packed
    and padded, since what shares a row decides what is masked in it. task_feature_lengths:
    {"input_ids": L}, the same that `seqio.get_dataset` is given.
    """

    def __init__(self, preprocessor: Preprocessor):
        self._preprocessor = preprocessor
        spec = seqio.FeatureConverter.FeatureSpec
        self.TASK_FEATURES = {"input_ids": spec(dtype=tf.int32)}
        self.MODEL_FEATURES = {
            name: spec(dtype=field_dtype(name), rank=field_rank(name))
            for name in preprocessor.fields
        }
        self.PACKING_FEATURE_DTYPES: Mapping[str, Any] = {}
        super().__init__(pack=False)

    def _convert_features(
        self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]
    ) -> tf.data.Dataset:
        shapes = self._preprocessor.shapes(1, task_feature_lengths["input_ids"])

        def convert(row: Mapping[str, Any]) -> dict[str, Any]:
            return {
                name: tf.ensure_shape(row[name], shapes[name][1:])
                for name in self._preprocessor.fields
            }

        return ds.map(convert)

    def get_model_feature_lengths(
        self, task_feature_lengths: Mapping[str, int]
    ) -> Mapping[str, int]:
        shapes = self._preprocessor.shapes(1, task_feature_lengths["input_ids"])
        # SeqIO wants a length of every field, and looks at none of a single number.
        return {name: (*shape[1:], 1)[0] for name, shape in shapes.items()}


def field_dtype(name: str) -> tf.DType:
    return tf.as_dtype(FIELDS[name].dtype)


def field_rank(name: str) -> int:
    """Without the batch axis."""
    return len(FIELDS[name].shape) - 1
