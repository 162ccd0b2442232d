"""What is measured on plain text and pairs while a run goes on, as recipes bind it: functions that
make evaluators when training starts.

Until then no file is read, so that a recipe is built where none of its files exist. What is
measured on labelled examples stands in `scores.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from xlingjax.config.corpus import Corpus, Files
from xlingjax.data.text.sources import find_pairs, find_text, split_list, split_patterns
from xlingjax.data.text.texts import Text
from xlingjax.errors import UserError

Evaluators = Callable[[], list[Any]]


def retrieval(
    corpus: Corpus,
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

    return unless_missing(pairs, make)


def alignment(corpus: Corpus, gold: str | None = None, limit: int = 0) -> Evaluators:
    """Alignment error rate against the gold links in folder `gold` (None: not run): `XX-en.XX`,
    `XX-en.en`, `XX-en.txt`. `limit` pairs per language; 0: all."""

    def make():
        from xlingjax.evaluation.alignment import AlignmentEvaluator, read_gold

        return AlignmentEvaluator(
            read_gold(gold, corpus.languages, limit), corpus.vocabulary, corpus.languages
        )

    return unless_missing(gold, make)


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

    def make():
        from xlingjax.data.held_out_pairs import pairs_with_english, read_pairs
        from xlingjax.evaluation.floors import RetrievalFloors

        train = None
        # LSI learns from the training pairs, never from those that are searched.
        if corpus.parallel and run != "tfidf":
            train = pairs_with_english(corpus.parallel)
        return RetrievalFloors(read_pairs(pairs, corpus.languages, limit), train, name=name)

    if not run:
        pairs = None
    return unless_missing(pairs, make)


def perplexity(
    corpus: Corpus,
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

    return unless_missing(text, make)


def translation_perplexity(
    corpus: Corpus,
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

    return unless_missing(pairs, make)


def samples(
    corpus: Corpus,
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

        found = None
        if pairs:
            found = read_pairs(pairs, corpus.languages)
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

    return unless_missing(text, make)


def recovery_samples(
    corpus: Corpus,
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

    return unless_missing(pairs, make)


def attention_maps(
    corpus: Corpus,
    pairs: str | None = None,
    run: bool = False,
    layer: int | None = None,
    reset_positions: bool = False,
    per_language: int = 1,
    length: int = 32,
    name: str = "attention_maps",
) -> Evaluators:
    """The attention of held-out `pairs` (None, or run=False: not run), for the report. layer,
    reset_positions: see `maps_of`; pairs of more than `length` tokens are left out."""

    def make():
        from xlingjax.data.held_out_pairs import read_pairs
        from xlingjax.evaluation.attention_maps import AttentionMaps

        return AttentionMaps(
            read_pairs(pairs, corpus.languages),
            corpus.vocabulary,
            corpus.languages,
            layer=layer,
            reset_positions=reset_positions,
            per_language=per_language,
            length=length,
            name=name,
        )

    if not run:
        pairs = None
    return unless_missing(pairs, make)


def pseudo_samples(
    corpus: Corpus,
    text: str | None = None,
    proportion: float = 0.15,
    placement: str = "behind",
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

        return PseudoSamples(
            heldout_texts(text, corpus.languages),
            corpus.vocabulary,
            corpus.languages,
            _pseudo_languages(corpus),
            proportion=proportion,
            placement=placement,
            reset_positions=reset_positions,
            per_language=per_language,
            length=length,
            name=name,
        )

    return unless_missing(text, make)


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
) -> Evaluators:
    """BTMLM's perplexity on held-out `text` at several `shares` of pseudo tokens (either None: not
    run), at most `limit` rows per language. most: the share that `length` is for; the others: those
    of `btmlm`."""

    def make():
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

    if not shares:
        text = None
    return unless_missing(text, make)


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


def unless_missing(path: Files, make: Callable[[], Any]) -> Evaluators:
    if not path:
        return lambda: []
    return lambda: [make()]


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


EVALUATORS = {
    "retrieval": retrieval,
    "alignment": alignment,
    "floors": floors,
    "perplexity": perplexity,
    "translation_perplexity": translation_perplexity,
    "samples": samples,
    "recovery_samples": recovery_samples,
    "attention_maps": attention_maps,
    "pseudo_samples": pseudo_samples,
    "pseudo_perplexity": pseudo_perplexity,
}
