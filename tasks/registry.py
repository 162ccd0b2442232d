"""The benchmarks as SeqIO tasks and mixtures.

A task per task and language, "xtreme.udpos.de"; a mixture per task, "xtreme.udpos"; one of all,
"xtreme". Each task has the splits that have files, examples of strings, the same as text to text
(`inputs`, `targets`), and the metrics of the benchmark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import seqio
import tensorflow as tf

from xlingjax.data.labelled import records
from xlingjax.data.labelled.records import Bitext, is_lost
from xlingjax.data.labelled.task import KINDS, Task, find, read
from xlingjax.errors import UserError
from xlingjax.tasks import suite_tasks
from xlingjax.tasks.text_to_text import answerable, input_text, prediction_of, target_text

_TEXT, _TEXTS = tf.TensorSpec((), tf.string), tf.TensorSpec((None,), tf.string)
FEATURES: dict[str, dict[str, tf.TensorSpec]] = {
    "Example": {"premise": _TEXT, "hypothesis": _TEXT, "label": _TEXT},
    "Tagged": {"words": _TEXTS, "tags": _TEXTS},
    "Question": {
        "id": _TEXT,
        "question": _TEXT,
        "context": _TEXT,
        "answers": _TEXTS,
        "starts": tf.TensorSpec((None,), tf.int32),
    },
    "SourceTarget": {"source": _TEXT, "target": _TEXT},
    "Bitext": {
        "source_ids": _TEXTS,
        "source": _TEXTS,
        "target_ids": _TEXTS,
        "target": _TEXTS,
        "gold": tf.TensorSpec((None, 2), tf.string),
    },
}
"""Record -> features of an example, besides "language". What a file does not give is empty."""


def register(
    suite: str,
    folder: str | Path,
    metrics: Mapping[str, Any],
    *,
    tasks: Sequence[str] = (),
    allow_missing: bool = False,
    name: str | None = None,
    vocabulary: seqio.Vocabulary | None = None,
) -> str:
    """Registers a benchmark's tasks, or those of the names `tasks`, and returns the name of the
    mixture of all, by default the suite's.

    Files are found, not read. metrics: `xlingjax.evaluation.metrics.registry.METRICS`, or others
    with a `compute`. vocabulary: of the features `inputs` and `targets`, the examples as text to
    text; default: bytes, as ByT5's, which spell every prediction. Again with the same arguments it
    does nothing. Raises UserError: an unknown suite or metric, a language without files (unless
    `allow_missing`), no files at all, a name that is taken by another folder.
    """
    folder, name = str(Path(folder).absolute()), name or suite
    vocabulary = vocabulary or seqio.ByteVocabulary()
    arguments = (suite, folder, allow_missing, tuple(tasks), vocabulary)
    # Tests and notebooks register a suite again; SeqIO raises at a second task of one name.
    if _REGISTERED.get(name) == arguments:
        return name
    if name in _REGISTERED or name in seqio.MixtureRegistry.names():
        raise UserError(f"the name {name!r} is registered for other files; choose another")
    chosen = [task for task in suite_tasks(suite) if not tasks or task.name in tasks]
    # Everything is found before the first task is registered: SeqIO's registry has no way back.
    sources = {task: _sources(task, folder, allow_missing) for task in chosen}
    if not any(sources.values()):
        raise UserError(
            f"no files of {suite} in {folder}; docs/benchmarks.md says where it is downloaded from"
        )
    registered = []
    for task, found in sources.items():
        own = [
            # A task for each language: SeqIO's metrics know nothing of an example's language.
            _register(f"{name}.{task.name}.{language}", source, metrics, vocabulary)
            for language, source in found.items()
        ]
        if own:
            seqio.MixtureRegistry.add(f"{name}.{task.name}", own, default_rate=1.0)
        registered += own
    seqio.MixtureRegistry.add(name, registered, default_rate=1.0)
    # Last: a registration that failed half-way leaves the name free to be tried again.
    _REGISTERED[name] = arguments
    return name


_REGISTERED: dict[str, tuple[Any, ...]] = {}


def tasks_of(mixture: str) -> list[tuple[Task, dict[str, seqio.Task]]]:
    """(task, {language: its SeqIO task}) of those of a registered mixture that are benchmarks'."""
    found: dict[str, tuple[Task, dict[str, seqio.Task]]] = {}
    for one in seqio.get_subtasks(seqio.get_mixture_or_task(mixture)):
        if not isinstance(one.source, BenchmarkFiles):
            continue
        # By our own source, and not by the names, in which a hyphen has become another letter.
        found.setdefault(one.source.task.full_name, (one.source.task, {}))[1][
            one.source.language
        ] = one
    return [*found.values()]


class _Splits(tuple):
    """Names of splits; a part of one, "dev[:50%]", is among them, since `seqio.Evaluator` asks."""

    def __contains__(self, split: object) -> bool:
        if isinstance(split, str):
            split = split.partition("[")[0]
        return super().__contains__(split)


