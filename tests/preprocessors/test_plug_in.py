import numpy as np
import pytest

from tests.helpers import own_files, toy
from tests.helpers.batches import check_batch
from xlingjax.objectives.plug_in import PlugIn

LABELS = ("contradiction", "entailment", "neutral")


def write(path, rows):
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


@pytest.fixture
def files(tmp_path):
    """Three examples in de, en and fr; those of de are one piece longer."""
    rows = {"de": "a b c", "en": "d e", "fr": "f g"}
    return {
        language: write(
            tmp_path / f"{language}.tsv",
            [(text, last, label) for last, label in zip("xyz", LABELS, strict=True)],
        )
        for language, text in rows.items()
    }


def make(files, beside=("de", "fr"), **options):
    options = dict(labels=LABELS, length=8, batch_size=6, seed=5, pivot="en") | options
    chosen = {language: files[language] for language in (*beside, "en")}
    return own_files.source("classification", chosen, vocabulary=toy.ToyVocabulary(), **options)


def test_a_row_is_the_example_in_one_language_then_in_the_other(files):
    source = make(files)
    batch = source.next()
    check_batch(batch, PlugIn(3).reads, source.shapes)
    (row,) = np.flatnonzero(
        (batch["labels"] == 1) & (batch["language_ids"][:, 0] == 0)
    )  # de, "y", entailment
    get = lambda name: batch[name][row].tolist()  # noqa: E731
    assert get("input_ids") == [
        1,
        14,
        15,
        16,
        1,
        38,
        1,
        2,
        1,
        17,
        18,
        1,
        38,
        1,
        2,
        2,
    ]  # </s> A </s> B </s>, twice
    assert get("position_ids") == [0, 1, 2, 3, 4, 5, 6, 0, 0, 1, 2, 3, 4, 5, 0, 0]
    assert get("pack_ids") == [1] * 7 + [0] + [1] * 6 + [0, 0]
    assert get("sides") == [0] * 8 + [1] * 6 + [0, 0]
    assert get("language_ids") == [0] * 8 + [1] * 6 + [0, 0]  # de, then en
    pairs = batch["language_ids"][:, [0, 8]].tolist()
    assert sorted(pairs) == [[0, 1]] * 3 + [[2, 1]] * 3  # and fr, then en
    assert (
        sorted(batch["labels"]) == [0, 0, 1, 1, 2, 2]
        and batch["example_weights"].tolist() == [1] * 6
    )
    again = make(files, reset_positions=True).next()
    (row,) = np.flatnonzero((again["labels"] == 1) & (again["language_ids"][:, 0] == 0))
    assert again["position_ids"][row].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 0]
