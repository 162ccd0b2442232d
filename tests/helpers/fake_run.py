"""A run folder made by hand, in the layout that training writes, with values a test can name."""

import json
from pathlib import Path

import numpy as np

from xlingjax.evaluation.retrieval import SCORES, mean_by_layer

LANGUAGES = ("de", "en", "zh")
STEPS = (10, 20, 30, 40)


def retrieval_values(level: float) -> dict:
    """Two layers over the embeddings; layer 1 is best for raw, layer 2 for centred and the
    run's; zh 0.1 below de."""
    offsets = {"0": -0.2, "1": 0.1, "2": 0.0}
    table = {}
    for language, shift in (("de", 0.05), ("zh", -0.05)):
        table[language] = {}
        for layer, offset in offsets.items():
            raw = level + offset + shift
            kinds = {"raw": raw, "centred": raw + 0.2 * (layer == "2")}
            table[language][layer] = {score: kinds[score.partition("_")[0]] for score in SCORES}
    layers = mean_by_layer(table)
    plain = layers["2"]
    return {
        "kind": "retrieval",
        "retrieval_mean": plain["raw_en_to_xx"],
        "retrieval_mean_centred": plain["centred_en_to_xx"],
        "retrieval_mean_xx_to_en": plain["raw_xx_to_en"],
        "retrieval_mean_centred_xx_to_en": plain["centred_xx_to_en"],
        "retrieval_layer": 2,
        "pairs": {"de": 300, "zh": 200},
        "by_language": {"mean": table},
        "by_layer": {"mean": layers},
        "pivot": "en",
        "examples": [
            {
                "language": "de",
                "sentence": "Die <b>Katze</b> schläft.",
                "found": "A dog barks.",
                "translation": "The cat sleeps.",
                "right": False,
            }
        ],
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
ALIGNMENT = {
    "kind": "alignment",
    "alignment_error": 0.125,
    "by_layer": {
        str(n): {"intersection": 0.5 - 0.1 * n, "itermax": 0.425 - 0.1 * n} for n in range(4)
    },
    "by_language": dict.fromkeys(
        ("de", "zh"), {str(n): {"intersection": 0.5, "itermax": 0.25} for n in range(4)}
    ),
}


def _lines(path: Path, lines) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _evaluated(path: Path, lines, steps=5) -> Path:
    """A run of nothing but evaluations, (step, name, values) each."""
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"languages": list(LANGUAGES), "steps": steps}))
    lines = [{"step": step, "name": name, "values": values} for step, name, values in lines]
    _lines(path / "evaluations.jsonl", lines)
    return path


