"""Fine-tuning on labelled files of a user: texts, texts in two languages, tagged words, questions
whose answer is a span of a context. They are a task as a benchmark's, and trained on as one."""

from collections.abc import Callable, Mapping, Sequence

from xlingjax.config.corpus import Corpus, Languages
from xlingjax.config.evaluators import Files
from xlingjax.config.labelled_files import labelled_files, languages_of_files, paired_files
from xlingjax.config.task import on_rows, require_classifier
from xlingjax.data.labelled.own_task import own_task
from xlingjax.data.labelled.task import Task
from xlingjax.data.text.sources import split_list
from xlingjax.objectives.finetuning import Classification, SpanQA, Tagging
from xlingjax.objectives.plug_in import PlugIn
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import OwnFiles, Training
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
        measured = []
        for path in filter(None, (dev, test)):
            # A single task has no {task} in its paths, and one pass leaves them as they are.
            for name in tasks or [""]:
                measured.append(path.replace("{task}", name))
        trained = {*split_list(trained_on), *split_list(pivot)}
        return trained | languages_of_files(measured)

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
    """Classification of labelled pairs, in the rows of `pair_rows`.

    files: a path with {language}. languages: those trained on. classifier: the model's, where it is
    set for this. task: whose head learns, of a model with several.
    """
    require_classifier(classifier)
    classes = len(split_list(labels))
    objective = Classification(classes, classifier == "difference", task)
    found = _own("classification", files, languages, labels)
    reading = Reading(length, reset_positions)
    return on_rows(corpus, objective, found, batch, reading, seed, weight=weight)


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
    objective = PlugIn(len(split_list(labels)), stop_gradient)
    found = _own("classification", files, languages, labels, pivot)
    reading = Reading(length, reset_positions)
    return on_rows(corpus, objective, found, batch, reading, seed, paired=True)


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
    found = _own("tagging", files, languages, labels)
    reading = Reading(length, pieces=pieces, apart=apart)
    return on_rows(corpus, Tagging(len(split_list(labels))), found, batch, reading, seed)


def span_qa(
    corpus: Corpus,
    files: str = "",
    languages: Files = "en",
    batch: int = 32,
    length: int = 384,
    stride: int = 128,
    max_question: int = 64,
    reset_positions: bool = False,
    seed: int = 0,
) -> ObjectiveRun:
    """Answers as spans. files: SQuAD json, a path with {language}. languages: those trained on.
    stride, max_question, reset_positions: see `span_rows`."""
    found = _own("span_qa", files, languages)
    reading = Reading(length, reset_positions, stride, max_question)
    return on_rows(corpus, SpanQA(), found, batch, reading, seed)


def _own(
    kind: str, files: str, languages: Files, labels: Files = None, pivot: str | None = None
) -> Callable[[], tuple[Task, str, Training]]:
    """What `on_rows` asks for: the files are looked for when training starts."""

    def found() -> tuple[Task, str, Training]:
        codes = split_list(languages)
        # Plug-in fine-tuning reads every example twice,
        # so a language without a file is an error there.
        if pivot is None:
            paths = labelled_files(files, codes)
        else:
            paths = paired_files(files, codes, pivot)
        task = own_task(kind, "train", paths, split_list(labels), pivot=pivot)
        # The paths of one's own files are whole: they lie below no folder of data.
        return task, "", OwnFiles()

    return found


BINDABLE = {
    "classification": classification,
    "plug_in": plug_in,
    "tagging": tagging,
    "span_qa": span_qa,
    "labelled_languages": labelled_languages,
}
