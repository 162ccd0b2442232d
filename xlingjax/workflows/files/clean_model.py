"""Perplexities by a run of ours, for `data clean`."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from xlingjax.errors import UserError
from xlingjax.evaluation.perplexity import mask_for_validation, sentence_rows
from xlingjax.inference.encode import BUCKETS, language_index
from xlingjax.inference.forward import by_length, compiled
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.objectives.losses import cross_entropy
from xlingjax.objectives.xlm import CLM, MLM
from xlingjax.training.run_record import read_run_record

_BATCH = 32
# Texts whose rows are in memory at a time.
_CHUNK = 4096


def _sums(model, objective, params, batch):
    """Negative log-likelihood and number of predictions of each row: [B, 2]."""
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
    return jnp.stack([nll_BM.sum(axis=1), weights_BM.sum(axis=1)], axis=1)


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
        run = self._run
        longest = min(BUCKETS[-1], run.model.config.max_positions)
        program = compiled(_sums, run.model, None, self._objective)
        found = [np.zeros((0, 2))]
        for first in range(0, len(texts), _CHUNK):
            cut = [self._cut(text, longest) for text in texts[first : first + _CHUNK]]
            rows = sentence_rows(cut, run.vocabulary, longest, self._language)
            if isinstance(self._objective, MLM):
                rows = mask_for_validation(rows, run.vocabulary.mask_id)
            found.append(by_length(program, run.params, rows, _BATCH))
        losses, counts = np.concatenate(found).T
        return losses, counts.astype(np.int64)

    def _cut(self, text: str, longest: int) -> str:
        """The longest beginning that fits a row."""
        vocabulary = self._run.vocabulary
        while len(ids := vocabulary.encode(text)) > longest - 2:
            # By its share of the text, since a cut text may be cut into other pieces.
            share = (longest - 2) / len(ids)
            text = text[: max(1, int(len(text) * share) - 1)]
        return text


@functools.cache
def run_scorer(path: str, language: str) -> RunScorer:
    """One per process."""
    return RunScorer(path, language)
