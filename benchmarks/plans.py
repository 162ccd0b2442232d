"""Does each recipe fit the machines that its paper had, and those of today? Compiled for them
without having them: a table, recipe by machine, of the first settings that fit.

`python -m benchmarks.plans OUT [RECIPE ...] [--on MACHINE ...] [--tries N]` writes
OUT/RECIPE-MACHINE.json and prints the table; what is there is not made again. The compilers:
docs/scaling.md. `--golden FILE` keeps there what tests/test_plans.py compiles again.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError

RECIPES = {
    "xlm_15_mlm": "v5e:2x4",
    "xlm_15_mlm_tlm": "v5e:2x4",
    "xlm_clm": "v5e:2x4",
    "xlmr_base": "v5e:2x4",
    "xlmr_large": "v5e:4x4",
    "unicoder": "v5e:2x4",
    "unicoder_lc": "v5e:2x4",
    "veco_large": "v5e:8x8",
    "ernie_m_base": "v5e:4x4",
    "ernie_m_large": "v5e:8x8",
    "xdae": "v5e:4x4",
    "xfnp": "v5e:4x4",
    "xlm_mt_ro_en": "v5e:2x4",
    "xlm_unmt_en_fr": "v5e:2x4",
}
"""With the TPUs that they are compiled for."""
GPUS = ("V100:8", "A100:8", "H100:8")
# Its matrix units know float16 alone.
VOLTA = ("DTYPE=float16", "optimizer.loss_scale=65536.0")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("recipe", nargs="*")
    parser.add_argument("--on", nargs="+", metavar="MACHINE")
    parser.add_argument("--tries", type=int, default=8)
    parser.add_argument("--golden", type=Path)
    args = parser.parse_intermixed_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    print(
        "| recipe | machine | data x fsdp x tensor | microbatches | remat | attention"
        " | GB of a device | tokens/s, bound | days, bound | seconds |\n"
        "|---|---|---|--:|---|---|--:|--:|--:|--:|"
    )
    golden = []
    for recipe in args.recipe or RECIPES:
        if not args.on and recipe not in RECIPES:
            parser.error(f"{recipe} has no machines here: name them (--on)")
        for machine in args.on or [*GPUS, RECIPES[recipe]]:
            path = args.out / f"{recipe}-{machine.replace(':', '-')}.json"
            if not path.exists():
                path.write_text(json.dumps(_found(recipe, machine, args.tries), indent=1))
            found = json.loads(path.read_text())
            print(_line(recipe, machine, found), flush=True)
            if args.golden:
                golden += _golden(recipe, machine, found)
    if args.golden:
        args.golden.write_text(json.dumps(golden, indent=1) + "\n")


def _found(recipe: str, machine: str, tries: int) -> dict[str, Any]:
    # Here: the process that compiles reads this file before it is told for which devices.
    from xlingjax.workflows.plan.plan import stand_ins
    from xlingjax.workflows.plan.search import search

    given = ["DTYPE=bfloat16"]
    if machine.startswith("V100"):
        given = [*VOLTA]
    given += stand_ins([recipe], given)
    began = time.monotonic()
    try:
        best, tried = search(
            [recipe],
            given,
            machine,
            tries,
            lambda line: print(f"{recipe}: {line}", file=sys.stderr),
        )
    except UserError as error:
        return {"refused": str(error)}
    seconds = time.monotonic() - began
    found = {"best": best and best.flags, "tried": [one.record() for one in tried]}
    return {"given": given, "seconds": seconds, **found}


def _best(found: dict[str, Any]) -> dict[str, Any] | None:
    for one in found.get("tried", ()):
        if one["flags"] == found["best"]:
            return one
    return None


def _golden(recipe: str, machine: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the settings that were chosen: bytes of a device, of each program."""
    one = _best(found)
    if one is None:
        return []
    flags = [word.removeprefix("--gin.") for word in one["flags"].split()]
    peaks = {program["program"]: program["peak"] for program in one["plan"]["programs"]}
    return [
        {
            "recipe": recipe,
            "machine": machine,
            "overrides": [*found["given"], *flags],
            "peak": peaks,
        }
    ]


def _line(recipe: str, machine: str, found: dict[str, Any]) -> str:
    start = f"| `{recipe}` | {machine} |"
    if "refused" in found:
        return f"{start} {found['refused']} | | | | | | | |"
    one = _best(found)
    if one is None:
        said = "; ".join(one["refused"] for one in found["tried"])
        none = f"none of {len(found['tried'])} fits: {said}"
        return f"{start} {none} | | | | | | | {found['seconds']:.0f} |"
    values = dict(word.removeprefix("--gin.").split("=") for word in one["flags"].split())
    plan = one["plan"]
    most = max(plan["programs"], key=lambda program: program["peak"])
    mesh = " x ".join(str(size) for size in plan["mesh"].values())
    return (
        f"{start} {mesh} | {values['MICROBATCHES']} | {values['REMAT']} | {values['ATTENTION']}"
        f" | {most['peak'] / 1e9:.1f}"
        f" of {plan['room'] / 1e9:.1f} | {plan['tokens_per_second']:,.0f}"
        f" | {plan['days']:,.1f} | {found['seconds']:.0f} |"
    )


if __name__ == "__main__":
    main()
