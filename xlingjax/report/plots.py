"""A run's training in pictures: losses, perplexities, learning rate. Each function takes runs and
gives matplotlib figures, one a panel, or None where there is nothing to draw."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from xlingjax.report import drawing
from xlingjax.report.run import Run

OF_PIECES = (
    "mlm",
    "tlm",
    "clm",
    "clwr",
    "cl_mlm",
    "camlm",
    "btmlm",
    "translation",
    "back_translation",
    "masked_words",
    "masked_translation",
)
"""Objectives each of whose predictions is one of the vocabulary's pieces, so that a uniform guess
has a loss."""
TITLE = 36
"""Characters of a panel's title that stand in one line."""


def languages_of(run: Run) -> list[str]:
    """In the order of their colours."""
    if run.languages:
        return run.languages
    # Of a run whose run.json is not there.
    seen = set()
    for line in run.metrics:
        seen.update(line.get("loss_by_language", ()))
    return sorted(seen)


def _title(objective: str, what: str) -> str:
    separator = " "
    # As wide as a panel is, about.
    if len(objective) + len(what) > TITLE:
        separator = "\n"
    return f"{objective.upper()}:{separator}{what}"


def _column(lines: Iterable[Mapping[str, Any]], key: str) -> list[Any]:
    return [line.get(key) for line in lines]


def course(
    evaluated: Iterable[tuple[int, Mapping[str, Any]]], key: str, scale: float = 1
) -> tuple[list[int], list[float]]:
    """(the steps, one of their values, times `scale`)."""
    steps = []
    values = []
    for step, evaluation in evaluated:
        steps.append(step)
        values.append(scale * evaluation[key])
    return steps, values


@drawing.styled
def losses(runs: Mapping[str, Run]) -> Any:
    """Training loss, a panel per objective and a curve per run."""
    # A dict keeps the order in which they first ran.
    objectives: dict[str, None] = {}
    for run in runs.values():
        objectives |= dict.fromkeys(run.objectives)
    if not objectives:
        return None
    way = drawing.over(runs)
    figures, axes = drawing.panels(len(objectives))
    for axis, objective in zip(axes, objectives, strict=True):
        for number, (name, run) in enumerate(runs.items()):
            lines = run.lines(objective)
            if lines:
                steps = _column(lines, "step")
                values = _column(lines, "loss")
                drawing.curve(axis, run, steps, values, number, name, **way)
        first = next(iter(runs.values()))
        pieces = vocabulary_size(first)
        if pieces and objective in OF_PIECES:
            drawing.level(axis, float(np.log(pieces)), "uniform")
        axis.set(title=_title(objective, "training loss (nats)"), xlabel=drawing.axis_label(**way))
        drawing.from_zero(axis)
        drawing.label_ends(axis)
    return figures


@drawing.styled
def by_language(
    run: Run, value: str = "loss_by_language", label: str = "training loss (nats)", scale: float = 1
) -> Any:
    """One value per language over training, a panel per objective. scale: 100 of a share, whose
    axis ends at 100 %."""
    objectives = []
    for name in run.objectives:
        if any(_column(run.lines(name), value)):
            objectives.append(name)
    if not objectives:
        return None
    languages = languages_of(run)
    figures, axes = drawing.panels(len(objectives), drawing.tall(len(languages)))
    for axis, objective in zip(axes, objectives, strict=True):
        lines = run.lines(objective)
        for number, language in enumerate(languages):
            steps = []
            values = []
            # A language that no row was of since the line before is not in a line.
            for line in lines:
                if language in line.get(value, ()):
                    steps.append(line["step"])
                    # One whose loss was not finite is None.
                    of_step = line[value][language]
                    values.append(np.nan if of_step is None else scale * of_step)
            if steps:
                drawing.curve(axis, run, steps, values, number, language)
        axis.set(title=_title(objective, label), xlabel=drawing.axis_label())
        if scale == 100:
            axis.set_ylim(0, 100)
        else:
            drawing.from_zero(axis)
        drawing.label_ends(axis)
    return figures


