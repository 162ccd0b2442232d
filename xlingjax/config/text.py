"""The batches of an objective, from text, a SeqIO mixture or a file of frozen batches."""

import dataclasses
import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

from xlingjax.config.corpus import Corpus
from xlingjax.config.evaluators import Files
from xlingjax.data.frozen import frozen_source, read_header
from xlingjax.data.loader import Batches, BatchSource
from xlingjax.data.mixture import mixture_source
from xlingjax.data.preprocessor import Preprocessor
from xlingjax.data.sampling import Sampling, format_table
from xlingjax.data.sources import split_list
from xlingjax.errors import UserError
from xlingjax.runtime.machine import is_primary
from xlingjax.runtime.quiet import quiet_stderr
from xlingjax.tasks.xlm import TextSource
from xlingjax.training.stages import stage_name


class Reading(TypedDict, total=False):
    """What recipes may bind to any objective on text, beside its own: see `text_source`."""

    seed: int
    mixture: str | None
    tasks: Files
    use_cached: bool
    holdout: float
    data_shards: int
    threads: int
    prefetch: int


def text_source(
    corpus: Corpus,
    features: Preprocessor,
    batch: int,
    length: int,
    sampling: Sampling,
    seed: int = 0,
    mixture: str | None = None,
    tasks: Files = None,
    use_cached: bool = False,
    holdout: float = 0.0,
    data_shards: int = 1,
    threads: int = 1,
    prefetch: int = 2,
    stage: int = 0,
    complete: Callable[[Any], Any] | None = None,
    parallel: Sequence[str] | None = None,
) -> Batches:
    """The batches of one objective; opening them prints what is sampled.

    From frozen batches if the corpus has them, else from the SeqIO `mixture` that the Python
    modules `tasks` register, else from the corpus's files. holdout: share of the lines left out of
    training. stage: first step of its stage
    of the run, where it has several; each draws anew. complete: fills in what only the text can
    tell of the features, when it is opened. parallel: other pairs than the corpus's. The others:
    see `mixture_source`.
    """

    def frozen() -> BatchSource:
        path = Path(corpus.frozen) / f"{stage_name(features.name, stage)}.frozen"
        options = {
            k: v
            for k, v in dataclasses.asdict(features).items()
            if not (complete and v is None)
        }
        requested = {
            "batch": batch,
            "length": length,
            **json.loads(json.dumps(options)),
        }
        check_frozen(path, features.name, requested)
        return frozen_source(path)

    def completed() -> Any:
        return complete(features) if complete else features

    def registered() -> BatchSource:
        for module in split_list(tasks):
            try:
                importlib.import_module(module)
            except ModuleNotFoundError as error:
                raise UserError(
                    f"TASKS: {error}; name a module that Python can import from here"
                ) from None
        return mixture_source(
            mixture,
            completed(),
            batch=batch,
            length=length,
            seed=seed + stage,
            sampling=sampling,
            languages=corpus.languages,
            data_shards=data_shards,
            use_cached=use_cached,
            threads=threads,
            prefetch=prefetch,
        )

    def files() -> BatchSource:
        return TextSource(
            completed(),
            corpus.vocabulary,
            batch,
            length,
            mono=corpus.mono,
            parallel=corpus.parallel if parallel is None else parallel,
            negatives=corpus.negatives,
            holdout=holdout,
            seed=seed + stage,
            sampling=sampling,
            languages=corpus.languages,
            data_shards=data_shards,
            threads=threads,
            prefetch=prefetch,
        )()

    def opened() -> BatchSource:
        with quiet_stderr():
            source = (frozen if corpus.frozen else registered if mixture else files)()
        table = source.identity.get("sampling_table")
        if table and is_primary():
            print(
                f"{features.name}: what is sampled\n{format_table(table)}", flush=True
            )
        return source

    settings = {
        "batch": batch,
        "length": length,
        "sampling": dataclasses.asdict(sampling),
    }
    return Batches(
        features.shapes(batch, length),
        opened,
        settings | dataclasses.asdict(features),
        features.positions(length),
        features,
    )


def check_frozen(path: Path, name: str, requested: dict[str, Any]) -> None:
    """Raises UserError where frozen batches are not what the recipe asks for: they cannot be
    changed any more."""
    identity = read_header(path)["identity"]
    has = {
        "batch": identity.get("batch"),
        "length": identity.get("length"),
        **identity.get("options", {}),
    }
    for option, value in requested.items():
        if option in has and has[option] != value:
            raise UserError(
                f"{path}: {name} was frozen with {option}={has[option]} and this run asks for"
                f" {value}; give the options that it was frozen with, or freeze again"
            )
