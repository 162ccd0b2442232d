"""`python -m benchmarks.objectives`: what a training step of each objective costs, beside one of
MLM on as much text.

All objectives train one model in one process and take turns, a step each, so a machine whose speed
drifts slows all; the ratio is the median of the ratios within rounds. Beside it stands the ratio of
what each must compute (`cost.py`). Needs JAX, Flax, optax and NumPy alone.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.cost import Pass, step_flops
from benchmarks.shapes import FIRST_ID, Shape
from xlingjax.data.batches.loader import to_global
from xlingjax.data.features import FIELDS, SPECIAL_IDS
from xlingjax.model.config import ModelConfig, preset
from xlingjax.model.encoder import Encoder
from xlingjax.model.partition import MeshConfig, batch_sharding, make_mesh
from xlingjax.objectives.ernie_m import BTMLM, CAMLM
from xlingjax.objectives.unicoder import CLMLM, CLPC, CLWR
from xlingjax.objectives.veco import VECO
from xlingjax.objectives.xlm import CLM, MLM, TLM
from xlingjax.preprocessors.ernie_m import BtmlmFeatures, CamlmFeatures
from xlingjax.preprocessors.unicoder import ClMlmFeatures
from xlingjax.preprocessors.veco import VecoFeatures, VecoTextFeatures
from xlingjax.preprocessors.xlm import MlmFeatures, TlmFeatures
from xlingjax.runtime.machine import keep_freed_memory
from xlingjax.training.optimizer import OptimizerConfig, make_optimizer
from xlingjax.training.step import abstract_state, lower_state, make_train_step, run_key

CPU = Shape("small-32k 16x128", 4, 256, 4, 1024, 32_000, 16, 128)
GPU = Shape("base 64x128", 12, 768, 12, 3072, 250_002, 64, 128, "bfloat16")
QUICK = Shape("quick 4x32", 2, 64, 2, 128, 1_000, 4, 32)
SHAPES = {"cpu": CPU, "gpu": GPU, "quick": QUICK}
PHASE_2 = 1000
FROZEN = {0: ["^(?!.*cross_attention)"], PHASE_2: []}
"""VECO's first phase trains the cross-attention alone (gin/objectives/veco.gin)."""


@dataclass(frozen=True)
class Case:
    """An objective, its rows, and its passes through the encoder."""

    name: str
    objective: Any
    passes: tuple[Pass, ...]
    text: int
    """Columns of a row that hold text."""
    behind: int = 0
    """Columns behind the text: placeholders, or MASKs in slots of their own."""
    slots: int = 0
    pairs: bool = False
    stage: int = PHASE_2
    """A step of the run whose parameters are trained."""

    @property
    def length(self) -> int:
        return self.text + self.behind


def cases(text: int) -> list[Case]:
    """Every objective on rows that hold `text` tokens, with the prediction slots that its features
    give it; MLM first. (Not among them: DAN, whose model has no encoder.)"""
    mlm, tlm, cl_mlm = (
        features.slots(text) for features in (MlmFeatures(), TlmFeatures(), ClMlmFeatures())
    )
    pair, segments = (features.slots(text) for features in (VecoFeatures(), VecoTextFeatures()))
    in_place, apart = (CamlmFeatures(layout=layout) for layout in ("in_place", "slots"))
    masks, longer = in_place.slots(text), _row(apart, text)
    with_places = _row(BtmlmFeatures(), text)
    places, chosen = (BtmlmFeatures().placeholders(with_places), BtmlmFeatures().slots(with_places))
    plain, plug_in = Pass(pair), Pass(pair, plugged_in=True)
    first_phase = (Pass(0, "none"), Pass(pair, "cross_attention", plugged_in=True))
    of_segments = Pass(segments), Pass(segments, plugged_in=True)
    return [
        Case("MLM", MLM(chunk=0), (Pass(mlm),), text, slots=mlm),
        Case("CLM", CLM(chunk=0), (Pass(text),), text),
        Case("TLM", TLM(chunk=0), (Pass(tlm),), text, slots=tlm, pairs=True),
        Case("CLWR", CLWR(chunk=0), (Pass(text),), text, pairs=True),
        Case("CLPC", CLPC(), (Pass(0),), text, pairs=True),
        Case("CL-MLM", CLMLM(chunk=0), (Pass(cl_mlm),), text, slots=cl_mlm, pairs=True),
        Case("CAMLM, in place", CAMLM(chunk=0), (Pass(masks),), text, slots=masks, pairs=True),
        Case(
            "CAMLM, slots",
            CAMLM(chunk=0),
            (Pass(longer - text),),
            text,
            longer - text,
            longer - text,
            pairs=True,
        ),
        Case(
            "BTMLM",
            BTMLM(chunk=0),
            (Pass(places, "none"), Pass(chosen)),
            text,
            with_places - text,
            chosen,
        ),
        Case("VECO", VECO(chunk=0), (plain, plug_in), text, slots=pair, pairs=True),
        Case(
            "VECO with TLM",
            VECO(tlm=True, chunk=0),
            (plain, plug_in, plain),
            text,
            slots=pair,
            pairs=True,
        ),
        Case(
            "VECO, text", VECO("veco_text", chunk=0), of_segments, text, slots=segments, pairs=True
        ),
        Case(
            "VECO, phase 1",
            VECO(plug_out=False, chunk=0),
            first_phase,
            text,
            slots=pair,
            pairs=True,
            stage=0,
        ),
    ]


