"""Vocabulary surgery: a trained model with more pieces, with fewer, or with another vocabulary: a
workdir in, a workdir out. `data/vocabulary/surgery.py` makes the vocabularies, and in
`vocabulary_rows` the rows of the parameters follow them."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.convert.vocabulary_rows import Rows, moved, rows_between
from xlingjax.data.text.texts import Text
from xlingjax.data.vocabulary import surgery
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.training import (
    format_report,
    sentences_of,
    texts_by_language,
    vocabulary_report,
)
from xlingjax.errors import UserError
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.model.build import count_parameters
from xlingjax.runtime.records import read_text
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.training.run_record import DENSE_FILE, read_run_record, run_and_checkpoint
from xlingjax.training.workdir import require_empty, write_trained


def extend(
    run: str,
    output: str,
    *,
    mono: Sequence[str] = (),
    parallel: Sequence[str] = (),
    pieces: int,
    old_mono: Sequence[str] = (),
    initialise: str = "mean",
    seed: int = 0,
    **learning: Any,
) -> str:
    """Writes the model of `run` with `pieces` more pieces, learnt on the text, to the workdir
    `output`. Returns what was done, with the vocabulary before and after on the text of each
    language.

    old_mono: text of the old languages: new pieces that it would use are left out (see
    `surgery.extend`). learning: options of the new pieces. Languages that the run does not have get
    a row in its table of languages, the mean of the others'. Raises UserError.
    """
    require_empty(output)
    texts = texts_by_language(mono, parallel, require_aligned=True)
    old_texts = texts_by_language(old_mono) if old_mono else {}
    trained = open_run(run)
    old_lines = [line for of_language in old_texts.values() for line in sentences_of(of_language)]
    new = surgery.extend(
        trained.vocabulary, texts, pieces, old_lines=old_lines, seed=seed, **learning
    )
    rows = rows_between(trained.vocabulary, new, initialise)
    return _write(
        run, output, trained, new, rows, seed, "extend", [], {**texts, **old_texts}, [*texts]
    )


def trim(
    run: str,
    output: str,
    *,
    mono: Sequence[str] = (),
    parallel: Sequence[str] = (),
    min_count: int = 1,
    size: int | None = None,
    characters: bool = True,
) -> str:
    """Writes the model of `run` with the pieces alone that the text uses (see
    `surgery.trim`) to the workdir `output`. Logits of the pieces that stay are the same.
    Returns what was done. Raises UserError."""
    require_empty(output)
    texts = texts_by_language(mono, parallel, require_aligned=True)
    trained = open_run(run)
    pieces = size and size - trained.model.config.language_tokens
    new = surgery.trim(
        trained.vocabulary,
        [*itertools.chain.from_iterable(texts.values())],
        min_count=min_count,
        size=pieces,
        characters=characters,
    )
    rows = rows_between(trained.vocabulary, new)
    return _write(run, output, trained, new, rows, 0, "trim", [], texts)


def transplant(
    run: str,
    output: str,
    vocabulary: str,
    *,
    mono: Sequence[str] = (),
    parallel: Sequence[str] = (),
    initialise: str = "mean",
    seed: int = 0,
) -> str:
    """Writes the model of `run` on another vocabulary to the workdir `output`: pieces that both
    have keep their rows, the others get one as in `extend`. The text is for the report. Returns
    what was done. Raises UserError."""
    require_empty(output)
    new = Vocabulary.load(vocabulary)
    texts = texts_by_language(mono, parallel, require_aligned=True) if mono or parallel else {}
    trained = open_run(run)
    # By content: a copy of the run's own file is the same.
    if new == trained.vocabulary:
        raise UserError(f"--vocabulary {vocabulary} is the one that {run} has; give another")
    rows = rows_between(trained.vocabulary, new, initialise)
    notes = []
    if new.layout != trained.vocabulary.layout:
        notes.append(
            f"layout {trained.vocabulary.layout} -> {new.layout}: sentences begin with another"
            " row now"
        )
    return _write(run, output, trained, new, rows, seed, "transplant", notes, texts)


def _write(
    run: str,
    output: str,
    trained: TrainedRun,
    new: Vocabulary,
    rows: Rows,
    seed: int,
    verb: str,
    notes: list[str],
    texts: Mapping[str, Sequence[Text]],
    added: Sequence[str] = (),
) -> str:
    old = trained.vocabulary
    config = trained.model.config
    before = list(trained.languages)
    # A run without languages, an imported one, stays so.
    after = [*before, *sorted({*added} - {*before})] if before else []
    if before == sorted(before):
        after.sort()
    old_numbers = [before.index(code) if code in before else -1 for code in after]
    if config.table_rows:
        notes.append(f"{config.table_rows - config.vocab_size} rows without a piece left behind")
    sizes: dict[str, Any] = {"vocab_size": new.size, "table_rows": None}
    if config.language_tokens:
        sizes |= {"vocab_size": new.size + len(after), "language_tokens": len(after)}
    if config.has_languages:
        sizes["num_languages"] = len(after)
    model = config.replace(**sizes)
    ordinary = np.setdiff1d(np.arange(old.size), [*old.special_ids])
    params = moved(trained.params, config, model, rows, ordinary, old_numbers, seed)
    parameters = count_parameters(model)
    lines = [
        f"{output}: {old.size:,} -> {new.size:,} pieces, {count_parameters(config):,} ->"
        f" {parameters:,} parameters",
        rows.summary,
        *notes,
    ]
    if after != before:
        lines.append(f"languages: {' '.join(after)}; {', '.join({*after} - {*before})} new")
    lines.append("parameters alone: a run with INIT_FROM begins with a fresh optimizer")
    report_before = vocabulary_report(old, texts)
    report_after = vocabulary_report(new, texts)
    if texts:
        lines.append(format_report(report_after, report_before))
    files = new.files()
    folder = Path(output).absolute()
    old_folder, _ = run_and_checkpoint(run)
    recipe = old_folder / "config.gin"
    if recipe.exists():
        text = read_text(recipe, "put it back from a copy, or remove it")
        files["config.gin"] = _recipe(text, folder, verb, after, before)
    if trained.dense:
        files[DENSE_FILE] = trained.dense.content()
    record = read_run_record(run)
    record["model"].update(sizes)
    record["identity"]["model"].update(sizes)
    # The data of the old run were in other ids: nothing of them holds for this one.
    record["identity"]["data"] = {"surgery": {"vocabulary": new.sha256}}
    if "vocabulary_sha256" in record.get("config", {}):
        record["config"]["vocabulary"] = str(folder)
        record["config"]["vocabulary_sha256"] = new.sha256
    change = {
        "verb": verb,
        "from": str(run),
        "rows": rows.summary,
        "pieces": [old.size, new.size],
        "before": report_before,
        "after": report_after,
    }
    record["languages"] = after
    record["parameters"] = parameters
    record["surgery"] = [*record.get("surgery", []), change]
    write_trained(output, record, find_checkpoint(run).name, params, files)
    return "\n".join(lines)


def _recipe(
    text: str, folder: Path, verb: str, after: Sequence[str], before: Sequence[str]
) -> bytes:
    # Fine-tuning has model and vocabulary of the run that it starts from.
    where = "INIT_FROM" if "corpus.run = %INIT_FROM" in text else "VOCABULARY"
    # Appended, since of two bindings gin keeps the later one.
    lines = [f"# By `xlingjax vocab {verb}`:", f"{where} = {str(folder)!r}"]
    if after != before:
        lines.append(f"LANGUAGES = {' '.join(after)!r}")
    if "VOCABULARY_SIZE =" in text:
        # The old number would contradict the new vocabulary.
        lines.append("VOCABULARY_SIZE = None")
    return "\n".join([text, *lines, ""]).encode()
