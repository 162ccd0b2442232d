"""SeqIO tasks and mixtures for monolingual text and aligned pairs."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xlingjax.data.text.sources import Patterns, find_negatives, find_pairs, find_text
from xlingjax.data.text.texts import Pair, Text, Triple
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError


def register_text(
    *,
    vocabulary: Vocabulary,
    mono: Patterns = (),
    parallel: Patterns = (),
    heldout_mono: Patterns = (),
    heldout_parallel: Patterns = (),
    negatives: Patterns = (),
    holdout: float = 0.0,
    name: str | None = None,
) -> str:
    """Registers a task per language and per pair, and the mixtures `<name>.text`, `<name>.pairs`
    and, for tables of negatives, `<name>.triples`; returns the name.

    Files are found, not read. Held-out files are the split "validation"; without them, `holdout`
    takes that share of the lines. The default name stands for these arguments, so calling again
    registers nothing. Raises UserError: no file, an unknown language, a name that is taken by other
    files.
    """
    train = _found(mono, parallel, negatives)
    held = _found(heldout_mono, heldout_parallel, ())
    if not train:
        raise UserError("no text to train on; give monolingual or parallel files")
    # The name is a function of what it stands for: all objectives share SeqIO's registry.
    mark = hashlib.sha256(repr((train, held, holdout, vocabulary.sha256)).encode()).hexdigest()[:12]
    name = name or f"text_{mark}"
    if _REGISTERED.get(name) == mark:
        return name
    if name in _REGISTERED:
        raise UserError(f"the name '{name}' is registered for other files; choose another")

    # Here, since SeqIO and TensorFlow take seconds, and a recipe is read without them.
    from xlingjax.data.seqio.adapters import TextFiles, seqio

    for kind, mixture in MIXTURES.items():
        tasks = []
        # Sorted: the order of tasks in a mixture must not depend on that of the patterns.
        for languages in sorted({file.languages for file in train if type(file) is kind}):
            splits = {"train": [f for f in train if type(f) is kind and f.languages == languages]}
            share = holdout
            if validation := [f for f in held if type(f) is kind and f.languages == languages]:
                splits["validation"] = validation
                # Who names held-out files has held them out; a share of the others would be lost.
                share = 0.0
            # SeqIO refuses a hyphen in a name.
            task = f"{name}.{mixture}.{'_'.join(languages)}".replace("-", "_")
            register_source(task, TextFiles(splits, share), languages, vocabulary)
            # A function as rate: sentences are counted when the mixture is opened, and not here.
            tasks.append((task, functools.partial(sentences, vocabulary)))
        if tasks:
            seqio.MixtureRegistry.add(f"{name}.{mixture}", tasks)
    _REGISTERED[name] = mark
    return name


_REGISTERED: dict[str, str] = {}
MIXTURES: dict[type, str] = {Text: "text", Pair: "pairs", Triple: "triples"}


def register_source(
    name: str,
    source: Any,
    languages: Sequence[str],
    vocabulary: Vocabulary,
    *,
    keys: Mapping[str, str] | None = None,
    preprocessors: Sequence[Callable] = (),
) -> None:
    """Registers any SeqIO data source (TFDS, TFRecords ...) as a task of text (one language), pairs
    (two) or pairs with negatives (three).

    `preprocessors` run first; `keys` then says which of their string features are `text`, or
    `first`, `second` and `third`. SeqIO's tools can cache the task.
    """
    from xlingjax.data.seqio.adapters import SIDES, LanguageFeature, seqio
    from xlingjax.data.seqio.vocabulary import SeqioVocabulary

    names = SIDES[: len(languages)]
    if len(languages) == 1:
        names = ("text",)
    adapter = SeqioVocabulary(vocabulary)
    rekey = []
    if keys:
        rekey.append(functools.partial(seqio.preprocessors.rekey, key_map=dict(keys)))
    seqio.TaskRegistry.add(
        name,
        source=source,
        preprocessors=[
            *preprocessors,
            *rekey,
            functools.partial(
                seqio.preprocessors.tokenize,
                # Without the copies SeqIO would keep each text as a string beside its ids.
                copy_pretokenized=False,
            ),
            # Behind the tokenizer: SeqIO caches ids, from which rows are planned at every start.
            seqio.CacheDatasetPlaceholder(),
        ],
        output_features={
            # The rows of an objective have separators of their own.
            key: LanguageFeature(adapter, add_eos=False, language=language)
            for key, language in zip(names, languages, strict=True)
        },
    )


def sentences(vocabulary: Vocabulary, task: Any) -> float:
    """The mixture's own rate of a task: its sentences or pairs."""
    from xlingjax.data.seqio.task_text import task_text

    return float(task_text(task, "train", vocabulary).sentences[0])


def _found(mono: Patterns, parallel: Patterns, negatives: Patterns) -> list[Text | Pair]:
    files: list[Text | Pair] = []
    if mono:
        files += find_text(mono)
    if parallel:
        files += find_pairs(parallel)
    if negatives:
        files += find_negatives(negatives)
    return files
