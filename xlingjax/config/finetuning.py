"""Fine-tuning on labelled files of a user: texts, texts in two languages, tagged words, questions
whose answer is a span of a context. They are a task as a benchmark's, and trained on as one."""

from collections.abc import Callable
from typing import Any

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


def labelled_languages(
    trained_on: Files = None,
    pivot: str | None = None,
    dev: str | None = None,
    test: str | None = None,
) -> Languages:
    """Those trained on, the pivot of plug-in fine-tuning, and those that have a file to measure:
    `dev` and `test` are paths with {language}."""
    # Called when training starts: until then no file is looked for.
    return lambda: {*split_list(trained_on), *split_list(pivot)} | languages_of_files([dev, test])


def classification(
    corpus: Corpus,
    files: str = "",
    languages: Files = "en",
    labels: Files = None,
    batch: int = 32,
    reading: Reading = Reading(),
    classifier: str | None = None,
    seed: int = 0,
    pivot: str | None = None,
    stop_gradient: bool = True,
) -> ObjectiveRun:
    """Classification of labelled pairs, in the rows of `pair_rows`.

    files: a path with {language}. languages: those trained on. classifier: the model's, where it is
    set for this. pivot: each example stands beside its translation into this language, line by line
    (plug-in fine-tuning, VECO §3.1), in rows of twice as many tokens; stop_gradient: as in
    `PlugIn`.
    """
    require_classifier(classifier)
    classes = len(split_list(labels))
    objective: Any = Classification(classes, classifier == "difference")
    if pivot:
        objective = PlugIn(classes, stop_gradient)
    found = _own("classification", files, languages, labels, pivot)
    return on_rows(corpus, objective, found, batch, reading, seed, bool(pivot))


def tagging(
    corpus: Corpus,
    files: str = "",
    languages: Files = "en",
    labels: Files = None,
    batch: int = 32,
    reading: Reading = Reading(),
    seed: int = 0,
) -> ObjectiveRun:
    """Tagging of words. files: a path with {language}. languages: trained on. labels: the tags."""
    found = _own("tagging", files, languages, labels)
    return on_rows(corpus, Tagging(len(split_list(labels))), found, batch, reading, seed)


def span_qa(
    corpus: Corpus,
    files: str = "",
    languages: Files = "en",
    batch: int = 32,
    reading: Reading = Reading(),
    seed: int = 0,
) -> ObjectiveRun:
    """Answers as spans. files: SQuAD json, a path with {language}. languages: those trained on."""
    found = _own("span_qa", files, languages)
    return on_rows(corpus, SpanQA(), found, batch, reading, seed)


def _own(
    kind: str, files: str, languages: Files, labels: Files = None, pivot: str | None = None
) -> Callable[[], tuple[Task, str, Training]]:
    """What `on_rows` asks for: the files are looked for when training starts."""

    def found() -> tuple[Task, str, Training]:
        codes = split_list(languages)
        # Plug-in fine-tuning reads every example twice: a language without a file is an error.
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
    "tagging": tagging,
    "span_qa": span_qa,
    "labelled_languages": labelled_languages,
}
