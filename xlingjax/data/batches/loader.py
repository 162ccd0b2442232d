"""Batches: what a source of them is (`BatchSource`), how a host's rows become global arrays, and
the source of one objective from text, whose rows are planned, drawn, read and masked.

A batch is a function of (seed, step): a position is a number, restoring reads nothing, prefetching
cannot disturb it, and every host sees the same batches.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from xlingjax.data.features import FIELDS, Batch, Shapes
from xlingjax.data.rows.draws import Draws, seed_of
from xlingjax.data.rows.left_out import LeftOut
from xlingjax.data.rows.plan import (
    BatchMap,
    Preprocessor,
    RowPlan,
    RowReader,
    TextRows,
    options,
)
from xlingjax.data.sampling import Sampling, sampling_table
from xlingjax.data.store.tokenise import BlockText, text_blocks
from xlingjax.data.text.sources import Patterns, find_negatives, find_pairs, find_text
from xlingjax.data.text.texts import repeated
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.runtime.machine import is_primary

ENDLESS = 1 << 62  # batches of a source without an end


# A protocol, so that a user's source need not inherit from anything here.
@runtime_checkable
class BatchSource(Protocol):
    """An endless (or, for evaluation, finite) stream of batches with an exact position.

    The stream does not depend on the number of hosts: each reads its devices' rows, or all.
    """

    shapes: Shapes
    """Global shape of every field (dtypes: `features.FIELDS`). Batches may have fewer tokens."""
    languages: tuple[str, ...]
    """Sorted run languages: the index is the language id."""
    identity: dict[str, Any]
    """JSON values that must be equal for a position to be valid (mixture, hashes, lengths ...)."""

    def next(self) -> Batch:
        """This host's rows of the next global batch. Raises StopIteration where a source ends."""

    def state(self) -> int:
        """The position after the last `next()`: the number of the next batch."""

    def restore(self, state: int) -> None:
        """Continues from a position: the next batch is the one that would have followed."""

    def close(self) -> None:
        """Frees threads and files; the source is not usable afterwards."""


@dataclasses.dataclass(frozen=True)
class Batches:
    """What opens an objective's batches when called, and what is known of them before."""

    shapes: Shapes
    """Global shape of every field; {}: not known before the source is open."""
    opener: Callable[[], BatchSource]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """How they are made, for the run's record."""
    positions: int = 0
    """Positions of the model that the rows use, where these are not their columns; 0: they are."""
    preprocessor: Preprocessor | None = None
    """What makes them of text; None: they are not made of text."""
    shortest: Shapes = dataclasses.field(default_factory=dict)
    """Shapes of the shortest batch; {}: all batches have `shapes`."""

    def __call__(self) -> BatchSource:
        return self.opener()


def first_batch(source: BatchSource) -> Batch:
    """This host's rows of the first batch of all; the position stays as it is."""
    position = source.state()
    source.restore(0)
    batch = source.next()
    source.restore(position)
    return batch


def to_global(rows: Batch, sharding: Any, shapes: Shapes) -> dict[str, Any]:
    """Global `jax.Array`s from this host's rows.

    `sharding` places the row axis (it may leave the other axes out); `shapes` are the source's
    global shapes. The host has either all rows of the batch or exactly the contiguous rows its own
    devices hold. Raises UserError when it has neither.
    """
    import jax

    def place(name: str, local: np.ndarray) -> jax.Array:
        shape = tuple(shapes[name])
        held = [
            index[0].indices(shape[0])[:2]
            for index in sharding.addressable_devices_indices_map(shape).values()
        ]
        # `local` begins with row 0 of a whole batch, else with this host's devices' first row.
        start = 0 if local.shape[0] == shape[0] else min(begin for begin, _ in held)
        end = max(end for _, end in held)
        # NumPy would cut the slice short, and JAX complain of a shape that nobody wrote.
        if end - start > local.shape[0]:
            raise UserError(
                f"this host read {local.shape[0]} of {shape[0]} rows and its devices hold rows up"
                f" to {end}; set data_shards=1"
            )

        def read(index: Any) -> np.ndarray:
            begin, end, _ = index[0].indices(shape[0])
            rows_of_device = slice(begin - start, end - start)
            # Cast here and not before, so that only the rows of this host's devices are copied.
            return np.asarray(local[(rows_of_device, *index[1:])], dtype=FIELDS[name].dtype)

        return jax.make_array_from_callback(shape, sharding, read)

    return {name: place(name, array) for name, array in rows.items()}


