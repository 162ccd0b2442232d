"""Tags of words, of a fine-tuned model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlingjax.data.labelled.records import Tagged
from xlingjax.inference.encode import language_index
from xlingjax.inference.forward import by_length, compiled
from xlingjax.inference.run import TrainedRun
from xlingjax.objectives.finetuning import Tagging
from xlingjax.objectives.plug_in import PlugInTagging
from xlingjax.preprocessors.finetuning import places_of_parts, tagged_rows
from xlingjax.preprocessors.task_rows import Beside, Reading, side_by_side

NO_TAG = "O"


def _likeliest(model, objective: Tagging, params, batch):
    return objective.logits(model, params, batch).argmax(-1)


def _objective(config) -> Tagging:
    kind = PlugInTagging if config.plugged_in else Tagging
    return kind(config.num_labels)


def predict(
    model, params, rows: Mapping[str, np.ndarray], *, batch_size: int = 64, mesh=None
) -> np.ndarray:
    """int[N, L]: the likeliest tag at every piece (see `tagged_rows`)."""
    fields = {name: values for name, values in rows.items() if not name.startswith("tag_")}
    run = compiled(_likeliest, model, mesh, _objective(model.config))
    return by_length(
        run, params, fields, batch_size, mesh, texts=1 + model.config.plugged_in, of_tokens=True
    )


def predict_tags(
    run: TrainedRun,
    sentences: Sequence[Tagged],
    tags: Sequence[str],
    language: str,
    reading: Reading,
    marks: str = "kept",
    beside: Beside | None = None,
) -> list[list[str]]:
    """A tag for every word of every sentence, that of its first piece, from all rows that the
    sentence takes (see `tagged_parts`). A word without a piece of its own gets "O", or of tags
    without it that of the word before, whose piece it shares. marks: see `pieces_of_words`.
    beside: of a model that is plugged in, the translation of each sentence."""
    how: dict[str, Any] = {"apart": reading.apart, "marks": marks}
    of = run.vocabulary, reading.length, tags
    rows, parts = tagged_rows(sentences, *of, language, language_index(language, run), **how)
    if beside is not None:
        two, others = tagged_rows(beside.records, *of, beside.language, beside.language_id, **how)
        rows = side_by_side(rows, places_of_parts(parts), two, places_of_parts(others))
    # At every piece: which one is a word's first is looked up below.
    found = predict(run.model, run.params, rows, mesh=run.mesh)
    made = [[""] * len(sentence.words) for sentence in sentences]
    for row, (number, _, owners) in enumerate(parts):
        # Backwards, so that the first piece of a word has the last say.
        for column, word in reversed([*enumerate(owners, 1)]):
            made[number][word] = tags[found[row, column]]
    for own in made:
        _fill_gaps(own, tags)
    return made


def _fill_gaps(own: list[str], tags: Sequence[str]) -> None:
    """Gives the words without a piece of their own a tag, in place."""
    for word, tag in enumerate(own):
        if tag:
            continue
        # Tags of entities have O for words that are none; tags of words (UPOS) have no such tag.
        if NO_TAG in tags:
            own[word] = NO_TAG
        elif word:
            own[word] = own[word - 1]
        else:
            own[word] = tags[0]
