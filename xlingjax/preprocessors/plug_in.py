"""Labelled pairs that are given in two languages, to the rows of plug-in fine-tuning (VECO §3.1).

A row is the example in one language, then in the other, each as `pair_row` lays it out and padded
by itself.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from xlingjax.data.labelled.records import Example
from xlingjax.data.labelled.text import read_labelled_tsv
from xlingjax.data.loader import BatchSource
from xlingjax.errors import UserError
from xlingjax.preprocessors.finetuning import classification_rows, shuffled_rows


def read_paired_tsv(
    files: Sequence[str | Path], labels: Sequence[str] | None = None
) -> tuple[list[Example], list[Example]]:
    """The examples of two labelled files, those of one language translating those of the other line
    by line (see `read_labelled_tsv`).

    Raises UserError naming both files where their numbers of examples differ, and with the lines
    where labels do.
    """
    first, second = (read_labelled_tsv(path, labels) for path in files)
    if len(first) != len(second):
        raise UserError(
            f"{files[0]} has {len(first)} examples and {files[1]} has {len(second)}: plug-in"
            " fine-tuning reads the same examples in two languages, line by line; translate the"
            " rest or remove it"
        )
    for a, b in zip(first, second, strict=True):
        if a.label != b.label:
            raise UserError(
                f"{files[0]}, line {a.line}: label {a.label!r}, and {b.label!r} in {files[1]}, line"
                f" {b.line}: the two files must hold the same examples in the same order"
            )
    return first, second


def paired_rows(
    first: Sequence[Example],
    second: Sequence[Example],
    vocabulary,
    length: int,
    labels: Sequence[str],
    language_ids: Sequence[int],
    reset_positions: bool = False,
) -> dict[str, np.ndarray]:
    """Arrays [N, 2 * length] and [N], the features that `PlugIn` reads: side 0 is `first` in
    columns 0 to length, side 1 `second` in the others. Positions start anew with it."""
    one, two = (
        classification_rows(examples, vocabulary, length, labels, language, reset_positions)
        for examples, language in zip((first, second), language_ids, strict=True)
    )
    rows = {name: one[name] for name in ("labels", "example_weights")}
    for name in ("input_ids", "position_ids", "language_ids", "pack_ids"):
        rows[name] = np.concatenate([one[name], two[name]], axis=1)
    # The texts within an example need no side: plugged in, each example is one text, as VECO's side
    # is.
    rows["sides"] = np.concatenate([np.zeros_like(one["pack_ids"]), two["pack_ids"]], axis=1)
    return rows


def paired_source(
    files: Mapping[tuple[str, str], Sequence[str | Path]],
    vocabulary,
    languages: Sequence[str],
    *,
    labels: Sequence[str],
    length: int = 128,
    batch_size: int = 32,
    seed: int = 0,
    reset_positions: bool = False,
) -> BatchSource:
    """Shuffled batches of paired labelled files, {(language, other language): (its TSV, the
    other's)}.

    `languages` are the run's, sorted. Raises UserError for the files' faults (see
    `read_paired_tsv`) and for a strange language.
    """
    parts = []
    for pair, paths in sorted(files.items()):
        for language, path in zip(pair, paths, strict=True):
            if language not in languages:
                raise UserError(
                    f"{path}: language {language!r} is not one of the run's"
                    f" ({', '.join(languages)})"
                )
        ids = [list(languages).index(language) for language in pair]
        parts.append(
            paired_rows(
                *read_paired_tsv(paths, labels), vocabulary, length, labels, ids, reset_positions
            )
        )
    mixture = f"labelled pairs in {', '.join('-'.join(pair) for pair in sorted(files))}"
    identity = {
        "mixture": mixture,
        "vocabulary": vocabulary.sha256,
        "labels": list(labels),
        "length": length,
    }
    names = ["-".join(pair) for pair in sorted(files)]
    return shuffled_rows(
        parts, batch_size, languages=languages, seed=seed, identity=identity, names=names
    )
