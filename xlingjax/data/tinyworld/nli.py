"""Natural language inference: entailment, neutral, contradiction, decided by the frames.

The hypothesis is drawn first and gets three premises, one per label, so a hypothesis says nothing about its label.
Premise and hypothesis are about one situation (the convention of SNLI): what happened in Paris did not happen in
Berlin.

Entailment: the premise says the hypothesis and something more; or its inverse (mother / son, taller / shorter); a city
for its country, a hammer for a tool; a quality in passing ("Anna washed the red cup": the cup is red); or a contrary of
what the hypothesis denies (the cup is blue: it is not red).

Contradiction: where only one value can hold (place, time, number, colour, home, kin, side of the table) the premise has
another one; or negation, an antonym, a comparison the wrong way round.

Three times in four the contradicting premise says plainly that it is not so, and the neutral one is about something
else; in the others:

Neutral: the premise does not say what the hypothesis says of place, time, quality and so on, but something else; or it
is about somebody else.

Premises of all labels carry modifiers that the hypothesis has not, so length says little. How many words both share and
who denies tells the plain ones: a linear model of them gets 0.81 right (tests/data/tinyworld/test_labelled.py).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from .documents import Line
from .frames import Frame
from .languages.base import language
from .nli_families import LABELS, Families, Maker, Unfit, deniable
from .sampling import Sampler, split_of

MAX_WORDS = 10  # of an English premise or hypothesis
PLAIN = 0.75  # share of the hypotheses whose neutral premise is about something else, and of those plainly denied


@dataclass(frozen=True)
class Example:
    premise: Line
    hypothesis: Line
    label: str


class Writer:
    """Makes triples of examples with one hypothesis. All their frames obey the sampler's split."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler, self.rng = sampler, sampler.rng
        self.english = language("en")
        self.tries = 4 if sampler.split == "train" else 60
        self.families = Families(sampler)

    def triples(self) -> Iterator[tuple[Example, ...]]:
        """Endless."""
        weighted = self.families.weighted()
        while True:
            family = self.rng.choice(weighted)
            while True:
                try:
                    yield self.triple(family())
                    break
                except Unfit:
                    continue

    def triple(self, made: tuple[Frame, tuple[Maker, Maker, Maker]]) -> tuple[Example, ...]:
        hypothesis, (entailment, neutral, contradiction) = made
        self._check(hypothesis)
        if self.rng.random() < PLAIN:
            neutral = partial(self.families.unrelated, hypothesis)
        if self.rng.random() < PLAIN and deniable(hypothesis):
            contradiction = partial(self.families.opposite, hypothesis)
        makers = entailment, neutral, contradiction
        said = self._style(hypothesis)
        return tuple(
            Example(self._style(self._premise(hypothesis, make)), said, label)
            for label, make in zip(LABELS, makers, strict=True)
        )

    def _premise(self, hypothesis: Frame, make: Maker) -> Frame:
        tried: Counter[Frame] = Counter()
        for _ in range(self.tries):
            try:
                premise = make()
                tried[premise] += 1
                if tried[premise] == 3:  # few are possible, and none will do
                    break
                self._check(premise)
            except Unfit:
                continue
            if premise != hypothesis:
                return premise
        raise Unfit

    def _check(self, f: Frame) -> None:
        if self._words(f) > MAX_WORDS or not self.sampler.allowed(f):
            raise Unfit

    def _words(self, f: Frame) -> int:
        """About as many words as the English sentence has (rendering it would take long); never fewer in a long one."""
        found = 2 + f.negated + (f.kind in ("compare", "relation", "want"))  # verb, auxiliary; "more … than", "to"
        for slot, np in f.slots:
            lemma = self.english.lemma(np.head)
            found += lemma.count(" ") + 1 + (np.form in ("def", "indef")) + bool(np.adjective) + bool(np.number)
            found += slot in ("place", "companion", "goal", "recipient")
        return found + 2 * (f.predicate in ("in_front_of", "work_for"))

    def _style(self, f: Frame) -> Line:
        adverbial = "time" in f or "place" in f
        return Line(f, int(self.rng.random() < 0.1), adverbial and self.rng.random() < 0.15)


def examples(seed: int, part: str, count: int) -> list[Example]:
    """`count` examples, rounded up to a multiple of 3 (the labels are balanced exactly), shuffled.

    part: "train", "dev" or "test".
    """
    rng = random.Random(f"nli {part} {seed}")
    writer = Writer(Sampler(rng, split_of(part)))
    found: list[Example] = []
    for triple in writer.triples():
        if len(found) >= count:
            break
        found += triple
    rng.shuffle(found)
    return found
