"""The tokens of any SeqIO task, as records that rows are planned over."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from xlingjax.data.fingerprint import fingerprint
from xlingjax.data.seqio.adapters import LanguageFeature, TextFiles
from xlingjax.data.seqio.vocabulary import SeqioVocabulary
from xlingjax.data.store.entries import Entry, Writer, get, name_of
from xlingjax.data.store.tokenise import (
    FORMAT,
    SHARD_LINES,
    SHARDS,
    BlockText,
    TokenFile,
    Tokens,
    blocks_of_files,
    end_sentences,
    joined,
    of_shards,
    shard_of,
)
from xlingjax.data.vocabulary.sentencepiece import Encoded, Vocabulary
from xlingjax.errors import UserError
from xlingjax.runtime.machine import first_line

Lines = Callable[[Any], Encoded]
"""A ragged batch of a feature -> (all lines' ids, int32 [T]; each one's tokens, int32 [lines])."""


def task_text(
    task: seqio.Task,
    split: str,
    vocabulary: Vocabulary,
    use_cached: bool = False,
    languages: Sequence[str] = (),
) -> BlockText:
    """The tokens of a SeqIO task of text (one feature) or of aligned text (two or three).

    Its features are `LanguageFeature`s, or SeqIO's own: `targets` alone, or `inputs` and `targets`.
    Then the languages are those of `languages` that the task's name names, or the only one, and
    ids become the vocabulary's as `feature_reader` says. The task's own preprocessors are run, and
    an end of sentence that they append is not doubled.

    Plain files come from the token cache; any other source that reads files (TFDS, TFRecords, a
    SeqIO cache with `use_cached`) is read once through the task's preprocessors and kept there too,
    under the task's name, files and what the preprocessors do (`fingerprint`). A source without
    files, a function, is read at every start, and so is one whose preprocessors hold what cannot be
    compared: nothing would tell that it changed. Raises UserError: `use_cached` finds no
    cache, no language or no vocabulary is known, the task's own code fails.
    """
    if _is_plain(task) and not use_cached:
        return task.source.blocks(split, vocabulary)
    require_cache(task, use_cached)
    # Opened when it is needed: what is in the token cache takes no reading.
    data = functools.cache(lambda: open_task(task, split, use_cached))
    names = tuple(task.output_features)
    codes = declared_languages(task)
    if not codes:
        names = text_features(task, data().element_spec)
        codes = task_languages(task, names, languages)

    def read() -> list[dict[str, Any]]:
        return _shards(lines_of(task, data(), vocabulary), vocabulary)

    def make(writer: Writer) -> None:
        sides = read()
        writer.facts = {"sides": sides}
        writer.needs = [f"{SHARDS}/{name}" for side in sides for name in side["shards"]]

    key = _key(task, split, use_cached)
    if key is None:
        sides = read()
    else:
        name = name_of(FORMAT, SHARD_LINES, key, names, vocabulary.sha256)
        sides = get("texts", name, make).facts["sides"]
    files = [TokenFile(**facts) for facts in sides]
    return blocks_of_files(codes, files, vocabulary, f"task {task.name}")


def _shards(chunks: Iterator[list[Tokens]], vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Each side's shards, stored (see `of_shards`), of chunks of lines, of each side one."""
    shards: list[list[Entry]] = []
    parts: list[list[Tokens]] = []
    lines = 0
    # None behind the last chunk: what is left is a shard, too.
    for chunk in itertools.chain(chunks, [None]):
        if chunk is not None:
            parts.append(chunk)
            lines += chunk[0].lengths.size
        # Chunks divide a shard.
        if parts and lines >= SHARD_LINES or chunk is None and (lines or parts and not shards):
            sides = [joined(side, vocabulary) for side in zip(*parts, strict=True)]
            shards = shards or [[] for _ in sides]
            for of_side, side in zip(shards, sides, strict=True):
                of_side.append(shard_of(side, vocabulary))
            parts = []
            lines = 0
    return [of_shards(of_side) for of_side in shards]


