"""What wrong input gets: `python -m benchmarks.faults` makes each in a temporary folder, runs the
command line on it and prints a table, input | status | line.

`--damage SECONDS` instead damages every file of a run in every way, one at a time in a drawn order,
and counts what five verbs then say; an output that differs from the one of the whole run without a
word of it is silently wrong. `--kills COUNT` kills or stops a training so often, each time at a
drawn moment, and looks whether the same command ends with the bits of the run that nothing stopped.
Status 1: anything ends in a traceback, is silently wrong, or does not get its line.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--damage", type=float, metavar="SECONDS")
    parser.add_argument("--kills", type=int, metavar="COUNT")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    # Not before the help, which should not wait for them.
    from benchmarks.faults.damaged import damaged
    from benchmarks.faults.kills import kills
    from benchmarks.faults.place import Place

    root = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        place = Place(root / "p")
        if args.damage:
            return damaged(place, args.damage, args.seed)
        if args.kills:
            return kills(place, args.kills, args.seed)
        return table(place, args.only)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def comparable(line: str, root: Path) -> str:
    """A line without what is another on each machine and at each call."""
    for path, name in ((root, "P"), (Path.cwd(), "HERE")):
        line = line.replace(str(path), name)
    line = re.sub(
        r"process \d+ on \S+ has it since [-\d]+ [:\d]+",
        "process N on HOST has it since DATE",
        line,
    )
    # The names that Orbax draws for its files.
    return re.sub(r"\b[0-9a-f]{32}\b", "DRAWN", line).replace("|", "\\|")


def table(place, only: str) -> int:
    from benchmarks.faults.groups import GROUPS

    count, faults = 0, []
    for group, cases in GROUPS.items():
        shown = [one for one in cases if re.search(only, f"{group}: {one.what}")]
        if shown:
            print(f"\n### {group}\n\n| Input | Status | Line |\n|---|---|---|")
        for one in shown:
            said = one.run(place)
            place.fresh()
            line = comparable(said.line_with(one.needed), place.root)
            print(f"| {one.what} | {said.status} | {line[:300]} |", flush=True)
            count += 1
            if fault := one.fault(said):
                faults.append(f"{group}: {one.what}: {fault}")
    print(f"\n{count} inputs, {len(faults)} faults")
    for fault in faults:
        print(fault, file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