class NumberedSource:
    """Batch n is `batches[n]`; a position is the number of the next batch. Batches are made ahead
    of their use, in Grain's threads.

    threads, prefetch: batches are made by so many threads, so many ahead; 0: when they are asked
    for. texts: what is read, where that is text; asked: the `hashes_asked` of labelled
    records; left_out: of each that is pairs, how many its rows have no room for. The others: see
    `BatchSource`.
    """

    texts: tuple[BlockText, ...] = ()
    asked: Sequence[np.ndarray] = ()
    left_out: Mapping[str, LeftOut] = MappingProxyType({})

    def __init__(
        self,
        batches: Any,
        *,
        shapes: Shapes,
        languages: Sequence[str],
        identity: dict[str, Any],
        threads: int = 1,
        prefetch: int = 0,
    ):
        self.shapes = dict(shapes)
        self.languages = tuple(languages)
        self.identity = identity
        self.batches = batches
        # Here: what is not trained needs no Grain, whose import takes long.
        import grain

        # Fewer batches ahead than threads would leave some of these idle.
        ahead = max(prefetch, threads) if prefetch else 0
        options = grain.ReadOptions(num_threads=threads if ahead else 0, prefetch_buffer_size=ahead)
        self._iterator = iter(grain.MapDataset.source(batches).to_iter_dataset(options))

    def next(self) -> Batch:
        return next(self._iterator)

    def state(self) -> int:
        return self._iterator.get_state()["next_index"]

    def restore(self, state: int) -> None:
        self._iterator.set_state({"next_index": state})

    def close(self) -> None:
        self._iterator.close()


def as_declared(batch: Batch, fields: Sequence[str]) -> Batch:
    """The fields of a batch, in the types that `features.FIELDS` says."""
    return {name: batch[name].astype(FIELDS[name].dtype, copy=False) for name in fields}


ROWS_TOGETHER = 512
"""Rows that are looked up at a time, of several steps where batches are small: a look into a block
takes as long for one row as for ten."""
KINDS = {
    1: ("text of one language", "MONO"),
    2: ("pairs", "PARALLEL"),
    3: ("pairs with negatives", "NEGATIVES"),
}
"""Sides of a preprocessor -> (what it reads, the macro that names it)."""


@dataclasses.dataclass(frozen=True)
class BatchSettings:
    """How batches are drawn from texts, whichever objective reads them.

    epochs: None draws for ever by `sampling`; a number reads each text that often, in order of
    languages, rows of one language to a batch if `sampling.same_language`, and pads the last batch
    with empty rows.
    languages: the run's (default: those of the text); the index in their sorted order is the
    language id. data_shards: the rows of a batch are cut in so many equal parts, of which each JAX
    process makes an equal share, or all if that does not divide; the global batch is the same.
    prefetch: batches made ahead, by up to `threads` threads.
    """

    seed: int = 0
    sampling: Sampling = Sampling()  # noqa: RUF009 - frozen
    languages: Sequence[str] | None = None
    shuffle: bool = True
    epochs: int | None = None
    data_shards: int = 1
    prefetch: int = 2
    threads: int = 1


BLOCKS_TOGETHER = 4  # mixed together: a few files are read at a time, not all of them
_UNIT = 1 << 40  # shares are counted in so many parts of one


