"""Russian noun phrases: agreement, numerals and their government, prepositions."""

from __future__ import annotations

import re

from ..concepts import concept, gender_of
from ..frames import NP
from ..tokens import Token
from .base import Language, flat
from .ru_morphology import adjective, decline

_FORMS = ("gen", "pl", "genpl", "ins", "loc", "flags", "adj")  # the columns of a noun that may be empty
_FEW = ("two", "three", "four")


class Phrases(Language):
    """Noun phrases in a case: `np`, and with a preposition `prep` and `place`."""

    def animate(self, id_: str) -> bool:
        return concept(id_).category in ("person", "role", "animal") or "a" in self.entry(id_)["flags"]

    def gender(self, np: NP) -> str:
        return gender_of(np.head) if np.category == "person" else self.entry(np.head)["g"]

    def np(self, np: NP, slot: str, case: str = "nom") -> list[Token]:
        if np.form == "pronoun":
            he, she = {"gen": ("него", "неё"), "dat": ("ему", "ей")}.get(case, ("он", "она"))
            return [Token(she if gender_of(np.head) == "f" else he, "PRON", slot)]
        if np.form == "number":
            return self.counted(np, slot, case)
        return self.noun(np, slot, case, self.is_plural(np))

    def is_plural(self, np: NP) -> bool:
        """Whether a phrase without a number is plural: a kind (кошки), but not молоко, капуста."""
        return np.form == "generic" and not (concept(np.head).mass or "g" in self.entry(np.head)["flags"])

    def noun(self, np: NP, slot: str, case: str, plural: bool, agree: str = "") -> list[Token]:
        """Adjective and noun. `agree`: the gender of the adjective where it is not that of the noun."""
        entry, living = self.entry(np.head), self.animate(np.head)
        gender = agree or ("p" if plural else entry["g"])
        found = []
        if np.adjective:
            lemma = self.entry(np.adjective)["lemma"]
            found += self.words(adjective(lemma, gender, case, living), "ADJ", f"{slot}.adj", np.adjective)
        if entry["adj"]:
            found += self.words(adjective(entry["adj"], gender, case, living), "ADJ", slot, np.head)
        form = decline(entry, case, plural, living)
        if entry["many"] and plural and case == "gen" and np.number not in ("", *_FEW):
            form = entry["many"]  # пять человек
        return found + self.words(form, "PROPN" if np.form == "name" else "NOUN", slot, np.head)

    def counted(self, np: NP, slot: str, case: str) -> list[Token]:
        """два ключа, двух кошек, пять кочанов капусты: after два, три, четыре the noun is genitive singular, after
        five genitive plural, the adjective genitive plural; in the oblique cases, and where a small number of living
        beings is accusative, all agree."""
        entry, number, few = self.entry(np.head), self.entry(np.number), np.number in _FEW
        unit = dict(zip(("lemma", "g", "genpl"), entry["unit"].split(), strict=False))
        living = self.animate(np.head) and not unit
        if case == "nom" or (case == "acc" and not (living and few)):
            feminine = (unit or entry)["g"] == "f"
            said, case, plural = (feminine and number["feminine"]) or number["lemma"], "gen", not few
        else:
            case, plural = "gen" if case == "acc" else case, True
            said = number["gen" if case == "loc" else case]
        count = self.words(said, "NUM", f"{slot}.num", np.number)
        if unit:
            measure = decline(dict.fromkeys(_FORMS, "") | unit, case, plural, False)
            return flat(count, Token(measure, "NOUN", f"{slot}.num"), self.noun(np, slot, "gen", False))
        return flat(count, self.noun(np, slot, case, plural, "p"))

    def prep(self, preposition: str, key: str, after: list[Token]) -> list[Token]:
        """в Париже, во Франции; с Анной, со столом."""
        cluster = {"в": r"[вф][^аеёиоуыэюя]", "с": r"[сзшж][^аеёиоуыэюя]"}
        words = preposition.split()
        if words[-1] in cluster and re.match(cluster[words[-1]], after[0].text.lower()):
            words[-1] += "о"
        return flat(self.words(" ".join(words), "ADP", key), after)

    def place(self, np: NP, slot: str, case: str = "loc") -> list[Token]:
        """в парке, на вокзале (loc); в парк, на вокзал (acc)."""
        return self.prep(self.entry(np.head)["prep"] or "в", f"{slot}.prep", self.np(np, slot, case))
