"""Russian: clauses. Noun phrases are in ru_phrases.py, the forms of words in ru_morphology.py."""

from __future__ import annotations

from ..frames import EVENT_KINDS, NP, Frame
from ..tokens import Token
from .base import flat
from .ru_morphology import OBLIQUE, adjective, past
from .ru_phrases import Phrases

_WHO = dict(zip(("nom", *OBLIQUE), ["кто", "кого", "кому", "кого", "кем", "ком"], strict=True))
_WHAT = dict(zip(("nom", *OBLIQUE), ["что", "чего", "чему", "что", "чем", "чём"], strict=True))


class Realiser(Phrases):
    code = "ru"

    # --- phrases -----------------------------------------------------------------------------------------------------

    def question(self, frame: Frame, slot: str, case: str = "nom", preposition: str = "") -> list[Token]:
        np = frame[slot]
        which = self.wh(np, slot)
        if which in ("where", "whither", "when"):
            return [Token({"where": "где", "whither": "куда", "when": "когда"}[which], "ADV", slot)]
        word = Token((_WHO if self.animate(np.head) else _WHAT)[case], "PRON", slot)
        return self.prep(preposition, f"{slot}.prep", [word]) if preposition else [word]

    def governed(self, frame: Frame, slot: str = "object") -> list[Token]:
        """The object in the case, and with the preposition, its verb asks for; or the question about it."""
        entry = self.entry(frame.predicate)
        case, preposition = entry["case"] or "acc", entry["prep"]
        if frame.ask == slot:
            return self.question(frame, slot, case, preposition)
        said = self.np(frame[slot], slot, case)
        return self.prep(preposition, f"{slot}.prep", said) if preposition else said

    def adverbial(self, frame: Frame, slot: str) -> list[Token]:
        if slot not in frame or slot == frame.ask:
            return []
        if slot == "companion":
            return self.prep("с", "companion.prep", self.np(frame[slot], slot, "ins"))
        if slot == "place":
            return self.place(frame[slot], slot)
        lemma = self.entry(frame[slot].head)["lemma"]
        return self.words(lemma, "ADV" if slot == "manner" else "NOUN", slot, frame[slot].head)

    # --- clause patterns ---------------------------------------------------------------------------------------------

    def verb(self, frame: Frame, id_: str, key: str = "verb") -> list[Token]:
        """The finite form: the past agrees with the agent in gender, the present is third person."""
        entry = self.entry(id_)
        if frame.kind not in EVENT_KINDS:
            return self.words(entry["third"], "VERB", key, id_)
        gender = "m" if frame.ask == "agent" else self.gender(frame["agent"])
        return self.words(past(entry, gender), "VERB", key, id_)

    def clause(self, frame: Frame, verb: list[Token], complement: list[Token], asked: list[Token]) -> list[Token]:
        """SUBJECT (не) MANNER VERB COMPLEMENT ADVERBIALS; a question starts with the `asked` words."""
        first = next((slot for slot in ("time", "place") if self.is_first(frame, slot)), "")
        rest = flat(*(self.adverbial(frame, slot) for slot in ("companion", "place", "time") if slot != first))
        manner = self.adverbial(frame, "manner")
        core = flat(Token("не", "PART", "neg"), verb, manner) if frame.negated else flat(manner, verb)
        if frame.ask == "agent":
            return flat(self.question(frame, "agent"), core, complement, rest)
        subject = self.np(frame["agent"], "agent")
        if frame.ask and not complement and not rest and frame["agent"].form != "pronoun":
            return flat(asked, core, subject)
        front = flat(asked, self.adverbial(frame, first) if first else None)
        return flat(front, subject, core, complement, rest)

    def transitive(self, frame: Frame, verb: list[Token]) -> list[Token]:
        said = self.governed(frame)
        if frame.ask == "object":
            return self.clause(frame, verb, [], said)
        return self.clause(frame, verb, said, self.question(frame, frame.ask) if frame.ask else [])

    def copular(self, frame: Frame, predicate: list[Token], subject: str, dash: bool = True) -> list[Token]:
        """SUBJECT — PREDICATE; SUBJECT не PREDICATE."""
        if frame.ask:
            return flat(self.question(frame, subject), predicate)
        between = Token("—", "PUNCT") if dash and frame[subject].form != "pronoun" else None
        no = Token("не", "PART", "neg") if frame.negated else None
        return flat(self.np(frame[subject], subject), no or between, predicate)

    # --- one method per kind -----------------------------------------------------------------------------------------

    def action(self, frame: Frame) -> list[Token]:
        return self.transitive(frame, self.verb(frame, frame.predicate))

    def like(self, frame: Frame) -> list[Token]:
        """Анна любит кошек, but Анне нравятся кошки."""
        if frame.predicate != "like":
            return self.action(frame)
        liked, many = self.np(frame["object"], "object"), self.is_plural(frame["object"])
        asked = frame.ask == "object"
        if asked and self.animate(frame["object"].head):
            liked = [Token("какие", "DET", "object"), Token("животные", "NOUN", "object")]
        elif asked:
            liked, many = [Token("что", "PRON", "object")], False
        verb = self.words("нравятся" if many else "нравится", "VERB", "verb", "like")
        if frame.ask == "agent":
            liking = self.question(frame, "agent", "dat")
        else:
            liking = self.np(frame["agent"], "agent", "dat")
        no = Token("не", "PART", "neg") if frame.negated else None
        return flat(liked, verb, liking) if asked else flat(liking, no, verb, liked)

    def event(self, frame: Frame) -> list[Token]:
        asked = self.question(frame, frame.ask) if frame.ask else []
        return self.clause(frame, self.verb(frame, frame.predicate), [], asked)

    def motion(self, frame: Frame) -> list[Token]:
        asked = self.question(frame, frame.ask) if frame.ask else []
        goal = [] if frame.ask == "goal" else self.place(frame["goal"], "goal", "acc")
        return self.clause(frame, self.verb(frame, frame.predicate), goal, asked)

    def give(self, frame: Frame) -> list[Token]:
        cases = {"recipient": "dat", "object": "acc"}
        asked = self.question(frame, frame.ask, cases.get(frame.ask, "nom")) if frame.ask else []
        slots = ("object", "recipient") if self._variant % 2 else ("recipient", "object")
        given = flat(*(self.np(frame[slot], slot, cases[slot]) for slot in slots if slot != frame.ask))
        return self.clause(frame, self.verb(frame, frame.predicate), given, asked)

    def want(self, frame: Frame) -> list[Token]:
        wish = self.verb(frame, "want", "modal")
        done = self.words(self.entry(frame.predicate)["lemma"], "VERB", "verb", frame.predicate)
        return self.transitive(frame, flat(wish, done))

    def own(self, frame: Frame) -> list[Token]:
        """У Анны есть кошка; у Анны нет кошки."""
        have = Token("нет" if frame.negated else "есть", "VERB", "verb", "own")
        if frame.ask == "agent":
            owner = self.question(frame, "agent", "gen", "у")
        else:
            owner = self.prep("у", "agent.prep", self.np(frame["agent"], "agent", "gen"))
        if frame.ask == "object":
            return flat(self.question(frame, "object"), have, owner)
        if frame.ask == "number":
            how_many, *thing = self.how_many(frame)
            return flat(how_many, owner, thing)
        return flat(owner, have, self.np(frame["object"], "object", "gen" if frame.negated else "nom"))

    def how_many(self, frame: Frame) -> list[Token]:
        np = frame["object"]
        counted = self.counted(NP(np.head, "number", np.adjective, "five"), "object", "nom")
        return flat(Token("сколько", "NUM", "object.num"), counted[1:])

    def state(self, frame: Frame) -> list[Token]:
        verb = self.verb(frame, frame.predicate)
        if frame.predicate == "speak":
            which = [Token("каком", "DET", "object"), Token("языке", "NOUN", "object")]
            tongue = self.prep("на", "object.prep", which)
            said = self.words(self.entry(frame["object"].head)["lemma"], "ADV", "object", frame["object"].head)
        else:
            tongue, said = [Token("где", "ADV", "object")], self.place(frame["object"], "object")
        if frame.ask == "object":
            return self.clause(frame, verb, [], tongue)
        return self.clause(frame, verb, said, [])

    def locate(self, frame: Frame) -> list[Token]:
        if frame.ask == "ground":
            return flat(self.question(frame, "ground"), self.np(frame["theme"], "theme"))
        entry = self.entry(frame.predicate)
        ground = self.np(frame["ground"], "ground", entry["case"])
        where = self.prep(entry["lemma"], "relation", ground)
        named = [Token(t.text, t.upos, t.key, frame.predicate) if t.key == "relation" else t for t in where]
        return self.copular(frame, named, "theme", dash=False)

    def inside(self, frame: Frame) -> list[Token]:
        be = Token("находятся" if self.gender(frame["theme"]) == "p" else "находится", "VERB", "copula")
        if frame.ask:
            return flat(self.question(frame, "ground"), be, self.np(frame["theme"], "theme"))
        return self.copular(frame, flat(be, self.place(frame["ground"], "ground")), "theme", dash=False)

    def property(self, frame: Frame) -> list[Token]:
        entry, theme = self.entry(frame.predicate), frame["theme"]
        gender = self.gender(theme)
        short = {"m": entry["short"], "f": entry["short_f"]}.get(gender, "")
        form = short or adjective(entry["lemma"], gender, "nom", False)
        return self.copular(frame, self.words(form, "ADJ", "predicate", frame.predicate), "theme", dash=False)

    def isa(self, frame: Frame) -> list[Token]:
        no = Token("не", "PART", "neg") if frame.negated else None
        this = [Token("—", "PUNCT"), Token("это", "PART", "copula")]
        return flat(self.np(frame["theme"], "theme"), this, no, self.np(frame["object"], "object"))

    def profession(self, frame: Frame) -> list[Token]:
        entry = self.entry(frame["object"].head)
        other = entry["feminine" if self.gender(frame["agent"]) == "f" and not frame.ask else "masculine"]
        if other:
            return self.copular(frame, self.words(other, "NOUN", "object", frame["object"].head), "agent")
        return self.copular(frame, self.np(frame["object"], "object"), "agent")

    def compare(self, frame: Frame) -> list[Token]:
        """Лошадь больше, чем собака; лошадь больше собаки."""
        more = self.words(self.entry(frame.predicate)["comparative"], "ADJ", "predicate", frame.predicate)
        if self._variant % 2:
            return flat(self.np(frame["theme"], "theme"), more, self.np(frame["standard"], "standard", "gen"))
        than = [Token(",", "PUNCT", glued=True), Token("чем", "SCONJ", "than")]
        return flat(self.np(frame["theme"], "theme"), more, than, self.np(frame["standard"], "standard"))

    def relation(self, frame: Frame) -> list[Token]:
        entry = self.entry(frame.predicate)
        kin = (self.gender(frame["theme"]) == "f" and entry["feminine"]) or entry["lemma"]
        said = self.words(kin, "NOUN", "predicate", frame.predicate)
        return self.copular(frame, flat(said, self.np(frame["standard"], "standard", "gen")), "theme")

    def count(self, frame: Frame) -> list[Token]:
        place = self.place(frame["place"], "place")
        if frame.ask:
            return flat(self.how_many(frame), place)
        return flat(place, self.np(frame["object"], "object"))

    def weather(self, frame: Frame) -> list[Token]:
        entry, said = self.entry(frame.predicate), []
        for word in entry["negated" if frame.negated else "past"].split():
            form, _, tag = word.partition("|")
            key = {"PART": "neg", "AUX": "copula"}.get(tag, "verb")
            said.append(Token(form, tag, key, frame.predicate if key == "verb" else ""))
        time, place = self.adverbial(frame, "time"), self.adverbial(frame, "place")
        return flat(time, place, said) if self.is_first(frame, "time") else flat(place, time, said)

    def title(self, frame: Frame) -> list[Token]:
        both, place = Token("и", "CCONJ", "and"), self.place(frame["place"], "place")
        return flat(self.np(frame["agent"], "agent"), both, self.np(frame["object"], "object"), place)

    def sequence(self, frame: Frame, first: list[Token], second: list[Token]) -> list[Token]:
        comma = Token(",", "PUNCT", glued=True)
        if frame.predicate == "then":
            return flat(Token("сначала", "ADV", "first"), first, comma, Token("потом", "ADV", "then"), second)
        before = (Token("но", "CCONJ", "but"), Token("до", "ADP", "before"), Token("этого", "PRON", "before"))
        return flat(second, comma, *before, first)
