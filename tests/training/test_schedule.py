"""Who runs at a step: fixed cycles, draws by weight, stages."""

import inspect
from collections import Counter

import pytest

from xlingjax.errors import UserError
from xlingjax.training import schedule
from xlingjax.training.schedule import check
from xlingjax.training.stages import at, of_last_stage, stage_name, stage_of, starts


def turns(weights, mode="alternate", steps=range(12), seed=0):
    found = [schedule.turns(step, seed, weights, mode) for step in steps]
    assert all([*of.values()] == [1.0] for of in found)
    return "".join(str(index) for of in found for index in of)


def test_alternate():
    assert turns([1, 1]) == "010101010101"
    assert turns([1.0] * 5, steps=range(10)) == "0123401234"
    assert turns([0.5, 0.5], steps=range(4)) == "0101"
    assert Counter(turns([5, 3], steps=range(8))) == {"0": 5, "1": 3}
    assert "000" not in turns([5, 3], steps=range(80))  # spread, not in blocks
    assert turns([1, 0, 1], steps=range(4)) == "0202"


def test_weighted_follows_the_weights_and_only_step_and_seed():
    drawn = turns([3, 1, 0], "weighted", range(8000))
    assert drawn == turns([3, 1, 0], "weighted", range(8000))
    assert drawn != turns([3, 1, 0], "weighted", range(8000), seed=1)
    assert drawn[4000:] == turns([3, 1, 0], "weighted", range(4000, 8000))
    counts = Counter(drawn)
    assert abs(counts["0"] / 8000 - 0.75) < 3 * (0.75 * 0.25 / 8000) ** 0.5 and counts["2"] == 0


def test_summed_has_all_of_positive_weight_in_every_step():
    weights = [1, {0: 0, 3: 0.5}, 2]
    assert schedule.turns(2, 0, weights, "summed") == {0: 1.0, 2: 2.0}
    assert schedule.turns(3, 0, weights, "summed") == {0: 1.0, 1: 0.5, 2: 2.0}
    with pytest.raises(UserError, match="must be >= 0, and one must be positive"):
        check([{0: 1, 4: 0}], "summed", 5)


def test_stages():
    """0 alone for 3 steps, then 0 and 1 in turn; 2 joins from step 7 on with twice the weight."""
    weights = [1, {0: 0, 3: 1}, {0: 0, 7: 2}]
    assert turns(weights, steps=range(7)) == "0000101"
    assert Counter(turns(weights, steps=range(7, 15))) == {"0": 2, "1": 2, "2": 4}
    drawn = turns(weights, "weighted", range(4000))
    assert set(drawn[:3]) == {"0"} and set(drawn[3:7]) <= {"0", "1"}
    assert abs(Counter(drawn[7:])["2"] / 3993 - 0.5) < 0.03


def test_what_is_measured_has_the_values_of_the_last_stage():
    @of_last_stage
    def probe(corpus, length=1, rates=None):
        return corpus, length, rates

    assert probe(corpus="c", length={0: 32, 500: 64, 90: 48}) == ("c", 64, None)
    assert probe(corpus={"de": 1}, rates=(0,)) == ({"de": 1}, 1, (0,))
    assert (
        inspect.signature(probe).parameters["length"].default == 1
    )  # recipes see the function's own parameters


def test_a_stage_may_have_stages_of_its_own():
    frozen = {0: ["a"], 10: {0: ["never"], 5: ["b"], 20: []}, 30: {0: ["never"], 20: ["d"]}}
    assert starts([frozen]) == [0, 10, 20, 30]
    found = [at(frozen, step) for step in (0, 9, 10, 19, 20, 29, 30)]
    assert found == [["a"], ["a"], ["b"], ["b"], [], [], ["d"]]
    for name, start in (("mlm", 0), ("veco_text", 100)):
        assert stage_of(stage_name(name, start)) == (name, start)


@pytest.mark.parametrize(
    "weights, mode, steps, told",
    [
        ([1], "stages", 1, "'stages' is not one of alternate, weighted"),
        ([0, 0], "alternate", 1, "one must be positive"),
        ([1, {3: 1}], "alternate", 1, "must begin at step 0"),
        ([{0: 1.0, 100: 0.0}, {0: 1.0, 50: 0.0}], "alternate", 101, "at step 100 must be >= 0"),
        # It would never get a turn.
        ([1, {0: 0, 2: 0.004}], "alternate", 3, "too small .*multiply them all"),
    ],
)
def test_refusals_before_the_run(weights, mode, steps, told):
    with pytest.raises(UserError, match=told):
        check(weights, mode, steps)
    if steps > 1:
        # Nobody would run at that step, which is not reached.
        check(weights, mode, steps - 1)
