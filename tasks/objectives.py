"""Objectives as SeqIO mixtures: one per objective, of a task per language or pair, and mixes of
several."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from xlingjax.data.rows.plan import Preprocessor
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

LINES = 1 << 16
"""Lines that rows are planned over at a time."""
_MOST = (1 << 31) - 1
"""Of the numbers in fields that are no pieces."""
_KINDS = (".text", ".pairs", ".triples")


def register_objective(
    mixture: str,
    preprocessor: Preprocessor,
    *,
    name: str | None = None,
    vocabulary: Vocabulary | None = None,
    languages: Sequence[str] | None = None,
    lines: int = LINES,
    use_cached: bool = False,
) -> str:
    """Registers the rows of an objective over a mixture (or task) of text or pairs, as a SeqIO
    mixture with a task for each of its tasks; returns its name.

    A task is that of text, its source, its preprocessors and its cache placeholder, and behind them
    `ObjectiveRows`. `seqio.get_dataset(name, {"input_ids": L},
    feature_converter=RowConverter(preprocessor), ...)` gives what the trainer would train on;
    objectives of encoder-decoders also give `inputs` and `targets` to SeqIO's own converters. The
    rates are the mixture's.

    name: default: MIXTURE.OBJECTIVE, without the ".text", ".pairs" or ".triples" that
    `register_text` ends its mixtures in. vocabulary: default: that of the tasks' features.
    languages: of the run, default: those of the tasks; the index in their sorted order is the
    language id. use_cached: look at the text in SeqIO's cache, for sources that are not there; a
    task that requires its cache is looked at there anyway. The rows are read with `use_cached` from
    the cache of the text. Raises UserError: an unknown mixture, tasks of other sides than the
    objective reads, a name that is taken; then nothing is registered.
    """
    mixed = _Objectives([(mixture, preprocessor)], vocabulary, languages, lines, use_cached)
    name = name or _name(mixture, preprocessor)
    _add(mixed.mixtures([name]))
    return name


def register_mix(
    name: str,
    objectives: Sequence[tuple[str, Preprocessor]],
    *,
    vocabulary: Vocabulary | None = None,
    languages: Sequence[str] | None = None,
    lines: int = LINES,
    use_cached: bool = False,
) -> str:
    """Registers the rows of several objectives, each with its mixture of text, as one SeqIO mixture
    that draws each objective as often; returns its name.

    Its tasks are those of the mixtures NAME.OBJECTIVE. All rows have the fields of all objectives,
    those that theirs lacks as zeros, and `objective_ids`, the place of theirs in `objectives`:
    SeqIO mixes tasks of equal features alone. The others: see `register_objective`.
    """
    import seqio

    mixed = _Objectives(objectives, vocabulary, languages, lines, use_cached)
    parts = [f"{name}.{one.name}" for _, one in objectives]
    if name in {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}:
        raise UserError(f"the name '{name}' is registered already; choose another")
    _add(mixed.mixtures(parts))
    seqio.MixtureRegistry.add(name, [(part, 1.0) for part in parts])
    return name


Tasks = dict[str, tuple[dict[str, Any], Callable[[Any], float]]]
"""{name: (arguments of the task, its rate)}."""


class _Objectives:
    """Objectives whose tasks are mixed, with what they read."""

    def __init__(
        self,
        objectives: Sequence[tuple[str, Preprocessor]],
        vocabulary: Vocabulary | None,
        languages: Sequence[str] | None,
        lines: int,
        use_cached: bool,
    ):
        from xlingjax.data.seqio.mixture import tasks_of, vocabulary_of

        self._languages = languages
        self._lines = lines
        self._use_cached = use_cached
        self._read = []
        for mixture, one in objectives:
            tasks = tasks_of(mixture, "train")
            vocabulary = vocabulary or vocabulary_of(tasks[0])
            sides = _sides(tasks, one, languages or (), use_cached)
            self._read.append((mixture, one, tasks, sides))
        assert vocabulary is not None
        self._vocabulary = vocabulary
        self._run_languages = sorted(
            {*(languages or _all([codes for *_, sides in self._read for codes in sides]))}
        )
        self._mix = [self._complete(one) for _, one in objectives]
        self._fields = _output_features(self._mix, vocabulary)
        for *_, tasks, _ in self._read:
            for task in tasks:
                self._fields = {**_optional(task), **self._fields}

    def _complete(self, preprocessor: Preprocessor) -> Any:
        # Noise needs to know how the run's languages are written.
        if getattr(preprocessor, "languages", ()) is None:
            return dataclasses.replace(preprocessor, languages=tuple(self._run_languages))  # type: ignore[type-var]
        return preprocessor

    def mixtures(self, names: Sequence[str]) -> dict[str, Tasks]:
        """{name: the tasks} of the mixture of each objective."""
        return {
            name: self._tasks(name, self._complete(one), mixture, tasks, sides)
            for name, (mixture, one, tasks, sides) in zip(names, self._read, strict=True)
        }

    def _tasks(
        self,
        name: str,
        preprocessor: Preprocessor,
        mixture: str,
        tasks: Sequence[Any],
        sides: Sequence[tuple[str, ...]],
    ) -> Tasks:
        from xlingjax.data.seqio.rows import ObjectiveRows

        # As the trainer counts: what the objective does not read is no text of its.
        taken = [
            task for task, codes in zip(tasks, sides, strict=True) if preprocessor.takes(codes)
        ]
        if not taken:
            raise UserError(
                f"'{preprocessor.name}' reads no pair of '{mixture}': give a mixture of others"
            )
        counts = functools.cache(
            functools.partial(
                _counts, taken, preprocessor, self._vocabulary, self._languages, self._use_cached
            )
        )
        named: Tasks = {}
        for task, codes in zip(tasks, sides, strict=True):
            if task not in taken:
                continue
            rows = ObjectiveRows(
                preprocessor,
                self._vocabulary,
                task,
                codes,
                self._run_languages,
                counts,
                self._lines,
                self._mix,
            )
            given = {
                "source": task.source,
                "preprocessors": [*(_as_in(task, one) for one in task.preprocessors), rows],
                "output_features": self._fields,
                "text": task,
            }
            of_task = f"{name}.{_suffix(task, codes, sides)}".replace("-", "_")
            named[of_task] = (given, functools.partial(_rate, mixture, task))
        return named


def _add(mixtures: dict[str, Tasks]) -> None:
    """Registers all or, where a name is taken, nothing: half of a mixture would stand in the way of
    the next try."""
    import seqio

    from xlingjax.data.seqio.rows import RowTask

    known = {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}
    for name, tasks in mixtures.items():
        for one in (name, *tasks):
            if one in known:
                raise UserError(
                    f"the name '{one}' is registered already; choose another with name="
                )
    for name, tasks in mixtures.items():
        for of_task, (given, _) in tasks.items():
            seqio.TaskRegistry.add(of_task, task_cls=RowTask, **given)
        seqio.MixtureRegistry.add(name, [(of_task, rate) for of_task, (_, rate) in tasks.items()])


def _name(mixture: str, preprocessor: Preprocessor) -> str:
    for kind in _KINDS:
        mixture = mixture.removesuffix(kind)
    return f"{mixture}.{preprocessor.name}"


def _suffix(task: Any, codes: Sequence[str], sides: Sequence[Any]) -> str:
    """What a task is called behind the mixture's name: its languages, or the name of its text
    where several texts are in the same."""
    if list(sides).count(codes) > 1:
        return task.name
    return "_".join(codes)


def _sides(
    tasks: Sequence[Any], preprocessor: Preprocessor, languages: Sequence[str], use_cached: bool
) -> list[tuple[str, ...]]:
    """The languages of each task's sides, as many as the objective reads."""
    from xlingjax.data.seqio.mixture import require_sides
    from xlingjax.data.seqio.task_text import declared_languages, open_task, task_languages
    from xlingjax.data.seqio.task_text import text_features as features_of

    sides = []
    for task in tasks:
        codes = declared_languages(task)
        if not codes:
            cached = use_cached or task.requires_caching
            names = features_of(task, open_task(task, "train", cached).element_spec)
            codes = task_languages(task, names, languages)
        require_sides(task, len(codes), preprocessor)
        sides.append(codes)
    return sides


