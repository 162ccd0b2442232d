"""The batches of an objective, from text or a SeqIO mixture."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xlingjax.config.bindings import fields_of, made, with_fields
from xlingjax.config.corpus import Corpus, Sources, import_tasks, patterns_of
from xlingjax.config.evaluators import Files
from xlingjax.data.batches.loader import Batches, BatchSettings, BatchSource, file_batches
from xlingjax.data.rows.plan import Preprocessor
from xlingjax.data.sampling import Sampling, format_table
from xlingjax.data.store.tokenise import BlockText
from xlingjax.errors import LARGEST_BATCH, LONGEST_ROW, UserError, require_numbers, require_whole
from xlingjax.runtime.machine import is_primary
from xlingjax.runtime.quiet import quiet_stderr
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight
from xlingjax.training.stages import staged


@dataclasses.dataclass(frozen=True)
class TextSource:
    """The text that objectives read, and how their batches are drawn from it.

    From the SeqIO `mixture` that the Python modules `tasks` register, else from files: `mono`, or
    {pattern: weight} of its sources, which are drawn by their weights, and the languages of each by
    `sampling`; the corpus's where it is None.
    A mixture is drawn by its rates as they
    are, where `sampling` says nothing else (`ALPHA=None`). holdout: share of the lines of files
    left out of training; refused beside a mixture, which has splits. The others: see
    `data.batches.loader.BatchSettings`.
    """

    corpus: Corpus
    sampling: Sampling = Sampling()  # noqa: RUF009 - frozen
    seed: int = 0
    mono: Sources = None
    mixture: str | None = None
    tasks: Files = None
    use_cached: bool = False
    holdout: float = 0.0
    data_shards: int = 1
    threads: int = 1
    prefetch: int = 2

    def __post_init__(self):
        require_numbers(self, "[0, 1)", "holdout", "text: ")
        if isinstance(self.mono, Mapping):
            require_numbers(self, "[0, inf)", "mono", "text: ")
        require_whole(self, "[1, inf)", "data_shards threads", "text: ")
        require_whole(self, "[0, inf)", "seed prefetch", "text: ")

    @property
    def patterns(self) -> tuple[str, ...]:
        """Of its monolingual files."""
        return patterns_of(self.mono) or self.corpus.mono

    def of_stage(self, step: int) -> "TextSource":
        """The same text for the stage of a run that begins at `step`: each draws anew."""
        # A stage that began with the first's seed would draw its rows once more.
        return dataclasses.replace(self, seed=self.seed + step)

    def texts(self) -> list[BlockText]:
        """The text of each task of the mixture. Raises UserError as `data.task_records`."""
        from xlingjax.data.seqio.mixture import tasks_of
        from xlingjax.data.seqio.task_text import task_text

        import_tasks(self.tasks)
        return [
            task_text(task, "train", self.corpus.vocabulary, self.use_cached, self.corpus.languages)
            for task in tasks_of(self.mixture or "", "train")
        ]

    def batches(
        self,
        features: Preprocessor,
        batch: int,
        length: int,
        complete: Callable[[Any], Any] | None = None,
        parallel: Sequence[str] | None = None,
    ) -> Batches:
        """The batches of one objective; opening them prints what is sampled.

        complete: fills in what only the text can tell of the features, when it is opened.
        parallel: other pairs than the corpus's.
        """

        require_whole({"batch": batch}, f"[1, {LARGEST_BATCH}]", "batch")
        require_whole({"length": length}, f"[1, {LONGEST_ROW}]", "length")
        require_whole(vars(features), "[1, inf)", "max_pieces negatives")

        def opened() -> BatchSource:
            completed = complete(features) if complete else features
            source = self._drawn(completed, batch, length, parallel)
            table = source.identity.get("sampling_table")
            # Every process opens the source and has the same table.
            if table and is_primary():
                print(f"{features.name}: what is sampled\n{format_table(table)}", flush=True)
            return source

        # Known without the text, so that a recipe can be described where no file exists.
        settings = {"batch": batch, "length": length, "sampling": dataclasses.asdict(self.sampling)}
        settings["mono"] = self.mono
        return Batches(
            features.shapes(batch, length),
            opened,
            settings | dataclasses.asdict(features),
            features.positions(length),
            features,
        )

    def _drawn(
        self, features: Preprocessor, batch: int, length: int, parallel: Sequence[str] | None
    ) -> BatchSource:
        settings = BatchSettings(
            seed=self.seed,
            sampling=self.sampling,
            languages=self.corpus.languages,
            data_shards=self.data_shards,
            prefetch=self.prefetch,
            threads=self.threads,
        )
        # Pairs that an objective names itself are no mixture's.
        if self.mixture and parallel is None:
            if self.holdout:
                raise UserError(
                    f"text.holdout={self.holdout} leaves out lines of files, and {features.name}"
                    f" reads the mixture '{self.mixture}': bind text.holdout to 0"
                )
            settings = dataclasses.replace(settings, sampling=of_rates(self.sampling))
            # Opening a mixture imports TensorFlow, which announces itself.
            with quiet_stderr():
                from xlingjax.data.seqio.mixture import mixture_source

                import_tasks(self.tasks)
                return mixture_source(
                    self.mixture,
                    features,
                    batch=batch,
                    length=length,
                    vocabulary=self.corpus.vocabulary,
                    use_cached=self.use_cached,
                    **vars(settings),
                )
        if parallel is None:
            parallel = self.corpus.parallel
        return file_batches(
            features,
            self.corpus.vocabulary,
            batch,
            length,
            settings,
            mono=self.mono if isinstance(self.mono, Mapping) else self.patterns,
            parallel=parallel,
            negatives=self.corpus.negatives,
            holdout=self.holdout,
        )


def of_rates(sampling: Sampling) -> Sampling:
    """How a mixture is drawn: by its rates, where nothing else is asked for."""
    if sampling.counts == "tokens" or sampling.alpha is not None or sampling.weights is not None:
        return sampling
    return dataclasses.replace(sampling, alpha=1.0, counts="mixture")


def of_text(
    objective: type,
    features: Any,
    batch: int = 16,
    length: int = 256,
    change: Callable[..., Mapping[str, Any]] | None = None,
    complete: Callable[[TextSource, Any, Mapping[str, Any]], Any] | None = None,
    hidden: Sequence[str] = (),
    **defaults: Any,
) -> Callable[..., ObjectiveRun]:
    """A function for recipes: an objective on the rows of a preprocessor, whose fields are its
    arguments, but for those `hidden`, beside `text`, `batch`, `length` and `weight`.

    change: gives {field: value} in place of arguments, from those of its own parameters, which are
    arguments too.
    complete: the preprocessor with what only the text can tell of it, by (text, preprocessor,
    arguments), when it is opened. defaults: instead of the fields' own.
    """
    declared = dict(inspect.signature(change, eval_str=True).parameters) if change else {}
    arguments = fields_of(features, defaults) | fields_of(objective, defaults) | declared
    for name in ("text", *hidden):
        arguments.pop(name, None)

    def make(
        text: TextSource,
        batch: int = batch,
        length: int = length,
        weight: Weight = 1.0,
        **given: Any,
    ) -> ObjectiveRun:
        given = {name: one.default for name, one in arguments.items()} | defaults | given
        given["text"] = text
        if change:
            given |= change(**{name: given[name] for name in declared})
        rows = made(features, given)
        filled = (lambda rows: complete(text, rows, given)) if complete else None
        source = given["text"].batches(rows, batch, length, complete=filled)
        return ObjectiveRun(made(objective, given), source, weight)

    make.__signature__ = with_fields(make, arguments)
    make.__doc__ = objective.__doc__
    return make


BINDABLE = {"text": staged(TextSource)}
