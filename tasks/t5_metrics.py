"""Metrics of `t5.evaluation.metrics` whose definition is a benchmark's.

Only where they are the same number on any input. T5's others are not: its BLEU splits as mteval's
`intl` does unless it is told another tokenizer, its ROUGE is the median of resampled means of
English words, it has none of tags, of MLQA's answers, of retrieval, and no chrF.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from xlingjax.data.labelled.records import Example, Question, SourceTarget
from xlingjax.data.vocabulary.word_pieces import UNSPACED, base_language

Targets = Sequence[Any]
Texts = Sequence[str]


def accuracy(targets: Sequence[Example], texts: Texts, language: str) -> float:
    from t5.evaluation import metrics

    labels = [example.label for example in targets]
    # Of strings. T5's `accuracy` goes through NumPy, to which "a\0" is "a".
    return metrics.sequence_accuracy(labels, texts)["sequence_accuracy"]


def squad_f1(targets: Sequence[Question], texts: Texts, language: str) -> float:
    return _squad(targets, texts)["f1"]


def squad_em(targets: Sequence[Question], texts: Texts, language: str) -> float:
    return _squad(targets, texts)["em"]


def _squad(targets: Sequence[Question], texts: Texts) -> dict[str, float]:
    from t5.evaluation import metrics

    return metrics.squad([question.answers for question in targets], texts)


def sacrebleu(targets: Sequence[SourceTarget], texts: Texts, language: str) -> float:
    from t5.evaluation import metrics

    base = base_language(language)
    tokenizer = "13a"
    if base == "zh":
        tokenizer = "zh"
    # 13a would take a whole sentence for one token.
    elif base in UNSPACED:
        tokenizer = "char"
    references = [pair.target for pair in targets]
    return metrics.bleu(references, texts, tokenizer)["bleu"]


METRICS: dict[str, Callable[[Any, Texts, str], float]] = {
    "accuracy": accuracy,
    "squad_f1": squad_f1,
    "squad_em": squad_em,
    "sacrebleu": sacrebleu,
}
"""Name in the tables of tasks -> (gold records, a text for each, language) -> 0..100."""


def t5_metric(name: str) -> Callable[[Any, Texts, str], float] | None:
    """T5's function for a metric; None: it has none of this definition, or t5 is not installed,
    without which ours gives the same number."""
    # Found, not imported, since that takes seconds.
    if importlib.util.find_spec("t5") is None:
        return None
    return METRICS.get(name)
