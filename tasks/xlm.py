"""SeqIO tasks and mixtures for monolingual text and aligned pairs, and the batches of CLM, MLM and
TLM from them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xlingjax.data.loader import BatchSource
from xlingjax.data.mixture import mixture_source
from xlingjax.data.preprocessor import Preprocessor
from xlingjax.data.sampling import Sampling
from xlingjax.data.sources import find_negatives, find_pairs, find_text
from xlingjax.data.texts import Pair, Text, Triple
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

Patterns = str | Sequence[str]


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
    train = [
        *(find_text(mono) if mono else ()),
        *(find_pairs(parallel) if parallel else ()),
        *(find_negatives(negatives) if negatives else ()),
    ]
    held = [
        *(find_text(heldout_mono) if heldout_mono else ()),
        *(find_pairs(heldout_parallel) if heldout_parallel else ()),
    ]
    if not train:
        raise UserError("no text to train on; give monolingual or parallel files")
    mark = hashlib.sha256(
        repr((train, held, holdout, vocabulary.sha256)).encode()
    ).hexdigest()[:12]
    name = name or f"text_{mark}"
    if _REGISTERED.get(name) == mark:
        return name
    if name in _REGISTERED:
        raise UserError(
            f"the name '{name}' is registered for other files; choose another"
        )

    from xlingjax.data.seqio_adapters import TextFiles

    for kind, mixture in MIXTURES.items():
        tasks = []
        for languages in sorted(
            {_languages(file) for file in train if type(file) is kind}
        ):
            splits = {
                "train": [
                    f for f in train if type(f) is kind and _languages(f) == languages
                ]
            }
            if validation := [
                f for f in held if type(f) is kind and _languages(f) == languages
            ]:
                splits["validation"] = validation
            task = f"{name}.{mixture}.{'_'.join(languages)}".replace("-", "_")
            register_source(
                task,
                TextFiles(splits, 0.0 if validation else holdout),
                languages,
                vocabulary,
            )
            tasks.append((task, functools.partial(_sentences, vocabulary)))
        if tasks:
            _mixtures().add(f"{name}.{mixture}", tasks)
    _REGISTERED[name] = mark
    return name


_REGISTERED: dict[str, str] = {}
MIXTURES: dict[type, str] = {Text: "text", Pair: "pairs", Triple: "triples"}
READS = {
    1: ("text", "monolingual text", "MONO"),
    2: ("pairs", "parallel text", "PARALLEL"),
    3: ("triples", "tables of negatives", "NEGATIVES"),
}
"""Sides that features read -> (mixture, what it is made of, the macro that names it)."""


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
    `first`, `second` and `third`. The task can be cached with SeqIO's tools and read with
    `use_cached`.
    """
    import seqio

    from xlingjax.data.seqio_adapters import SIDES, LanguageFeature
    from xlingjax.data.vocabulary.seqio import SeqioVocabulary

    names = ("text",) if len(languages) == 1 else SIDES[: len(languages)]
    adapter = SeqioVocabulary(vocabulary)
    rekey = (
        [functools.partial(seqio.preprocessors.rekey, key_map=dict(keys))]
        if keys
        else []
    )
    seqio.TaskRegistry.add(
        name,
        source=source,
        preprocessors=[
            *preprocessors,
            *rekey,
            functools.partial(seqio.preprocessors.tokenize, copy_pretokenized=False),
            seqio.CacheDatasetPlaceholder(),
        ],
        output_features={
            key: LanguageFeature(adapter, add_eos=False, language=language)
            for key, language in zip(names, languages, strict=True)
        },
    )


def _languages(file: Text | Pair) -> tuple[str, ...]:
    return file.languages if isinstance(file, Pair) else (file.language,)


def _mixtures() -> Any:
    import seqio

    return seqio.MixtureRegistry


def _sentences(vocabulary: Vocabulary, task: Any) -> float:
    """The mixture's own rate of a task: its sentences or pairs."""
    from xlingjax.data.seqio_adapters import task_records

    return float(task_records(task, "train", vocabulary).sides[0].sentences)


@dataclasses.dataclass(frozen=True)
class TextSource:
    """Batches of one objective from text files; calling it opens the source. What recipes bind.

    features: those of the objective (`preprocessors/`). vocabulary: a `Vocabulary` or the path of
    one. Give the objectives of a run the same files, so that they number languages alike (or
    `languages`). The other fields are those of `register_text` and `mixture_source`.
    """

    features: Preprocessor
    vocabulary: Vocabulary | str
    batch: int
    length: int
    mono: Patterns = ()
    parallel: Patterns = ()
    heldout_mono: Patterns = ()
    heldout_parallel: Patterns = ()
    negatives: Patterns = ()
    holdout: float = 0.0
    split: str = "train"
    seed: int = 0
    sampling: Sampling = dataclasses.field(default_factory=Sampling)
    languages: Sequence[str] | None = None
    shuffle: bool = True
    epochs: int | None = None
    data_shards: int = 1
    prefetch: int = 2
    threads: int = 1

    def __call__(self) -> BatchSource:
        """Opens the source; tokenises what is not yet in the cache. Raises UserError on bad
        input."""
        mixture, kind, macro = READS[self.features.sides]
        if not {"text": self.mono, "pairs": self.parallel, "triples": self.negatives}[
            mixture
        ]:
            raise UserError(
                f"'{self.features.name}' reads {kind}; none is given: set {macro}, or leave this"
                " objective out"
            )
        vocabulary = (
            self.vocabulary
            if isinstance(self.vocabulary, Vocabulary)
            else Vocabulary.load(self.vocabulary)
        )
        name = register_text(
            vocabulary=vocabulary,
            mono=self.mono,
            parallel=self.parallel,
            heldout_mono=self.heldout_mono,
            heldout_parallel=self.heldout_parallel,
            negatives=self.negatives,
            holdout=self.holdout,
        )
        return mixture_source(
            f"{name}.{mixture}",
            self.features,
            batch=self.batch,
            length=self.length,
            split=self.split,
            seed=self.seed,
            sampling=self.sampling,
            languages=self.languages or self._found_languages(),
            shuffle=self.shuffle,
            epochs=self.epochs,
            data_shards=self.data_shards,
            prefetch=self.prefetch,
            threads=self.threads,
        )

    def _found_languages(self) -> list[str]:
        files = [
            *(find_text(self.mono) if self.mono else ()),
            *(find_pairs(self.parallel) if self.parallel else ()),
            *(find_negatives(self.negatives) if self.negatives else ()),
        ]
        return sorted({code for file in files for code in _languages(file)})
