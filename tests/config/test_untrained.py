"""What a recipe asks for and never trains is said, or refused."""

import pytest

from tests.config.test_recipes import RECIPES
from xlingjax.config import recipe as recipes
from xlingjax.errors import UserError
from xlingjax.workflows.launch import too_late


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("ernie_m_base", [], []),
        ("veco_large", [], []),
        (
            "ernie_m_base",
            ["TRAIN_STEPS=20000"],
            ["btmlm has no turn: its weight is 0 before step 100000, and the run ends at 20000"],
        ),
        (
            "veco_large",
            ["TRAIN_STEPS=10000", "WARMUP_STEPS=9"],
            [f"{one}@10000 is not reached: the run ends at step" for one in ("veco_text", "veco")],
        ),
    ],
)
def test_what_begins_behind_the_last_step_is_said(name, given, said):
    options = [f"{k}={v}" for k, v in RECIPES[name][0].items()]
    found = too_late(recipes.read_recipe([f"gin/recipes/{name}.gin"], [*options, *given]))
    assert [line[: len(start)] for line, start in zip(found, said, strict=True)] == said


@pytest.mark.parametrize(("span", "skip"), [(1, "runs"), (1, "target"), (2, "runs")])
def test_a_run_has_a_word_for_every_stream_of_xfnp(span, skip):
    options = [f"{k}={v}" for k, v in RECIPES["xfnp"][0].items()]
    options += [f"XFNP_SPAN={span}", f"XFNP_SKIP={skip}"]
    if (span, skip) == (1, "runs"):
        with pytest.raises(UserError, match="XFNP_SPAN=1 tokens the last of 2 streams would"):
            recipes.read_recipe(["gin/recipes/xfnp.gin"], options)
    else:
        assert recipes.read_recipe(["gin/recipes/xfnp.gin"], options)
