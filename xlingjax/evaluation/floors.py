"""What retrieval gives without a neural model: surface overlap, and a linear model of the same
parallel text.

A trained encoder says something about alignment only above the first, and something new only above
the second.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.held_out_pairs import Pairs
from xlingjax.errors import UserError
from xlingjax.evaluation.retrieval import score_layer
from xlingjax.training.evaluator import Evaluator


def _vectoriser(**options):
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError:
        raise UserError(
            "retrieval floors need scikit-learn: pip install scikit-learn",
        ) from None
    return TfidfVectorizer(
        analyzer="char",
        ngram_range=(1, 4),
        sublinear_tf=True,
        **options,
    )


def char_tfidf(test: Pairs) -> dict[str, float]:
    """Cosine of character 1-4-gram TF-IDF (1 + log tf, weights fitted on the test sentences of both
    sides): shared spelling, no learning. {raw_en_to_xx, raw_xx_to_en} in 0..1."""
    # On the sentences that are searched: only shared spelling is to count, not what a corpus knows.
    vectoriser = _vectoriser().fit([*test.foreign, *test.english])
    english = vectoriser.transform(test.english)
    foreign = vectoriser.transform(test.foreign)
    # TF-IDF rows have length 1, so that their product is the cosine.
    scores = (english @ foreign.T).toarray()
    # Line n of either side translates line n of the other.
    gold = np.arange(len(test))
    return {
        "raw_en_to_xx": float(np.mean(scores.argmax(axis=1) == gold)),
        "raw_xx_to_en": float(np.mean(scores.argmax(axis=0) == gold)),
    }


def lsi(
    test: Pairs,
    train: Pairs,
    dimensions: int = 300,
    limit: int = 20000,
    seed: int = 0,
) -> dict[str, float]:
    """Cross-lingual latent semantic indexing: the two sides of a training pair are one document
    over both languages' n-grams, its truncated SVD is the shared space, a test sentence folds in
    from its own side alone. The four scores
    of retrieval in 0..1.

    train: at most `limit` of these pairs, drawn with `seed`. `dimensions` is cut to what the pairs
    can span.
    """
    # Here, since only a report with floors needs them.
    from scipy.sparse import hstack
    from sklearn.decomposition import TruncatedSVD

    chosen = np.random.default_rng(seed).permutation(len(train))[:limit]
    # Of much text an n-gram of one document alone would only cost memory.
    rarest = 1
    if len(chosen) > 500:
        rarest = 2
    foreign, english = _vectoriser(min_df=rarest), _vectoriser(min_df=rarest)
    foreign_side = foreign.fit_transform([train.foreign[i] for i in chosen])
    english_side = english.fit_transform([train.english[i] for i in chosen])
    documents = hstack([foreign_side, english_side]).tocsr()
    # A decomposition has fewer dimensions than it has documents and n-grams.
    rank = min(dimensions, min(documents.shape) - 1)
    svd = TruncatedSVD(rank, random_state=seed).fit(documents)
    # Columns of the foreign side come first, as in the documents.
    split = len(foreign.vocabulary_)
    english_SD = english.transform(test.english) @ svd.components_[:, split:].T
    foreign_SD = foreign.transform(test.foreign) @ svd.components_[:, :split].T
    return score_layer(np.asarray(english_SD), np.asarray(foreign_SD))


def floors(
    test: Mapping[str, Pairs],
    train: Mapping[str, Pairs] | None = None,
    *,
    dimensions: int = 300,
    limit: int = 20000,
) -> dict[str, Any]:
    """Both floors for every language of `test`; LSI only where `train` has pairs of the language.

    Returns {"char_tfidf": {language: scores}, "lsi": {language: scores}, "mean": {floor:
    raw_en_to_xx, mean over its languages}}.
    """
    out: dict[str, Any] = {
        "char_tfidf": {
            language: char_tfidf(pairs) for language, pairs in test.items()
        },
        "lsi": {},
    }
    for language, pairs in test.items():
        # A language without training pairs has nothing that LSI could learn from.
        if train and language in train:
            out["lsi"][language] = lsi(
                pairs,
                train[language],
                dimensions,
                limit,
            )
    means = {}
    for name in ("char_tfidf", "lsi"):
        values = [scores["raw_en_to_xx"] for scores in out[name].values()]
        if values:
            means[name] = float(np.mean(values))
    return out | {"mean": means}


@dataclass
class RetrievalFloors(Evaluator):
    """The floors as an evaluator beside a `RetrievalEvaluator` on the same pairs; computed at its
    first call, then repeated.
    """

    test: Mapping[str, Pairs]
    train: Mapping[str, Pairs] | None = None
    dimensions: int = 300
    limit: int = 20000
    name: str = "retrieval_floors"

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        return {"kind": "floors"} | self._floors

    @functools.cached_property
    def _floors(self) -> dict[str, Any]:
        return floors(
            self.test,
            self.train,
            dimensions=self.dimensions,
            limit=self.limit,
        )
