"""Fine-tuning on labelled texts, on labelled texts in two languages, and on tagged words."""

from collections.abc import Mapping, Sequence

from xlingjax.config.corpus import Corpus, Languages
from xlingjax.config.evaluators import Files, labelled_files, languages_of_files, paired_files
from xlingjax.config.text import Batches
from xlingjax.data.features import batch_shapes
from xlingjax.data.loader import BatchSource
from xlingjax.data.sources import split_list
from xlingjax.objectives.finetuning import Classification, PlugIn, Tagging
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight


def labelled_languages(
    trained_on: Files = None,
    pivot: str | None = None,
    dev: str | None = None,
    test: str | None = None,
    tasks: Mapping[str, Files] | Sequence[str] | None = None,
) -> Languages:
    """Those trained on, the pivot of plug-in fine-tuning, and those that have a file to measure:
    `dev` and `test` are paths with {language}, with {task} for each of `tasks` where there are
    several."""

    def found() -> set[str]:
        names = [*tasks] if tasks else [""]
        measured = [path.replace("{task}", name) for path in (dev, test) if path for name in names]
        return {*split_list(trained_on), *split_list(pivot)} | languages_of_files(measured)

    return found


def classification(
    corpus: Corpus,
    files: str = "",
    languages: Files = "en",
    labels: Files = None,
    batch: int = 32,
    length: int = 128,
    reset_positions: bool = False,
    classifier: str | None = None,
    seed: int = 0,
    task: str | None = None,
    weight: Weight = 1.0,
) -> ObjectiveRun:
    """Classification of labelled pairs, in the rows of `pair_row`.

    files: a path with {language}. languages: those trained on. classifier: the model's, where it is
    set for this. task: whose head learns, of a model with several.
    """
    classes, apart = split_list(labels), classifier == "difference"
    objective = (
        Classification.of_task(task, len(classes), apart)
        if task
        else Classification(len(classes), apart)
    )

    def opened() -> BatchSource:
        from xlingjax.preprocessors.finetuning import classification_source

        return classification_source(
            labelled_files(files, split_list(languages)),
            corpus.vocabulary,
            corpus.languages,
            labels=classes,
            length=length,
            batch_size=batch,
            reset_positions=reset_positions,
            seed=seed,
        )

    return ObjectiveRun(
        objective,
        Batches(batch_shapes(objective.reads, batch=batch, length=length), opened),
        weight,
    )


def plug_in(
    corpus: Corpus,
    files: str = "",
    languages: Files = "en",
    pivot: str = "en",
    labels: Files = None,
    batch: int = 32,
    length: int = 128,
    reset_positions: bool = False,
    stop_gradient: bool = True,
    seed: int = 0,
) -> ObjectiveRun:
    """Plug-in fine-tuning (VECO §3.1) on labelled pairs in each of `languages`, beside their
    translation into `pivot`.

    files: a path with {language}, line n the same example in every language. length: tokens of an
    example in one language; a row has twice as many. stop_gradient: as in `PlugIn`.
    """
    classes, objective = split_list(labels), PlugIn(len(split_list(labels)), stop_gradient)

    def opened() -> BatchSource:
        from xlingjax.preprocessors.plug_in import paired_source

        return paired_source(
            paired_files(files, split_list(languages), pivot),
            corpus.vocabulary,
            corpus.languages,
            labels=classes,
            length=length,
            batch_size=batch,
            reset_positions=reset_positions,
            seed=seed,
        )

    return ObjectiveRun(
        objective, Batches(batch_shapes(objective.reads, batch=batch, length=2 * length), opened)
    )


def tagging(
    corpus: Corpus,
    files: str = "",
    languages: Files = "en",
    labels: Files = None,
    batch: int = 32,
    length: int = 128,
    seed: int = 0,
    pieces: str = "first",
    apart: bool = True,
) -> ObjectiveRun:
    """Tagging of words. files: a path with {language}. languages: those trained on. labels: the
    tags. pieces: which
    of a word have its tag, "first" or "all" (see `tagged_rows`). apart: see `pieces_of_words`."""
    tags, objective = split_list(labels), Tagging(len(split_list(labels)))

    def opened() -> BatchSource:
        from xlingjax.preprocessors.finetuning import tagging_source

        return tagging_source(
            labelled_files(files, split_list(languages)),
            corpus.vocabulary,
            corpus.languages,
            tags=tags,
            length=length,
            batch_size=batch,
            seed=seed,
            pieces=pieces,
            apart=apart,
        )

    return ObjectiveRun(
        objective, Batches(batch_shapes(objective.reads, batch=batch, length=length), opened)
    )


BINDABLE = {
    "classification": classification,
    "plug_in": plug_in,
    "tagging": tagging,
    "labelled_languages": labelled_languages,
}