def first_evaluated(evaluated: Mapping[str, list]) -> list[tuple[int, Any]]:
    """(step, values) of the first evaluator of a kind; [] without one."""
    return next(iter(evaluated.values()), [])


@drawing.styled
def perplexities(run: Run) -> Any:
    """Held-out perplexity per language, and TLM with the partner visible and hidden. None without
    two evaluations."""
    text = first_evaluated(run.evaluated("perplexity"))
    pairs = first_evaluated(run.evaluated("translation_perplexity"))
    figures = []
    if len(text) > 1:
        languages = languages_of(run)
        (figure,), (axis,) = drawing.panels(1, drawing.tall(len(languages)))
        for number, language in enumerate(languages):
            steps = []
            values = []
            for step, evaluation in text:
                if language in evaluation["by_language"]:
                    steps.append(step)
                    values.append(evaluation["by_language"][language])
            if steps:
                drawing.curve(axis, run, steps, values, number, language)
        axis.set(title="held-out text: perplexity")
        _perplexity_axis(axis, run)
        figures.append(figure)
    if len(pairs) > 1:
        (figure,), (axis,) = drawing.panels(1)
        for number, kind in enumerate(("visible", "hidden")):
            steps, values = course(pairs, f"{kind}_mean")
            drawing.curve(axis, run, steps, values, number, kind)
        axis.set(title="held-out pairs: perplexity, partner …")
        _perplexity_axis(axis, run)
        figures.append(figure)
    return figures or None


def _perplexity_axis(axis, run: Run) -> None:
    """On a logarithm, with what guessing gives."""
    pieces = vocabulary_size(run)
    if pieces:
        drawing.level(axis, pieces, "uniform")
    axis.set(xlabel="step", yscale="log")
    drawing.plain_numbers(axis)
    drawing.label_ends(axis)


def vocabulary_size(run: Run) -> int | None:
    """Pieces, which is the perplexity of a guess without any knowledge."""
    return run.record.get("model", {}).get("vocab_size")


@drawing.styled
def pseudo_perplexities(run: Run) -> Any:
    """BTMLM's perplexity by share of pseudo tokens over training. None without two evaluations."""
    found = first_evaluated(run.evaluated("pseudo_perplexity"))
    if len(found) < 2:
        return None
    figures, (axis,) = drawing.panels(1)
    for number, share in enumerate(found[-1][1]["by_language"]):
        key = f"share_{share}"
        # A run may have gone on with other shares.
        with_it = [one for one in found if key in one[1]]
        steps, values = course(with_it, key)
        drawing.curve(axis, run, steps, values, number, f"{100 * float(share):g} %")
    axis.set(title="BTMLM, held-out text: perplexity")
    _perplexity_axis(axis, run)
    return figures


@drawing.styled
def machinery(run: Run) -> Any:
    """Learning rate, gradient norm and speed over training."""
    titles = {
        "learning_rate": "learning rate",
        "grad_norm": "gradient norm",
        "tokens_per_second": "tokens per second",
    }
    shown = []
    for key in titles:
        if _with(run.metrics, key):
            shown.append(key)
    if not shown:
        return None
    figures, axes = drawing.panels(len(shown), (drawing.PANEL[0], 2.1))
    for axis, key in zip(axes, shown, strict=True):
        # The norm is an objective's own; the others are of all steps.
        split = run.objectives[:1]
        if key == "grad_norm":
            split = run.objectives
        for number, objective in enumerate(split):
            lines = _with(run.lines(objective), key)
            steps = _column(lines, "step")
            values = _column(lines, key)
            drawing.curve(axis, run, steps, values, number, objective)
        axis.set(title=titles[key], xlabel="step")
        drawing.from_zero(axis)
        drawing.label_ends(axis)
    return figures


def _with(lines: Iterable[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    return [line for line in lines if line.get(key) is not None]
