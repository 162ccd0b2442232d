"""Answers of a fine-tuned model as spans of the original contexts."""

import functools
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from xlingjax.data.labelled.records import Question
from xlingjax.errors import UserError
from xlingjax.inference.encode import on_xla, place, row_multiple
from xlingjax.objectives.span_qa import SpanQA
from xlingjax.preprocessors.span_qa import Window, span_rows
from xlingjax.training.run_record import check_length

CANDIDATES = 20
"""Likeliest first and last columns of a window that are combined (n-best of BERT's run_squad.py).
"""


@functools.lru_cache(maxsize=16)
def _logits(model, mesh):
    model = on_xla(model, mesh)
    replicated = NamedSharding(mesh, PartitionSpec()) if mesh is not None else None
    return jax.jit(
        lambda params, batch: SpanQA().logits(model, params, batch),
        out_shardings=replicated,
    )


def predict(
    model, params, rows: Mapping[str, np.ndarray], *, batch_size: int = 64, mesh=None
) -> np.ndarray:
    """float32[N, L, 2]: logits of first and last column (see `span_rows`). The last batch is filled
    up with empty
    rows."""
    run = _logits(model, mesh)
    fields = {
        name: rows[name]
        for name in rows
        if name in SpanQA().reads and rows[name].ndim == 2
    }
    multiple = row_multiple(mesh)
    size = -(-batch_size // multiple) * multiple
    parts = []
    for start in range(0, len(rows["input_ids"]), size):
        part = {name: values[start : start + size] for name, values in fields.items()}
        missing = size - len(part["input_ids"])
        part = {
            name: np.pad(values, [(0, missing), (0, 0)])
            for name, values in part.items()
        }
        parts.append(np.asarray(run(params, place(part, mesh)))[: size - missing])
    return np.concatenate(parts)


def n_best(
    logits: np.ndarray,
    window: Window,
    *,
    longest: int = 30,
    candidates: int = CANDIDATES,
) -> list[tuple[float, int, int]]:
    """[(score, first, last)] of a window's spans of pieces, the best first: score is the sum of
    both logits.

    logits: float[L, 2] of the row. Combined are the so many likeliest first and last columns of the
    context; `first` must be shown in its maximal context, `last` not stand before it, and the span
    have at most `longest` pieces
    (BERT's run_squad.py: 30; ERNIE-M: 100). There may be none.
    """
    begin, end = (
        logits[window.column : window.column + len(window.spans)].astype(np.float64).T
    )
    firsts, lasts = (
        np.argsort(-scores, kind="stable")[:candidates] for scores in (begin, end)
    )
    pieces = lasts - firsts[:, None] + 1
    allowed = (pieces >= 1) & (pieces <= longest) & window.maximal[firsts][:, None]
    found = [
        (float(begin[firsts[i]] + end[lasts[j]]), int(firsts[i]), int(lasts[j]))
        for i, j in np.argwhere(allowed)
    ]
    return sorted(found, key=lambda span: -span[0])


def best_answers(
    logits: np.ndarray,
    windows: Sequence[Window],
    questions: Sequence[Question],
    *,
    longest: int = 30,
    candidates: int = CANDIDATES,
) -> dict[str, str]:
    """{id: answer}: for every question the best span over all of its windows, cut out of the
    context by characters, without the blanks around it; "" where no window has a span.

    logits: float[N, L, 2] of the rows of `windows`; see `n_best`.
    """
    best = [(-np.inf, "")] * len(questions)
    for row, window in enumerate(windows):
        context = questions[window.question].context
        for score, first, last in n_best(
            logits[row], window, longest=longest, candidates=candidates
        ):
            text = context[window.spans[first, 0] : window.spans[last, 1]].strip()
            if text:
                best[window.question] = max(
                    best[window.question], (score, text), key=lambda answer: answer[0]
                )
                break
    return {
        question.id: text for question, (_, text) in zip(questions, best, strict=True)
    }


def predict_answers(
    model,
    params,
    questions: Sequence[Question],
    vocabulary,
    language_id: int,
    *,
    length: int = 384,
    stride: int = 128,
    max_question: int = 64,
    longest: int = 30,
    candidates: int = CANDIDATES,
    reset_positions: bool = False,
    batch_size: int = 64,
    mesh=None,
) -> dict[str, str]:
    """{id: answer} of questions in one language (see `best_answers`).

    length ... reset_positions: see `span_rows`; those that the model was trained with. longest:
    pieces of an answer. Raises UserError for sizes that leave no room or that the model has no
    positions for, an id that stands twice, and a model that is not for spans.
    """
    check_length("span_qa", length, model.config)
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise UserError(
                f"question {question.id} stands twice: ids tell answers apart, so give each its own"
            )
        seen.add(question.id)
    rows, windows = span_rows(
        questions,
        vocabulary,
        length,
        language_id,
        stride=stride,
        max_question=max_question,
        reset_positions=reset_positions,
        answers=False,
    )
    logits = predict(model, params, rows, batch_size=batch_size, mesh=mesh)
    return best_answers(
        logits, windows, questions, longest=longest, candidates=candidates
    )
