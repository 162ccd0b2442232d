"""Spanish. Preterite for events; the subject pronoun is dropped; ser / estar; personal "a"; "le gusta"; al and del."""

from __future__ import annotations

import re
from dataclasses import replace

from ..concepts import concept, gender_of
from ..frames import NP, Frame
from ..tokens import Token
from ..world import hypernyms
from .base import Language, flat

_BARE = str.maketrans("áéíóú", "aeiou")
_COMMA = Token(",", "PUNCT", glued=True)
_NO = Token("no", "ADV", "neg")
_LE = Token("le", "PRON", "recipient.clitic")
_WH = {"where": "dónde", "when": "cuándo", "whither": "adónde"}


def _plural(word: str) -> str:
    """The regular plural: -s, -es, z -> ces; the accent of a last syllable in -n or -s is lost, that of joven comes."""
    if re.search("[áéíóú][ns]$", word):
        word = word[:-2] + word[-2:].translate(_BARE)
    elif len(word) > 4 and word.endswith("s"):  # paraguas
        return word
    word = word.replace("joven", "jóven")
    return word + "s" if word[-1] in "aeiouáé" else word.removesuffix("z") + ("ces" if word[-1] == "z" else "es")


def _feminine(word: str) -> str:
    return word[:-1] + "a" if word.endswith("o") else word + "a" if word.endswith("or") else word


def _is(np: NP, top: str) -> bool:
    return top in (np.head, *hypernyms(np.head))


def _contract(tokens: list[Token]) -> list[Token]:
    """Fuse a / de with the article el."""
    found = [Token("", "X")]
    for token in tokens:
        if token.text == "el" and token.upos == "DET" and found[-1].text in ("a", "de"):
            found[-1] = replace(found[-1], text=found[-1].text + "l")
        else:
            found.append(token)
    return found[1:]