def _row(features: Any, text: int) -> int:
    """The shortest row whose text has `text` tokens."""
    return next(
        length for length in range(text + 1, 3 * text) if features.text_length(length) == text
    )


def model_config(shape: Shape, **overrides: Any) -> ModelConfig:
    """The shape's model with every part that an objective asks for, its layers in line (XLA counts
    a loop once)."""
    return preset(
        "xlmr_base",
        layers=shape.layers,
        dim=shape.dim,
        heads=shape.heads,
        ffn=shape.ffn,
        vocab_size=shape.vocab,
        dtype=shape.dtype,
        unroll=0,
        cross_attention=True,
        word_recovery=True,
        paraphrase=True,
        **overrides,
    )


def batch(case: Case, shape: Shape, seed: int = 0) -> dict[str, np.ndarray]:
    """A batch without padding of the fields that the objective reads."""
    rng, rows = np.random.default_rng(seed), shape.rows
    mask_id, columns_L = shape.vocab - 1, np.arange(case.length)
    text_L, second_L = columns_L < case.text, columns_L >= case.text // 2
    behind_BP = np.tile(columns_L[~text_L], (rows, 1))
    by_side = isinstance(case.objective, (VECO, CAMLM))
    if case.pairs:  # of the MASKs behind a pair the first half is side 0's
        sides_L = np.where(text_L, second_L, columns_L >= case.text + case.behind // 2)
    else:
        sides_L = ~text_L
    original_BL = rng.integers(FIRST_ID, mask_id, (rows, case.length))
    np.put_along_axis(original_BL, behind_BP, mask_id, 1)
    if case.pairs and case.behind:
        positions_BM, targets_BM = (behind_BP, rng.integers(FIRST_ID, mask_id, behind_BP.shape))
    else:
        parts = [columns_L[text_L]]
        if by_side:
            parts = np.split(columns_L[text_L], 2)
        each = [
            rng.permuted(np.tile(part[1:], (rows, 1)), axis=1)[:, : case.slots // len(parts)]
            for part in parts
        ]
        positions_BM = np.sort(np.concatenate(each, axis=1), axis=1)
        targets_BM = np.take_along_axis(original_BL, positions_BM, 1)
    ids_BL, is_mask_BL = original_BL.copy(), np.zeros_like(original_BL)
    np.put_along_axis(ids_BL, positions_BM, mask_id, 1)
    masks_BM = behind_BP
    if by_side:
        masks_BM = positions_BM
    np.put_along_axis(is_mask_BL, masks_BM, 1, 1)
    fields = {
        "input_ids": ids_BL,
        "original_ids": original_BL,
        "position_ids": np.tile(columns_L, (rows, 1)),
        "language_ids": np.zeros_like(ids_BL),
        "pack_ids": np.ones_like(ids_BL),
        "sides": np.tile(sides_L, (rows, 1)),
        "is_mask": is_mask_BL,
        "masked_positions": positions_BM,
        "masked_targets": targets_BM,
        "masked_weights": np.ones(positions_BM.shape),
        "pseudo_positions": behind_BP,
        "pseudo_weights": np.ones(behind_BP.shape),
        "special_ids": np.tile(np.resize(np.arange(FIRST_ID), SPECIAL_IDS), (rows, 1)),
        "target_weights": np.ones(ids_BL.shape),
        "labels": np.arange(rows) % 2,
        "example_weights": np.ones(rows),
    }
    return {name: fields[name].astype(FIELDS[name].dtype) for name in case.objective.reads}


class Steps:
    """The compiled steps of some cases, one state for all of them."""

    def __init__(self, config: ModelConfig, shape: Shape, chosen: list[Case]):
        mesh = make_mesh(MeshConfig(), jax.devices()[:1])
        settings = OptimizerConfig(
            schedule="constant", warmup_steps=0, weight_decay=0.01, frozen=FROZEN
        )
        encoder = Encoder(config)
        rule = make_optimizer(settings, 2 * PHASE_2, encoder.abstract())
        abstract = abstract_state(mesh, encoder, rule, settings)
        shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract)
        self.batches, self.steps, self.key = {}, {}, run_key(0, "rbg", mesh)
        for case in chosen:
            rows = batch(case, shape)
            self.batches[case.name] = to_global(
                rows, batch_sharding(mesh), {n: x.shape for n, x in rows.items()}
            )
            step = make_train_step(
                shardings=shardings,
                model=encoder,
                objective=case.objective,
                languages=1,
                optimizer=rule,
                config=settings,
                microbatches=1,
                stage=case.stage,
            )
            self.steps[case.name] = step.lower(
                abstract, self.batches[case.name], self.key
            ).compile()
            print(f"compiled {case.name}", flush=True)
        self.state = lower_state(encoder, rule, settings, shardings).compile()(jax.random.key(0))

    def flops(self, name: str) -> float:
        """XLA's count of the compiled step, element-wise operations among them."""
        found = self.steps[name].cost_analysis()
        if isinstance(found, list):
            found = found[0]
        return float(found["flops"])

    def seconds(self, name: str) -> tuple[float, float]:
        """(by the clock, of the processor) of one step."""
        clock, processor = time.perf_counter(), time.process_time()
        self.state, sums = self.steps[name](self.state, self.batches[name], self.key)
        jax.block_until_ready((self.state, sums))
        return time.perf_counter() - clock, time.process_time() - processor


def expected_flops(config: ModelConfig, shape: Shape, case: Case) -> float:
    return step_flops(
        config, shape.rows, case.length, case.passes, mixtures=isinstance(case.objective, CLWR)
    )


def measure(shape: Shape, rounds: int, only: str = "") -> dict[str, dict[str, Any]]:
    """Per objective: seconds of its steps, and ratios to MLM: measured in every round, expected,
    counted by XLA.

    only: part of the names of those to measure beside MLM. Measured are seconds of the processor
    where that is what computes: other work on the machine changes them little.
    """
    config = model_config(shape)
    chosen = []
    for case in cases(shape.length):
        if case.name == "MLM" or only in case.name:
            chosen.append(case)
    steps = Steps(config, shape, chosen)
    for case in chosen:
        steps.seconds(case.name)
    turns = []
    for _ in range(rounds):
        turns.append({case.name: steps.seconds(case.name) for case in chosen})
    kind = int(jax.default_backend() == "cpu")
    expected = {case.name: expected_flops(config, shape, case) for case in chosen}
    counted = {case.name: steps.flops(case.name) for case in chosen}
    results: dict[str, dict[str, Any]] = {}
    for case in chosen:
        name, ratios = (case.name, [turn[case.name][kind] / turn["MLM"][kind] for turn in turns])
        results[name] = {
            "columns": case.length,
            "seconds": [turn[name][0] for turn in turns],
            "processor_seconds": [turn[name][1] for turn in turns],
            "ratios": ratios,
            "ratio": statistics.median(ratios),
            "expected": expected[name] / expected["MLM"],
            "xla": counted[name] / counted["MLM"],
            "expected_flops": expected[name],
            "xla_flops": counted[name],
        }
    return results


def table(results: dict[str, dict[str, Any]]) -> str:
    """Ratios to MLM in lines of Markdown, with the quartiles of the rounds."""
    lines = [
        "| objective | columns | s/step | ratio | quartiles | expected | ratio / expected | XLA's"
        " count |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    measured = "seconds"
    if jax.default_backend() == "cpu":
        measured = "processor_seconds"
    for name, of in results.items():
        seconds = of[measured]
        low, high = np.quantile(of["ratios"], (0.25, 0.75))
        lines.append(
            f"| {name} | {of['columns']} | {statistics.median(seconds):.3f} | {of['ratio']:.2f} |"
            f" {low:.2f}-{high:.2f} | {of['expected']:.2f} | {of['ratio'] / of['expected']:.2f} |"
            f" {of['xla']:.2f} |"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.objectives", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--to", default="objectives.json", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=9, help="steps of each objective (default 9)")
    parser.add_argument(
        "--only", default="", help="objectives whose name contains this, beside MLM"
    )
    parser.add_argument("--shape", choices=SHAPES, help="default: that of the platform")
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds}: at least 1")
    if not any(args.only in case.name for case in cases(CPU.length)):
        parser.error(
            f"--only {args.only}: none of {', '.join(case.name for case in cases(CPU.length))}"
        )
    keep_freed_memory()
    device = jax.devices()[0]
    of_platform = "gpu"
    if device.platform == "cpu":
        of_platform = "cpu"
    shape = SHAPES[args.shape or of_platform]
    print(f"{shape.name}, {shape.dtype}, dropout 0.1, AdamW, on {device.device_kind}", flush=True)
    results = measure(shape, args.rounds, args.only)
    print(table(results))
    report = {
        "device": device.device_kind,
        "shape": dataclasses.asdict(shape),
        "rounds": args.rounds,
        "versions": {name: metadata.version(name) for name in ("jax", "flax", "optax", "numpy")},
        "objectives": results,
    }
    Path(args.to).write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {args.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
