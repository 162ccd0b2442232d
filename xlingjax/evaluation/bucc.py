"""BUCC 2018 as XTREME scores it: pairs mined by their margin, kept from a threshold on that the dev
set's gold gave (`utils_retrieve.py`: mine_bitext, bucc_optimize, bucc_extract)."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from jax.sharding import Mesh

from xlingjax.data.labelled.records import Bitext
from xlingjax.errors import UserError
from xlingjax.evaluation import tatoeba
from xlingjax.evaluation.tatoeba import chosen_layer, side_vectors
from xlingjax.inference import mine
from xlingjax.inference.sentences import LONGEST

NEIGHBOURS = 4
Pair = tuple[str, str]


@dataclass(frozen=True)
class Mining:
    """What was mined from a test set."""

    pairs: list[Pair]
    """(foreign id, English id), best first: the lines of XTREME's prediction file."""
    threshold: float
    """The lowest score that was kept."""


def paper_layer(layers: int) -> int:
    """The layer whose states are read, of a model of so many: the 8th (index 7 in XTREME's
    run_bucc2018.sh, of every model), of models that are too small for it Tatoeba's."""
    return min(8, tatoeba.paper_layer(layers))


def mine_pairs(
    model,
    params,
    bitext: Bitext,
    vocabulary,
    language: str,
    languages: Sequence[str],
    *,
    layer: int | None = None,
    pooling: str = "first",
    mesh: Mesh | None = None,
    prefix: str = "",
    max_length: int = LONGEST,
) -> dict[Pair, float]:
    """{(foreign id, English id): score}, best first: every pair that mining gives, before any
    threshold.

    Ratio margin over 4 neighbours each way, each sentence once. Equal sentences of a side are
    searched as one. A sentence that a side has twice takes part in the search, but has no id of its
    own and is left out of the result, as are scores that are not above 0. layer: None:
    `paper_layer`. pooling ... max_length: as in `predict_retrieval`; XTREME's pooling is "first"
    here.
    """
    layer = (
        paper_layer(model.config.layers)
        if layer is None
        else chosen_layer(layer, model.config.layers)
    )
    source_ids, source = _unified(bitext.source)
    target_ids, target = _unified(bitext.target)
    unified = Bitext(source, target, None)
    foreign, english = side_vectors(
        model,
        params,
        unified,
        vocabulary,
        language,
        languages,
        (pooling,),
        (layer,),
        mesh,
        prefix,
        max_length,
    )
    found = mine.mine(
        foreign[0, 0], english[0, 0], k=NEIGHBOURS, margin="ratio", mesh=mesh
    )
    pairs = (
        ((source_ids[source[i][1]], target_ids[target[j][1]]), float(score))
        for i, j, score in zip(found.source, found.target, found.scores, strict=True)
    )
    return {
        (a, b): score
        for (a, b), score in pairs
        if a is not None and b is not None and score > 0
    }


def _unified(rows: Sequence[Pair]) -> tuple[dict[str, str | None], tuple[Pair, ...]]:
    """({sentence: its id, None of one that is there twice}, the first of equal sentences)."""
    rows = [(id, text.strip()) for id, text in rows if text.strip()]
    count, ids = (
        Counter(text for _, text in rows),
        {text: id for id, text in reversed(rows)},
    )
    first = tuple((ids[text], text) for text in dict.fromkeys(text for _, text in rows))
    return {text: id if count[text] == 1 else None for text, id in ids.items()}, first


def tune_threshold(mined: Mapping[Pair, float], gold: Collection[Pair]) -> float:
    """The score from which on pairs are kept, where F1 is best on a dev set: halfway between the
    last pair that is kept and the next; of equal F1 the fewest pairs. After the last pair there is
    no next: its own score. 0 where no pair is right. Raises UserError: no gold."""
    if not gold:
        raise UserError("no gold pairs to tune a threshold on")
    items = sorted(mined.items(), key=lambda item: -item[1])
    right, best, threshold = 0, 0.0, 0.0
    for kept, (pair, score) in enumerate(items, 1):
        right += pair in gold
        f1 = 2 * right / (kept + len(gold))
        if f1 > best:
            best, threshold = (
                f1,
                (score + items[kept][1]) / 2 if kept < len(items) else score,
            )
    return threshold


def kept(mined: Mapping[Pair, float], threshold: float) -> list[Pair]:
    """The pairs that score `threshold` or more, best first."""
    return [
        pair
        for pair, score in sorted(mined.items(), key=lambda item: -item[1])
        if score >= threshold
    ]


def predict_mining(
    model,
    params,
    test: Bitext,
    dev: Bitext,
    vocabulary,
    language: str,
    languages: Sequence[str],
    *,
    layer: int | None = None,
    pooling: str = "first",
    mesh: Mesh | None = None,
    prefix: str = "",
    max_length: int = LONGEST,
) -> Mining:
    """The pairs of `test` from the threshold on that is best on `dev`, which has gold; where both
    are one set, its F1 flatters. layer ... max_length, errors: see `mine_pairs`."""
    if not dev.gold:
        raise UserError(
            f"{language}: the dev set has no gold pairs to tune the threshold on"
        )
    options = {
        "layer": layer,
        "pooling": pooling,
        "mesh": mesh,
        "prefix": prefix,
        "max_length": max_length,
    }
    on_dev = mine_pairs(model, params, dev, vocabulary, language, languages, **options)
    threshold = tune_threshold(on_dev, dev.gold)
    mined = (
        on_dev
        if test is dev
        else mine_pairs(model, params, test, vocabulary, language, languages, **options)
    )
    return Mining(kept(mined, threshold), threshold)


def scores(pairs: Collection[Pair], gold: Collection[Pair]) -> dict[str, float]:
    """{precision, recall, f1} in 0..1 of sets of pairs: a pair that is predicted twice counts
    once."""
    found, gold = set(pairs), set(gold)
    right = len(found & gold)
    return {
        "precision": right / len(found) if found else 0.0,
        "recall": right / len(gold) if gold else 0.0,
        "f1": 2 * right / (len(found) + len(gold)) if found or gold else 0.0,
    }
