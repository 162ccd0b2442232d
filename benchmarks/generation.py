"""`python -m benchmarks.generation`: tokens per second of our decoding beside transformers'
`generate` on PyTorch.

Both have the same random weights (a BART's), sources and search, and write texts of the same fixed
length, so both do the same work. Each contestant runs in its own process and the two take turns;
the ratio is the median of those within rounds. Tokens are those of the texts that are returned, one
for each source.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shapes import FIRST_ID, GenerationShape
from benchmarks.worker import Worker

BAR = 2.0
PAD, END, START = 1, 2, 2


def grid(
    name: str, layers: int, dim: int, ffn: int, vocab: int, rows: tuple[int, ...], length: int
) -> list[GenerationShape]:
    shapes = []
    for w, search in ((1, "greedy"), (5, "beam 5")):
        for b in rows:
            shapes.append(
                GenerationShape(
                    f"{name} {b}x{length} {search}",
                    layers,
                    dim,
                    dim // 64,
                    ffn,
                    vocab,
                    b,
                    length,
                    length,
                    w,
                )
            )
    return shapes


CPU = grid("small-32k", 4, 256, 1024, 32_000, (1, 8, 32), 32) + grid(
    "base-50k", 6, 512, 2048, 50_000, (1, 8), 32
)
GPU = grid("base-250k", 6, 768, 3072, 250_002, (8, 64, 256), 64)
QUICK = grid("quick", 2, 64, 128, 1_000, (2,), 8)


def bart(shape: GenerationShape):
    """The model of both."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(0)
    model = BartForConditionalGeneration(
        BartConfig(
            vocab_size=shape.vocab,
            d_model=shape.dim,
            encoder_layers=shape.layers,
            decoder_layers=shape.layers,
            encoder_attention_heads=shape.heads,
            decoder_attention_heads=shape.heads,
            encoder_ffn_dim=shape.ffn,
            decoder_ffn_dim=shape.ffn,
            max_position_embeddings=512,
            bos_token_id=0,
            pad_token_id=PAD,
            eos_token_id=END,
            decoder_start_token_id=START,
            forced_eos_token_id=None,
            forced_bos_token_id=None,
        )
    )
    return model.eval()


def sources(shape: GenerationShape) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(FIRST_ID, shape.vocab, (shape.rows, shape.source)).astype(np.int32)


class Ours:
    def __init__(self, shape: GenerationShape, platform: str):
        import jax
        import jax.numpy as jnp

        from benchmarks import foreign
        from xlingjax.model.config import preset
        from xlingjax.model.decoding import Decoding, Ids
        from xlingjax.model.generation import generate
        from xlingjax.model.seq2seq import Seq2Seq
        from xlingjax.runtime.machine import keep_freed_memory

        # Compile seconds are part of the result.
        jax.config.update("jax_enable_compilation_cache", False)
        keep_freed_memory()
        unroll = 1
        if platform == "cpu":
            unroll = 0
        model = Seq2Seq(
            preset(
                "xlmr_base",
                layers=shape.layers,
                decoder_layers=shape.layers,
                dim=shape.dim,
                heads=shape.heads,
                ffn=shape.ffn,
                vocab_size=shape.vocab,
                vocab_multiple=1,
                max_positions=514,
                head="tied",
                decoder_embeddings="separate",
                unroll=unroll,
            )
        )
        self.params = jax.device_put(foreign.bart(bart(shape)))
        ids = sources(shape)
        ones = np.ones_like(ids)
        batch = {
            "input_ids": ids,
            "position_ids": ones * np.arange(shape.source, dtype=np.int32),
            "pack_ids": ones,
        }
        self.batch = jax.device_put({**batch, "language_ids": 0 * ones})
        config = Decoding(
            beams=shape.beams, max_length=(0, shape.columns), min_length=shape.columns
        )
        start_B, languages_B = (
            jnp.full(shape.rows, START, jnp.int32),
            jnp.zeros(shape.rows, jnp.int32),
        )

        def write(params, batch):
            return generate(
                model, params, batch, start_B, languages_B, Ids(END, PAD), config, shape.columns
            )

        started = time.perf_counter()
        self.write = jax.jit(write).lower(self.params, self.batch).compile()
        self.compile_seconds = time.perf_counter() - started
        self.run(1)

    def run(self, calls: int) -> float:
        """Seconds of `calls` calls."""
        started = time.perf_counter()
        for _ in range(calls):
            self.texts = np.asarray(self.write(self.params, self.batch).ids[:, 0])
        return time.perf_counter() - started

    def peak_bytes(self) -> int:
        from xlingjax.training.progress import peak_memory_bytes

        return peak_memory_bytes()


