"""BUCC 2018 as XTREME scores it: pairs mined by their margin, kept from a threshold on that the dev
set's gold gave (`utils_retrieve.py`: mine_bitext, bucc_optimize, bucc_extract)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xlingjax.data.labelled.records import Bitext
from xlingjax.errors import UserError
from xlingjax.evaluation import tatoeba
from xlingjax.evaluation.tatoeba import chosen_layer, side_vectors
from xlingjax.inference import mine
from xlingjax.inference.run import TrainedRun

NEIGHBOURS = 4
Pair = tuple[str, str]


@dataclass(frozen=True)
class Mining:
    """What was mined from a test set."""

    pairs: list[Pair]  # (foreign id, English id), best first: the lines of XTREME's prediction file
    threshold: float  # the lowest score that was kept


def paper_layer(layers: int) -> int:
    """The layer whose states are read, of a model of so many: the 8th (index 7 in XTREME's
    run_bucc2018.sh, of every model), of models that are too small for it Tatoeba's."""
    return min(8, tatoeba.paper_layer(layers))


def mine_pairs(
    run: TrainedRun,
    bitext: Bitext,
    language: str,
    *,
    layer: int | None = None,
    pooling: str = "first",
    **options: Any,
) -> dict[Pair, float]:
    """{(foreign id, English id): score}, best first: all that mining gives.

    Ratio margin over 4 neighbours each way, each sentence once. Equal sentences of a side are
    searched as one. A sentence that a side has twice takes part in the search, but has no id of its
    own and is left out of the result, as are scores that are not above 0. layer: None:
    `paper_layer`. pooling ... options: as in `predict_retrieval`; XTREME's pooling is "first" here.
    """
    layers = run.model.config.layers
    layer = paper_layer(layers) if layer is None else chosen_layer(layer, layers)
    # As XTREME's script: a sentence that is there twice would be its own nearest rival.
    source_ids, target_ids = _unified(bitext.source), _unified(bitext.target)
    sides = [tuple((text, text) for text in ids) for ids in (source_ids, target_ids)]
    options |= {"poolings": (pooling,), "layers": (layer,)}
    foreign, english = side_vectors(run, Bitext(*sides, None), language, **options)
    found = mine.mine(foreign[0, 0], english[0, 0], k=NEIGHBOURS, margin="ratio", mesh=run.mesh)
    of_source, of_target = [*source_ids.values()], [*target_ids.values()]
    pairs = {}
    for i, j, score in zip(found.source, found.target, found.scores, strict=True):
        pair = (of_source[i], of_target[j])
        # A sentence of two ids is scored under neither: the gold has but one of them.
        if None not in pair and score > 0:
            pairs[pair] = float(score)
    return pairs


def _unified(rows: Sequence[Pair]) -> dict[str, str | None]:
    """{sentence: its id}, None of one that is there twice: the gold may mean either."""
    ids: dict[str, str | None] = {}
    for id_, text in rows:
        if text := text.strip():
            ids[text] = None if text in ids else id_
    return ids


def tune_threshold(mined: Mapping[Pair, float], gold: Collection[Pair]) -> float:
    """The score from which on pairs are kept, where F1 is best on a dev set: halfway between the
    last pair that is kept and the next; of equal F1 the fewest pairs. After the last pair there is
    no next: its own score. 0 where no pair is right. Raises UserError: no gold."""
    if not gold:
        raise UserError("no gold pairs to tune a threshold on")
    # Pairs are cut off from the lowest score on, so each length of this list is one threshold.
    items = sorted(mined.items(), key=lambda item: -item[1])
    right = 0
    best = 0.0
    threshold = 0.0
    for kept, (pair, score) in enumerate(items, 1):
        right += pair in gold
        f1 = 2 * right / (kept + len(gold))
        # "<=": of equal F1 the fewest pairs stay, as they come first.
        if f1 <= best:
            continue
        best = f1
        # `kept` counts from 1: the pair of this index is the next.
        threshold = (score + items[kept][1]) / 2 if kept < len(items) else score
    return threshold


def kept(mined: Mapping[Pair, float], threshold: float) -> list[Pair]:
    """The pairs that score `threshold` or more, best first."""
    best_first = sorted(mined.items(), key=lambda item: -item[1])
    return [pair for pair, score in best_first if score >= threshold]


def predict_mining(
    run: TrainedRun, test: Bitext, dev: Bitext, language: str, **options: Any
) -> Mining:
    """The pairs of `test` from the threshold on that is best on `dev`, which has gold; where both
    are one set, its F1 flatters. options, errors: see `mine_pairs`."""
    if not dev.gold:
        raise UserError(f"{language}: the dev set has no gold pairs to tune the threshold on")
    on_dev = mine_pairs(run, dev, language, **options)
    threshold = tune_threshold(on_dev, dev.gold)
    mined = on_dev if test is dev else mine_pairs(run, test, language, **options)
    return Mining(kept(mined, threshold), threshold)
