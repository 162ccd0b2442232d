"""What is true in the world: taxonomy, geography, opposites and inverse relations; and the life of each person in one
story.

The labelled sets are decided by these functions, so they are the only place where meaning relations between concepts
are stated.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from .concepts import _ADJECTIVES, ANIMALS_BY_SIZE, COLOURS, HELD_OUT, _rows, concept, gender_of, in_category


def hypernyms(id_: str) -> tuple[str, ...]:
    """The classes above a concept, nearest first: cat -> (mammal, animal_class); paris -> (france, europe)."""
    found = []
    while id_ := concept(id_).hypernym:
        found.append(id_)
    return tuple(found)


def siblings(id_: str) -> tuple[str, ...]:
    """Concepts of the same category and group, other than it: values that exclude it where only one can hold."""
    c = concept(id_)
    return tuple(i for i in in_category(c.category) if i != id_ and concept(i).group == c.group)


@cache
def _antonyms() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for pair, _, _ in _rows(_ADJECTIVES, ":"):
        one, other = pair.split()
        found[one] = found.get(one, ()) + (other,)
        found[other] = found.get(other, ()) + (one,)
    return found


@cache
def dimension(adjective: str) -> str:
    """What an adjective is about: "colour", or one of the adjectives opposed to each other (big of big and small)."""
    if adjective in COLOURS:
        return "colour"
    found, waiting = {adjective}, [adjective]
    while waiting:
        new = [a for a in _antonyms()[waiting.pop()] if a not in found]
        found.update(new)
        waiting += new
    return min(found)


def antonym(adjective: str, noun: str) -> str:
    """The opposite of an adjective said of this noun (old shoe: new; old man: young); "" for colours."""
    options = [a for a in _antonyms().get(adjective, ()) if noun in concept(a).describes]
    return options[0] if options else ""


def excludes(adjective: str, noun: str) -> tuple[str, ...]:
    """Adjectives that cannot hold of the noun together with this one: its antonym, or every other colour."""
    if adjective in COLOURS:
        return tuple(c for c in COLOURS if c != adjective)
    opposite = antonym(adjective, noun)
    return (opposite,) if opposite else ()


# x R y  is the same as  y INVERSE[R] x
RELATION_INVERSE = {"beside": "beside", "behind": "in_front_of", "in_front_of": "behind"}
# predicates that cannot both hold of the same two things
RELATION_EXCLUDES = {"in": ("under", "behind"), "on": ("under", "in"), "under": ("on", "in"), "behind":
("in_front_of",),
                     "in_front_of": ("behind",), "beside": ("in", "on")}  # fmt: skip

_KIN_GENERATIONS = {
    ("brother", "sister"): ("brother", "sister"),
    ("husband", "wife"): ("husband", "wife"),
    ("father", "mother"): ("son", "daughter"),
    ("uncle", "aunt"): ("nephew", "niece"),
    ("grandfather", "grandmother"): ("grandson", "granddaughter"),
}


def kin_inverse(kin: str, standard: str) -> str:
    """If X is the `kin` of `standard`, what `standard` is to X: mother of a man -> son; friend -> friend."""
    for one, other in _KIN_GENERATIONS.items():
        for these, those in ((one, other), (other, one)):
            if kin in these:
                return those[gender_of(standard) == "f"]
    return kin


def comparable_animals(rng: random.Random, training: bool = True) -> tuple[str, str]:
    """A clearly bigger and a clearly smaller animal."""
    known = [a for a in ANIMALS_BY_SIZE if not (training and a in HELD_OUT)]
    small = rng.randrange(len(known) - 12)
    return known[rng.randrange(small + 10, len(known))], known[small]


@cache
def adjectives_for(noun: str) -> tuple[str, ...]:
    return tuple(a for a in in_category("adjective") if noun in concept(a).describes)


@dataclass(frozen=True)
class Person:
    """One person's life in one story; stative sentences of a document agree with it and with each other."""

    id: str
    home: str
    profession: str
    employer: str
    language: str
    pet: str
    likes: str
    fears: str
    friend: str
    trait: str


@cache
def _known(category: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    ids = in_category(category)
    return tuple(i for i in ids if i not in HELD_OUT and (not groups or concept(i).group in groups))


def person(id_: str, story: int) -> Person:
    """The life of a person in story number `story`: a function of the two, so every document can look it up."""
    rng = random.Random(f"{id_} {story}")

    def pick(category: str, *groups: str, but: str = "") -> str:
        id_ = rng.choice(_known(category, groups))
        return id_ if id_ != but else pick(category, *groups, but=but)

    pet, likes = pick("animal", "mammal", "bird"), pick("food")
    fears, friend, trait = pick("animal", but=pet), pick("person", but=id_), rng.choice(adjectives_for(id_))
    return Person(
        id_, pick("city"), pick("role"), pick("organisation"), pick("language"), pet, likes, fears, friend, trait
    )  # fmt: skip
