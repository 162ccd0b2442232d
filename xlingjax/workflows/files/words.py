"""`xlingjax words`: the token table of a trained run as word embeddings, on dictionaries and
similarity sets."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.errors import UserError
from xlingjax.evaluation import word_embeddings
from xlingjax.inference.run import open_run
from xlingjax.runtime.files import require_apart, write_text
from xlingjax.workflows.files.encode import write


def words(
    run: str,
    dictionaries: Sequence[str],
    similarities: Sequence[str],
    pieces: str = "single",
    output: str = "",
) -> str:
    """A line of figures per file; `output`: the same as JSON. dictionaries, similarities:
    "en-de=FILE".

    Raises UserError before the run is opened: no languages, the same entry twice, what the readers
    raise.
    """
    if not dictionaries and not similarities:
        raise UserError("words needs --dictionary or --similarity: AA-BB=FILE")
    if output:
        for given in dictionaries:
            require_apart(output, {"--dictionary": given.partition("=")[2]})
        for given in similarities:
            require_apart(output, {"--similarity": given.partition("=")[2]})
    of = {
        "dictionary": _read("--dictionary", dictionaries, word_embeddings.read_dictionary),
        "similarity": _read("--similarity", similarities, word_embeddings.read_similarity),
    }
    trained = open_run(run)
    # The table alone, as in XLM §4.5: no sentence is encoded.
    table_VD = np.asarray(trained.params["embeddings"]["tokens"]["embedding"], np.float32)
    scores = {
        "dictionary": word_embeddings.score_dictionary,
        "similarity": word_embeddings.score_similarity,
    }
    result: dict[str, Any] = {
        "run": run,
        "pieces": pieces,
        # Scores of two runs compare only where their words are cut alike.
        "vocabulary": trained.vocabulary.sha256,
    }
    summary = []
    for kind, entries in of.items():
        result[kind] = {}
        for name, (languages, rows) in entries.items():
            values = scores[kind](rows, languages, trained.vocabulary, table_VD, pieces)
            result[kind][name] = values
            figures = [f"{key} {_shown(value)}" for key, value in values.items()]
            summary.append(f"{kind} {name}: {', '.join(figures)}")
    if output:
        text = json.dumps(result, ensure_ascii=False, indent=1) + "\n"
        write(Path(output), lambda: write_text(Path(output), text))
        summary.append(f"{output} written")
    return "\n".join(summary)


def _read(
    option: str, entries: Sequence[str], read: Callable[[str], Any]
) -> dict[str, tuple[tuple[str, str], Any]]:
    """{"en-de": (("en", "de"), what the file holds)}; of several files of one pair the name is the
    entry's."""
    files = {}
    for entry in entries:
        name, equals, path = entry.partition("=")
        codes = name.split("-")
        if not equals or not path or len(codes) != 2 or not all(codes):
            raise UserError(
                f"{option} {entry}: write the two languages and the file, {option} en-de=FILE"
            )
        if not Path(path).is_file():
            raise UserError(f"{option} {entry}: missing file: {path}")
        key = name
        if key in files:
            key = entry
        if key in files:
            raise UserError(f"{option} {entry}: given twice; leave one out")
        files[key] = (codes[0], codes[1]), read(path)
    return files


def _shown(value: float | int | None) -> str:
    if value is None:
        return "undefined"
    if isinstance(value, float):
        return f"{value:.4f}"
    return str(value)
