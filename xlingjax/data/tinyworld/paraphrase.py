"""Paraphrase identification with hard negatives: both kinds of second sentence are built from the words of the first.

Paraphrases (1): the adverbial in front and synonyms; an inverted relation ("Leo is shorter than Anna", "Leo is Anna's
son"); the same order of two events told the other way round.
Others (0): the same with agent and object (or recipient) exchanged; "Anna is shorter than Leo", "Leo is Anna's father";
two events in the other order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from .concepts import concept
from .documents import Line
from .frames import NP, Frame
from .sampling import Sampler, split_of
from .world import RELATION_INVERSE, antonym, kin_inverse


@dataclass(frozen=True)
class Pair:
    first: Line
    second: Line
    label: int


def _exchanged(f: Frame, one: str, other: str) -> Frame:
    return f.with_slot(one, f[other]).with_slot(other, f[one])


def _two_people(sampler: Sampler, same: bool) -> tuple[Line, Line] | None:
    """On Monday, Anna met Leo in Paris. / Leo met Anna in Paris on Monday."""
    kind, other = ("action", "object") if sampler.rng.random() < 0.6 else ("give", "recipient")
    f = replace(sampler.draw(kind), negated=False)
    if f["agent"].category != "person" or ("time" not in f and "place" not in f):
        return None
    if f[other].category != "person":
        if kind == "give" or concept(f.predicate).objects[0] != "adam":
            return None
        f = f.with_slot("object", NP(sampler.of("person")))
    if f[other].head == f["agent"].head:
        return None
    return Line(f), Line(f if same else _exchanged(f, "agent", other), 1, True)


def _comparison(sampler: Sampler, same: bool) -> tuple[Line, Line] | None:
    f = sampler.draw("compare")
    opposite = antonym(f.predicate, f["theme"].head)
    second = replace(f, predicate=opposite)
    return Line(f), Line(_exchanged(second, "theme", "standard") if same else second)


def _kinship(sampler: Sampler, same: bool) -> tuple[Line, Line] | None:
    f = replace(sampler.draw("relation"), negated=False)
    inverse = kin_inverse(f.predicate, f["standard"].head)
    # "Leo is Anna's father" for "Anna is Leo's mother": the same people, the same generations, the wrong way round.
    wrong = kin_inverse(inverse, f["standard"].head)
    if wrong == inverse:
        return None
    return Line(f), Line(replace(_exchanged(f, "theme", "standard"), predicate=inverse if same else wrong))


def _side(sampler: Sampler, same: bool) -> tuple[Line, Line] | None:
    f = replace(sampler.draw("locate"), negated=False)
    inverse = RELATION_INVERSE.get(f.predicate, f.predicate)
    if inverse == f.predicate:
        return None
    second = replace(f, predicate=inverse)
    return Line(f), Line(_exchanged(second, "theme", "ground") if same else second)


def _order(sampler: Sampler, same: bool) -> tuple[Line, Line] | None:
    f = sampler.draw("sequence")
    other = "before_that" if f.predicate == "then" else "then"
    return Line(f), Line(replace(f, predicate=other, parts=f.parts if same else f.parts[::-1]))


_MAKERS: tuple[Callable[[Sampler, bool], tuple[Line, Line] | None], ...] = (
    _two_people, _two_people, _two_people, _order, _order, _comparison, _kinship, _side
)  # fmt: skip


def pairs(seed: int, part: str, count: int) -> list[Pair]:
    """`count` pairs, paraphrases and others in equal numbers and of the same kinds, in random order."""
    rng = random.Random(f"paraphrase {part} {seed}")
    sampler = Sampler(rng, split_of(part))
    found: list[Pair] = []
    while len(found) < count:
        maker, label = rng.choice(_MAKERS), 1 - len(found) % 2
        while True:
            made = maker(sampler, label == 1)
            if made and all(sampler.allowed(line.frame) and sampler.sensible(line.frame) for line in made):
                found.append(Pair(*made, label))
                break
    rng.shuffle(found)
    return found
