"""Stories: documents of 3 to 12 frames that hang together.

A story has a cast (protagonist, partner, a thing, a place, a day) and a life for its protagonist (`world.person`). It
opens with who did what where; then come facts that agree with the life, events that keep to the cast, things introduced
first ("a cup") and known later ("the cup"), questions answered at once, what the weather was and what the things are.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from .concepts import concept, in_category
from .frames import EVENT_KINDS, FACT_KINDS, KINDS, NP, Frame, frame, is_held_out
from .languages.base import Language
from .sampling import COMPARABLE, GIVABLE, GROUNDS, SMALL, WISHES, Sampler
from .tokens import Sentence
from .world import Person, adjectives_for, excludes, hypernyms, kin_inverse, person

MIN_SENTENCES, MAX_SENTENCES = 3, 12

_THINGS = tuple(i for i in in_category("object") if concept(i).group not in ("tree", "furniture"))


@cache
def _ties(group: str) -> tuple[str, ...]:
    """What a man or a woman can be to somebody."""
    return tuple(k for k in in_category("kin") if concept(k).group in ("any", group))


@cache
def _verbs_for(thing: str) -> tuple[str, ...]:
    return tuple(v for v in in_category("transitive") if thing in concept(v).objects)


@dataclass(frozen=True)
class Line:
    """A frame and how it is said: see `Language.sentence`."""

    frame: Frame
    variant: int = 0
    front: bool = False

    def render(self, realiser: Language) -> Sentence:
        return realiser.sentence(self.frame, self.variant, self.front)


@dataclass(frozen=True)
class Cast:
    """Who and what a story is about. The partner is the protagonist's `tie` (friend, sister, neighbour …); `thing` is
    indefinite, as introduced."""

    protagonist: str
    partner: str
    tie: str
    thing: NP
    place: NP
    time: str
    life: Person

    def title(self) -> Frame:
        """The headline: Anna and the red bicycle in Paris."""
        return frame("title", agent=NP(self.protagonist), object=replace(self.thing, form="def"), place=self.place)


@dataclass(frozen=True)
class Story:
    cast: Cast
    lines: tuple[Line, ...]

    def render(self, realiser: Language) -> list[Sentence]:
        return [line.render(realiser) for line in self.lines]


def style(rng: random.Random, f: Frame) -> Line:
    """How a sentence of running text is said: mostly plainly, sometimes with synonyms or its adverbial in front."""
    return Line(f, int(rng.random() < 0.2), ("time" in f or "place" in f) and rng.random() < 0.25)


def tell(sampler: Sampler, sentences: int = 0, questions: bool = True) -> Story:
    """A story whose sentences all obey the sampler's split ("train" or "test"; facts of the world may be in both).

    sentences: how many, 3 to 12; 0 draws the number. questions: whether it may ask (and answer) questions.
    """
    rng = sampler.rng
    wanted = sentences or rng.randint(MIN_SENTENCES, MAX_SENTENCES)
    while True:
        teller = _Teller(sampler, _cast(sampler), questions)
        if teller.tell(wanted):
            return Story(teller.cast, tuple(style(rng, f) for f in teller.told))


def _cast(sampler: Sampler) -> Cast:
    while True:
        protagonist = sampler.of("person")
        story = sampler.rng.randrange(1 << 20)
        life = person(protagonist, 0 if sampler.skew else story)  # uneven text tells of one world
        thing = sampler.pick(_THINGS, protagonist)
        adjectives = adjectives_for(thing)
        adjective = sampler.pick(adjectives, thing) if adjectives and sampler.rng.random() < 0.4 else ""
        thing = NP(thing, "indef", adjective)
        tie = sampler.pick(_ties(concept(life.friend).group))
        cast = Cast(protagonist, life.friend, tie, thing, sampler.place(protagonist), sampler.of("time"), life)
        if is_held_out(cast.title()) == (sampler.split == "test"):
            return cast


class _Teller:
    """Tells one story. Every move returns the next frame or frames, or None when it has nothing fitting to say now."""

    def __init__(self, sampler: Sampler, cast: Cast, questions: bool) -> None:
        self.sampler, self.rng, self.cast, self.questions = sampler, sampler.rng, cast, questions
        self.told: list[Frame] = []
        self.cores: set[str] = set()
        self.known: list[str] = []  # things already introduced
        self.qualities: dict[str, list[str]] = {}  # what has been said about them
        self.dated = False
        self.repeated: set[Frame] = set()
        self.facts = self._facts()

    def tell(self, wanted: int) -> bool:
        """Fill `told`; False if this cast leaves no room for a story of the split."""
        test = self.sampler.split == "test"
        if not any(self._say([self._opening()]) for _ in range(40 if test else 5)):
            return False
        weighted = [move for move, weight in self._moves() for _ in range(weight)]
        for _ in range(60 * wanted):
            if len(self.told) == wanted:
                return True
            move = self.rng.choice(weighted)
            said = move()
            if said and len(self.told) + len(said) <= wanted:
                if move == self._again:
                    self.told += said
                else:
                    self._say(said)
        return False

    def _moves(self) -> list[tuple[Callable[[], list[Frame] | None], int]]:
        return [
            (self._fact, 6), (self._event, 3), (self._action, 6), (self._motion, 1), (self._give, 3), (self._locate, 3),
            (self._property, 2), (self._class, 2), (self._region, 1), (self._wish, 2), (self._taste, 1),
            (self._count, 1), (self._compare, 1), (self._weather, 1), (self._sequence, 2),
            (self._question, 2 if self.questions else 0), (self._again, 12 if self.questions else 0),
        ]  # fmt: skip

    # --- saying ------------------------------------------------------------------------------------------------------

    def _say(self, frames: list[Frame]) -> bool:
        """Add frames, with pronouns where they fit, unless the split or what was said before forbids one of them."""
        said: list[Frame] = []
        for f in frames:
            f = self._with_pronoun(f, (self.told + said)[-1] if self.told or said else None)
            core = f"{f.ask} {self._named(f).core()}" if not f.parts else " ".join(part.core() for part in f.parts)
            if core in self.cores or not self._allowed(f):
                return False
            said.append(f)
            self.cores.add(core)
        self.told += said
        for f in said:
            self.dated |= "time" in f
            thing = f.get("object")
            if (
                thing is not None
                and not f.negated
                and not f.ask
                and f.kind in ("action", "own")
                and not concept(thing.head).mass
            ):
                self._introduce(thing)
        return True

    def _allowed(self, f: Frame) -> bool:
        if f.kind in FACT_KINDS and f["theme"].category != "person":
            return sum(told.kind in FACT_KINDS for told in self.told) <= len(self.told) // 5
        return is_held_out(f) == (self.sampler.split == "test")

    def _introduce(self, thing: NP) -> None:
        if thing.form in ("indef", "number", "def") and thing.category in ("object", "food", "animal"):
            if thing.form != "number" and thing.head not in self.known:
                self.known.append(thing.head)
            if thing.adjective:
                self.qualities.setdefault(thing.head, []).append(thing.adjective)

    @staticmethod
    def _named(f: Frame) -> Frame:
        subject = "agent" if "agent" in f else "theme"
        np = f.get(subject)
        return f.with_slot(subject, NP(np.head)) if np is not None and np.form == "pronoun" else f

    def _with_pronoun(self, f: Frame, previous: Frame | None) -> Frame:
        """Half the time "he" or "she" for the protagonist, if it was by name the subject of the sentence before."""
        subject = "agent" if "agent" in f else "theme"
        this, before = NP(self.cast.protagonist), previous and (previous.get("agent") or previous.get("theme"))
        if before != this or f.get(subject) != this or f.ask or self.rng.random() < 0.4:
            return f
        return f.with_slot(subject, replace(this, form="pronoun"))

    # --- noun phrases ------------------------------------------------------------------------------------------------

    def _someone(self) -> NP:
        return NP(self.cast.protagonist if self.rng.random() < 0.65 else self.cast.partner)

    def _other(self, one: NP) -> NP:
        return NP(self.cast.partner if one.head == self.cast.protagonist else self.cast.protagonist)

    def _known(self, allowed: tuple[str, ...]) -> NP | None:
        fitting = [i for i in self.known if i in allowed] if self.known else []
        return NP(self.rng.choice(fitting), "def") if fitting else None

    def _time(self) -> NP | None:
        return NP(self.cast.time) if not self.dated and self.rng.random() < 0.5 else None

    def _place(self) -> NP | None:
        return self.cast.place if self.rng.random() < 0.35 else None

    def _build(self, kind: str, predicate: str = "", **slots: NP | None) -> Frame:
        return frame(kind, predicate, **{slot: np for slot, np in slots.items() if np is not None})

    # --- moves -------------------------------------------------------------------------------------------------------

    def _facts(self) -> list[Frame]:
        life, hero, partner = self.cast.life, NP(self.cast.protagonist), NP(self.cast.partner)
        found = [
            frame("profession", agent=hero, object=NP(life.profession, "indef")),
            frame("state", "live", agent=hero, object=NP(life.home)),
            frame("state", "work_for", agent=hero, object=NP(life.employer)),
            frame("state", "speak", agent=hero, object=NP(life.language)),
            frame("own", agent=hero, object=NP(life.pet, "indef")),
            frame("like", "like", agent=hero, object=NP(life.likes, "generic")),
            frame("like", "fear", agent=hero, object=NP(life.fears, "generic")),
            frame("relation", self.cast.tie, theme=partner, standard=hero),
            frame("relation", kin_inverse(self.cast.tie, hero.head), theme=hero, standard=partner),
            frame("property", life.trait, theme=hero),
        ]
        if (kind := hypernyms(life.profession)[0]) != "person_class":
            found.append(frame("isa", theme=hero, object=NP(kind, "indef")))
        self.rng.shuffle(found)
        return found

    def _opening(self) -> Frame:
        """Who did what where (and when), with the thing the story is about."""
        thing = self.cast.thing
        verb = self.sampler.pick(_verbs_for(thing.head), thing.head)
        return self._build("action", verb, agent=NP(self.cast.protagonist), object=thing,
                           place=self.cast.place, time=self._time())  # fmt: skip

    def _fact(self) -> list[Frame] | None:
        return [self.facts.pop()] if self.facts else None

    def _event(self) -> list[Frame] | None:
        verb = concept(self.sampler.of("intransitive"))
        agent = self._someone()
        company = verb.id not in ("fall", "sneeze", "yawn", "hide") and self.rng.random() < 0.3
        manner = verb.id not in ("sleep", "fall", "sneeze", "shout", "whisper") and self.rng.random() < 0.3
        place = self._place()
        how = NP(self.sampler.of("manner", beside=verb.id)) if manner else None
        company = self._other(agent) if company else None
        f = self._build("event", verb.id, agent=agent, manner=how, companion=company, place=place, time=self._time())
        return [replace(f, negated=self.rng.random() < 0.08)]

    def _action(self) -> list[Frame] | None:
        """With a thing already known if the verb allows it (two times in three), else a new one."""
        verb = concept(self.sampler.of("transitive"))
        agent = self._someone()
        known = self._known(verb.objects)
        if self._other(agent).head in verb.objects and self.rng.random() < 0.7:
            thing = self._other(agent)
        elif known and self.rng.random() < 0.67:
            thing = known
        else:
            thing = self.sampler.thing(self.sampler.pick(verb.objects, verb.id))
            if thing.category == "person":
                thing = self._other(agent)  # nobody but the two is in the story
            elif thing.form == "def" and not concept(thing.head).mass:
                thing = replace(thing, form="indef")
        if thing.head == agent.head:
            return None
        return [self._build("action", verb.id, agent=agent, object=thing, place=self._place(), time=self._time())]

    def _motion(self) -> list[Frame] | None:
        agent = self._someone()
        goal, verb = self.cast.place, self.sampler.of("motion")
        if goal.category == "country" or (goal.category == "place" and verb in ("travel", "fly", "drive")):
            return None
        company = self._other(agent) if self.rng.random() < 0.3 else None
        return [self._build("motion", verb, agent=agent, goal=goal, companion=company, time=self._time())]

    def _give(self) -> list[Frame] | None:
        giver = self._someone()
        given = self._known(GIVABLE)
        if given is None:
            return None
        verb = self.sampler.of("ditransitive")
        return [self._build("give", verb, agent=giver, recipient=self._other(giver), object=given, time=self._time())]

    def _locate(self) -> list[Frame] | None:
        theme = self._known(SMALL)
        if theme is None:
            return None
        relation = self.sampler.of("relation")
        ground = self.sampler.pick(GROUNDS[relation], theme.head)
        return None if ground == theme.head else [frame("locate", relation, theme=theme, ground=NP(ground, "def"))]

    def _question(self) -> list[Frame] | None:
        """Where is the key? The key is on the table."""
        answers = self.rng.choice((self._locate, self._action, self._give))()
        if not answers:
            return None
        answer = answers[0]
        if answer.kind == "locate":
            return [replace(answer, ask="ground"), answer]
        return [replace(answer.with_slot("time", None).with_slot("place", None), ask="agent"), answer]

    def _again(self) -> list[Frame] | None:
        """What was told before, said once more with a little less or asked and answered; things are known by now."""
        told = [f for f in self.told[:-1] if not f.ask and not f.parts and f not in self.repeated]
        if not told:
            return None
        f = self.rng.choice(told)
        self.repeated.add(f)
        for slot in ("time", "manner", "companion", "place"):
            if slot in f and slot in KINDS[f.kind].optional and self.rng.random() < 0.5:
                f = f.with_slot(slot, None)
        for slot, np in f.slots:
            if np.form == "pronoun":
                f = f.with_slot(slot, NP(np.head))
            elif f.kind in EVENT_KINDS and slot == "object" and np.form == "indef" and np.head in self.known:
                adjective = np.adjective if self.rng.random() < 0.5 else ""
                f = f.with_slot(slot, replace(np, form="def", adjective=adjective))
        if not self._allowed(f):
            return None
        asks = [s for s in KINDS[f.kind].asks if s in f]
        if asks and not f.negated and self.rng.random() < 0.3:
            return [replace(f, ask=self.rng.choice(asks)), f]
        return [f]

    def _property(self) -> list[Frame] | None:
        theme = self._known(tuple(self.known))
        if theme is None or not adjectives_for(theme.head):
            return None
        adjective = self.sampler.pick(adjectives_for(theme.head), theme.head)
        said = self.qualities.setdefault(theme.head, [])
        if adjective in said or any(adjective in excludes(other, theme.head) for other in said):
            return None
        said.append(adjective)
        return [frame("property", adjective, theme=theme)]

    def _class(self) -> list[Frame] | None:
        """What kind of thing a thing of the story is."""
        named = [
            i for f in self.told for i in f.concepts() if concept(i).category in ("object", "food", "animal", "role")
        ]
        theme = self.rng.choice([i for i in named if hypernyms(i)] or [""])
        if not theme:
            return None
        kind = NP(theme, "generic" if concept(theme).mass else "indef")
        return [frame("isa", theme=kind, object=NP(self.rng.choice(hypernyms(theme)), "indef"))]

    def _region(self) -> list[Frame] | None:
        city = self.cast.place.head if self.cast.place.category == "city" else self.cast.life.home
        return [frame("inside", theme=NP(city), ground=NP(self.rng.choice(hypernyms(city))))]

    def _wish(self) -> list[Frame] | None:
        verb = concept(self.sampler.pick(WISHES))
        thing = self._known(verb.objects)
        if thing is None:
            return None
        return [frame("want", verb.id, agent=self._someone(), object=thing)]

    def _taste(self) -> list[Frame] | None:
        verb, partner = concept(self.sampler.of("mental")), self.cast.partner
        return [
            frame("like", verb.id, agent=NP(partner), object=NP(self.sampler.pick(verb.objects, partner), "generic"))
        ]

    def _count(self) -> list[Frame] | None:
        if self.cast.place.category != "place":
            return None
        id_ = self.sampler.of("animal", "role", "object", beside=self.cast.place.head)
        counted = NP(id_, "number", number=self.sampler.of("number", beside=id_))
        return [frame("count", object=counted, place=self.cast.place)]

    def _compare(self) -> list[Frame] | None:
        if any(f.kind == "compare" for f in self.told):
            return None
        hero, partner = NP(self.cast.protagonist), NP(self.cast.partner)
        return [frame("compare", self.sampler.pick(COMPARABLE), theme=hero, standard=partner)]

    def _weather(self) -> list[Frame] | None:
        if any(f.kind == "weather" for f in self.told):
            return None
        city = self.cast.place if self.cast.place.category == "city" else NP(self.cast.life.home)
        return [self._build("weather", self.sampler.of("weather", beside=city.head), place=city, time=self._time())]

    def _sequence(self) -> list[Frame] | None:
        """Two events told in one sentence: one of the protagonist, one of the partner, in either order."""
        makers = (self._action, self._event, self._give)
        drawn = [self.rng.choice(makers)() for _ in range(2)]
        if not (drawn[0] and drawn[1]):
            return None
        parts = []
        for (f,) in drawn:
            for slot in ("time", "manner", "companion"):
                f = f.with_slot(slot, None)
            parts.append(replace(f, negated=False))
        if parts[0]["agent"] == parts[1]["agent"] or parts[0].core() == parts[1].core():
            return None
        return [Frame("sequence", self.rng.choice(("then", "before_that")), parts=tuple(parts))]