class RowOrder:
    """The order in which a text gives its rows, epoch after epoch: the blocks of rows in a random
    order, the rows of `BLOCKS_TOGETHER` at a time in one.

    counts: rows of each block. shuffle: False reads rows as they stand.
    """

    def __init__(self, counts: Sequence[int] | np.ndarray, seed: int, shuffle: bool = True):
        self._counts = np.asarray(counts, np.int64)
        self._ends = np.cumsum(self._counts)
        self.size = int(self._ends[-1])
        self._seed = seed
        self._shuffle = shuffle
        # Caches of its own: an order lives as long as its source.
        self._blocks = functools.lru_cache(2)(self._blocks_of_epoch)
        self._window = functools.lru_cache(2)(self._rows_of_window)

    def rows(self, begin: int, end: int) -> np.ndarray:
        """int64 [end - begin]: numbers of the rows at places `begin` to `end` of all epochs."""
        if not self._shuffle:
            return np.arange(begin, end) % self.size
        parts = []
        while begin < end:
            epoch, place = divmod(begin, self.size)
            _, window_ends = self._blocks(epoch)
            number = bisect.bisect_right(window_ends, place)
            first = window_ends[number - 1] if number else 0
            rows = self._window(epoch, number)[place - first : place - first + end - begin]
            parts.append(rows)
            begin += rows.size
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts)

    def _blocks_of_epoch(self, epoch: int) -> tuple[np.ndarray, list[int]]:
        """(the blocks in the order of an epoch, the places at which its windows end)."""
        order = np.random.default_rng((self._seed, epoch)).permutation(self._counts.size)
        ends = np.cumsum(self._counts[order])
        return order, [*ends[BLOCKS_TOGETHER - 1 : -1 : BLOCKS_TOGETHER].tolist(), int(ends[-1])]

    def _rows_of_window(self, epoch: int, number: int) -> np.ndarray:
        """int64: the rows of one window, in the order in which they are given."""
        order, _ = self._blocks(epoch)
        blocks = order[number * BLOCKS_TOGETHER : (number + 1) * BLOCKS_TOGETHER]
        rows = np.concatenate(
            [np.arange(self._ends[b] - self._counts[b], self._ends[b]) for b in blocks]
        )
        np.random.default_rng((self._seed, epoch, number)).shuffle(rows)
        return rows


class Mix:
    """Draws from several texts by their shares, in turns that hold the shares as exactly as whole
    numbers can: after any number of draws each text has had its share, to within a few."""

    def __init__(self, shares: Sequence[float]):
        # Of the draws that the texts before leave, each text takes its part. In whole numbers, so
        # that the same draws fall on a text wherever counting begins.
        parts = [round(share * _UNIT) for share in shares]
        left = sum(parts)
        self._taken = []
        for part in parts:
            self._taken.append((left - part, left))
            left -= part

    def before(self, draws: int) -> list[int]:
        """How many of the first `draws` draws fall on each text."""
        counts = []
        for rest, left in self._taken:
            passed = draws * rest // left if left else draws
            counts.append(draws - passed)
            draws = passed
        return counts


@dataclasses.dataclass(frozen=True)
class BatchOrder:
    """The rows of every batch, as a source that Grain reads by step.

    orders: of each text. same_language: a batch is of one text; else each text has its share of the
    rows of every batch. Rows are numbered through all texts.
    """

    orders: tuple[RowOrder, ...]
    mix: Mix
    batch: int
    same_language: bool

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, step: int) -> np.ndarray:
        """int64 [batch]."""
        draws, rows_of_draw = self.batch, 1
        if self.same_language:
            draws, rows_of_draw = 1, self.batch
        before = self.mix.before(step * draws)
        after = self.mix.before((step + 1) * draws)
        rows = []
        first_row = 0
        for order, begin, end in zip(self.orders, before, after, strict=True):
            if begin < end:
                rows.append(first_row + order.rows(begin * rows_of_draw, end * rows_of_draw))
            first_row += order.size
        return np.concatenate(rows)


