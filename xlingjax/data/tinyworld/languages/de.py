"""German. `clause` puts one phrase before the finite verb (verb second); `middle` orders the rest and "nicht"."""

from __future__ import annotations

from dataclasses import replace

from ..concepts import concept, gender_of
from ..frames import NP, Frame
from ..tokens import Token, prefixed
from .base import Entry, Language, flat

_THE = {"nom": {"m": "der", "f": "die", "n": "das"}, "acc": {"m": "den", "f": "die", "n": "das"},
        "dat": {"m": "dem", "f": "der", "n": "dem"}}  # fmt: skip
# Endings of ein, kein and of adjectives without article ("p": plural); "ein" leaves those of _BARE to the adjective.
_STRONG = {"nom": {"m": "er", "f": "e", "n": "es", "p": "e"}, "acc": {"m": "en", "f": "e", "n": "es", "p": "e"},
           "dat": {"m": "em", "f": "er", "n": "em", "p": "en"}}  # fmt: skip
_BARE = {("nom", "m"), ("nom", "n"), ("acc", "n")}
_FUSED = {"in dem": "im", "an dem": "am", "zu dem": "zum", "zu der": "zur", "in das": "ins", "an das": "ans"}
_WH = {"where": "wo", "whither": "wohin", "when": "wann", "what": "was"}
_COMMA = Token(",", "PUNCT", glued=True)
_WHO = {"nom": "wer", "acc": "wen", "dat": "wem"}
_ASKED = {"speak": "welche|DET Sprache", "play_music": "auf|ADP welchem|DET Instrument", "work_for": "für|ADP wen|PRON"}


def _plural(entry: Entry) -> str:
    noun = entry["lemma"]
    if noun.endswith("e") or (entry["gender"] == "f" and noun.endswith(("el", "er"))):
        return entry["plural"] or noun + "n"
    return entry["plural"] or (noun if noun.endswith(("el", "er", "en")) else noun + "e")


def _ein(word: str, case: str, gender: str) -> str:
    return word if (case, gender) in _BARE else word + _STRONG[case][gender]


