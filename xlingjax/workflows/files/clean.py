"""`xlingjax data clean`: raw files in, files that `pretrain` reads out."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas

from xlingjax.data.clean.models import PACKAGED, identifier
from xlingjax.data.clean.parts import Part, find_parts
from xlingjax.data.clean.pipeline import Work, read_record, run_steps, write_record
from xlingjax.data.clean.settings import CleanSettings
from xlingjax.data.text.files import content_hash
from xlingjax.errors import UserError
from xlingjax.runtime.lock import IN_USE
from xlingjax.runtime.packages import package

STEPS = (
    *("empty", "characters", "length", "tokens", "script", "copies", "ratio", "identify"),
    *("exact", "near"),
)
"""In their order: a line is counted by the first that leaves it out."""
COLUMNS = ("in", "sentences", *STEPS, "out", "documents")
Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class CleanRequest:
    output: str
    mono: tuple[str, ...] = ()
    parallel: tuple[str, ...] = ()
    wikipedia: tuple[str, ...] = ()
    settings: CleanSettings = CleanSettings()
    processes: int = 1


def clean(request: CleanRequest, tell: Callable[[str], None] = print) -> Counts:
    """{language or pair: counts}, which OUTPUT/report.json holds too. An interrupted cleaning goes
    on when it is called again; parts that are finished are kept.

    Raises UserError, before anything is read: no or unreadable input, a package that a step needs,
    a language that a step does not know, an output of another cleaning.
    """
    parts = find_parts(request.mono, request.parallel, request.wikipedia)
    _require_steps(request.settings, parts)
    work = Work(Path(request.output), request.settings, request.processes)
    made_of = _made_of(request.settings, parts)
    report = work.output / "report.json"
    if report.exists():
        finished = read_record(report)
        _require_same(work, finished["made_of"], made_of)
        return finished["texts"]
    begun = work.folder / "begun.json"
    if begun.exists():
        _require_same(work, read_record(begun), made_of)
    elif work.output.exists() and {path.name for path in work.output.iterdir()} - {IN_USE}:
        raise UserError(f"--to {work.output}: there are other files; give a new folder")
    write_record(begun, made_of)
    run_steps(work, parts, tell)
    sums: dict[str, Counter[str]] = {}
    for part in parts:
        counts = sums.setdefault(part.name, Counter())
        counts.update(read_record(work.file("output", part.number, ".json")))
    texts = {name: {column: counts[column] for column in COLUMNS} for name, counts in sums.items()}
    write_record(report, {"texts": texts, "made_of": made_of})
    shutil.rmtree(work.folder)
    return texts


def _require_steps(settings: CleanSettings, parts: Sequence[Part]) -> None:
    """Raises UserError: a package that is missing, a language or model that cannot be read."""
    monolingual = {part.name for part in parts if not part.is_pair}
    dumps = any(isinstance(part.source, Path) for part in parts)
    needs = {
        "ftfy": ("characters", settings.characters),
        "mwxml": ("--wikipedia", dumps),
        "mwparserfromhell": ("--wikipedia", dumps),
        "sentencex": ("splitting sentences", settings.sentences and monolingual),
        "datasketch": ("near duplicates", settings.near is not None),
    }
    for name, (step, needed) in needs.items():
        if needed:
            package(name, step)
    if settings.identify is not None:
        for language in sorted({code for part in parts for code in part.languages}):
            identifier(settings.identify).require(language)


def _made_of(settings: CleanSettings, parts: Sequence[Part]) -> dict[str, Any]:
    """All that the output depends on, as JSON gives it back."""
    made_of = {
        **dataclasses.asdict(settings),
        "model": settings.identify not in (None, PACKAGED) and content_hash(settings.identify),
        "input": [[part.name, part.hash()] for part in parts],
    }
    return json.loads(json.dumps(made_of))


def _require_same(work: Work, begun: Any, now: Any) -> None:
    differ = [name for name in now if begun.get(name) != now[name]]
    if differ:
        raise UserError(
            f"--to {work.output} is of a cleaning with other {', '.join(differ)}: give another"
            " folder, or delete it"
        )


def summary(request: CleanRequest, texts: Counts) -> str:
    """For the terminal: the table, and how the output is read."""
    output = Path(request.output)
    lines = [table(texts), ""]
    for folder, macro in (("mono", "MONO"), ("parallel", "PARALLEL")):
        if (output / folder).is_dir():
            lines.append(f"--gin.{macro}='{output / folder}'")
    return "\n".join(lines)


def table(texts: Counts) -> str:
    """A line per language and pair; steps that left nothing out have no column."""
    rows = pandas.DataFrame(texts).T
    idle = [step for step in STEPS if not rows[step].any()]
    return rows.drop(columns=idle).to_string(formatters=dict.fromkeys(COLUMNS, "{:,}".format))
