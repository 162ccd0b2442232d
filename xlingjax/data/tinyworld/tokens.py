"""Tokens and sentences: what a realiser returns. Alignments, part-of-speech and entity tags fall out of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from .concepts import concept

UPOS = frozenset(
    [
        "ADJ",
        "ADP",
        "ADV",
        "AUX",
        "CCONJ",
        "DET",
        "INTJ",
        "NOUN",
        "NUM",
        "PART",
        "PRON",
        "PROPN",
        "PUNCT",
        "SCONJ",
        "SYM",
        "VERB",
        "X",
    ]
)

_ENTITY = {"person": "PER", "city": "LOC", "country": "LOC", "continent": "LOC", "organisation": "ORG",
           "language": "MISC", "holiday": "MISC"}  # fmt: skip


@dataclass(slots=True, unsafe_hash=True)
class Token:
    """One word. Never changed in place (not frozen only because millions are made, and freezing doubles the time).

    Attributes:
        text: as written inside a sentence (the sentence capitalises its first word).
        upos: universal part-of-speech tag.
        key: what the word expresses: the slot for the head word(s) of a phrase ("agent", "object", "verb", "time" …) or
            slot.part for the words around it ("object.det", "object.adj", "object.num", "place.prep", "neg", "aux",
            "copula").
            Words of two languages are aligned when their keys are equal; a word with no partner stays unaligned.
            "" for punctuation and for words that express nothing of the frame.
        concept: id of the concept if this word (or one of several words) names it, else "".
        glued: no space before this word, whatever the language's rule (the full stop; "pomme" after "l'").
    """

    text: str
    upos: str
    key: str = ""
    concept: str = ""
    glued: bool = False


@dataclass(frozen=True)
class Sentence:
    """Tokens with their text. `spans[i]` is the character span of token i in `text`."""

    tokens: tuple[Token, ...]
    text: str
    spans: tuple[tuple[int, int], ...]

    def pos(self) -> list[str]:
        return [t.upos for t in self.tokens]

    def ner(self) -> list[str]:
        """BIO tags. Neighbouring words of one name share concept and key; only names have an entity category."""
        tags: list[str] = []
        previous = None
        for token in self.tokens:
            label = _ENTITY.get(concept(token.concept).category) if token.concept else None
            if label is None:
                tags.append("O")
                previous = None
                continue
            tags.append(("I-" if previous == (token.concept, token.key) else "B-") + label)
            previous = (token.concept, token.key)
        return tags

    def answer(self, slot: str) -> tuple[int, int]:
        """Character span of the phrase in a slot, without its preposition. "number" is the number of the object."""
        parts = {"object.num"} if slot == "number" else {slot, f"{slot}.det", f"{slot}.num", f"{slot}.adj"}
        spans = [span for span, token in zip(self.spans, self.tokens, strict=True) if token.key in parts]
        if not spans:
            raise ValueError(f"nothing expresses {slot!r} in {self.text!r}")
        return spans[0][0], spans[-1][1]


def align(source: Sentence, target: Sentence) -> list[tuple[int, int]]:
    """Gold word alignment: pairs of token indices with the same non-empty key."""
    return [
        (i, j)
        for i, s in enumerate(source.tokens)
        for j, t in enumerate(target.tokens)
        if s.key and s.key == t.key
    ]  # fmt: skip


def prefixed(tokens: Iterable[Token], prefix: str) -> list[Token]:
    """The same tokens with `prefix` put before their keys (the two clauses of a sequence)."""
    return [replace(t, key=f"{prefix}.{t.key}") if t.key else t for t in tokens]


def join(tokens: Iterable[Token], spaced: bool) -> Sentence:
    """Write the tokens as one text and note where each went."""
    kept = tuple(tokens)
    pieces, spans, end = [], [], 0
    for token in kept:
        if spaced and end and not token.glued:
            pieces.append(" ")
            end += 1
        start, end = end, end + len(token.text)
        spans.append((start, end))
        pieces.append(token.text)
    return Sentence(kept, "".join(pieces), tuple(spans))
