"""What a training computes, counted from its recipe before it runs."""

import math
from collections import Counter
from types import SimpleNamespace

import pytest

from benchmarks import table_hours
from benchmarks.cost import Pass, step_flops
from benchmarks.flops import decoder_flops_per_token, flops_per_token
from tests.helpers import tiny
from xlingjax.config import gin_files
from xlingjax.config.recipe import read_recipe
from xlingjax.model.config import preset
from xlingjax.training.schedule import turns
from xlingjax.workflows.tables import flops as table_flops

CONFIG = preset("tiny", vocab_size=4096)
"""As many rows as pieces: `benchmarks.cost` counts those that fill the table too."""
ROWS, LENGTH, SLOTS, PLACES = 4, 64, 10, 8
SLOT = {"cross_attention": True}


def counted(name, config=CONFIG, **options):
    objective = tiny.objective(name)
    if options:
        objective = type(objective)(**options)
    shapes = {}
    for field in objective.reads:
        count = {"masked": SLOTS, "pseudo": PLACES}.get(field.partition("_")[0], LENGTH)
        shapes[field] = (ROWS, count)
    if "labels" in shapes:
        shapes["labels"] = shapes["example_weights"] = (ROWS,)
    return table_flops.step_flops(objective, config, shapes)


@pytest.mark.parametrize(
    "name, options, parts, passes",
    [
        ("mlm", {}, {}, [Pass(SLOTS)]),
        ("mlm", {"chunk": 8}, {"remat": "full", "layers": 3}, [Pass(SLOTS)]),
        ("clm", {}, {}, [Pass(LENGTH)]),
        ("btmlm", {}, {}, [Pass(PLACES, "none"), Pass(SLOTS)]),
        ("clwr", {}, {"word_recovery": True}, [Pass(LENGTH)]),
        ("veco", {"tlm": False}, SLOT, [Pass(SLOTS), Pass(SLOTS, plugged_in=True)]),
        ("veco", {"tlm": True}, SLOT, [Pass(SLOTS)] * 2 + [Pass(SLOTS, plugged_in=True)]),
    ],
)
def test_a_step_is_the_products_of_its_passes(name, options, parts, passes):
    """Without what is computed again. XLA's own count is set beside `benchmarks.cost` in
    tests/test_benchmarks.py."""
    config = CONFIG.replace(**parts)
    expected = step_flops(config, ROWS, LENGTH, passes, mixtures="word_recovery" in parts)
    assert counted(name, config, **options) == pytest.approx(expected, rel=0.02)


def test_a_decoder_is_six_per_matrix_weight_plus_attention():
    config = CONFIG.replace(decoder_layers=2)
    per_token = decoder_flops_per_token(config, LENGTH, LENGTH)
    # Scores of the decoder's own half that no token sees are computed, too.
    unseen = 3 * 2 * 2 * LENGTH * config.dim / 2
    expected = 2 * ROWS * LENGTH * (per_token + unseen)
    assert counted("translation", config) == pytest.approx(expected, rel=1e-3)


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
    assert found == pytest.approx(tokens * per_token, rel=1e-3)
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
