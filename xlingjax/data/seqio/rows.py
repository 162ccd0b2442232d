"""Rows of an objective as SeqIO gives them: a preprocessor that makes them of the lines of a task,
and the converter that makes batches of them.

Rows are planned, looked up and masked by the functions that feed the trainer (`Preprocessor`,
`RowReader`); only what draws the numbers is SeqIO's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from xlingjax.data.batches.loader import as_declared
from xlingjax.data.features import FIELDS, Batch, Field, Shapes
from xlingjax.data.rows.draws import Draws
from xlingjax.data.rows.plan import BatchMap, Preprocessor, RowReader
from xlingjax.data.seqio.task_text import lines_of, open_task
from xlingjax.data.store.tokenise import Records, Tokens, joined
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

AT_ONCE = 256  # rows that are looked up, or masked, in one call


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
        mix: Sequence[Preprocessor] = (),
    ):
        """task: the one of text that the rows are made of. languages: of its sides.
        counts: -> the frequencies [V] that subsampling goes by. mix: the objectives that
        are mixed, whose fields these rows have too, padded with zeros to the longest of all."""
        self.preprocessor = preprocessor
        self.mix = tuple(mix) or (preprocessor,)
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
        text_to_text = "inputs" in asked and "decoder_targets" in self.preprocessor.fields
        if not text_to_text and "input_ids" not in asked:
            raise UserError(
                f"{self.preprocessor.name}: rows need a length: give task_feature_lengths"
                ' {"input_ids": 256}, or where it is of an encoder-decoder {"inputs": 256,'
                ' "targets": 256}'
            )
        length = asked["inputs" if text_to_text else "input_ids"]
        seeds = seqio.map_over_dataset(lambda _, seed: _one_seed(seed), num_seeds=1)(
            tf.data.Dataset.counter()
        )
        signature = {
            name: tf.TensorSpec((None, *shape[1:]), field_dtype(name))
            for name, shape in mixed_shapes(self.mix, length).items()
        }
        rows = tf.data.Dataset.from_generator(
            lambda: self._blocks(dataset, length, seeds), output_signature=signature
        ).unbatch()
        return rows.flat_map(_examples) if text_to_text else rows

    def _blocks(
        self, dataset: tf.data.Dataset, length: int, seeds: tf.data.Dataset
    ) -> Iterator[Batch]:
        """The fields of the rows, some at a time. seeds: of the draws for rows that are made
        together; SeqIO repeats a text before it comes here, so each epoch has others."""
        read = 0
        passed = 0
        any_rows = False
        most = self._lines_up_to(self._lines)
        mask = self.preprocessor.map(self._vocabulary, self._counts(), length)
        # The number is the step: validation's masks, of a fixed seed, are those of the rows.
        numbered = enumerate(seeds.as_numpy_iterator())
        chunks: list[list[Tokens]] = []
        # None behind the last chunk: what was read by then is planned, too.
        for chunk in itertools.chain(lines_of(self._task, dataset, self._vocabulary), [None]):
            if chunk is not None:
                chunks.append(chunk)
                read += chunk[0].lengths.size
            if chunks and (chunk is None or read >= most):
                for block in self._planned([*zip(*chunks, strict=True)], length, mask, numbered):
                    any_rows = True
                    yield block
                passed += read
                chunks = []
                read = 0
            # Text that is repeated without end would be read for ever. Counted only where the
            # first lines fit no row: it takes a pass.
            if any_rows or chunk is not None and not passed:
                continue
            if chunk is None or passed >= self._lines_up_to(None):
                raise UserError(
                    f"no {Records(self._languages, ()).name} text of task {self._task.name} fits"
                    f" rows of {length} tokens; raise the length or the limit of pieces"
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

    def _padded(self, fields: Batch, length: int, rows: int) -> Batch:
        """The fields [rows, ...] with those of the mix that the objective lacks."""
        if len(self.mix) == 1:
            return dict(fields)
        padded = {}
        for name, shape in mixed_shapes(self.mix, length).items():
            padded[name] = np.zeros((rows, *shape[1:]), FIELDS_OF_MIX[name].dtype)
            if name in fields:
                corner = tuple(slice(size) for size in fields[name].shape)
                padded[name][corner] = fields[name]
        padded["objective_ids"][:] = [one.name for one in self.mix].index(self.preprocessor.name)
        return padded

    def _planned(
        self,
        sides: Sequence[Sequence[Tokens]],
        length: int,
        mask: BatchMap,
        seeds: Iterator[tuple[int, Any]],
    ) -> Iterator[Batch]:
        """The fields of all rows of these lines, with the next of the numbered seeds."""
        tokens = tuple(joined(chunks, self._vocabulary) for chunks in sides)
        records = Records(self._languages, tokens)
        plan = self.preprocessor.rows(records, length, self._vocabulary)
        if not plan.count:
            return
        reader = RowReader.of_records(
            records,
            plan,
            self._ids,
            self.preprocessor.columns(length),
            self._vocabulary,
        )
        for first in range(0, plan.count, AT_ONCE):
            rows = np.arange(first, min(first + AT_ONCE, plan.count))
            number, seed = next(seeds)
            draws = Draws(int(seed) % (1 << 64), number, rows.size)
            fields = as_declared(mask(reader(rows, draws), draws), self.preprocessor.fields)
            yield self._padded(fields, length, rows.size)


def _examples_in(data: tf.data.Dataset, most: int | None) -> int:
    """How many a dataset has, counted up to `most`."""
    known = int(data.cardinality())
    if known >= 0:
        return known
    # -1 takes all.
    counted = data.take(-1 if most is None else most)
    return int(counted.reduce(np.int64(0), lambda count, _: count + 1))


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
    {"input_ids": L}, the same that `seqio.get_dataset` is given. mixture: the name of a registered
    one of rows, like "demo.ernie_m". Raises UserError for one of text.
    """

    def __init__(self, mixture: str):
        task = seqio.get_subtasks(seqio.get_mixture_or_task(mixture))[0]
        if not isinstance(task, RowTask):
            raise UserError(
                f"'{mixture}' is a mixture of text: give one that register_objective or"
                " register_mix made"
            )
        self._mix = task.rows.mix
        spec = seqio.FeatureConverter.FeatureSpec
        self.TASK_FEATURES = {"input_ids": spec(dtype=tf.int32)}
        self.MODEL_FEATURES = {
            name: spec(dtype=field_dtype(name), rank=field_rank(name))
            for name in mixed_fields(self._mix)
        }
        self.PACKING_FEATURE_DTYPES: Mapping[str, Any] = {}
        super().__init__(pack=False)

    def _convert_features(
        self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]
    ) -> tf.data.Dataset:
        shapes = mixed_shapes(self._mix, task_feature_lengths["input_ids"])

        def convert(row: Mapping[str, Any]) -> dict[str, Any]:
            return {name: tf.ensure_shape(row[name], shape[1:]) for name, shape in shapes.items()}

        return ds.map(convert)

    def get_model_feature_lengths(
        self, task_feature_lengths: Mapping[str, int]
    ) -> Mapping[str, int]:
        shapes = mixed_shapes(self._mix, task_feature_lengths["input_ids"])
        # SeqIO wants a length of every field, and looks at none of a single number.
        return {name: (*shape[1:], 1)[0] for name, shape in shapes.items()}


