"""The other side of a pretraining on one's own text: masked language modelling by transformers on
PyTorch, as its example `run_mlm` trains it, on the same text for as many seconds.

    python -m benchmarks.run_mlm MODEL TEXT SECONDS [--clock wall] [--rate 5e-4] [--seed 0]

MODEL: a run of ours, exported: of it the shape and the tokenizer alone, the weights are random.
TEXT: folder of pairs/, whose lines are read as monolingual text, a line a row, and of held/, whose
sentences look for their translations. SECONDS: of the processor, all threads together, or of the
wall clock, reading and evaluation left out. 15 % of the tokens are predicted
(`DataCollatorForLanguageModeling`), AdamW with linear warm-up and decay over the time. Prints JSON:
what was read, retrieval by layer.
"""

import argparse
import json
import os
import time
from pathlib import Path

# Before PyTorch is loaded: threads that wait for each other would count as work.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

import numpy as np
import torch
import transformers

from xlingjax.data.held_out_pairs import Pairs, pairs_with_pivot, read_pairs
from xlingjax.evaluation.retrieval import SCORES, mean_by_layer, searched, shares

WARMUP = 0.05
"""Of the time."""
CLOCKS = {"processor": time.process_time, "wall": time.monotonic}


def lines_of(folder: Path) -> list[str]:
    lines = []
    for pairs in pairs_with_pivot([f"{folder}/*"]).values():
        lines += [*pairs.foreign, *pairs.english]
    return lines


def train(model, tokenizer, lines: list[str], args) -> dict[str, float]:
    """{"steps", "tokens" that were read, "loss" of the last steps}."""
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    rows = tokenizer(lines, truncation=True, max_length=args.length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
    rng = np.random.default_rng(args.seed)
    model.train()
    steps = tokens = 0
    losses: list[float] = []
    order: list[int] = []
    clock = CLOCKS[args.clock]
    began = clock()
    while (share := (clock() - began) / args.seconds) < 1:
        if len(order) < args.batch:
            order = rng.permutation(len(lines)).tolist()
        chosen, order = order[: args.batch], order[args.batch :]
        batch = collate([{"input_ids": rows["input_ids"][i]} for i in chosen])
        # In shares of the time, not of steps: how many these will be nobody knows.
        scale = min(share / WARMUP, (1 - share) / (1 - WARMUP))
        for group in optimizer.param_groups:
            group["lr"] = args.rate * scale
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        steps += 1
        tokens += int(batch["attention_mask"].sum())
    last = float(np.mean(losses[-100:]))
    return {"steps": steps, "tokens": tokens, "loss": last}


@torch.no_grad()
def states(model, tokenizer, lines: list[str]) -> np.ndarray:
    """Mean states [layer, sentence, width] of all tokens of a sentence, as our retrieval has
    them."""
    model.eval()
    found = []
    for start in range(0, len(lines), 50):
        batch = tokenizer(
            lines[start : start + 50],
            truncation=True,
            max_length=128,
            padding=True,
            return_tensors="pt",
        )
        hidden = model(**batch, output_hidden_states=True).hidden_states
        weights = batch["attention_mask"][None, :, :, None]
        total = (torch.stack(hidden) * weights).sum(2)
        found.append((total / weights.sum(2)).numpy())
    return np.concatenate(found, axis=1)


def retrieval(model, tokenizer, pairs: dict[str, Pairs]) -> dict:
    tables = {}
    for language, aligned in pairs.items():
        english = states(model, tokenizer, list(aligned.english))
        foreign = states(model, tokenizer, list(aligned.foreign))
        layers = enumerate(zip(english, foreign, strict=True))
        tables[language] = {str(i): shares(searched(*sides)) for i, sides in layers}
    layers = mean_by_layer(tables)
    best = {}
    for score in SCORES:
        at = max(layers, key=lambda layer: layers[layer][score])
        best[score] = {"layer": int(at), "value": layers[at][score]}
    return {"best": best, "by_layer": layers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--clock", choices=CLOCKS, default="processor")
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    transformers.set_seed(args.seed)
    torch.set_num_threads(2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    config = transformers.AutoConfig.from_pretrained(args.model)
    model = transformers.AutoModelForMaskedLM.from_config(config)
    began, before = time.monotonic(), time.process_time()
    found = train(model, tokenizer, lines_of(args.text / "pairs"), args)
    found |= {
        "class": type(model).__name__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "dropout": config.hidden_dropout_prob,
        "seconds": time.monotonic() - began,
        "cpu_seconds": time.process_time() - before,
        "rate": args.rate,
        "seed": args.seed,
    }
    found |= retrieval(model, tokenizer, read_pairs(args.text / "held"))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
