"""What a step is said to cost is what XLA computes; the command that measures it needs little and
runs."""

import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import objectives, plans
from benchmarks.cost import Pass, step_flops
from benchmarks.shapes import Shape
from xlingjax.data.features import FIELDS

SHAPE = Shape("tiny", 2, 64, 2, 128, 512, 2, 32)
COUNTED = ("CLWR", "BTMLM", "VECO", "VECO, phase 1")


@pytest.fixture(scope="module")
def steps():
    chosen = [case for case in objectives.cases(SHAPE.length) if case.name in COUNTED]
    return objectives.Steps(objectives.model_config(SHAPE), SHAPE, chosen)


def products(hlo):
    """Floating-point operations of the matrix products of a compiled program without loops."""
    shapes = dict(re.findall(r"^\s*(?:ROOT )?%?([\w.-]+) = \w+\[([\d,]*)\]", hlo, re.M))
    total = 0
    for result, left, axes in re.findall(
        r"= \w+\[([\d,]*)\]\S* dot\((?:\w+\[[^ ]*"
        r" )?%?([\w.-]+),.*lhs_contracting_dims=\{([\d,]*)\}",
        hlo,
    ):
        sizes = [int(n) for n in shapes[left].split(",")]
        total += (
            2
            * math.prod(int(n) for n in result.split(",") if n)
            * math.prod(sizes[int(a)] for a in axes.split(","))
        )
    return total


@pytest.mark.long
@pytest.mark.parametrize("name", COUNTED)
def test_the_expected_cost_is_that_of_the_matrix_products(steps, name):
    """Exact but for the matrix-vector products of word recovery; XLA's whole count has what is
    element by element."""
    (case,) = (case for case in objectives.cases(SHAPE.length) if case.name == name)
    expected = objectives.expected_flops(objectives.model_config(SHAPE), SHAPE, case)
    found = products(steps.steps[name].as_text())
    assert expected <= found <= expected * (1.002 if name == "CLWR" else 1)
    assert 1.05 < steps.flops(name) / expected < 1.25


def test_expected_costs_by_hand():
    """One layer of 2 x 2 on one row of 3: products of 24 operations, feed-forward of 4 wide 96,
    attention 72."""
    config = objectives.model_config(Shape("by hand", 1, 2, 1, 4, 5, 1, 3), vocab_multiple=1)
    head = 2 * 2 * 5 + 2 * 2 * 2

    def flops(*one, **options):
        return step_flops(config, 1, 3, [Pass(*one, **options)])

    forward = 4 * 24 + 96 + 72
    assert flops(0, "none") == forward and flops(7) == 3 * (forward + 7 * head)
    assert (
        flops(0, plugged_in=True) - flops(0) == 3 * (2 * 24 + 72) + 2 * 2 * 24
    )  # none to the memory
    first_phase = (
        forward + 96 + (3 * 24 + 2 * 24 + 3 * 72 + 2 * 2 * 24)
    )  # one layer: none to its self-attention
    assert flops(1, "cross_attention", plugged_in=True) == first_phase + 2 * head


@pytest.mark.parametrize("case", objectives.cases(32), ids=lambda case: case.name)
def test_batches_are_what_the_objectives_read(case):
    fields = objectives.batch(case, objectives.QUICK)
    assert set(fields) == set(case.objective.reads)
    assert all(x.dtype == FIELDS[name].dtype for name, x in fields.items())
    if case.pairs and "sides" in fields:
        assert (fields["sides"].sum(1) == case.length // 2).all()
    if "masked_positions" in fields:
        columns = fields["masked_positions"]
        assert (
            columns.shape == (4, case.slots)
            and (np.diff(columns, axis=1) > 0).all()
            and columns.min() > 0
        )
        hidden = np.take_along_axis(fields["input_ids"], columns, 1)
        assert (hidden == objectives.QUICK.vocab - 1).all()
        if case.name.startswith(("VECO", "CAMLM")):
            sides = np.take_along_axis(fields["sides"], columns, 1)
            assert (sides == np.arange(case.slots) // (case.slots // 2)).all()


@pytest.mark.long
def test_the_command_needs_jax_alone(tmp_path):
    """Its answer is a table and a file; measured here on two objectives, since compiling all takes
    a minute."""
    code = """
import sys
from benchmarks import objectives
objectives.main(["--shape", "quick", "--rounds", "2", "--only", "CLPC", "--output", sys.argv[1]])
print(sorted({m.split(".")[0] for m in sys.modules} & {"tensorflow", "seqio", "gin", "torch"}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "out.json"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert done.splitlines()[-1] == "[]" and "| CLPC | 32 |" in done
    report = json.loads((tmp_path / "out.json").read_text())["objectives"]
    assert (
        set(report) == {"MLM", "CLPC"} and report["MLM"]["ratio"] == report["MLM"]["expected"] == 1
    )
    assert len(report["CLPC"]["ratios"]) == 2 and 0.5 < report["CLPC"]["expected"] < 1


@pytest.mark.parametrize(
    "wrong, said", [(["--only", "BERT"], "none of MLM, CLM"), (["--rounds", "0"], "at least 1")]
)
def test_refusals(wrong, said, capsys):
    with pytest.raises(SystemExit):
        objectives.main(wrong)
    assert said in capsys.readouterr().err


def test_plans_of_a_recipe_outside_the_table_want_machines(tmp_path, capsys):
    with pytest.raises(SystemExit):
        plans.main([str(tmp_path), "xfnp_tiny"])
    assert "xfnp_tiny has no machines here: name them (--on)" in capsys.readouterr().err
