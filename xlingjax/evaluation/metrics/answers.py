"""Metrics of answers given as text: those of SQuAD 1.1 (Rajpurkar et al. 2016) and of MLQA (Lewis
et al. 2020).

They differ in what is dropped before texts are compared, and in what a token is.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from xlingjax.data.labelled.records import Question
from xlingjax.data.languages import base_language
from xlingjax.errors import UserError

_ASCII_PUNCTUATION = frozenset(string.punctuation)
_ENGLISH_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ARTICLES = {
    # The first half matches nothing, the second inside words too: as published.
    "ar": re.compile(r"\sال^|ال"),
    "de": re.compile(r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b"),
    "en": _ENGLISH_ARTICLES,
    "es": re.compile(r"\b(un|una|unos|unas|el|la|los|las)\b"),
    "hi": None,
    "vi": re.compile(r"\b(của|là|cái|chiếc|những)\b"),
    "zh": None,
}


def squad_tokens(text: str, language: str = "") -> list[str]:
    """Lower-cased words without ASCII punctuation and English articles, whatever the language
    (`evaluate-v1.1.py`)."""
    # In the script's order: punctuation goes first, so that articles beside it are found.
    text = "".join(c for c in text.lower() if c not in _ASCII_PUNCTUATION)
    return _ENGLISH_ARTICLES.sub(" ", text).split()


def mlqa_tokens(text: str, language: str) -> list[str]:
    """Lower-cased words without Unicode punctuation and the language's articles; in Chinese each
    ideograph of U+4E00..U+9FA5 alone (`mlqa_evaluation_v1.py`). Raises UserError for a language it
    has no rules for."""
    language = base_language(language)
    if language not in _ARTICLES:
        raise UserError(
            f"MLQA's metrics have no rules for the language {language!r}, only for"
            f" {', '.join(_ARTICLES)}; the metrics squad_f1 and squad_em read every language by"
            " English rules"
        )
    kept = []
    for c in text.lower():
        # ASCII has symbols, as $ and +, that are no punctuation to Unicode.
        if c in _ASCII_PUNCTUATION or unicodedata.category(c)[0] == "P":
            continue
        kept.append(c)
    text = "".join(kept)
    articles = _ARTICLES[language]
    if articles:
        text = articles.sub(" ", text)
    if language == "zh":
        # The published range: ideographs beyond it stay in one token.
        text = re.sub("([\u4e00-\u9fa5])", r" \1 ", text)
    return text.split()


def token_f1(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """F1 of two bags of tokens; 0 where they share none, also where both are empty."""
    same = sum((Counter(predicted) & Counter(gold)).values())
    # As published: two answers that normalise to nothing share no token, and score 0.
    if not same:
        return 0.0
    precision = same / len(predicted)
    recall = same / len(gold)
    return 2 * precision * recall / (precision + recall)


def exact_match(predicted: Sequence[str], gold: Sequence[str]) -> float:
    # Of tokens and not of strings: what is dropped must not make two answers differ.
    return float(list(predicted) == list(gold))


def answer_score(
    gold: Sequence[Question],
    predicted: Mapping[str, str],
    tokens: Callable[[str], list[str]],
    compare: Callable[[Sequence[str], Sequence[str]], float],
) -> float:
    """Mean over the questions of the best of `compare` over the gold answers, in 0..100; 0 where an
    id has no prediction. Raises UserError where a question has no gold answer."""
    total = 0.0
    for question in gold:
        if not question.answers:
            raise UserError(
                f"question {question.id}: no gold answer; score a split that has answers"
            )
        # An id without a prediction counts as wrong, as in the scripts.
        if question.id in predicted:
            made = tokens(predicted[question.id])
            # Any of the gold answers will do, as the scripts have it.
            total += max(compare(made, tokens(answer)) for answer in question.answers)
    return 100.0 * total / len(gold)
