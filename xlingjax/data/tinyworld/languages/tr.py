"""Turkish: vowel harmony and case suffixes by rule, subject-object-verb order, question words in front of the verb.

"The" is expressed by case only, "a" by bir after the adjective. Suffixes and the copula -DIr belong to their word.
"""

from __future__ import annotations

from dataclasses import replace

from ..concepts import is_human
from ..frames import EVENT_KINDS, NP, Frame
from ..tokens import Token
from .base import Entry, Language, flat

_HIGH = {"a": "ı", "ı": "ı", "â": "ı", "e": "i", "i": "i", "o": "u", "u": "u", "ö": "ü", "ü": "ü"}
# case: after a consonant, after a vowel, after a possessive compound. A = a/e, I = ı/i/u/ü, D = d/t.
_CASES = {
    "acc": ("I", "yI", "nI"), "gen": ("In", "nIn", "nIn"), "dat": ("A", "yA", "nA"), "loc": ("DA", "DA", "ndA"),
    "abl": ("DAn", "DAn", "ndAn"), "ins": ("lA", "ylA", "ylA"), "poss": ("I", "sI", ""),
}  # fmt: skip
_APOSTROPHE = frozenset(["person", "city", "country", "continent", "organisation", "holiday"])
_WHO = {"": "kim", "acc": "kimi", "gen": "kimin", "dat": "kime", "abl": "kimden", "ins": "kiminle"}
_WHAT = {"": "ne", "acc": "neyi", "gen": "neyin", "dat": "neye", "abl": "nelerden", "ins": "neyle"}  # neden is "why"


def _suffix(text: str, pattern: str, harmony: str = "") -> str:
    """`pattern` with its A, I and D fitted to the sounds before it (`harmony`, where spelling misleads)."""
    sounds = (harmony or text).lower()
    for letter in pattern:
        vowel = next((_HIGH[c] for c in reversed(sounds) if c in _HIGH), "i")
        fitted = {"I": vowel, "A": "a" if vowel in "ıu" else "e", "D": "t" if sounds[-1] in "fstkçşhpx" else "d"}
        text, sounds = text + fitted.get(letter, letter), sounds + fitted.get(letter, letter)
    return text


def _inflect(entry: Entry, case: str, proper: bool = False, plural: bool = False) -> str:
    """A noun in a case ("" is the nominative) or with the possessive suffix of the third person."""
    lemma, compound, stem, harmony = entry["lemma"], entry["poss"] == "yes", entry["stem"], entry["harm"]
    if plural:
        lemma, stem, harmony = entry["plural"] or _suffix(lemma, "lAr", harmony), "", ""
    if not case:
        return lemma
    vowel = (harmony or lemma)[-1].lower() in _HIGH and not stem
    pattern = _CASES[case][2 if compound else 1 if vowel else 0]
    if proper:
        return _suffix(lemma + "'", pattern, harmony or lemma)
    if pattern[:1] in ("I", "A") and not (plural or compound):
        long = sum(c in _HIGH for c in lemma.rpartition(" ")[2]) > 1  # köpek > köpeği, but kek > keki
        return _suffix(stem or (lemma[:-1] + "ğ" if long and lemma[-1] == "k" else lemma), pattern, harmony)
    return _suffix(lemma, pattern, harmony)


