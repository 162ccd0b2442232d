"""Objectives as SeqIO mixtures: one per objective, of a task per language or pair, and mixes."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlingjax.data.batches.loader import token_counts
from xlingjax.data.rows.plan import Preprocessor
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

LINES = 1 << 16  # lines that rows are planned over at a time
_MOST = (1 << 31) - 1  # of the numbers in fields that are no pieces
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
    feature_converter=RowConverter(name), ...)` gives what the trainer would train on; objectives of
    encoder-decoders also give `inputs` and `targets` to SeqIO's own converters.

    name: default: MIXTURE.OBJECTIVE, without the ".text", ".pairs" or ".triples" that
    `register_text` ends its mixtures in. vocabulary: default: that of the tasks' features.
    languages: of the run, default: those of the tasks; the index in their sorted order is the
    language id. use_cached: look at the text in SeqIO's cache, for sources that are not there; a
    task that requires its cache is looked at there anyway. The rows are read with `use_cached` from
    the cache of the text. Raises UserError: an unknown mixture, tasks of other sides than the
    objective reads, a name that is taken; then nothing is registered.
    """
    if name is None:
        stem = mixture
        for kind in _KINDS:
            stem = stem.removesuffix(kind)
        name = f"{stem}.{preprocessor.name}"
    _register({name: (mixture, preprocessor)}, vocabulary, languages, lines, use_cached)
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
    parts = {f"{name}.{one.name}": (mixture, one) for mixture, one in objectives}
    _register(parts, vocabulary, languages, lines, use_cached, mix=name)
    return name


def _register(
    parts: Mapping[str, tuple[str, Preprocessor]],
    vocabulary: Vocabulary | None,
    languages: Sequence[str] | None,
    lines: int,
    use_cached: bool,
    mix: str = "",
) -> None:
    """Registers a mixture for each of the objectives, {name: (its text, it)}, whose rows all have
    the same features, and the one of all, `mix`; where a name is taken, nothing."""
    from xlingjax.data.seqio.mixture import rate_of, tasks_of, vocabulary_of
    from xlingjax.data.seqio.rows import ObjectiveRows, RowTask, seqio

    texts = {mixture: tasks_of(mixture, "train") for mixture, _ in parts.values()}
    vocabulary = vocabulary or vocabulary_of(next(iter(texts.values()))[0])
    sides = {
        name: [_sides(task, one, languages or (), use_cached) for task in texts[mixture]]
        for name, (mixture, one) in parts.items()
    }
    run_languages = sorted(
        languages or {code for found in sides.values() for codes in found for code in codes}
    )
    complete = {name: _complete(one, run_languages) for name, (_, one) in parts.items()}
    every = [task for tasks in texts.values() for task in tasks]
    features = _output_features([*complete.values()], vocabulary, every)
    tasks: dict[str, dict[str, Any]] = {}
    rates: dict[str, list[tuple[str, Any]]] = {}
    for name, (mixture, _) in parts.items():
        one = complete[name]
        # As the trainer counts: what the objective does not read is no text of its.
        of_part = zip(texts[mixture], sides[name], strict=True)
        taken = [(task, codes) for task, codes in of_part if one.takes(codes)]
        if not taken:
            raise UserError(f"'{one.name}' reads no pair of '{mixture}': give a mixture of others")
        read = tuple(task for task, _ in taken)
        counts = functools.cache(
            functools.partial(_counts, read, one, vocabulary, languages, use_cached)
        )
        rates[name] = []
        for task, codes in taken:
            # Its languages, or its own name where several texts are in the same.
            suffix = task.name if sides[name].count(codes) > 1 else "_".join(codes)
            of_task = f"{name}.{suffix}".replace("-", "_")
            rows = ObjectiveRows(
                one, vocabulary, task, codes, run_languages, counts, lines, [*complete.values()]
            )
            tasks[of_task] = {
                "source": task.source,
                "preprocessors": [*(_as_in(task, step) for step in task.preprocessors), rows],
                "output_features": features,
                "text": task,
            }
            rates[name].append((of_task, functools.partial(rate_of, mixture, task)))
    if mix:
        rates[mix] = [(name, 1.0) for name in parts]
    known = {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}
    for name in (*rates, *tasks):
        if name in known:
            raise UserError(f"the name '{name}' is registered already; choose another with name=")
    for name, given in tasks.items():
        seqio.TaskRegistry.add(name, task_cls=RowTask, **given)
    for name, of_mixture in rates.items():
        seqio.MixtureRegistry.add(name, of_mixture)


def _complete(preprocessor: Preprocessor, languages: Sequence[str]) -> Any:
    # Noise needs to know how the run's languages are written.
    if getattr(preprocessor, "languages", ()) is None:
        return dataclasses.replace(preprocessor, languages=tuple(languages))  # type: ignore[type-var]
    return preprocessor


def _sides(
    task: Any, preprocessor: Preprocessor, languages: Sequence[str], use_cached: bool
) -> tuple[str, ...]:
    """The languages of a task's sides, as many as the objective reads."""
    from xlingjax.data.seqio import task_text
    from xlingjax.data.seqio.mixture import require_sides

    codes = task_text.declared_languages(task)
    if not codes:
        data = task_text.open_task(task, "train", use_cached or task.requires_caching)
        names = task_text.text_features(task, data.element_spec)
        codes = task_text.task_languages(task, names, languages)
    require_sides(task, len(codes), preprocessor)
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
    texts = (
        task_text(task, "train", vocabulary, use_cached or task.requires_caching, languages or ())
        for task in tasks
    )
    return token_counts(texts, vocabulary)


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


def _output_features(
    mix: Sequence[Preprocessor], vocabulary: Vocabulary, tasks: Sequence[Any]
) -> dict[str, Any]:
    """A SeqIO feature for each field, and `inputs` and `targets` for those of encoder-decoders; the
    features of the tasks of text, which rows do not have any more, as optional."""
    import seqio

    from xlingjax.data.seqio.rows import field_dtype, field_rank, mixed_fields
    from xlingjax.data.seqio.vocabulary import SeqioVocabulary

    features = {}
    for task in tasks:
        for name, feature in task.output_features.items():
            features[name] = dataclasses.replace(feature, required=False)
    ids = SeqioVocabulary(vocabulary)
    numbers = seqio.PassThroughVocabulary(_MOST)
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
