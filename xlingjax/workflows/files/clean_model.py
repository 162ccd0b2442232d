"""Perplexities by a run of ours, for `data clean`."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from xlingjax.errors import UserError
from xlingjax.evaluation.perplexity import mask_for_validation, sentence_rows
from xlingjax.inference.encode import BUCKETS, language_index
from xlingjax.inference.forward import by_row, compiled
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.objectives.losses import cross_entropy
from xlingjax.objectives.xlm import CLM, MLM
from xlingjax.training.run_record import read_run_record

_BATCH = 32
# Rows of one compilation are scored together; more would be as many as lines at once in memory.
_CHUNK = 4096


def _sums(model, objective, params, batch):
    """Negative log-likelihood and number of predictions of each row: [B], [B]."""
    predictions = objective.predictions(model, params, batch)[objective.name]
    g_BMD, table_VD, bias_V = model.vocab_head(params, predictions.states)
    weights_BM = predictions.weights
    _, nll_T, _ = cross_entropy(
        g_BMD.reshape(-1, g_BMD.shape[-1]),
        table_VD,
        bias_V,
        predictions.targets.reshape(-1),
        weights_BM.reshape(-1),
        vocab_size=model.config.vocab_size,
        chunk=objective.chunk,
    )
    nll_BM = nll_T.reshape(weights_BM.shape)
    return nll_BM.sum(axis=1), weights_BM.sum(axis=1)


class RunScorer:
    """A run that has learnt CLM, or else MLM, whose perplexity is that of masked tokens (as
    `evaluation/perplexity.py` masks them). Texts are cut at the longest row.

    Raises UserError: no such run, a run that embeds languages and not this one.
    """

    def __init__(self, path: str, language: str):
        record = read_run_record(path)
        self._run: TrainedRun = open_run(path)
        self._language = language_index(language, self._run.languages, self._run.model)
        names = set(record["identity"]["objectives"])
        if not names & {"clm", "mlm"}:
            raise UserError(
                f"--language_model {language}={path}: it has learnt neither CLM nor MLM"
                f" ({', '.join(sorted(names))}), and has no perplexity of text"
            )
        self._objective: CLM | MLM = MLM()
        if "clm" in names:
            self._objective = CLM()

    def losses(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """See `data.clean.language_model.Scorer`."""
        losses = np.zeros(len(texts))
        counts = np.zeros(len(texts), np.int64)
        longest = min(BUCKETS[-1], self._run.model.config.max_positions)
        cut = [self._cut(text, longest) for text in texts]
        lengths = [len(self._run.vocabulary.encode(text)) + 2 for text in cut]
        start = 0
        for length in [size for size in BUCKETS if size < longest] + [longest]:
            chosen = [row for row, size in enumerate(lengths) if start < size <= length]
            start = length
            for first in range(0, len(chosen), _CHUNK):
                rows = chosen[first : first + _CHUNK]
                of_rows = self._of([cut[row] for row in rows], length)
                losses[rows], counts[rows] = of_rows
        return losses, counts

    def _cut(self, text: str, longest: int) -> str:
        """The longest beginning that fits a row."""
        vocabulary = self._run.vocabulary
        while len(ids := vocabulary.encode(text)) > longest - 2:
            # By its share of the text, since a cut text may be cut into other pieces.
            share = (longest - 2) / len(ids)
            text = text[: max(1, int(len(text) * share) - 1)]
        return text

    def _of(self, texts: list[str], length: int) -> tuple[np.ndarray, np.ndarray]:
        run = self._run
        rows = sentence_rows(texts, run.vocabulary, length, self._language)
        if isinstance(self._objective, MLM):
            rows = mask_for_validation(rows, run.vocabulary.mask_id)
        program = compiled(_sums, run.model, None, self._objective)
        return by_row(program, run.params, rows, _BATCH)


@functools.cache
def run_scorer(path: str, language: str) -> RunScorer:
    """One per process."""
    return RunScorer(path, language)
