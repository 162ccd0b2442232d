"""`mixture_source`: batches of a registered SeqIO mixture, in the rows of one objective.

The tasks give tokens (from the token cache), the preprocessor plans rows over them, `stream.py`
draws and masks.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from xlingjax.data.features import batch_shapes
from xlingjax.data.loader import BatchSource
from xlingjax.data.rows import RowReader, Rows, stack
from xlingjax.data.sampling import Sampling, sampling_table
from xlingjax.data.token_cache import Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

SIZES = {"placeholders": "placeholders", "decoder_columns": "targets"}
"""Sizes of fields that some preprocessors tell."""


class Preprocessor(Protocol):
    """What turns records into an objective's fields: the frozen dataclasses of
    `preprocessors/<paper>.py`."""

    name: str
    sides: int
    """1: reads text of one language; 2: pairs; 3: pairs with negatives."""
    fields: tuple[str, ...]

    def slots(self, length: int) -> int:
        """Prediction slots M for rows of `length` tokens."""

    def rows(
        self, records: Records, bases: Sequence[int], length: int, vocabulary: Vocabulary
    ) -> Rows:
        """The rows of one text; `bases[i]` is where side i of the records begins in the array of
        ids."""

    # columns(length), where the reader's rows are not `length` wide; placeholders(length), where
    # there are some; takes(languages), where it does not read every text of the mixture;
    # decoder_columns(length): T, where it is
    # not `length`.

    def map(
        self, vocabulary: Vocabulary, counts: np.ndarray, length: int
    ) -> Callable[[dict, Any], dict]:
        """A TensorFlow map (token fields [B, L], `Draws`) -> at least `fields`; `counts` [V] are
        token frequencies."""


def shapes_of(preprocessor: Preprocessor, batch: int, length: int) -> dict[str, tuple[int, ...]]:
    """The global shapes of its batches."""
    more = {
        size: getattr(preprocessor, name)(length)
        for name, size in SIZES.items()
        if hasattr(preprocessor, name)
    }
    return batch_shapes(
        preprocessor.fields, batch=batch, length=length, slots=preprocessor.slots(length), **more
    )


def mixture_source(
    mixture: str,
    preprocessor: Preprocessor,
    *,
    batch: int,
    length: int,
    split: str = "train",
    seed: int = 0,
    sampling: Sampling | None = None,
    languages: Sequence[str] | None = None,
    shuffle: bool = True,
    epochs: int | None = None,
    data_shards: int = 1,
    shards: Sequence[int] | None = None,
    use_cached: bool = False,
    prefetch: int = 2,
    threads: int = 1,
) -> BatchSource:
    """Batches of `batch` rows of `length` tokens from a registered SeqIO mixture or task.

    The output features of its tasks are `LanguageFeature`s (see `tasks/xlm.py`): one for text, two
    for pairs.
    epochs: None draws for ever by `sampling`; a number reads each text that often, in order of
    languages, rows of one language to a batch if `sampling.same_language`, and pads the last batch
    with empty rows.
    languages: the run's (default: those of the mixture); the index in their sorted order is the
    language id. data_shards, shards: the rows of a batch are cut in `data_shards` equal parts, of
    which this host reads `shards` (default: an equal part per JAX process, or all if that does not
    divide). They do not change the global batch. prefetch: batches made ahead, by up to `threads`
    threads.

    `identity` holds what must be equal to continue, and `identity["sampling_table"]` the shares and
    epochs.
    Raises UserError: unknown mixture or split, empty text, text that fits no row, a bad size.
    """
    keep_tensorflow_off_accelerators()
    from xlingjax.data.seqio_adapters import task_records
    from xlingjax.data.stream import BatchPlan, PlannedSource
    from xlingjax.data.vocabulary.seqio import SeqioVocabulary

    if batch < 1 or length < 8:
        raise UserError(f"a batch needs at least 1 row of 8 tokens, got {batch} rows of {length}")
    if data_shards < 1 or batch % data_shards:
        raise UserError(
            f"a batch of {batch} rows does not divide into {data_shards} data shards; change either"
        )
    tasks = _tasks(mixture, split)
    feature = next(iter(tasks[0].output_features.values()))
    if not isinstance(feature.vocabulary, SeqioVocabulary):
        raise UserError(
            f"task {tasks[0].name}: its features need a SeqioVocabulary(Vocabulary.load(path))"
        )
    vocabulary = feature.vocabulary.vocabulary
    if hasattr(preprocessor, "takes"):
        every, tasks = tasks, [task for task in tasks if preprocessor.takes(_languages(task))]
        if not tasks:
            found = ", ".join("-".join(_languages(task)) for task in every)
            raise UserError(
                f"'{preprocessor.name}' reads none of the pairs {found}: add others to PARALLEL"
            )
    records = [task_records(task, split, vocabulary, use_cached) for task in tasks]
    for task, record in zip(tasks, records, strict=True):
        if len(record.sides) != preprocessor.sides:
            kind = {1: "text of one language", 2: "pairs", 3: "pairs with negatives"}[
                preprocessor.sides
            ]
            raise UserError(
                f"task {task.name} cannot feed '{preprocessor.name}', which reads {kind}"
            )
    run_languages = tuple(
        sorted(set(languages or [code for record in records for code in record.languages]))
    )
    names = [record.name for record in records]
    names = [
        name if names.count(name) == 1 else task.name
        for name, task in zip(names, tasks, strict=True)
    ]

    ids, bases = _join(records, vocabulary)
    counts = np.bincount(ids, minlength=vocabulary.size)
    plans = [
        preprocessor.rows(r, b, length, vocabulary) for r, b in zip(records, bases, strict=True)
    ]
    for name, plan in zip(names, plans, strict=True):
        if plan.count == 0:
            raise UserError(
                f"no {name} text fits rows of {length} tokens; raise the length or the limit of"
                " pieces"
            )
    try:
        codes = [[run_languages.index(code) for code in record.languages] for record in records]
    except ValueError:
        found = sorted({code for record in records for code in record.languages})
        raise UserError(
            f"the run's languages {', '.join(run_languages)} lack some of {', '.join(found)}: add"
            " them to LANGUAGES, or leave their text out"
        ) from None
    rows, first_row = stack(plans, codes)
    columns = preprocessor.columns(length) if hasattr(preprocessor, "columns") else length

    sampling = sampling or Sampling()
    sizes = {name: plan.sizes for name, plan in zip(names, plans, strict=True)}
    if sampling.counts == "mixture":
        amounts = {name: _rate(mixture, task) for name, task in zip(names, tasks, strict=True)}
    else:
        amounts = {name: size[sampling.counts] for name, size in sizes.items()}
    shares = sampling.shares(amounts)

    return PlannedSource(
        BatchPlan(
            reader=RowReader(
                ids, rows, columns, pad_id=vocabulary.pad_id, bos_id=vocabulary.bos_id
            ),
            map=preprocessor.map(vocabulary, counts, length),
            fields=preprocessor.fields,
            shares=np.array(list(shares.values())),
            first_row=first_row,
            batch=batch,
            # MLM and TLM of one run must not draw alike.
            seed=int.from_bytes(
                hashlib.sha256(f"{preprocessor.name}:{seed}".encode()).digest()[:5]
            ),
            same_language=sampling.same_language,
            shuffle=shuffle,
            epochs=epochs,
            prefetch=prefetch,
            threads=threads,
        ),
        data_shards=data_shards,
        shards=_shards(data_shards) if shards is None else tuple(shards),
        shapes=shapes_of(preprocessor, batch, length),
        languages=run_languages,
        identity={
            "preprocessor": preprocessor.name,
            "options": json.loads(json.dumps(dataclasses.asdict(preprocessor))),
            "vocabulary": vocabulary.sha256,
            "languages": list(run_languages),
            "split": split,
            "batch": batch,
            "length": length,
            "seed": seed,
            "shuffle": shuffle,
            "epochs": epochs,
            "same_language": sampling.same_language,
            "text": {
                name: record.content_hash() for name, record in zip(names, records, strict=True)
            },
            "sampling_table": sampling_table(sizes, shares, rows_per_step=batch),
        },
    )


def keep_tensorflow_off_accelerators() -> None:
    """They are JAX's."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        tf.config.set_visible_devices([], "GPU")