class Theirs:
    compile_seconds = 0.0

    def __init__(self, shape: GenerationShape, platform: str):
        import os

        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self.device = "cpu"
        if platform == "gpu":
            self.device = "cuda"
        self.shape = shape
        self.model = bart(shape).to(self.device)
        self.inputs = torch.tensor(sources(shape), dtype=torch.long, device=self.device)
        self.run(1)

    def run(self, calls: int) -> float:
        """Seconds of `calls` calls."""
        import torch

        started, columns = time.perf_counter(), self.shape.columns
        with torch.inference_mode():
            for _ in range(calls):
                made = self.model.generate(
                    self.inputs,
                    attention_mask=torch.ones_like(self.inputs),
                    num_beams=self.shape.beams,
                    do_sample=False,
                    min_new_tokens=columns,
                    max_new_tokens=columns,
                )
                self.texts = made[:, 1:].cpu().numpy()
        return time.perf_counter() - started

    def peak_bytes(self) -> int:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


CONTESTANTS = {"xlingjax": Ours, "transformers": Theirs}


def measure(shape: GenerationShape, platform: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Rounds of about `seconds` of each in turn. Raises RuntimeError where one cannot run."""
    workers = [Worker(name, shape, platform) for name in CONTESTANTS]
    try:
        once = [worker.run(1).get("seconds") for worker in workers]
        if failed := [f"{worker.name}: {worker.failed}" for worker in workers if worker.failed]:
            raise RuntimeError("; ".join(failed))
        calls = [max(1, round(seconds / one)) for one in once]
        rates = []
        for _ in range(rounds):
            turn = []
            for worker, n in zip(workers, calls, strict=True):
                turn.append(shape.tokens * n / worker.run(n)["seconds"])
            rates.append(turn)
    finally:
        for worker in workers:
            worker.close()
    result = {
        worker.name: statistics.median(turn)
        for worker, turn in zip(workers, zip(*rates, strict=True), strict=True)
    }
    ratios = [ours / theirs for ours, theirs in rates]
    return result | {
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "compile_seconds": workers[0].compile_seconds,
    }


def main(argv: list[str] | None = None) -> int:
    from benchmarks.__main__ import find_platform, versions

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.generation", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--to", default="generation.json", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default 5)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a turn (default 5)")
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    parser.add_argument(
        "--quick", action="store_true", help="a tiny shape, to see that everything runs"
    )
    args = parser.parse_args(argv)
    platform, device = find_platform()
    shapes = CPU
    if platform == "gpu":
        shapes = GPU
    if args.quick:
        shapes = QUICK
    report: dict[str, Any] = {"device": device, "versions": versions(), "bar": BAR, "shapes": {}}
    print(
        f"tokens/s, float32, fixed length, on {device}; bar: {BAR:g} times transformers", flush=True
    )
    print(
        "| shape | xlingjax | transformers | ratio (min to max) | compile s"
        " |\n|---|---|---|---|---|",
        flush=True,
    )
    for shape in (shape for shape in shapes if args.only in shape.name):
        found = report["shapes"][shape.name] = measure(shape, platform, args.rounds, args.seconds)
        print(
            f"| {shape.name} | {found['xlingjax']:,.0f} | {found['transformers']:,.0f} |"
            f" {found['ratio']:.2f} ({min(found['ratios']):.2f} to {max(found['ratios']):.2f}) |"
            f" {found['compile_seconds']:.1f} |",
            flush=True,
        )
        Path(args.to).write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {args.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