def _all(sides: Sequence[tuple[str, ...]]) -> set[str]:
    codes: set[str] = set()
    for one in sides:
        codes.update(one)
    return codes


def _counts(
    tasks: Sequence[Any],
    preprocessor: Preprocessor,
    vocabulary: Vocabulary,
    languages: Sequence[str] | None,
    use_cached: bool,
) -> np.ndarray:
    """[V]: how often each token stands in the text; ones where nothing goes by it."""
    from xlingjax.data.seqio.task_text import task_text

    masking = getattr(preprocessor, "masking", None)
    if masking is None or not masking.exponent(vocabulary):
        return np.ones(vocabulary.size, np.int64)
    # As the trainer counts: all sides, and the `</s>` that stands before the first of them.
    counts = np.zeros(vocabulary.size, np.int64)
    counts[vocabulary.eos_id] = 1
    for task in tasks:
        text = task_text(
            task, "train", vocabulary, use_cached or task.requires_caching, languages or ()
        )
        counts += text.counts()
    return counts


def _as_in(task: Any, preprocessor: Any) -> Any:
    """A task's preprocessor that sees the task's own features, and no length, as when the trainer
    reads it: `inputs` and `targets` of rows have other vocabularies and are no lines."""
    import seqio

    if isinstance(preprocessor, seqio.CacheDatasetPlaceholder):
        return preprocessor
    given = {}
    asked = inspect.signature(preprocessor).parameters
    if "output_features" in asked:
        given["output_features"] = task.output_features
    if "sequence_length" in asked:
        given["sequence_length"] = None
    if not given:
        return preprocessor
    # No partial: SeqIO would see the arguments and give its own.
    return lambda dataset: preprocessor(dataset, **given)


def _optional(task: Any) -> dict[str, Any]:
    """A task's features, which rows do not have any more."""
    features = {}
    for name, feature in task.output_features.items():
        features[name] = dataclasses.replace(feature, required=False)
    return features


def _output_features(mix: Sequence[Preprocessor], vocabulary: Vocabulary) -> dict[str, Any]:
    """A SeqIO feature for each field, and `inputs` and `targets` for those of encoder-decoders."""
    import seqio

    from xlingjax.data.seqio.rows import field_dtype, field_rank, mixed_fields
    from xlingjax.data.seqio.vocabulary import SeqioVocabulary

    ids = SeqioVocabulary(vocabulary)
    numbers = seqio.PassThroughVocabulary(_MOST)
    features = {}
    for name in mixed_fields(mix):
        of_field = numbers
        if name in ("input_ids", "decoder_ids", "decoder_targets"):
            of_field = ids
        features[name] = seqio.Feature(
            of_field, add_eos=False, required=False, dtype=field_dtype(name), rank=field_rank(name)
        )
    if all("decoder_targets" in one.fields for one in mix):
        for name in ("inputs", "targets"):
            features[name] = seqio.Feature(ids, add_eos=False, required=False)
    return features


def _rate(mixture: str, task: Any, of_rows: Any) -> float:
    """The mixture's rate of the task of text that the rows are made of."""
    from xlingjax.data.seqio.mixture import rate_of

    return rate_of(mixture, task)
