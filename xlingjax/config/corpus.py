"""What all parts of a run share: its text, its vocabulary, what an earlier run says of itself."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated

from xlingjax.data.text.sources import split_list, split_patterns
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.runtime.modules import imported
from xlingjax.runtime.quiet import quiet_stderr
from xlingjax.training.run_record import model_of, read_run_record, run_and_checkpoint
from xlingjax.training.stages import STAGES, at, starts

Files = str | Sequence[str] | None
Sources = Files | Mapping[str, float]  # patterns, or {pattern: weight of the source}
Languages = Callable[[], Collection[str]]  # found among files, not before it is called


@dataclasses.dataclass(frozen=True)
class Corpus:
    """What all parts of a run share: text and the vocabulary."""

    mono: tuple[str, ...]
    parallel: tuple[str, ...]
    vocabulary_path: str
    requested: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    labelled: Languages | None = None
    """Of labelled examples, which the run has beside `asked`; None: `asked` stays as it is."""
    mixtures: tuple[str, ...] = ()
    tasks: Files = None

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary.load(self.vocabulary_path)

    @functools.cached_property
    def languages(self) -> tuple[str, ...]:
        """Sorted, the index is the language id: those asked for, with those of labelled examples;
        else those of the files."""
        if self.requested and not self.labelled:
            return tuple(sorted(self.requested))
        if not self.labelled:
            return tuple(self._of_text())
        # Fine-tuning has labelled files alone, and no text is no error there.
        of_text: Collection[str] = ()
        if self.mono or self.parallel:
            of_text = self._of_text()
        return tuple(sorted({*self.requested, *self.labelled(), *of_text}))

    def _of_text(self) -> Collection[str]:
        from xlingjax.data.vocabulary.training import texts_by_language

        if not self.mixtures:
            return texts_by_language(self.mono, self.parallel)
        codes = {*_of_mixtures(self.mixtures, self.tasks)}
        if self.mono or self.parallel:
            codes.update(texts_by_language(self.mono, self.parallel))
        return sorted(codes)


def _of_mixtures(mixtures: Collection[str], modules: Files) -> set[str]:
    """The languages that the tasks of mixtures declare. Raises UserError for a task that declares
    none: its name can be read only where the run's languages are known."""
    # Opening a mixture imports TensorFlow, which announces itself.
    with quiet_stderr():
        from xlingjax.data.seqio.mixture import tasks_of
        from xlingjax.data.seqio.task_text import declared_languages

        import_tasks(modules)
        codes: set[str] = set()
        for mixture in mixtures:
            for task in tasks_of(mixture, "train"):
                declared = declared_languages(task)
                if not declared:
                    raise UserError(
                        f"LANGUAGES is not set, and task {task.name} of '{mixture}' does not say"
                        ' what it is in: set LANGUAGES, like "de en"'
                    )
                codes.update(declared)
    return codes


def import_tasks(modules: Files) -> None:
    """Raises UserError for a module that cannot be imported."""
    for module in split_list(modules):
        imported(module, "TASKS")


def patterns_of(mono: Sources) -> tuple[str, ...]:
    return tuple(mono) if isinstance(mono, Mapping) else split_patterns(mono)


def corpus(
    mono: Annotated[Sources, STAGES] = None,
    parallel: Files = None,
    vocabulary: str | None = None,
    languages: Files = None,
    run: str | None = None,
    negatives: Files = None,
    labelled: Languages | None = None,
    language_embedding: bool | None = None,
    mixture: str | None = None,
    pair_mixture: str | None = None,
    tasks: Files = None,
) -> Corpus:
    """The text and the vocabulary of a run.

    mono, parallel: patterns, in one string with spaces between them or in a list; of mono those of
    all stages. languages: codes,
    "en,de" or a list; default: those of the files. run: a workdir whose vocabulary and languages
    are taken over, since fine-tuning must number languages as pretraining did. labelled: the
    languages of what is fine-tuned on and measured; they come
    beside those of `run` where nothing of its model belongs to one language (an imported encoder's
    has no list of them). language_embedding: that of `model`; False: it is left behind. negatives:
    tables of `xlingjax mine --negatives`. mixture, pair_mixture: of SeqIO, of the modules `tasks`,
    whose languages are the run's, too.
    """
    # What a user lists is the whole list, whatever the labelled files hold.
    if languages:
        labelled = None
    if run:
        vocabulary = vocabulary or str(run_and_checkpoint(run)[0])
        record = read_run_record(run)
        languages = languages or record["languages"]
        # A language that the run did not know has no row of its embedding: its list stays.
        if model_of(run).tells_languages(language_embedding):
            labelled = None
    if not vocabulary:
        raise UserError(
            "no vocabulary: set VOCABULARY to the folder that `xlingjax vocab` wrote, or to a"
            " SentencePiece .model file"
        )
    of_stages = [patterns_of(at(mono, step)) for step in starts([mono])]
    return Corpus(
        # In order, each once.
        tuple(dict.fromkeys(itertools.chain(*of_stages))),
        split_patterns(parallel),
        str(vocabulary),
        split_list(languages),
        split_patterns(negatives),
        labelled,
        tuple(filter(None, (mixture, pair_mixture))),
        tasks,
    )


BINDABLE = {"corpus": corpus}
