"""Draw frames that make sense: selectional restrictions, held-out policy, even or uneven use of the concepts."""

from __future__ import annotations

import hashlib
import random
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate

from .concepts import COLOURS, HELD_OUT, Concept, concept, in_category
from .frames import EVENT_KINDS, FACT_KINDS, KINDS, NP, Frame, frame, is_held_out_combination, uses_held_out_concept
from .world import adjectives_for, comparable_animals, excludes, hypernyms

# How often each kind is drawn where none is asked for: richer kinds more often, so that nouns and verbs come evenly.
_WEIGHTS = {"action": 8, "event": 4, "motion": 2, "give": 3, "own": 2, "locate": 3, "state": 3, "property": 3, "isa": 3,
            "inside": 2, "profession": 2, "like": 2, "want": 2, "count": 2, "compare": 2, "relation": 2, "weather": 1,
            "sequence": 2}  # fmt: skip
SENTENCE_KINDS = tuple(kind for kind in KINDS for _ in range(_WEIGHTS.get(kind, 0)))
_TEST_KINDS = tuple(kind for kind in SENTENCE_KINDS if kind not in FACT_KINDS)
GROUNDS = {
    "in": ("bag", "bucket", "tram", "box", "basket", "wardrobe", "suitcase", "backpack", "car"),
    "on": ("table", "desk", "chair", "bed", "sofa", "shelf", "bench", "fridge", "piano"),
    "under": ("table", "desk", "chair", "bed", "sofa", "bench", "car", "oak"),
    "beside": ("table", "desk", "bed", "sofa", "wardrobe", "fridge", "oak", "car", "school"),
    "behind": ("wardrobe", "sofa", "car", "truck", "oak", "school", "museum", "station", "theatre"),
    "in_front_of": ("wardrobe", "sofa", "car", "truck", "oak", "school", "museum", "station", "theatre"),
}
_PETS = tuple(
    ["cat", "dog", "horse", "cow", "pig", "sheep", "goat", "rabbit", "camel", "donkey", "duck", "hen", "goose",
     "parrot", "pigeon", "turtle"]
)  # fmt: skip
SMALL = tuple(
    ["hammer", "knife", "needle", "screwdriver", "shirt", "hat", "scarf", "glove", "sock", "shoe", "belt", "bottle",
     "cup", "bowl", "bag", "doll", "ball", "puzzle", "phone", "camera", "radio", "book", "letter", "newspaper",
     "magazine", "map", "postcard", "diary", "key", "candle", "umbrella", "towel", "coin", "ticket", "wallet",
     "gift", "comb", "brush", "pen", "pencil", "notebook", "ring", "apple", "pear", "orange", "lemon", "banana",
     "cat", "mouse", "necklace", "sweater", "trumpet", "kite", "peach"]
)  # fmt: skip
# Who and what the kinds of frame are about.
HUMANS = in_category("person") + in_category("role")
GIVABLE = tuple(i for i in in_category("object") if concept(i).group not in ("furniture", "vehicle", "tree"))
_OWNABLE = tuple(i for i in in_category("object") if concept(i).group != "tree") + _PETS
_CLASSED = tuple(
    i for c in ("animal", "food", "object", "role", "place") for i in in_category(c) if concept(i).hypernym
)
WISHES = tuple(v for v in in_category("transitive") if v not in ("lose", "forget", "break", "find", "see"))
COMPARABLE = tuple(a for a in in_category("adjective") if concept(a).gradable and "anna" in concept(a).describes)


def _liking(of: str) -> float:
    """An arbitrary number of (0, 1), the same for ever."""
    return (1 + int.from_bytes(hashlib.md5(of.encode()).digest()[:4])) / 2**32


@cache
def _order(ids: tuple[str, ...], beside: str) -> tuple[str, ...]:
    """The ids, those first that are frequent anywhere and go well with the concept `beside` ("": anywhere)."""
    return tuple(sorted(ids, key=lambda id_: _liking(id_) * (_liking(f"{beside} {id_}") if beside else 1)))


@cache
def _zipf(n: int, skew: float) -> tuple[float, ...]:
    """Cumulative shares of the ranks 1 to n, in the proportion rank ** -skew."""
    shares = [rank**-skew for rank in range(1, n + 1)]
    return tuple(share / sum(shares) for share in accumulate(shares))


@cache
def _people(group: str) -> tuple[str, ...]:
    return tuple(p for p in in_category("person") if group in ("any", concept(p).group))


def split_of(part: str) -> str:
    """The split that a part of a labelled set draws from: "dev" and "test" both have held-out combinations."""
    return "train" if part == "train" else "test"


