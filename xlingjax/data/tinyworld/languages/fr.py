"""French. Past verbs are compound (passé composé); elision (l', n', qu') and contraction (au, du) are made last."""

from __future__ import annotations

import re
from dataclasses import replace

from ..concepts import concept, gender_of
from ..frames import NP, Frame
from ..tokens import Token
from .base import Language, flat

_ELIDED = ("le", "la", "de", "ne", "se", "que", "jusque")
_CONTRACTED = {"à le": "au", "à les": "aux", "de le": "du", "de les": "des"}
_VOWEL = re.compile("[aàâeéèêiîoôuœ]|y$|habite|hélico|hôpital|hôtel|horloge", re.IGNORECASE)  # what words elide before
_PLURAL = (("al", "aux"), ("au", "aux"), ("s", "s"), ("x", "x"), ("", "s"))
_FEMININE = (("e", "e"), ("er", "ère"), ("ien", "ienne"), ("eux", "euse"), ("if", "ive"), ("", "e"))
_COMMA = Token(",", "PUNCT", glued=True)
_EST_CE = (Token("est", "AUX"), Token("-ce", "PRON", glued=True))
_EST_CE_QUE = (*_EST_CE, Token("que", "SCONJ"))
_WH = {"when": "quand", "where": "où", "whither": "où"}
_ASKED = {"speak": "quelle|DET langue|NOUN", "play_music": "de|ADP quel|DET instrument|NOUN"}
_KEYS = {"il": "it", "y": "it", "le": "it", "temps": "it", "ne": "neg", "pas": "neg", "a": "aux", "faisait": "copula",
         "avait": "copula", "était": "copula", "du": "verb.det", "de": "verb.det"}  # fmt: skip


def _inflect(word: str, endings: tuple[tuple[str, str], ...]) -> str:
    return next(word.removesuffix(old) + new for old, new in endings if word.endswith(old))


def _contract(tokens: list[Token]) -> list[Token]:
    """Elide before a vowel (de + arbre -> d'arbre) and fuse à / de with le / les."""
    found = [Token("", "X")]
    for token, after in zip(tokens, [*tokens[1:], Token(".", "PUNCT")], strict=True):
        if token.text in _ELIDED and _VOWEL.match(after.text):
            token = replace(token, text=token.text[:-1] + "'")
        fused = _CONTRACTED.get(f"{found[-1].text} {token.text.lower()}")
        if fused and token.upos == "DET":
            found[-1] = replace(found[-1], text=fused)
        else:
            found.append(replace(token, glued=token.glued or found[-1].text.endswith("'")))
    return found[1:]


