"""`mixture_source`: batches of a registered SeqIO mixture, in the rows of one objective.

The tasks give tokens (from the token cache), the preprocessor plans rows over them, `stream.py`
draws and masks.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from xlingjax.data.blocks import BlockText
from xlingjax.data.first_import import import_tensorflow
from xlingjax.data.loader import BatchSource
from xlingjax.data.preprocessor import Preprocessor
from xlingjax.data.row_order import RowOrder
from xlingjax.data.row_plans import RowPlan, options, require_rows
from xlingjax.data.row_reader import RowReader
from xlingjax.data.sampling import Sampling, sampling_table
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

KINDS = {1: "text of one language", 2: "pairs", 3: "pairs with negatives"}
"""What a preprocessor of so many sides reads."""


@dataclasses.dataclass(frozen=True)
class BatchSettings:
    """How batches are drawn from a mixture, whichever objective reads them.

    epochs: None draws for ever by `sampling`; a number reads each text that often, in order of
    languages, rows of one language to a batch if `sampling.same_language`, and pads the last batch
    with empty rows.
    languages: the run's (default: those of the mixture); the index in their sorted order is the
    language id. data_shards, shards: the rows of a batch are cut in `data_shards` equal parts, of
    which this host reads `shards` (default: an equal part per JAX process, or all if that does not
    divide). They do not change the global batch. prefetch: batches made ahead, by up to `threads`
    threads.
    """

    split: str = "train"
    seed: int = 0
    sampling: Sampling = Sampling()  # noqa: RUF009 - frozen
    languages: Sequence[str] | None = None
    shuffle: bool = True
    epochs: int | None = None
    data_shards: int = 1
    shards: Sequence[int] | None = None
    use_cached: bool = False
    prefetch: int = 2
    threads: int = 1


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
    vocabulary: Vocabulary | None = None,
) -> BatchSource:
    """Batches of `batch` rows of `length` tokens from a registered SeqIO mixture or task.

    The output features of its tasks are `LanguageFeature`s (see `tasks/xlm.py`), one for text, two
    for pairs, or SeqIO's own, whose names and ids `task_text` understands. vocabulary: the
    run's; default: that of the first task's features. The others: see `BatchSettings`.

    `identity` holds what must be equal to continue, and `identity["sampling_table"]` the shares and
    epochs.
    Raises UserError: unknown mixture or split, empty text, text that fits no row, a bad size.
    """
    settings = BatchSettings(
        split=split,
        seed=seed,
        sampling=sampling or Sampling(),
        languages=languages,
        shuffle=shuffle,
        epochs=epochs,
        data_shards=data_shards,
        shards=shards,
        use_cached=use_cached,
        prefetch=prefetch,
        threads=threads,
    )
    return open_mixture(mixture, preprocessor, batch, length, settings, vocabulary)


def open_mixture(
    mixture: str,
    preprocessor: Preprocessor,
    batch: int,
    length: int,
    settings: BatchSettings,
    vocabulary: Vocabulary | None = None,
) -> BatchSource:
    """`mixture_source`, its settings together."""
    # First of all: TensorFlow cannot be told once it has made a tensor.
    keep_tensorflow_off_accelerators()
    # After that, since it imports TensorFlow.
    from xlingjax.data.draws import ORDER, PARTNERS, first_seed
    from xlingjax.data.stream import BatchPlan, PlannedSource

    _check_sizes(batch, length, settings.data_shards)
    tasks = tasks_of(mixture, settings.split)
    if vocabulary is None:
        vocabulary = vocabulary_of(tasks[0])
    tasks, texts = _texts(tasks, settings, vocabulary, preprocessor)
    names = _names(tasks, texts)
    run_languages = _run_languages(settings.languages, texts)
    language_ids = _language_ids(run_languages, texts)

    plan_rows = RowPlan(preprocessor, length, vocabulary)
    plans = [plan_rows.open(text) for text in texts]
    require_rows(plans, names)
    seed = _seed_of(preprocessor.name, settings.seed)
    reader = RowReader(
        plans,
        language_ids,
        preprocessor.columns(length),
        pad_id=vocabulary.pad_id,
        bos_id=vocabulary.bos_id,
        seed=first_seed(seed, PARTNERS),
    )

    sampling = settings.sampling
    sizes = {name: plan.sizes for name, plan in zip(names, plans, strict=True)}
    shares = sampling.shares(_amounts(sampling, mixture, tasks, names, sizes))

    plan = BatchPlan(
        reader=reader,
        order=RowOrder(
            tuple(plan.counts for plan in plans), first_seed(seed, ORDER), settings.shuffle, batch
        ),
        map=preprocessor.map(vocabulary, token_counts(texts, vocabulary), length),
        fields=preprocessor.fields,
        shares=np.array(list(shares.values())),
        batch=batch,
        seed=seed,
        same_language=sampling.same_language,
        shuffle=settings.shuffle,
        epochs=settings.epochs,
        prefetch=settings.prefetch,
        threads=settings.threads,
    )
    # By content: files may be moved between two runs, but not edited.
    hashes = {name: text.content_hash for name, text in zip(names, texts, strict=True)}
    # All that changes a batch; prefetch, threads and shards change none and may differ.
    identity = {
        "preprocessor": preprocessor.name,
        "options": options(preprocessor),
        "vocabulary": vocabulary.sha256,
        "languages": list(run_languages),
        "split": settings.split,
        "batch": batch,
        "length": length,
        "seed": settings.seed,
        "shuffle": settings.shuffle,
        "epochs": settings.epochs,
        "same_language": sampling.same_language,
        "text": hashes,
        "sampling_table": sampling_table(sizes, shares, rows_per_step=batch),
    }
    shards = settings.shards
    if shards is None:
        shards = _shards(settings.data_shards)
    left_out = {
        name: plan.left_out for name, plan in zip(names, plans, strict=True) if plan.left_out.pairs
    }
    return PlannedSource(
        plan,
        data_shards=settings.data_shards,
        shards=tuple(shards),
        shapes=preprocessor.shapes(batch, length),
        languages=run_languages,
        identity=identity,
        texts=tuple(texts),
        left_out=left_out,
    )


def keep_tensorflow_off_accelerators() -> None:
    """They are JAX's."""
    # Read when TensorFlow is imported, so it stands before that.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import_tensorflow()
    import tensorflow as tf

    # TensorFlow takes all memory of every GPU that it sees, as soon as it makes a tensor.
    if tf.config.list_physical_devices("GPU"):
        tf.config.set_visible_devices([], "GPU")