def require_cache(task: seqio.Task, use_cached: bool) -> None:
    """Raises UserError for a cache asked for and not there, or required and not asked for."""
    if task.requires_caching and not use_cached:
        raise UserError(
            f"task {task.name} is read from its SeqIO cache alone: set use_cached=True (in a recipe"
            " USE_CACHED)"
        )
    if use_cached and not task.cache_dir:
        raise UserError(
            f"task {task.name} has no SeqIO cache; write it with `seqio_cache_tasks"
            f" --tasks={task.name} --output_cache_dir=DIR` and name DIR with"
            " `seqio.add_global_cache_dirs`, or set use_cached=False"
        )


def _is_plain(task: seqio.Task) -> bool:
    """Whether its lines are those of files as they stand, so that the token cache has them."""
    if not isinstance(task.source, TextFiles):
        return False
    for feature in task.output_features.values():
        if not isinstance(feature, LanguageFeature):
            return False
    # Any other may drop, change or cut lines.
    return all(map(_only_tokenises, task.preprocessors))


def _only_tokenises(preprocessor: Any) -> bool:
    if isinstance(preprocessor, seqio.CacheDatasetPlaceholder):
        return True
    return _function(preprocessor) is seqio.preprocessors.tokenize


def _function(preprocessor: Any) -> Any:
    while isinstance(preprocessor, functools.partial):
        preprocessor = preprocessor.func
    return preprocessor


def open_task(task: seqio.Task, split: str, use_cached: bool = False) -> tf.data.Dataset:
    """One pass over a task's examples, in order. Raises UserError where its own code fails, and as
    `require_cache`."""
    require_cache(task, use_cached)
    try:
        return task.get_dataset(
            None, split, use_cached=use_cached, shuffle=False, num_epochs=1, try_in_mem_cache=False
        )
    except UserError:
        raise
    # The task's code may raise anything.
    except Exception as error:
        raise failed(task, error) from error


def failed(task: seqio.Task, error: Exception) -> UserError:
    return UserError(
        f"task {task.name} cannot be read: {type(error).__name__}: {first_line(error)}"
    )


def text_features(task: seqio.Task, spec: Mapping[str, Any]) -> tuple[str, ...]:
    """A task's text features, in the order of its sides. Raises UserError where unclear."""
    features = task.output_features
    if all(isinstance(one, LanguageFeature) for one in features.values()):
        return tuple(features)
    # T5's language models have an empty `inputs`, or declare one that no example has.
    empty = _left_empty(task)
    present = tuple(name for name in features if name in spec and name not in empty)
    if len(present) == 1 or {*present} == {"inputs", "targets"}:
        return tuple(sorted(present))
    raise UserError(
        f"task {task.name} has the features {', '.join(features)}; its text is read from one"
        " feature, from `inputs` and `targets`, or from features that are"
        " xlingjax.data.seqio.adapters.LanguageFeature"
    )


def _left_empty(task: seqio.Task) -> set[str]:
    """The features that `rekey` makes empty, as T5's language models do: {"inputs": None}."""
    empty: set[str] = set()
    for one in task.preprocessors:
        if _function(one) is seqio.preprocessors.rekey:
            keys = getattr(one, "keywords", {}).get("key_map") or {}
            empty = {new for new, old in keys.items() if not old}
    return empty


def task_languages(
    task: seqio.Task, names: Sequence[str], languages: Sequence[str] = ()
) -> tuple[str, ...]:
    """The language of each of these features. Raises UserError where none is named."""
    codes = declared_languages(task) or named_languages(task.name, languages)
    if len(codes) == len(names):
        return codes
    if len(names) == 1 and len({*languages}) == 1:
        return tuple(languages)
    example = f"{task.name}{'.de' if len(names) == 1 else '.de_en'}"
    raise UserError(
        f"task {task.name}: the language of {' and '.join(names)} is not known: call the task"
        f" {example}, with languages= (in a recipe LANGUAGES) set to the run's, or give it features"
        " of xlingjax.data.seqio.adapters.LanguageFeature"
    )