@cache
def _of_categories(categories: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(i for category in categories for i in in_category(category))


@cache
def _people_first(ids: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    people = tuple(i for i in ids if concept(i).category == "person")
    return people, tuple(i for i in ids if concept(i).category != "person")


class Sampler:
    """Draws frames for one split.

    split: "train" draws only combinations and concepts that training text may use; "test" only held-out combinations
    of known concepts; "novel" only frames with at least one held-out concept. Everything comes from `rng`.

    skew: how unevenly concepts are used. 0: as evenly as can be. Otherwise each concept keeps company of its own, as
    words of real text do: the options beside it (the objects of a verb, the adjectives of a noun) have an order of
    their own and are drawn in the proportion rank ** -skew (Zipf's law where it is 1).
    """

    def __init__(self, rng: random.Random, split: str = "train", skew: float = 0.0) -> None:
        if split not in ("train", "test", "novel"):
            raise ValueError(f"split {split!r} is not one of train, test, novel")
        self.rng, self.split, self.skew = rng, split, skew
        self._used: Counter[str] = Counter()

    def frame(self, kind: str = "", **fixed: NP) -> Frame:
        """One frame of the kind (any but "title" if not given) whose slots include `fixed`. Falls back on another
        draw until
        the split's rule holds; raises ValueError if 2000 draws do not satisfy it (the fixed slots leave no room)."""
        chosen = kind or self.rng.choice(SENTENCE_KINDS if self.split == "train" else _TEST_KINDS)
        spec = KINDS[chosen]
        fixed = {slot: np for slot, np in fixed.items() if slot in spec.required + spec.optional}
        for _ in range(2000):
            drawn = self.draw(chosen)
            for slot, np in fixed.items():
                drawn = drawn.with_slot(slot, np)
            if self.sensible(drawn) and self.allowed(drawn):
                return drawn
        raise ValueError(f"no {kind or 'any'} frame for split {self.split} with {fixed}")

    def draw(self, kind: str) -> Frame:
        """One frame of the kind, of either split: what is made from it is to be checked by `allowed`."""
        return getattr(self, f"_{kind}")()

    def allowed(self, f: Frame) -> bool:
        """Whether the split may use the frame."""
        novel = uses_held_out_concept(f)
        if self.split == "novel":
            return novel
        return not novel and is_held_out_combination(f) == (self.split == "test")

    @staticmethod
    def sensible(f: Frame) -> bool:
        heads = [
            np.head
            for slot, np in f.slots
            if slot in ("agent", "object", "recipient", "companion", "theme", "standard")
        ]
        if len(set(heads)) < len(heads):
            return False
        predicate = concept(f.predicate) if f.predicate and f.kind != "sequence" else None
        if predicate is None or "agent" not in f:
            return True
        return not predicate.agents or f["agent"].head in predicate.agents

    # --- noun phrases ------------------------------------------------------------------------------------------------

    def pick(self, ids: Sequence[str], beside: str = "") -> str:
        """Evenly: of two ids drawn at random the one used less so far. With skew: what goes with `beside`."""
        if self.split == "novel" and self.rng.random() < 0.25:
            # One id in four of the novel split is a held-out one wherever there is a choice.
            ids = [i for i in ids if i in HELD_OUT] or ids
        if self.skew:
            return self._going_with(beside, ids)
        one, other = self._any(ids), self._any(ids)
        chosen = one if self._used[one] <= self._used[other] else other
        self._used[chosen] += 1
        return chosen

    def _any(self, ids: Sequence[str]) -> str:
        id_ = ids[int(self.rng.random() * len(ids))]
        if id_ in HELD_OUT and self.split != "novel":
            id_ = self.rng.choice([i for i in ids if i not in HELD_OUT] or ids)
        return id_

    def _going_with(self, beside: str, ids: Sequence[str]) -> str:
        if self.split != "novel":
            ids = [i for i in ids if i not in HELD_OUT] or ids
        order = _order(tuple(ids), beside)
        return order[bisect(_zipf(len(order), self.skew), self.rng.random() * 0.999999)]

    def of(self, *categories: str, beside: str = "") -> str:
        return self.pick(_of_categories(categories), beside)

    def agent(self, allowed: tuple[str, ...], beside: str = "") -> NP:
        """A subject: mostly people, else a role or an animal with the article."""
        people, others = _people_first(allowed)
        if not others or (people and self.rng.random() < 0.6):
            return NP(self.pick(people, beside))
        return NP(self.pick(others, beside), "def")

    def thing(self, id_: str, *, numbers: bool = True) -> NP:
        """An object phrase for any concept."""
        c = concept(id_)
        if c.category in ("person", "city", "holiday", "language", "organisation"):
            return NP(id_)
        adjectives = adjectives_for(id_)
        adjective = self.pick(adjectives, id_) if adjectives and self.rng.random() < 0.4 else ""
        if c.mass:
            return NP(id_, "def", adjective)
        draw = self.rng.random()
        if numbers and draw < 0.2:
            return NP(id_, "number", adjective if adjective in COLOURS else "", self.of("number", beside=id_))
        return NP(id_, "def" if draw < 0.6 else "indef", adjective)

    def place(self, beside: str = "") -> NP:
        draw = self.rng.random()
        if draw < 0.6:
            return NP(self.of("place", beside=beside), "def")
        return NP(self.of("city" if draw < 0.92 else "country", beside=beside))

    def object_of(self, verb: Concept) -> NP:
        """What the verb is done to: seldom a kind of thing ("bought a tool")."""
        id_ = self.pick(verb.objects, verb.id)
        if concept(id_).hypernym and concept(id_).category != "role" and self.rng.random() < 0.06:
            return NP(self.pick(hypernyms(id_)), "indef")
        return self.thing(id_)

    def maybe(self, share: float, draw: Callable[[], NP]) -> NP | None:
        return draw() if self.rng.random() < share else None

    def _build(self, kind: str, predicate: str = "", **slots: NP | None) -> Frame:
        kept = {slot: np for slot, np in slots.items() if np is not None}
        negated = KINDS[kind].negatable and self.rng.random() < 0.12
        if any(np.form == "number" for np in kept.values()):
            negated = False  # "did not buy three apples" is unclear in most languages
        return frame(kind, predicate, negated, **kept)

    # --- one method per kind -----------------------------------------------------------------------------------------

    def _time(self) -> NP:
        return NP(self.of("time"))

    def _companion(self, kind_agent: NP) -> NP | None:
        return self.maybe(0.25, lambda: NP(self.of("person"))) if kind_agent.category == "person" else None

    def _action(self) -> Frame:
        verb = concept(self.of("transitive"))
        place = self.maybe(0.4, lambda: self.place(verb.id))
        return self._build(
            "action", verb.id, agent=self.agent(verb.agents, verb.id), object=self.object_of(verb), place=place,
            time=self.maybe(0.3 if place else 0.5, self._time),
        )  # fmt: skip

    def _event(self) -> Frame:
        verb = concept(self.of("intransitive"))
        agent = self.agent(verb.agents, verb.id)
        has_manner = verb.id not in ("sleep", "fall", "sneeze", "shout", "whisper")
        manner = self.maybe(0.3, lambda: NP(self.of("manner", beside=verb.id))) if has_manner else None
        companion = self._companion(agent) if verb.id not in ("fall", "sneeze", "yawn", "hide") else None
        place = self.maybe(0.5, lambda: self.place(verb.id))
        time = self.maybe(0.3 if place else 0.6, self._time)
        return self._build("event", verb.id, agent=agent, manner=manner, companion=companion, place=place, time=time)

    def _motion(self) -> Frame:
        verb = self.of("motion")
        agent = NP(self.of("person")) if self.rng.random() < 0.7 else NP(self.of("role"), "def")
        far = verb in ("travel", "fly", "drive")
        in_city = far or self.rng.random() < 0.3
        goal = NP(self.of("city", beside=verb)) if in_city else NP(self.of("place", beside=verb), "def")
        manner = self.maybe(0.2, lambda: NP(self.of("manner"))) if verb in ("go", "run", "walk", "return") else None
        return self._build(
            "motion", verb, agent=agent, goal=goal, manner=manner, companion=self._companion(agent),
            time=self.maybe(0.5, self._time),
        )  # fmt: skip

    def _give(self) -> Frame:
        agent = NP(self.of("person")) if self.rng.random() < 0.7 else NP(self.of("role"), "def")
        recipient = NP(self.of("person")) if self.rng.random() < 0.8 else NP(self.of("role"), "def")
        verb = self.of("ditransitive")
        given = self.thing(self.pick(GIVABLE, agent.head))
        return self._build(
            "give", verb, agent=agent, recipient=recipient, object=given, time=self.maybe(0.4, self._time)
        )

    def _own(self) -> Frame:
        thing = self.thing(self.pick(_OWNABLE))
        if thing.form == "def":
            thing = NP(thing.head, "indef", thing.adjective)
        return self._build("own", agent=self.agent(HUMANS, thing.head), object=thing)

    def _locate(self) -> Frame:
        relation = self.of("relation")
        ground = self.pick(GROUNDS[relation], relation)
        return self._build("locate", relation, theme=NP(self.pick(SMALL, ground), "def"), ground=NP(ground, "def"))

    def _state(self) -> Frame:
        state = self.of("state")
        options = {"live": ("city", "country"), "work_for": ("organisation",), "speak": ("language",)}[state]
        agent = self.agent(HUMANS)
        return self._build("state", state, agent=agent, object=NP(self.of(*options, beside=agent.head)))

    def _property(self) -> Frame:
        adjective = concept(self.of("adjective"))
        noun = self.pick(adjective.describes, adjective.id)
        theme = NP(noun) if concept(noun).category == "person" else NP(noun, "def")
        return self._build("property", adjective.id, theme=theme)

    def _isa(self) -> Frame:
        theme = self.pick(_CLASSED)
        classes = hypernyms(theme)
        if self.rng.random() < 0.3:
            tops = {classes[-1], *classes}
            other = self.pick([i for i in in_category("class") if i not in tops and not tops & set(hypernyms(i))])
            if concept(theme).category == "role":
                other = self.pick(["animal_class", "bird", "vehicle", "plant_class"])
            return frame("isa", "", True, theme=self._kind(theme), object=NP(other, "indef"))
        if concept(theme).category == "role" and self.rng.random() < 0.5:
            kinds = [c for c in classes if c in ("artist", "worker")]
            if kinds:
                return self._build("isa", theme=NP(self.of("person")), object=NP(kinds[0], "indef"))
        return frame("isa", "", False, theme=self._kind(theme), object=NP(self.rng.choice(classes), "indef"))

    @staticmethod
    def _kind(id_: str) -> NP:
        return NP(id_, "generic" if concept(id_).mass else "indef")

    def _inside(self) -> Frame:
        inner = self.of("city", "country")
        outer = self.rng.choice(hypernyms(inner))
        if self.rng.random() < 0.25:
            other = self.rng.choice([i for i in in_category(concept(outer).category) if i != outer])
            return frame("inside", "", True, theme=NP(inner), ground=NP(other))
        return frame("inside", "", False, theme=NP(inner), ground=NP(outer))

    def _profession(self) -> Frame:
        agent = self.of("person")
        return self._build("profession", agent=NP(agent), object=NP(self.of("role", beside=agent), "indef"))

    def _like(self) -> Frame:
        verb = concept(self.of("mental"))
        agent = self.agent(verb.agents, verb.id)
        return self._build("like", verb.id, agent=agent, object=NP(self.pick(verb.objects, agent.head), "generic"))

    def _want(self) -> Frame:
        verb = concept(self.pick(WISHES))
        wanted = self.thing(self.pick(verb.objects, verb.id), numbers=False)
        return self._build("want", verb.id, agent=self.agent(HUMANS), object=wanted)

    def _count(self) -> Frame:
        counted = self.of("animal", "role", "object")
        counted = NP(counted, "number", number=self.of("number"))
        return self._build("count", object=counted, place=NP(self.of("place", beside=counted.head), "def"))

    def _compare(self) -> Frame:
        if self.rng.random() < 0.4:
            big, small = comparable_animals(self.rng, self.split != "novel")
            if self.rng.random() < 0.5:
                return self._build("compare", "big", theme=NP(big, "def"), standard=NP(small, "def"))
            return self._build("compare", "small", theme=NP(small, "def"), standard=NP(big, "def"))
        return self._build(
            "compare", self.pick(COMPARABLE), theme=NP(self.of("person")), standard=NP(self.of("person"))
        )

    def _relation(self) -> Frame:
        kin = concept(self.of("kin"))
        theme = NP(self.pick(_people(kin.group)))
        return self._build("relation", kin.id, theme=theme, standard=NP(self.of("person", beside=theme.head)))

    def _weather(self) -> Frame:
        weather = self.of("weather")
        city = NP(self.of("city", beside=weather))
        return self._build("weather", weather, place=city, time=self.maybe(0.7, self._time))

    def _title(self) -> Frame:
        return frame("title", agent=self.agent(in_category("person") + in_category("animal")),
                     object=NP(self.pick(in_category("object")), "def"), place=self.place())  # fmt: skip

    def _sequence(self) -> Frame:
        """Two events of different people, or of one person named twice."""
        one = self.frame_without_time(self)
        other = self.frame_without_time(self if self.split == "train" else Sampler(self.rng, "train"))
        return Frame("sequence", self.rng.choice(("then", "before_that")), parts=(one, other))

    @staticmethod
    def frame_without_time(sampler: Sampler) -> Frame:
        """A short affirmative event, as a sequence needs it."""
        while True:
            f = sampler.frame(sampler.rng.choice(EVENT_KINDS))
            if not f.negated:
                for slot in ("time", "manner", "companion"):
                    f = f.with_slot(slot, None)
                return f


def contradicting_adjective(rng: random.Random, adjective: str, noun: str) -> str:
    """An adjective that cannot hold of the noun together with this one; "" if the world has none."""
    options = excludes(adjective, noun)
    return rng.choice(options) if options else ""
