"""What is measured on a user's labelled and translated files while a run goes on, as recipes bind
it.

As in `evaluators.py`, no file is read before training starts.
"""

from collections.abc import Sequence

from xlingjax.config.corpus import Corpus, Files
from xlingjax.config.evaluators import Evaluators, unless_missing
from xlingjax.config.labelled_files import labelled_files, paired_files
from xlingjax.data.labelled.own_task import own_task
from xlingjax.data.text.sources import expand, find_pairs, split_list, split_patterns, stem_pairs
from xlingjax.errors import UserError
from xlingjax.preprocessors.task_rows import Reading


def accuracy(
    corpus: Corpus,
    files: str | None = None,
    labels: Files = None,
    length: int = 128,
    reset_positions: bool = False,
    limit: int = 0,
    trained_on: Files = "en",
    name: str = "nli_test",
) -> Evaluators:
    """Accuracy per language on labelled TSVs, `files` a path with {language}:
    "nli/test-{language}.tsv"."""
    reading = Reading(length, reset_positions)
    return own_score(corpus, "classification", files, labels, reading, limit, trained_on, name)


def plug_in_accuracy(
    corpus: Corpus,
    files: str | None = None,
    labels: Files = None,
    pivot: str = "en",
    length: int = 128,
    reset_positions: bool = False,
    limit: int = 0,
    trained_on: Files = "en",
    name: str = "plug_in_test",
) -> Evaluators:
    """Accuracy per language on labelled TSVs that translate each other line by line, each beside
    that of `pivot`; `files` a path with {language}. length: tokens of an example in one language.
    """
    reading = Reading(length, reset_positions)
    return own_score(
        corpus, "classification", files, labels, reading, limit, trained_on, name, pivot=pivot
    )


def tagging_score(
    corpus: Corpus,
    files: str | None = None,
    labels: Files = None,
    metric: str = "accuracy",
    length: int = 128,
    trained_on: Files = "en",
    name: str = "tagging_test",
    apart: bool = True,
) -> Evaluators:
    """Tags per language, `files` a path with {language}: "pos/test-{language}.tsv". metric:
    `accuracy` per word, or `f1` of entities. apart: see `pieces_of_words`."""
    reading = Reading(length, apart=apart)
    # Tags of words are scored one by one; entities as conlleval does, as whole spans.
    metrics = ("token_accuracy",)
    if metric == "f1":
        metrics = ("conll_f1",)
    return own_score(
        corpus, "tagging", files, labels, reading, 0, trained_on, name, metrics, metric
    )


def answer_score(
    corpus: Corpus,
    files: str | None = None,
    metric: str = "squad",
    length: int = 384,
    stride: int = 128,
    max_question: int = 64,
    longest: int = 30,
    reset_positions: bool = False,
    limit: int = 0,
    trained_on: Files = "en",
    name: str = "qa_test",
) -> Evaluators:
    """F1 and exact match of answers per language, `files` SQuAD json, a path with {language}:
    "xquad.{language}.json". metric: squad, the English script that XQuAD and TyDiQA use for every
    language, or mlqa, which knows the languages of MLQA alone. The sizes: see `predict_answers`.
    limit: questions of a language, 0: all."""
    reading = Reading(length, reset_positions, stride, max_question, longest)
    metrics = f"{metric}_f1", f"{metric}_em"
    return own_score(
        corpus, "span_qa", files, None, reading, limit, trained_on, name, metrics, metric
    )


def own_score(
    corpus: Corpus,
    kind: str,
    files: str | None,
    labels: Files,
    reading: Reading,
    limit: int,
    trained_on: Files,
    name: str,
    metrics: Sequence[str] = ("accuracy",),
    metric: str = "",
    pivot: str | None = None,
    head: str | None = None,
) -> Evaluators:
    """A user's files measured as the task that they are. files: a path with {language}; None: not
    measured. The rest: see `own_task` and `OwnScore`."""

    def make():
        from xlingjax.evaluation.task.own_files import OwnScore

        # Of the run's languages alone: the others have no id in this model.
        found = labelled_files(files, corpus.languages)
        if pivot is not None:
            # What has a file is paired: a language without
            # one is not tested, but the pivot must be there.
            found = paired_files(files, [*found], pivot)
        return OwnScore(
            own_task(kind, "test", found, split_list(labels), metrics, pivot, head),
            "",
            corpus.vocabulary,
            corpus.languages,
            reading,
            split="test",
            limit=limit,
            trained_on=split_list(trained_on),
            name=name,
            metric=metric,
            head=head,
        )

    return unless_missing(files, make)


def generation_score(
    corpus: Corpus,
    pairs: Files = None,
    directions: Files = None,
    files: str | None = None,
    languages: Files = None,
    limit: int = 0,
    beams: int = 1,
    length_penalty: float = 1.0,
    no_repeat_ngram: int = 0,
    min_length: int = 0,
    max_length: tuple[float, int] = (1.5, 10),
    lowercase: bool = False,
    trained_on: Files = None,
    samples: int = 3,
    at_end: bool = False,
    name: str = "generation",
) -> Evaluators:
    """What the model writes for held-out sources, scored against references: BLEU, chrF, ROUGE-L
    and more.

    pairs: patterns of aligned files, as PARALLEL has them, or stems, "test_2016" for test_2016.de
    and test_2016.en; translated in `directions` ("de-en fr-en"; default: all ways). files: a path
    with {language}, within each of `languages` (default: the run's): a TSV of source and target,
    "titles/dev-{language}.tsv", or "xglue.ntg.{language}.src.dev". limit: lines of a direction, 0:
    all. beams ... max_length: those of `Decoding`. trained_on: the directions, or languages, that
    the run has examples of; the means over these and over the others are told apart. at_end: not
    before the last step.
    """

    def make():
        from xlingjax.evaluation.generation import GenerationScore, heldout
        from xlingjax.model.decoding import Decoding

        found, patterns = [], []
        if files:
            codes = split_list(languages) or corpus.languages
            for code, path in labelled_files(files, codes).items():
                patterns.append(f"{code}={path}")
        for pattern in split_patterns(pairs):
            # Test sets of translation come as one file per
            # language with a stem in common (test_2016.de).
            if of_stem := stem_pairs(pattern, corpus.languages):
                found += of_stem
                continue
            try:
                # Looked up here for the sake of its message: a
                # stem that no file has looks like a pattern.
                expand(pattern, "held-out")
            except UserError as error:
                raise UserError(
                    f"{error}; or give a stem, test_2016 for test_2016.de and test_2016.en"
                ) from None
            patterns.append(pattern)
        found += find_pairs(patterns)
        decoding = Decoding(beams, length_penalty, no_repeat_ngram, min_length, tuple(max_length))
        return GenerationScore(
            heldout(found, corpus.languages, split_list(directions), limit),
            corpus.vocabulary,
            corpus.languages,
            decoding,
            lowercase=lowercase,
            trained_on=split_list(trained_on),
            samples=samples,
            at_end=at_end,
            name=name,
        )

    return unless_missing(pairs or files, make)


EVALUATORS = {
    "accuracy": accuracy,
    "plug_in_accuracy": plug_in_accuracy,
    "tagging_score": tagging_score,
    "answer_score": answer_score,
    "generation_score": generation_score,
}
