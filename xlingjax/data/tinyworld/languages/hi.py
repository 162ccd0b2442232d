"""Hindi. Verb last; ने and object agreement in the perfective; oblique case before postpositions; questions in place."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from ..concepts import concept, gender_of
from ..frames import NP, Frame
from ..tokens import Token
from ..world import hypernyms
from .base import Language

# Endings of nouns: direct singular; oblique singular, direct plural, oblique plural.
_MASCULINE = "या/ए/ए/यों ा/े/े/ों आ/ए/ए/ओं ी/ी/ी/ियों ई/ई/ई/इयों ि/ि/ि/ियों ू/ू/ू/ुओं ो/ो/ो/ो ///ों"
_FEMININE = "या/या/याँ/यों ी/ी/ियाँ/ियों ई/ई/इयाँ/इयों ा/ा/ाएँ/ाओं ू/ू/ुएँ/ुओं //ें/ों"
# Endings of adjectives and participles: masculine singular; feminine, masculine plural, feminine plural of verbs.
_AGREEING = (("िया", "ी", "िए", "ीं"), ("या", "ई", "ए", "ईं"), ("आ", "ई", "ए", "ईं"), ("ा", "ी", "े", "ीं"))
_IRREGULAR = {"करना": "किया", "देना": "दिया", "लेना": "लिया", "जाना": "गया", "पीना": "पिया"}
_NOT = (Token("नहीं", "PART", "neg"),)
_IS = Token("है", "AUX", "aux")
_COMMA = Token(",", "PUNCT", glued=True)


def _decline(word: str, gender: str, fixed: bool) -> list[str]:
    table = "///ओं" if fixed else _FEMININE if gender == "f" else _MASCULINE
    end, *forms = next(row for row in (line.split("/") for line in table.split()) if word.endswith(row[0]))
    return [word.removesuffix(end) + form for form in forms]


def _agree(word: str, gender: str, many: bool, verb: bool = False) -> str:
    """The form of a masculine singular in -ā that agrees; other words do not change."""
    for end, *forms in _AGREEING if gender == "f" or many else ():
        if word.endswith(end):
            return word.removesuffix(end) + forms[1 if gender == "m" else 2 if many and verb else 0]
    return word


def _perfective(infinitive: str, gender: str, many: bool) -> str:
    regular = infinitive.removesuffix("ना") + ("या" if infinitive[-3] in "ाो" else "ा")
    return _agree(_IRREGULAR.get(infinitive, regular), gender, many, True)


class Realiser(Language):
    code = "hi"
    full_stop = "।"

    def gender(self, np: NP) -> str:
        return gender_of(np.head) if np.category == "person" else self.entry(np.head)["gender"] or "m"

    def agent_gender(self, frame: Frame) -> str:
        return "m" if frame.ask == "agent" else self.gender(frame["agent"])

    def plural(self, np: NP) -> bool:
        singular = concept(np.head).mass or self.entry(np.head)["generic"]
        return np.form == "number" or (np.form == "generic" and not singular)

    def case(self, case: str, slot: str) -> list[Token]:
        near = slot not in ("recipient", "goal", "time") and case in ("ने", "को", "का", "की", "के", "के पास")
        return [Token(word, "ADP", f"{slot}.case" if near else f"{slot}.prep") for word in case.split()]

    def fused(self, direct: str, stem: str, slot: str, case: str) -> list[Token]:
        """A pronoun with its postposition: उस + ने -> उसने, उस + को -> उसे, उस + के लिए -> उसके लिए."""
        first, _, rest = case.partition(" ")
        text = direct if not first else stem + "े" if first == "को" else stem + first
        return [Token(text, "PRON", slot), *self.case(rest, slot)]

    def np(self, np: NP, slot: str, case: str = "", negative: bool = False) -> list[Token]:
        """A noun phrase with its postposition; case " " is the oblique without one. `negative`: कोई for एक."""
        entry, gender, many = self.entry(np.head), self.gender(np), self.plural(np)
        if np.form == "pronoun":
            return self.fused("वह", "उस", slot, case)
        if np.form == "name":
            return self.words(entry["lemma"], "PROPN", slot, np.head) + self.case(case, slot)
        before, _, word = entry["lemma"].rpartition(" ")
        oblique, plural, oblique_plural = _decline(word, gender, bool(entry["fixed"]))
        form = (oblique_plural if case else entry["plural"] or plural) if many else oblique if case else word
        found = self.words(f"{before} {form}", "NOUN", slot, np.head) + self.case(case, slot)
        if np.adjective:
            found = self.adjective(np.adjective, gender, f"{slot}.adj", many or bool(case)) + found
        if np.form == "number":
            return self.words(self.lemma(np.number), "NUM", f"{slot}.num", np.number) + found
        if np.form != "indef" or entry["bare"] or slot == "theme":
            return found
        return [Token(("किसी" if case else "कोई") if negative else "एक", "DET", f"{slot}.det"), *found]

    def adjective(self, id_: str, gender: str, key: str, many: bool = False, column: str = "lemma") -> list[Token]:
        said = self.words(self.entry(id_)[column] or self.entry(id_)["lemma"], "ADJ", key, id_)
        return [replace(t, text=_agree(t.text, gender, many)) for t in said]

    def object_case(self, frame: Frame) -> str:
        """The verb's own postposition; को after people and, of those known, animals."""
        np, case = frame["object"], self.entry(frame.predicate or "own")["case"]
        if case or frame.kind not in ("action", "want"):
            return "" if frame.kind == "give" else case
        classes = {np.category, np.head, *hypernyms(np.head)}
        known = np.form == "def" and frame.ask != "object" and "animal_class" in classes
        return "को" if known or classes & {"person", "person_class"} else ""

    def object(self, frame: Frame) -> list[Token]:
        if frame.ask == "number":
            much = "कितनी" if self.gender(frame["object"]) == "f" else "कितने"
            return [Token(much, "DET", "object.num"), *self.np(frame["object"], "object")[1:]]
        return self.phrase(frame, "object", self.object_case(frame))

    def asked(self, frame: Frame, slot: str, case: str = "") -> list[Token]:
        which = self.wh(frame[slot], slot)
        if which == "when":
            return [Token("कब", "ADV", slot)]
        if which in ("where", "whither"):
            return [Token("कहाँ", "ADV", slot), *self.case(case if case in ("तक", "की", "के लिए") else "", slot)]
        if frame.predicate == "speak" and slot == "object":
            return self.words("कौन|PRON सी|ADV भाषा", "NOUN", slot)
        return self.fused("कौन" if which == "who" else "क्या", "किस", slot, case)

    def phrase(self, frame: Frame, slot: str, case: str = "") -> list[Token]:
        return self.asked(frame, slot, case) if frame.ask == slot else self.np(frame[slot], slot, case, frame.negated)

    def adverbials(self, frame: Frame, fronted: tuple[bool, ...] = (True, False)) -> list[Token]:
        """Time, place, companion and manner; `fronted`: the one that opens the clause, the others."""
        found: list[Token] = []
        for front, slot in product(fronted, ("time", "place", "companion", "manner")):
            np = frame.get(slot)
            if np is None or slot == frame.ask or self.is_first(frame, slot) != front:
                continue
            entry, tag = self.entry(np.head), "ADV" if slot == "manner" else "NOUN"
            if slot in ("place", "companion"):
                found += self.np(np, slot, "के साथ" if slot == "companion" else entry["at"] or "में")
            else:
                found += self.words(entry["lemma"], tag, slot, np.head) + self.case(entry["case"], slot)
        return found

    def clause(self, frame: Frame, case: str, rest: list[Token], verb: list[Token], noun: list[Token]) -> list[Token]:
        """AGENT ADVERBIALS REST NOUN (not) VERB; who, when, where are asked before NOUN, or after it if REST is its."""
        who, asked = self.phrase(frame, "agent", case), []
        if frame.ask in ("agent", "time", "place"):
            who, asked = ([], who) if frame.ask == "agent" else (who, self.asked(frame, frame.ask))
        noun = noun + asked if rest and rest[-1].text in ("का", "की", "के") else asked + noun
        verb = [*verb[:-1], *_NOT[: frame.negated], verb[-1]]
        return self.adverbials(frame, (True,)) + who + self.adverbials(frame, (False,)) + rest + noun + verb

    def verb_words(self, frame: Frame) -> tuple[list[Token], str]:
        """What precedes the infinitive in a lemma (मदद करना), and the infinitive."""
        entry, np = self.entry(frame.predicate), frame.get("object")
        before, _, infinitive = entry["lemma"].rpartition(" ")
        animal = np is not None and "animal_class" in hypernyms(np.head) and entry["animal"]
        return self.words(before, "NOUN", "verb", entry.id), animal or infinitive

    def past(self, frame: Frame, rest: list[Token] | None = None) -> list[Token]:
        """A clause in the perfective. The verb agrees with the agent; with ने, with the object unless it has a case."""
        entry, (noun, infinitive) = self.entry(frame.predicate), self.verb_words(frame)
        gender, many = entry["gender"] or "m" if entry["erg"] else self.agent_gender(frame), False
        if entry["erg"] and "object" in frame and frame.ask != "object" and not self.object_case(frame):
            gender, many = self.gender(frame["object"]), self.plural(frame["object"])
        verb = [Token(_perfective(infinitive, gender, many), "VERB", "verb", entry.id)]
        if entry["vector"] and not frame.negated:
            stem = replace(verb[0], text=infinitive.removesuffix("ना"))
            verb = [stem, Token(_perfective(entry["vector"], gender, many), "AUX", "aux")]
        rest = self.object(frame) if frame.kind == "action" else rest or []
        rest, noun = (noun + rest, []) if entry["before"] else (rest, noun)
        return self.clause(frame, "ने" if entry["erg"] else "", rest, verb, noun)

    def present(self, frame: Frame) -> list[Token]:
        """A clause in the habitual present, stem + ता है (है goes when negated); to want: infinitive + चाहता है."""
        noun, infinitive = self.verb_words(frame)
        verb, key, said = frame.predicate, "verb", []
        if frame.kind == "want":
            said = [Token(infinitive, "VERB", key, verb)]
            verb, key, infinitive = "want", "modal", self.lemma("want")
        ending = "ती" if self.agent_gender(frame) == "f" else "ता"
        said.append(Token(infinitive.removesuffix("ना") + ending, "VERB", key, verb))
        return self.clause(frame, "", self.object(frame), said if frame.negated else [*said, _IS], noun)

    def motion(self, frame: Frame) -> list[Token]:
        case = self.entry(frame.predicate)["case"] or self.entry(frame["goal"].head)["goal"] or " "
        return self.past(frame, self.phrase(frame, "goal", case))

    def give(self, frame: Frame) -> list[Token]:
        to = self.phrase(frame, "recipient", self.entry(frame.predicate)["case"] or "को")
        return self.past(frame, to + self.object(frame))

    def own(self, frame: Frame) -> list[Token]:
        return self.clause(frame, "के पास", self.object(frame), [self.are(frame, "verb", "own")], [])

    def are(self, frame: Frame, key: str, id_: str = "") -> Token:
        many = frame.ask != "object" and self.plural(frame["object"])
        return Token("हैं" if many else "है", "VERB" if key == "verb" else "AUX", key, id_)

    def like(self, frame: Frame) -> list[Token]:
        noun, infinitive = self.verb_words(frame)
        if infinitive != "होना":
            return self.present(frame)
        is_ = _IS if self.object_case(frame) else self.are(frame, "aux")
        return self.clause(frame, "को", self.object(frame), [is_], noun)

    def copular(self, frame: Frame, predicate: list[Token], subject: str = "theme") -> list[Token]:
        """SUBJECT PREDICATE है; who and what are asked just before है."""
        who, be = self.phrase(frame, subject), replace(_IS, key="copula")
        return [*(predicate + who if frame.ask == subject else who + predicate), *_NOT[: frame.negated], be]

    def locate(self, frame: Frame) -> list[Token]:
        if frame.ask == "ground" or not frame.predicate:
            return self.copular(frame, self.phrase(frame, "ground", "में"))
        relation = self.words(self.entry(frame.predicate)["lemma"], "ADP", "relation", frame.predicate)
        return self.copular(frame, self.np(frame["ground"], "ground", " ") + relation)

    def property(self, frame: Frame) -> list[Token]:
        """The adjective said of the theme; to compare, after STANDARD से, and with ज़्यादा unless it ends in -ā."""
        column = "human" if frame["theme"].category in ("person", "role") else "lemma"
        said = self.adjective(frame.predicate, self.gender(frame["theme"]), "predicate", column=column)
        if frame.kind == "compare":
            if not self.entry(frame.predicate)["lemma"].endswith("ा"):
                said.insert(0, Token("ज़्यादा", "ADV", "predicate", frame.predicate))
            said = [*self.np(frame["standard"], "standard", " "), Token("से", "ADP", "than"), *said]
        return self.copular(frame, said)

    def isa(self, frame: Frame) -> list[Token]:
        return self.copular(frame, self.np(NP(frame["object"].head, "def" if frame.negated else "indef"), "object"))

    def noun_for(self, id_: str, gender: str, key: str) -> list[Token]:
        entry = self.entry(id_)
        return self.words((gender == "f" and entry["feminine"]) or entry["lemma"], "NOUN", key, id_)

    def profession(self, frame: Frame) -> list[Token]:
        return self.copular(frame, self.noun_for(frame["object"].head, self.agent_gender(frame), "object"), "agent")

    def relation(self, frame: Frame) -> list[Token]:
        gender = self.gender(frame["theme"])
        of = self.np(frame["standard"], "standard", "की" if gender == "f" else "का")
        return self.copular(frame, of + self.noun_for(frame.predicate, gender, "predicate"))

    def count(self, frame: Frame) -> list[Token]:
        return [*self.adverbials(frame), *self.object(frame), self.are(frame, "verb")]

    def weather(self, frame: Frame) -> list[Token]:
        said = self.words(self.entry(frame.predicate)["past"], "NOUN", "verb", frame.predicate)
        said[-1] = replace(said[-1], key="copula", concept="") if said[-1].upos == "AUX" else said[-1]
        return [*self.adverbials(frame), *said[:-1], *_NOT[: frame.negated], said[-1]]

    def title(self, frame: Frame) -> list[Token]:
        both = Token("और", "CCONJ", "and"), *self.np(frame["object"], "object")
        return [*self.adverbials(frame), *self.np(frame["agent"], "agent"), *both]

    def sequence(self, frame: Frame, first: list[Token], second: list[Token]) -> list[Token]:
        if frame.predicate == "then":
            return [Token("पहले", "ADV", "first"), *first, _COMMA, Token("फिर", "ADV", "then"), *second]
        but = Token("लेकिन", "CCONJ", "but"), Token("उससे", "PRON", "before"), Token("पहले", "ADV", "before")
        return [*second, _COMMA, *but, *first]

    action, event, want, state, inside, compare = past, past, present, present, locate, property
