"""Entities in the schemes that data sets use, and blank sides of alignments."""

import numpy as np
import pytest

from xlingjax.errors import UserError
from xlingjax.evaluation.alignment import Alignment
from xlingjax.evaluation.metrics.tags import entities, entity_f1, require_entities

PER_LOC = {(0, 0, "PER"), (2, 4, "LOC")}


@pytest.mark.parametrize(
    "tags",
    [
        "B-PER O B-LOC I-LOC I-LOC",  # IOB2
        "I-PER O I-LOC I-LOC I-LOC",  # IOB1, IO
        "S-PER O B-LOC I-LOC E-LOC",  # IOBES
        "U-PER O B-LOC I-LOC L-LOC",  # BILOU
        "W-PER O B-LOC M-LOC E-LOC",  # BMEWO
        "S-PER O B-LOC M-LOC E-LOC",  # BMES
    ],
)
def test_schemes(tags):
    require_entities(tags.split())
    assert entities(tags.split()) == PER_LOC


def test_what_closes_an_entity():
    gold = [["S-PER", "O", "S-LOC", "O", "S-ORG", "B-LOC", "E-LOC"]]
    found = [["O", "O", "O", "O", "O", "B-LOC", "E-LOC"]]
    # 1 of 4 found, and it is right.
    assert entity_f1(found, gold) == pytest.approx(0.4)
    assert entity_f1([["B-LOC", "O"]], [["B-LOC", "E-LOC"]]) == 0
    # Two beside each other, and marks without a type.
    found = entities(["S-A", "S-A", "B-A", "E-A", "B-A"])
    assert found == {(0, 0, "A"), (1, 1, "A"), (2, 3, "A"), (4, 4, "A")}
    assert entities(["B", "I", "O", "B"]) == {(0, 1, ""), (3, 3, "")}


@pytest.mark.parametrize("labels", ["NOUN VERB", "O PER-B", "O", "O B_PER", "O X-PER"])
def test_other_labels_are_refused(labels):
    with pytest.raises(UserError, match="METRIC f1 counts entities"):
        require_entities(labels.split())


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("method", ["itermax", "intersection"])
def test_a_blank_side_has_no_links(shape, method):
    blank = Alignment(np.zeros(shape, np.float32), [0] * shape[0], [0] * shape[1])
    assert blank.links(method) == set()
