"""Running text: documents, parallel sentences and documents, held-out pairs with gold alignments, dictionaries.

Functions return what to say (lines of frames), made from a seed and a name; `corpus.py` has it said and written.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from .concepts import HELD_OUT, concepts
from .documents import Line, Story, style, tell
from .languages.base import Language, language
from .sampling import Sampler, split_of
from .tagging import question
from .tokens import align


def stories(name: str, seed: int, part: str, count: int = 0, *, sentences: int = 0, skew: float = 0.0) -> list[Story]:
    """`count` stories, or as many as together have `sentences` sentences or a few more.

    `name` makes the stream: with the language in it, the documents are those of no other language. part: "train"
    text, or "dev" and "test" of held-out combinations.
    """
    sampler = Sampler(random.Random(f"{name} {part} {seed}"), split_of(part), skew)
    found, total = [], 0
    while len(found) < count or total < sentences:
        found.append(tell(sampler))
        total += len(found[-1].lines)
    return found


@dataclass(frozen=True)
class Pair:
    """One frame said in two languages, each in its own way. `text` is the English sentence."""

    foreign: Line
    english: Line
    text: str


def pairs(name: str, seed: int, split: str, count: int, skew: float = 0.0) -> list[Pair]:
    """`count` pairs whose English sides differ; held-out ones differ even in their combination of concepts."""
    rng = random.Random(f"{name} {split} {seed}")
    sampler, english = Sampler(rng, split, skew), language("en")
    found, seen = [], set()
    while len(found) < count:
        f = sampler.frame()
        if split == "train" and rng.random() < 0.06:
            f = question(rng, f)
        said = style(rng, f)
        text = said.render(english).text
        key = text if split == "train" else " ".join(part.core() for part in f.parts or (f,))
        if key not in seen:
            seen.add(key)
            found.append(Pair(style(rng, f), said, text))
    return found


def rewordings(name: str, seed: int, count: int, say: Language, skew: float = 0.0) -> list[tuple[str, str]]:
    """`count` pairs of different training sentences of one language that say the same frame."""
    rng = random.Random(f"{name} train {seed}")
    sampler = Sampler(rng, "train", skew)
    found: dict[tuple[str, str], None] = {}
    while len(found) < count:
        f = sampler.frame()
        fronts = (False, True) if "time" in f or "place" in f else (False,)
        lines = [Line(f, variant, front) for variant in (0, 1) for front in fronts]
        rng.shuffle(lines)
        first, *others = (line.render(say).text for line in lines)
        second = next((text for text in others if text != first), None)
        if second is not None:
            found[first, second] = None
    return list(found)


def alignment(pair: Pair, foreign: Language, english: Language) -> tuple[str, str, str]:
    """The tokens of both sides separated by spaces, and the gold links in Pharaoh format (foreign-english)."""
    source, target = pair.foreign.render(foreign), pair.english.render(english)
    links = " ".join(f"{i}-{j}" for i, j in align(source, target))
    return " ".join(t.text for t in source.tokens), " ".join(t.text for t in target.tokens), links


def _words(lemma: str, spaced: bool) -> str:
    """A lexicon cell as a dictionary prints it: "on|ADP Monday|PROPN" is "Monday"."""
    tagged = [word.partition("|") for word in lemma.split()]
    while len(tagged) > 1 and tagged[0][2] in ("ADP", "DET"):
        del tagged[0]
    return (" " if spaced else "").join(word for word, _, _ in tagged)


def dictionary(foreign: Language, english: Language, held_out: bool) -> list[tuple[str, str]]:
    """(foreign, English) lemmas of every concept, synonyms included; those of held-out concepts or all the others."""
    found = {}
    for id_ in concepts():
        if (id_ in HELD_OUT) == held_out:
            for f in foreign.lexicon[id_]:
                for e in english.lexicon[id_]:
                    found[_words(f["lemma"], foreign.spaced), _words(e["lemma"], True)] = None
    return list(found)