class BenchmarkFiles(seqio.DataSource):
    """The files of one language of a task. A split may be cut: `get_dataset("dev[:50%]")`."""

    def __init__(self, task: Task, folder: str, language: str, splits: Sequence[str]):
        self.task, self.folder, self.language = task, folder, language
        super().__init__(splits=tuple(splits))

    @property
    def splits(self) -> Sequence[str]:
        return _Splits(super().splits)

    @property
    def supports_arbitrary_sharding(self) -> bool:
        # A file is read whole by our readers, so there is nothing to shard within one.
        return False

    def list_shards(self, split: str) -> Sequence[str]:
        return [str(path) for path in find(self.task, self.folder, split, self.language).paths]

    def num_input_examples(self, split: str) -> int:
        return len(self._records(split))

    def _records(self, split: str) -> Sequence[Any]:
        """Without what a translated training set lost."""
        found = read(self.task, self.folder, split, self.language)
        # Lost rows keep their place in the file for translations; as examples they are noise.
        if split.startswith("translate_train"):
            return [one for one in found if not is_lost(one)]
        return found

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused,
    ) -> tf.data.Dataset:
        """In the order of the file: SeqIO shuffles after this. Raises UserError for its faults."""
        # Read here, not in the generator, where TensorFlow would wrap a UserError in its own.
        found = self._records(split)
        signature = {
            "language": _TEXT,
            "inputs": _TEXT,
            "targets": _TEXT,
            **FEATURES[KINDS[self.task.kind]],
        }

        def examples() -> Iterator[dict[str, Any]]:
            for record in found:
                yield {
                    "language": self.language,
                    "inputs": input_text(record, self.task.name),
                    "targets": target_text(record),
                    **example_of(record),
                }

        return tf.data.Dataset.from_generator(examples, output_signature=signature)


def _sources(task: Task, folder: str, allow_missing: bool) -> dict[str, BenchmarkFiles]:
    found = {}
    # The test languages may leave out the one that is trained on.
    for language in dict.fromkeys((*task.languages, task.trained_on)):
        splits = [split for split in task.files if find(task, folder, split, language)]
        if language in task.languages and not allow_missing and not {"dev", "test"} & set(splits):
            # `read` has the message that names all the places where the files may lie.
            lacking = "dev"
            if "test" in task.files:
                lacking = "test"
            read(task, folder, lacking, language)
        if splits:
            found[language] = BenchmarkFiles(task, folder, language, splits)
    return found


def _register(
    name: str, source: BenchmarkFiles, metrics: Mapping[str, Any], vocabulary: seqio.Vocabulary
) -> str:
    task = source.task

    def postprocess(
        output: Any, example: Mapping[str, Any] | None = None, is_target: bool = False, **unused
    ) -> Any:
        # SeqIO gives metrics what postprocessing makes of an example: the record that ours read.
        if is_target:
            return record_of(example, task.kind)
        return prediction_of(output, task.kind)

    # SeqIO allows letters, digits and . : _ # in a name, and "zh-Hant" has a hyphen.
    name = name.replace("-", "_")
    seqio.TaskRegistry.add(
        name,
        source=source,
        preprocessors=[
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        # The record's own strings stay beside them: our models cut texts by vocabularies of theirs.
        output_features=dict.fromkeys(("inputs", "targets"), seqio.Feature(vocabulary)),
        postprocess_fn=postprocess,
        metric_fns=[
            _metric_fn(metric, metrics[metric], task.kind, source.language)
            for metric in task.metrics
        ],
    )
    return name


def _metric_fn(name: str, metric: Any, kind: str, language: str):
    """SeqIO's function of (targets: records, predictions: one for each) -> {name: 0..100}."""

    def metric_fn(targets: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
        if len(targets) != len(predictions):
            raise UserError(f"{name}: {len(predictions)} predictions for {len(targets)} examples")
        # What a model writes may be no answer: that is wrong, and no error.
        predictions = [
            answerable(prediction, target, kind)
            for target, prediction in zip(targets, predictions, strict=True)
        ]
        # The official scripts look answers up by the question's id.
        if kind == "span_qa":
            predictions = {
                question.id: text for question, text in zip(targets, predictions, strict=True)
            }
        elif KINDS[kind] == "Bitext":
            predictions = predictions[0]
        return {name: metric.compute(targets, predictions, language)}

    metric_fn.__name__ = name
    return metric_fn


def example_of(record: Any) -> dict[str, Any]:
    """A record as a dict of strings (see `FEATURES`)."""
    if isinstance(record, Bitext):
        sides = {}
        for side in ("source", "target"):
            pairs = getattr(record, side)
            sides |= {f"{side}_ids": [id_ for id_, _ in pairs], side: [text for _, text in pairs]}
        # A set has no order, and a data set must give the same examples each time.
        gold = sorted(record.gold or ())
        return sides | {
            "gold": [list(pair) for pair in gold]
            # An empty list has one axis, and the signature wants pairs.
            or tf.zeros((0, 2), tf.string)
        }
    names = FEATURES[type(record).__name__]
    return {name: _plain(getattr(record, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    # A tensor of strings has no None; `record_of` reads it back.
    if value is None:
        return ""
    return value


def record_of(example: Mapping[str, Any], kind: str) -> Any:
    """The record of an example of tensors, arrays or strings. Raises KeyError without a feature."""
    values = {name: _text(example[name]) for name in FEATURES[KINDS[kind]]}
    if KINDS[kind] == "Bitext":
        sides = (
            tuple(zip(values[f"{side}_ids"], values[side], strict=True))
            for side in ("source", "target")
        )
        return Bitext(*sides, frozenset(values["gold"]) or None)
    # Tensors have no None, so what a file does not give was written as an empty string.
    for name in ("hypothesis", "label", "target"):
        if values.get(name) == "":
            values[name] = None
    return getattr(records, KINDS[kind])(**values)


def _text(value: Any) -> Any:
    """The same of a tensor, of NumPy's array of a batch and of plain strings."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return tuple(map(_text, value))
    return value.decode("utf-8") if isinstance(value, bytes) else value
