"""`python -m benchmarks`: MLM training speed of our step beside Hugging Face transformers on
PyTorch, on this machine.

Each contestant runs in its own process; ours takes turns with each of the others within one run, so
a machine whose speed drifts slows both. Medians over the rounds are printed, and the ratio is the
median of the ratios within rounds.
"""

import argparse
import json
import os
import platform as host
import statistics
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import shapes
from benchmarks.worker import CONTESTANTS, ON_GPU, Worker


def measure(
    shape: shapes.Shape, platform: str, names: list[str], rounds: int, seconds: float
) -> dict:
    """Rounds of about `seconds` of each contestant in turn.

    Ours takes turns with one other at a time: three large models at once do not fit the memory of a
    small machine, nor that of a GPU.
    """
    groups = [(names[0], name) for name in names[1:]] or [(names[0],)]
    results: dict[str, dict] = {}
    for group in groups:
        workers = _ready(group, shape, platform)
        steps = []
        for worker in workers:
            taken = worker.run(2).get("seconds", seconds)
            steps.append(max(1, round(2 * seconds / taken)))
        turns = [_turn(workers, steps) for _ in range(rounds)]
        for index, (worker, count) in enumerate(zip(workers, steps, strict=True)):
            mine = [turn[index] for turn in turns if "seconds" in turn[index]]
            rates = [shape.tokens * count / turn["seconds"] for turn in mine]
            result = _result(worker, rates, mine, results.get(worker.name))
            results[worker.name] = result
            if index:
                first = [turn[0] for turn in turns if "seconds" in turn[0]]
                ours = [shape.tokens * steps[0] / turn["seconds"] for turn in first]
                if ours and rates:
                    result["ratio"] = statistics.median(
                        a / b for a, b in zip(ours, rates, strict=False)
                    )
        for worker in workers:
            worker.close()
    return results


def _ready(names: tuple[str, ...], shape: shapes.Shape, platform: str) -> list[Worker]:
    """The contestants, their steps compiled: one after the other, or all at once on a GPU, whose
    machine has cores for that."""
    workers = []
    for name in names:
        workers.append(Worker(name, shape, platform))
        if platform == "cpu":
            workers[-1].wait()
    for worker in workers:
        worker.wait()
    return workers


def _turn(workers: list[Worker], steps: list[int]) -> list[dict]:
    """The answer of each worker, after so many steps."""
    answers = []
    for worker, count in zip(workers, steps, strict=True):
        answers.append(worker.run(count))
    return answers


def _result(
    worker: Worker, rates: list[float], turns: list[dict], before: dict | None = None
) -> dict:
    """Of these rounds and those `before`, of the same contestant in another group."""
    if worker.failed:
        return {"failed": worker.failed}
    if before and "failed" not in before:
        rates = before["rounds"] + rates
        turns = [*turns, {"peak_bytes": before["peak_bytes"]}]
    return {
        "tokens_per_second": statistics.median(rates),
        "rounds": rates,
        "compile_seconds": worker.compile_seconds,
        "peak_bytes": max(turn["peak_bytes"] for turn in turns),
    }


def useful_flops(shape: shapes.Shape) -> float:
    """Per token; counted with the masked head, whatever a contestant computes besides."""
    from xlingjax.model.config import preset
    from xlingjax.model.flops import flops_per_token

    config = preset(
        "xlmr_base",
        layers=shape.layers,
        dim=shape.dim,
        heads=shape.heads,
        ffn=shape.ffn,
        vocab_size=shape.vocab,
    )
    return flops_per_token(config, shape.length, shape.slots / shape.length)


def in_child(code: str, platform: str) -> str:
    """What `code` prints in a fresh process: JAX must not hold this one's memory or threads."""
    environment = dict(os.environ)
    if platform == "cpu":
        environment["JAX_PLATFORMS"] = "cpu"
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    ).stdout.strip()


