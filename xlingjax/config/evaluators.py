"""What is measured while a run goes on, as recipes bind it: functions that make evaluators.

Until then no file is read, so that a recipe is built where none of its files exist.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xlingjax.config.bindings import fields_of, parameter, with_fields
from xlingjax.config.corpus import Corpus, Files
from xlingjax.config.labelled_files import labelled_files, paired_files
from xlingjax.data.held_out_pairs import pairs_with_english, read_pairs
from xlingjax.data.labelled.own_task import own_task
from xlingjax.data.text.sources import (
    find_pairs,
    find_text,
    split_list,
    split_patterns,
    stem_pairs,
)
from xlingjax.data.text.texts import Text
from xlingjax.errors import LONGEST_ROW, UserError, require_choice, require_numbers, require_whole
from xlingjax.evaluation.alignment import AlignmentEvaluator, read_gold
from xlingjax.evaluation.masked_samples import MaskedSamples
from xlingjax.evaluation.perplexity import TextPerplexity, TranslationPerplexity
from xlingjax.evaluation.pseudo_perplexity import PseudoPerplexity
from xlingjax.evaluation.retrieval import RetrievalEvaluator
from xlingjax.inference.encode import POOLINGS
from xlingjax.objectives.ernie_m import BTMLM
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
            return lambda: [make(**arguments)]

        later.__signature__ = signature.replace(return_annotation=Evaluators)
        return later

    return decorate


def of_fields(
    evaluator: type, *files: str, when: str = "", limit: bool = False, **read: Callable
) -> Callable[..., Evaluators]:
    """A `measured` function with the evaluator's own fields for arguments, beside the corpus and
    `files`. limit: how many pairs of a language are read, 0: all; read: what gives further fields,
    of the corpus and the arguments."""

    fields = {name.name for name in dataclasses.fields(evaluator)}

    def make(corpus: Corpus, name: str, **given: Any) -> Any:
        languages = corpus.languages
        found = {field: give(corpus, given) for field, give in read.items()}
        if given.get("text"):
            found["texts"] = heldout_texts(given["text"], languages)
        if given.get("pairs"):
            found["pairs"] = read_pairs(given["pairs"], languages, given["limit"] if limit else 0)
        given = {field: value for field, value in given.items() if field in fields} | found
        return evaluator(**given, name=name, vocabulary=corpus.vocabulary, languages=languages)

    parameters = {one: parameter(one, str | None, None) for one in files}
    if when:
        parameters[when] = parameter(when, bool, False)
    if limit:
        parameters["limit"] = parameter("limit", int, 0)
    # A field that is read has none that a recipe binds.
    parameters |= {
        field: one
        for field, one in fields_of(evaluator).items()
        if field not in parameters or field == "limit"
    }
    parameters["name"] = parameter("name", str, evaluator.name)
    make.__signature__ = with_fields(make, parameters)
    make.__doc__ = evaluator.__doc__
    return measured(*files[:1], when=when)(make)


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


def _gold(corpus: Corpus, given: Mapping[str, Any]) -> Any:
    return read_gold(given["gold"], corpus.languages, given["limit"])


def _pseudo_languages(corpus: Corpus) -> Sequence[str]:
    """Those that pseudo tokens are written in: that the corpus has translations of."""
    found = find_pairs(corpus.parallel) if corpus.parallel else []
    translated = {code for pair in found if pair.translates for code in pair.languages}
    # A run without pairs still shows what it writes, in any of its languages.
    return sorted(translated & {*corpus.languages}) or corpus.languages


@measured("text", when="shares")
def pseudo_perplexity(
    corpus: Corpus,
    text: str | None = None,
    shares: str | Sequence[float] | None = None,
    own_masks: str = "self",
    most: float = 0.15,
    placement: str = "behind",
    reset_positions: bool = False,
    length: int = 128,
    limit: int = 64,
    name: str = "pseudo_perplexity",
) -> Any:
    """BTMLM's perplexity on held-out `text` at several `shares` of pseudo tokens (either None: not
    run), at most `limit` rows per language. most: the share that `length` is for."""
    try:
        numbers = tuple(map(float, split_list(shares)))
    except ValueError:
        raise UserError(f"PSEUDO_SHARES={shares!r}: give shares like 0,0.05,0.1,0.15") from None
    return PseudoPerplexity(
        heldout_texts(text, corpus.languages),
        corpus.vocabulary,
        corpus.languages,
        _pseudo_languages(corpus),
        numbers,
        BTMLM(own_masks=own_masks),
        most,
        placement,
        reset_positions,
        length,
        limit,
        name=name,
    )


def heldout_texts(text: str, languages: Sequence[str]) -> dict[str, Text]:
    """{language: text} of the patterns `text`, for the run's languages. Raises UserError."""
    found: dict[str, Text] = {}
    for one in find_text(split_patterns(text)):
        # Before the run's languages are asked for: of two files of one, one would be measured.
        if one.language in found:
            raise UserError(
                f"held-out text: {found[one.language].path} and {one.path} are both"
                f" {one.language!r}; give one per language"
            )
        found[one.language] = one
    kept = {code: one for code, one in found.items() if code in languages}
    if not kept:
        raise UserError(
            f"HELDOUT_TEXT={text}: it is in {', '.join(sorted(found))}, and the run in"
            f" {', '.join(languages)}: give text of the run's languages"
        )
    return kept


