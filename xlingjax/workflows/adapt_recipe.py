"""recipe.gin of `xlingjax adapt`: what it decided, as a recipe that can be read and run again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from xlingjax.inference.sentences import sentences_of
from xlingjax.model.config import ModelConfig
from xlingjax.training.run_record import read_run_record
from xlingjax.workflows.adapt_request import Request, absolute

CHUNK = 1024
"""Predicted tokens whose logits are in memory at once: the vocabulary of a released model is
large."""


def settings(
    request: Request, config: ModelConfig, start: Path, held: Mapping[str, int]
) -> dict[str, Any]:
    """{macro: value} before the training is planned. held: {file: lines} of what is held out."""
    # Accelerators multiply bfloat16 fastest, CPUs float32.
    dtype = "bfloat16"
    unroll = 1  # layers of a step of the scan: compiled soonest
    if jax.default_backend() == "cpu":
        dtype = "float32"
        unroll = 0  # all layers, which is faster there
    heldout = start.parent / "heldout"
    texts = []
    for name in held:
        if name.endswith(".txt"):
            code = name.removesuffix(".txt")
            texts.append(f"{code}={heldout / 'text' / code}.txt")
    heldout_pairs = None
    if (heldout / "pairs").is_dir():
        heldout_pairs = str(heldout / "pairs")
    values = {
        "INIT_FROM": str(start),
        "VOCABULARY": str(start),
        "MONO": " ".join(map(absolute, request.text)),
        "PARALLEL": " ".join(map(absolute, request.parallel)) or None,
        "BATCH": request.batch,
        "LENGTH": request.length,
        "MICROBATCHES": 1,
        "LOSS_CHUNK": CHUNK,
        "DTYPE": dtype,
        "UNROLL": unroll,
        # Until a trial has told how many fit.
        "TRAIN_STEPS": request.steps or 1000,
        "WARMUP_STEPS": 10,
        "EVAL_EVERY": 0,
        "HELDOUT_TEXT": " ".join(texts) or None,
        "HELDOUT_PAIRS": heldout_pairs,
        "PROBE_PAIRS": 1000,
        "HELDOUT_ALIGNMENTS": request.gold and str(Path(request.gold).absolute()),
    }
    # The rows of the language embedding keep their languages, whatever the files are of.
    if config.has_languages:
        values["LANGUAGES"] = " ".join(read_run_record(start)["languages"])
    return values


def recipe_text(request: Request, values: Mapping[str, Any], share: Mapping[str, float]) -> str:
    """The recipe. share: of "text" and "pairs" that is held out."""
    lines = ["# Written by `xlingjax adapt`: all that it decided."]
    for file in request.included_files:
        lines.append(f'include "{file}"')
    objectives = ", ".join(f"@{name}()" for name in request.names)
    lines.append(f"train.objectives = [{objectives}]")
    lines.append('train.schedule = "alternate"')
    lines.append("")
    # Behind the includes, whose defaults they replace.
    for macro, value in values.items():
        lines.append(f"{macro} = {value!r}")
    lines.append(f"text.holdout = {share['text']!r}  # the lines of heldout/")
    lines.append(f"pairs/text.holdout = {share['pairs']!r}")
    # A model made for sentences (e5, LaBSE) has a pooling and a prefix that its vectors need.
    own = sentences_of(read_run_record(values["INIT_FROM"]))
    # Retrieval is measured on the model's own sentence vectors.
    if own and own.pooling:
        lines.append(f"retrieval.poolings = ({own.pooling!r},)")
        lines.append(f"retrieval.prefix = {own.prefix!r}")
    # Last, so that what the command line says has the last word.
    for file in request.files:
        lines.append(f'include "{Path(file).absolute()}"')
    for override in request.overrides:
        lines.append(override.replace("=", " = ", 1))
    return "\n".join(lines) + "\n"