class Realiser(Language):
    code = "es"
    question_open = "¿"

    def _clause(self, frame: Frame) -> list[Token]:
        return _contract(super()._clause(frame))

    def gender(self, np: NP) -> str:  # "m", "f" or "fa" (feminine, but el and un: el agua)
        return gender_of(np.head) if np.category == "person" else self.entry(np.head)["gender"] or "m"

    def plural(self, np: NP) -> bool:
        singular = concept(np.head).mass or self.entry(np.head)["generic"]
        return np.form == "number" or (np.form == "generic" and not singular)

    def np(self, np: NP, slot: str, *, negative: bool = False) -> list[Token]:
        """A noun phrase without preposition; `negative` turns un / una into ningún / ninguna."""
        entry, gender, many = self.entry(np.head), self.gender(np), self.plural(np)
        if np.form == "pronoun":
            return [Token("ella" if gender == "f" else "él", "PRON", slot)]
        if np.form == "name":
            article = Token(entry["article"], "DET", f"{slot}.det") if entry["article"] else None
            tag = "NOUN" if np.category == "language" else "PROPN"
            return flat(article, self.words(entry["lemma"], tag, slot, np.head))
        form = (entry["plural"] or _plural(entry["lemma"])) if many else entry["lemma"]
        noun = self.words(form, "NOUN", slot, np.head)
        noun += self.adjective(np.adjective, gender, f"{slot}.adj", many) if np.adjective else []
        if np.form == "number":
            return self.words(self.lemma(np.number), "NUM", f"{slot}.num", np.number) + noun
        if np.form == "indef":
            article = ("ningún", "ninguna")[gender == "f"] if negative else ("un", "una")[gender == "f"]
        else:
            article = ("los" if gender == "m" else "las") if many else "la" if gender == "f" else "el"
        return [Token(article, "DET", f"{slot}.det"), *noun]

    def drops(self, np: NP) -> bool:
        return np.form == "pronoun" and self._variant % 2 == 0  # in odd variants it stays

    def adjective(self, id_: str, gender: str, key: str, many: bool = False) -> list[Token]:
        form = self.entry(id_)["lemma"] if gender == "m" else _feminine(self.entry(id_)["lemma"])
        return self.words(_plural(form) if many else form, "ADJ", key, id_)

    def after(self, preposition: str, np: NP, slot: str) -> list[Token]:
        return [Token(preposition, "ADP", f"{slot}.prep"), *self.np(np, slot)]

    def preposition(self, frame: Frame) -> str:
        """What stands before the object: the verb's own preposition, or "a" before people and some animals."""
        np, entry = frame["object"], self.entry(frame.predicate or "own")
        if entry["prep"] or frame.kind not in ("action", "want", "like"):
            return entry["prep"]
        beast = _is(np, "animal_class") and entry["animal"] in ("all", np.form)
        return "a" if np.category == "person" or _is(np, "person_class") or beast else ""

    def object(self, frame: Frame) -> list[Token]:
        if frame.ask in ("object", "number"):
            return []
        np, preposition = frame["object"], self.preposition(frame)
        phrase = self.np(np, "object", negative=frame.negated)
        if frame.kind == "own" and frame.negated and np.form == "indef" and not np.adjective:
            return phrase[1:]  # no tiene coche
        return [Token(preposition, "ADP", "object.prep"), *phrase] if preposition else phrase

    def adverbials(self, frame: Frame, *, fronted: bool = False) -> list[Token]:
        """Goal, manner, companion, place and time, less the one that opens the clause (or, `fronted`, only that)."""
        found: list[Token] = []
        for slot in ("manner", "goal", "companion", "place", "time"):
            np = frame.get(slot)
            if np is None or slot == frame.ask or self.is_first(frame, slot) != fronted:
                continue
            if slot in ("manner", "time"):
                found += self.words(self.entry(np.head)["lemma"], "ADV" if slot == "manner" else "NOUN", slot, np.head)
            else:
                goal = self.entry(frame.predicate)["prep"] or "a" if slot == "goal" else ""
                found += self.after(goal or {"companion": "con", "place": "en"}[slot], np, slot)
        return found

    def question_words(self, frame: Frame) -> list[Token]:
        """What is asked, with its preposition; not for subjects."""
        slot, np = frame.ask, frame["object" if frame.ask == "number" else frame.ask]
        if slot == "number":
            much = Token("cuántos" if self.gender(np) == "m" else "cuántas", "DET", "object.num")
            return [much, *(t for t in self.np(np, "object") if t.key != "object.num")]
        which, noun, preposition = self.wh(np, slot), "", "a" if slot == "recipient" else ""
        if slot == "goal" and self.entry(frame.predicate)["prep"] == "hacia":
            preposition, which = "hacia", "where"
        elif slot == "object" and which != "where":
            preposition = self.preposition(frame)
            noun = {"speak": "idioma", "play_music": "instrumento"}.get(frame.predicate, "")
            noun = "animal" if preposition and frame.kind != "like" and np.category == "animal" else noun
        person = which == "who" or np.category == "organisation" or _is(np, "person_class")
        word, tag = _WH.get(which) or ("quién" if person else "qué"), "ADV" if which in _WH else "PRON"
        before = Token(preposition, "ADP", f"{slot}.prep") if preposition else None
        return flat(before, Token(word, "DET" if noun else tag, slot), Token(noun, "NOUN", slot) if noun else None)

    def clause(self, frame: Frame, verb: list[Token], rest: list[Token], subject: str = "agent") -> list[Token]:
        """SUBJECT (no) VERB REST; in questions WH VERB SUBJECT REST, where infinitive and manner stay with the verb."""
        verb = [_NO, *verb] if frame.negated else verb
        if frame.ask == subject:
            return flat(Token("qué" if frame.kind == "locate" else "quién", "PRON", subject), verb, rest)
        who = [] if self.drops(frame[subject]) else self.np(frame[subject], subject)
        if frame.ask:
            near = sum(t.key in ("verb", "manner", "manner.prep") for t in rest)
            return flat(self.question_words(frame), verb, rest[:near], who, rest[near:])
        front = self.adverbials(frame, fronted=True)
        return flat(front, _COMMA if front and who else None, who, verb, rest)

    def verbal(self, frame: Frame, rest: list[Token] | None = None, clitic: Token | None = None) -> list[Token]:
        entry = self.entry(frame.predicate or "own")
        clitic = Token("se", "PRON", "verb.self") if entry["reflexive"] else clitic
        finite = flat(clitic, self.words(entry["present"] or entry["past"], "VERB", "verb", entry.id))
        return self.clause(frame, finite, flat(rest, self.adverbials(frame)))

    def copular(self, frame: Frame, predicate: list[Token], subject: str = "theme", be: str = "es") -> list[Token]:
        return self.clause(frame, [Token(be, "AUX", "copula")], [] if frame.ask == "ground" else predicate, subject)

    def action(self, frame: Frame) -> list[Token]:
        return self.verbal(frame, self.object(frame))

    event = motion = verbal
    own = state = action

    def give(self, frame: Frame) -> list[Token]:
        recipient = [] if frame.ask == "recipient" else self.after("a", frame["recipient"], "recipient")
        return self.verbal(frame, self.object(frame) + recipient, _LE)

    def like(self, frame: Frame) -> list[Token]:
        """A Ana le gustan los gatos; but: Ana odia los gatos."""
        entry = self.entry(frame.predicate)
        if entry["lemma"] not in ("gustar", "encantar"):
            return self.action(frame)
        dropped, who = self.drops(frame["agent"]), self.after("a", frame["agent"], "agent")
        many = "n" if frame.ask != "object" and self.plural(frame["object"]) else ""
        verb = self.words(entry["present"] + many, "VERB", "verb", frame.predicate)
        verb = flat(_NO if frame.negated else None, replace(_LE, key="agent" if dropped else "agent.clitic"), verb)
        if frame.ask == "object":
            return flat(Token("qué", "PRON", "object"), verb, [] if dropped else who)
        who = [who[0], Token("quién", "PRON", "agent")] if frame.ask else [] if dropped else who
        return flat(who, verb, self.np(frame["object"], "object"))

    def want(self, frame: Frame) -> list[Token]:
        infinitive = self.words(self.entry(frame.predicate)["lemma"], "VERB", "verb", frame.predicate)
        return self.clause(frame, [Token("quiere", "VERB", "modal", "want")], infinitive + self.object(frame))

    def locate(self, frame: Frame) -> list[Token]:
        relation = self.words(self.entry(frame.predicate)["lemma"], "ADP", "relation", frame.predicate)
        return self.copular(frame, relation + self.np(frame["ground"], "ground"), be="está")

    def inside(self, frame: Frame) -> list[Token]:
        return self.copular(frame, self.after("en", frame["ground"], "ground"), be="está")

    def property(self, frame: Frame) -> list[Token]:
        adjective = self.adjective(frame.predicate, self.gender(frame["theme"]), "predicate")
        return self.copular(frame, adjective, be=self.entry(frame.predicate)["be"] or "es")

    def compare(self, frame: Frame) -> list[Token]:
        more, than = Token("más", "ADV", "predicate", frame.predicate), Token("que", "SCONJ", "than")
        how = self.adjective(frame.predicate, self.gender(frame["theme"]), "predicate")
        return self.copular(frame, flat(more, how, than, self.np(frame["standard"], "standard")))

    def isa(self, frame: Frame) -> list[Token]:
        person = frame["theme"].category == "person"
        return self.copular(frame, self.job(frame, "theme") if person else self.np(frame["object"], "object"))

    def profession(self, frame: Frame) -> list[Token]:
        return self.copular(frame, self.job(frame, "agent")[1:], "agent")

    def job(self, frame: Frame, subject: str) -> list[Token]:
        """What a person is, with its article: feminine of a woman; masculine where one asks who."""
        entry, female = self.entry(frame["object"].head), frame.ask != subject and self.gender(frame[subject]) == "f"
        noun = (entry["feminine"] or _feminine(entry["lemma"])) if female else entry["lemma"]
        article = "una" if female or entry["gender"] == "f" else "un"
        return [Token(article, "DET", "object.det"), Token(noun, "NOUN", "object", frame["object"].head)]

    def relation(self, frame: Frame) -> list[Token]:
        """La hermana de Leo; but without an article: amiga de Leo."""
        female, kin = self.gender(frame["theme"]) == "f", self.entry(frame.predicate)["lemma"]
        article = Token("la" if female else "el", "DET", "predicate.det")
        if concept(frame.predicate).group == "any":
            article, kin = None, _feminine(kin) if female else kin
        of = Token("de", "ADP", "standard.case"), *self.np(frame["standard"], "standard")
        return self.copular(frame, flat(article, Token(kin, "NOUN", "predicate", frame.predicate), of))

    def count(self, frame: Frame) -> list[Token]:
        hay, rest = Token("hay", "VERB", "verb"), self.adverbials(frame)
        front = self.question_words(frame) if frame.ask else self.adverbials(frame, fronted=True)
        return flat(front, hay, [] if frame.ask else self.np(frame["object"], "object"), rest)

    def weather(self, frame: Frame) -> list[Token]:
        said = self.words(self.entry(frame.predicate)["past"], "VERB", "verb", frame.predicate)
        front, no = self.adverbials(frame, fronted=True), _NO if frame.negated else None
        return flat(front, no, said, self.adverbials(frame))

    def title(self, frame: Frame) -> list[Token]:
        both = Token("y", "CCONJ", "and"), *self.np(frame["object"], "object")
        return flat(self.np(frame["agent"], "agent"), both, self.after("en", frame["place"], "place"))

    def sequence(self, frame: Frame, first: list[Token], second: list[Token]) -> list[Token]:
        if frame.predicate == "then":
            then = Token("y", "CCONJ", "and"), Token("luego", "ADV", "then")
            return [Token("primero", "ADV", "first"), *first, *then, *second]
        before = [Token(w, tag, "before") for w, tag in (("antes", "ADV"), ("de", "ADP"), ("eso", "PRON"))]
        return flat(second, _COMMA, Token("pero", "CCONJ", "but"), before, first)
