"""Every metric of the benchmarks under its own name, with a line that says what it is.

Variants that papers call by one name ("F1", "accuracy") differ by points on the same predictions;
here each has a name. Values are in 0..100. How tasks are averaged: `averages.py`; where predictions
are read from: `submissions.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import groupby
from typing import Any

from xlingjax.data.labelled.records import Bitext, Example, Question, SourceTarget, Tagged
from xlingjax.data.labelled.task import KINDS
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics import answers
from xlingjax.evaluation.metrics import tags as scores_tagging


@dataclass(frozen=True)
class Metric:
    name: str
    kind: str
    """Of `KINDS`: what it scores. Those of "classification" score "ranking" too."""
    signature: str
    """One line: rules, the script or library version it equals, normalisation, what is averaged."""
    compute: Callable[[Sequence[Any], Any, str], float]
    """(gold records, predictions in their order, language of the texts) -> 0..100. Predictions:
    label strings (classification, ranking), lists of tags (tagging), {id: text} (span_qa), 0-based
    rows of the foreign side, one for each English sentence (retrieval), pairs of ids (mining),
    texts (generation). Raises UserError where their number
    is not that of the gold records."""


def _labels(gold: Sequence[Example], predicted: Sequence[str]) -> list[str]:
    _check_number(len(gold), len(predicted), "example")
    labels = []
    for number, (example, label) in enumerate(zip(gold, predicted, strict=True), 1):
        if example.label is None:
            raise UserError(
                f"example {number} has no gold label; score a split whose labels are distributed"
            )
        if not isinstance(label, str):
            raise UserError(f"prediction {number} is {label!r}: give the label's text, not its id")
        labels.append(example.label)
    return labels


def _check_number(wanted: int, given: int, what: str) -> None:
    if wanted != given:
        raise UserError(
            f"{given} predictions for {wanted} {what}s: give one for each, in their order"
        )
    if not wanted:
        raise UserError(f"0 {what}s: there is nothing to score")


# --- labels ---------------------------------------------------------------------------------------


def accuracy(gold: Sequence[Example], predicted: Sequence[str], language: str = "") -> float:
    labels = _labels(gold, predicted)
    right = sum(made == label for made, label in zip(predicted, labels, strict=True))
    return 100 * (right / len(labels))


def ndcg_wpr(gold: Sequence[Example], predicted: Sequence[str], language: str = "") -> float:
    """The records are (query, page) and the rating, a whole number as text."""
    labels = _labels(gold, predicted)
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


# --- tags -----------------------------------------------------------------------------------------


def _tags(gold: Sequence[Tagged], predicted: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    _check_number(len(gold), len(predicted), "sentence")
    for number, (sentence, tags) in enumerate(zip(gold, predicted, strict=True), 1):
        if not sentence.tags:
            raise UserError(
                f"sentence {number} has no gold tags; score a split whose tags are distributed"
            )
        if len(tags) != len(sentence.tags):
            raise UserError(
                f"sentence {number}: {len(tags)} tags predicted for {len(sentence.tags)} words"
            )
        for tag in tags:
            if not isinstance(tag, str) or not tag:
                raise UserError(
                    f"sentence {number}: the prediction {tag!r} is no tag; give the tag's text,"
                    " not its id"
                )
    return [sentence.tags for sentence in gold]


def token_accuracy(
    gold: Sequence[Tagged], predicted: Sequence[Sequence[str]], language: str = ""
) -> float:
    return 100 * scores_tagging.token_accuracy(predicted, _tags(gold, predicted))


def conll_f1(
    gold: Sequence[Tagged], predicted: Sequence[Sequence[str]], language: str = ""
) -> float:
    return 100 * scores_tagging.entity_f1(predicted, _tags(gold, predicted))


def _seqeval(
    which: int, gold: Sequence[Tagged], predicted: Sequence[Sequence[str]], language: str = ""
) -> float:
    return 100 * scores_tagging.precision_recall_f1(predicted, _tags(gold, predicted))[which]


# --- answers --------------------------------------------------------------------------------------


def _answers(
    compare: Callable,
    mlqa: bool,
    gold: Sequence[Question],
    predicted: Mapping[str, str],
    language: str,
) -> float:
    if not gold:
        raise UserError("0 questions: there is nothing to score")
    tokens: Callable[[str], list[str]] = answers.squad_tokens
    if mlqa:
        tokens = partial(answers.mlqa_tokens, language=language)
    # An unknown language is refused though no question be answered.
    tokens("")
    return answers.answer_score(gold, predicted, tokens, compare)


# --- pairs of sentences ---------------------------------------------------------------------------


def _bitext(gold: Sequence[Bitext]) -> Bitext:
    if len(gold) != 1 or not gold[0].gold:
        raise UserError("no gold pairs of one bitext; score a split whose answers are distributed")
    return gold[0]


def tatoeba_accuracy(gold: Sequence[Bitext], predicted: Sequence[int], language: str = "") -> float:
    """A bitext without foreign sentences, as XTREME's label files are, has the rows as ids. A row
    None finds nothing."""
    bitext = _bitext(gold)
    _check_number(len(bitext.target), len(predicted), "English sentence")
    right = 0
    for number, ((english, _), row) in enumerate(zip(bitext.target, predicted, strict=True), 1):
        # No answer.
        if row is None:
            continue
        if (
            # True would be taken for row 1.
            isinstance(row, bool)
            or int(row) != row
            or row < 0
            or (bitext.source and row >= len(bitext.source))
        ):
            raise UserError(
                f"prediction {number} is {row!r}: not a row of the foreign side, 0 to"
                f" {len(bitext.source) - 1}"
            )
        foreign = str(int(row))
        # Files of labels alone have no sentences, and rows are their ids.
        if bitext.source:
            foreign = bitext.source[int(row)][0]
        right += (foreign, english) in bitext.gold
    return 100 * (right / len(bitext.target))


def _bucc(
    which: int, gold: Sequence[Bitext], predicted: Iterable[tuple[str, str]], language: str = ""
) -> float:
    wanted = _bitext(gold).gold
    # Pairs may come as lists, out of JSON.
    made = {(source, target) for source, target in predicted}
    right = len(wanted & made)
    if not right:
        return 0.0
    precision = right / len(made)
    recall = right / len(wanted)
    f1 = 2 * precision * recall / (precision + recall)
    return 100 * (precision, recall, f1)[which]


# --- texts ----------------------------------------------------------------------------------------


def _texts(gold: Sequence[SourceTarget], predicted: Sequence[str]) -> list[str]:
    _check_number(len(gold), len(predicted), "text")
    targets = []
    for number, pair in enumerate(gold, 1):
        if pair.target is None:
            raise UserError(
                f"text {number} has no gold target; score a split whose targets are distributed"
            )
        targets.append(pair.target)
    return targets


def xglue_bleu(gold: Sequence[SourceTarget], predicted: Sequence[str], language: str = "") -> float:
    from sacrebleu import corpus_bleu

    # As the script reads lines.
    references = [text.split("\t")[-1].strip() for text in _texts(gold, predicted)]
    made = [text.strip() for text in predicted]
    return corpus_bleu(made, [references], lowercase=True).score


def _generated(
    name: str, gold: Sequence[SourceTarget], predicted: Sequence[str], language: str
) -> float:
    # Here, since it imports sacreBLEU, which few tasks need.
    from xlingjax.evaluation.metrics import text as generation

    texts = _texts(gold, predicted)
    if name == "sacrebleu":
        return generation.bleu(predicted, texts, language)[0]
    if name == "rouge_l":
        return generation.rouge_l(predicted, texts, language)
    if name == "chrf":
        return generation.chrf(predicted, texts)[0]
    return generation.tokenised_bleu(predicted, texts)[0]


# --- the table ------------------------------------------------------------------------------------

# With the version, as sacreBLEU's own signature has it.
_SACREBLEU = f"sacreBLEU {version('sacrebleu')}, one reference, of all texts together"
_SEQEVAL = (
    "of chunks by the rules of seqeval 0.0.x (mark = first character of a tag, type = text after"
    " its last '-'; equal bare tags in a row are one chunk), micro over all sentences; words that"
    " an XGLUE file has no tag for count as O"
)
_SQUAD = (
    "as evaluate-v1.1.py of SQuAD: lower case, ASCII punctuation and a/an/the dropped, split at"
    " spaces, by English rules in every language; the best over gold answers, 0 for a missing id,"
    " mean over questions"
)
_MLQA = (
    "as mlqa_evaluation_v1.py: lower case, all punctuation and the articles of the context's"
    " language dropped, split at spaces, zh by ideograph; the best over gold answers, 0 for a"
    " missing id, mean over questions"
)
_BUCC = (
    "of the set of (foreign id, English id) against the gold pairs, duplicates ignored (XTREME's"
    " evaluate.py)"
)

_ROWS: Sequence[tuple[str, str, Callable, str]] = (
    (
        "accuracy",
        "classification",
        accuracy,
        "share of examples whose label string equals the gold one",
    ),
    (
        "ndcg_wpr",
        "ranking",
        ndcg_wpr,
        (
            f"ndcg_score of scikit-learn {version('scikit-learn')} (linear gain, whole list, ties"
            " averaged) of the predicted classes as scores; a query is a run of equal first"
            " columns, those with one result left out, mean over queries (xglue_evaluate.py)"
        ),
    ),
    (
        "token_accuracy",
        "tagging",
        token_accuracy,
        "share of words, over all sentences, that have their gold tag",
    ),
    ("seqeval_f1", "tagging", partial(_seqeval, 2), f"F1 {_SEQEVAL}"),
    ("seqeval_precision", "tagging", partial(_seqeval, 0), f"precision {_SEQEVAL}"),
    ("seqeval_recall", "tagging", partial(_seqeval, 1), f"recall {_SEQEVAL}"),
    (
        "conll_f1",
        "tagging",
        conll_f1,
        (
            "F1 of entities of IOB2 tags as conlleval reads them (exact span and type; I- after"
            " another type opens one), micro over all sentences"
        ),
    ),
    (
        "squad_f1",
        "span_qa",
        partial(_answers, answers.token_f1, False),
        f"F1 of bags of tokens, {_SQUAD}",
    ),
    (
        "squad_em",
        "span_qa",
        partial(_answers, answers.exact_match, False),
        f"exact match, {_SQUAD}",
    ),
    (
        "mlqa_f1",
        "span_qa",
        partial(_answers, answers.token_f1, True),
        f"F1 of bags of tokens, {_MLQA}",
    ),
    ("mlqa_em", "span_qa", partial(_answers, answers.exact_match, True), f"exact match, {_MLQA}"),
    (
        "tatoeba_accuracy",
        "retrieval",
        tatoeba_accuracy,
        (
            "share of English sentences (queries) whose nearest foreign sentence is their"
            " translation (XTREME's evaluate.py)"
        ),
    ),
    ("bucc_f1", "mining", partial(_bucc, 2), f"F1 {_BUCC}"),
    ("bucc_precision", "mining", partial(_bucc, 0), f"precision {_BUCC}"),
    ("bucc_recall", "mining", partial(_bucc, 1), f"recall {_BUCC}"),
    (
        "xglue_bleu",
        "generation",
        xglue_bleu,
        (
            f"BLEU, {_SACREBLEU}, case folded, tok 13a in every language, smooth exp"
            " (xglue_evaluate.py)"
        ),
    ),
    (
        "sacrebleu",
        "generation",
        partial(_generated, "sacrebleu"),
        f"BLEU, {_SACREBLEU}, case kept, tok 13a (zh: zh; ja, th, lo, km, my: char), smooth exp",
    ),
    (
        "tokenised_bleu",
        "generation",
        partial(_generated, "tokenised_bleu"),
        (
            f"BLEU as multi-bleu.perl, {_SACREBLEU}, of texts tokenised beforehand, case kept, no"
            " smoothing"
        ),
    ),
    (
        "chrf",
        "generation",
        partial(_generated, "chrf"),
        f"chrF2, {_SACREBLEU}, case kept, character 1- to 6-grams",
    ),
    (
        "rouge_l",
        "generation",
        partial(_generated, "rouge_l"),
        (
            f"ROUGE-L F1 of rouge_score {version('rouge-score')}, lower-cased words unstemmed,"
            " single characters in zh, ja, th, lo, km, my; mean over texts"
        ),
    ),
)

METRICS: dict[str, Metric] = {
    name: Metric(name, kind, text, compute) for name, kind, compute, text in _ROWS
}
"""Name -> metric. The names are those that the tables of tasks use."""


def metrics_of(kind: str) -> tuple[str, ...]:
    """Names of the metrics that score a kind of task. Raises UserError for one that is not of
    `KINDS`."""
    if kind not in KINDS:
        raise UserError(f"{kind!r} is no kind of task: {', '.join(KINDS)}")
    kinds = [kind]
    # A rating is a class too.
    if kind == "ranking":
        kinds.append("classification")
    return tuple(name for name, metric in METRICS.items() if metric.kind in kinds)


def find_metric(name: str, kind: str) -> Metric:
    """Raises UserError for an unknown name, or one that does not score this kind."""
    if name not in metrics_of(kind):
        raise UserError(f"{name!r} is no metric of a {kind} task: {', '.join(metrics_of(kind))}")
    return METRICS[name]
