import json

import numpy as np
import pytest

from xlingjax.data.batches.loader import Batches
from xlingjax.errors import UserError
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
    assert found["weight"] == {
        "mlm": {0: 1.0},
        "tlm": {0: 1, 60: 2},
        "veco": {0: 0, 100: 3},
    }  # 150 changes nothing
    assert found["frozen"] == {"all": {0: ["embeddings/", "head"], 100: ["head"]}}


def test_shares_of_the_steps():
    found = schedule.shares(schedule.values(recorded())["weight"])
    assert found == {
        "mlm": {0: 0.5, 60: pytest.approx(1 / 3), 100: pytest.approx(1 / 6)},
        "tlm": {0: 0.5, 60: pytest.approx(2 / 3), 100: pytest.approx(1 / 3)},
        "veco": {0: 0.0, 100: 0.5},
    }


def test_a_stage_of_no_weight_has_no_shares():
    assert schedule.shares({"mlm": {0: 1, 50: 0}}) == {"mlm": {0: 1.0, 50: 0.0}}


def test_the_table_says_what_changes_and_the_common_values():
    rows = schedule.rows(recorded())
    assert rows[0] == (
        "learning rate",
        "all",
        "peak 0.5 after 10 steps of warm-up, then linear decay to 0",
    )
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
    assert not any(
        what == "masking count" for what, *_ in rows
    )  # the same throughout, and not asked for


def panels(record):
    return {
        axis.get_title(loc="left"): axis
        for figure in schedule.picture(record)
        for axis in figure.axes
        if axis.get_title(loc="left")
    }


def test_the_picture_has_a_panel_for_each_thing_that_changes():
    drawn = panels(recorded())
    assert {*drawn} == {
        "learning rate",
        "share of the steps (%)",
        "masking rate",
        "length",
        "plug out",
        "frozen parameters",
    }
    x, y = drawn["learning rate"].lines[0].get_data()
    assert (
        x[0] == 0 and x[-1] == 199 and y.max() == pytest.approx(0.5) and y[0] == pytest.approx(0.05)
    )
    assert y[x == 105] == pytest.approx(0.5 * 95 / 190)
    lines = {line.get_label(): line.get_data() for line in drawn["masking rate"].lines}
    assert [list(values) for values in lines["mlm"]] == [[0, 100, 200], [0.15, 0.3, 0.3]]
    assert [list(values) for values in lines["tlm"]] == [[0, 200], [0.3, 0.3]]
    bars = [
        [path.vertices[:, 0].max() for path in row.get_paths()]
        for row in drawn["frozen parameters"].collections
    ]
    assert bars == [[100], [100, 200]]  # embeddings/ in the first stage, head in both


def test_summed_objectives_have_weights_and_no_shares():
    record = recorded(schedule="summed")
    assert ("objectives", "all", "all in every step, losses times their weights") in schedule.rows(
        record
    )
    drawn = panels(record)
    assert "share of the steps" not in drawn
    lines = {line.get_label(): line.get_data() for line in drawn["weight"].lines}
    assert [list(values) for values in lines["veco"]] == [[0, 100, 200], [0, 3, 3]]


def test_stages_that_the_run_never_reaches_are_not_drawn():
    drawn = panels(recorded(steps=80))
    (line,) = [line for line in drawn["masking rate"].lines if line.get_label() == "mlm"]
    assert [list(values) for values in line.get_data()] == [[0, 80], [0.15, 0.15]]
    below = drawn["share of the steps (%)"].collections[0].get_paths()[0].vertices
    assert below[:, 0].max() == 80 and 60 in below[:, 0]


def test_a_record_of_another_time_draws_what_it_has():
    assert schedule.picture({}) == [] and schedule.section({}) is None
    old = {"steps": 40, "weights": {"mlm": 1.0, "tlm": 4}, "optimizer": {"warmup_steps": 4}}
    assert {*panels(old)} == {"learning rate", "share of the steps (%)"}


def test_the_learning_rate_is_the_runs_own():
    from xlingjax.training.optimizer import SCHEDULES, learning_rate_schedule

    for name in SCHEDULES:
        config = OptimizerConfig(schedule=name, warmup_steps=5)
        steps = np.arange(40)
        drawn = learning_rate_schedule(config, 40, np)(steps)
        assert isinstance(drawn, np.ndarray)  # on the host: a report must not start an accelerator
        np.testing.assert_allclose(drawn, learning_rate_schedule(config, 40)(steps), rtol=1e-6)
    with pytest.raises(UserError, match="warmup_steps"):
        schedule.picture({"steps": 4, "optimizer": {"schedule": "linear", "warmup_steps": 5}})
