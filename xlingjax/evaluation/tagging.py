"""Tags of words, of a fine-tuned model."""

import functools
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from xlingjax.data.labelled.records import Tagged
from xlingjax.inference.encode import on_xla, place, row_multiple
from xlingjax.objectives.finetuning import Tagging
from xlingjax.preprocessors.finetuning import tagged_parts, tagged_rows

NO_TAG = "O"


@functools.lru_cache(maxsize=16)
def _logits(model, objective: Tagging, mesh):
    model = on_xla(model, mesh)
    replicated = NamedSharding(mesh, PartitionSpec()) if mesh is not None else None
    return jax.jit(
        lambda params, batch: objective.logits(model, params, batch).argmax(-1),
        out_shardings=replicated,
    )


def predict(
    model, params, rows: Mapping[str, np.ndarray], *, batch_size: int = 64, mesh=None
) -> np.ndarray:
    """int[N, L]: the likeliest tag at every piece (see `tagged_rows`)."""
    run = _logits(model, Tagging(model.config.num_labels), mesh)
    multiple = row_multiple(mesh)
    size = -(-batch_size // multiple) * multiple
    parts = []
    for start in range(0, len(rows["input_ids"]), size):
        part = {
            name: values[start : start + size]
            for name, values in rows.items()
            if not name.startswith("tag_")
        }
        missing = size - len(part["input_ids"])
        part = {
            name: np.pad(values, [(0, missing), (0, 0)])
            for name, values in part.items()
        }
        parts.append(np.asarray(run(params, place(part, mesh)))[: size - missing])
    return np.concatenate(parts)


def predict_tags(
    model,
    params,
    sentences: Sequence[Tagged],
    vocabulary,
    tags: Sequence[str],
    language: str,
    language_id: int,
    *,
    length: int = 128,
    batch_size: int = 64,
    mesh=None,
    apart: bool = True,
    marks: str = "kept",
) -> list[list[str]]:
    """A tag for every word of every sentence, that of its first piece, from all rows that the
    sentence takes (see `tagged_parts`). A word without a piece of its own gets "O", or of tags
    without it that of the word before, whose piece it shares. apart, marks: see `pieces_of_words`.
    """
    rows = tagged_rows(
        sentences,
        vocabulary,
        length,
        tags,
        language,
        language_id,
        apart=apart,
        marks=marks,
    )
    found = predict(model, params, rows, batch_size=batch_size, mesh=mesh)
    made = [[""] * len(sentence.words) for sentence in sentences]
    for row, (number, _, owners) in enumerate(
        tagged_parts(sentences, vocabulary, length, language, apart, marks)
    ):
        for column, word in reversed(
            [*enumerate(owners, 1)]
        ):  # the first piece has the word
            made[number][word] = tags[found[row, column]]
    for own in made:
        for word, tag in enumerate(own):
            if not tag:
                own[word] = (
                    NO_TAG if NO_TAG in tags else own[word - 1] if word else tags[0]
                )
    return made
