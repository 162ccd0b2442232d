"""`xlingjax data clean`: raw files in, files that `pretrain` reads out."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.clean import duplicates, steps
from xlingjax.data.clean.engine import Engine, engine
from xlingjax.data.clean.extras import package
from xlingjax.data.clean.identification import PACKAGED, identifier
from xlingjax.data.clean.language_model import is_kenlm, kenlm_scorer, limits
from xlingjax.data.clean.parts import Part, find_parts
from xlingjax.data.clean.settings import CleanSettings
from xlingjax.data.clean.work import DROPS, Work, read_array, read_record, write_record
from xlingjax.data.text_files import content_hash
from xlingjax.errors import UserError
from xlingjax.runtime.lock import IN_USE
from xlingjax.workflows.clean_report import COLUMNS, table

REPORT = "report.json"


@dataclass(frozen=True)
class CleanRequest:
    output: str
    mono: tuple[str, ...] = ()
    parallel: tuple[str, ...] = ()
    wikipedia: tuple[str, ...] = ()
    settings: CleanSettings = CleanSettings()
    runner: str = "none"
    workers: int = 1
    beam: tuple[str, ...] = ()
    """Beam's own options."""


def clean(request: CleanRequest, tell: Callable[[str], None] = print) -> dict[str, dict[str, int]]:
    """{language or pair: counts}, which OUTPUT/report.json holds too. An interrupted cleaning goes
    on when it is called again; parts that are finished are kept.

    Raises UserError, before anything is read: no or unreadable input, a package that a step needs,
    a language that a step does not know, an output of another cleaning.
    """
    settings = request.settings
    runner = engine(request.runner, request.workers, request.beam)
    parts = find_parts(request.mono, request.parallel, request.wikipedia)
    require_steps(settings, parts)
    work = Work(Path(request.output), settings)
    made_of = _made_of(settings, parts)
    report = work.output / REPORT
    if report.exists():
        finished = read_record(report, ("made_of", "texts"))
        _require_same(work, finished["made_of"], made_of)
        return finished["texts"]
    begun = work.folder / "begun.json"
    if begun.exists():
        _require_same(work, read_record(begun), made_of)
    elif work.output.exists() and {path.name for path in work.output.iterdir()} - {IN_USE}:
        raise UserError(f"--output {work.output}: there are other files; give a new folder")
    write_record(begun, made_of)
    _run(work, runner, parts, tell)
    texts = _sums(work, parts)
    write_record(report, {"texts": texts, "made_of": made_of})
    shutil.rmtree(work.folder)
    return texts


def _run(work: Work, runner: Engine, parts: Sequence[Part], tell: Callable[[str], None]) -> None:
    settings = work.settings
    tell(f"lines of {len(parts)} files")
    runner.each(work, functools.partial(steps.write_lines, work), parts)
    if settings.exact and not _all_done(work, "exact", parts):
        tell("repetitions")
        runner.group(
            work, steps.exact_keys, steps.exact_repetitions, steps.write_dropped_lines, parts
        )
    if settings.near is not None and not _all_done(work, "near", parts):
        tell("near repetitions")
        runner.each(work, functools.partial(steps.write_signatures, work), parts)
        runner.group(
            work,
            steps.near_keys,
            steps.near_repetitions,
            steps.write_dropped_units,
            parts,
            duplicates.BANDS,
        )
    ranges: dict[str, list[tuple[float, float]]] = {}
    if settings.language_models:
        tell("perplexities")
        score = functools.partial(steps.write_perplexities, work, scorer_of)
        runner.each(work, score, parts)
        ranges = _ranges(work, parts)
    tell("output")
    write = functools.partial(steps.write_output, work, ranges)
    runner.each(work, write, parts)


def _all_done(work: Work, step: str, parts: Sequence[Part]) -> bool:
    return all(work.file(step, part, ".npy").exists() for part in parts)


