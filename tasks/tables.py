"""The benchmarks' tables, SUITE.toml, as tasks, and the readers of their files, readers.toml."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.labelled import pairs, questions, text, words
from xlingjax.data.labelled.task import Files, Task

READERS: dict[str, Callable[..., Sequence[Any]]] = {
    "bucc": pairs.read_bucc,
    "source_target": pairs.read_source_target,
    "tatoeba": pairs.read_tatoeba,
    "squad": questions.read_squad,
    "tydiqa": questions.read_tydiqa,
    "table": text.Table(),
    "translated": text.read_translated,
    "xcopa": text.read_xcopa,
    "xsid_intents": text.read_xsid_intents,
    "columns": words.Columns(),
    "conllu": words.read_conllu,
    "tagged_lines": words.read_tagged_lines,
    "wikiann": words.read_wikiann,
}
"""By their names in the tables; those of readers.toml are added below."""


def _tables(name: str) -> dict[str, Any]:
    path = Path(__file__).with_name(f"{name}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _with_options(of: str, **options: Any) -> Callable[..., Sequence[Any]]:
    reader = READERS[of]
    if not dataclasses.is_dataclass(reader):
        return functools.partial(reader, **options)
    for name, value in options.items():
        if isinstance(value, list):
            options[name] = tuple(value)
    return dataclasses.replace(reader, **options)


for _name, _options in _tables("readers").items():
    READERS[_name] = _with_options(**_options)


def _place(line: str) -> Files:
    reader, *patterns = line.split()
    name, _, languages = reader.partition(":")
    return Files(tuple(patterns), READERS[name], tuple(languages.split(",")) if languages else None)


@functools.cache
def tasks_of(suite: str) -> tuple[Task, ...]:
    """In the order of the table."""
    tasks = []
    for name, table in _tables(suite).items():
        for field in ("languages", "metrics", "labels", "averaged"):
            if field in table:
                table[field] = tuple(table[field].split())
        for split, places in table["files"].items():
            table["files"][split] = tuple(map(_place, places))
        tasks.append(Task(suite=suite, name=name, **table))
    return tuple(tasks)
