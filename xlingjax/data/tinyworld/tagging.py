"""Sentences for part-of-speech and named-entity tagging: their tokens carry the tags."""

from __future__ import annotations

import random
from dataclasses import replace

from .documents import Line, style
from .frames import FACT_KINDS, KINDS, Frame
from .sampling import SENTENCE_KINDS, Sampler, split_of

# Kinds in which names come often.
_NAMING = (
    "state",
    "state",
    "relation",
    "weather",
    "motion",
    "give",
    "action",
    "event",
    "compare",
    "inside",
    "profession",
)


def question(rng: random.Random, f: Frame) -> Frame:
    """The frame as a question about one of its phrases, if it can be one."""
    slots = [s for s in KINDS[f.kind].asks if s in f or (s == "number" and f["object"].form == "number")]
    return f if f.negated or not slots else replace(f, ask=rng.choice(slots))


def sentences(name: str, seed: int, part: str, count: int) -> list[Line]:
    """name: "pos" (all kinds, some questions) or "ner" (kinds that name people, places, organisations)."""
    rng = random.Random(f"{name} {part} {seed}")
    sampler = Sampler(rng, split_of(part))
    kinds = _NAMING if name == "ner" else SENTENCE_KINDS
    kinds = [k for k in kinds if part == "train" or k not in FACT_KINDS]
    found = []
    for _ in range(count):
        f = sampler.frame(rng.choice(kinds))
        found.append(style(rng, question(rng, f) if rng.random() < 0.08 else f))
    return found