def named_languages(name: str, languages: Sequence[str]) -> tuple[str, ...]:
    """`languages` that a name ends in: ("de",) of "c4.de". SeqIO refuses "zh-Hant"'s hyphen."""
    spelled = {code.replace("-", "_"): code for code in languages}
    # Longest first: zh_Hant is not zh.
    codes = "|".join(map(re.escape, sorted(spelled, key=len, reverse=True)))
    found = codes and re.search(rf"(?<![A-Za-z])(?:{codes})(?:_(?:{codes}))*$", name)
    return tuple(spelled[code] for code in re.findall(codes, found[0])) if found else ()


def declared_languages(task: seqio.Task) -> tuple[str, ...]:
    """The languages that a task's features have; () where SeqIO's own have none."""
    features = task.output_features.values()
    if not all(isinstance(one, LanguageFeature) for one in features):
        return ()
    return tuple(feature.language for feature in features)


def feature_reader(
    task: seqio.Task, name: str, spec: Mapping[str, Any], vocabulary: Vocabulary
) -> tuple[str, Lines]:
    """(the column of a task that is read for a feature, what makes the vocabulary's ids of it).

    Ids of the vocabulary itself and ids that SeqIO passes through are taken (these are the run's
    numbers). Of ids of another vocabulary the text is needed, which `seqio.preprocessors.tokenize`
    keeps as NAME_pretokenized; it is tokenised anew. Raises UserError where it is not there, or was
    changed after that.
    """
    theirs = task.output_features[name].vocabulary
    where = f"task {task.name}"
    if spec[name].shape.rank != 1:
        raise UserError(f"{where}: '{name}' is no line of ids: make an example of each line")
    if isinstance(theirs, SeqioVocabulary) and theirs.vocabulary.sha256 != vocabulary.sha256:
        raise UserError(f"{where}: its ids are of another vocabulary than the run's")
    if isinstance(theirs, (SeqioVocabulary, seqio.PassThroughVocabulary)):
        return name, functools.partial(_ids, task, vocabulary)
    text = f"{name}_pretokenized"
    if text in spec and spec[text].dtype == tf.string:
        _require_unchanged(task)
        return text, functools.partial(_tokenised, task, vocabulary)
    raise UserError(
        f"{where}: its ids of '{name}' are of {type(theirs).__name__}, not of the run's vocabulary,"
        " and it does not keep the text: let seqio.preprocessors.tokenize copy_pretokenized, or"
        " give the feature SeqioVocabulary(Vocabulary.load(...))"
    )


def _require_unchanged(task: seqio.Task) -> None:
    """Raises UserError where preprocessors change a task's ids after they were made."""
    preprocessors = [_function(one) for one in task.preprocessors]
    allowed = (
        seqio.preprocessors.tokenize,
        seqio.preprocessors.tokenize_and_append_eos,
        seqio.preprocessors.append_eos,
        seqio.preprocessors.append_eos_after_trim,
    )
    # From the start where no tokenizer is seen: one of the others tokenises, and may do more.
    at = next((i for i, one in enumerate(preprocessors) if one in allowed[:2]), 0)
    for one in preprocessors[at:]:
        if one not in allowed and not isinstance(one, seqio.CacheDatasetPlaceholder):
            what = getattr(one, "__name__", type(one).__name__)
            raise UserError(
                f"task {task.name}: its text cannot be tokenised anew with the run's vocabulary,"
                f" since '{what}' changes its ids afterwards; give its features"
                " SeqioVocabulary(Vocabulary.load(...))"
            )


def _ids(task: seqio.Task, vocabulary: Vocabulary, ragged: Any) -> Encoded:
    # Lines that are all of one length come as a plain tensor.
    if not isinstance(ragged, tf.RaggedTensor):
        ragged = tf.RaggedTensor.from_tensor(ragged)
    ids = ragged.flat_values.numpy()
    wrong = ids[(ids < 0) | (ids >= vocabulary.size)]
    if wrong.size:
        raise UserError(
            f"task {task.name}: id {wrong[0]} is not one of the vocabulary's {vocabulary.size}"
        )
    return ids.astype(np.int32), ragged.row_lengths().numpy().astype(np.int32)


