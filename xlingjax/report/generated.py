"""What a run wrote for held-out sources: scores, their course, and a few texts."""

from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.report import drawing, html
from xlingjax.report.run import Run

HEAD = ("direction", "lines", "BLEU", "chrF", "ROUGE-L", "tokenised BLEU", "wrong language (%)")
NOTE = (
    "BLEU: sacreBLEU's, {signatures}. Tokenised BLEU: multi-bleu.perl's, of the texts as they are."
    " ROUGE-L: mean F1 of lower-cased words, of characters where a language has no spaces. Wrong"
    " language: share of the outputs."
)


def section(runs: Mapping[str, Run], tuned: Sequence[Run] = ()) -> list[str]:
    """The latest values of every such evaluator, and curves of the runs beside each other."""
    parts = [drawing.drawn(curves(runs), "BLEU over training")]
    # Texts of the run itself and of what was fine-tuned from it; compared runs have curves alone.
    for run in (next(iter(runs.values())), *tuned):
        for name, evaluations in run.evaluated("generation").items():
            step, values = evaluations[-1]
            title = f"{run.path.name}: {name}, step {step:,}"
            parts.append(f"<h3>{html.esc(title)}</h3>")
            parts += _tables(values)
    return [part for part in parts if part]


def _tables(values: Mapping[str, Any]) -> list[str]:
    """Of one evaluation: the scores by direction, their signatures and the texts."""
    rows = []
    for direction in values["bleu"]:
        scores = []
        for metric in ("bleu", "chrf", "rouge_l", "tokenised_bleu"):
            scores.append(round(values[metric][direction], 1))
        # The only share among figures of 0 to 100.
        wrong = html.percent(values["wrong_language_rate"][direction])
        rows.append([direction, values["lines"][direction], *scores, wrong])
    # One for each way to cut a language into words.
    signatures = {signature["bleu"] for signature in values["signatures"].values()}
    parts = [
        html.table(HEAD, rows),
        html.note(NOTE.format(signatures=", ".join(sorted(signatures)))),
    ]
    head = ("direction", "source", "reference", "output")
    texts = []
    for sample in values["samples"]:
        texts.append([sample[key] for key in head])
    if texts:
        parts.append(html.table(head, texts, words=True))
    return parts


@drawing.styled
def curves(runs: Mapping[str, Run]) -> Any:
    """BLEU by step and direction, of the first such evaluator of each run. None where no run has
    two evaluations."""
    evaluated = {}
    for name, run in runs.items():
        evaluations = next(iter(run.evaluated("generation").values()), [])
        if len(evaluations) > 1:
            evaluated[name] = evaluations
    if not evaluated:
        return None
    directions: dict[str, None] = {}
    for evaluations in evaluated.values():
        _, last = evaluations[-1]
        directions |= dict.fromkeys(last["bleu"])
    figures, axes = drawing.panels(len(directions))
    for axis, direction in zip(axes, directions, strict=True):
        for number, (name, evaluations) in enumerate(evaluated.items()):
            steps, values = zip(*evaluations, strict=True)
            # None leaves a gap, where a step has no such direction.
            bleu = [of_step["bleu"].get(direction) for of_step in values]
            drawing.curve(axis, runs[name], steps, bleu, number, name)
        axis.set(title=f"{direction}: BLEU", xlabel="step")
        drawing.from_zero(axis)
        drawing.label_ends(axis)
    return figures
