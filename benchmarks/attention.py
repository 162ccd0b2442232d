"""`python -m benchmarks.attention`: each attention backend of this machine under the masks of the
papers: time and memory of a forward and backward pass, beside `xla`.

Needs JAX and NumPy alone. A row is one layer's attention without its projections, in bfloat16.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.model.attention import Refused, bind
from xlingjax.model.masks import (
    Fields,
    bidirectional,
    camlm,
    causal,
    own_side,
    partner,
    pseudo_tokens,
)
from xlingjax.objectives.xglue import stream_prefix

MASKS = {
    "MLM, TLM, one example a row": bidirectional,
    "MLM, TLM, packed": bidirectional,
    "CLM, packed": (causal & bidirectional),
    "CAMLM": camlm,
    "BTMLM, first stage": pseudo_tokens,
    "VECO, CLWR: the partner": partner,
    "VECO: the own side": own_side,
    "xFNP, stream 1": stream_prefix(1),
}


def fields(name: str, rows: int, length: int) -> Fields:
    """Rows as an objective's: two examples of two sides where they are packed, a fifth of the
    tokens MASKs, padding of unequal width at the end."""
    rng = np.random.default_rng(0)
    columns_L = np.arange(length)
    pack_BL = np.ones((rows, length), np.int32)
    half = length // 2
    if "one example" not in name:
        pack_BL[:, half:] = 2
    for row in range(rows):
        padding = rng.integers(1, length // 8)
        pack_BL[row, length - padding :] = 0
    sides_L = columns_L % half >= half // 2
    mask_BL = rng.random((rows, length)) < 0.2
    return Fields.from_batch(
        {
            "input_ids": jnp.zeros((rows, length), jnp.int32),
            "pack_ids": jnp.asarray(pack_BL),
            "sides": jnp.asarray(np.tile(sides_L, (rows, 1)).astype(np.int32)),
            "is_mask": jnp.asarray((mask_BL & (pack_BL > 0)).astype(np.int32)),
        }
    )


def measure(
    name: str, backend: str, shape: tuple[int, int, int, int], rate: float, calls: int
) -> dict[str, Any]:
    """Seconds and bytes of one forward and backward pass over [B, L, H, K]. Raises `Refused`."""
    rows, length, _, _ = shape
    mask = MASKS[name]
    q, k, v = (
        jax.random.normal(key, shape, jnp.bfloat16)
        for key in jax.random.split(jax.random.key(0), 3)
    )
    seen = fields(name, rows, length)

    def loss(qkv, seen, key):
        attention = bind(mask, seen, seen, backend, rate)
        dropped = None
        if rate:
            dropped = key
        out = attention(*qkv, dropped)
        # A row's end is padding, of which nothing is asked.
        return jnp.where(seen.valid[..., None, None], out.astype(jnp.float32), 0).var()

    key = jax.random.key(1, impl="rbg")
    step = jax.jit(jax.value_and_grad(loss)).lower((q, k, v), seen, key)
    compiled = step.compile()
    for _ in range(3):
        jax.block_until_ready(compiled((q, k, v), seen, key))
    taken = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(calls):
            found = compiled((q, k, v), seen, key)
        jax.block_until_ready(found)
        taken.append((time.perf_counter() - started) / calls)
    memory = compiled.memory_analysis()
    return {"seconds": statistics.median(taken), "temporaries": int(memory.temp_size_in_bytes)}


def contestants(platform: str) -> list[tuple[str, float]]:
    """(backend, attention dropout)."""
    found = [("xla", 0.0), ("xla", 0.1)]
    if platform != "cpu":
        found += [("flash", 0.0), ("flash", 0.1)]
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attention", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--to", default="attention.json", metavar="FILE")
    parser.add_argument(
        "--shapes",
        nargs="+",
        default=["32x512x12x64", "128x128x12x64"],
        metavar="ROWSxLENGTHxHEADSxSIZE",
    )
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--only", default="", help="masks whose name contains this")
    parser.add_argument("--backend", default="", help="this one alone")
    args = parser.parse_args(argv)
    device = jax.devices()[0]
    report: dict[str, Any] = {
        "device": device.device_kind,
        "jax": jax.__version__,
        "calls": args.calls,
        "shapes": {},
    }
    for text in args.shapes:
        rows, length, heads, size = (int(number) for number in text.split("x"))
        shape = rows, length, heads, size
        print(f"\n{text}, bfloat16, {device.device_kind}")
        print("| mask | backend | attention dropout | ms | temporaries, MB |")
        print("|---|---|--:|--:|--:|")
        for name in MASKS:
            if args.only not in name:
                continue
            for backend, rate in contestants(device.platform):
                if args.backend not in backend:
                    continue
                try:
                    found = measure(name, backend, shape, rate, args.calls)
                except Refused as error:
                    found = {"refused": str(error)}
                    print(f"| {name} | {backend} | {rate} | refused | |")
                else:
                    print(
                        f"| {name} | {backend} | {rate} |"
                        f" {1e3 * found['seconds']:.2f} |"
                        f" {found['temporaries'] / 1e6:.0f} |",
                        flush=True,
                    )
                cell = f"{name} / {backend} / {rate}"
                report["shapes"].setdefault(text, {})[cell] = found
    Path(args.to).write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
