"""Every metric of the benchmarks under its own name, with a line that says what it is.

Variants that papers call by one name ("F1", "accuracy") differ by points on the same predictions;
here each has a name, and metrics.toml says what it is. Values are in 0..100. Averages:
`averages.py`; files: `submissions.py`.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from importlib.metadata import version
from itertools import groupby
from typing import Any

from xlingjax.data.labelled.records import Bitext, Example, Question, SourceTarget, Tagged
from xlingjax.data.labelled.task import KINDS, Task
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics import answers
from xlingjax.evaluation.metrics import tags as of_tags


@dataclass(frozen=True)
class Metric:
    kind: str  # of `KINDS`: what it scores. Those of "classification" score "ranking" too.
    signature: str
    """One line: rules, the script or library version it equals, normalisation, what is averaged."""
    compute: Callable[[Sequence, Any, str], float]
    """(gold records, predictions in their order, language of the texts) -> 0..100. Predictions:
    label strings (classification, ranking), lists of tags (tagging), {id: text} (span_qa), 0-based
    rows of the foreign side, one for each English sentence (retrieval), pairs of ids (mining),
    texts (generation). Raises UserError where their number
    is not that of the gold records."""


def _gold(records: Sequence, predicted: Sequence, field: str) -> list:
    """The records' field. Raises UserError where one is missing, or a prediction is."""
    if len(records) != len(predicted):
        raise UserError(
            f"{len(predicted)} predictions for {len(records)} examples: give one for each, in their"
            " order"
        )
    if not records:
        raise UserError("0 examples: there is nothing to score")
    gold = [getattr(record, field) for record in records]
    for number, answer in enumerate(gold, 1):
        if answer is None or answer == ():
            raise UserError(
                f"example {number} has no gold {field}; score a split whose answers are distributed"
            )
    return gold


def accuracy(gold: Sequence[Example], predicted: Sequence[str], language: str = "") -> float:
    labels = _gold(gold, predicted, "label")
    for number, label in enumerate(predicted, 1):
        # Ids would be equal to no label.
        if not isinstance(label, str):
            raise UserError(f"prediction {number} is {label!r}: give the label's text, not its id")
    right = sum(made == label for made, label in zip(predicted, labels, strict=True))
    return 100 * (right / len(labels))


def ndcg_wpr(gold: Sequence[Example], predicted: Sequence[str], language: str = "") -> float:
    """The records are (query, page) and the rating, a whole number as text."""
    labels = _gold(gold, predicted, "label")
    rows = []
    for number, (example, label, made) in enumerate(zip(gold, labels, predicted, strict=True), 1):
        try:
            rows.append((example.premise, float(label), float(made)))
        except ValueError:
            raise UserError(
                f"example {number}: {label!r}, {made!r}: nDCG needs ratings that are numbers"
            ) from None
    # Runs of equal queries, as the script reads the file: a query that comes back later is another
    # one. One result is in order whatever its rating.
    runs = [list(results) for _, results in groupby(rows, key=lambda row: row[0])]
    queries = [run for run in runs if len(run) > 1]
    if not queries:
        raise UserError(
            "no query has two results in a row: nDCG has nothing to order; is the file sorted by"
            " query?"
        )
    # Here, since scikit-learn takes long to import and one task needs it.
    from sklearn.metrics import ndcg_score

    values = []
    for run in queries:
        _, ratings, classes = zip(*run, strict=True)
        # One query at a time: their numbers of results differ.
        values.append(ndcg_score([ratings], [classes]))
    return 100 * (sum(values) / len(values))


def _of_tags(
    measure: Callable, gold: Sequence[Tagged], predicted: Sequence[Sequence[str]], language: str
) -> float:
    tags = _gold(gold, predicted, "tags")
    for number, (made, wanted) in enumerate(zip(predicted, tags, strict=True), 1):
        if len(made) != len(wanted):
            raise UserError(
                f"sentence {number}: {len(made)} tags predicted for {len(wanted)} words"
            )
    return 100 * measure(predicted, tags)


def _seqeval(which: int) -> Callable:
    return partial(_of_tags, lambda *tags: of_tags.precision_recall_f1(*tags)[which])


def _answers(
    compare: Callable,
    tokens: Callable[[str, str], list[str]],
    gold: Sequence[Question],
    predicted: Mapping[str, str],
    language: str,
) -> float:
    if not gold:
        raise UserError("0 questions: there is nothing to score")
    # An unknown language is refused though no question be answered.
    tokens("", language)
    return answers.answer_score(gold, predicted, lambda text: tokens(text, language), compare)


def _bitext(gold: Sequence[Bitext]) -> Bitext:
    if len(gold) != 1 or not gold[0].gold:
        raise UserError("no gold pairs of one bitext; score a split whose answers are distributed")
    return gold[0]


