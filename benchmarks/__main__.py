"""`python -m benchmarks`: MLM training speed of our step beside Hugging Face transformers on PyTorch, on this machine.

Each contestant runs in its own process; ours takes turns with each of the others within one run, so a machine whose
speed drifts slows both. Medians over the rounds are printed, and the ratio is the median of the ratios within rounds.
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
    """Rounds of about `seconds` of ours and of each other contestant in turn: one pair after the other, since three
    large models at once do not fit the memory of a small machine."""
    ours = Worker(names[0], shape, platform)
    results, rates, peak = {}, [], 0
    for name in names[1:] or [None]:
        theirs = Worker(name, shape, platform) if name else None
        pair = [ours, theirs] if theirs else [ours]
        answers = [worker.run(2) for worker in pair]
        steps = [max(1, round(seconds / (answer.get("seconds", seconds) / 2))) for answer in answers]
        turns = [
            [worker.run(count) for worker, count in zip(pair, steps, strict=True)]
            for _ in range(rounds)
            if not any(worker.failed for worker in pair)
        ]
        done = [turn for turn in turns if all("seconds" in answer for answer in turn)]
        pace = [[shape.tokens * n / a["seconds"] for n, a in zip(steps, turn, strict=True)] for turn in done]
        rates += [speed[0] for speed in pace]
        peak = max([peak, *(turn[0]["peak_bytes"] for turn in done)])
        if theirs:
            results[name] = _result(theirs, [s[1] for s in pace], max([0, *(turn[1]["peak_bytes"] for turn in done)]))
            if done:
                results[name]["ratio"] = statistics.median(mine / other for mine, other in pace)
            theirs.close()
    ours.close()
    return {names[0]: _result(ours, rates, peak), **results}


def _result(worker: Worker, rates: list[float], peak: int) -> dict:
    if worker.failed or not rates:
        return {"failed": worker.failed or "the other one of its pair failed"}
    return {
        "tokens_per_second": statistics.median(rates), "rounds": rates,
        "compile_seconds": worker.compile_seconds, "peak_bytes": peak,
    }  # fmt: skip


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
