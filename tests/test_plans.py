"""The papers' recipes at their sizes, compiled for machines on which they fit, without one
(`make test-plans`). tests/golden/plans.json says which settings and bytes: `python -m
benchmarks.plans OUT --golden tests/golden/plans.json` chooses them."""

import json
from pathlib import Path

import pytest

from xlingjax.errors import UserError
from xlingjax.workflows.plan import machines as compilers
from xlingjax.workflows.plan.machines import machine_named
from xlingjax.workflows.plan.plan import measured

GOLDEN = json.loads((Path(__file__).parent / "golden/plans.json").read_text(encoding="utf-8"))


@pytest.mark.long
@pytest.mark.accelerator
@pytest.mark.parametrize("kept", GOLDEN, ids=lambda kept: f"{kept['recipe']}-{kept['machine']}")
def test_a_papers_recipe_fits(kept):
    machine = kept["machine"]
    try:
        compilers.environment(machine_named(machine).accelerator.maker)
    except UserError as error:
        pytest.skip(f"{error}")
    plan = measured([kept["recipe"]], kept["overrides"], machine)
    assert plan.all_fit
    found = {one["program"]: one for one in plan.programs}
    assert {name: one["peak"] for name, one in found.items()} == pytest.approx(
        kept["peak"], rel=0.03
    )