def finite_order(
    sizes: Sequence[int], batch: int, same_language: bool, epochs: int, seed: int, shuffle: bool
) -> np.ndarray:
    """int64 [batches, batch]: the rows of a source that ends: each text, of so many rows, `epochs`
    times, in order of the texts, the last batch filled up with -1; of one text to a batch, that of
    each text."""
    firsts = np.cumsum([0, *sizes])
    spans = [(0, int(firsts[-1]))]
    if same_language:
        spans = list(zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True))
    batches = []
    for epoch in range(epochs):
        for first, last in spans:
            rows = np.arange(first, last)
            if shuffle:
                np.random.default_rng((seed, epoch, first)).shuffle(rows)
            rows = np.pad(rows, (0, -rows.size % batch), constant_values=-1)
            batches.append(rows.reshape(-1, batch))
    return np.concatenate(batches)


@dataclasses.dataclass(eq=False, repr=False)
class TextBatches:
    """Makes the rows first .. first + count (`rows_of_host`) of the batches of one objective, by
    their numbers."""

    order: BatchOrder | np.ndarray
    reader: RowReader
    fields: Sequence[str]
    map: BatchMap
    seed: int
    batch: int
    rows_of_host: tuple[int, int]

    def __post_init__(self) -> None:
        self._together = max(1, ROWS_TOGETHER // self.batch)
        self._group: tuple[int, Batch] = (-1, {})
        self._reading = threading.Lock()

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, step: int) -> Batch:
        draws = Draws(self.seed, step, self.batch, *self.rows_of_host)
        return as_declared(self.map(self._read(step), draws), self.fields)

    def _read(self, step: int) -> Batch:
        """The token fields of a step, looked up together with those of its neighbours."""
        number, place = divmod(step, self._together)
        # Several threads make batches: one reads, and the others find it read.
        with self._reading:
            known, fields = self._group
            if known != number:
                fields = self._read_group(number)
                self._group = (number, fields)
        _, count = self.rows_of_host
        begin = place * count
        return {name: values[begin : begin + count] for name, values in fields.items()}

    def _read_group(self, number: int) -> Batch:
        last = min((number + 1) * self._together, len(self.order))
        first, count = self.rows_of_host
        rows = []
        for step in range(number * self._together, last):
            rows.append(self.order[step][first : first + count])
        # Wrong partners are drawn for all rows of these steps, whichever of them this host reads.
        places = np.arange(len(rows))[:, None] * self.batch + first + np.arange(count)
        draws = Draws(self.seed, number, len(rows) * self.batch)
        return self.reader(np.concatenate(rows), draws, places.reshape(-1))