def _ranges(work: Work, parts: Sequence[Part]) -> dict[str, list[tuple[float, float]]]:
    """Of the perplexities that stay, by language: percentiles are those of all of its parts."""
    settings = work.settings
    ranges = {}
    for language, _ in settings.language_models:
        values = []
        for part in parts:
            if part.name == language:
                values.append(read_array(work.file("perplexity", part, ".npy")))
        together = np.concatenate(values)
        # Nothing is left of this language, and nothing has to be kept.
        if not len(together):
            together = np.ones(1)
        ranges[language] = limits(together, settings.keep, settings.percentiles)
    return ranges


def scorer_of(path: str, language: str):
    """The language model of a file of KenLM or of a run."""
    if is_kenlm(path):
        return kenlm_scorer(path)
    # JAX takes seconds to import, in each process of a runner.
    from xlingjax.workflows.clean_model import run_scorer

    return run_scorer(path, language)


# --- Before anything is read ----------------------------------------------------------------------


def require_steps(settings: CleanSettings, parts: Sequence[Part]) -> None:
    """Raises UserError: a package that a step needs, a language that it does not know, a model that
    cannot be read."""
    languages = sorted({code for part in parts for code in part.languages})
    monolingual = {part.name for part in parts if not part.is_pair}
    if any(isinstance(part.source, Path) for part in parts):
        package("mwxml", "--wikipedia")
        package("mwparserfromhell", "--wikipedia")
    if settings.sentences and monolingual:
        package("sentencex", "splitting sentences")
    if settings.punctuation:
        package("sacremoses", "--punctuation")
    if settings.near is not None:
        package("datasketch", "near duplicates")
    if settings.identify is not None:
        for language in languages:
            identifier(settings.identify).require(language)
    for language, path in settings.language_models:
        if language not in monolingual:
            raise UserError(
                f"--language_model {language}={path}: there is no monolingual text in {language}"
            )
        scorer_of(path, language)


def _made_of(settings: CleanSettings, parts: Sequence[Part]) -> dict[str, Any]:
    """All that the output depends on, as JSON gives it back."""
    files = {}
    for _, path in settings.language_models:
        if is_kenlm(path):
            files[path] = content_hash(path)
    if settings.identify is not None and settings.identify != PACKAGED:
        files[settings.identify] = content_hash(settings.identify)
    values = {}
    for name, value in dataclasses.asdict(settings).items():
        if isinstance(value, tuple):
            value = [list(one) if isinstance(one, tuple) else one for one in value]
        values[name] = value
    return {
        "settings": values,
        "models": files,
        "input": [[part.name, part.shown(), part.hash()] for part in parts],
    }


def _require_same(work: Work, begun: Any, now: Any) -> None:
    """Raises UserError where the folder is of another cleaning."""
    differ = [
        name for name, value in now["settings"].items() if begun["settings"].get(name) != value
    ]
    if begun["models"] != now["models"]:
        differ.append("models")
    if [entry[2] for entry in begun["input"]] != [entry[2] for entry in now["input"]]:
        differ.append("input")
    if differ:
        raise UserError(
            f"--output {work.output} is of a cleaning with other {', '.join(differ)}: give another"
            " folder, or delete it"
        )


# --- Counts ---------------------------------------------------------------------------------------


def _sums(work: Work, parts: Sequence[Part]) -> dict[str, dict[str, int]]:
    texts: dict[str, Counter[str]] = {}
    for part in parts:
        counts = texts.setdefault(part.name, Counter())
        counts.update(read_record(work.file("output", part, ".json")))
    return {name: {column: counts[column] for column in COLUMNS} for name, counts in texts.items()}


def summary(request: CleanRequest, texts: dict[str, dict[str, int]]) -> str:
    """For the terminal: the table, and how the output is read."""
    output = Path(request.output)
    lines = [table(texts), ""]
    for folder, macro in (("mono", "MONO"), ("parallel", "PARALLEL")):
        if (output / folder).is_dir():
            lines.append(f"--gin.{macro}='{output / folder}'")
    return "\n".join(lines)


assert set(DROPS) < set(COLUMNS)
