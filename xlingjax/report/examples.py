"""Held-out examples in a report: masked words, recovered words, pseudo tokens."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import numpy as np

from xlingjax.report import drawing, html
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
    parts = list(map(_sample, values["texts"]))
    if values["pairs"]:
        parts.append("<h3>With the English sentence hidden, then visible</h3>")
        parts += map(_sample, values["pairs"])
    parts.append(html.note(SAMPLES_NOTE))
    return parts


def _sample(sample: Mapping[str, Any]) -> str:
    # Escaped piece by piece: blanks put in below are HTML.
    pieces = [html.esc(piece.replace("▁", " ")) for piece in sample["pieces"]]
    guesses = []
    for slot in sample["slots"]:
        pieces[slot["column"]] = _blank(slot)
        line = f"<b>{html.esc(slot['target'])}</b>: {_guesses(slot['predictions'])}"
        if "with_partner" in slot:
            line += f" &nbsp;→&nbsp; {_guesses(slot['with_partner'])}"
        guesses.append(f'<p class="guesses">{line}</p>')
    partner = ""
    if "partner" in sample:
        partner = f'<p class="guesses">en: {html.esc(sample["partner"])}</p>'
    # Without the tokens that begin and end the text.
    text = "".join(pieces[1:-1])
    return (
        f'<div class="sample"><span class="lang">{html.esc(sample["language"])}</span>'
        f" <bdi>{text}</bdi>{partner}{''.join(guesses)}</div>"
    )


def _blank(slot: Mapping[str, Any]) -> str:
    """The true piece in its place, marked where the first guess, with the partner if there is one,
    is it."""
    target = slot["target"]
    predictions = slot.get("with_partner", slot["predictions"])
    best, _ = predictions[0]
    kind = "blank"
    if best == target:
        kind = "blank right"
    # The space before a word stays outside of the frame.
    gap = ""
    if target.startswith("▁"):
        gap = " "
    return f'{gap}<span class="{kind}">{html.esc(target.replace("▁", ""))}</span>'


def _guesses(predictions: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{html.esc(piece)} {100 * p:.0f} %" for piece, p in predictions)


def recovery(run: Run) -> list[str]:
    values = run.last("recovery_samples")
    if not values or not values["samples"]:
        return []
    figures = []
    for sample in values["samples"]:
        figures += recovery_picture(sample)
    return [drawing.drawn(figures, "attention of word recovery"), html.note(RECOVERY_NOTE)]


@drawing.styled
def recovery_picture(sample: Mapping[str, Any]) -> Any:
    """The attention of word recovery in one pair: words recovered down, those they are mixed from
    across."""
    pieces = sample["pieces"]
    partner = sample["partner"]
    # Labels stand left and right of the cells, and below them; the title above, wrapped.
    room = drawing.LABEL_INCHES
    width = float(np.clip(1.0 + 0.27 * len(partner), 1.6, 12.0)) + 2 * room
    height = float(np.clip(1.0 + 0.27 * len(pieces), 2.4, 14.0)) + room
    figures, (axis,) = drawing.panels(1, (width, height))
    axis.grid(False)
    # A side without words has no rows, of which JSON keeps no shape.
    shares = np.array(sample["attention"]).reshape(len(pieces), len(partner))
    image = axis.imshow(shares, cmap="Blues", vmin=0, interpolation="nearest")
    axis.figure.colorbar(image, ax=axis, label="share", shrink=0.6, pad=0.16)
    axis.set_xticks(
        range(len(partner)),
        drawing.piece_labels(partner),
        rotation=60,
        ha="right",
        rotation_mode="anchor",
    )
    axis.set_yticks(range(len(pieces)), drawing.piece_labels(pieces))
    # Level with the pieces, so that a guess stands in the row of the word that it is for.
    guesses = axis.secondary_yaxis("right")
    guesses.set_yticks(range(len(pieces)), drawing.piece_labels(sample["recovered"]))
    guesses.spines["right"].set_visible(False)
    guesses.tick_params(length=0)
    # Coloured one by one: an axis has one colour for all its labels.
    labels = guesses.get_yticklabels()
    for label, guess, piece in zip(labels, sample["recovered"], pieces, strict=True):
        colour = drawing.COLOURS[1]
        if guess == piece:
            colour = drawing.COLOURS[2]
        label.set_color(colour)
    title = f"{sample['language']} from {sample['partner_language']}"
    axis.set_title("\n".join(wrap(title, 30)))
    return figures


def pseudo(run: Run) -> list[str]:
    values = run.last("pseudo_samples")
    if not values or not values["samples"]:
        return []
    parts = []
    for sample in values["samples"]:
        text = html.esc("".join(sample["pieces"][1:-1]).replace("▁", " "))
        written = []
        for column, piece in sample["pseudo"]:
            shown = html.esc(piece.replace("▁", ""))
            written.append(f'<span class="pseudo">{shown}</span> <small>{column}</small>')
        parts.append(
            f'<div class="sample"><span class="lang">{html.esc(sample["language"])}</span>'
            # bdi: text from right to left must not turn the rest of the line around.
            f' <bdi>{text}</bdi><p class="guesses">{html.esc(sample["target_language"])}:'
            f" {' '.join(written)}</p></div>"
        )
    return [*parts, html.note(PSEUDO_NOTE)]
