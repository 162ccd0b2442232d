"""What retrieval gives without a neural model: surface overlap, and a linear model.

A trained encoder shows alignment only above the first, something new only above the second.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xlingjax.data.held_out_pairs import Pairs
from xlingjax.evaluation.retrieval import searched, shares
from xlingjax.runtime.packages import package
from xlingjax.runtime.progress import doing
from xlingjax.training.evaluator import Evaluator

FLOORS = {"char_tfidf": "TF-IDF", "lsi": "LSI"}  # what a reader calls them


def _vectoriser(**options):
    module = package("sklearn.feature_extraction.text", "retrieval floors", "scikit-learn")
    return module.TfidfVectorizer(analyzer="char", ngram_range=(1, 4), sublinear_tf=True, **options)


def char_tfidf(test: Pairs) -> dict[str, float]:
    """Cosine of character 1-4-gram TF-IDF (1 + log tf, weights fitted on the test sentences of both
    sides): shared spelling, no learning. {raw_en_to_xx, raw_xx_to_en} in 0..1."""
    vectoriser = _vectoriser().fit([*test.foreign, *test.english])
    english = vectoriser.transform(test.english)
    foreign = vectoriser.transform(test.foreign)
    scores = (english @ foreign.T).toarray()
    found = {"raw_en_to_xx": scores.argmax(axis=1), "raw_xx_to_en": scores.argmax(axis=0)}
    return shares(found)


def lsi(test: Pairs, train: Pairs, dimensions: int = 300, limit: int = 20000) -> dict[str, float]:
    """Cross-lingual latent semantic indexing: the two sides of a training pair are one document
    over both languages' n-grams, its truncated SVD is the shared space, a test sentence folds in
    from its own side alone. The four scores
    of retrieval in 0..1.

    train: at most `limit` pairs, drawn at random. dimensions: at most what these span.
    """
    # Here, since only a report with floors needs them.
    from scipy.sparse import hstack
    from sklearn.decomposition import TruncatedSVD

    chosen = np.random.default_rng(0).permutation(len(train))[:limit]
    # Of much text an n-gram of one document alone would only cost memory.
    rarest = 2 if len(chosen) > 500 else 1
    foreign, english = _vectoriser(min_df=rarest), _vectoriser(min_df=rarest)
    foreign_side = foreign.fit_transform([train.foreign[i] for i in chosen])
    english_side = english.fit_transform([train.english[i] for i in chosen])
    documents = hstack([foreign_side, english_side]).tocsr()
    rank = min(dimensions, min(documents.shape) - 1)
    svd = TruncatedSVD(rank, random_state=0).fit(documents)
    split = len(foreign.vocabulary_)
    english_SD = english.transform(test.english) @ svd.components_[:, split:].T
    foreign_SD = foreign.transform(test.foreign) @ svd.components_[:, :split].T
    return shares(searched(np.asarray(english_SD), np.asarray(foreign_SD)))


def floors(
    test: Mapping[str, Pairs],
    train: Mapping[str, Pairs] | None = None,
    *,
    dimensions: int = 300,
    limit: int = 20000,
) -> dict:
    """Both floors for every language of `test`; LSI only where `train` has pairs of the language.

    Returns {"char_tfidf": {language: scores}, "lsi": {language: scores}, "mean": {floor:
    raw_en_to_xx, mean over its languages}}.
    """
    train = train or {}
    doing("measuring what TF-IDF and LSI find")
    found = {
        "char_tfidf": {language: char_tfidf(pairs) for language, pairs in test.items()},
        "lsi": {
            language: lsi(pairs, train[language], dimensions, limit)
            for language, pairs in test.items()
            if language in train and len(train[language]) > 1
        },
    }
    means = {
        floor: float(np.mean([scores["raw_en_to_xx"] for scores in of.values()]))
        for floor, of in found.items()
        if of
    }
    return found | {"mean": means}


def verdict(retrieval: float, means: Mapping[str, float]) -> str:
    """A line: which floors a run's retrieval is above. retrieval: raw en to xx, mean over
    languages, 0..1; means: that of each floor."""
    named = {"above": [], "not above": []}
    for floor, value in means.items():
        place = "above" if retrieval > value else "not above"
        named[place].append(f"{FLOORS[floor]} {100 * value:.1f} %")
    said = [f"{place} {', '.join(names)}" for place, names in named.items() if names]
    line = f"retrieval {100 * retrieval:.1f} % is {', '.join(said)}"
    if retrieval <= means["char_tfidf"]:
        line += (
            ": these vectors find fewer translations than shared spelling does; more steps"
            " (TRAIN_STEPS, --hours) or more pairs may help"
        )
    return line


@dataclass
class RetrievalFloors(Evaluator):
    """The floors as an evaluator beside a `RetrievalEvaluator` on the same pairs, computed once."""

    test: Mapping[str, Pairs]
    train: Mapping[str, Pairs] | None = None
    name: str = "retrieval_floors"

    def __call__(self, model, params, step: int, mesh=None) -> dict:
        return {"kind": "floors"} | self._floors

    def verdict(self, values: Mapping[str, Mapping]) -> str:
        for found in values.values():
            if found.get("kind") == "retrieval":
                return verdict(found["retrieval_mean"], self._floors["mean"])
        return ""

    @functools.cached_property
    def _floors(self) -> dict:
        return floors(self.test, self.train)
