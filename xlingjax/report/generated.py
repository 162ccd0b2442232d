"""What a run wrote for held-out sources: scores, their course, and a few texts."""

from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.report import html, plots
from xlingjax.report.run import Run

HEAD = ("direction", "lines", "BLEU", "chrF", "ROUGE-L", "tokenised BLEU", "wrong language (%)")
NOTE = (
    "BLEU: sacreBLEU's, {signatures}. Tokenised BLEU: multi-bleu.perl's, of the texts as they are."
    " ROUGE-L: mean F1 of lower-cased words, of characters where a language has no spaces. Wrong"
    " language: share of the outputs."
)


def section(runs: Mapping[str, Run], tuned: Sequence[Run] = ()) -> list[str]:
    """The latest values of every such evaluator, and curves of the runs beside each other."""
    parts = [plots.drawn(curves(runs), "BLEU over training")]
    for run in (next(iter(runs.values())), *tuned):
        for name, evaluations in run.evaluated("generation").items():
            step, values = evaluations[-1]
            rows = [
                [
                    direction,
                    values["lines"][direction],
                    *(
                        round(values[metric][direction], 1)
                        for metric in ("bleu", "chrf", "rouge_l", "tokenised_bleu")
                    ),
                    html.percent(values["wrong_language_rate"][direction]),
                ]
                for direction in values["bleu"]
            ]
            signatures = {of["bleu"] for of in values["signatures"].values()}
            parts += [
                f"<h3>{html.esc(f'{run.path.name}: {name}, step {step:,}')}</h3>",
                html.table(HEAD, rows),
            ]
            parts += [html.note(NOTE.format(signatures=", ".join(sorted(signatures))))]
            texts = [
                [s[key] for key in ("direction", "source", "reference", "output")]
                for s in values["samples"]
            ]
            parts.append(
                html.table(("direction", "source", "reference", "output"), texts) if texts else ""
            )
    return [part for part in parts if part]


@plots.styled
def curves(runs: Mapping[str, Run]) -> Any:
    """BLEU by step and direction, of the first such evaluator of each run. None where no run has
    two evaluations."""
    found = {
        name: next(iter(run.evaluated("generation").values()), []) for name, run in runs.items()
    }
    found = {name: evaluations for name, evaluations in found.items() if len(evaluations) > 1}
    if not found:
        return None
    figure, (axis,) = plots.panels(1)
    for (name, evaluations), colour in zip(
        found.items(), plots.RUN_COLOURS * len(found), strict=False
    ):
        steps = [step for step, _ in evaluations]
        for direction, style in zip(
            evaluations[-1][1]["bleu"], ("-", "--", ":", "-.") * 25, strict=False
        ):
            values = [v["bleu"].get(direction) for _, v in evaluations]
            axis.plot(steps, values, style, color=colour, label=f"{name}: {direction}")
    axis.set(title="held-out BLEU", xlabel="steps", ylabel="BLEU", ylim=(0, None))
    figure.legend(loc="outside right upper")  # runs times directions would hide lines
    return figure