def _check_sizes(batch: int, length: int, data_shards: int) -> None:
    if batch < 1 or length < 8:
        raise UserError(f"a batch needs at least 1 row of 8 tokens, got {batch} rows of {length}")
    if data_shards < 1 or batch % data_shards:
        raise UserError(
            f"a batch of {batch} rows does not divide into {data_shards} data shards; change either"
        )


def tasks_of(mixture: str, split: str) -> list[Any]:
    """The tasks of a mixture that have the split, in the mixture's order."""
    import_tensorflow()
    import seqio

    try:
        provider = seqio.get_mixture_or_task(mixture)
    except ValueError:
        raise UserError(
            f"no SeqIO task or mixture '{mixture}' is registered; import the module that adds it"
        ) from None
    # Of a mixture only some tasks may have held-out text.
    tasks = [task for task in seqio.get_subtasks(provider) if split in task.splits]
    if not tasks:
        raise UserError(
            f"no task of '{mixture}' has a split '{split}'; it has"
            f" {', '.join(sorted(provider.splits))}"
        )
    return tasks


def vocabulary_of(task: Any) -> Vocabulary:
    """The vocabulary of a task's features. SeqIO demands one per feature name of a mixture, so the
    first task's is everybody's. Raises UserError where it is not ours, and so may have no MASK."""
    from xlingjax.data.vocabulary.seqio import SeqioVocabulary

    feature = next(iter(task.output_features.values()))
    if not isinstance(feature.vocabulary, SeqioVocabulary):
        raise UserError(
            f"task {task.name}: its features have {type(feature.vocabulary).__name__}; say which"
            " vocabulary the rows are made with: vocabulary=Vocabulary.load(path)"
        )
    return feature.vocabulary.vocabulary


def token_counts(texts: Sequence[BlockText], vocabulary: Vocabulary) -> np.ndarray:
    """int64 [V]: how often each token stands in the text, since XLM (§3.3) draws the tokens to mask
    by their frequency."""
    counts = np.zeros(vocabulary.size, np.int64)
    # The `</s>` that opens the first sentence of all.
    counts[vocabulary.eos_id] = 1
    for text in texts:
        counts += text.counts()
    return counts


