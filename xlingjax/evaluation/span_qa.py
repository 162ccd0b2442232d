"""Answers of a fine-tuned model as spans of the original contexts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlingjax.data.labelled.records import Question
from xlingjax.errors import UserError
from xlingjax.inference.encode import language_index
from xlingjax.inference.forward import by_length, compiled
from xlingjax.inference.run import TrainedRun
from xlingjax.objectives.finetuning import SpanQA
from xlingjax.objectives.plug_in import PlugInSpans
from xlingjax.preprocessors.span_qa import Window, places_of_windows, span_rows
from xlingjax.preprocessors.task_rows import Beside, Reading, side_by_side
from xlingjax.training.run_record import check_length

CANDIDATES = 20  # likeliest first and last columns of a window (n-best of run_squad.py)


def _objective(config) -> SpanQA | PlugInSpans:
    return PlugInSpans() if config.plugged_in else SpanQA()


def _logits(model, params, batch):
    return _objective(model.config).logits(model, params, batch)


def predict(
    model, params, rows: Mapping[str, np.ndarray], *, batch_size: int = 64, mesh=None
) -> np.ndarray:
    """float32[N, L, 2]: logits of first and last column (see `span_rows`)."""
    # Gold answers, one number a row, are not read.
    reads = _objective(model.config).reads
    fields = {name: rows[name] for name in reads if name in rows and rows[name].ndim == 2}
    run = compiled(_logits, model, mesh)
    return by_length(
        run, params, fields, batch_size, mesh, texts=1 + model.config.plugged_in, of_tokens=True
    )


def n_best(
    logits: np.ndarray, window: Window, *, longest: int = 30, candidates: int = CANDIDATES
) -> list[tuple[float, int, int]]:
    """[(score, first, last)] of a window's spans of pieces, best first; score: both logits' sum.

    logits: float[L, 2] of the row. Combined are the so many likeliest first and last columns of the
    context; `first` must be shown in its maximal context, `last` not stand before it, and the span
    have at most `longest` pieces
    (BERT's run_squad.py: 30; ERNIE-M: 100). There may be none.
    """
    # Columns of the context alone: the question before it holds no answer.
    context = slice(window.column, window.column + len(window.spans))
    # Sums of logits in double precision: ties are those of the model and not of rounding.
    begin, end = logits[context].astype(np.float64).T
    # Stable, so that equal logits give the same answer on every machine.
    firsts = np.argsort(-begin, kind="stable")[:candidates]
    lasts = np.argsort(-end, kind="stable")[:candidates]
    # All pairs of candidates at once: a loop over 20 x 20 of each window takes long.
    pieces = lasts - firsts[:, None] + 1
    # Windows overlap: a start is read where it has most context on both sides.
    allowed = (pieces >= 1) & (pieces <= longest) & window.maximal[firsts][:, None]
    spans = [(int(firsts[i]), int(lasts[j])) for i, j in np.argwhere(allowed)]
    # Logits and not probabilities: windows of one question are compared with each other.
    found = [(float(begin[first] + end[last]), first, last) for first, last in spans]
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
    best = [-np.inf] * len(questions)
    texts = [""] * len(questions)
    for row, window in enumerate(windows):
        number = window.question
        context = questions[number].context
        spans = n_best(logits[row], window, longest=longest, candidates=candidates)
        for score, first, last in spans:
            # By characters of the context: pieces written out would differ in spaces and case.
            text = context[window.spans[first, 0] : window.spans[last, 1]].strip()
            if not text:
                continue
            if score > best[number]:
                best[number] = score
                texts[number] = text
            break
    return {one.id: text for one, text in zip(questions, texts, strict=True)}


def predict_answers(
    run: TrainedRun,
    questions: Sequence[Question],
    language: str,
    reading: Reading,
    beside: Beside | None = None,
) -> dict[str, str]:
    """{id: answer} of questions in one language (see `best_answers`).

    reading: that of the training. beside: of a model that is plugged in, the translation of each
    question and its context; answers are those of `questions`, in their contexts. Raises UserError
    for sizes that leave no room or that the model has no positions for, an id that stands twice,
    and a model that is not for spans.
    """
    check_length("span_qa", reading.length, run.model.config)
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise UserError(
                f"question {question.id} stands twice: ids tell answers apart, so give each its own"
            )
        seen.add(question.id)
    how: dict[str, Any] = {
        "stride": reading.stride,
        "max_question": reading.max_question,
        "reset_positions": reading.reset_positions,
        "answers": False,
    }
    of = run.vocabulary, reading.length
    rows, windows = span_rows(questions, *of, language_index(language, run), **how)
    if beside is not None:
        # Columns of the first side, whose windows these are, are those of its rows alone.
        two, others = span_rows(beside.records, *of, beside.language_id, **how)
        places = places_of_windows(windows, questions)
        rows = side_by_side(rows, places, two, places_of_windows(others, beside.records))
    logits = predict(run.model, run.params, rows, mesh=run.mesh)
    return best_answers(logits, windows, questions, longest=reading.longest)