def file_batches(
    preprocessor: Preprocessor,
    vocabulary: Vocabulary,
    batch: int,
    length: int,
    settings: BatchSettings = BatchSettings(),
    *,
    mono: Patterns | Mapping[str, float] = (),
    parallel: Patterns = (),
    negatives: Patterns = (),
    holdout: float = 0.0,
) -> BatchSource:
    """Batches of one objective from text files; tokenises what is not yet in the cache.

    Give the objectives of a run the same files, so that they number languages alike (or
    `settings.languages`). mono: patterns, or {pattern: weight} of several sources. holdout: share
    of the lines that is left out. Raises UserError: none of the files that the preprocessor reads,
    an unknown language, and as `text_source`.
    """
    kind, macro = KINDS[preprocessor.sides]
    readers: dict[int, tuple[Any, Callable[[Any], Sequence[Any]]]] = {
        1: (mono, find_text),
        2: (parallel, find_pairs),
        3: (negatives, find_negatives),
    }
    # Before any file is looked for: an objective without its text names the macro that is empty.
    if not readers[preprocessor.sides][0]:
        raise UserError(
            f"'{preprocessor.name}' reads {kind}; none is given: set {macro}, or leave this"
            " objective out"
        )
    found = {sides: find(given) if given else [] for sides, (given, find) in readers.items()}
    # Of all files, not the objective's alone: a run's text and pairs number languages alike.
    if not settings.languages:
        codes = {code for files in found.values() for file in files for code in file.languages}
        settings = dataclasses.replace(settings, languages=sorted(codes))
    weights: Mapping[str, float] = {"": 1.0}
    if isinstance(mono, Mapping) and preprocessor.sides == 1:
        weights = mono
    groups: dict[tuple[str, tuple[str, ...]], list[Any]] = {}
    for source in weights:
        for file in find_text(source) if source else found[preprocessor.sides]:
            groups.setdefault((source, file.languages), []).append(file)
    require_taken(preprocessor, {languages for _, languages in groups})
    texts: dict[str, BlockText] = {}
    names: dict[str, dict[str, str]] = {}
    # Sorted: the order of texts must not depend on that of the patterns.
    for (source, languages), files in sorted(groups.items()):
        if is_primary():
            for path, first in repeated(files):
                _warn(f"{path}: the same text as {first}: both count and are drawn; name one")
        if preprocessor.takes(languages):
            text = text_blocks(files, vocabulary, holdout)
            name = f"{text.name} of {source}" if source else text.name
            names.setdefault(source, {})[text.name] = name
            texts[name] = text

    def shares(amounts: Mapping[str, float]) -> dict[str, float]:
        """Each source's weight, shared among its languages by `Sampling`."""
        shares = {}
        of_all = sum(weights[source] for source in names)
        for source, of_source in names.items():
            own = {language: amounts[name] for language, name in of_source.items()}
            for language, share in settings.sampling.shares(own).items():
                shares[of_source[language]] = share * weights[source] / of_all
        return shares

    return text_source(preprocessor, vocabulary, texts, batch, length, settings, shares=shares)


# Several objectives read the same files.
@functools.lru_cache
def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def require_taken(preprocessor: Preprocessor, texts: Collection[tuple[str, ...]]) -> None:
    """Raises UserError where it takes text in none of these languages."""
    if not any(map(preprocessor.takes, texts)):
        pairs = ", ".join("-".join(codes) for codes in texts)
        raise UserError(
            f"'{preprocessor.name}' reads none of the pairs {pairs}: add others to PARALLEL"
        )