class Realiser(Language):
    code = "de"
    _verb_first = False  # the clause stands after "dann": its first place is taken

    def np(self, np: NP, slot: str, case: str = "nom", *, negative: bool = False) -> list[Token]:
        """A noun phrase without preposition; `negative` turns "ein" and the generic form into "kein"."""
        if np.form == "pronoun":
            return [Token("sie" if gender_of(np.head) == "f" else "er", "PRON", slot)]
        entry, language = self.entry(np.head), np.category == "language"
        if np.form == "name":
            article = Token(_THE[case][entry["gender"]], "DET", f"{slot}.det") if entry["gender"] else None
            no = Token("kein", "DET", "neg") if negative and language else None
            return flat(no, article, self.words(entry["lemma"], "NOUN" if language else "PROPN", slot, np.head))
        gender = entry["gender"] or "m"
        noun = entry["weak"] if entry["weak"] and case != "nom" else entry["lemma"]
        if np.form == "generic" and entry["generic"]:
            noun = entry["generic"]
        elif np.form == "number" or (np.form == "generic" and not concept(np.head).mass):
            gender, noun = "p", _plural(entry)
            noun += "n" if case == "dat" and not noun.endswith(("n", "s")) else ""
        after_article = "e" if gender != "p" and (case == "nom" or (case == "acc" and gender != "m")) else "en"
        ending, determiner = _STRONG[case][gender], None
        if np.form == "number":
            determiner = self.words(self.lemma(np.number), "NUM", f"{slot}.num", np.number)
        elif np.form == "def":
            ending, determiner = after_article, [Token(_THE[case][gender], "DET", f"{slot}.det")]
        elif negative or np.form == "indef":
            word, key = ("kein", "neg") if negative else ("ein", f"{slot}.det")
            ending = ending if (case, gender) in _BARE else after_article
            determiner = [Token(_ein(word, case, gender), "DET", key)]
        return flat(determiner, self.adjective(np, slot, ending), Token(noun, "NOUN", slot, np.head))

    def adjective(self, np: NP, slot: str, ending: str) -> list[Token]:
        if not np.adjective:
            return []
        entry = self.entry(np.adjective)
        form = entry["lemma"] if entry["stem"] == "invariable" else (entry["stem"] or entry["lemma"]) + ending
        return [Token(form, "ADJ", f"{slot}.adj", np.adjective)]

    def prepositional(self, preposition: Token, phrase: list[Token]) -> list[Token]:
        """The preposition and the phrase, fused with its article where German does (im, zur, ins)."""
        fused = _FUSED.get(f"{preposition.text} {phrase[0].text}")
        return [replace(preposition, text=fused), *phrase[1:]] if fused else [preposition, *phrase]

    def at(self, np: NP, slot: str) -> list[Token]:
        preposition = Token(self.entry(np.head)["at"] or "in", "ADP", f"{slot}.prep")
        return self.prepositional(preposition, self.np(np, slot, "dat"))

    def to(self, np: NP, slot: str) -> list[Token]:
        entry = self.entry(np.head)
        preposition = "nach" if np.form == "name" and not entry["gender"] else entry["goal"] or "in"
        phrase = self.np(np, slot, "dat" if preposition == "zu" else "acc")
        return self.prepositional(Token(preposition, "ADP", f"{slot}.prep"), phrase)

    def adverbials(self, frame: Frame, slots: tuple[str, ...], *, fronted: bool = False) -> list[Token]:
        """Those of the slots that the frame has, less the one that opens the clause (or, `fronted`, only that one)."""
        found: list[Token] = []
        for slot in slots:
            np = frame.get(slot)
            if np is None or slot == frame.ask or self.is_first(frame, slot) != fronted:
                continue
            if slot == "companion":
                found += flat(Token("mit", "ADP", "companion.prep"), self.np(np, slot, "dat"))
            elif slot in ("place", "goal"):
                found += self.at(np, slot) if slot == "place" else self.to(np, slot)
            else:
                found += self.words(self.entry(np.head)["lemma"], "ADV" if slot == "manner" else "NOUN", slot, np.head)
        return found

    def clause(self, frame: Frame, finite: Token | list[Token], rest: list[Token], subject: str | Token = "agent"):
        """SUBJECT FINITE REST, or another phrase FINITE SUBJECT REST. `subject` is a slot or the word itself ("es")."""
        start = self.question_word(frame) if frame.ask else self.adverbials(frame, ("time", "place"), fronted=True)
        if frame.ask and frame.ask == subject:
            return flat(start, finite, rest)
        who = [subject] if isinstance(subject, Token) else self.np(frame[subject], subject)
        return flat(start, finite, who, rest) if start or self._verb_first else flat(who, finite, rest)

    def question_word(self, frame: Frame) -> list[Token]:
        slot = frame.ask
        if slot == "number":
            counted = [t for t in self.np(frame["object"], "object", "acc") if not t.key.endswith(".num")]
            return flat(Token("wie", "ADV", "object.num"), Token("viele", "ADJ", "object.num"), counted)
        if slot == "object" and frame.predicate in _ASKED:
            return self.words(_ASKED[frame.predicate], "NOUN", slot)
        which, of_object = self.wh(frame[slot], slot), self.entry(frame.predicate or "own")["case"] or "acc"
        if which == "who" or slot == "agent":
            return [Token(_WHO[{"recipient": "dat", "object": of_object}.get(slot, "nom")], "PRON", slot)]
        return [Token(_WH[which], "PRON" if which == "what" else "ADV", slot)]

    def middle(self, frame: Frame, early: list[Token], late: list[Token], *, late_not: bool = False) -> list[Token]:
        """What stands between the verb's two parts: definite phrases, time, "nicht", manner, companion, place, goal,
        then the phrases nearest to the verb. `late_not`: "nicht" stands just before those. A "kein" replaces it."""
        is_not = frame.negated and not any(t.key == "neg" for t in early + late)
        nicht = [Token("nicht", "PART", "neg")] if is_not else []
        time, other = (self.adverbials(frame, s) for s in (("time",), ("manner", "companion", "place", "goal")))
        return flat(early, time, other, nicht, late) if late_not else flat(early, time, nicht, other, late)

    def with_object(self, frame: Frame) -> list[Token]:
        """The middle of a clause with an object: a definite one early, an indefinite or prepositional one late."""
        if frame.ask in ("object", "number"):
            return self.middle(frame, [], [])
        entry, np = self.entry(frame.predicate or "own"), frame["object"]
        if entry["prep"]:
            phrase = flat(Token(entry["prep"], "ADP", "object.prep"), self.np(np, "object", "dat"))
            return self.middle(frame, [], phrase, late_not=True)
        phrase = self.np(np, "object", entry["case"] or "acc", negative=frame.negated)
        return self.middle(frame, phrase, []) if np.form in ("def", "name") else self.middle(frame, [], phrase)

    def verbal(self, frame: Frame, rest: list[Token]) -> list[Token]:
        """A clause with a full verb and its separable particle at the end."""
        verb = frame.predicate or "own"
        entry = self.entry(verb)
        particle = [Token(word, upos, "verb", verb) for word, _, upos in [entry["particle"].partition("|")] if word]
        oneself = [Token("sich", "PRON", "verb.self")] if entry["reflexive"] else []
        finite = [Token(entry["past"] or entry["present"], "VERB", "verb", verb)]
        if frame["agent"].form == "pronoun":  # ruhte er sich aus; but ruhte sich Anna aus
            return self.clause(frame, finite, flat(oneself, rest, particle))
        return self.clause(frame, finite + oneself, flat(rest, particle))

    def copular(self, frame: Frame, predicate: list[Token], subject: str = "theme", verb: str = "ist") -> list[Token]:
        finite = Token(verb, "AUX" if verb == "ist" else "VERB", "copula")
        return self.clause(frame, finite, self.middle(frame, [], predicate), subject)

    def action(self, frame: Frame) -> list[Token]:
        return self.verbal(frame, self.with_object(frame))

    def event(self, frame: Frame) -> list[Token]:
        return self.verbal(frame, self.middle(frame, [], []))

    motion, own, like = event, action, action

    def give(self, frame: Frame) -> list[Token]:
        recipient = [] if frame.ask == "recipient" else self.np(frame["recipient"], "recipient", "dat")
        given = [] if frame.ask == "object" else self.np(frame["object"], "object", "acc", negative=frame.negated)
        early = frame.negated and frame["object"].form in ("def", "name")
        return self.verbal(frame, self.middle(frame, recipient + given if early else recipient, [] if early else given))

    def want(self, frame: Frame) -> list[Token]:
        infinitive = Token(self.entry(frame.predicate)["lemma"], "VERB", "verb", frame.predicate)
        return self.clause(frame, Token("will", "AUX", "modal", "want"), [*self.with_object(frame), infinitive])

    def state(self, frame: Frame) -> list[Token]:
        phrase, preposition = [], self.entry(frame.predicate)["prep"]
        if frame.ask != "object" and frame.predicate == "live":
            phrase = self.at(frame["object"], "object")
        elif frame.ask != "object":
            before = Token(preposition, "ADP", "object.prep") if preposition else None
            phrase = flat(before, self.np(frame["object"], "object", "acc", negative=frame.negated))
        return self.verbal(frame, self.middle(frame, [], phrase))

    def locate(self, frame: Frame) -> list[Token]:
        relation = Token(self.entry(frame.predicate)["lemma"], "ADP", "relation", frame.predicate)
        phrase = self.prepositional(relation, self.np(frame["ground"], "ground", "dat"))
        return self.copular(frame, [] if frame.ask == "ground" else phrase)

    def inside(self, frame: Frame) -> list[Token]:
        return self.copular(frame, [] if frame.ask == "ground" else self.at(frame["ground"], "ground"), verb="liegt")

    def property(self, frame: Frame) -> list[Token]:
        return self.copular(frame, self.predicate(frame, self.entry(frame.predicate)["lemma"]))

    def compare(self, frame: Frame) -> list[Token]:
        entry = self.entry(frame.predicate)
        more = self.predicate(frame, entry["comparative"] or entry["lemma"] + "er")
        return self.copular(frame, flat(more, Token("als", "CCONJ", "than"), self.np(frame["standard"], "standard")))

    def predicate(self, frame: Frame, text: str, upos: str = "ADJ") -> list[Token]:
        return self.words(text, upos, "predicate", frame.predicate)

    def isa(self, frame: Frame) -> list[Token]:
        if frame["theme"].category == "person":
            return self.profession(frame, "theme")
        return self.copular(frame, self.np(frame["object"], "object", negative=frame.negated))

    def profession(self, frame: Frame, subject: str = "agent") -> list[Token]:
        """What a person is: feminine of a woman; no article but for "ein Mensch"; negated by "kein"."""
        job, female = frame["object"].head, gender_of(frame[subject].head) == "f"
        entry, human = self.entry(job), job == "person_class"
        noun = (entry["feminine"] or entry["lemma"] + "in") if female else entry["lemma"]
        kein = Token(_ein("kein", "nom", "f" if female and not human else "m"), "DET", "neg")
        article = kein if frame.negated else Token("ein", "DET", "object.det") if human else None
        return self.copular(frame, flat(article, Token(noun, "NOUN", "object", job)), subject)

    def relation(self, frame: Frame) -> list[Token]:
        entry, female = self.entry(frame.predicate), gender_of(frame["theme"].head) == "f"
        kin = self.predicate(frame, (entry["feminine"] if female else "") or entry["lemma"], "NOUN")
        (name,) = self.np(frame["standard"], "standard")
        if self._variant % 2:
            the = Token("die" if female else "der", "DET", "predicate.det")
            return self.copular(frame, flat(the, kin, Token("von", "ADP", "standard.case"), name))
        of_name = name.text + ("'" if name.text.endswith(("s", "x", "z")) else "s")
        return self.copular(frame, flat(replace(name, text=of_name), kin))

    def count(self, frame: Frame) -> list[Token]:
        rest = flat([] if frame.ask else self.np(frame["object"], "object", "acc"), self.adverbials(frame, ("place",)))
        return self.clause(frame, Token("gibt", "VERB", "verb"), rest, Token("es", "PRON", "there"))

    def weather(self, frame: Frame) -> list[Token]:
        entry, it = self.entry(frame.predicate), Token("es", "PRON", "it")
        rest = flat(self.adverbials(frame, ("time", "place")), Token("nicht", "PART", "neg") if frame.negated else None)
        said = Token(entry["past"] or entry["lemma"], "VERB" if entry["past"] else "ADJ", "verb", frame.predicate)
        finite, rest = (said, rest) if entry["past"] else (Token("war", "AUX", "copula"), [*rest, said])
        return self.clause(frame, finite, rest, it)

    def title(self, frame: Frame) -> list[Token]:
        one, other = self.np(frame["agent"], "agent"), self.np(frame["object"], "object")
        return flat(one, Token("und", "CCONJ", "and"), other, self.at(frame["place"], "place"))

    def sequence(self, frame: Frame, first: list[Token], second: list[Token]) -> list[Token]:
        self._front, front, self._verb_first = False, self._front, True
        after = [prefixed(self._clause(part), key) for part, key in zip(frame.parts, ("first", "second"), strict=True)]
        self._front, self._verb_first = front, False
        if frame.predicate == "then":
            return flat(Token("zuerst", "ADV", "first"), after[0], _COMMA, Token("dann", "ADV", "then"), after[1])
        return flat(second, _COMMA, Token("aber", "CCONJ", "but"), Token("vorher", "ADV", "before"), after[0])
