"""What a step is said to cost is what XLA computes; the command that measures it needs little and
runs."""

import json
import math
import re
import subprocess
import sys

import pytest

from benchmarks import objectives
from benchmarks.cost import Pass, step_flops
from benchmarks.shapes import Shape

SHAPE = Shape("tiny", 2, 64, 2, 128, 512, 2, 32)
COUNTED = ("CLWR", "BTMLM", "VECO", "VECO, phase 1")


@pytest.fixture(scope="module")
def steps():
    chosen = [case for case in objectives.cases(SHAPE.length) if case.name in COUNTED]
    return objectives.Steps(objectives.model_config(SHAPE), SHAPE, chosen)


def products(hlo):
    """Floating-point operations of the matrix products of a compiled program without loops."""
    shapes = dict(re.findall(r"^\s*(?:ROOT )?%?([\w.-]+) = \w+\[([\d,]*)\]", hlo, re.M))
    dot = (
        r"= \w+\[([\d,]*)\]\S* dot\((?:\w+\[[^ ]* )?%?([\w.-]+),.*lhs_contracting_dims=\{([\d,]*)\}"
    )
    total = 0
    for result, left, axes in re.findall(dot, hlo):
        sizes = [int(n) for n in shapes[left].split(",")]
        inner = math.prod(sizes[int(a)] for a in axes.split(","))
        total += 2 * inner * math.prod(int(n) for n in result.split(",") if n)
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
    # None to the memory.
    assert flops(0, plugged_in=True) - flops(0) == 3 * (2 * 24 + 72) + 2 * 2 * 24
    # One layer: none to its self-attention.
    first_phase = forward + 96 + (3 * 24 + 2 * 24 + 3 * 72 + 2 * 2 * 24)
    assert flops(1, "cross_attention", plugged_in=True) == first_phase + 2 * head


@pytest.mark.long
def test_the_command_needs_jax_alone(tmp_path):
    """Its answer is a table and a file; measured here on two objectives, since compiling all takes
    a minute."""
    code = """
import sys
from benchmarks import objectives
objectives.main(["--shape", "quick", "--rounds", "2", "--only", "CLPC", "--to", sys.argv[1]])
print(sorted({m.split(".")[0] for m in sys.modules} & {"tensorflow", "seqio", "gin", "torch"}))
"""
    command = [sys.executable, "-c", code, tmp_path / "out.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert done.splitlines()[-1] == "[]" and "| CLPC | 32 |" in done
    report = json.loads((tmp_path / "out.json").read_text())["objectives"]
    assert set(report) == {"MLM", "CLPC"}
    assert report["MLM"]["ratio"] == report["MLM"]["expected"] == 1
    assert len(report["CLPC"]["ratios"]) == 2 and 0.5 < report["CLPC"]["expected"] < 1
