"""`python -m benchmarks`: MLM training speed of our step beside Hugging Face transformers on PyTorch, on this machine.

Each contestant runs in its own process; they take turns within one run, so a machine whose speed drifts slows all of
them. Medians over the rounds are printed, and the ratio is the median of the ratios within rounds.
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
from benchmarks.worker import CONTESTANTS, Worker


def measure(shape: shapes.Shape, platform: str, names: list[str], rounds: int, seconds: float) -> dict:
    """Rounds of about `seconds` for each contestant, in turn."""
    workers = [Worker(name, shape, platform) for name in names]
    steps = {}
    for worker in workers:
        if not worker.failed:
            answer = worker.run(2)
            steps[worker.name] = max(1, round(seconds / (answer["seconds"] / 2))) if "seconds" in answer else 1
    rates: dict[str, list[float]] = {name: [] for name in names}
    peaks: dict[str, int] = {}
    for _ in range(rounds):
        for worker in workers:
            if worker.failed:
                continue
            answer = worker.run(steps[worker.name])
            if "seconds" in answer:
                rates[worker.name].append(shape.tokens * steps[worker.name] / answer["seconds"])
                peaks[worker.name] = answer["peak_bytes"]
    results = {}
    for worker in workers:
        worker.close()
        if worker.failed:
            results[worker.name] = {"failed": worker.failed}
            continue
        mine = rates[worker.name]
        results[worker.name] = {
            "tokens_per_second": statistics.median(mine), "rounds": mine,
            "compile_seconds": worker.compile_seconds, "peak_bytes": peaks[worker.name],
        }  # fmt: skip
    for name in names[1:]:
        if rates[name] and rates["xlingjax"]:
            ratios = [a / b for a, b in zip(rates["xlingjax"], rates[name], strict=True)]
            results[name]["ratio"] = statistics.median(ratios)
    return results


def useful_flops(shape: shapes.Shape) -> float:
    """Per token; counted with the masked head, whatever a contestant computes besides."""
    from xlingjax.model.config import preset
    from xlingjax.perf import flops_per_token

    config = preset(
        "xlmr_base", layers=shape.layers, dim=shape.dim, heads=shape.heads, ffn=shape.ffn, vocab_size=shape.vocab
    )
    return flops_per_token(config, shape.length, shape.slots / shape.length)


def in_child(code: str, platform: str) -> str:
    """What `code` prints in a fresh process: JAX must not hold this one's memory or threads."""
    environment = dict(os.environ, **({"JAX_PLATFORMS": "cpu"} if platform == "cpu" else {}))
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    ).stdout.strip()


def find_platform() -> tuple[str, str]:
    """("cpu" or "gpu", the device's name)."""
    code = "import jax; d = jax.devices()[0]; print(d.platform, d.device_kind, sep='|')"
    platform, kind = in_child(code, "").split("|")
    return platform, kind if platform != "cpu" else f"{host.processor() or host.machine()}, {os.cpu_count()} cores"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="bench.json", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contestant (default 5)")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of a turn (default 15)")
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    parser.add_argument("--quick", action="store_true", help="a tiny shape, to see that everything runs")
    parser.add_argument("--without-pytorch", action="store_true", help="measure our step alone")
    args = parser.parse_args(argv)
    console = Console()
    platform, device = find_platform()
    grid = shapes.QUICK if args.quick else shapes.GPU if platform == "gpu" else shapes.CPU
    names = list(CONTESTANTS[:1] if args.without_pytorch else CONTESTANTS)
    report: dict = {"device": device, "platform": platform, "versions": versions(), "shapes": {}, "peak_flops": {}}
    table = Table(title=f"MLM training, dropout 0.1, AdamW — {device}")
    for column in ("shape", "contestant", "tokens/s", "ours / theirs", "useful FLOP/s of peak", "compile s", "peak GB"):
        table.add_column(column, justify="left" if column in ("shape", "contestant") else "right")
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
            table.add_row(
                shape.name, name, f"{result['tokens_per_second']:,.0f}",
                f"{result['ratio']:.2f}" if "ratio" in result else "", f"{result['utilisation']:.1%}",
                f"{result['compile_seconds']:.1f}", f"{result['peak_bytes'] / 1e9:.2f}",
            )  # fmt: skip
        report["shapes"][shape.name] = {"flops_per_token": flops, "contestants": results}
        Path(args.output).write_text(json.dumps(report, indent=1) + "\n")
    console.print(table)
    for dtype, peak in report["peak_flops"].items():
        console.print(f"measured matmul peak, {dtype}: {peak / 1e12:.3f} TFLOP/s")
    report["input_pipeline"] = input_pipeline(console)
    Path(args.output).write_text(json.dumps(report, indent=1) + "\n")
    console.print(f"written to {args.output}")
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
    """Tokens per second of the data pipeline alone, where TensorFlow is installed."""
    try:
        rate = json.loads(in_child("from benchmarks.pipeline import *; print(measure())", "cpu").splitlines()[-1])
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()[-1]
        console.print(f"input pipeline: not measured ({reason})")
        return {"failed": reason}
    for name, tokens in rate.items():
        console.print(f"input pipeline, {name}: {tokens:,.0f} tokens/s")
    return rate


if __name__ == "__main__":
    sys.exit(main())
