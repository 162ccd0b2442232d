"""Russian inflection: adjectives, nouns and past tenses, by rule from the columns of lexicons/ru.tsv."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .base import Entry

OBLIQUE = ("gen", "dat", "acc", "ins", "loc")
_ADJECTIVE = {
    "m": "ый ого ому ый ым ом",
    "f": "ая ой ой ую ой ой",
    "n": "ое ого ому ое ым ом",
    "p": "ые ых ым ые ыми ых",
}


def adjective(lemma: str, gender: str, case: str, animate: bool) -> str:
    """A long form. gender: m f n, p for the plural."""
    if case == "acc" and animate and gender in "mp":
        case = "gen"
    if gender == "m" and case in ("nom", "acc"):
        return lemma
    stem = lemma[:-2]
    ending = _ADJECTIVE[gender].split()[("nom", *OBLIQUE).index(case)]
    if stem[-1] in "кгх" or (stem[-1] in "жшчщ" and lemma.endswith("ой")):
        soft = {"ы": "и"}
    elif stem[-1] in "жшчщ":
        soft = {"ы": "и", "о": "е"}
    else:
        soft = {"ы": "и", "о": "е", "а": "я", "у": "ю"} if lemma.endswith("ий") else {}
    return stem + soft.get(ending[0], ending[0]) + ending[1:]


def decline(noun: Mapping[str, str] | Entry, case: str, plural: bool, animate: bool) -> str:
    """A form of a noun by its columns g, gen, pl, genpl, ins, loc and flags, without the adjective in adj."""
    if "0" in noun["flags"]:
        return (case == "loc" and noun["loc"]) or noun["lemma"]
    word, *fixed = noun["lemma"].removeprefix(noun["adj"]).split()
    if "j" in noun["flags"]:
        return adjective(word, "p" if plural else noun["g"], case, animate)
    return " ".join([_noun(noun, word, case, plural, animate), *fixed])


def _noun(noun: Mapping[str, str] | Entry, lemma: str, case: str, plural: bool, animate: bool) -> str:
    gender, flags = noun["g"], noun["flags"]
    stem = noun["gen"][:-1] or (lemma[:-1] if lemma[-1] in "аяоеьйы" else lemma)
    last, end = stem[-1], lemma[-1]
    soft, hush = end in "яеьй" and stem[-1] not in "жшчщц", stem[-1] in "жшчщц"
    y = "и" if soft or last in "кгхжшчщ" else "ы"
    o = "о" if not soft and (not hush or "s" in flags) else "ё" if soft and "s" in flags else "е"
    e = "и" if stem.endswith("и") else "е"
    if end in "ая":
        singular = [y, e, "ю" if soft else "у", f"{o}й", e]
    elif gender == "f":
        singular, stem = ["и", "и", "ь", "ью", "и"], lemma[:-1]
    else:
        same = end if end in "ое" else ""
        singular = ["я" if soft else "а", "ю" if soft else "у", same, f"{o}м", e]
    if gender == "p" or plural:
        many = noun["pl"] or (lemma if gender == "p" else stem + (("я" if soft else "а") if gender == "n" else y))
        if case == "acc":
            case = "gen" if animate else "nom"
        if case == "nom":
            return many
        if case == "gen":
            return noun["genpl"] or stem + _genitive_plural(stem, end, gender, "s" in flags)
        a = "а" if many[-1] in "ыа" or many[-2] in "кгхжшчщц" else "я"
        return many[:-1] + a + {"dat": "м", "ins": "ми", "loc": "х"}[case]
    if case == "nom":
        return lemma
    if case == "acc" and end not in "аяое" and gender != "f":
        return _noun(noun, lemma, "gen", False, animate) if animate else lemma
    return noun[case] if case in ("ins", "loc") and noun[case] else stem + singular[OBLIQUE.index(case)]


def _genitive_plural(stem: str, end: str, gender: str, stressed: bool) -> str:
    if end == "ь" or (gender == "m" and stem[-1] in "жшчщ"):
        return "ей"
    if gender == "m" and end not in "ая":
        return "ев" if end == "й" or (stem[-1] == "ц" and not stressed) else "ов"
    if end in "яе" and stem.endswith("и"):
        return "й"
    return "ь" if end == "я" else ""


def past(entry: Entry, gender: str) -> str:
    """съел, съела, съело: the past of a verb; further words of the entry follow unchanged."""
    lemma, *rest = entry["lemma"].split()
    form, *rest = entry["past"].split() or [re.sub(r"ть(ся)?$", r"л\1", lemma), *rest]
    if gender != "m":
        form = entry["fem"].split()[0] if entry["fem"] else re.sub(r"л(ся)?$", r"ла\1", form).replace("лася", "лась")
    if gender == "n":
        form = re.sub(r"а(сь)?$", r"о\1", form)
    return " ".join([form, *rest])
