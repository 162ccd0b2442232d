"""The kinds of inference: each draws a hypothesis and makes premises that entail it, leave it open, contradict it.

What is exchanged for a contradiction comes from a small closed class (places, times, numbers, adjectives, kin,
relations); what is left open is mostly a matter of what sort of thing the premise speaks of: regular enough for a small
model to learn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

from .concepts import COLOURS, concept, gender_of, in_category
from .frames import KINDS, NP, Frame, frame
from .languages.base import language
from .sampling import COMPARABLE, Sampler
from .world import RELATION_EXCLUDES, RELATION_INVERSE, adjectives_for, antonym, excludes, hypernyms, kin_inverse

LABELS = ("entailment", "neutral", "contradiction")
Maker = Callable[[], Frame]
Family = Callable[[], tuple[Frame, tuple[Maker, Maker, Maker]]]

_MODIFIERS = ("manner", "companion", "place", "time")
_NO_MANNER = ("sleep", "fall", "sneeze", "shout", "whisper", "fly", "drive", "travel", "hurry")
# Places none of which lies in another.
_APART = tuple(
    ["school", "hospital", "library", "museum", "theatre", "cinema", "restaurant", "bank", "factory", "temple",
     "kitchen", "bathroom", "park", "market", "bridge", "beach", "forest", "lake", "mountain", "zoo"]
)  # fmt: skip
_SINGULAR_KIN = tuple(k for k in in_category("kin") if concept(k).group != "any")


def deniable(f: Frame) -> bool:
    """Whether it can be negated: "did not buy three cups" is unclear in most languages."""
    return KINDS[f.kind].negatable and all(np.form != "number" for _, np in f.slots)


class Unfit(Exception):
    """This draw leaves no room for the edit: draw again."""


@cache
def _cities(country: str, inside: bool) -> tuple[str, ...]:
    return tuple(c for c in in_category("city") if (concept(c).hypernym == country) == inside)


@cache
def _roles(kind: str, inside: bool) -> tuple[str, ...]:
    return tuple(r for r in in_category("role") if (kind in hypernyms(r)) == inside)


@cache
def _preposition(id_: str) -> str:
    """The English one before a place or in a time: "in", "at", "on"; "" for "yesterday"."""
    entry = language("en").entry(id_)
    return entry["prep"] or (
        entry["lemma"].partition("|ADP")[0] if "|ADP" in entry["lemma"] else "in" * (concept(id_).category != "time")
    )


@cache
def _said_with(slot: str, preposition: str) -> tuple[str, ...]:
    categories = ("time",) if slot == "time" else ("city",) if preposition == "in" else ("place",)
    return tuple(i for c in categories for i in in_category(c) if _preposition(i) == preposition)


@cache
def _peers(id_: str) -> tuple[str, ...]:
    """What excludes a value where one only can hold: a city another city, a weekday another weekday."""
    c = concept(id_)
    if c.category == "place":
        return tuple(i for i in _APART if i != id_)
    return tuple(i for i in in_category(c.category) if i != id_ and concept(i).group == c.group)


class Families:
    def __init__(self, sampler: Sampler) -> None:
        self.sampler, self.rng = sampler, sampler.rng

    def weighted(self) -> list[Family]:
        weights: dict[Family, int] = {
            self.circumstance: 24, self.attribute: 12, self.denial: 8, self.number: 8, self.quality: 12,
            self.contrary: 12, self.comparison: 8, self.kin: 4, self.location: 6, self.home: 3, self.region: 3,
            self.class_: 3,
        }  # fmt: skip
        return [family for family, weight in weights.items() for _ in range(weight)]

    # --- edits -------------------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def choose(self, options: Iterable):
        """One of the concepts (or of other values); Unfit if there is none."""
        options = tuple(options)
        if not options:
            raise Unfit
        return self.sampler.pick(options) if isinstance(options[0], str) else self.rng.choice(options)

    def bare(self, *kinds: str) -> Frame:
        """An affirmative frame of one of the kinds, without modifiers."""
        kind = self.choose(kinds)
        f = replace(self.sampler.draw(kind), negated=False)
        for slot in KINDS[kind].optional:
            f = f.with_slot(slot, None)
        thing = f.get("object")
        return f.with_slot("object", replace(thing, adjective="")) if thing is not None else f

    def value(self, slot: str) -> NP:
        if slot == "place":
            return NP(self.sampler.of("city")) if self.chance(0.75) else NP(self.choose(_APART), "def")
        return NP(self.sampler.of({"time": "time", "manner": "manner", "companion": "person"}[slot]))

    def more(self, f: Frame, without: str = "") -> Frame:
        """The frame with one more modifier, but none in the slot `without`."""
        options = [s for s in KINDS[f.kind].optional if s not in f and s != without]
        if "companion" in options and f["agent"].category != "person":
            options.remove("companion")
        if "manner" in options and f.predicate in _NO_MANNER:
            options.remove("manner")
        described = [s for s in ("object", "theme", "ground") if s in f and self._adjectives(f[s])]
        slot = self.choose([*options, *described])
        if slot in options:
            return f.with_slot(slot, self.value(slot))
        return f.with_slot(slot, replace(f[slot], adjective=self.choose(self._adjectives(f[slot]))))

    @staticmethod
    def _adjectives(np: NP) -> tuple[str, ...]:
        """Those the phrase could take."""
        if np.adjective or np.form not in ("def", "indef", "number"):
            return ()
        found = adjectives_for(np.head)
        return tuple(a for a in found if a in COLOURS) if np.form == "number" else found

    def maybe_more(self, f: Frame, without: str = "") -> Frame:
        """As many modifiers as a hypothesis or one more: premises that do not entail are as long as those that do."""
        return self.more(f, without) if self.chance(0.5) else f

    def beside_the_point(self, f: Frame, slot: str) -> Frame:
        """The frame without its place but with a time, or the reverse; with the same preposition in English if there is
        one ("in Paris": "in May"), so that missing words do not tell what is missing."""
        other = {"place": "time", "time": "place"}[slot]
        said = f.with_slot(slot, None)
        if other not in KINDS[f.kind].optional:
            return self.maybe_more(self.more(said, slot), slot)
        alike = _said_with(other, _preposition(f[slot].head))
        value = NP(self.choose(alike)) if alike else self.value(other)
        if value.category == "place":
            value = replace(value, form="def")
        return self.maybe_more(said.with_slot(other, value), slot)

    def instead(self, f: Frame, slot: str) -> Frame:
        """The frame with another value in a slot that can hold one value only."""
        return f.with_slot(slot, replace(f[slot], head=self.choose(_peers(f[slot].head))))

    def someone_else(self, f: Frame) -> Frame:
        """The same said of another person, role or animal."""
        slot = "agent" if "agent" in f else "theme"
        fits = concept(f.predicate).agents if f.kind in ("action", "event", "want", "like") else ()
        c = concept(f[slot].head)
        others = {np.head for _, np in f.slots}
        options = [i for i in in_category(c.category) if i not in others and (not fits or i in fits)]
        return f.with_slot(slot, replace(f[slot], head=self.choose(options)))

    def unrelated(self, f: Frame) -> Frame:
        """A sentence of the same kind with which the frame has no concept in common."""
        other = self.sampler.draw(f.kind)
        if not set(other.concepts()).isdisjoint(f.concepts()):
            raise Unfit
        return self.maybe_more(other) if KINDS[f.kind].optional else other

    def opposite(self, f: Frame) -> Frame:
        """That it is not so: of a denial what it denies, else the denial of it or of more than it."""
        if f.negated:
            return self.maybe_more(replace(f, negated=False)) if KINDS[f.kind].optional else replace(f, negated=False)
        optional = [slot for slot, _ in f.slots if slot in KINDS[f.kind].optional]
        if optional and self.chance(0.5):
            f = f.with_slot(self.choose(optional), None)
        return replace(f, negated=True)

    def about(self, person: NP) -> Frame:
        """Where a person works, or what he speaks."""
        state, category = self.choose([("work_for", "organisation"), ("speak", "language")])
        return frame("state", state, agent=person, object=NP(self.sampler.of(category)))

    # --- events ------------------------------------------------------------------------------------------------------

    def _placed(self) -> tuple[Frame, str]:
        """An event with a place or a time, and which of the two."""
        f = self.bare(*["action"] * 5, *["event"] * 3, "give", "motion")
        slot = self.choose([s for s in ("place", "time") if s in KINDS[f.kind].optional])
        return f.with_slot(slot, self.value(slot)), slot

    def circumstance(self):
        """Anna sang in Paris: sang in Paris on Monday / sang on Monday, Leo sang in Paris / sang in Berlin."""
        f, slot = self._placed()

        def neutral() -> Frame:
            if self.chance(0.1):
                return self.maybe_more(self.someone_else(f))
            said = self.beside_the_point(f, slot)
            return replace(said, negated=self.chance(0.2)) if deniable(said) else said

        def contradiction() -> Frame:
            if self.chance(0.25) and deniable(f):
                return replace(f if self.chance(0.5) else f.with_slot(slot, None), negated=True)
            return self.maybe_more(self.instead(f, slot))

        return f, (lambda: self.more(f), neutral, contradiction)

    def attribute(self):
        """Anna washed the red cup: the red cup in Paris / the big cup, Leo the red cup / the blue cup."""
        f = self.bare("action", "give")
        thing = replace(f["object"], form="def" if concept(f["object"].head).mass else "indef", number="")
        if thing.category not in ("object", "food", "animal"):
            raise Unfit
        adjective = self.choose(a for a in adjectives_for(thing.head) if excludes(a, thing.head))
        contraries = excludes(adjective, thing.head)
        unrelated = [a for a in adjectives_for(thing.head) if a not in (adjective, *contraries)]

        def did(quality: str) -> Frame:
            return f.with_slot("object", replace(thing, adjective=quality))

        def neutral() -> Frame:
            if self.chance(0.1):
                return self.maybe_more(self.someone_else(did(adjective)))
            return self.maybe_more(did(self.choose(unrelated)))

        said = did(adjective)
        return said, (lambda: self.more(said), neutral, lambda: self.maybe_more(did(self.choose(contraries))))

    def denial(self):
        """Anna did not sing in Paris: did not sing, sang in Berlin / sang on Monday / sang in Paris on Monday."""
        f, slot = self._placed()
        if not deniable(f):
            raise Unfit
        bare = f.with_slot(slot, None)

        def entailment() -> Frame:
            return replace(bare, negated=True) if self.chance(0.5) else self.maybe_more(self.instead(f, slot))

        def neutral() -> Frame:
            return replace(self.beside_the_point(f, slot), negated=self.chance(0.5))

        return replace(f, negated=True), (entailment, neutral, lambda: self.more(f))

    def number(self):
        """Anna bought three cups in Paris: three red cups in Paris / three cups on Monday / five cups in Paris."""
        f = self.bare("action")
        thing = concept(f["object"].head)
        if thing.category not in ("object", "animal", "food", "role") or thing.mass:
            raise Unfit
        number, slot = self.sampler.of("number"), self.choose(["place", "time"])
        f = f.with_slot("object", NP(thing.id, "number", number=number)).with_slot(slot, self.value(slot))

        def contradiction() -> Frame:
            other = self.choose(n for n in in_category("number") if n != number)
            return self.maybe_more(f.with_slot("object", NP(thing.id, "number", number=other)))

        return f, (lambda: self.more(f), lambda: self.beside_the_point(f, slot), contradiction)

    def region(self):
        """Anna sang in France: in Paris on Monday / on Monday / in Berlin on Monday."""
        f = self.bare("action", "event")
        country = self.sampler.of("country")
        f = f.with_slot("place", NP(country))

        def there(inside: bool) -> Frame:
            return self.maybe_more(f.with_slot("place", NP(self.choose(_cities(country, inside)))))

        return f, (lambda: there(True), lambda: self.beside_the_point(f, "place"), lambda: there(False))

    def class_(self):
        """Anna bought a tool: bought a hammer in Paris / a rose in Paris / did not buy a tool."""
        f = self.bare("action")
        thing, verb = f["object"].head, concept(f.predicate)
        if concept(thing).category == "role" or not hypernyms(thing):
            raise Unfit
        kind = self.rng.choice(hypernyms(thing))
        things = [
            i for i in verb.objects if concept(i).category in ("object", "food", "animal") and not concept(i).mass
        ]

        def one(inside: bool) -> Frame:
            ids = [i for i in things if (kind in hypernyms(i)) == inside]
            return self.more(f.with_slot("object", NP(self.choose(ids), "indef")))

        f = f.with_slot("object", NP(kind, "indef"))
        return f, (lambda: one(True), lambda: one(False), lambda: replace(f, negated=True))

    # --- qualities ---------------------------------------------------------------------------------------------------

    def quality(self):
        """The cup is red: Anna washed the red cup / the cup, the old cup / the blue cup. Or the cup is not red."""
        deed = self.bare("action")
        thing = replace(deed["object"], form="def", number="")
        if thing.category not in ("object", "food", "animal"):
            raise Unfit
        adjective = self.choose(a for a in adjectives_for(thing.head) if excludes(a, thing.head))
        contraries = excludes(adjective, thing.head)
        unrelated = [a for a in adjectives_for(thing.head) if a not in (adjective, *contraries)]

        def did(quality: str) -> Frame:
            f = deed.with_slot("agent", NP(self.sampler.of("person"))).with_slot(
                "object", replace(thing, adjective=quality)
            )
            if self.chance(0.5):
                slot = self.choose(["place", "time"])
                f = f.with_slot(slot, self.value(slot))
            return f

        def neutral() -> Frame:
            return did(self.choose(unrelated))

        same, different = (lambda: did(adjective)), (lambda: did(self.choose(contraries)))
        denied = self.chance(0.3)
        if denied:
            same, different = different, same
        return frame("property", adjective, denied, theme=replace(thing, adjective="")), (same, neutral, different)

    def contrary(self):
        """Anna is not happy (does not live in Paris): sad (in Berlin) / rich (speaks German) / happy (in Paris)."""
        if self.chance(0.75):
            noun = self.sampler.of(self.choose(["person", "role", "object"]))
            theme = NP(noun, "name" if concept(noun).category == "person" else "def")
            adjective = self.choose(a for a in adjectives_for(noun) if excludes(a, noun))
            contraries = excludes(adjective, noun)
            unrelated = [a for a in adjectives_for(noun) if a not in (adjective, *contraries)]
            said = frame("property", adjective, theme=theme)
            other = lambda: replace(said, predicate=self.choose(contraries))  # noqa: E731
            neutral = lambda: replace(said, predicate=self.choose(unrelated))  # noqa: E731
        else:
            person = NP(self.sampler.of("person"))
            facts = [frame("state", "live", agent=person, object=NP(self.sampler.of("city"))),
                     frame("state", "work_for", agent=person, object=NP(self.sampler.of("organisation"))),
                     frame("profession", agent=person, object=NP(self.sampler.of("role"), "indef"))]  # fmt: skip
            said = self.choose(facts)
            others = [i for i in in_category(said["object"].category) if i != said["object"].head]
            other = lambda: said.with_slot("object", replace(said["object"], head=self.choose(others)))  # noqa: E731
            neutral = lambda: self.choose([f for f in facts if f is not said])  # noqa: E731
        return replace(said, negated=True), (other, neutral, lambda: said)

    def comparison(self):
        """Anna is taller than Leo: Leo is shorter than Anna / richer than Anna / taller than Anna."""
        f = self.sampler.draw("compare")
        opposite = antonym(f.predicate, f["theme"].head)
        if not opposite or f["theme"].category != "person":
            raise Unfit
        turned = f.with_slot("theme", f["standard"]).with_slot("standard", f["theme"])
        unrelated = [a for a in COMPARABLE if a not in (f.predicate, opposite)]
        neutral = lambda: replace(turned, predicate=self.choose(unrelated))  # noqa: E731
        return f, (lambda: replace(turned, predicate=opposite), neutral, lambda: turned)

    def home(self):
        """Anna lives in France (does not): lives in Paris / speaks German / lives in Berlin. Or: is an artist …"""
        person = NP(self.sampler.of("person"))
        if self.chance(0.6):
            country = self.sampler.of("country")
            f = frame("state", "live", agent=person, object=NP(country))
            said = lambda inside: f.with_slot("object", NP(self.choose(_cities(country, inside))))  # noqa: E731
        else:
            kind = self.choose(["artist", "worker"])
            f = frame("isa", theme=person, object=NP(kind, "indef"))
            said = lambda inside: frame(  # noqa: E731
                "profession", agent=person, object=NP(self.choose(_roles(kind, inside)), "indef")
            )
        denied = self.chance(0.3)
        return replace(f, negated=denied), (lambda: said(not denied), lambda: self.about(person), lambda: said(denied))

    def kin(self):
        """Anna is Leo's mother: Leo is Anna's son / Leo is Anna's neighbour / Leo is Anna's brother."""
        f = replace(self.sampler.draw("relation"), negated=False)
        if f.predicate not in _SINGULAR_KIN:
            raise Unfit
        one, other = f["theme"], f["standard"]
        inverse = frame("relation", kin_inverse(f.predicate, other.head), theme=other, standard=one)
        wrong = [k for k in _SINGULAR_KIN if gender_of(k) == gender_of(other.head) and k != inverse.predicate]
        open_ = ["friend", "neighbour", "colleague"]
        return f, (lambda: inverse, lambda: replace(inverse, predicate=self.choose(open_)),
                   lambda: replace(inverse, predicate=self.choose(wrong)))  # fmt: skip

    def location(self):
        """The key is on the table: the old key is on the table / the key is old / the key is under the old table."""
        f = replace(self.sampler.draw("locate"), negated=False)
        turned = f.with_slot("theme", f["ground"]).with_slot("ground", f["theme"])

        def entailment() -> Frame:
            if f.predicate in RELATION_INVERSE and self.chance(0.2):
                return replace(turned, predicate=RELATION_INVERSE[f.predicate])
            return self.more(f)

        def neutral() -> Frame:
            if self.chance(0.3):
                return self.maybe_more(self.someone_else(f))
            thing = f["theme"]
            verb = concept(self.choose(v for v in in_category("transitive") if thing.head in concept(v).objects))
            return self.more(frame("action", verb.id, agent=NP(self.sampler.of("person")), object=thing))

        def contradiction() -> Frame:
            return self.more(replace(f, predicate=self.choose(RELATION_EXCLUDES[f.predicate])))

        return f, (entailment, neutral, contradiction)
