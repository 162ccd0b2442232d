"""The input of a cleaning in parts: one file of text, one pair of files, or one dump."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xlingjax.data.clean.wikipedia import wikipedia_language
from xlingjax.data.text.files import content_hash
from xlingjax.data.text.sources import expand, find_pairs, find_text
from xlingjax.data.text.texts import Pair, Text
from xlingjax.errors import UserError


@dataclass(frozen=True)
class Part:
    """What one worker cleans at a time."""

    number: int  # in the order of the corpus: of two equal texts that of the lower part stays
    source: Text | Pair | Path  # a path is that of a dump
    languages: tuple[str, ...]
    index: int  # among those of its languages: `part-00000.txt`

    @property
    def name(self) -> str:
        """Of the text that is cleaned together: a language, or two."""
        return "-".join(self.languages)

    @property
    def is_pair(self) -> bool:
        return len(self.languages) == 2

    @property
    def outputs(self) -> list[str]:
        """The names of its files in the output, one per language, which `pretrain` reads."""
        stem = f"part-{self.index:05d}"
        if not self.is_pair:
            return [f"mono/{self.name}/{stem}.txt"]
        return [f"parallel/{stem}.{self.name}.{code}" for code in self.languages]

    def hash(self) -> str:
        """Of what is read, whatever its path."""
        if isinstance(self.source, Path):
            keys = [content_hash(self.source)]
        else:
            keys = [side.key for side in self.source.sides]
        text = json.dumps([self.number, self.name, self.index, *keys])
        return hashlib.sha256(text.encode()).hexdigest()

    def shown(self) -> str:
        if isinstance(self.source, Path):
            return str(self.source)
        return " ".join(str(side.path) for side in self.source.sides)


def find_parts(
    mono: Sequence[str] = (), parallel: Sequence[str] = (), wikipedia: Sequence[str] = ()
) -> list[Part]:
    """All parts, sorted by language and path. Raises UserError: nothing to clean, what `find_text`,
    `find_pairs` and `wikipedia_language` raise, pairs within one language."""
    sources: list[tuple[tuple[str, ...], str, Text | Pair | Path]] = []
    if mono:
        for text in find_text(mono):
            sources.append(((text.language,), str(text.path), text))
    if wikipedia:
        for path, code in expand(wikipedia, "dump"):
            language = code or wikipedia_language(path)
            sources.append(((language,), str(path), path))
    if parallel:
        for pair in find_pairs(parallel):
            if not pair.translates:
                raise UserError(f"{pair.first.path}: two texts of one language; leave them out")
            sources.append((pair.languages, str(pair.first.path), pair))
    if not sources:
        raise UserError("nothing to clean; give --mono, --parallel or --wikipedia")
    sources.sort(key=lambda entry: (len(entry[0]), *entry[:2]))
    parts = []
    counts: dict[str, int] = {}
    for number, (languages, _, source) in enumerate(sources):
        part = Part(number, source, languages, counts.get("-".join(languages), 0))
        counts[part.name] = part.index + 1
        parts.append(part)
    return parts
