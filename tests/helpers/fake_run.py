"""A run folder made by hand, in the layout that training writes, with values a test can name."""

import json
from pathlib import Path

import numpy as np

from xlingjax.evaluation.retrieval import DIRECTIONS, SCORES, best_layer, mean_by_layer

LANGUAGES = ("de", "en", "zh")
STEPS = (10, 20, 30, 40)


def retrieval_values(level: float) -> dict:
    """Two layers over the embeddings; layer 1 is best for raw, layer 2 for centred; zh 0.1 below
    de."""
    offsets = {"0": -0.2, "1": 0.1, "2": 0.0}
    table = {
        language: {
            layer: {
                f"{kind}_{direction}": (
                    level + offset + shift + (0.2 if (kind, layer) == ("centred", "2") else 0)
                )
                for kind in ("raw", "centred")
                for direction in DIRECTIONS
            }
            for layer, offset in offsets.items()
        }
        for language, shift in (("de", 0.05), ("zh", -0.05))
    }
    layers = mean_by_layer(table)
    best = {
        s: {"layer": int(best_layer(layers, s)), "value": layers[best_layer(layers, s)][s]}
        for s in SCORES
    }
    return {
        "kind": "retrieval",
        "retrieval_mean": best["raw_en_to_xx"]["value"],
        "retrieval_mean_centred": best["centred_en_to_xx"]["value"],
        "retrieval_mean_xx_to_en": best["raw_xx_to_en"]["value"],
        "retrieval_mean_centred_xx_to_en": best["centred_xx_to_en"]["value"],
        "retrieval_best_layer": best["raw_en_to_xx"]["layer"],
        "retrieval_best_layer_centred": best["centred_en_to_xx"]["layer"],
        "pairs": {"de": 300, "zh": 200},
        "by_language": {"mean": table},
        "by_layer": {"mean": layers},
        "best": {"mean": best},
    }


SAMPLES = {
    "kind": "masked_samples",
    "texts": [
        {
            "language": "de",
            "pieces": ["</s>", "▁Die", "[MASK]", "▁schläft", "<b>", "</s>"],
            "slots": [
                {"column": 2, "target": "▁Katze", "predictions": [["▁Katze", 0.61], ["▁Kuh", 0.2]]}
            ],
        }
    ],
}

ATTENTION = {
    "kind": "attention_maps",
    "maps": [
        {
            "use": "cross-attention",
            "languages": ["de", "en"],
            "layer": 2,
            "head": None,
            "pieces": ["<s>", "▁Katze", "<s>", "▁cat"],
            "second": 2,
            "attention": [
                [0.0, 0.0, 0.75, 0.25],
                [0.0, 0.0, 0.125, 0.875],
                [1.0, 0.0, 0.0, 0.0],
                [0.5, 0.5, 0.0, 0.0],
            ],
        }
    ],
}
ALIGNMENT = {
    "kind": "alignment",
    "alignment_error": 0.125,
    "by_layer": {
        str(n): {"intersection": 0.5 - 0.1 * n, "itermax": 0.425 - 0.1 * n} for n in range(4)
    },
    "by_language": {
        la: {str(n): {"intersection": 0.5, "itermax": 0.25} for n in range(4)}
        for la in ("de", "zh")
    },
}