def _texts(
    tasks: list[Any], settings: BatchSettings, vocabulary: Vocabulary, preprocessor: Preprocessor
) -> tuple[list[Any], list[BlockText]]:
    """(the tasks whose languages the preprocessor takes: all, unless it chooses; the text of each,
    of as many sides as the preprocessor reads)."""
    from xlingjax.data.task_records import declared_languages, task_text

    taken = []
    texts = []
    left = []
    for task in tasks:
        codes = declared_languages(task)
        # What is not taken need not be read, where that is known before.
        if codes:
            require_sides(task, len(codes), preprocessor)
            if not preprocessor.takes(codes):
                left.append(codes)
                continue
        text = task_text(
            task, settings.split, vocabulary, settings.use_cached, settings.languages or ()
        )
        require_sides(task, text.sides, preprocessor)
        if not preprocessor.takes(text.languages):
            left.append(text.languages)
            continue
        taken.append(task)
        texts.append(text)
    if not taken:
        pairs = ", ".join("-".join(codes) for codes in left)
        raise UserError(
            f"'{preprocessor.name}' reads none of the pairs {pairs}: add others to PARALLEL"
        )
    return taken, texts


def require_sides(task: Any, sides: int, preprocessor: Preprocessor) -> None:
    if sides != preprocessor.sides:
        raise UserError(
            f"task {task.name} cannot feed '{preprocessor.name}', which reads"
            f" {KINDS[preprocessor.sides]}"
        )


def _names(tasks: list[Any], texts: list[BlockText]) -> list[str]:
    """What each text is called in weights and tables: by its languages, or by its task where
    several texts are in the same languages."""
    # By languages where it can be, since sampling weights and tables are written so.
    by_language = [text.name for text in texts]
    names = []
    for task, name in zip(tasks, by_language, strict=True):
        if by_language.count(name) > 1:
            name = task.name
        names.append(name)
    return names


def _run_languages(languages: Sequence[str] | None, texts: list[BlockText]) -> tuple[str, ...]:
    """The run's languages in sorted order, so that ids do not depend on the order of tasks."""
    return tuple(sorted(set(languages or _languages_of(texts))))


def _languages_of(texts: list[BlockText]) -> set[str]:
    languages: set[str] = set()
    for text in texts:
        languages.update(text.languages)
    return languages


def _language_ids(run_languages: tuple[str, ...], texts: list[BlockText]) -> list[list[int]]:
    """Of each text the ids of its languages, in the order of its sides."""
    lacking = _languages_of(texts) - set(run_languages)
    if lacking:
        text_languages = sorted(_languages_of(texts))
        raise UserError(
            f"the run's languages {', '.join(run_languages)} lack some of"
            f" {', '.join(text_languages)}: add them to LANGUAGES, or leave their text out"
        )
    ids = []
    for text in texts:
        ids.append([run_languages.index(code) for code in text.languages])
    return ids


def _amounts(
    sampling: Sampling,
    mixture: str,
    tasks: list[Any],
    names: list[str],
    sizes: dict[str, dict[str, float]],
) -> dict[str, float]:
    """n_i of every text (XLM §3.1), of which `sampling` makes shares."""
    if sampling.counts == "mixture":
        return {name: rate_of(mixture, task) for name, task in zip(names, tasks, strict=True)}
    return {name: size[sampling.counts] for name, size in sizes.items()}


def rate_of(mixture: str, task: Any) -> float:
    import seqio

    provider = seqio.get_mixture_or_task(mixture)
    if isinstance(provider, seqio.Mixture):
        return provider.get_rate(task)
    # A task alone is the whole of what is drawn.
    return 1.0


def _seed_of(name: str, seed: int) -> int:
    """The seed of one objective's source: MLM and TLM of one run must not draw alike."""
    digest = hashlib.sha256(f"{name}:{seed}".encode()).digest()
    # Five bytes, because `draws.seed_pair` keeps 48 bits of a seed.
    return int.from_bytes(digest[:5])


def _shards(data_shards: int) -> tuple[int, ...]:
    """The data shards that this host reads."""
    if data_shards == 1:
        return (0,)
    import jax

    hosts = jax.process_count()
    if data_shards % hosts:
        # Too few shards to share out: every host reads all rows and its devices take theirs.
        return tuple(range(data_shards))
    share = data_shards // hosts
    first = jax.process_index() * share
    return tuple(range(first, first + share))