def text_source(
    preprocessor: Preprocessor,
    vocabulary: Vocabulary,
    texts: Mapping[str, BlockText],
    batch: int,
    length: int,
    settings: BatchSettings = BatchSettings(),
    rates: Mapping[str, float] = MappingProxyType({}),
    shares: Callable[[Mapping[str, float]], dict[str, float]] | None = None,
) -> BatchSource:
    """Batches of `batch` rows of `length` tokens of an objective from texts, by the names that
    weights and tables have for them. rates: of `Sampling.counts` "mixture"; default: sentences.
    shares: in place of `Sampling.shares`, by what that counts.

    `identity` holds what must be equal to continue, and `identity["sampling_table"]` the shares and
    epochs. Raises UserError: a bad size, languages that are not the run's, text that fits no row.
    """
    if batch < 1 or length < 8:
        raise UserError(f"a batch needs at least 1 row of 8 tokens, got {batch} rows of {length}")
    of_texts = {code for text in texts.values() for code in text.languages}
    # Sorted, so that ids do not depend on the order of texts.
    run_languages = tuple(sorted({*(settings.languages or of_texts)}))
    if of_texts - {*run_languages}:
        raise UserError(
            f"the run's languages {', '.join(run_languages)} lack some of"
            f" {', '.join(sorted(of_texts))}: add them to LANGUAGES, or leave their text out"
        )
    language_ids = [[run_languages.index(code) for code in t.languages] for t in texts.values()]
    plan = RowPlan(preprocessor, length, vocabulary)
    plans = {name: plan.open(text) for name, text in texts.items()}
    for name, rows in plans.items():
        if not rows.count:
            raise UserError(
                f"no {name} text fits rows of {length} tokens{preprocessor.lacks}; raise the length"
                " or the limit of pieces"
            )
    # n_i of every text (XLM §3.1), of which `sampling` makes shares.
    counts = settings.sampling.counts
    amounts: Mapping[str, float] = rates
    if counts != "mixture":
        amounts = {name: plan.sizes[counts] for name, plan in plans.items()}
    elif not rates:
        amounts = {name: text.sentences[0] for name, text in texts.items()}
    shares_of_texts = (shares or settings.sampling.shares)(amounts)
    seed = seed_of(preprocessor.name, settings.seed)
    reader = RowReader(
        list(plans.values()),
        language_ids,
        preprocessor.columns(length),
        vocabulary,
    )
    batches = TextBatches(
        _order(plans, shares_of_texts, batch, seed, settings),
        reader,
        preprocessor.fields,
        preprocessor.map(vocabulary, token_counts(texts.values(), vocabulary), length),
        seed,
        batch,
        _rows_of_host(batch, settings),
    )
    source = NumberedSource(
        batches,
        shapes=preprocessor.shapes(batch, length),
        languages=run_languages,
        # All that changes a batch; prefetch, threads and shards change none and may differ.
        identity={
            "preprocessor": preprocessor.name,
            "options": options(preprocessor),
            "vocabulary": vocabulary.sha256,
            "languages": list(run_languages),
            "seed": settings.seed,
            "shuffle": settings.shuffle,
            "epochs": settings.epochs,
            "same_language": settings.sampling.same_language,
            "batch": batch,
            "length": length,
            # By content: files may be moved between two runs, but not edited.
            "text": {name: text.content_hash for name, text in texts.items()},
            "sampling_table": sampling_table(
                {name: plan.sizes for name, plan in plans.items()},
                shares_of_texts,
                rows_per_step=batch,
            ),
        },
        threads=settings.threads,
        prefetch=settings.prefetch,
    )
    source.texts = tuple(texts.values())
    source.left_out = {name: p.left_out for name, p in plans.items() if p.left_out.pairs}
    return source


def _order(
    plans: Mapping[str, TextRows],
    shares: Mapping[str, float],
    batch: int,
    seed: int,
    settings: BatchSettings,
) -> BatchOrder | np.ndarray:
    same_language = settings.sampling.same_language
    if settings.epochs is not None:
        sizes = [plan.count for plan in plans.values()]
        return finite_order(sizes, batch, same_language, settings.epochs, seed, settings.shuffle)
    orders = []
    for number, plan in enumerate(plans.values()):
        orders.append(RowOrder(plan.counts, seed_of(seed, number), settings.shuffle))
    return BatchOrder(tuple(orders), Mix(list(shares.values())), batch, same_language)


def token_counts(texts: Sequence[BlockText] | Any, vocabulary: Vocabulary) -> np.ndarray:
    """int64 [V]: each token's count; XLM (§3.3) draws tokens to mask by frequency."""
    counts = np.zeros(vocabulary.size, np.int64)
    # The `</s>` that opens the first sentence of all.
    counts[vocabulary.eos_id] = 1
    for text in texts:
        counts += text.counts()
    return counts


def _rows_of_host(batch: int, settings: BatchSettings) -> tuple[int, int]:
    """(first, count) of the rows that this host makes of a batch."""
    data_shards = settings.data_shards
    if data_shards < 1 or batch % data_shards:
        raise UserError(
            f"a batch of {batch} rows does not divide into {data_shards} data shards; change either"
        )
    hosts, host = 1, 0
    if data_shards > 1:
        import jax

        # Too few shards to share out: every host reads all rows and its devices take theirs.
        if data_shards % jax.process_count() == 0:
            hosts, host = jax.process_count(), jax.process_index()
    # A host's rows are one slice of the batch.
    return host * (batch // hosts), batch // hosts
