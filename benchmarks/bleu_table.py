"""`python -m benchmarks.bleu_table RUN...`: held-out BLEU of runs side by side, a row each, a
column per evaluation."""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def table(runs: Sequence[str], name: str) -> str:
    """A Markdown table: mean BLEU by step; of the last evaluation BLEU by direction, and the
    outputs in a wrong language."""
    rows = {}
    for run in runs:
        lines = (Path(run) / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()
        found = [
            (line["step"], line["values"])
            for line in map(json.loads, lines)
            if line["name"] == name
        ]
        if found:
            rows[Path(run).name] = dict(found)
    steps = sorted(set().union(*rows.values()))
    directions: dict[str, None] = {}
    for found in rows.values():
        directions |= dict.fromkeys(found[max(found)]["bleu"])
    head = ["run", *(f"step {step:,}" for step in steps), *directions, "wrong language"]
    out = [" | ".join(head), " | ".join("---" for _ in head)]
    for run, found in rows.items():
        means = {step: values["bleu_mean"] for step, values in found.items()}
        last = found[max(found)]
        cells = [
            run,
            *_cells(means, steps),
            *_cells(last["bleu"], directions),
            f"{100 * last['wrong_language_rate_mean']:.1f} %",
        ]
        out.append(" | ".join(cells))
    ways: dict[str, list[str]] = {}
    for found in rows.values():
        for way, of_way in found[max(found)]["signatures"].items():
            known = ways.setdefault(of_way["bleu"], [])
            if way not in known:
                known.append(way)
    told = [f"BLEU of {', '.join(known)}: `{signature}`" for signature, known in ways.items()]
    return "\n".join([*(f"| {row} |" for row in out), "", *told])


def _cells(values: Mapping[Any, float], keys: Iterable[Any]) -> list[str]:
    """The value of each key, "" where there is none."""
    cells = []
    for key in keys:
        cell = ""
        if key in values:
            cell = f"{values[key]:.1f}"
        cells.append(cell)
    return cells


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bleu_table", description=__doc__)
    parser.add_argument(
        "--name", default="generation_dev", help="of the evaluator (default %(default)s)"
    )
    parser.add_argument("runs", nargs="+", metavar="RUN")
    arguments = parser.parse_args()
    print(table(arguments.runs, arguments.name))
