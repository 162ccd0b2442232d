"""Files of examples that a teacher labelled: read as they were written, and faults named."""

import json

import pytest

from xlingjax.data.labelled.records import Tagged
from xlingjax.data.labelled.teacher import labelled_path, read_labelled, write_labelled
from xlingjax.errors import UserError
from xlingjax.tasks import task_named

XNLI, UDPOS = task_named("xtreme/xnli"), task_named("xtreme/udpos")
SENTENCES = [
    Tagged(("no", "dogs", "sleep"), ("DET", "NOUN", "VERB"), 1),
    Tagged(("run",), ("VERB",), 5),
]


def labelled(root, language="de", sentences=SENTENCES):
    write_labelled(labelled_path(root, UDPOS, language), sentences)
    return labelled_path(root, UDPOS, language)


def test_records_are_read_as_they_were_written(tmp_path):
    path = labelled(tmp_path)
    assert read_labelled(path, UDPOS) == SENTENCES and [
        s.line for s in read_labelled(path, UDPOS)
    ] == [1, 5]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"tags": ["DET", "NOUN"]}, "line 2: 3 words, but 2 tags"),
        ({"tags": []}, "line 2: 3 words, but 0 tags"),
        (
            {"tags": ["DET", "NOUN", "VREB"]},
            "line 2: unknown label 'VREB', expected one of ADJ, ADP",
        ),
        ({"marks": []}, "line 2: not a record of a tagging task"),
    ],
)
def test_faults_of_a_teachers_file_name_the_line(tmp_path, change, message):
    path = labelled(tmp_path, sentences=[SENTENCES[1], SENTENCES[0]])
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{json.dumps(json.loads(second) | change)}\n")
    with pytest.raises(UserError, match=f"udpos.de.jsonl, {message}") as error:
        read_labelled(path, UDPOS)
    assert "\n" not in str(error.value)
