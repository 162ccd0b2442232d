"""Which words of a pair attend to which, in a report and in the inspector."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import numpy as np

from xlingjax.report import drawing, html
from xlingjax.report.run import Run

NOTE = (
    "Each row says from which columns its piece takes how much; a line stands where the second text"
    " begins. self-attention: both texts read as one, as TLM reads them (VECO figure 1)."
    " cross-attention: plugged in, each side asks the other's last states (VECO §2.2). word"
    " recovery: each piece as a mixture of its translation's (Unicoder §3.2)."
)
HEAD = ("text", "piece", "looks most at", "share", "of the other text")


def title(of_one: Mapping[str, Any]) -> str:
    """ "de-en, cross-attention, layer 2, mean over heads" """
    words = ["-".join(of_one["languages"]), of_one["use"]]
    if of_one["layer"] is not None:
        words.append(f"layer {of_one['layer']}")
        head = "mean over heads"
        if of_one["head"] is not None:
            head = f"head {of_one['head']}"
        words.append(head)
    return ", ".join(words)


def lines(of_one: Mapping[str, Any]) -> list[tuple[str, str, str, float, float]]:
    """`HEAD` of each piece; the last is its share of all the other text's pieces."""
    pieces = of_one["pieces"]
    second = of_one["second"]
    found = []
    for row, shares in enumerate(of_one["attention"]):
        most = int(np.argmax(shares))
        others = shares[second:]
        if row >= second:
            others = shares[:second]
        found.append(
            (
                of_one["languages"][row >= second],
                pieces[row],
                pieces[most],
                round(shares[most], 3),
                # Shares are kept rounded, and may sum to a little more.
                round(min(sum(others), 1.0), 3),
            )
        )
    return found


def section(run: Run) -> list[str]:
    """Of a report. [] of a run without maps."""
    values = run.last("attention_maps")
    if not values or not values["maps"]:
        return []
    return pictures(values["maps"])


def pictures(maps: Sequence[Mapping[str, Any]]) -> list[str]:
    figures = []
    for of_one in maps:
        figures += picture(of_one)
    return [drawing.drawn(figures, "attention of a pair"), html.note(NOTE)]


@drawing.styled
def picture(of_one: Mapping[str, Any]) -> Any:
    """Pieces down and across; colour: the share that the row's piece takes from the column's."""
    pieces = of_one["pieces"]
    labels = drawing.piece_labels(pieces)
    side = float(np.clip(1.2 + 0.27 * len(pieces), 2.4, 13.0)) + drawing.LABEL_INCHES
    figures, (axis,) = drawing.panels(1, (side + 0.8, side))
    axis.grid(False)
    image = axis.imshow(
        np.array(of_one["attention"]), cmap="Blues", vmin=0, interpolation="nearest"
    )
    axis.figure.colorbar(image, ax=axis, label="share", shrink=0.6)
    border = of_one["second"] - 0.5
    axis.axhline(border, color=drawing.SOFT, linewidth=0.8)
    axis.axvline(border, color=drawing.SOFT, linewidth=0.8)
    axis.set_xticks(range(len(labels)), labels, rotation=90)
    axis.set_yticks(range(len(labels)), labels)
    axis.set_title("\n".join(wrap(title(of_one), 26)))
    return figures
