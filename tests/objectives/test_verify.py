import numpy as np
import pytest

from tests.helpers.reference import CONFIG, make_batch
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import bidirectional
from xlingjax.objectives import verify
from xlingjax.objectives.ernie_m import CAMLM
from xlingjax.objectives.leak import Visibility
from xlingjax.objectives.verify import Finding, finding
from xlingjax.objectives.xlm import MLM


@pytest.mark.parametrize(
    ("leaks", "seen", "moved", "exact", "verdict"),
    [
        (0, 10, 10, True, "ok"),
        (0, 10, 9, True, "blind"),
        (0, 10, 5, False, "ok"),
        (0, 10, 4, False, "blind"),
        (0, 0, 0, True, "blind"),
        (0, 1, 1, True, "ok"),
        (1, 10, 10, True, "leaks"),
    ],
)
def test_verdicts(leaks, seen, moved, exact, verdict):
    assert Finding("mlm", "mlm", 3, leaks, seen, moved, exact).verdict == verdict


def test_counts_are_of_used_slots_and_real_words():
    # Two slots of one row of four columns, the last one padding; nothing reaches the second slot.
    allowed = np.array([[[1, 1, 0, 0], [0, 0, 0, 0]]], bool)
    moved = np.array([[[1, 0, 1, 0], [0, 0, 0, 0]]], bool)
    columns = np.array([[0, -1]])
    batch = {"pack_ids": np.array([[1, 1, 1, 0]])}
    found = finding("stage", "term", Visibility(allowed, moved, columns), batch, exact=True)
    assert found == Finding("stage", "term", hidden=1, leaks=1, seen=2, moved=1, exact=True)
    # A slot that only what is forbidden reaches is a used one.
    forbidden = Visibility(np.zeros_like(allowed), moved, columns)
    assert finding("stage", "term", forbidden, batch, exact=True).hidden == 3


class OneBatch:
    def __init__(self, batch):
        self.batch = batch

    def next(self):
        return self.batch


class Leaking(CAMLM):
    def attention(self):
        return bidirectional


@pytest.mark.parametrize(("dtype", "exact"), [("float32", True), ("bfloat16", False)])
def test_every_stage_is_tested_on_the_first_rows_of_its_own_batch(dtype, exact):
    model = Encoder(CONFIG.replace(dtype=dtype))
    mlm, camlm = (OneBatch(make_batch(name, packed=False)) for name in ("mlm", "camlm"))
    stages = {"mlm": (MLM(), mlm), "wrong": (Leaking(), camlm)}
    findings = list(verify.verify(stages, model, 1))
    assert [one.predictions for one in findings] == ["mlm", "camlm_x", "camlm_y"]
    assert [one.objective for one in findings] == ["mlm", "wrong", "wrong"]
    assert [one.verdict for one in findings] == ["ok", "leaks", "leaks"]
    assert {one.exact for one in findings} == {exact}
    batch = mlm.batch
    slots = int(batch["masked_weights"][0].sum())
    # MLM: each prediction sees all words of its row.
    assert findings[0].seen == slots * int(batch["pack_ids"][0].sum())
