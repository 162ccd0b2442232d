"""A row of a batch as text that one reads: words that are to be predicted marked, both sides of a
pair beside each other."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from xlingjax.report import drawing, html
from xlingjax.report.rows import Token

MARKS = {
    "mask": "[word] shown as MASK",
    "random": "[shown→word] replaced by another piece",
    "kept": "[=word] shown as it is",
    "recover": "[word] recovered from the other side",
    "answer": "[word] the answer",
    "pseudo": "[word] a pseudo token's place",
}
"""How each chosen word is marked, without colours. What is not here ("next") is predicted at every
word, and a mark on each would say nothing."""
STYLES = {"mask": "yellow", "random": "red", "kept": "green"}


def sides(tokens: Iterable[Token]) -> list[list[list[Token]]]:
    """Of each example of a row its sides, one after the other."""
    examples = []
    for _, example in groupby(tokens, key=lambda token: token.pack):
        by_side = groupby(example, key=lambda token: token.side)
        examples.append([list(of_side) for _, of_side in by_side])
    return examples


def stretches(tokens: Iterable[Token]) -> list[tuple[str, list[Token]]]:
    """[(language, tokens that follow each other in it)]."""
    by_language = groupby(tokens, key=lambda token: token.language)
    return [(language, list(of)) for language, of in by_language]


def _languages(tokens: Sequence[Token]) -> list[str]:
    """Of the words; special tokens have the language of their row."""
    words = [token for token in tokens if not token.special]
    return list(dict.fromkeys(token.language for token in words or tokens))


def _spoken(piece: str) -> str:
    return piece.replace("▁", " ")


def as_html(tokens: Sequence[Token], languages: Sequence[str]) -> str:
    """The examples below each other, the sides of each beside each other where there is room.
    languages: the run's, by which colours go."""
    # By the run's languages and not by the text's, so that one has the same colour in every row.
    colour = drawing.colours(languages)
    parts = []
    for example in sides(tokens):
        parts.append('<div class="sides">')
        for side in example:
            names = _languages(side)
            codes = html.esc(" + ".join(names))
            text = []
            for language, stretch in stretches(side):
                style = ""
                if len(names) > 1:
                    style = f' style="color:{drawing.variable(colour[language])}"'
                # Isolated, since a stretch from right to left must not turn its neighbours around.
                words = "".join(map(_marked, stretch))
                text.append(f'<bdi lang="{html.esc(language)}"{style}>{words}</bdi>')
            parts.append(
                f'<div class="side"><span class="lang">{codes}</span> {"".join(text)}</div>'
            )
        parts.append("</div>")
    return "".join(parts)


def _marked(token: Token) -> str:
    piece = html.esc(_spoken(token.piece))
    target = html.esc(_spoken(token.target))
    if token.how in ("recover", "answer", "pseudo"):
        return _mark(token.how, piece)
    if token.how == "mask":
        return _mark("mask", target)
    if token.how == "random":
        return _mark("random", f"<s>{piece.strip()}</s> {target.strip()}")
    if token.how == "kept":
        return _mark("kept", target)
    if token.special:
        return f' <span class="special">{piece.strip()}</span> '
    return piece


def _mark(how: str, inside: str) -> str:
    # The space before a word stays outside of the mark.
    words = inside.lstrip()
    gap = " " * (len(inside) > len(words))
    return f'{gap}<mark class="{how}">{words}</mark>'


def key(tokens: Iterable[Token]) -> str:
    """What the marks mean that these tokens have, as HTML; "" without any."""
    said = {
        "mask": "shown as MASK",
        "random": "<s>shown</s> replaced by another piece",
        "kept": "shown as it is",
        "recover": "recovered from the other side",
        "answer": "the answer",
        "pseudo": "a pseudo token's place",
    }
    used = {token.how for token in tokens}
    marks = []
    for how, words in said.items():
        if how in used:
            marks.append(f'<mark class="{how}">{words}</mark>')
    if not marks:
        return ""
    return f'<p class="note key">to be predicted: {" ".join(marks)}</p>'


def as_text(tokens: Sequence[Token], languages: Sequence[str]):
    """The same for a terminal: a list of rich renderables, one an example, and the key."""
    from rich.table import Table
    from rich.text import Text

    colour = drawing.colours(languages)
    shown = []
    for example in sides(tokens):
        table = Table.grid(padding=(0, 2), expand=True)
        cells = []
        for side in example:
            table.add_column(ratio=1)
            names = _languages(side)
            cell = Text(" + ".join(names) + " ", style="bold")
            for token in side:
                style = ""
                if len(names) > 1:
                    style = colour[token.language]
                if token.special and not token.how:
                    style = "dim"
                _append(cell, token, style)
            cells.append(cell)
        table.add_row(*cells)
        shown.append(table)
    used = {token.how for token in tokens}
    marks = [said for how, said in MARKS.items() if how in used]
    if marks:
        shown.append(Text("to be predicted: " + "; ".join(marks), style="dim"))
    return shown


def _append(text, token: Token, style: str) -> None:
    words = _spoken(token.piece)
    if token.how in ("mask", "kept", "random"):
        words = _spoken(token.target)
    if token.how not in MARKS:
        if token.special:
            words = f" {words} "
        text.append(words, style=f"not bold {style}".strip())
        return
    bare = words.lstrip()
    text.append(" " * (len(words) > len(bare)))
    if token.how == "random":
        bare = f"{_spoken(token.piece).strip()}→{bare}"
    if token.how == "kept":
        bare = f"={bare}"
    text.append(f"[{bare}]", style=STYLES.get(token.how, "cyan"))
