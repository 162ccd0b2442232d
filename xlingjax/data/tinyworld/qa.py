"""Extractive question answering: a story, a question about one of its sentences, and where in it the answer stands.

A question is asked only if no other sentence of the story could answer it. The file format is SQuAD's.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .documents import Story, tell
from .frames import KINDS, NP, Frame
from .languages.base import Language
from .sampling import Sampler, split_of


@dataclass(frozen=True)
class Question:
    """`frame.ask` of line `line` of the story."""

    story: Story
    line: int
    frame: Frame

    def render(self, realiser: Language, id_: str) -> dict:
        """One SQuAD article: a paragraph with one question. `answer_start` counts characters (code points)."""
        sentences = self.story.render(realiser)
        between = " " if realiser.spaced else ""
        before = sum(len(s.text) + len(between) for s in sentences[: self.line])
        start, end = sentences[self.line].answer(self.frame.ask)
        context = between.join(s.text for s in sentences)
        answer = {"text": context[before + start : before + end], "answer_start": before + start}
        question = {"id": id_, "question": realiser.sentence(self.frame).text, "answers": [answer]}
        title = realiser.sentence(self.story.cast.title()).text
        return {"title": title, "paragraphs": [{"context": context, "qas": [question]}]}


def plain(article: dict) -> tuple[str, str, str]:
    """Text, question and answer of what `Question.render` made."""
    (paragraph,) = article["paragraphs"]
    (asked,) = paragraph["qas"]
    return paragraph["context"], asked["question"], asked["answers"][0]["text"]


def _clauses(story: Story) -> list[Frame]:
    return [clause for line in story.lines for clause in (line.frame.parts or (line.frame,))]


def _head(f: Frame, slot: str) -> str:
    np = f.get(slot)
    return np.head if np is not None else ""


def ambiguous(question: Frame, clauses: list[Frame]) -> bool:
    """Whether more than one clause says something about what is asked."""
    given = [slot for slot in KINDS[question.kind].required if slot != question.ask]

    def matches(f: Frame) -> bool:
        same = f.kind == question.kind and f.predicate == question.predicate
        return same and all(_head(f, slot) == _head(question, slot) for slot in given)

    return sum(map(matches, clauses)) > 1


def _candidates(story: Story) -> Iterator[tuple[int, Frame]]:
    clauses = _clauses(story)
    for i, line in enumerate(story.lines):
        f = line.frame
        if f.parts or f.negated:
            continue
        for slot in KINDS[f.kind].asks:
            if slot == "number":
                if f["object"].form != "number":
                    continue
            elif slot not in f or f[slot].form == "pronoun":
                continue
            asked = replace(f, ask=slot)
            for subject in ("agent", "theme"):
                if subject in f and f[subject].form == "pronoun":
                    asked = asked.with_slot(subject, NP(f[subject].head))
            for extra in KINDS[f.kind].optional:
                if extra != slot:
                    asked = asked.with_slot(extra, None)
            if not ambiguous(asked, clauses):
                yield i, asked


def questions(seed: int, part: str, count: int) -> list[Question]:
    """`count` questions, each on a story of its own; who, what, where, when and how many come about equally often."""
    rng = random.Random(f"qa {part} {seed}")
    sampler = Sampler(rng, split_of(part))
    asked: Counter[tuple[str, str]] = Counter()
    found: list[Question] = []
    while len(found) < count:
        story = tell(sampler, rng.randint(4, 9), questions=False)
        options = list(_candidates(story))
        if options:
            rng.shuffle(options)
            line, f = min(options, key=lambda option: asked[option[1].kind, option[1].ask])
            asked[f.kind, f.ask] += 1
            found.append(Question(story, line, f))
    return found
