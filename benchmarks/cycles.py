"""How near a step of XLM-R comes to what the matrix units of a TPU take, by the estimate of its
compiler, without a TPU: one v5e, whole model, dropout 0.1.

`python -m benchmarks.cycles [--models base large] [--lengths 128 256 512] [--tokens 8192]
[--gin NAME=VALUE ...]` prints cycles beside the bound of the useful products, and the bytes of
temporaries. The compiler: docs/scaling.md.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from xlingjax.workflows.plan.plan import measured, stand_ins

MACHINE = "v5e:1"
FLOP_OF_A_CYCLE = 4 * 2 * 128 * 128
"""Four units of 128 x 128 products and sums: 197 TFLOP/s at 1.5 GHz."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["base", "large"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 256, 512])
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--gin", nargs="+", default=[])
    args = parser.parse_args(argv)
    print("| model | rows | million cycles | bound | ratio | temporaries |")
    print("|---|--:|--:|--:|--:|--:|")
    for model in args.models:
        for length in args.lengths:
            rows = args.tokens // length
            step = _step(model, rows, length, args.gin)
            start = f"| {model} | {rows} x {length} |"
            print(f"{start} {_line(step)}", flush=True)


def _step(model: str, rows: int, length: int, given: Sequence[str]) -> dict[str, Any]:
    recipe = [f"xlmr_{model}"]
    overrides = [f"BATCH={rows}", f"LENGTH={length}", *given]
    overrides += stand_ins(recipe, overrides)
    plan = measured(recipe, overrides, MACHINE, evaluations=False)
    [step] = plan.programs
    return step


def _line(step: dict[str, Any]) -> str:
    if step["error"]:
        return f"{step['error']} | | | |"
    bound = step["flops"]["useful"] / FLOP_OF_A_CYCLE
    cycles = step["cycles"]
    temporaries = step["temporaries"] / 1e9
    return f"{cycles / 1e6:.1f} | {bound / 1e6:.1f} | {cycles / bound:.2f} | {temporaries:.2f} GB |"


if __name__ == "__main__":
    main()
