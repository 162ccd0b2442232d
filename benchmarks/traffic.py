"""What one device reads and writes in a step of XLM-R's MLM, by part of the step, from the program
compiled for a GPU that need not be there (`make .venv/cuda/.ready`: its compiler).

    python -m benchmarks.traffic [--on H100:1] [--model base large] [--shape 16x512 64x128 64x512]
        [--set LOSS_CHUNK=0 UNROLL=0]

Shapes are rows x tokens of all devices. In bfloat16 with dropout, `flash` and AdamW, one
microbatch. Figures are the same at every compilation by one version of XLA.
"""

import argparse

import pandas as pd

SETTINGS = ("MICROBATCHES=1", "DTYPE=bfloat16", "ATTENTION=flash", "REMAT=none")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", default="H100:1")
    parser.add_argument("--model", nargs="+", default=["base"])
    parser.add_argument("--shape", nargs="+", default=["16x512"])
    parser.add_argument("--set", nargs="*", default=[])
    args = parser.parse_args()
    # Here: the process that compiles reads this file before it is told for which devices.
    from xlingjax.workflows.plan.machines import machine_named
    from xlingjax.workflows.plan.plan import measured, stand_ins

    bandwidth = machine_named(args.on).accelerator.bandwidth
    for model in args.model:
        files = [f"gin/recipes/xlmr_{model}.gin"]
        for shape in args.shape:
            rows, length = shape.split("x")
            overrides = [*SETTINGS, f"BATCH={rows}", f"LENGTH={length}", *args.set]
            planned = measured(files, [*stand_ins(files, overrides), *overrides], args.on)
            (program,) = planned.programs
            if program["error"]:
                raise SystemExit(f"{model} {shape}: {program['error']}")
            table = pd.DataFrame(program["traffic"]).T
            table.loc["all"] = table.sum()
            table["GB"] = (table["bytes"] / 1e9).round(1)
            table["ms at the bound"] = (1e3 * table["bytes"] / bandwidth).round(1)
            told = f"compiled in {program['seconds']:.0f} s, peak {program['peak'] / 1e9:.1f} GB"
            print(f"\nXLM-R {model}, {shape}, {args.on} ({told})\n")
            print(table[["GB", "ms at the bound", "kernels"]].to_markdown(), flush=True)


if __name__ == "__main__":
    main()
