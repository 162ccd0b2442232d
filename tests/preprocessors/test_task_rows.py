"""Rows of a task: counted without making them, and those that stand side by side."""

import numpy as np
import pytest

from tests.preprocessors import test_task
from tests.preprocessors.test_task import READING, XNLI, Hashed
from xlingjax.data.labelled.records import Example
from xlingjax.data.labelled.task import read
from xlingjax.errors import UserError
from xlingjax.preprocessors.task_rows import Reading, beside_rows, task_rows
from xlingjax.tasks import task_named

folder = test_task.folder


def test_sets_that_are_read_side_by_side_must_be_in_one_order():
    first = [Example("a", "b", "neutral", 1), Example("c", "d", "entailment", 2)]
    message = (
        "xtreme/xnli, line 2 in 'de' is 'entailment', line 1 in 'en' 'neutral': .* in the same"
        " order"
    )
    with pytest.raises(UserError, match=message):
        beside_rows(XNLI, first[::-1], first, Hashed(), READING, "de", (0, 1))
    with pytest.raises(UserError, match="2 examples in 'de' and 1 in 'en'"):
        beside_rows(XNLI, first, first[:1], Hashed(), READING, "de", (0, 1))


@pytest.mark.parametrize(
    ("name", "answers"),
    [("xnli", "labels"), ("udpos", "tag_labels"), ("xquad", "beside_start_positions")],
)
def test_rows_beside_each_other_are_those_of_the_kind_of_task(folder, name, answers):
    """An example beside itself: each half has its text, in a language of its own."""
    task = task_named(f"xtreme/{name}")
    records = read(task, folder, "train", "en")[:3]
    reading = Reading(length=40, stride=12, max_question=16)
    made = beside_rows(task, records, records, Hashed(), reading, "de", (2, 1))
    ids, languages, used = (made[f] for f in ("input_ids", "language_ids", "pack_ids"))
    assert ids.shape == (len(ids), 80) and answers in made
    alone, _ = task_rows(task, records, Hashed(), reading, "en", 1)
    for half, language in ((slice(0, 40), 2), (slice(40, 80), 1)):
        np.testing.assert_array_equal(ids[:, half], alone["input_ids"])
        assert {*languages[:, half][used[:, half] > 0].tolist()} == {language}
