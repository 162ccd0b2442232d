"""Validate one language: `python -m xlingjax.data.tinyworld.check de` prints what is missing and sample sentences.

Exit status 1 when something is missing or a frame does not render.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field, replace

from .concepts import concept, concepts, is_human
from .frames import KINDS, NP, Frame, frame
from .languages.base import Language, language
from .sampling import Sampler


@dataclass
class Report:
    """What `check_language` found. `missing`: concepts without a lexicon line; `unknown`: lines that name no concept;
    `failures`: frames that could not be rendered, with the error; `samples`: (kind, remark, English, sentence)."""

    lang: str
    missing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    samples: list[tuple[str, str, str, str]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.missing or self.unknown or self.failures)

    def __str__(self) -> str:
        by_category: dict[str, list[str]] = {}
        for id_ in self.missing:
            by_category.setdefault(concept(id_).category, []).append(id_)
        lines = [f"{kind:<11}{remark:<16}{english}\n{'':<27}{text}" for kind, remark, english, text in self.samples]
        lines += [f"missing {category}: {' '.join(ids)}" for category, ids in by_category.items()]
        lines += [f"no such concept: {' '.join(self.unknown)}"] if self.unknown else []
        lines += [f"FAILED {failure}" for failure in self.failures[:40]]
        counts = [len(self.missing), len(self.unknown), len(self.failures)]
        lines.append("{}: {} missing, {} unknown, {} failed renderings".format(self.lang, *counts))
        return "\n".join(lines)


def probes(f: Frame) -> list[tuple[str, Frame, int, bool]]:
    """The frame as every form a language must render: (remark, frame, variant, front)."""
    found = [("", f, 0, False), ("variant 1", f, 1, False)]
    if "time" in f or ("place" in f and f.kind != "title"):
        found.append(("front", f, 0, True))
    if KINDS[f.kind].negatable and not any(np.form == "number" for _, np in f.slots):
        found.append(("negated", replace(f, negated=not f.negated), 0, False))
    if not f.negated:
        for slot in KINDS[f.kind].asks:
            if slot in f or (slot == "number" and f["object"].form == "number"):
                found.append((f"ask {slot}", replace(f, ask=slot), 0, False))
    subject = "agent" if "agent" in f else "theme"
    if f.kind != "title" and subject in f and f[subject].form == "name" and f[subject].category == "person":
        found.append(("pronoun", f.with_slot(subject, NP(f[subject].head, "pronoun")), 0, False))
    return found


def every_concept() -> list[Frame]:
    """Frames that together use each noun in the forms it can take and each adjective, verb and time at least once."""
    found = []
    anna, tom = NP("anna"), NP("peter")
    for c in concepts().values():
        if c.category in ("animal", "food", "object", "role"):
            forms = [NP(c.id, "def")] + ([] if c.mass else [NP(c.id, "indef"), NP(c.id, "number", number="three")])
            forms += [replace(np, adjective="big") for np in forms]
            for np in forms + ([] if c.mass else [NP(c.id, "number", number="seven")]):
                found.append(frame("action", "see", agent=anna, object=np))
            found.append(frame("like", "like", agent=anna, object=NP(c.id, "generic")))
            found.append(frame("like", "fear", agent=anna, object=NP(c.id, "generic")))
            found.append(frame("property", "small", theme=NP(c.id, "def")))
            if not c.mass:
                found.append(frame("own", agent=anna, object=NP(c.id, "indef")))
                found.append(frame("own", agent=anna, object=NP(c.id, "number", number="five")))
                found.append(frame("own", "", True, agent=anna, object=NP(c.id, "indef")))
                found.append(frame("count", object=NP(c.id, "number", number="two"), place=NP("garden", "def")))
            if c.hypernym:
                kind = NP(c.id, "generic" if c.mass else "indef")
                found.append(frame("isa", theme=kind, object=NP(c.hypernym, "indef")))
            if c.hypernym in ("artist", "worker"):
                for person in (anna, tom):
                    found.append(frame("isa", theme=person, object=NP(c.hypernym, "indef")))
            if c.category == "role":
                found.append(frame("profession", agent=anna, object=NP(c.id, "indef")))
                found.append(
                    frame("give", "give", agent=NP(c.id, "def"), recipient=NP(c.id, "def"), object=NP("key", "def"))
                )
            for relation in ("on", "behind") if c.category == "object" else ():
                found.append(frame("locate", relation, theme=NP("apple", "def"), ground=NP(c.id, "def")))
        elif c.category in ("place", "city"):
            place = NP(c.id, "def" if c.category == "place" else "name")
            found.append(frame("event", "sleep", agent=anna, place=place))
            found.append(frame("motion", "go", agent=anna, goal=place))
        elif c.category == "class" and c.id not in ("person_class", "artist", "worker", "building", "room"):
            for denied in (False, True):
                found.append(frame("action", "see", denied, agent=anna, object=NP(c.id, "indef")))
        elif c.category == "country":
            found.append(frame("event", "sing", agent=anna, place=NP(c.id)))
            found.append(frame("state", "live", agent=anna, object=NP(c.id)))
            found.append(frame("inside", theme=NP(c.id), ground=NP("asia")))
        elif c.category == "continent":
            found.append(frame("inside", theme=NP("paris"), ground=NP(c.id)))
        elif c.category == "person":
            found += [frame("give", "give", agent=NP(c.id), recipient=tom, object=NP("book", "indef")),
                      frame("give", "give", agent=tom, recipient=NP(c.id), object=NP("book", "indef")),
                      frame("event", "sing", agent=anna, companion=NP(c.id)),
                      frame("action", "meet", agent=anna, object=NP(c.id)),
                      frame("compare", "tall", theme=anna, standard=NP(c.id)),
                      frame("relation", "friend", theme=anna, standard=NP(c.id))]  # fmt: skip
        elif c.category in ("time", "manner"):
            found.append(frame("event", "sing", agent=anna, **{c.category: NP(c.id)}))
        elif c.category == "adjective":
            for noun in ("anna", "peter") if "anna" in c.describes else c.describes[:6]:
                form = "name" if concept(noun).category == "person" else "def"
                found.append(frame("property", c.id, theme=NP(noun, form)))
            if c.gradable:
                pair = [i for i in c.describes if is_human(i) == ("anna" in c.describes)]
                forms = [NP(i, "name" if concept(i).category == "person" else "def") for i in (pair[0], pair[-1])]
                found.append(frame("compare", c.id, theme=forms[0], standard=forms[1]))
        elif c.category == "kin":
            found.append(frame("relation", c.id, theme=tom if c.group == "man" else anna, standard=NP("leo")))
    return found


def check_language(lang: str, draws: int = 60, samples: int = 2, seed: int = 0) -> Report:
    """Find missing lexicon entries and render frames of every kind, in every form.

    draws: random frames tried per kind. samples: how many of them to show per kind and form (with English beside).
    """
    realiser, english = language(lang), language("en")
    known = concepts()
    report = Report(lang)
    report.missing = [i for i in known if i not in realiser.lexicon]
    report.unknown = [i for i in realiser.lexicon if i not in known]

    def render(f: Frame, variant: int, front: bool, who: Language) -> str:
        return who.sentence(f, variant, front).text

    rng = random.Random(seed)
    for kind in KINDS:
        shown: dict[str, int] = {}
        for _ in range(draws):
            for remark, f, variant, front in probes(Sampler(rng, "train").frame(kind)):
                try:
                    text = render(f, variant, front, realiser)
                except Exception as error:  # noqa: BLE001 - every failure of a language under construction is a finding
                    report.failures.append(f"{kind} {remark} {f.core()}: {type(error).__name__} {error}")
                    continue
                if shown.get(remark, 0) < samples:
                    shown[remark] = shown.get(remark, 0) + 1
                    report.samples.append((kind, remark, render(f, variant, front, english), text))
    for f in every_concept():
        try:
            render(f, 0, False, realiser)
        except Exception as error:  # noqa: BLE001
            report.failures.append(f"{f.kind} {f.core()}: {type(error).__name__} {error}")
    report.failures = list(dict.fromkeys(report.failures))
    return report


if __name__ == "__main__":
    status = 0
    for code in sys.argv[1:] or ["en"]:
        result = check_language(code)
        print(result)
        status |= not result.ok
    sys.exit(status)
