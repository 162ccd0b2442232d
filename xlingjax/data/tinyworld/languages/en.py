"""English. The worked example: read it beside lexicons/en.tsv when writing another language."""

from __future__ import annotations

from ..concepts import concept, gender_of
from ..frames import NP, Frame
from ..tokens import Token
from .base import Language, flat

_WH = {"who": "who", "what": "what", "where": "where", "whither": "where", "when": "when"}


def _plural(noun: str) -> str:
    if noun.endswith(("s", "sh", "ch", "x")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeou":
        return noun[:-1] + "ies"
    return noun + "s"


class Realiser(Language):
    code = "en"

    # --- phrases -----------------------------------------------------------------------------------------------------

    def np(self, np: NP, slot: str) -> list[Token]:
        """A noun phrase without preposition."""
        if np.form == "pronoun":
            return [Token("she" if gender_of(np.head) == "f" else "he", "PRON", slot)]
        entry = self.entry(np.head)
        if np.form == "name":
            return self.words(entry["lemma"], "PROPN", slot, np.head)
        mass = concept(np.head).mass
        many = np.form == "number" or (np.form == "generic" and not mass)
        noun = (entry["plural"] or _plural(entry["lemma"])) if many else entry["lemma"]
        after = flat(
            self.words(self.entry(np.adjective)["lemma"], "ADJ", f"{slot}.adj", np.adjective) if np.adjective else None,
            self.words(noun, "NOUN", slot, np.head),
        )
        if np.form == "number":
            return flat(self.words(self.lemma(np.number), "NUM", f"{slot}.num", np.number), after)
        if np.form == "def":
            return flat(Token("the", "DET", f"{slot}.det"), after)
        if np.form == "indef" and not entry["bare"]:
            article = "an" if after[0].text[0] in "aeiou" and after[0].text != "university" else "a"
            return flat(Token(article, "DET", f"{slot}.det"), after)
        return after

    def at(self, np: NP, slot: str, preposition: str = "") -> list[Token]:
        """A place with its preposition: in Paris, at the station."""
        preposition = preposition or self.entry(np.head)["prep"] or "in"
        return flat(Token(preposition, "ADP", f"{slot}.prep"), self.np(np, slot))

    def adverbials(self, frame: Frame, *, fronted: bool = False) -> list[Token]:
        """Manner, companion, place and time, less the one that opens the clause (or, `fronted`, only that one)."""
        found: list[Token] = []
        for slot in ("manner", "companion", "place", "time"):
            np = frame.get(slot)
            if np is None or slot == frame.ask or self.is_first(frame, slot) != fronted:
                continue
            if slot == "manner":
                found += self.words(self.entry(np.head)["lemma"], "ADV", slot, np.head)
            elif slot == "companion":
                found += flat(Token("with", "ADP", "companion.prep"), self.np(np, slot))
            elif slot == "place":
                found += self.at(np, slot)
            else:
                found += self.words(self.entry(np.head)["lemma"], "NOUN", slot, np.head)
        return flat(found, Token(",", "PUNCT", glued=True)) if fronted and found else found

    # --- clause patterns ---------------------------------------------------------------------------------------------

    def verbal(self, frame: Frame, verb: str, complements: list[Token], subject: str = "agent") -> list[Token]:
        """SUBJECT VERB COMPLEMENTS ADVERBIALS with do-support. `verb` is a lexicon id; its form follows the kind's
        tense."""
        past = frame.kind in ("action", "event", "motion", "give")
        entry = self.entry(verb)
        finite = entry["past" if past else "third"]
        do = Token("did" if past else "does", "AUX", "aux")
        negation = [do, Token("not", "PART", "neg")]
        rest = flat(complements, self.adverbials(frame))
        if frame.ask == subject:
            return flat(self.question_word(frame, subject), self.words(finite, "VERB", "verb", verb), rest)
        agent = self.np(frame[subject], subject)
        base = self.words(entry["lemma"], "VERB", "verb", verb)
        if frame.ask:
            return flat(self.question_word(frame, frame.ask), do, agent, base, rest)
        front = self.adverbials(frame, fronted=True)
        if frame.negated:
            return flat(front, agent, negation, base, rest)
        return flat(front, agent, self.words(finite, "VERB", "verb", verb), rest)

    def question_word(self, frame: Frame, slot: str) -> list[Token]:
        which = self.wh(frame["object" if slot == "number" else slot], slot)
        if which == "how_many":
            counted = [t for t in self.np(frame["object"], "object") if not t.key.endswith(".num")]
            return flat(Token("how", "ADV", "object.num"), Token("many", "ADJ", "object.num"), counted)
        return [Token(_WH[which], "ADV" if which in ("where", "whither", "when") else "PRON", slot)]

    def copular(self, frame: Frame, predicate: list[Token], subject: str = "theme") -> list[Token]:
        """SUBJECT is (not) PREDICATE, or: who / what is PREDICATE?"""
        be = Token("is", "AUX", "copula")
        start = self.question_word(frame, subject) if frame.ask == subject else self.np(frame[subject], subject)
        return flat(start, be, Token("not", "PART", "neg") if frame.negated else None, predicate)

    def object(self, frame: Frame, slot: str = "object") -> list[Token]:
        return [] if frame.ask in (slot, "number") else self.np(frame[slot], slot)

    # --- one method per kind -----------------------------------------------------------------------------------------

    def action(self, frame: Frame) -> list[Token]:
        return self.verbal(frame, frame.predicate, self.object(frame))

    def event(self, frame: Frame) -> list[Token]:
        return self.verbal(frame, frame.predicate, [])

    def motion(self, frame: Frame) -> list[Token]:
        return self.verbal(frame, frame.predicate, [] if frame.ask == "goal" else self.at(frame["goal"], "goal", "to"))

    def give(self, frame: Frame) -> list[Token]:
        to = Token("to", "ADP", "recipient.prep")
        if frame.ask == "recipient":
            return self.verbal(frame, frame.predicate, flat(self.object(frame), to))
        recipient = self.np(frame["recipient"], "recipient")
        if self._variant % 2 and frame.ask != "object":
            return self.verbal(frame, frame.predicate, flat(self.object(frame), to, recipient))
        return self.verbal(frame, frame.predicate, flat(recipient, self.object(frame)))

    def own(self, frame: Frame) -> list[Token]:
        return self.verbal(frame, "own", self.object(frame))

    def like(self, frame: Frame) -> list[Token]:
        return self.verbal(frame, frame.predicate, self.object(frame))

    def want(self, frame: Frame) -> list[Token]:
        to = Token("to", "PART", "to")
        base = self.words(self.entry(frame.predicate)["lemma"], "VERB", "verb", frame.predicate)
        modal = {"want": "modal"}
        tokens = self.verbal(frame, "want", flat(to, base, self.object(frame)))
        # "verb" is the wanted action in every language; "modal" is the wanting itself.
        return [Token(t.text, t.upos, modal[t.concept], "want") if t.concept in modal else t for t in tokens]

    def state(self, frame: Frame) -> list[Token]:
        preposition = {"live": "in", "work_for": "for"}.get(frame.predicate)
        if frame.ask == "object":
            return self.verbal(frame, frame.predicate, [])
        before = Token(preposition, "ADP", "object.prep") if preposition else None
        return self.verbal(frame, frame.predicate, flat(before, self.np(frame["object"], "object")))

    def locate(self, frame: Frame) -> list[Token]:
        if frame.ask == "ground":
            return flat(
                self.question_word(frame, "ground"), Token("is", "AUX", "copula"), self.np(frame["theme"], "theme")
            )
        relation = self.words(self.entry(frame.predicate)["lemma"], "ADP", "relation", frame.predicate)
        return self.copular(frame, flat(relation, self.np(frame["ground"], "ground")))

    def inside(self, frame: Frame) -> list[Token]:
        if frame.ask == "ground":
            return flat(
                self.question_word(frame, "ground"), Token("is", "AUX", "copula"), self.np(frame["theme"], "theme")
            )
        return self.copular(frame, self.at(frame["ground"], "ground", "in"))

    def property(self, frame: Frame) -> list[Token]:
        return self.copular(
            frame, self.words(self.entry(frame.predicate)["lemma"], "ADJ", "predicate", frame.predicate)
        )

    def isa(self, frame: Frame) -> list[Token]:
        return self.copular(frame, self.np(frame["object"], "object"))

    def profession(self, frame: Frame) -> list[Token]:
        return self.copular(frame, self.np(NP(frame["object"].head, "indef"), "object"), "agent")

    def compare(self, frame: Frame) -> list[Token]:
        better = self.words(self.entry(frame.predicate)["comparative"], "ADJ", "predicate", frame.predicate)
        return self.copular(frame, flat(better, Token("than", "ADP", "than"), self.np(frame["standard"], "standard")))

    def relation(self, frame: Frame) -> list[Token]:
        kin = self.words(self.entry(frame.predicate)["lemma"], "NOUN", "predicate", frame.predicate)
        standard = self.np(frame["standard"], "standard")
        if self._variant % 2:
            the, of = Token("the", "DET", "predicate.det"), Token("of", "ADP", "standard.case")
            return self.copular(frame, flat(the, kin, of, standard))
        return self.copular(frame, flat(standard, Token("'s", "PART", "standard.case", glued=True), kin))

    def count(self, frame: Frame) -> list[Token]:
        there, are = Token("there", "PRON", "there"), Token("are", "VERB", "verb")
        place = self.at(frame["place"], "place")
        if frame.ask:
            return flat(self.question_word(frame, "number"), are, there, place)
        if self.is_first(frame, "place"):
            return flat(place, there, are, self.np(frame["object"], "object"))
        return flat(there, are, self.np(frame["object"], "object"), place)

    def weather(self, frame: Frame) -> list[Token]:
        entry = self.entry(frame.predicate)
        said = []
        for word in entry["negated" if frame.negated else "past"].split():
            form, _, tag = word.partition("|")
            key = {"not": "neg", "did": "aux", "was": "copula"}.get(form, "verb")
            said.append(Token(form, tag, key, frame.predicate if key == "verb" else ""))
        it = Token("it", "PRON", "it")
        return flat(self.adverbials(frame, fronted=True), it, said, self.adverbials(frame))

    def title(self, frame: Frame) -> list[Token]:
        both = Token("and", "CCONJ", "and")
        return flat(
            self.np(frame["agent"], "agent"), both, self.np(frame["object"], "object"), self.at(frame["place"], "place")
        )

    def sequence(self, frame: Frame, first: list[Token], second: list[Token]) -> list[Token]:
        comma = Token(",", "PUNCT", glued=True)
        if frame.predicate == "then":
            return flat(Token("first", "ADV", "first"), first, comma, Token("then", "ADV", "then"), second)
        before = (Token("but", "CCONJ", "but"), Token("before", "ADP", "before"), Token("that", "PRON", "before"))
        return flat(second, comma, *before, first)
