"""`xlingjax words`: a run's token table as word embeddings, on dictionaries and similarity sets."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xlingjax.errors import UserError
from xlingjax.evaluation import word_embeddings
from xlingjax.inference.run import open_run
from xlingjax.runtime.files import require_apart, write_json
from xlingjax.workflows.files.encode import writing


def words(
    run: str,
    dictionaries: Sequence[str] = (),
    similarities: Sequence[str] = (),
    pieces: str = "single",
    output: str = "",
) -> str:
    """A line of figures per file; output: in JSON. dictionaries, similarities: "en-de=FILE".

    Raises UserError before the run is opened: no languages, an entry twice, unreadable files.
    """
    if not dictionaries and not similarities:
        raise UserError("words needs --dictionary or --similarity: AA-BB=FILE")
    kinds = {
        "dictionary": (
            dictionaries,
            word_embeddings.read_dictionary,
            word_embeddings.score_dictionary,
        ),
        "similarity": (
            similarities,
            word_embeddings.read_similarity,
            word_embeddings.score_similarity,
        ),
    }
    read = {}  # {kind: {name: rows}}
    for kind, (entries, reader, _) in kinds.items():
        read[kind] = {}
        for entry in entries:
            name, _, path = entry.partition("=")
            first, _, second = name.partition("-")
            # Of several files of one pair the name is the entry's.
            name = entry if name in read[kind] else name
            if not (first and second and path) or name in read[kind]:
                raise UserError(
                    f"--{kind} {entry}: write the two languages and the file, --{kind}"
                    " en-de=FILE, each once"
                )
            if not Path(path).is_file():
                raise UserError(f"--{kind} {entry}: missing file: {path}")
            if output:
                require_apart(output, {f"--{kind}": path})
            read[kind][name] = reader(path)
    trained = open_run(run)
    # The table alone, as in XLM §4.5: no sentence is encoded.
    table_VD = np.asarray(trained.params["embeddings"]["tokens"]["embedding"], np.float32)
    result = {
        "run": run,
        "pieces": pieces,
        # Scores of two runs compare only where their words are cut alike.
        "vocabulary": trained.vocabulary.sha256,
    }
    summary = []
    for kind, (_, _, score) in kinds.items():
        result[kind] = {}
        for name, rows in read[kind].items():
            values = score(rows, trained.vocabulary, table_VD, pieces)
            result[kind][name] = values
            figures = [f"{key} {_shown(value)}" for key, value in values.items()]
            summary.append(f"{kind} {name}: {', '.join(figures)}")
    if output:
        with writing(Path(output)):
            write_json(Path(output), result)
        summary.append(f"{output} written")
    return "\n".join(summary)


def _shown(value: float | int | None) -> str:
    if value is None:
        return "undefined"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
