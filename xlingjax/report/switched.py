"""Text of several languages, coloured by language."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from xlingjax.report import html, plots


def stretches(tokens: Iterable[Any]) -> list[tuple[str, list[Any]]]:
    """[(language, tokens that follow each other in it)]."""
    # Two sentences in one language are two stretches.
    by_language = groupby(
        tokens,
        key=lambda token: (token.pack, token.side, token.language),
    )
    return [(language, list(of)) for (_, _, language), of in by_language]


def said(token: Any) -> str:
    """The piece of the text itself, also where the row shows a MASK or another piece."""
    piece = token.piece
    if token.how in ("mask", "random", "kept"):
        # A reader wants the text, and MASK in every seventh place would hide it.
        piece = token.target
    return piece.replace("▁", " ")


def _used(tokens: Sequence[Any], languages: Sequence[str]) -> list[str]:
    """The languages that the text is in."""
    present = {token.language for token in tokens}
    return [name for name in languages if name in present]


def as_html(tokens: Sequence[Any], languages: Sequence[str]) -> str:
    """The text in colours, chosen words underlined, and a legend. Nothing for a text of one
    language."""
    used = _used(tokens, languages)
    if len(used) < 2:
        return ""
    # By the run's languages and not by the text's, so that one has the same colour in every row.
    colour = plots.colours(languages)
    parts = []
    for language, stretch in stretches(tokens):
        pieces = []
        for token in stretch:
            piece = html.esc(said(token))
            if token.how in CHOSEN:
                piece = f"<u>{piece}</u>"
            pieces.append(piece)
        # Isolated, since a stretch from right to left must not turn its neighbours around.
        parts.append(
            f'<bdi lang="{html.esc(language)}"'
            f' style="color:{colour[language]}">{"".join(pieces)}</bdi>',
        )
    legend = []
    for name in used:
        legend.append(f'<b style="color:{colour[name]}">{html.esc(name)}</b>')
    return (
        f'<p class="switched">{" ".join(parts)}</p><p class="note">{" ".join(legend)} ·'
        " underlined: to be predicted</p>"
    )


CHOSEN = ("mask", "random", "kept", "recover")


def as_text(tokens: Sequence[Any], languages: Sequence[str]) -> Any:
    """The same as a rich text, or None."""
    from rich.text import Text

    used = _used(tokens, languages)
    if len(used) < 2:
        return None
    colour = plots.colours(languages)
    text = Text()
    for language, stretch in stretches(tokens):
        for token in stretch:
            style = colour[language]
            if token.how in CHOSEN:
                style += " underline"
            text.append(said(token), style=style)
        text.append(" ")
    # The legend has a line of its own.
    before = "\n"
    for name in used:
        text.append(f"{before}{name}", style=f"bold {colour[name]}")
        before = " "
    return text.append(" · underlined: to be predicted", style="dim")
