"""Generated text as an evaluator: what the model writes for held-out sources, and references."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from xlingjax.data.overlap import HeldOut
from xlingjax.data.store.tokenise import language_name
from xlingjax.data.text.texts import Pair
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.text import score, wrong_language_rate
from xlingjax.inference.generate import Generator
from xlingjax.model.decoding import Decoding
from xlingjax.training.evaluator import Evaluator

METRICS = ("bleu", "chrf", "tokenised_bleu", "rouge_l", "wrong_language_rate")


@dataclass(frozen=True)
class Heldout:
    """Source i and its reference; `source` and `target` are their languages."""

    source: str
    target: str
    sources: tuple[str, ...]
    references: tuple[str, ...]
    file: str = field(default="", compare=False)  # the first that they are from

    @property
    def name(self) -> str:
        """The direction, "de-en"; within a language its code."""
        return self.source if self.source == self.target else f"{self.source}-{self.target}"


def heldout(
    pairs: Sequence[Pair], languages: Sequence[str], directions: Sequence[str] = (), limit: int = 0
) -> list[Heldout]:
    """A set for each direction among `languages`: both ways of a pair, within one source to target.

    directions: these alone; limit: the first so many with text on both sides (0: all). Raises
    UserError where nothing is left, or nothing of one of `directions`.
    """
    # By languages and not by files: several files of one direction are one set.
    sides: dict[tuple[str, str], list[tuple[str, str]]] = {}
    files: dict[str, str] = {}
    for pair in pairs:
        # The model has no token or row for other languages.
        if not {*pair.languages} <= {*languages}:
            continue
        files.setdefault(language_name(pair.languages), str(pair.first.path))
        lines = [line for line in pair.lines() if all(line)]
        sides.setdefault(pair.languages, []).extend(lines)
        if pair.translates:
            sides.setdefault(pair.languages[::-1], []).extend(line[::-1] for line in lines)
    sets = {}
    for (source, target), lines in sorted(sides.items()):
        if lines:
            sources, references = zip(*lines[: limit or None], strict=True)
            file = files[language_name((source, target))]
            one = Heldout(source, target, sources, references, file)
            sets[one.name] = one
    for name in directions:
        if name not in sets:
            raise UserError(
                f"held-out pairs: none for {name!r}; there are {', '.join(sets) or 'none'}"
            )
    if not sets:
        raise UserError(
            "held-out pairs: no line with text on both sides in the run's languages,"
            f" {', '.join(languages)}"
        )
    return [one for name, one in sets.items() if not directions or name in directions]


@dataclass
class GenerationScore(Evaluator):
    """Metrics of what the model writes for held-out sources, as an evaluator.

    Values: {metric: {direction: value}} for `METRICS`, and their means over directions,
    {"bleu_mean": x, ...}; of `trained_on`, directions or, within a language, codes, also
    {"bleu_trained": x, "bleu_others": y, ...}; "signatures" by direction; "lines" {direction:
    count}; "truncated": sources cut at the position table; "samples", of each direction the first
    `samples` lines: {"direction", "source", "reference", "output"}.

    Languages of one script are told apart by the sources and references of all directions.
    """

    sets: Sequence[Heldout]
    vocabulary: Any
    languages: Sequence[str]
    decoding: Decoding = Decoding()  # noqa: RUF009 - frozen
    lowercase: bool = False
    trained_on: Sequence[str] = ()
    samples: int = 3
    tokens_per_batch: int = 4096
    at_end: bool = False
    name: str = "generation"

    def __post_init__(self):
        self.texts: dict[str, list[str]] = {}
        for one in self.sets:
            self.texts.setdefault(one.source, []).extend(one.sources)
            self.texts.setdefault(one.target, []).extend(one.references)
        for one in self.sets:
            wrong_language_rate(one.references[:1], one.target, self.texts)

    def held_out(self) -> list[HeldOut]:
        return [
            HeldOut.of(one.file, (one.source, one.target), (one.sources, one.references))
            for one in self.sets
        ]

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        generator = Generator(
            model,
            params,
            self.vocabulary,
            self.languages,
            self.decoding,
            mesh,
            self.tokens_per_batch,
            # A held-out line that is too long must not end a training; how many there are is told.
            truncate=True,
        )
        values: dict[str, Any] = {metric: {} for metric in METRICS}
        values |= {"kind": "generation", "signatures": {}, "lines": {}, "truncated": 0}
        values["samples"] = []
        for one in self.sets:
            made = generator.generate(one.sources, one.source, one.target)
            outputs = [best.text for best, *_ in made]
            scores = score(outputs, one.references, one.target, self.lowercase, self.texts)
            for name in (*METRICS, "signatures"):
                values[name][one.name] = scores[name]
            values["lines"][one.name] = len(outputs)
            # With the tokens that open and close it.
            lengths = [len(self.vocabulary.encode(line)) + 2 for line in one.sources]
            values["truncated"] += sum(length > generator.longest_source for length in lengths)
            keys = ("source", "reference", "output")
            shown = zip(one.sources, one.references, outputs, strict=True)
            for texts in islice(shown, self.samples):
                sample = dict(zip(keys, texts, strict=True))
                values["samples"].append({"direction": one.name} | sample)
        return values | self._means(values)

    def _means(self, values: Mapping[str, Any]) -> dict[str, float]:
        names = [one.name for one in self.sets]
        groups = {"mean": names}
        if self.trained_on:
            groups["trained"] = [name for name in names if name in self.trained_on]
            groups["others"] = [name for name in names if name not in self.trained_on]
        return {
            f"{metric}_{group}": float(np.mean([values[metric][name] for name in of]))
            for metric in METRICS
            for group, of in groups.items()
            if of
        }