def _tokenised(task: seqio.Task, vocabulary: Vocabulary, lines: Any) -> Encoded:
    try:
        texts = [line.decode() for line in lines.numpy().tolist()]
    except UnicodeDecodeError as error:
        raise UserError(f"task {task.name}: a text is not UTF-8: {error.object[:60]!r}") from None
    return vocabulary.encode_lines(texts)


def lines_of(
    task: seqio.Task, data: tf.data.Dataset, vocabulary: Vocabulary
) -> Iterator[list[Tokens]]:
    """The lines of a task's dataset, some at a time, of each side. Raises UserError where the
    task's code fails."""
    readers = {}
    for name in text_features(task, data.element_spec):
        column, read = feature_reader(task, name, data.element_spec, vocabulary)
        readers[column] = read
    eos_id = vocabulary.eos_id
    for batch in _batches(task, data, readers):
        sides = []
        for column, read in readers.items():
            sides.append(end_sentences(*without_end(*read(batch[column]), eos_id), eos_id))
        yield sides


def _batches(
    task: seqio.Task, data: tf.data.Dataset, columns: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    data = data.map(lambda example: {column: example[column] for column in columns})
    try:
        yield from data.ragged_batch(1024)
    except tf.errors.OpError as error:
        raise failed(task, error) from error


def without_end(ids: np.ndarray, lengths: np.ndarray, eos_id: int) -> Encoded:
    """Lines without the `</s>` that a task's preprocessors put behind them (`append_eos`)."""
    last = np.cumsum(lengths)[lengths > 0] - 1
    ended = np.zeros(len(lengths), bool)
    ended[lengths > 0] = ids[last] == eos_id
    keep = np.ones(len(ids), bool)
    keep[last[ids[last] == eos_id]] = False
    return ids[keep], (lengths - ended).astype(np.int32)


def _key(task: seqio.Task, split: str, use_cached: bool) -> str | None:
    """What tells that the lines of a task changed; None where nothing does."""
    files = _files(task, split, use_cached)
    if files is None:
        return None
    code = fingerprint((task.preprocessors, task.output_features))
    if code is None:
        return None
    return f"seqio:{task.name}:{split}:{use_cached}:{files}:{code}"


def _files(task: seqio.Task, split: str, use_cached: bool) -> Any:
    """What tells that the files of a task, or how they are read, changed; None for a source that
    has no files, or code that cannot be told from other code."""
    if use_cached:
        return _stamps(tf.io.gfile.glob(f"{task.cache_dir}/*{split}*"))
    if isinstance(task.source, TextFiles):
        return task.source.keys(split)
    if isinstance(task.source, seqio.FunctionDataSource):
        return None
    # Plain files go by content; TFRecords would have to be read whole for that.
    try:
        stamps = _stamps(task.source.list_shards(split))
    # TFDS raises many things where a set is not there.
    except Exception as error:
        raise failed(task, error) from error
    if stamps is None:
        return None
    settings = vars(task.source)
    # Which part of the files a split of TFDS is; what else it holds is found when it is opened.
    if isinstance(task.source, seqio.TfdsDataSource):
        loader = task.source.tfds_dataset
        parts = [str(part) for part in loader.files(split)]
        settings = {"parts": parts, "decoders": loader._decoders}
    read = fingerprint((type(task.source), settings))
    if read is None:
        return None
    return stamps, read


def _stamps(shards: Sequence[str]) -> list[tuple[str, int, int]] | None:
    """(name, size, time of change) of each shard; None where one is no file but a function."""
    gfile = tf.io.gfile
    stamps = []
    for name in sorted(shards):
        if not gfile.exists(name) or gfile.isdir(name):
            return None
        stat = gfile.stat(name)
        stamps.append((name, stat.length, stat.mtime_nsec))
    return stamps
