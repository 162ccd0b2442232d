"""What a training computes, counted from its recipe before it runs."""

import math
from collections import Counter
from types import SimpleNamespace

import pytest

from benchmarks import table_hours
from benchmarks.cost import Pass, step_flops
from tests.helpers import tiny
from xlingjax.config import gin_files
from xlingjax.config.recipe import read_recipe
from xlingjax.errors import UserError
from xlingjax.model.config import preset
from xlingjax.model.flops import flops_per_token
from xlingjax.objectives.base import Objective
from xlingjax.training.schedule import turns
from xlingjax.workflows.tables import flops as table_flops

CONFIG = preset("tiny", vocab_size=4096)
"""As many rows as pieces: `benchmarks.cost` counts those that fill the table too."""
ROWS, LENGTH, SLOTS, PLACES = 4, 64, 10, 8
SHAPES = {"masked_positions": (ROWS, SLOTS), "pseudo_positions": (ROWS, PLACES)}


def counted(name, **options):
    objective = tiny.objective(name)
    if options:
        objective = type(objective)(**options)
    shapes = {field: SHAPES.get(field, (ROWS, LENGTH)) for field in objective.reads}
    return table_flops.step_flops(objective, CONFIG, shapes)


@pytest.mark.parametrize(
    "name, options, passes, mixtures",
    [
        ("mlm", {}, [Pass(SLOTS)], False),
        ("btmlm", {}, [Pass(PLACES, "none"), Pass(SLOTS)], False),
        ("clwr", {}, [Pass(LENGTH)], True),
        ("veco", {"tlm": False}, [Pass(SLOTS), Pass(SLOTS, plugged_in=True)], False),
        ("veco", {"tlm": True}, [Pass(SLOTS), Pass(SLOTS), Pass(SLOTS, plugged_in=True)], False),
    ],
)
def test_several_passes_are_those_that_xla_computes(name, options, passes, mixtures):
    """`step_flops` is compared with XLA's own count in tests/test_benchmarks.py."""
    expected = step_flops(CONFIG, ROWS, LENGTH, passes, mixtures)
    assert counted(name, **options) == pytest.approx(expected)


def test_back_translation_writes_forward_and_learns():
    objective = tiny.objective("back_translation")
    shapes = {field: (8, 32) for field in objective.reads}
    learnt = table_flops.step_flops(tiny.objective("translation"), CONFIG, shapes)
    # Forward is one of three.
    assert table_flops.step_flops(objective, CONFIG, shapes) == pytest.approx(learnt * (1 + 1 / 3))


class Own(Objective):
    name = "own"
    reads = ("input_ids",)

    coefficients = attention = loss = weights = None


def test_an_objective_of_a_users_own_is_not_guessed():
    with pytest.raises(UserError, match="objective own: its floating-point operations"):
        table_flops.step_flops(Own(), CONFIG, {"input_ids": (2, 8)})


def run_of(name, weight):
    return SimpleNamespace(objective=SimpleNamespace(name=name), weight=weight)


@pytest.mark.parametrize(
    "schedule, weights",
    [
        ("alternate", [1.0, 1.0, 3.0]),
        ("alternate", [{0: 1.0, 17: 0.0}, 1.0, {0: 0.0, 17: 2.0}]),
        ("summed", [1.0, 0.0, {0: 0.0, 20: 1.0}]),
    ],
)
def test_steps_are_those_of_the_schedule(schedule, weights):
    entries = [{0: run_of(name, weight)} for name, weight in zip("abc", weights, strict=True)]
    # One that changes within a cycle.
    entries[1][24] = entries[1][0]
    taken = table_flops.steps_by_stage(entries, 46, schedule)
    expected = Counter()
    for step in range(46):
        for index in turns(step, 0, weights, schedule):
            name = "abc"[index]
            expected[name if name != "b" or step < 24 else "b@24"] += 1
    assert taken == {name: expected[name] for name in ("a", "b", "b@24", "c")}


def test_drawn_turns_are_expected_ones():
    entries = [{0: run_of("a", 1.0)}, {0: run_of("b", 3.0)}]
    assert table_flops.steps_by_stage(entries, 100, "weighted") == {"a": 25.0, "b": 75.0}


def test_a_training_by_hand():
    """XLM-R base: 1.5 million batches of 8,192 x 512, 77 of 512 columns predicted."""
    given = ["MONO=m", "VOCABULARY=v", "LANGUAGES=de en"]
    recipe = read_recipe(["recipes/xlmr_base.gin"], given)
    found = table_flops.training_flops(recipe)
    tokens = 1_500_000 * 8_192 * 512
    per_token = flops_per_token(recipe.bound["model"], 512, 77 / 512)
    assert found == pytest.approx(tokens * per_token, rel=1e-12)
    # 6 x parameters of the layers (85 M) and of the predictions' share of the head (193 M), and
    # attention.
    layers = 12 * (4 * 768**2 + 2 * 768 * 3072)
    head = 77 / 512 * (768 * 250_002 + 768**2)
    attention = 12 * 12 * 512 * 768
    assert per_token == pytest.approx(6 * (layers + head) + attention, rel=1e-3)
    assert table_flops.gpu_hours(found) == pytest.approx(found / (0.25 * 758e12) / 3600)


def test_the_cells_of_vecos_second_table():
    """45 settings of 6 rows from English, 4 from translations and 7 plugged in, of which 2 have a
    teacher of each setting beside; and one row without a grid."""
    rows = table_hours.table_at(gin_files.gin_folder() / "recipes/tables/veco_2.gin").rows
    count = 0
    for row in rows.values():
        if "settings" in row:
            settings = [len(values.split(",")) for values in row.get("grid", {}).values()]
            count += math.prod(settings) * len(table_hours.variants(row))
    assert count == (6 + 4 + 7 + 2) * 45 + 1