def write_run(path: Path, objectives=("mlm", "tlm"), level=0.5, finished=True, steps=STEPS) -> Path:
    path.mkdir(parents=True)
    metrics, evaluations = [], []
    log = ["2026-01-02 10:00:00 xlingjax on 1 x cpu (cpu), 1 process x 1 devices"]

    def evaluated(step, name, **values):
        evaluations.append({"step": step, "name": name, "values": {"kind": name} | values})

    for i, step in enumerate(steps):
        for j, name in enumerate(objectives):
            loss = 5.0 - i - 0.5 * j
            line = {"step": step, "objective": name, "loss": loss, "total": loss}
            line |= {"perplexity": float(np.exp(loss)), "accuracy": 0.1 * i, "grad_norm": 1.0}
            line["loss_by_language"] = {"de": loss, "en": loss - 0.1, "zh": loss + 0.1}
            line |= {"accuracy_by_language": {"de": 0.1 * i}, "steps": 5, "skipped": 0}
            line |= {"learning_rate": 1e-4, "tokens_seen": 1000 * step}
            line |= {"tokens_per_second": 100.0 * (i + 1), "seconds": 10.0 * (i + 1)}
            metrics.append(line)
        evaluated(step, "retrieval", **retrieval_values(level * (i + 1) / len(steps)))
        by_language = {"de": 40.0 - i, "zh": 60.0 - i}
        evaluated(step, "perplexity", by_language=by_language, mean=50.0 - i)
        log.append(f"2026-01-02 10:0{i + 1}:00 step {step}")
    evaluated(
        steps[-1], "translation_perplexity", visible_mean=15.0, hidden_mean=40.0,
        visible={"de-en": {"de": 10.0, "en": 20.0}}, hidden={"de-en": {"de": 30.0, "en": 50.0}},
    )  # fmt: skip
    for values in (SAMPLES, ALIGNMENT):
        evaluated(steps[-1], values["kind"], **values)
    names = ("name", "sentences", "tokens", "rows", "share", "epochs_per_1000_steps")
    table = [
        dict(zip(names, row, strict=True))
        for row in (("de", 100, 2000, 50, 0.4, 10.0), ("en", 300, 9000, 150, 0.6, 5.0))
    ]
    data = {name: {"mixture": f"{name} mixture", "sampling_table": table} for name in objectives}
    session = {"time": "2026-01-02 10:00:00", "step": 0, "machine": "1 x cpu"}
    session |= {"weights": "random (seed 0)", "versions": {"python": "3.11.7", "jax": "0.10.2"}}
    record = {
        "identity": {"data": data},
        "model": {"name": "tiny", "layers": 2},
        "parameters": 123_456,
        "optimizer": {"name": "adamw"},
        "weights": {name: 1.0 for name in objectives},
        "languages": list(LANGUAGES),
        "steps": 40,
        "schedule": "alternate",
        "microbatches": 1,
        "sessions": [session],
    }
    (path / "run.json").write_text(json.dumps(record))
    (path / "config.gin").write_text("TRAIN_STEPS = 40\nMONO = 'a <b> & c'\n")
    _lines(path / "metrics.jsonl", metrics)
    _lines(path / "evaluations.jsonl", evaluations)
    (path / "log.txt").write_text("\n".join(log) + "\n")
    if finished:
        result = {"steps": steps[-1], "exit_reason": "finished", "tokens_per_second": 777.0}
        (path / "result.json").write_text(json.dumps(result | {"tokens_seen": 1000 * steps[-1]}))
    return path


def write_finetuned(path: Path) -> Path:
    test = {
        "kind": "accuracy",
        "by_language": {"de": 0.65, "en": 0.85, "zh": 0.6},
        "en": 0.85,
        "mean_other": 0.625,
        "examples": {"de": 60, "en": 100, "zh": 2000},
        "commonest": {"de": 0.35, "en": 0.36, "zh": 0.37},
    }
    dev = {"kind": "accuracy", "by_language": {"en": 0.7}, "en": 0.7}
    return _evaluated(path, [(5, "nli_dev", dev), (5, "nli_test", test)])


def write_generated(path: Path) -> Path:
    """Of two evaluations on dev, one on test."""
    sample = {"source": "Die <Katze>", "reference": "The cat", "output": "The cow"}
    sample["direction"] = "de-en"
    lines = []
    for step, name, bleu in (
        (10, "generation_dev", 5.0), (20, "generation_dev", 15.0), (20, "generation_test", 12.0)
    ):  # fmt: skip
        scores = {"bleu": bleu, "chrf": 40.5, "rouge_l": 33.25, "tokenised_bleu": 9.0}
        scores["wrong_language_rate"] = 0.125
        values = {metric: {"de-en": value, "en-de": value + 1} for metric, value in scores.items()}
        values |= {f"{metric}_mean": value + 0.5 for metric, value in scores.items()}
        values |= {"kind": "generation", "lines": {"de-en": 77, "en-de": 78}, "samples": [sample]}
        values |= {"signatures": {way: {"bleu": "tok:13a|v:2"} for way in ("de-en", "en-de")}}
        lines.append((step, name, values))
    return _evaluated(path, lines, steps=20)


def write_tagged(path: Path, metric: str) -> Path:
    values = {"kind": "tagging", "metric": metric, "by_language": {"de": 0.45, "en": 0.95}}
    return _evaluated(path, [(5, "tagging_test", values | {"en": 0.95, "mean_other": 0.45})])


def write_answered(path: Path) -> Path:
    values = {"kind": "span_qa", "metric": "mlqa", "by_language": {"de": 0.355, "en": 0.75}}
    values |= {"en": 0.75, "mean_other": 0.355, "en_exact_match": 0.625}
    values |= {"exact_match_by_language": {"de": 0.125, "en": 0.625}}
    return _evaluated(path, [(5, "qa_test", values | {"mean_other_exact_match": 0.125})])