def find_platform() -> tuple[str, str]:
    """("cpu" or "gpu", the device's name)."""
    code = "import jax; d = jax.devices()[0]; print(d.platform, d.device_kind, sep='|')"
    platform, kind = in_child(code, "").split("|")
    if platform == "cpu":
        kind = f"{host.processor() or host.machine()}, {os.cpu_count()} cores"
    return platform, kind


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--to", default="bench.json", metavar="FILE")
    parser.add_argument(
        "--rounds", type=int, default=5, help="turns of each contestant (default 5)"
    )
    parser.add_argument("--seconds", type=float, default=15.0, help="length of a turn (default 15)")
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    parser.add_argument(
        "--quick", action="store_true", help="a tiny shape, to see that everything runs"
    )
    parser.add_argument("--without-pytorch", action="store_true", help="measure our step alone")
    parser.add_argument(
        "--contestants",
        nargs="+",
        choices=ON_GPU,
        metavar="NAME",
        help=f"these alone, ours first ({', '.join(ON_GPU)})",
    )
    args = parser.parse_args(argv)
    if args.contestants and not args.contestants[0].startswith("xlingjax"):
        # Ratios are of the first to each of the others.
        parser.error(f"--contestants {args.contestants[0]}: name ours first")
    console = Console()
    platform, device = find_platform()
    grid = shapes.CPU
    names = list(CONTESTANTS)
    if platform == "gpu":
        grid = shapes.GPU
        names = list(ON_GPU)
    if args.quick:
        grid = shapes.QUICK
    if args.contestants:
        names = args.contestants
    if args.without_pytorch:
        names = [name for name in names if name.startswith("xlingjax")]
    report: dict = {
        "device": device,
        "platform": platform,
        "versions": versions(),
        "shapes": {},
        "peak_flops": {},
    }
    table = Table(title=f"MLM training, dropout 0.1, AdamW — {device}")
    for column in (
        "shape",
        "contestant",
        "tokens/s",
        "ours / theirs",
        "useful FLOP/s of peak",
        "compile s",
        "peak GB",
    ):
        justify = "right"
        if column in ("shape", "contestant"):
            justify = "left"
        table.add_column(column, justify=justify)
    for shape in grid:
        if args.only not in shape.name:
            continue
        if shape.dtype not in report["peak_flops"]:
            code = f"from benchmarks.peak import *; print(matmul_flops_per_second('{shape.dtype}'))"
            report["peak_flops"][shape.dtype] = float(in_child(code, platform))
        console.print(f"{shape.name}: {', '.join(names)} in turn ...")
        results = measure(shape, platform, names, args.rounds, args.seconds)
        flops, peak = useful_flops(shape), report["peak_flops"][shape.dtype]
        for name, result in results.items():
            if "failed" in result:
                table.add_row(shape.name, name, f"failed: {result['failed'][:60]}")
                continue
            result["utilisation"] = result["tokens_per_second"] * flops / peak
            ratio = ""
            if "ratio" in result:
                ratio = f"{result['ratio']:.2f}"
            table.add_row(
                shape.name,
                name,
                f"{result['tokens_per_second']:,.0f}",
                ratio,
                f"{result['utilisation']:.1%}",
                f"{result['compile_seconds']:.1f}",
                f"{result['peak_bytes'] / 1e9:.2f}",
            )
        report["shapes"][shape.name] = {"flops_per_token": flops, "contestants": results}
        Path(args.to).write_text(json.dumps(report, indent=1) + "\n")
    console.print(table)
    for dtype, peak in report["peak_flops"].items():
        console.print(f"measured matmul peak, {dtype}: {peak / 1e12:.3f} TFLOP/s")
    report["input_pipeline"] = input_pipeline(console)
    Path(args.to).write_text(json.dumps(report, indent=1) + "\n")
    console.print(f"written to {args.to}")
    return 0


def versions() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in ("jax", "flax", "optax", "torch", "transformers", "xlingjax"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def input_pipeline(console: Console) -> dict:
    """Tokens per second of a core of the data pipeline alone."""
    try:
        rate = json.loads(
            in_child("from benchmarks.pipeline import *; print(measure())", "cpu").splitlines()[-1]
        )
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()[-1]
        console.print(f"input pipeline: not measured ({reason})")
        return {"failed": reason}
    for name, tokens in rate.items():
        console.print(f"input pipeline, {name}: {tokens:,.0f} tokens/s")
    return rate


if __name__ == "__main__":
    sys.exit(main())