class Realiser(Language):
    code = "fr"
    space_before_question_mark = True

    def _clause(self, frame: Frame) -> list[Token]:
        return _contract(super()._clause(frame))

    def gender(self, np: NP) -> str:
        return gender_of(np.head) if np.category == "person" else self.entry(np.head)["gender"] or "m"

    def np(self, np: NP, slot: str, *, negative: bool = False) -> list[Token]:
        """A noun phrase without preposition; `negative` turns the indefinite article into "de"."""
        entry, gender = self.entry(np.head), self.gender(np)
        if np.form == "pronoun":
            return [Token("elle" if gender == "f" else "il", "PRON", slot)]
        the, a = ("la", "une") if gender == "f" else ("le", "un")
        if np.form == "name":
            article = the if entry["gender"] else entry["article"]
            name = self.words(entry["lemma"], "NOUN" if np.category == "language" else "PROPN", slot, np.head)
            return flat(Token(article, "DET", f"{slot}.det") if article else None, name)
        many = np.form == "number" or (np.form == "generic" and not concept(np.head).mass and not entry["generic"])
        form = (entry["plural"] or _inflect(entry["lemma"], _PLURAL)) if many else entry["lemma"]
        noun = self.words(form, "NOUN", slot, np.head)
        if np.adjective:
            before = bool(self.entry(np.adjective)["before"])
            adjective = self.adjective(np.adjective, gender, f"{slot}.adj", many, before and _VOWEL.match(noun[0].text))
            noun = adjective + noun if before else noun + adjective
        if np.form == "number":
            return flat(self.words(self.lemma(np.number), "NUM", f"{slot}.num", np.number), noun)
        article = ("de" if negative else a) if np.form == "indef" else "les" if many else the
        return [Token(article, "DET", f"{slot}.det"), *noun]

    def adjective(self, id_: str, gender: str, key: str, many: bool = False, vowel: bool = False) -> list[Token]:
        entry = self.entry(id_)
        form = entry["vowel"] or entry["lemma"] if vowel and not many else entry["lemma"]
        if not entry["invariable"]:
            form = entry["feminine"] or _inflect(form, _FEMININE) if gender == "f" else form
            form = _inflect(form, _PLURAL) if many else form
        return self.words(form, "ADJ", key, id_)

    def at(self, np: NP, slot: str, column: str = "at") -> list[Token]:
        """A place with its preposition: à Paris, en France, dans le jardin; column "goal": after aller."""
        entry, place = self.entry(np.head), self.np(np, slot)
        preposition = entry[column] or entry["at"] or ("à" if np.form == "name" else "dans")
        if np.category in ("country", "continent") and entry["gender"] == "f":
            preposition, place = "en", place[1:]
        return [Token(preposition, "ADP", f"{slot}.prep"), *place]

    def to(self, frame: Frame) -> list[Token]:
        """The goal, after the verb's own preposition: aller à, courir jusqu'à, s'envoler vers."""
        np, preposition = frame["goal"], Token(self.entry(frame.predicate)["prep"] or "à", "ADP", "goal.prep")
        if preposition.text == "jusque":
            to = self.at(np, "goal") if np.form == "name" else [replace(preposition, text="à"), *self.np(np, "goal")]
            return [preposition, *to]
        return [preposition, *self.np(np, "goal")] if preposition.text == "vers" else self.at(np, "goal", "goal")

    def adverbials(self, frame: Frame, slots: tuple[str, ...], *, fronted: bool = False) -> list[Token]:
        """Those of the slots that the frame has, less the one that opens the clause (or, `fronted`, only that one)."""
        found: list[Token] = []
        for slot in slots:
            np = frame.get(slot)
            if np is None or slot == frame.ask or self.is_first(frame, slot) != fronted:
                continue
            if slot == "companion":
                found += flat(Token("avec", "ADP", "companion.prep"), self.np(np, slot))
            elif slot in ("place", "goal"):
                found += self.at(np, slot) if slot == "place" else self.to(frame)
            else:
                found += self.words(self.entry(np.head)["lemma"], "ADV" if slot == "manner" else "NOUN", slot, np.head)
        return [*found, _COMMA] if fronted and found else found

    def question_words(self, frame: Frame) -> list[Token]:
        """The phrase asked for, with its preposition, and "est-ce que"."""
        slot, preposition = frame.ask, self.entry(frame.predicate or "own")["prep"]
        if slot == "number":
            return [*self.how_many(frame), *_EST_CE_QUE]
        which = self.wh(frame[slot], slot)
        if slot == "object" and frame.predicate in _ASKED:
            return [*self.words(_ASKED[frame.predicate], "PRON", slot), *_EST_CE_QUE]
        preposition = "à" if slot == "recipient" else preposition if slot in ("goal", "object") else ""
        before = Token(preposition, "ADP", f"{slot}.prep") if preposition else None
        word = _WH.get(which) or ("qui" if which == "who" or preposition else "que")
        asked = Token(word, "ADV" if which in _WH else "PRON", slot)
        return flat(before, asked, _EST_CE_QUE)

    def clause(self, frame: Frame, verb: list[Token], rest: list[Token], subject: str = "agent") -> list[Token]:
        """SUBJECT VERB REST. `verb` starts with the finite word; "ne" and "pas" are put around it (and its "se")."""
        if frame.negated:
            size = 2 if verb[0].text == "se" else 1
            verb = [Token("ne", "ADV", "neg"), *verb[:size], Token("pas", "ADV", "neg"), *verb[size:]]
        if frame.ask == subject:  # "qui …", but of things "qu'est-ce qui …"
            thing = (Token("que", "PRON", subject), *_EST_CE) if frame.kind == "locate" else ()
            return flat(thing, Token("qui", "PRON", "" if thing else subject), verb, rest)
        start = self.question_words(frame) if frame.ask else self.adverbials(frame, ("time", "place"), fronted=True)
        return flat(start, self.np(frame[subject], subject), verb, rest)

    def verbal(self, frame: Frame, rest: list[Token] | None = None) -> list[Token]:
        """A clause with a full verb, in the present or with auxiliary and participle, and its adverbials."""
        verb = frame.predicate or "own"
        entry = self.entry(verb)
        rest = flat(rest, self.adverbials(frame, ("manner", "goal", "companion", "place", "time")))
        if entry["present"]:
            return self.clause(frame, self.words(entry["present"], "VERB", "verb", verb), rest)
        agrees = entry["etre"] and frame.ask != "agent" and self.gender(frame["agent"]) == "f"
        participle = self.words(entry["participle"] + ("e" if agrees else ""), "VERB", "verb", verb)
        finite = [Token("est" if entry["etre"] else "a", "AUX", "aux"), *participle]
        oneself = [Token("se", "PRON", "verb.self")] if entry["reflexive"] else []
        return self.clause(frame, oneself + finite, rest)

    def object(self, frame: Frame) -> list[Token]:
        """The object with the verb's preposition; a negation turns "un" into "de" ("jouer d'un" into "jouer de")."""
        if frame.ask in ("object", "number"):
            return []
        np, preposition = frame["object"], self.entry(frame.predicate or "own")["prep"]
        phrase = self.np(np, "object", negative=frame.negated)
        if not preposition or (preposition == "de" and phrase[0].text == "de"):
            return phrase
        return [Token(preposition, "ADP", "object.prep"), *phrase]

    def copular(self, frame: Frame, predicate: list[Token], subject: str = "theme") -> list[Token]:
        be = Token("est", "AUX", "copula")
        if frame.ask == "ground":
            return flat(Token("où", "ADV", "ground"), be, self.np(frame["theme"], "theme"))
        return self.clause(frame, [be], predicate, subject)

    def action(self, frame: Frame) -> list[Token]:
        return self.verbal(frame, self.object(frame))

    event = motion = verbal
    own = like = action

    def give(self, frame: Frame) -> list[Token]:
        recipient = [Token("à", "ADP", "recipient.prep"), *self.np(frame["recipient"], "recipient")]
        return self.verbal(frame, self.object(frame) + ([] if frame.ask == "recipient" else recipient))

    def how_many(self, frame: Frame) -> list[Token]:
        counted = [t for t in self.np(frame["object"], "object") if not t.key.endswith(".num")]
        return flat(Token("combien", "ADV", "object.num"), Token("de", "ADP", "object.case"), counted)

    def want(self, frame: Frame) -> list[Token]:
        infinitive = self.words(self.entry(frame.predicate)["lemma"], "VERB", "verb", frame.predicate)
        return self.clause(frame, [Token("veut", "VERB", "modal", "want")], infinitive + self.object(frame))

    def state(self, frame: Frame) -> list[Token]:
        lives = frame.predicate == "live" and frame.ask != "object"
        return self.verbal(frame, self.at(frame["object"], "object") if lives else self.object(frame))

    def locate(self, frame: Frame) -> list[Token]:
        relation = self.words(self.entry(frame.predicate)["lemma"], "ADP", "relation", frame.predicate)
        return self.copular(frame, relation + self.np(frame["ground"], "ground"))

    def inside(self, frame: Frame) -> list[Token]:
        return self.copular(frame, self.at(frame["ground"], "ground"))

    def property(self, frame: Frame) -> list[Token]:
        return self.copular(frame, self.adjective(frame.predicate, self.gender(frame["theme"]), "predicate"))

    def compare(self, frame: Frame) -> list[Token]:
        how = self.words(self.entry(frame.predicate)["comparative"], "ADJ", "predicate", frame.predicate)
        plus = Token("plus", "ADV", "predicate", frame.predicate)
        how = how or [plus, *self.adjective(frame.predicate, self.gender(frame["theme"]), "predicate")]
        return self.copular(frame, flat(how, Token("que", "SCONJ", "than"), self.np(frame["standard"], "standard")))

    def isa(self, frame: Frame) -> list[Token]:
        named = frame["theme"].category == "person"
        return self.profession(frame, "theme") if named else self.copular(frame, self.np(frame["object"], "object"))

    def profession(self, frame: Frame, subject: str = "agent") -> list[Token]:
        """What a person is: feminine of a woman; no article but for "une personne"."""
        job, noun = frame["object"].head, self.entry(frame["object"].head)["lemma"]
        if self.gender(frame[subject]) == "f":
            noun = self.entry(job)["feminine"] or _inflect(noun, _FEMININE)
        article = Token("une", "DET", "object.det") if job == "person_class" else None
        return self.copular(frame, flat(article, Token(noun, "NOUN", "object", job)), subject)

    def relation(self, frame: Frame) -> list[Token]:
        entry, female = self.entry(frame.predicate), self.gender(frame["theme"]) == "f"
        kin = Token((entry["feminine"] if female else "") or entry["lemma"], "NOUN", "predicate", frame.predicate)
        the, of = Token("la" if female else "le", "DET", "predicate.det"), Token("de", "ADP", "standard.case")
        return self.copular(frame, flat(the, kin, of, self.np(frame["standard"], "standard")))

    def count(self, frame: Frame) -> list[Token]:
        y_a = [Token("y", "PRON", "there"), Token("a", "VERB", "verb")]
        front, place = (self.adverbials(frame, ("place",), fronted=fronted) for fronted in (True, False))
        if frame.ask:
            return flat(self.how_many(frame), y_a, Token("-t-il", "PRON", "there", glued=True), place)
        return flat(front, Token("il", "PRON", "there"), y_a, self.np(frame["object"], "object"), place)

    def weather(self, frame: Frame) -> list[Token]:
        said = self.adverbials(frame, ("time", "place"), fronted=True)
        for word in self.entry(frame.predicate)["negated" if frame.negated else "past"].split():
            form, tag = word.split("|")
            said.append(Token(form, tag, _KEYS.get(form, "verb"), "" if form in _KEYS else frame.predicate))
        return said + self.adverbials(frame, ("place", "time"))

    def title(self, frame: Frame) -> list[Token]:
        one, other = self.np(frame["agent"], "agent"), self.np(frame["object"], "object")
        return flat(one, Token("et", "CCONJ", "and"), other, self.at(frame["place"], "place"))

    def sequence(self, frame: Frame, first: list[Token], second: list[Token]) -> list[Token]:
        if frame.predicate == "then":
            start = Token("d'", "ADP", "first"), Token("abord", "NOUN", "first"), _COMMA
            return [*start, *first, _COMMA, Token("puis", "ADV", "then"), *second]
        first = [replace(t, text={"a": "avait", "est": "était"}[t.text]) if t.key == "first.aux" else t for t in first]
        before = Token("mais", "CCONJ", "but"), Token("avant", "ADP", "before"), Token("cela", "PRON", "before")
        return flat(second, _COMMA, before, _COMMA, first)