def accuracy(
    corpus: Corpus,
    files: str | None = None,
    labels: Files = None,
    pivot: str | None = None,
    reading: Reading = Reading(),
    limit: int = 0,
    trained_on: Files = "en",
    name: str = "nli_test",
) -> Evaluators:
    """Accuracy per language on labelled TSVs, `files` a path with {language}:
    "nli/test-{language}.tsv"; with a `pivot` of files that translate each other line by line, each
    example beside that of the pivot."""
    how = (files, labels, reading, limit, trained_on, name)
    return own_score(corpus, "classification", *how, pivot=pivot)


def tagging_score(
    corpus: Corpus,
    files: str | None = None,
    labels: Files = None,
    metric: str = "accuracy",
    reading: Reading = Reading(),
    trained_on: Files = "en",
    name: str = "tagging_test",
) -> Evaluators:
    """Tags per language, `files` a path with {language}: "pos/test-{language}.tsv". metric:
    `accuracy` per word, or `f1` of entities."""
    how = (files, labels, reading, 0, trained_on, name)
    # Tags of words are scored one by one; entities as conlleval does, as whole spans.
    metrics = ("conll_f1",) if metric == "f1" else ("token_accuracy",)
    return own_score(corpus, "tagging", *how, metrics, metric)


def answer_score(
    corpus: Corpus,
    files: str | None = None,
    metric: str = "squad",
    reading: Reading = Reading(),
    limit: int = 0,
    trained_on: Files = "en",
    name: str = "qa_test",
) -> Evaluators:
    """F1 and exact match of answers per language, `files` SQuAD json, a path with {language}:
    "xquad.{language}.json". metric: squad, the English script that XQuAD and TyDiQA use for every
    language, or mlqa, which knows the languages of MLQA alone. limit: questions of a language, 0:
    all."""
    metrics = f"{metric}_f1", f"{metric}_em"
    how = (files, None, reading, limit, trained_on, name, metrics, metric)
    return own_score(corpus, "span_qa", *how)


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
) -> Any:
    """A user's files measured as the task that they are. files: a path with {language}; None: not
    measured. The rest: see `own_task` and `OwnScore`."""
    from xlingjax.evaluation.task.scores import OwnScore

    # Of the run's languages alone: the others have no id in this model.
    found = labelled_files(files, corpus.languages)
    if pivot is not None:
        # What has a file is paired: a language without is not tested; the pivot must be there.
        found = paired_files(files, [*found], pivot)
    return OwnScore(
        own_task(kind, "test", found, split_list(labels), metrics, pivot),
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
    """What the model writes for held-out sources, scored against references (BLEU, chrF, ...).

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
        named = labelled_files(files, split_list(languages) or corpus.languages)
        patterns += [f"{code}={path}" for code, path in named.items()]
    for pattern in split_patterns(pairs):
        # Test sets of translation come as a file per language with a common stem (test_2016.de).
        if of_stem := stem_pairs(pattern, corpus.languages):
            found += of_stem
        else:
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
    "retrieval": of_fields(RetrievalEvaluator, "pairs", limit=True),
    "alignment": of_fields(AlignmentEvaluator, "gold", limit=True, gold=_gold),
    "floors": floors,
    "perplexity": of_fields(TextPerplexity, "text"),
    "translation_perplexity": of_fields(TranslationPerplexity, "pairs", limit=True),
    "samples": of_fields(MaskedSamples, "text"),
    "pseudo_perplexity": pseudo_perplexity,
    "accuracy": accuracy,
    "tagging_score": tagging_score,
    "answer_score": answer_score,
    "generation_score": generation_score,
}
