"""How near a step of XLM-R comes to what the matrix units of a TPU take, by the estimate of its
compiler, without a TPU: one v5e, whole model, dropout 0.1.

`python -m benchmarks.cycles [--models base large] [--lengths 128 256 512] [--tokens 8192]
[--gin NAME=VALUE ...] [--profile N]` prints cycles beside the bound of the useful products, and
the bytes of temporaries; with `--profile` also the N kinds of operation that take most. The
compiler: docs/scaling.md.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

from xlingjax.workflows.plan import measured, stand_ins

MACHINE = "v5e:1"
FLOP_OF_A_CYCLE = 4 * 2 * 128 * 128
"""Four units of 128 x 128 products and sums: 197 TFLOP/s at 1.5 GHz."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["base", "large"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 256, 512])
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--gin", nargs="+", default=[])
    parser.add_argument("--profile", type=int, default=0, metavar="N")
    args = parser.parse_args(argv)
    print("| model | rows | million cycles | bound | ratio | temporaries |")
    print("|---|--:|--:|--:|--:|--:|")
    profiles = []
    for model in args.models:
        for length in args.lengths:
            rows = args.tokens // length
            step = _step(model, rows, length, args.gin)
            start = f"| {model} | {rows} x {length} |"
            print(f"{start} {_line(step)}", flush=True)
            if args.profile and not step["error"]:
                profiles.append((f"{model}, {rows} x {length}", step))
    for name, step in profiles:
        print(f"\n{name}:\n{_profile(step, args.profile)}")


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


def _profile(step: dict[str, Any], shown: int) -> str:
    by_source = Counter(step["cycles_by_source"])
    rows = ["| operations | million cycles | |\n|---|--:|--:|"]
    for name, cycles in by_source.most_common(shown):
        share = cycles / step["cycles"]
        rows.append(f"| {name} | {cycles / 1e6:.1f} | {share:.0%} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
