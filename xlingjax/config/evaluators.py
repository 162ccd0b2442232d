"""What is measured while a run goes on, as recipes bind it: functions that make evaluators when
training starts.

Until then no file is read, so that a recipe is built where none of its files exist. `corpus` is a
`config.corpus.Corpus`.
"""

import glob
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.file_names import is_language_code
from xlingjax.data.labelled.task import own_task
from xlingjax.data.sources import expand, find_pairs, find_text, split_list, stem_pairs
from xlingjax.data.texts import Text
from xlingjax.errors import UserError
from xlingjax.preprocessors.task import Reading

Files = str | Sequence[str] | None
Evaluators = Callable[[], list[Any]]


def retrieval(
    corpus: Any,
    pairs: str | None = None,
    limit: int = 0,
    poolings: Sequence[str] = ("mean",),
    prefix: str = "",
    name: str = "retrieval",
) -> Evaluators:
    """Sentence retrieval on the aligned files of folder or stem `pairs` (None: not run).

    `limit` pairs per language; 0: all. prefix: text before every sentence.
    """

    def make():
        from xlingjax.data.held_out_pairs import read_pairs
        from xlingjax.evaluation.retrieval import RetrievalProbe

        found = read_pairs(pairs, corpus.languages, limit)
        return RetrievalProbe(
            found,
            corpus.vocabulary,
            corpus.languages,
            poolings=tuple(poolings),
            name=name,
            prefix=prefix,
        )

    return _unless_missing(pairs, make)


def alignment(corpus: Any, gold: str | None = None, limit: int = 0) -> Evaluators:
    """Alignment error rate against the gold links in folder `gold` (None: not run): `XX-en.XX`,
    `XX-en.en`, `XX-en.txt`. `limit` pairs per language; 0: all."""

    def make():
        from xlingjax.evaluation.alignment import AlignmentProbe, read_gold

        return AlignmentProbe(
            read_gold(gold, corpus.languages, limit),
            corpus.vocabulary,
            corpus.languages,
        )

    return _unless_missing(gold, make)


def floors(
    corpus: Any,
    pairs: str | None = None,
    limit: int = 0,
    run: bool = False,
    name: str = "retrieval_floors",
) -> Evaluators:
    """Retrieval without a model on the same `pairs`: character TF-IDF, and LSI on the corpus's
    parallel text.

    `limit`: that of `retrieval`, since more pairs make a harder search.
    """

    def make():
        from xlingjax.data.held_out_pairs import pairs_with_english, read_pairs
        from xlingjax.evaluation.floors import RetrievalFloors

        train = pairs_with_english(corpus.parallel) if corpus.parallel else None
        return RetrievalFloors(
            read_pairs(pairs, corpus.languages, limit), train, name=name
        )

    return _unless_missing(pairs if run else None, make)


def perplexity(
    corpus: Any,
    text: str | None = None,
    length: int = 128,
    limit: int = 64,
    causal: bool = False,
    name: str = "perplexity",
) -> Evaluators:
    """MLM (causal: CLM) perplexity on held-out `text` (None: not run), at most `limit` rows per
    language."""

    def make():
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

    return _unless_missing(text, make)


def translation_perplexity(
    corpus: Any,
    pairs: str | None = None,
    length: int = 128,
    limit: int = 128,
    reset_positions: bool = True,
    name: str = "translation_perplexity",
) -> Evaluators:
    """TLM perplexity on held-out `pairs` (None: not run) with the partner visible and hidden.

    length, reset_positions: those of the TLM rows that the model was trained on.
    """

    def make():
        from xlingjax.data.held_out_pairs import read_pairs
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

    return _unless_missing(pairs, make)


def samples(
    corpus: Any,
    text: str | None = None,
    pairs: str | None = None,
    per_language: int = 3,
    length: int = 64,
    pair_length: int = 64,
    reset_positions: bool = True,
    name: str = "masked_samples",
) -> Evaluators:
    """Masked held-out sentences with the model's predictions, for the report.

    length: tokens of a row of text; pair_length, reset_positions: those of the TLM rows that the
    model was trained on.
    """

    def make():
        from xlingjax.data.held_out_pairs import read_pairs
        from xlingjax.evaluation.masked_samples import MaskedSamples

        found = read_pairs(pairs, corpus.languages) if pairs else None
        return MaskedSamples(
            heldout_texts(text, corpus.languages),
            corpus.vocabulary,
            corpus.languages,
            pairs=found,
            per_language=per_language,
            length=length,
            pair_length=pair_length,
            reset_positions=reset_positions,
            name=name,
        )

    return _unless_missing(text, make)


def recovery_samples(
    corpus: Any,
    pairs: str | None = None,
    raw: bool = False,
    per_language: int = 1,
    length: int = 64,
    name: str = "recovery_samples",
) -> Evaluators:
    """The attention of word recovery in held-out `pairs` (None: not run), for the report. raw,
    length: those of
    `clwr`."""

    def make():
        from xlingjax.data.held_out_pairs import read_pairs
        from xlingjax.evaluation.word_recovery import RecoverySamples

        found = read_pairs(pairs, corpus.languages)
        return RecoverySamples(
            found,
            corpus.vocabulary,
            corpus.languages,
            raw=raw,
            per_language=per_language,
            length=length,
            name=name,
        )

    return _unless_missing(pairs, make)


