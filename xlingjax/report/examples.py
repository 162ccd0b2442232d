"""Held-out examples in a report: masked words, recovered words, pseudo tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlingjax.report import html, plots
from xlingjax.report.run import Run

SAMPLES_NOTE = (
    "Blanks show the true piece, green where the model's first guess was right. ▁ opens a word."
)
RECOVERY_NOTE = (
    "Each row is a hidden piece, read as a mixture of the translation's pieces in the shares shown;"
    " its own word enters these shares alone (Unicoder §3.2). On the right what the model takes it"
    " for, green where that is right."
)
PSEUDO_NOTE = (
    "What BTMLM's first stage writes behind a sentence, in one pass, for the language that was"
    " drawn: each piece at the place in the sentence that its number names (ERNIE-M §3.1). The"
    " second stage then reads both."
)


def masked(run: Run) -> list[str]:
    values = run.last("masked_samples")
    if values is None:
        return []
    parts = [_sample(sample) for sample in values["texts"]]
    if values["pairs"]:
        parts.append("<h3>With the English sentence hidden, then visible</h3>")
        parts += [_sample(sample) for sample in values["pairs"]]
    parts.append(html.note(SAMPLES_NOTE))
    return parts


def _sample(sample: Mapping[str, Any]) -> str:
    words = [html.esc(piece.replace("▁", " ")) for piece in sample["pieces"]]
    guesses = []
    for slot in sample["slots"]:
        best = slot.get("with_partner", slot["predictions"])
        right = " right" if best[0][0] == slot["target"] else ""
        gap = " " if slot["target"].startswith("▁") else ""
        words[slot["column"]] = (
            f'{gap}<span class="blank{right}">{html.esc(slot["target"].replace("▁", ""))}</span>'
        )
        line = f"<b>{html.esc(slot['target'])}</b>: {_guesses(slot['predictions'])}"
        if "with_partner" in slot:
            line += f" &nbsp;→&nbsp; {_guesses(slot['with_partner'])}"
        guesses.append(f'<p class="guesses">{line}</p>')
    partner = (
        f'<p class="guesses">en: {html.esc(sample["partner"])}</p>' if "partner" in sample else ""
    )
    text = "".join(words[1:-1])
    return (
        f'<div class="sample"><span class="lang">{html.esc(sample["language"])}</span>'
        f" <bdi>{text}</bdi>{partner}" + "".join(guesses) + "</div>"
    )


def _guesses(predictions: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{html.esc(piece)} {100 * p:.0f} %" for piece, p in predictions)


def recovery(run: Run) -> list[str]:
    values = run.last("recovery_samples")
    if not values or not values["samples"]:
        return []
    figures = [
        html.figure(plots.svg(recovery_picture(one)), "attention of word recovery")
        for one in values["samples"]
    ]
    return [f'<div class="pictures">{"".join(figures)}</div>', html.note(RECOVERY_NOTE)]


@plots.styled
def recovery_picture(sample: Mapping[str, Any]) -> Any:
    """The attention of word recovery in one pair: words recovered down, those they are mixed from
    across."""
    shares, pieces, partner = np.array(sample["attention"]), sample["pieces"], sample["partner"]
    size = tuple(float(np.clip(2.0 + 0.27 * len(side), 2.6, 14.0)) for side in (partner, pieces))
    figure, (axis,) = plots.panels(1, size=size)
    axis.grid(False)
    image = axis.imshow(
        shares.reshape(len(pieces), len(partner)), cmap="Blues", vmin=0, interpolation="nearest"
    )
    figure.colorbar(image, ax=axis, label="share", shrink=0.6, pad=0.16)
    axis.set_xticks(range(len(partner)), partner, rotation=60, ha="right", rotation_mode="anchor")
    axis.set_yticks(range(len(pieces)), pieces)
    guesses = axis.secondary_yaxis("right")
    guesses.set_yticks(range(len(pieces)), sample["recovered"])
    guesses.spines["right"].set_visible(False)
    guesses.tick_params(length=0)
    for label, guess, piece in zip(
        guesses.get_yticklabels(), sample["recovered"], pieces, strict=True
    ):
        label.set_color("#24713a" if guess == piece else "#a8322a")
    axis.set_title(f"{sample['language']} from {sample['partner_language']}")
    return figure


def pseudo(run: Run) -> list[str]:
    values = run.last("pseudo_samples")
    if not values or not values["samples"]:
        return []
    parts = []
    for sample in values["samples"]:
        text = html.esc("".join(sample["pieces"][1:-1]).replace("▁", " "))
        written = " ".join(
            f'<span class="pseudo">{html.esc(piece.replace("▁", ""))}</span> <small>{at}</small>'
            for at, piece in sample["pseudo"]
        )
        parts.append(
            f'<div class="sample"><span class="lang">{html.esc(sample["language"])}</span>'
            f' <bdi>{text}</bdi><p class="guesses">{html.esc(sample["target_language"])}:'
            f" {written}</p></div>"
        )
    return [*parts, html.note(PSEUDO_NOTE)]
