"""Chinese (simplified): measure words, 了, preverbal adverbials, questions in place.

"the" is 那 + measure word (nothing in places, locations and comparisons); "a" is 一 + measure word (nothing for a class
or when negated). The article's key covers the measure word.
"""

from __future__ import annotations

from dataclasses import replace

from ..concepts import gender_of, is_human
from ..frames import EVENT_KINDS, NP, Frame
from ..tokens import Token
from .base import Language, flat


class Realiser(Language):
    code = "zh"
    spaced = False
    full_stop, question_mark, comma = "。", "？", "，"

    # --- phrases -----------------------------------------------------------------------------------------------------

    def np(self, np: NP, slot: str, bare: bool = False) -> list[Token]:
        """A noun phrase. `bare`: without 那 and 一."""
        if np.form == "pronoun":
            return [Token("她" if gender_of(np.head) == "f" else "他", "PRON", slot)]
        entry = self.entry(np.head)
        noun = self.words(entry["lemma"], "PROPN" if np.form == "name" else "NOUN", slot, np.head)
        if np.form == "name":
            return noun
        after = flat(self.attribute(np, slot, noun[0].text) if np.adjective else None, noun)
        if np.form == "number":
            number = self.words(self.lemma(np.number), "NUM", f"{slot}.num", np.number)
            return flat(number, Token(entry["cl"], "NOUN", f"{slot}.num"), after)
        if np.form == "generic" or bare or not entry["cl"]:
            return after
        article = Token("那", "DET", f"{slot}.det") if np.form == "def" else Token("一", "NUM", f"{slot}.det")
        return flat(article, Token(entry["cl"], "NOUN", f"{slot}.det"), after)

    def attribute(self, np: NP, slot: str, noun: str) -> list[Token]:
        """An adjective before its noun: 大, 红色的, 很快的."""
        entry, key = self.entry(np.adjective), f"{slot}.adj"
        form = entry["attr"]
        lemma = entry["human"] if is_human(np.head) and entry["human"] else entry["lemma"]
        if noun[0] in "大小" and lemma in "大小":
            form = "very"  # 很大的大象
        very = Token("很", "ADV") if form == "very" else None
        particle = Token("的", "PART", f"{key}.part") if form != "bare" else None
        return flat(very, self.words(lemma, "ADJ", key, np.adjective), particle)

    def at(self, np: NP, slot: str) -> list[Token]:
        """公园里, 巴黎: a place without 在."""
        loc = self.entry(np.head)["loc"]
        return flat(self.np(np, slot, bare=True), Token(loc, "ADP", f"{slot}.prep") if loc else None)

    def asked(self, frame: Frame, slot: str) -> list[Token]:
        """The question word in the place of a phrase."""
        np = frame["object" if slot == "number" else slot]
        which = self.wh(np, slot)
        if which == "how_many":
            measure = Token(self.entry(np.head)["cl"], "NOUN", "object.num")
            return flat(Token("多少", "NUM", "object.num"), measure, self.np(replace(np, form="generic"), "object"))
        if which == "when":
            return [Token("什么", "DET", slot), Token("时候", "NOUN", slot)]
        if which == "what" and slot in ("agent", "theme"):
            kind = "动物" if np.category == "animal" else "东西"
            return [Token("什么", "DET", slot), Token(kind, "NOUN", slot)]
        return [Token({"who": "谁", "what": "什么"}.get(which, "哪里"), "PRON", slot)]

    def phrase(self, frame: Frame, slot: str, bare: bool = False) -> list[Token]:
        """A subject or object, or the question about it. Negated or with 是…的 "a" is bare: 没有买自行车."""
        if frame.ask == slot or (slot == "object" and frame.ask == "number"):
            return self.asked(frame, frame.ask)
        unspecific = frame[slot].form == "indef" and (frame.negated or frame.ask in ("place", "time"))
        return self.np(frame[slot], slot, bare or unspecific)

    def adverbial(self, frame: Frame, slot: str) -> list[Token]:
        """Time, companion, place or manner, as it stands before the verb; asked with 是 (and 的 at the end)."""
        if slot not in frame:
            return []
        np, asked = frame[slot], frame.ask == slot
        if slot == "time":
            said = self.asked(frame, slot) if asked else self.words(self.entry(np.head)["lemma"], "NOUN", slot, np.head)
        elif slot == "companion":
            key = "companion.prep"
            said = flat(Token("和", "ADP", key), self.np(np, slot), Token("一起", "ADV", key))
        elif slot == "place":
            said = flat(Token("在", "ADP", "place.prep"), self.asked(frame, slot) if asked else self.at(np, slot))
        else:
            said = self.words(self.entry(np.head)["lemma"], "ADV", slot, np.head)
        return flat(Token("是", "AUX", "aux") if asked else None, said)

    # --- clause patterns ---------------------------------------------------------------------------------------------

    def verb(self, frame: Frame, to: bool = False) -> list[Token]:
        """The main verb, with 了 in an affirmative past without 是…的."""
        entry, id_ = self.entry(frame.predicate), frame.predicate
        base = entry["base"] or entry["lemma"]
        own = self.entry(frame["object"].head)["verbs"] if "object" in frame and frame.ask != "object" else ""
        if own.startswith(f"{id_}="):
            base = own.partition("=")[2]
        elif self.perfective(frame) and entry["past"]:
            return self.words(entry["past"], "VERB", "verb", id_)
        direction = Token(entry["to"], "VERB", "goal.prep") if to and entry["to"] else None
        done = Token("了", "PART", "verb.part") if self.perfective(frame) else None
        return flat(self.words(base, "VERB", "verb", id_), direction, done)

    @staticmethod
    def perfective(frame: Frame) -> bool:
        return frame.kind in EVENT_KINDS and not frame.negated and frame.ask not in ("place", "time")

    def event(self, frame: Frame, predicate: list[Token] | None = None) -> list[Token]:
        """SUBJECT TIME (没有) COMPANION PLACE MANNER PREDICATE."""
        first = next((slot for slot in ("time", "place") if self.is_first(frame, slot)), "")
        front = flat(self.adverbial(frame, first), Token("，", "PUNCT", glued=True)) if first else None
        slots = [slot for slot in ("companion", "place", "manner") if slot != first]
        return flat(
            front,
            self.phrase(frame, "agent"),
            self.adverbial(frame, "time") if first != "time" else None,
            Token("没有", "ADV", "neg") if frame.negated else None,
            *(self.adverbial(frame, slot) for slot in slots),
            self.verb(frame) if predicate is None else predicate,
            Token("的", "PART", "aux") if frame.ask in ("place", "time") else None,
        )

    def transitive(self, frame: Frame) -> list[Token]:
        """VERB OBJECT, or 给 OBJECT VERB."""
        if coverb := self.entry(frame.predicate)["coverb"]:
            return flat(Token(coverb, "ADP", "object.prep"), self.phrase(frame, "object"), self.verb(frame))
        return flat(self.verb(frame), self.phrase(frame, "object"))

    def present(self, frame: Frame, predicate: list[Token], subject: str = "agent", bare: bool = False) -> list[Token]:
        """SUBJECT (不) PREDICATE."""
        no = Token("不", "ADV", "neg") if frame.negated else None
        return flat(self.phrase(frame, subject, bare), no, predicate)

    # --- one method per kind -----------------------------------------------------------------------------------------

    def action(self, frame: Frame) -> list[Token]:
        return self.event(frame, self.transitive(frame))

    def motion(self, frame: Frame) -> list[Token]:
        if frame.ask == "goal":
            goal = self.asked(frame, "goal")
        else:
            side = self.entry(frame["goal"].head)["goal"]
            goal = flat(self.np(frame["goal"], "goal", bare=True), Token(side, "ADP", "goal.prep") if side else None)
        if coverb := self.entry(frame.predicate)["coverb"]:
            return self.event(frame, flat(Token(coverb, "VERB", "goal.prep"), goal, self.verb(frame)))
        return self.event(frame, flat(self.verb(frame, to=True), goal))

    def give(self, frame: Frame) -> list[Token]:
        recipient, given = self.phrase(frame, "recipient"), self.phrase(frame, "object")
        if coverb := self.entry(frame.predicate)["coverb"]:
            to = Token(coverb, "ADP", "recipient.prep")
            return self.event(frame, flat(to, recipient, self.verb(frame), given))
        return self.event(frame, flat(self.verb(frame), recipient, given))

    def own(self, frame: Frame) -> list[Token]:
        have = Token("没有" if frame.negated else "有", "VERB", "verb", "own")
        return flat(self.phrase(frame, "agent"), have, self.phrase(frame, "object"))

    def like(self, frame: Frame) -> list[Token]:
        return self.present(frame, self.transitive(frame))

    def want(self, frame: Frame) -> list[Token]:
        return self.present(frame, flat(Token("想", "AUX", "modal", "want"), self.transitive(frame)))

    def state(self, frame: Frame) -> list[Token]:
        verb, thing, at = self.verb(frame), self.phrase(frame, "object"), Token("在", "ADP", "object.prep")
        if frame.predicate == "live":
            return self.present(frame, flat(verb, at, thing))
        if frame.ask == "object":
            kind = {"work_for": "单位", "speak": "语言"}[frame.predicate]
            thing = [Token("什么", "DET", "object"), Token(kind, "NOUN", "object")]
        if frame.predicate == "work_for":
            return self.present(frame, flat(at, thing, verb))
        return self.present(frame, flat(Token("会", "AUX", "aux"), verb, thing))

    def locate(self, frame: Frame) -> list[Token]:
        be = Token("在", "VERB", "copula")
        if frame.ask == "ground":
            return self.present(frame, flat(be, self.asked(frame, "ground")), "theme", bare=True)
        ground, side = self.np(frame["ground"], "ground", bare=True), self.entry(frame.predicate)["lemma"]
        where = flat(be, ground, self.words(side, "ADP", "relation", frame.predicate))
        return self.present(frame, where, "theme", bare=True)

    def inside(self, frame: Frame) -> list[Token]:
        return self.present(frame, flat(Token("在", "VERB", "copula"), self.phrase(frame, "ground")), "theme")

    def property(self, frame: Frame) -> list[Token]:
        entry, id_ = self.entry(frame.predicate), frame.predicate
        lemma = entry["human"] if is_human(frame["theme"].head) and entry["human"] else entry["lemma"]
        said = self.words(lemma, "VERB" if entry["mode"] == "le" else "ADJ", "predicate", id_)
        if entry["mode"] == "le":
            not_yet, now = Token("没有", "ADV", "neg"), Token("了", "PART", "predicate.part")
            return flat(self.phrase(frame, "theme"), [not_yet, *said] if frame.negated else [*said, now])
        if entry["mode"] == "de":
            be, particle = Token("是", "AUX", "copula"), Token("的", "PART", "predicate.part")
            return self.present(frame, flat(be, said, particle), "theme")
        return self.present(frame, flat(None if frame.negated else Token("很", "ADV"), said), "theme")

    def isa(self, frame: Frame) -> list[Token]:
        class_ = self.np(frame["object"], "object", bare=True)
        return self.present(frame, flat(Token("是", "AUX", "copula"), class_), "theme", bare=True)

    def profession(self, frame: Frame) -> list[Token]:
        bare = frame.negated or frame.ask != "" or self._variant % 2 == 0
        role = self.np(NP(frame["object"].head, "indef"), "object", bare)
        return self.present(frame, flat(Token("是", "AUX", "copula"), role))

    def compare(self, frame: Frame) -> list[Token]:
        entry = self.entry(frame.predicate)
        said = self.words(entry["comparative"] or entry["lemma"], "ADJ", "predicate", frame.predicate)
        standard = self.np(frame["standard"], "standard", bare=True)
        return flat(self.np(frame["theme"], "theme", bare=True), Token("比", "ADP", "than"), standard, said)

    def relation(self, frame: Frame) -> list[Token]:
        kin = self.words(self.entry(frame.predicate)["lemma"], "NOUN", "predicate", frame.predicate)
        be, of = Token("是", "AUX", "copula"), Token("的", "PART", "standard.case")
        return self.present(frame, flat(be, self.np(frame["standard"], "standard"), of, kin), "theme")

    def count(self, frame: Frame) -> list[Token]:
        return flat(self.at(frame["place"], "place"), Token("有", "VERB", "verb"), self.phrase(frame, "object"))

    def weather(self, frame: Frame) -> list[Token]:
        entry, said = self.entry(frame.predicate), []
        for token in self.words(entry["negated" if frame.negated else "past"], "VERB", "verb", frame.predicate):
            key = {"不": "neg", "是": "copula", "很": ""}.get(token.text)
            said.append(token if key is None else Token(token.text, token.upos, key))
        if frame.negated and said[0].key == "verb":
            said.insert(0, Token("没有", "ADV", "neg"))
        time, place = self.adverbial(frame, "time"), self.np(frame["place"], "place")
        if self.is_first(frame, "time"):
            return flat(time, Token("，", "PUNCT", glued=True), place, said)
        return flat(place, time, said)

    def title(self, frame: Frame) -> list[Token]:
        agent, thing = (self.np(frame[slot], slot, bare=True) for slot in ("agent", "object"))
        both, at = Token("和", "CCONJ", "and"), Token("在", "ADP", "place.prep")
        return flat(agent, both, thing, at, self.at(frame["place"], "place"))

    def sequence(self, frame: Frame, first: list[Token], second: list[Token]) -> list[Token]:
        comma = Token("，", "PUNCT", glued=True)
        if frame.predicate == "then":
            return flat(Token("首先", "ADV", "first"), comma, first, comma, Token("然后", "ADV", "then"), second)
        that = [Token("在", "ADP", "before"), Token("那", "PRON", "before"), Token("之前", "ADP", "before")]
        return flat(second, comma, Token("但", "CCONJ", "but"), that, comma, first)