class Realiser(Language):
    code = "tr"

    def capital(self, text: str) -> str:
        return "İ" + text[1:] if text[:1] == "i" else super().capital(text)

    # --- phrases -----------------------------------------------------------------------------------------------------

    def np(self, np: NP, slot: str, case: str = "", article: bool = True) -> list[Token]:
        """A noun phrase in a case. `article`: whether "a" is said."""
        if np.form == "pronoun":
            return [Token({"": "o", "gen": "onun"}[case], "PRON", slot)]
        entry, category = self.entry(np.head), np.category
        if np.form == "name":
            return self.words(_inflect(entry, case, category in _APOSTROPHE), "PROPN", slot, np.head)
        many = np.form == "generic" and category != "food"  # animals are plural (kedileri), food is singular (elmayı)
        return flat(
            self.words(self.lemma(np.number), "NUM", f"{slot}.num", np.number) if np.form == "number" else None,
            self.adjective(np.adjective, np.head, f"{slot}.adj") if np.adjective else None,
            Token("bir", "DET", f"{slot}.det") if np.form == "indef" and article else None,
            self.words(_inflect(entry, case, plural=many), "NOUN", slot, np.head),
        )

    def adjective(self, id_: str, noun: str, key: str, column: str = "") -> list[Token]:
        entry = self.entry(id_)
        form = (column and entry[column]) or (is_human(noun) and entry["human"]) or entry["lemma"]
        return self.words(form, "ADJ", key, id_)

    def asked(self, frame: Frame, case: str = "") -> list[Token]:
        """The question word, in the case of what it asks for."""
        slot, np = frame.ask, frame["object" if frame.ask == "number" else frame.ask]
        which = self.wh(np, slot)
        if which == "how_many":
            counted = self.np(NP(np.head, "indef", np.adjective), "object", case, article=False)
            return flat(Token("kaç", "NUM", "object.num"), counted)
        if which == "when":
            return [Token("ne", "DET", slot), Token("zaman", "NOUN", slot)]
        if which in ("where", "whither") or case == "loc":
            return [Token("nereye" if which == "whither" else "nerede", "ADV", slot)]
        if np.category == "language" or (np.category == "animal" and slot == "agent"):
            noun = "dili" if np.category == "language" else "hayvan"
            return [Token("hangi", "DET", slot), Token(noun, "NOUN", slot)]
        return [Token((_WHO if which == "who" else _WHAT)[case], "PRON", slot)]

    def part(self, frame: Frame, slot: str, case: str = "") -> list[Token]:
        """The phrase in a slot, or the question about it."""
        return self.asked(frame, case) if frame.ask == slot else self.np(frame[slot], slot, case)

    def adverbial(self, frame: Frame, slot: str) -> list[Token]:
        if slot == "companion":
            return flat(self.np(frame[slot], slot, "ins"), Token("birlikte", "ADV", "companion.prep"))
        if slot in ("place", "goal") or frame.ask == slot:
            return self.part(frame, slot, "dat" if slot == "goal" else "loc" if slot == "place" else "")
        head = frame[slot].head
        return self.words(self.entry(head)["lemma"], "ADV" if slot == "manner" else "NOUN", slot, head)

    def object(self, frame: Frame) -> tuple[str, list[Token], bool]:
        """The object of the verb, and whether it stands next to it (it has no case, or owns the noun of the verb)."""
        np, case = frame["object"], self.entry(frame.predicate)["case"] or "acc"
        if frame.ask == "object":
            who = self.wh(np, "object") == "who"
            return "object", self.asked(frame, "" if case == "acc" and not who and frame.kind != "like" else case), True
        if case == "acc" and np.form in ("indef", "number"):
            case = ""
        return "object", self.np(np, "object", case, bool(case) or not frame.negated), case in ("", "gen")

    # --- clause patterns ---------------------------------------------------------------------------------------------

    def verb(self, frame: Frame, id_: str, key: str = "verb") -> list[Token]:
        """The finite verb, past or present, affirmative or negated."""
        stem, past = self.stem(frame, id_), frame.kind in EVENT_KINDS
        if not frame.negated:
            return self.words(_suffix(stem, "DI") if past else self.entry(id_)["present"], "VERB", key, id_)
        return self.words(_suffix(stem, "mADI" if past else "mIyor"), "VERB", key, id_)

    def stem(self, frame: Frame, id_: str) -> str:
        """Of the infinitive, or of the verb that goes with this object: yüzük takmak, elbise giymek."""
        own, entry = self.entry(frame["object"].head)["verbs"] if "object" in frame else "", self.entry(id_)
        return own.partition("=")[2][:-3] if own.startswith(f"{id_}=") else entry["stem"] or entry["lemma"][:-3]

    def clause(self, frame: Frame, complements: list[tuple[str, list[Token], bool]], verb: list[Token]) -> list[Token]:
        """SUBJECT TIME COMPANION PLACE MANNER GOAL COMPLEMENTS VERB. What is asked for moves to the verb.

        complements: slot, tokens and whether it has to stand next to the verb.
        """
        slots = [slot for slot in ("time", "companion", "place", "manner", "goal") if slot in frame]
        pieces = [(slot, self.adverbial(frame, slot), slot == "manner") for slot in slots]
        pieces = [("agent", self.part(frame, "agent"), False), *pieces, *complements]
        if frame.ask and not (frame.ask == "agent" and frame.kind == "want"):
            last = [piece for piece in pieces if piece[2] and piece[0] != frame.ask]
            asked = [piece for piece in pieces if piece[0] == frame.ask]
            pieces = [piece for piece in pieces if piece not in last + asked] + asked + last
        pieces.sort(key=lambda piece: not self.is_first(frame, piece[0]))
        tokens = flat(*(tokens for _, tokens, _ in pieces), verb)
        for i, token in enumerate(tokens[:-1]):
            if token.text == "o" and tokens[i + 1].upos in ("NOUN", "ADJ", "NUM", "ADV"):  # o elma is "that apple"
                return [*tokens[: i + 1], Token(",", "PUNCT", glued=True), *tokens[i + 1 :]]
        return tokens

    def nominal(self, frame: Frame, predicate: list[Token], formal: bool = True, slot: str = "theme") -> list[Token]:
        """SUBJECT PREDICATE(-DIr), or SUBJECT PREDICATE değil."""
        no = Token("değildir" if formal else "değil", "AUX", "neg")
        if not frame.negated and formal and not frame.ask:
            predicate = [*predicate[:-1], replace(predicate[-1], text=_suffix(predicate[-1].text, "DIr"))]
        return flat(self.part(frame, slot), predicate, no if frame.negated else None)

    # --- one method per kind -----------------------------------------------------------------------------------------

    def action(self, frame: Frame) -> list[Token]:
        complements = [self.object(frame)] if "object" in frame else []
        if "recipient" in frame:
            to = ("recipient", self.part(frame, "recipient", "dat"), False)
            complements.insert(0 if complements[0][2] or self._variant % 2 else 1, to)
        return self.clause(frame, complements, self.verb(frame, frame.predicate))

    event = motion = give = like = action

    def own(self, frame: Frame) -> list[Token]:
        if frame.ask == "object":
            return flat(
                self.np(frame["agent"], "agent"), self.asked(frame, "dat"), Token("sahip", "ADJ", "verb", "own")
            )
        asked = frame.ask == "number"
        thing = self.asked(frame, "poss") if asked else self.np(frame["object"], "object", "poss", not frame.negated)
        verb = Token("yok" if frame.negated else "var", "VERB", "verb", "own")
        return flat(self.part(frame, "agent", "gen"), thing, verb)

    def want(self, frame: Frame) -> list[Token]:
        infinitive = _suffix(self.stem(frame, frame.predicate), "mAk")
        verb = flat(self.words(infinitive, "VERB", "verb", frame.predicate), self.verb(frame, "want", "modal"))
        return self.clause(frame, [self.object(frame)], verb)

    def state(self, frame: Frame) -> list[Token]:
        case = self.entry(frame.predicate)["case"]
        said = ("object", self.part(frame, "object", case), not case)
        return self.clause(frame, [said], self.verb(frame, frame.predicate))

    def locate(self, frame: Frame) -> list[Token]:
        if frame.ask == "ground":
            return self.nominal(frame, self.asked(frame))
        relation = self.words(self.entry(frame.predicate)["lemma"], "NOUN", "relation", frame.predicate)
        where = flat(self.np(frame["ground"], "ground", "gen"), relation)
        if frame.ask == "theme":
            return flat(where, self.asked(frame), Token("var", "VERB", "copula"))
        return self.nominal(frame, where, formal=self._variant % 2 == 1)

    def inside(self, frame: Frame) -> list[Token]:
        return self.nominal(frame, self.part(frame, "ground", "loc"))

    def property(self, frame: Frame) -> list[Token]:
        said = self.adjective(frame.predicate, frame["theme"].head, "predicate")
        return self.nominal(frame, said, formal=self._variant % 2 == 1)

    def isa(self, frame: Frame) -> list[Token]:
        theme = frame["theme"]
        bare = frame.with_slot("theme", replace(theme, form="def") if theme.form in ("indef", "generic") else theme)
        return self.nominal(bare, self.np(frame["object"], "object"))

    def profession(self, frame: Frame) -> list[Token]:
        """Anna öğretmendir; in odd variants Anna bir öğretmen."""
        odd = self._variant % 2 == 1 and not frame.negated
        role = self.np(NP(frame["object"].head, "indef"), "object", article=odd)
        return self.nominal(frame, role, formal=not odd, slot="agent")

    def compare(self, frame: Frame) -> list[Token]:
        said = self.adjective(frame.predicate, frame["theme"].head, "predicate", "comparative")
        more, than = Token("daha", "ADV", "predicate", frame.predicate), self.np(frame["standard"], "standard", "abl")
        return self.nominal(frame, flat(than, more, said), formal=self._variant % 2 == 0)

    def relation(self, frame: Frame) -> list[Token]:
        kin = self.words(_inflect(self.entry(frame.predicate), "poss"), "NOUN", "predicate", frame.predicate)
        said = flat(self.np(frame["standard"], "standard", "gen"), kin)
        return flat(said, self.asked(frame)) if frame.ask else self.nominal(frame, said)

    def count(self, frame: Frame) -> list[Token]:
        counted = self.asked(frame) if frame.ask else self.np(frame["object"], "object")
        return flat(self.adverbial(frame, "place"), counted, Token("var", "VERB", "verb"))

    def weather(self, frame: Frame) -> list[Token]:
        form = self.entry(frame.predicate)["negated" if frame.negated else "past"]
        keys = {"hava": "it", "değildi": "neg"}
        words = self.words(form, "VERB", "verb", frame.predicate)
        said = [Token(t.text, t.upos, keys[t.text]) if t.text in keys else t for t in words]
        time, place = (self.adverbial(frame, slot) if slot in frame else [] for slot in ("time", "place"))
        return flat(time, place, said) if self.is_first(frame, "time") else flat(place, time, said)

    def title(self, frame: Frame) -> list[Token]:
        agent, thing = (self.np(frame[slot], slot) for slot in ("agent", "object"))
        return flat(self.np(frame["place"], "place", "loc"), agent, Token("ve", "CCONJ", "and"), thing)

    def sequence(self, frame: Frame, first: list[Token], second: list[Token]) -> list[Token]:
        comma = Token(",", "PUNCT", glued=True)
        if frame.predicate == "then":
            return flat(Token("önce", "ADV", "first"), first, comma, Token("sonra", "ADV", "then"), second)
        before = (Token("ondan", "PRON", "before"), Token("önce", "ADP", "before"))
        return flat(second, comma, Token("ama", "CCONJ", "but"), *before, first)