def pseudo_samples(
    corpus: Any,
    text: str | None = None,
    proportion: float = 0.15,
    reset_positions: bool = False,
    per_language: int = 2,
    length: int = 64,
    name: str = "pseudo_samples",
) -> Evaluators:
    """The pseudo tokens that the model writes for held-out `text` (None: not run), for the report:
    in a language that the corpus has translations of, drawn evenly. The others: those of `btmlm`.
    """

    def make():
        from xlingjax.evaluation.pseudo_tokens import PseudoSamples

        pairs = find_pairs(corpus.parallel) if corpus.parallel else ()
        translated = {
            code for pair in pairs if pair.translates for code in pair.languages
        }
        targets = sorted(translated & {*corpus.languages})
        return PseudoSamples(
            heldout_texts(text, corpus.languages),
            corpus.vocabulary,
            corpus.languages,
            targets or corpus.languages,
            proportion=proportion,
            reset_positions=reset_positions,
            per_language=per_language,
            length=length,
            name=name,
        )

    return _unless_missing(text, make)


def accuracy(
    corpus: Any,
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
    return own_score(
        corpus, "classification", files, labels, reading, limit, trained_on, name
    )


def plug_in_accuracy(
    corpus: Any,
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
        corpus,
        "classification",
        files,
        labels,
        reading,
        limit,
        trained_on,
        name,
        pivot=pivot,
    )


def tagging_score(
    corpus: Any,
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
    metrics = ("conll_f1",) if metric == "f1" else ("token_accuracy",)
    return own_score(
        corpus, "tagging", files, labels, reading, 0, trained_on, name, metrics, metric
    )


def answer_score(
    corpus: Any,
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
        corpus,
        "span_qa",
        files,
        None,
        reading,
        limit,
        trained_on,
        name,
        metrics,
        metric,
    )


def own_score(
    corpus: Any,
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
        from xlingjax.evaluation.task import OwnScore

        found = labelled_files(files, corpus.languages)
        if pivot is not None:
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

    return _unless_missing(files, make)


def generation_score(
    corpus: Any,
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

        within = (
            labelled_files(files, split_list(languages) or corpus.languages)
            if files
            else {}
        )
        found, patterns = [], [f"{code}={path}" for code, path in within.items()]
        for pattern in split_list(pairs):
            if of_stem := stem_pairs(pattern, corpus.languages):
                found += of_stem
                continue
            try:
                expand(pattern, "held-out")
            except UserError as error:
                raise UserError(
                    f"{error}; or give a stem, test_2016 for test_2016.de and test_2016.en"
                ) from None
            patterns.append(pattern)
        found += find_pairs(patterns)
        decoding = Decoding(
            beams, length_penalty, no_repeat_ngram, min_length, tuple(max_length)
        )
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

    return _unless_missing(pairs or files, make)


def _unless_missing(path: Files, make: Callable[[], Any]) -> Evaluators:
    return lambda: [make()] if path else []


def heldout_texts(text: str, languages: Sequence[str]) -> dict[str, Text]:
    """{language: text} of the patterns `text`, one per language, of the run's languages. Raises
    UserError."""
    found: dict[str, Text] = {}
    for one in find_text(split_list(text)):
        if one.language in found:
            raise UserError(
                f"held-out text: {found[one.language].path} and {one.path} are both"
                f" {one.language!r}; give one per language"
            )
        if one.language in languages:
            found[one.language] = one
    return found


def labelled_files(pattern: str, languages: Sequence[str]) -> dict[str, str]:
    """{language: file} for a path in which {language} stands for each code; languages without a
    file are left out."""
    if "{language}" not in pattern:
        raise UserError(
            f"labelled files {pattern!r}: write {{language}} where the code stands, as in"
            " nli/test-{language}.tsv"
        )
    found = {
        language: path
        for language in languages
        if Path(path := pattern.replace("{language}", language)).is_file()
    }
    if not found:
        raise UserError(
            f"missing file: {pattern} exists for none of {', '.join(languages)}"
        )
    return found


def languages_of_files(patterns: Sequence[str | None]) -> set[str]:
    """The codes that stand for {language} in the names of files that are there, of several such
    paths (None: no path). What may be a word instead of a code, three letters alone, is left out.
    """
    found = set()
    for pattern in filter(None, patterns):
        before, *behind = pattern.split("{language}")
        expression = (
            re.escape(before)
            + "(?P<code>[^/]+)"
            + "(?P=code)".join(map(re.escape, behind))
        )
        for path in glob.glob("*".join(map(glob.escape, (before, *behind)))):
            named = re.fullmatch(expression, path)
            if named and is_language_code(named["code"]) and Path(path).is_file():
                found.add(named["code"])
    return found


def paired_files(pattern: str, languages: Sequence[str], pivot: str) -> dict[str, str]:
    """{language: file} of each of `languages` and of `pivot`. Raises UserError for one that is
    missing, and where `pivot` is alone."""
    beside = [language for language in languages if language != pivot]
    if not beside:
        raise UserError(
            f"labelled files {pattern!r} in {pivot!r} alone: plug-in fine-tuning reads every"
            " example in two languages; name in TRAIN_LANGUAGES those into which the examples of"
            f" {pivot!r} are translated, or set PIVOT"
        )
    files = labelled_files(pattern, (*beside, pivot))
    if missing := [language for language in (*beside, pivot) if language not in files]:
        raise UserError(
            f"missing file: {pattern.replace('{language}', missing[0])}; plug-in fine-tuning reads"
            f" every example in a language of TRAIN_LANGUAGES and in PIVOT ({pivot!r}), a"
            " translation line by line"
        )
    return files
