"""Natural language inference: entailment, neutral, contradiction, decided by the frames.

The hypothesis is drawn first and gets three premises, one per label, so a hypothesis says nothing about its label. Premise and
hypothesis are about one situation (the convention of SNLI): what happened in Paris did not happen in Berlin.

    entailment     the premise says the hypothesis and something more; or its inverse (mother / son, taller / shorter), a city of
                   its country, or a quality in passing ("Anna washed the red cup": the cup is red); or a contrary of what the
                   hypothesis denies (the cup is blue: it is not red)
    contradiction  where only one value can hold (place, time, number, colour, side of the table, home, kin) it has another one;
                   or negation, an antonym, or a comparison the wrong way round
    neutral        the hypothesis adds something; or the premise is about another person, thing, wish or quality

All labels add modifiers to the premise alike, so length says little and word overlap alone is not enough.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from .concepts import COLOURS, concept, gender_of, in_category
from .documents import Line
from .frames import KINDS, NP, Frame, frame
from .languages.base import language
from .sampling import GROUNDS, Sampler, split_of
from .world import RELATION_EXCLUDES, RELATION_INVERSE, adjectives_for, antonym, excludes, hypernyms, kin_inverse

LABELS = ("entailment", "neutral", "contradiction")
MAX_WORDS = 10  # of an English premise or hypothesis
_MODIFIERS = ("manner", "companion", "place", "time")
# Places none of which lies in another.
_APART = frozenset(
    ["school", "hospital", "library", "museum", "theatre", "cinema", "restaurant", "bank", "factory", "temple", "bakery",
     "pharmacy", "kitchen", "bedroom", "bathroom", "office", "park", "market", "bridge", "beach", "forest", "lake",
     "mountain", "zoo", "stadium", "airport"]
)  # fmt: skip
# Kin words of which two people have one at most.
_KIN = tuple(k for k in in_category("kin") if concept(k).group != "any")


@dataclass(frozen=True)
class Example:
    premise: Line
    hypothesis: Line
    label: str


class Unfit(Exception):
    """This draw leaves no room for the edit: draw again."""


class Writer:
    """Makes triples of examples with one hypothesis. All their frames obey the sampler's split."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler, self.rng = sampler, sampler.rng
        self.english = language("en")
        self.tries = 4 if sampler.split == "train" else 60
        weights = {self._circumstance: 20, self._number: 10, self._negation: 13, self._class: 14, self._contrary: 8,
                   self._quality: 10, self._comparison: 5, self._kin: 4, self._location: 6, self._region: 6, self._home: 4,
                   self._job: 3}  # fmt: skip
        self.families = [family for family, weight in weights.items() for _ in range(weight)]

    def triples(self) -> Iterator[tuple[Example, Example, Example]]:
        """Endless."""
        while True:
            family = self.rng.choice(self.families)
            while True:
                try:
                    yield self._triple(family)
                    break
                except Unfit:
                    continue

    def _triple(self, family: Callable[[], tuple[Frame, tuple[Callable[[], Frame], ...]]]) -> tuple[Example, ...]:
        hypothesis, makers = family()
        self._check(hypothesis)
        said = self._style(hypothesis)
        return tuple(
            Example(self._style(self._premise(hypothesis, make)), said, label)
            for label, make in zip(LABELS, makers, strict=True)
        )

    def _premise(self, hypothesis: Frame, make: Callable[[], Frame]) -> Frame:
        tried: Counter[Frame] = Counter()
        for _ in range(self.tries):
            try:
                premise = make()
                tried[premise] += 1
                if tried[premise] == 3:  # few are possible, and none will do
                    break
                self._check(premise)
            except Unfit:
                continue
            if premise != hypothesis:
                return premise
        raise Unfit

    def _check(self, f: Frame) -> None:
        if self._words(f) > MAX_WORDS or not self.sampler.allowed(f):
            raise Unfit

    def _words(self, f: Frame) -> int:
        """At least as many words as the English sentence has (which it would take long to render)."""
        found = 2 + f.negated + (f.kind in ("compare", "relation", "want"))  # verb and auxiliary; "more … than", "to"
        for slot, np in f.slots:
            lemma = self.english.lemma(np.head)
            found += lemma.count(" ") + 1 + (np.form in ("def", "indef")) + bool(np.adjective) + bool(np.number)
            found += slot in ("place", "companion", "goal", "recipient")
        if f.predicate in ("in_front_of", "work_for"):
            found += 2
        return found

    def _style(self, f: Frame) -> Line:
        adverbial = "time" in f or "place" in f
        return Line(f, int(self.rng.random() < 0.1), adverbial and self.rng.random() < 0.15)

    # --- edits -------------------------------------------------------------------------------------------------------

    def _choose(self, options):
        """One of the concepts (or of other values); Unfit if there is none."""
        options = tuple(options)
        if not options:
            raise Unfit
        return self.sampler.pick(options) if isinstance(options[0], str) else self.rng.choice(options)

    def _bare(self, kind: str) -> Frame:
        """An affirmative frame without modifiers."""
        f = replace(self.sampler.draw(kind), negated=False)
        for slot in _MODIFIERS:
            if slot not in KINDS[kind].required:
                f = f.with_slot(slot, None)
        thing = f.get("object")
        return f.with_slot("object", replace(thing, adjective="")) if thing is not None else f

    def _value(self, slot: str) -> NP:
        if slot == "place":
            return NP(self.sampler.of("city")) if self.rng.random() < 0.5 else NP(self._choose(_SORTED_APART), "def")
        return NP(self.sampler.of({"time": "time", "manner": "manner", "companion": "person"}[slot]))

    def _more(self, f: Frame, without: str = "") -> Frame:
        """The frame with one more modifier, but none in the slot `without`."""
        options = [s for s in KINDS[f.kind].optional if s not in f and s != without]
        if "companion" in options and f["agent"].category != "person":
            options.remove("companion")
        if "manner" in options and f.predicate in (
            "sleep",
            "fall",
            "sneeze",
            "shout",
            "whisper",
            "fly",
            "drive",
            "travel",
        ):
            options.remove("manner")
        slots = [s for s in ("object", "theme", "ground") if s in f and self._adjectives(f[s])]
        if f.kind in ("compare", "relation", "property", "state", "weather"):
            slots = []
        slot = self._choose([*options, *slots])
        if slot in options:
            return f.with_slot(slot, self._value(slot))
        return f.with_slot(slot, replace(f[slot], adjective=self._choose(self._adjectives(f[slot]))))

    @staticmethod
    def _adjectives(np: NP) -> tuple[str, ...]:
        """Those the phrase could take."""
        if np.adjective or np.form not in ("def", "indef", "number"):
            return ()
        return tuple(a for a in adjectives_for(np.head) if np.form != "number" or a in COLOURS)

    def _instead(self, f: Frame, slot: str) -> Frame:
        """The frame with another value in a slot that can hold one value only."""
        np = f[slot]
        c = concept(np.head)
        if np.form == "def" and c.category == "place":
            options = [i for i in _SORTED_APART if i != c.id]
        elif slot == "goal" and c.category == "place":
            raise Unfit
        else:
            options = [i for i in in_category(c.category) if i != c.id and concept(i).group == c.group]
        return f.with_slot(slot, replace(np, head=self._choose(options)))

    def _someone_else(self, f: Frame) -> Frame:
        """The frame about another person, animal or thing; or with agent and object exchanged."""
        one = f["agent"] if "agent" in f else f["theme"]
        other = f.get("object") or f.get("recipient")
        if other is not None and {one.category, other.category} == {"person"} and self.rng.random() < 0.4:
            slot = "object" if "object" in f else "recipient"
            return f.with_slot("agent", other).with_slot(slot, one)
        slots = [s for s in ("agent", "object", "theme", "recipient") if s in f and f[s].form != "number"]
        slot = self._choose(slots) if len(slots) > 1 else slots[0]
        return self._another(f, slot)

    def _another(self, f: Frame, slot: str) -> Frame:
        """Another head of the same kind in a slot, one the predicate allows."""
        np, c = f[slot], concept(f[slot].head)
        options = [i for i in in_category(c.category) if i != c.id and concept(i).mass == c.mass]
        if f.kind in ("action", "want", "like", "event"):
            fits = concept(f.predicate).objects if slot == "object" else concept(f.predicate).agents
            options = [i for i in options if i in fits]
        if c.category in ("object", "animal", "food"):
            options = [i for i in options if concept(i).group == c.group]
        if np.adjective:
            options = [i for i in options if np.adjective in adjectives_for(i)]
        options = [i for i in options if all(i != other.head for _, other in f.slots)]
        return f.with_slot(slot, replace(np, head=self._choose(options)))

    # --- families: a hypothesis and the makers of its entailing, neutral and contradicting premise -------------------

    def _circumstance(self):
        """Anna sang in Paris: sang in Paris on Monday / sang on Monday, Leo sang in Paris / sang in Berlin."""
        kind = self._choose(["action", "event", "motion", "give"])
        f = self._bare(kind)
        slot = self._choose([s for s in ("place", "time") if s in KINDS[kind].optional] + ["goal"] * (kind == "motion"))
        if slot == "goal":
            if f["goal"].category == "place" and f["goal"].head not in _APART:
                raise Unfit
        else:
            f = f.with_slot(slot, self._value(slot))

        def neutral() -> Frame:
            if slot == "place" and f[slot].category == "city" and self.rng.random() < 0.25:
                return self._more(f.with_slot(slot, NP(concept(f[slot].head).hypernym)))
            if slot != "goal" and self.rng.random() < 0.5:
                return self._more(f.with_slot(slot, None), without=slot)
            return self._more(self._someone_else(f))

        return f, (lambda: self._more(f), neutral, lambda: self._more(self._instead(f, slot)))

    def _number(self):
        """Anna bought three cups: three red cups / three forks, Leo bought three cups / five cups."""
        kind = self._choose(["action", "own", "count"])
        f = self._bare(kind)
        thing = f["object"]
        if thing.category not in ("object", "animal", "food", "role") or concept(thing.head).mass:
            raise Unfit
        f = f.with_slot("object", NP(thing.head, "number", number=self.sampler.of("number")))

        def neutral() -> Frame:
            slots = {"count": ["object", "place"]}.get(kind, ["object", "agent"])
            return self._more(self._another(f, self._choose(slots)))

        def contradiction() -> Frame:
            other = self._choose(n for n in in_category("number") if n != f["object"].number)
            return self._more(f.with_slot("object", replace(f["object"], number=other)))

        return f, (lambda: self._more(f), neutral, contradiction)

    def _negation(self):
        """Anna sang (did not sing in Paris): with more said / of someone else, wished / the opposite."""
        kind = self._choose(["action", "event", "motion", "give", "own", "want"])
        f = self._bare(kind)
        if f.get("object") is not None and f["object"].form == "number":
            raise Unfit
        wide = f if kind in ("own", "want", "motion") else self._more(f)
        denied = self.rng.random() < 0.5

        def neutral() -> Frame:
            if kind in ("action", "want") and self.rng.random() < 0.3:
                return self._deed(f) if kind == "want" else self._wish(f)
            if denied and self.rng.random() < 0.4:
                return replace(self._more(wide), negated=True)
            other = self._someone_else(f)
            return replace(other, negated=True) if self.rng.random() < 0.5 else self._more(other)

        if denied:
            if wide == f:
                wide = self._more(f)
            hypothesis = replace(wide, negated=True)
            return hypothesis, (lambda: replace(f, negated=True), neutral, lambda: self._more(wide))
        return f, (lambda: self._more(f), neutral, lambda: replace(f, negated=True))

    def _wish(self, f: Frame) -> Frame:
        if f["agent"].category not in ("person", "role") or f.predicate in ("lose", "forget", "break", "find", "see"):
            raise Unfit
        return self._more(frame("want", f.predicate, agent=f["agent"], object=f["object"]))

    def _deed(self, f: Frame) -> Frame:
        return self._more(frame("action", f.predicate, agent=f["agent"], object=f["object"]))

    def _contrary(self):
        """Anna is not happy (does not live in Paris): sad (in Berlin) / rich (Leo is sad) / happy (in Paris)."""
        topic = self.rng.random()
        if topic < 0.6:
            noun = self._choose([self.sampler.of("person"), self.sampler.of("role"), self.sampler.of("object")])
            theme = NP(noun) if concept(noun).category == "person" else NP(noun, "def")
            adjective = self._choose(a for a in adjectives_for(noun) if excludes(a, noun))
            said = frame("property", adjective, theme=theme)
            values = [replace(said, predicate=a) for a in excludes(adjective, noun)]
            same = (adjective, *excludes(adjective, noun))
            other = [replace(said, predicate=a) for a in adjectives_for(noun) if a not in same]
        else:
            agent = NP(self.sampler.of("person"))
            if topic < 0.8:
                said = frame("state", "live", agent=agent, object=NP(self.sampler.of("city")))
            else:
                said = frame("profession", agent=agent, object=NP(self.sampler.of("role"), "indef"))
            values = [self._another(said, "object") for _ in range(20)]
            other = [frame("state", "work_for", agent=agent, object=NP(i)) for i in in_category("organisation")]

        def neutral() -> Frame:
            if self.rng.random() < 0.5:
                return self._choose(other)
            slot = "agent" if "agent" in said else "theme"
            return self._another(self._choose([said, *values]), slot)

        return replace(said, negated=True), (lambda: self._choose(values), neutral, lambda: said)

    def _quality(self):
        """The cup is red: Anna washed the red cup / washed the cup, the red bag / washed the blue cup. Or denied."""
        deed = self._bare("action")
        thing = replace(deed["object"], form="def")
        if thing.category not in ("object", "food", "animal"):
            raise Unfit
        adjective = self._choose(adjectives_for(thing.head))
        contraries = excludes(adjective, thing.head)
        if not contraries:
            raise Unfit

        def did(quality: str, head: str = thing.head) -> Frame:
            agent = NP(self.sampler.of("person"))
            f = deed.with_slot("agent", agent).with_slot("object", replace(thing, head=head, adjective=quality))
            return self._more(f) if self.rng.random() < 0.6 else f

        def neutral() -> Frame:
            unrelated = [a for a in adjectives_for(thing.head) if a not in (adjective, *contraries)]
            if self.rng.random() < 0.5:
                return did(self._choose(unrelated))
            quality = self._choose((adjective, *contraries[:2]))
            fitting = [i for i in concept(deed.predicate).objects if quality in adjectives_for(i) and i != thing.head]
            return did(quality, self._choose(fitting))

        hypothesis = frame("property", adjective, self.rng.random() < 0.5, theme=replace(thing, adjective=""))
        same, different = (lambda: did(adjective)), (lambda: did(self._choose(contraries)))
        if hypothesis.negated:
            same, different = different, same
        return hypothesis, (same, neutral, different)

    def _comparison(self):
        """Anna is taller than Leo: Leo is shorter than Anna / richer than Anna / taller than Anna."""
        f = self.sampler.draw("compare")
        theme, standard = f["theme"], f["standard"]
        opposite = antonym(f.predicate, theme.head)
        if not opposite:
            raise Unfit

        def about(predicate: str, one: NP, other: NP) -> Frame:
            return frame("compare", predicate, theme=one, standard=other)

        def neutral() -> Frame:
            if theme.category == "person" and self.rng.random() < 0.5:
                gradable = [a for a in adjectives_for(theme.head) if concept(a).gradable]
                adjective = self._choose(a for a in gradable if a not in (f.predicate, opposite))
                return about(adjective, standard, theme)
            adjective = self._choose([f.predicate, opposite])
            return self._another(about(adjective, standard, theme), self._choose(["theme", "standard"]))

        def contradiction() -> Frame:
            if self.rng.random() < 0.67:
                return about(f.predicate, standard, theme)
            return about(opposite, theme, standard)

        return f, (lambda: about(opposite, standard, theme), neutral, contradiction)

    def _kin(self):
        """Anna is Leo's mother: Leo is Anna's son / Leo is Mira's son / Leo is Anna's brother."""
        f = replace(self.sampler.draw("relation"), negated=False)
        theme, standard = f["theme"], f["standard"]
        inverse = frame("relation", kin_inverse(f.predicate, standard.head), theme=standard, standard=theme)

        def neutral() -> Frame:
            return self._another(inverse, "standard")

        def contradiction() -> Frame:
            if f.predicate not in _KIN:
                return replace(inverse, negated=True)
            gender = gender_of(standard.head)
            options = [k for k in _KIN if gender_of(k) == gender and k != inverse.predicate]
            return replace(inverse, predicate=self._choose(options))

        return f, (lambda: inverse, neutral, contradiction)

    def _location(self):
        """The key is on the table: on the red table / the coin is on it / under the table, on the bed. Or from the other side."""
        f = replace(self.sampler.draw("locate"), negated=False)

        def seen(said: Frame) -> Frame:
            if said.predicate in RELATION_INVERSE and self.rng.random() < 0.3:
                return replace(said, predicate=RELATION_INVERSE[said.predicate], slots=())\
                    .with_slot("theme", said["ground"]).with_slot("ground", said["theme"])  # fmt: skip
            return self._more(said)

        def contradiction() -> Frame:
            relations = [r for r in RELATION_EXCLUDES[f.predicate] if f["ground"].head in GROUNDS[r]]
            if relations and self.rng.random() < 0.5:
                return seen(replace(f, predicate=self._choose(relations)))
            grounds = [i for i in GROUNDS[f.predicate] if i not in (f["ground"].head, f["theme"].head)]
            return seen(f.with_slot("ground", replace(f["ground"], head=self._choose(grounds))))

        return f, (lambda: seen(f), lambda: seen(self._another(f, "theme")), contradiction)

    def _class(self):
        """Anna bought a tool: bought a hammer / a rose, Leo bought a hammer / did not buy a tool. And the other way about:
        Anna bought a hammer: … / bought a tool / …; did not buy a hammer: did not buy a tool / a saw / bought a red hammer."""
        f = self._bare("action")
        thing = f["object"].head
        if not hypernyms(thing) or concept(thing).category == "role":
            raise Unfit
        f = f.with_slot("object", NP(thing, "generic" if concept(thing).mass else "indef"))
        wide = f.with_slot("object", NP(self.rng.choice(hypernyms(thing)), "indef"))
        members = [
            i for i in concept(f.predicate).objects if wide["object"].head in hypernyms(i) and not concept(i).mass
        ]
        others = [i for i in concept(f.predicate).objects if wide["object"].head not in hypernyms(i)
                  and concept(i).category in ("object", "food", "animal") and not concept(i).mass]  # fmt: skip
        if concept(thing).mass or not members:
            raise Unfit

        def one(ids: list[str]) -> Frame:
            return f.with_slot("object", NP(self._choose(ids), "indef"))

        draw = self.rng.random()
        if draw < 0.5:

            def neutral() -> Frame:
                said = one(others) if others and self.rng.random() < 0.5 else self._another(one(members), "agent")
                return self._more(said)

            return wide, (lambda: self._more(one(members)), neutral, lambda: replace(wide, negated=True))
        siblings = [i for i in members if i != thing] or others
        if draw < 0.75:
            return f, (lambda: self._more(f), lambda: self._more(wide),
                       lambda: replace(self.rng.choice([f, wide]), negated=True))  # fmt: skip
        return replace(f, negated=True), (lambda: replace(wide, negated=True), lambda: replace(one(siblings), negated=True),
                                          lambda: self._more(f))  # fmt: skip

    def _region(self):
        """Anna sang in France: in Paris on Monday / Leo sang in Paris, Anna sang on Monday / sang in Berlin, in Spain."""
        f = self._bare(self._choose(["action", "event"]))
        country = self.sampler.of("country")
        f = f.with_slot("place", NP(country))
        cities = self._cities(country)

        def there(inside: bool) -> Frame:
            return f.with_slot("place", NP(self._choose(cities[inside])))

        def neutral() -> Frame:
            if self.rng.random() < 0.3:
                return self._more(f.with_slot("place", None), without="place")
            return self._more(self._someone_else(there(True)))

        def contradiction() -> Frame:
            return self._more(there(False) if self.rng.random() < 0.7 else self._another(f, "place"))

        return f, (lambda: self._more(there(True)), neutral, contradiction)

    def _cities(self, country: str) -> dict[bool, list[str]]:
        """The cities inside and outside a country."""
        return {
            inside: [c for c in in_category("city") if (concept(c).hypernym == country) == inside]
            for inside in (True, False)
        }

    def _home(self):
        """Anna lives in France (does not): lives in Paris / Leo lives in Paris, Anna worked there / lives in Berlin."""
        agent, country = NP(self.sampler.of("person")), self.sampler.of("country")
        f = frame("state", "live", agent=agent, object=NP(country))
        cities = self._cities(country)

        def home(inside: bool) -> Frame:
            return f.with_slot("object", NP(self._choose(cities[inside])))

        def neutral() -> Frame:
            inside = self.rng.random() < 0.5
            if self.rng.random() < 0.6:
                return self._another(home(inside), "agent")
            verb = self._choose(["work", "dance", "sing", "study", "sleep"])
            return frame("event", verb, agent=agent, place=NP(self._choose(cities[inside])))

        denied = self.rng.random() < 0.5
        return replace(f, negated=denied), (lambda: home(not denied), neutral, lambda: home(denied))

    def _job(self):
        """Anna is an artist (is not): a singer / works for Sony, Leo is a singer / a farmer."""
        agent, kind = NP(self.sampler.of("person")), self._choose(["artist", "worker"])
        jobs = {
            inside: [r for r in in_category("role") if (kind in hypernyms(r)) == inside] for inside in (True, False)
        }

        def job(inside: bool) -> Frame:
            return frame("profession", agent=agent, object=NP(self._choose(jobs[inside]), "indef"))

        def neutral() -> Frame:
            if self.rng.random() < 0.5:
                return frame("state", "work_for", agent=agent, object=NP(self.sampler.of("organisation")))
            return self._another(job(self.rng.random() < 0.5), "agent")

        denied = self.rng.random() < 0.5
        f = frame("isa", "", denied, theme=agent, object=NP(kind, "indef"))
        return f, (lambda: job(not denied), neutral, lambda: job(denied))


_SORTED_APART = tuple(p for p in in_category("place") if p in _APART)


def examples(seed: int, part: str, count: int) -> list[Example]:
    """`count` examples, rounded up to a multiple of 3 (the labels are balanced exactly), shuffled. part: "train", "dev", "test"."""
    rng = random.Random(f"nli {part} {seed}")
    writer = Writer(Sampler(rng, split_of(part)))
    found = []
    for triple in writer.triples():
        if len(found) >= count:
            break
        found += triple
    rng.shuffle(found)
    return found