# objective_ids: whose row of a mix it is.
FIELDS_OF_MIX = FIELDS | {"objective_ids": Field("B", np.dtype(np.int32))}


def mixed_fields(mix: Sequence[Preprocessor]) -> tuple[str, ...]:
    """The fields of the rows of any objective of a mix, and behind them whose row it is."""
    if len(mix) == 1:
        return mix[0].fields
    return (*dict.fromkeys(name for one in mix for name in one.fields), "objective_ids")


def mixed_shapes(mix: Sequence[Preprocessor], length: int) -> Shapes:
    """The shapes of batches of one row, the longest of the mix."""
    shapes: Shapes = {}
    for one in mix:
        for name, shape in one.shapes(1, length).items():
            shapes[name] = max(shape, shapes.get(name, shape))
    if len(mix) > 1:
        shapes["objective_ids"] = (1,)
    return shapes


def field_dtype(name: str) -> tf.DType:
    return tf.as_dtype(FIELDS_OF_MIX[name].dtype)


def field_rank(name: str) -> int:
    """Without the batch axis."""
    return len(FIELDS_OF_MIX[name].shape) - 1


class RowTask(seqio.Task):
    """A task made of a task of text: it reads that one's SeqIO cache where it has none itself."""

    def __init__(self, name: str, *, text: seqio.Task, **given: Any):
        super().__init__(name, **given)
        self.text = text

    @property
    def rows(self) -> ObjectiveRows:
        return self.preprocessors[-1]

    @property
    def cache_dir(self) -> str | None:
        return super().cache_dir or self.text.cache_dir
