"""Text of several languages, coloured by language."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from xlingjax.report import html, plots


def stretches(tokens: Iterable[Any]) -> list[tuple[str, list[Any]]]:
    """[(language, tokens that follow each other in it)]."""
    by_language = groupby(tokens, key=lambda token: (token.pack, token.side, token.language))
    return [(language, list(of)) for (_, _, language), of in by_language]


def said(token: Any) -> str:
    """The piece of the text itself, also where the row shows a MASK or another piece."""
    return (token.target if token.how in ("mask", "random", "kept") else token.piece).replace(
        "▁", " "
    )


def as_html(tokens: Sequence[Any], languages: Sequence[str]) -> str:
    """The text in colours, chosen words underlined, and a legend. Nothing for a text of one
    language."""
    used = [name for name in languages if any(token.language == name for token in tokens)]
    if len(used) < 2:
        return ""
    colour = plots.colours(languages)
    parts = []
    for language, of in stretches(tokens):
        words = [
            f"<u>{html.esc(said(t))}</u>" if t.how in CHOSEN else html.esc(said(t)) for t in of
        ]
        parts.append(
            f'<bdi lang="{html.esc(language)}"'
            f' style="color:{colour[language]}">{"".join(words)}</bdi>'
        )
    legend = " ".join(f'<b style="color:{colour[name]}">{html.esc(name)}</b>' for name in used)
    return (
        f'<p class="switched">{" ".join(parts)}</p><p class="note">{legend} · underlined: to be'
        " predicted</p>"
    )


CHOSEN = ("mask", "random", "kept", "recover")


def as_text(tokens: Sequence[Any], languages: Sequence[str]) -> Any:
    """The same as a rich text, or None."""
    from rich.text import Text

    used = [name for name in languages if any(token.language == name for token in tokens)]
    if len(used) < 2:
        return None
    colour, text = plots.colours(languages), Text()
    for language, of in stretches(tokens):
        for token in of:
            text.append(
                said(token),
                style=f"{colour[language]}{' underline' if token.how in CHOSEN else ''}",
            )
        text.append(" ")
    for name in used:
        text.append(f"\n{name}" if name == used[0] else f" {name}", style=f"bold {colour[name]}")
    return text.append(" · underlined: to be predicted", style="dim")
