import json

import numpy as np

from xlingjax.data.batches.loader import Batches
from xlingjax.objectives.veco import VECO
from xlingjax.objectives.xlm import MLM, TLM
from xlingjax.report import schedule
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.optimizer import OptimizerConfig
from xlingjax.training.run_record import schedule_record


def run(objective, **settings):
    return ObjectiveRun(objective, Batches({}, lambda: None, settings))


def recorded(**options):
    """MLM whose mask rate and length change at 100, TLM whose weight changes at 60, VECO in two
    phases."""
    frozen = {0: ["embeddings/", "head"], 100: ["head"]}
    optimizer = OptimizerConfig(
        learning_rate=0.5, schedule="linear", warmup_steps=10, frozen=frozen
    )
    low, high = ({"rate": rate, "count": "exact"} for rate in (0.15, 0.3))
    alpha = {"alpha": 0.7}
    runs = {
        "mlm": run(MLM(), batch=8, length=32, masking=low, sampling=alpha),
        "mlm@100": run(MLM(), batch=8, length=64, masking=high, sampling=alpha),
        "tlm": run(TLM(), batch=8, length=64, masking=high),
        "veco": run(VECO(plug_out=False), batch=4),
        "veco@100": run(VECO(plug_out=True), batch=4),
    }
    weights = {"mlm": 1.0, "tlm": {0: 1, 60: 2}, "veco": {0: 0, 100: 3, 150: 3}}
    return schedule_record(runs, weights, 200, "alternate", optimizer) | options


def test_the_record_is_json_and_gives_every_value_by_step():
    record = recorded()
    assert json.loads(json.dumps(record)) == record
    found = schedule.values(record)
    assert found["masking rate"] == {"mlm": {0: 0.15, 100: 0.3}, "tlm": {0: 0.3}}
    assert found["length"]["mlm"] == {0: 32, 100: 64} and found["masking count"]["mlm"] == {
        0: "exact"
    }
    assert found["plug out"]["veco"] == {0: False, 100: True}
    # 150 changes nothing.
    assert found["weight"] == {"mlm": {0: 1.0}, "tlm": {0: 1, 60: 2}, "veco": {0: 0, 100: 3}}
    assert found["frozen"] == {"all": {0: ["embeddings/", "head"], 100: ["head"]}}


def test_what_changes_is_drawn_by_step_and_no_other():
    shares = {"mlm": [("de", 0.75), ("en", 0.25)], "mlm@100": [("de", 0.5), ("fr", 0.5)]}
    tables = {
        stage: [{"name": name, "share": share} for name, share in texts]
        for stage, texts in shares.items()
    }
    drawn = {panel.title: panel.curves for panel in schedule.panels(recorded(), tables)}
    assert [*drawn] == ["learning rate", "weight", "length", "masking rate", "mlm: shares of rows"]
    at, rates = drawn["learning rate"]["all"]
    assert at[np.argmax(rates)] == 9 and max(rates) == 0.5 and min(rates[10:]) == rates[-1] == 0
    assert drawn["masking rate"] == {"mlm": ([0, 100, 100, 200], [0.15, 0.15, 0.3, 0.3])}
    assert drawn["weight"]["veco"] == ([0, 100, 100, 200], [0, 0, 3, 3])
    assert drawn["mlm: shares of rows"]["en"][1] == [0.25, 0.25, 0, 0]
    assert drawn["mlm: shares of rows"]["fr"][1] == [0, 0, 0.5, 0.5]
    constant = schedule_record(
        {"mlm": run(MLM(), batch=8)}, {"mlm": 1.0}, 9, "alternate", OptimizerConfig()
    )
    assert schedule.panels(constant, {"mlm": tables["mlm"]}) == []


def test_the_table_says_what_changes_and_the_common_values():
    rows = schedule.rows(recorded())
    said = "peak 0.5 after 10 steps of warm-up, then linear decay to 0"
    assert rows[0] == ("learning rate", "all", said)
    for row in (
        ("objectives", "all", "one a step, in turn by their weights"),
        ("weight", "tlm", "1; from step 60: 2"),
        ("batch", "mlm, tlm", "8"),
        ("masking rate", "mlm", "0.15; from step 100: 0.3"),
        ("sampling alpha", "mlm", "0.7"),
        ("plug out", "veco", "False; from step 100: True"),
        ("frozen", "all", "embeddings/, head; from step 100: head"),
    ):
        assert row in rows
