"""What is measured while a run goes on, as recipes bind it: functions that make evaluators when
training starts.

Until then no file is read, so that a recipe is built where none of its files exist.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xlingjax.config.corpus import Corpus, Files
from xlingjax.config.labelled_files import labelled_files, paired_files
from xlingjax.data.held_out_pairs import pairs_with_english, read_pairs
from xlingjax.data.labelled.own_task import own_task
from xlingjax.data.text.sources import (
    expand,
    find_pairs,
    find_text,
    split_list,
    split_patterns,
    stem_pairs,
)
from xlingjax.data.text.texts import Text
from xlingjax.errors import LONGEST_ROW, UserError, require_choice, require_numbers, require_whole
from xlingjax.inference.encode import POOLINGS
from xlingjax.preprocessors.task_rows import Reading

Evaluators = Callable[[], list[Any]]


def measured(
    *files: str, when: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Evaluators]]:
    """A decorator for functions that make one evaluator: it is made when training starts, and not
    at all where none of the arguments `files` is given, or where `when` is false."""

    def decorate(make: Callable[..., Any]) -> Callable[..., Evaluators]:
        signature = inspect.signature(make)

        @functools.wraps(make)
        def later(*given: Any, **named: Any) -> Evaluators:
            bound = signature.bind(*given, **named)
            bound.apply_defaults()
            arguments = bound.arguments
            _require_settings(arguments)
            if not any(arguments[name] for name in files) or (when and not arguments[when]):
                return lambda: []
            return lambda: [make(*given, **named)]

        later.__signature__ = signature.replace(return_annotation=Evaluators)
        return later

    return decorate


def _require_settings(arguments: Mapping[str, Any]) -> None:
    """What these are means the same in every evaluator."""
    counts = "limit per_language layer samples no_repeat_ngram min_length"
    require_whole(arguments, "[0, inf)", counts)
    require_whole(arguments, "[1, inf)", "beams")
    require_whole(arguments, f"[1, {LONGEST_ROW}]", "length")
    require_numbers(arguments, "[0, inf)", "max_length")
    require_numbers(arguments, "(0, 1)", "proportion")
    require_numbers(arguments, "[0, 1)", "most shares")
    require_choice(arguments, POOLINGS, "poolings")
    require_choice(arguments, ("self", "all"), "own_masks")


# ---- plain text and pairs ------------------------------------------------------------------------


@measured("pairs")
def retrieval(
    corpus: Corpus,
    pairs: str | None = None,
    limit: int = 0,
    poolings: Sequence[str] = ("mean",),
    prefix: str = "",
    name: str = "retrieval",
) -> Any:
    """Sentence retrieval on the aligned files of folder or stem `pairs` (None: not run).

    `limit` pairs per language; 0: all. prefix: text before every sentence.
    """
    from xlingjax.evaluation.retrieval import RetrievalEvaluator

    found = read_pairs(pairs, corpus.languages, limit)
    return RetrievalEvaluator(
        found,
        corpus.vocabulary,
        corpus.languages,
        poolings=tuple(poolings),
        name=name,
        prefix=prefix,
    )


@measured("gold")
def alignment(corpus: Corpus, gold: str | None = None, limit: int = 0) -> Any:
    """Alignment error rate against the gold links in folder `gold` (None: not run): `XX-en.XX`,
    `XX-en.en`, `XX-en.txt`. `limit` pairs per language; 0: all."""
    from xlingjax.evaluation.alignment import AlignmentEvaluator, read_gold

    return AlignmentEvaluator(
        read_gold(gold, corpus.languages, limit), corpus.vocabulary, corpus.languages
    )


def floors(
    corpus: Corpus,
    pairs: str | None = None,
    limit: int = 0,
    run: bool | str = False,
    name: str = "retrieval_floors",
) -> Evaluators:
    """Retrieval without a model on the same `pairs`: character TF-IDF, and with run=True LSI on the
    corpus's parallel text too; "tfidf": without it.

    `limit`: that of `retrieval`, since more pairs make a harder search.
    """
    if run not in (False, True, "tfidf"):
        raise UserError(f'FLOORS: {run!r} is none of False, "tfidf" and True')
    return _floors(corpus, pairs, limit, run, name)


@measured("pairs", when="run")
def _floors(corpus: Corpus, pairs: str, limit: int, run: bool | str, name: str) -> Any:
    from xlingjax.evaluation.floors import RetrievalFloors

    train = None
    # LSI learns from the training pairs, never from those that are searched.
    if corpus.parallel and run != "tfidf":
        train = pairs_with_english(corpus.parallel)
    return RetrievalFloors(read_pairs(pairs, corpus.languages, limit), train, name=name)


@measured("text")
def perplexity(
    corpus: Corpus,
    text: str | None = None,
    length: int = 128,
    limit: int = 64,
    causal: bool = False,
    name: str = "perplexity",
) -> Any:
    """MLM (causal: CLM) perplexity on held-out `text` (None: not run), at most `limit` rows per
    language."""
    from xlingjax.evaluation.perplexity import TextPerplexity

    texts = heldout_texts(text, corpus.languages)
    return TextPerplexity(
        texts,
        corpus.vocabulary,
        corpus.languages,
        length=length,
        limit=limit,
        causal=causal,
        name=name,
    )


@measured("pairs")
def translation_perplexity(
    corpus: Corpus,
    pairs: str | None = None,
    length: int = 128,
    limit: int = 128,
    reset_positions: bool = True,
    name: str = "translation_perplexity",
) -> Any:
    """TLM perplexity on held-out `pairs` (None: not run) with the partner visible and hidden.

    length, reset_positions: those of the TLM rows that the model was trained on.
    """
    from xlingjax.evaluation.perplexity import TranslationPerplexity

    found = read_pairs(pairs, corpus.languages, limit)
    return TranslationPerplexity(
        found,
        corpus.vocabulary,
        corpus.languages,
        length=length,
        limit=limit,
        reset_positions=reset_positions,
        name=name,
    )


@measured("text")
def samples(
    corpus: Corpus,
    text: str | None = None,
    per_language: int = 3,
    length: int = 64,
    name: str = "masked_samples",
) -> Any:
    """Masked held-out sentences with the model's predictions, for the report. length: tokens of a
    row."""
    from xlingjax.evaluation.masked_samples import MaskedSamples

    return MaskedSamples(
        heldout_texts(text, corpus.languages),
        corpus.vocabulary,
        corpus.languages,
        per_language=per_language,
        length=length,
        name=name,
    )


@measured("text", when="shares")
def pseudo_perplexity(
    corpus: Corpus,
    text: str | None = None,
    shares: str | Sequence[float] | None = None,
    most: float = 0.15,
    placement: str = "behind",
    reset_positions: bool = False,
    own_masks: str = "self",
    special: bool = False,
    length: int = 128,
    limit: int = 64,
    name: str = "pseudo_perplexity",
) -> Any:
    """BTMLM's perplexity on held-out `text` at several `shares` of pseudo tokens (either None: not
    run), at most `limit` rows per language. most: the share that `length` is for; the others: those
    of `btmlm`."""
    from xlingjax.evaluation.pseudo_perplexity import PseudoPerplexity
    from xlingjax.objectives.ernie_m import BTMLM

    return PseudoPerplexity(
        heldout_texts(text, corpus.languages),
        corpus.vocabulary,
        corpus.languages,
        _pseudo_languages(corpus),
        _shares(shares),
        BTMLM(own_masks=own_masks, special=special),
        most=most,
        placement=placement,
        reset_positions=reset_positions,
        length=length,
        limit=limit,
        name=name,
    )


def _shares(shares: str | Sequence[float]) -> tuple[float, ...]:
    found = []
    for share in split_list(shares):
        try:
            found.append(float(share))
        except ValueError:
            raise UserError(
                f"PSEUDO_SHARES: {share!r} is no number; give shares like 0,0.05,0.1,0.15,0.2"
            ) from None
    return tuple(found)


def _pseudo_languages(corpus: Corpus) -> Sequence[str]:
    """Those that pseudo tokens are written in: that the corpus has translations of."""
    translated: set[str] = set()
    if corpus.parallel:
        for pair in find_pairs(corpus.parallel):
            if pair.translates:
                translated.update(pair.languages)
    # A run without pairs still shows what it writes, in any of its languages.
    return sorted(translated & {*corpus.languages}) or corpus.languages


def heldout_texts(text: str, languages: Sequence[str]) -> dict[str, Text]:
    """{language: text} of the patterns `text`, one per language, of the run's languages. Raises
    UserError."""
    found: dict[str, Text] = {}
    for one in find_text(split_patterns(text)):
        # Before the run's languages are asked for: two
        # files of one would be measured as one of them.
        if one.language in found:
            raise UserError(
                f"held-out text: {found[one.language].path} and {one.path} are both"
                f" {one.language!r}; give one per language"
            )
        if one.language in languages:
            found[one.language] = one
    return found


# ---- labelled and translated files of a user ----------------------------------------------------


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


@measured("files")
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
) -> Any:
    """A user's files measured as the task that they are. files: a path with {language}; None: not
    measured. The rest: see `own_task` and `OwnScore`."""
    from xlingjax.evaluation.task.scores import OwnScore

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
    )


@measured("pairs", "files")
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
) -> Any:
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


EVALUATORS = {
    function.__name__: function
    for function in (
        retrieval,
        alignment,
        floors,
        perplexity,
        translation_perplexity,
        samples,
        pseudo_perplexity,
        accuracy,
        plug_in_accuracy,
        tagging_score,
        answer_score,
        generation_score,
    )
}