def write_run(path: Path, objectives=("mlm", "tlm"), level=0.5, finished=True, steps=STEPS) -> Path:
    path.mkdir(parents=True)
    metrics, evaluations, log = (
        [],
        [],
        ["2026-01-02 10:00:00 xlingjax on 1 x cpu (cpu), 1 process x 1 devices"],
    )
    for i, step in enumerate(steps):
        for j, name in enumerate(objectives):
            loss = 5.0 - i - 0.5 * j
            metrics.append(
                {
                    "step": step,
                    "objective": name,
                    "loss": loss,
                    "perplexity": float(np.exp(loss)),
                    "accuracy": 0.1 * i,
                    "loss_by_language": {"de": loss, "en": loss - 0.1, "zh": loss + 0.1},
                    "total": loss,
                    "grad_norm": 1.0,
                    "accuracy_by_language": {"de": 0.1 * i},
                    "steps": 5,
                    "skipped": 0,
                    "learning_rate": 1e-4,
                    "tokens_seen": 1000 * step,
                    "tokens_per_second": 100.0 * (i + 1),
                    "seconds": 10.0 * (i + 1),
                }
            )
        evaluations.append(
            {
                "step": step,
                "name": "retrieval",
                "values": retrieval_values(level * (i + 1) / len(steps)),
            }
        )
        evaluations.append(
            {
                "step": step,
                "name": "perplexity",
                "values": {
                    "kind": "perplexity",
                    "by_language": {"de": 40.0 - i, "zh": 60.0 - i},
                    "mean": 50.0 - i,
                },
            }
        )
        log.append(f"2026-01-02 10:0{i + 1}:00 step {step}")
    evaluations.append(
        {
            "step": steps[-1],
            "name": "translation_perplexity",
            "values": {
                "kind": "translation_perplexity",
                "visible": {"de-en": {"de": 10.0, "en": 20.0}},
                "hidden": {"de-en": {"de": 30.0, "en": 50.0}},
                "visible_mean": 15.0,
                "hidden_mean": 40.0,
            },
        }
    )
    for values in (SAMPLES, ALIGNMENT):
        evaluations.append({"step": steps[-1], "name": values["kind"], "values": values})
    table = [
        {
            "name": "de",
            "sentences": 100,
            "tokens": 2000,
            "rows": 50,
            "share": 0.4,
            "epochs_per_1000_steps": 10.0,
        },
        {
            "name": "en",
            "sentences": 300,
            "tokens": 9000,
            "rows": 150,
            "share": 0.6,
            "epochs_per_1000_steps": 5.0,
        },
    ]
    record = {
        "identity": {
            "data": {
                name: {"mixture": f"{name} mixture", "sampling_table": table} for name in objectives
            }
        },
        "model": {"name": "tiny", "layers": 2},
        "parameters": 123_456,
        "optimizer": {"name": "adamw"},
        "weights": {name: 1.0 for name in objectives},
        "languages": list(LANGUAGES),
        "steps": 40,
        "schedule": "alternate",
        "microbatches": 1,
        "sessions": [
            {
                "time": "2026-01-02 10:00:00",
                "step": 0,
                "machine": "1 x cpu",
                "weights": "random (seed 0)",
                "versions": {"python": "3.11.7", "jax": "0.10.2"},
            }
        ],
    }
    (path / "run.json").write_text(json.dumps(record))
    (path / "config.gin").write_text("TRAIN_STEPS = 40\nMONO = 'a <b> & c'\n")
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    (path / "evaluations.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in evaluations)
    )
    (path / "log.txt").write_text("\n".join(log) + "\n")
    if finished:
        result = {
            "steps": steps[-1],
            "exit_reason": "finished",
            "tokens_seen": 1000 * steps[-1],
            "tokens_per_second": 777.0,
        }
        (path / "result.json").write_text(json.dumps(result))
    return path


def write_finetuned(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"languages": list(LANGUAGES), "steps": 5}))
    lines = [
        {
            "step": 5,
            "name": "nli_dev",
            "values": {"kind": "accuracy", "by_language": {"en": 0.7}, "en": 0.7},
        },
        {
            "step": 5,
            "name": "nli_test",
            "values": {
                "kind": "accuracy",
                "by_language": {"de": 0.65, "en": 0.85, "zh": 0.6},
                "en": 0.85,
                "mean_other": 0.625,
                "examples": {"de": 60, "en": 100, "zh": 2000},
                "commonest": {"de": 0.35, "en": 0.36, "zh": 0.37},
            },
        },
    ]
    (path / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_generated(path: Path) -> Path:
    """Of two evaluations on dev, one on test."""
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"languages": list(LANGUAGES), "steps": 20}))
    lines = []
    for step, name, bleu in (
        (10, "generation_dev", 5.0),
        (20, "generation_dev", 15.0),
        (20, "generation_test", 12.0),
    ):
        scores = {
            "bleu": bleu,
            "chrf": 40.5,
            "rouge_l": 33.25,
            "tokenised_bleu": 9.0,
            "wrong_language_rate": 0.125,
        }
        values = {metric: {"de-en": value, "en-de": value + 1} for metric, value in scores.items()}
        values |= {f"{metric}_mean": value + 0.5 for metric, value in scores.items()}
        values |= {"kind": "generation", "lines": {"de-en": 77, "en-de": 78}}
        values |= {"signatures": {way: {"bleu": "tok:13a|v:2"} for way in ("de-en", "en-de")}}
        sample = {
            "direction": "de-en",
            "source": "Die <Katze>",
            "reference": "The cat",
            "output": "The cow",
        }
        lines.append({"step": step, "name": name, "values": values | {"samples": [sample]}})
    (path / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_tagged(path: Path, metric: str) -> Path:
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"languages": list(LANGUAGES), "steps": 5}))
    values = {
        "kind": "tagging",
        "metric": metric,
        "by_language": {"de": 0.45, "en": 0.95},
        "en": 0.95,
    }
    line = {"step": 5, "name": "tagging_test", "values": values | {"mean_other": 0.45}}
    (path / "evaluations.jsonl").write_text(json.dumps(line) + "\n")
    return path


def write_answered(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"languages": list(LANGUAGES), "steps": 5}))
    values = {
        "kind": "span_qa",
        "metric": "mlqa",
        "by_language": {"de": 0.355, "en": 0.75},
        "en": 0.75,
    }
    values |= {"mean_other": 0.355, "exact_match_by_language": {"de": 0.125, "en": 0.625}}
    values |= {"en_exact_match": 0.625, "mean_other_exact_match": 0.125}
    (path / "evaluations.jsonl").write_text(
        json.dumps({"step": 5, "name": "qa_test", "values": values}) + "\n"
    )
    return path
