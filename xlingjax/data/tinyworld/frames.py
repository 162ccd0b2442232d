"""Semantic frames: what a clause says, before any language says it.

A `Frame` has a kind, a predicate (a concept), slots filled with noun phrases, and may be negated or turned into a
question.
`KINDS` is the complete list: a language implements one method per kind and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from .concepts import HELD_OUT, concept
from .world import dimension


@dataclass(frozen=True)
class NP:
    """A noun phrase.

    Attributes:
        head: the concept.
        form: how it refers.
            "name"     a proper name, a time, a language, a holiday: no determiner beyond what the name itself carries
            "def"      the cat, the water (singular)
            "indef"    a cat (singular; never mass)
            "number"   three cats (`number` is set; never mass)
            "generic"  the kind: cats, water ("likes cats", "fears dogs")
            "pronoun"  he, she: only people, only as agent or theme, only in documents (the antecedent was named just
            before)
        adjective: an adjective concept, or "".
        number: a number concept when form is "number", else "".
    """

    head: str
    form: str = "name"
    adjective: str = ""
    number: str = ""

    @property
    def category(self) -> str:
        return concept(self.head).category

    def concepts(self) -> tuple[str, ...]:
        return tuple(c for c in (self.number, self.adjective, self.head) if c)


@dataclass(frozen=True)
class Kind:
    """What one kind of frame may hold.

    predicate: the category of its predicate, "" if it has none. required / optional: slots. negatable: whether a
    negated form
    must be rendered. asks: slots about which a question must be rendered ("number" asks for the number of the object).
    tense: "past" or "present" (told of all its clauses, so that every verb needs one finite form only).
    """

    predicate: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    negatable: bool = False
    asks: tuple[str, ...] = ()
    tense: str = "present"


KINDS: dict[str, Kind] = {
    # Anna ate the red apple in the park on Monday. The object may be a class ("a fruit"), the place a country.
    "action": Kind(
        "transitive", ("agent", "object"), ("place", "time"), True, ("agent", "object", "place", "time"), "past"
    ),
    # Anna sang loudly with Tom in the park on Monday.
    "event": Kind(
        "intransitive", ("agent",), ("manner", "companion", "place", "time"), True, ("agent", "place", "time"), "past"
    ),
    # Anna ran quickly to the park with Tom on Monday. The goal is a place or a city.
    "motion": Kind(
        "motion", ("agent", "goal"), ("manner", "companion", "time"), True, ("agent", "goal", "time"), "past"
    ),
    # Anna gave Tom a book on Monday. The recipient is a person or a role.
    "give": Kind(
        "ditransitive", ("agent", "recipient", "object"), ("time",), True, ("agent", "recipient", "object"), "past"
    ),
    # Anna has a red bicycle / three cats. Negated only with an indefinite object: Anna has no bicycle.
    "own": Kind("", ("agent", "object"), (), True, ("agent", "object", "number")),
    # The key is under the table. The predicate is the spatial relation.
    "locate": Kind("relation", ("theme", "ground"), (), True, ("theme", "ground")),
    # Anna lives in Paris (city or country) / works for Siemens / speaks German.
    "state": Kind("state", ("agent", "object"), (), True, ("agent", "object")),
    # The apple is red. Anna is tall.
    "property": Kind("adjective", ("theme",), (), True, ()),
    # A cat is an animal. A teacher is a person. (theme and object are "indef"; a mass theme is "generic": Bread is
    # food.) The theme may also be a person: Anna is an artist.
    "isa": Kind("", ("theme", "object"), (), True, ()),
    # Paris is in France. France is in Europe.
    "inside": Kind("", ("theme", "ground"), (), True, ("ground",)),
    # Anna is a teacher. The object is a role; it takes the gender of the agent.
    "profession": Kind("", ("agent", "object"), (), True, ("agent",)),
    # Anna likes cats / hates tea. Generic object.
    "like": Kind("mental", ("agent", "object"), (), True, ("agent", "object")),
    # Anna wants to eat the apple.
    "want": Kind("transitive", ("agent", "object"), (), True, ("agent", "object")),
    # There are three cats in the garden. The object has form "number".
    "count": Kind("", ("object", "place"), (), False, ("number",)),
    # The horse is bigger than the dog. Anna is taller than Tom. Predicate: a gradable adjective.
    "compare": Kind("adjective", ("theme", "standard"), (), False, ()),
    # Anna is Tom's sister. The predicate is the kin word; theme and standard are people.
    "relation": Kind("kin", ("theme", "standard"), (), True, ("theme",)),
    # It rained in Paris on Monday. It was cold in Paris.
    "weather": Kind("weather", ("place",), ("time",), True, (), "past"),
    # Anna and the red bicycle in Paris. A headline, no verb and no final stop.
    "title": Kind("", ("agent", "object", "place"), (), False, ()),
    # Two events in time order: `parts` are two un-negated frames (action, event, motion, give) without time.
    # predicate "then": FIRST, then SECOND.   predicate "before_that": SECOND, but before that FIRST.
    "sequence": Kind("sequence", ()),
}
EVENT_KINDS = ("action", "event", "motion", "give")
# Facts of the world itself: always in training text, never held out, because labelled sets are decided by them.
# ("Anna is an artist" is no such fact.)
FACT_KINDS = frozenset({"isa", "inside"})
# The slots which, with kind and predicate, make the combination that is held out.
_CORE_SLOTS = ("agent", "theme", "object", "goal", "recipient", "ground", "standard", "place")


@dataclass(frozen=True)
class Frame:
    """A clause (or two, for "sequence"). Slots are reached by `frame["agent"]` and tested by `"time" in frame`."""

    kind: str
    predicate: str = ""
    slots: tuple[tuple[str, NP], ...] = ()
    negated: bool = False
    ask: str = ""  # the slot asked about; "" for a statement
    parts: tuple[Frame, ...] = field(default=())

    def get(self, slot: str) -> NP | None:
        for name, np in self.slots:
            if name == slot:
                return np
        return None

    def __getitem__(self, slot: str) -> NP:
        np = self.get(slot)
        if np is None:
            raise KeyError(slot)
        return np

    def __contains__(self, slot: str) -> bool:
        return self.get(slot) is not None

    def with_slot(self, slot: str, np: NP | None) -> Frame:
        """The same frame with one slot replaced, added, or (None) dropped."""
        slots = dict(self.slots)
        if np is None:
            slots.pop(slot, None)
        else:
            slots[slot] = np
        return Frame(self.kind, self.predicate, tuple(slots.items()), self.negated, self.ask, self.parts)

    def concepts(self) -> Iterator[str]:
        """Every concept the frame mentions."""
        if self.predicate and self.kind != "sequence":
            yield self.predicate
        for _, np in self.slots:
            yield np.head
            if np.adjective:
                yield np.adjective
            if np.number:
                yield np.number
        for part in self.parts:
            yield from part.concepts()

    def core(self) -> str:
        """The content combination: kind, predicate and the heads of the main slots, whoever does it to whom.

        Modifiers and negation do not count; nor does what a relation of two things is, and a quality counts as its
        dimension (big and small are one): a combination is held out together with its contraries and inverses. "he"
        and "she" are one head, whoever they stand for: the sentence does not say.
        """
        filled = dict(self.slots)
        main = [filled[slot] for slot in _CORE_SLOTS if slot in filled][: 3 if self.kind in ("give", "title") else 2]
        heads = sorted("pronoun" if np.form == "pronoun" else np.head for np in main)
        predicate = self.predicate
        if self.kind in ("relation", "locate"):
            predicate = ""
        elif self.kind in ("property", "compare"):
            predicate = dimension(predicate)
        return " ".join([self.kind, predicate, *heads])


def frame(kind: str, predicate: str = "", negated: bool = False, **slots: NP) -> Frame:
    """A checked frame: `frame("action", "eat", agent=NP("anna"), object=NP("apple", "def"))`."""
    required, optional = KINDS[kind].required, KINDS[kind].optional
    if sum(s in slots for s in required) < len(required) or sum(s in required or s in optional for s in slots) < len(
        slots
    ):
        missing = [s for s in required if s not in slots]
        unknown = [s for s in slots if s not in required + optional]
        raise ValueError(f"frame {kind!r}: missing slots {missing}, unknown slots {unknown}")
    return Frame(kind, predicate, tuple(slots.items()), negated)


def uses_held_out_concept(f: Frame) -> bool:
    return not HELD_OUT.isdisjoint(f.concepts())


def is_held_out(f: Frame, percent: int = 10) -> bool:
    """Whether the frame may be used in test sets only (True) or in training text only (False).

    Decided by a hash of `core()` alone: the same in every language, in every sentence built on the combination
    (negated, asked, with other modifiers) and for every corpus seed. A frame with a held-out concept is held out; a
    sequence, when a part is.
    """
    return uses_held_out_concept(f) or is_held_out_combination(f, percent)


def is_held_out_combination(f: Frame, percent: int = 10) -> bool:
    """`is_held_out` of a frame without held-out concepts."""
    if f.parts:
        return any(is_held_out_combination(part, percent) for part in f.parts)
    if f.kind in FACT_KINDS and f["theme"].category != "person":
        return False
    return _hash(f.core()) % 100 < percent


@lru_cache(maxsize=1 << 16)
def _hash(core: str) -> int:
    return int.from_bytes(hashlib.sha256(core.encode()).digest()[:4], "big")