def _tasks(mixture: str, split: str) -> list[Any]:
    import seqio

    try:
        provider = seqio.get_mixture_or_task(mixture)
    except ValueError:
        raise UserError(
            f"no SeqIO task or mixture '{mixture}' is registered; import the module that adds it"
        ) from None
    tasks = [task for task in seqio.get_subtasks(provider) if split in task.splits]
    if not tasks:
        raise UserError(
            f"no task of '{mixture}' has a split '{split}'; it has"
            f" {', '.join(sorted(provider.splits))}"
        )
    return tasks


def _languages(task: Any) -> tuple[str, ...]:
    return tuple(feature.language for feature in task.output_features.values())


def _rate(mixture: str, task: Any) -> float:
    import seqio

    provider = seqio.get_mixture_or_task(mixture)
    return provider.get_rate(task) if isinstance(provider, seqio.Mixture) else 1.0


def _join(records: Sequence[Records], vocabulary: Vocabulary) -> tuple[np.ndarray, list[list[int]]]:
    """All ids in one array after a first `</s>`, and where each side of each record begins."""
    sides = [side.ids for record in records for side in record.sides]
    start = np.array([vocabulary.eos_id], sides[0].dtype)
    begins = iter(np.cumsum([1, *(side.size for side in sides)]).tolist())
    return np.concatenate([start, *sides]), [
        [next(begins) for _ in record.sides] for record in records
    ]


def _shards(data_shards: int) -> tuple[int, ...]:
    if data_shards == 1:
        return (0,)
    import jax

    hosts = jax.process_count()
    if data_shards % hosts:
        return tuple(range(data_shards))
    share = data_shards // hosts
    return tuple(range(jax.process_index() * share, (jax.process_index() + 1) * share))