def tatoeba_accuracy(gold: Sequence[Bitext], predicted: Sequence[int], language: str = "") -> float:
    """A bitext without foreign sentences, as XTREME's label files are, has the rows as ids."""
    bitext = _bitext(gold)
    if len(bitext.target) != len(predicted):
        raise UserError(f"{len(predicted)} predictions for {len(bitext.target)} English sentences")
    right = 0
    for number, ((english, _), row) in enumerate(zip(bitext.target, predicted, strict=True), 1):
        foreign = str(row)
        # By ids and not by rows: XTREME sorts the English side, and a line may have several
        # translations. Files of labels alone have no sentences, and rows are their ids.
        if bitext.source:
            if not 0 <= row < len(bitext.source):
                raise UserError(
                    f"prediction {number} is {row!r}: not a row of the foreign side, 0 to"
                    f" {len(bitext.source) - 1}"
                )
            foreign = bitext.source[row][0]
        right += (foreign, english) in bitext.gold
    return 100 * (right / len(bitext.target))


def _bucc(
    which: int, gold: Sequence[Bitext], predicted: Iterable[tuple[str, str]], language: str = ""
) -> float:
    # Pairs may come as lists, out of JSON.
    made = {(source, target) for source, target in predicted}
    return 100 * of_tags.rates(_bitext(gold).gold, made)[which]


def xglue_bleu(gold: Sequence[SourceTarget], predicted: Sequence[str], language: str = "") -> float:
    from sacrebleu import corpus_bleu

    # As the script reads lines.
    references = [text.split("\t")[-1].strip() for text in _gold(gold, predicted, "target")]
    made = [text.strip() for text in predicted]
    return corpus_bleu(made, [references], lowercase=True).score


def _generated(
    name: str, gold: Sequence[SourceTarget], predicted: Sequence[str], language: str
) -> float:
    # Here, since it imports sacreBLEU, which few tasks need.
    from xlingjax.evaluation.metrics import text as generation

    texts = _gold(gold, predicted, "target")
    if name == "sacrebleu":
        return generation.bleu(predicted, texts, language)[0]
    if name == "rouge_l":
        return generation.rouge_l(predicted, texts, language)
    if name == "chrf":
        return generation.chrf(predicted, texts)[0]
    return generation.tokenised_bleu(predicted, texts)[0]


_COMPUTE = {
    "accuracy": accuracy,
    "ndcg_wpr": ndcg_wpr,
    "token_accuracy": partial(_of_tags, of_tags.token_accuracy),
    "seqeval_f1": _seqeval(2),
    "seqeval_precision": _seqeval(0),
    "seqeval_recall": _seqeval(1),
    "conll_f1": partial(_of_tags, of_tags.entity_f1),
    "squad_f1": partial(_answers, answers.token_f1, answers.squad_tokens),
    "squad_em": partial(_answers, answers.exact_match, answers.squad_tokens),
    "mlqa_f1": partial(_answers, answers.token_f1, answers.mlqa_tokens),
    "mlqa_em": partial(_answers, answers.exact_match, answers.mlqa_tokens),
    "tatoeba_accuracy": tatoeba_accuracy,
    "bucc_f1": partial(_bucc, 2),
    "bucc_precision": partial(_bucc, 0),
    "bucc_recall": partial(_bucc, 1),
    "xglue_bleu": xglue_bleu,
    "sacrebleu": partial(_generated, "sacrebleu"),
    "tokenised_bleu": partial(_generated, "tokenised_bleu"),
    "chrf": partial(_generated, "chrf"),
    "rouge_l": partial(_generated, "rouge_l"),
}
_TEXTS = tomllib.loads(resources.files(__package__).joinpath("metrics.toml").read_text("utf-8"))
# As sacreBLEU's own signature has its version.
_VERSIONS = {name: version(name) for name in ("sacrebleu", "scikit_learn", "rouge_score")}

METRICS: dict[str, Metric] = {
    name: Metric(text["kind"], text["signature"].format(**_VERSIONS), _COMPUTE[name])
    for name, text in _TEXTS.items()
}
"""Name -> metric. The names are those that the tables of tasks use."""


def metrics_of(kind: str) -> tuple[str, ...]:
    """The metrics that score a kind of task. Raises UserError for one that is not of `KINDS`."""
    if kind not in KINDS:
        raise UserError(f"{kind!r} is no kind of task: {', '.join(KINDS)}")
    # A rating is a class too.
    kinds = (kind, "classification") if kind == "ranking" else (kind,)
    return tuple(name for name, metric in METRICS.items() if metric.kind in kinds)


def find_metric(name: str, kind: str) -> Metric:
    """Raises UserError for an unknown name, or one that does not score this kind."""
    if name not in metrics_of(kind):
        raise UserError(f"{name!r} is no metric of a {kind} task: {', '.join(metrics_of(kind))}")
    return METRICS[name]


def scored(task: Task, gold: Sequence, predicted: Any, language: str) -> dict[str, float]:
    """{metric: 0..100}, the task's metrics. Raises UserError naming task and language."""
    try:
        metrics = {name: find_metric(name, task.kind) for name in task.metrics}
        return {name: one.compute(gold, predicted, language) for name, one in metrics.items()}
    except UserError as error:
        raise UserError(f"{task.full_name}, {language}: {error}") from None
