"""README.md of an exported model: the model card of Hugging Face's hub, from what the run's files
say."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xlingjax.inference.sentences import Sentences
from xlingjax.report.run import Run
from xlingjax.report.summary import summarise
from xlingjax.training.optimizer import OptimizerConfig

_TASKS = {
    "ForMaskedLM": ("AutoModelForMaskedLM", "fill-mask"),
    "WithLMHeadModel": ("AutoModelForMaskedLM", "fill-mask"),
    "Model": ("AutoModel", "feature-extraction"),  # the last of these: others end so, too
    "ForSequenceClassification": ("AutoModelForSequenceClassification", "text-classification"),
    "ForTokenClassification": ("AutoModelForTokenClassification", "token-classification"),
    "ForQuestionAnsweringSimple": ("AutoModelForQuestionAnswering", "question-answering"),
    "ForQuestionAnswering": ("AutoModelForQuestionAnswering", "question-answering"),
}
# Figures of `summarise` that a reader of a card asks for.
_FIGURES = {
    "perplexity_mean": (
        "perplexity of held-out text (of masked words; CLM: of each next word), mean over languages"
    ),
    "tlm_perplexity_visible": "the same with the translation beside",
    "retrieval_mean": (
        "retrieval en to xx, mean over languages, layer {retrieval_best_layer:g}, the best (0 to 1)"
    ),
    "retrieval_mean_centred": (
        "the same, each language's mean subtracted, layer {retrieval_best_layer_centred:g}"
    ),
    "alignment_error": "alignment error rate",
    "nli_en": "accuracy in English",
    "nli_mean_other": "accuracy, mean of the other languages",
    "tagging_en": "tagging in English",
    "tagging_mean_other": "tagging, mean of the other languages",
    "qa_en": "F1 of answers in English",
    "qa_mean_other": "F1 of answers, mean of the other languages",
}
_LANGS = (
    "Each token has the embedding of its language: call the model with `langs=`, as above. Without"
    " it the model computes something else, in silence."
)
_VECTORS = """sentences = [{prefix}"Hello, world."]
inputs = tokenizer(sentences, padding=True, truncation=True, return_tensors="pt"){langs}
with torch.no_grad():
    states = model.base_model(**inputs, output_hidden_states=True).{states}
{pooled}"""
_POOLED = {
    "mean": (
        """valid = inputs["attention_mask"].unsqueeze(-1)
vectors = (states * valid).sum(1) / valid.sum(1)  # of the sentences: means over their pieces"""
    ),
    "mean_no_special": (
        """special = torch.isin(inputs["input_ids"], torch.tensor(tokenizer.all_special_ids))
valid = (inputs["attention_mask"].bool() & ~special).unsqueeze(-1)
vectors = (states * valid).sum(1) / valid.sum(1)  # of the sentences: means over their pieces"""
    ),
    "first": "vectors = states[:, 0]  # of the sentences: at their first token",
}
_READ = {
    "feature-extraction": _VECTORS,
    "fill-mask": _VECTORS,
    "text-classification": (
        """inputs = tokenizer("Hello, world.", return_tensors="pt"){langs}
with torch.no_grad():
    outputs = model(**inputs)
label = model.config.id2label[int(outputs.logits.argmax())]  # of two texts: tokenizer(a, b)"""
    ),
    "token-classification": (
        """inputs = tokenizer("Hello, world.", return_tensors="pt"){langs}
with torch.no_grad():
    outputs = model(**inputs)
labels = [model.config.id2label[int(i)] for i in outputs.logits[0].argmax(-1)]  # of pieces"""
    ),
    "question-answering": (
        """question, context = "Who says hello?", "The world says hello."
inputs = tokenizer(question, context, return_tensors="pt"){langs}
with torch.no_grad():
    outputs = model(**inputs)
first = int(outputs.start_logits.argmax())  # pieces of the answer
last = int(outputs.end_logits.argmax())"""
    ),
}
_CODE = """```python
import torch
from transformers import {auto}, AutoTokenizer

folder = "."  # the one of this file, or the model's name on the hub
tokenizer = AutoTokenizer.from_pretrained(folder)
model = {auto}.from_pretrained(folder).eval()
{read}
```"""
_NONE = "not named; say so before you give the model to others"


def model_card(
    run: Run,
    step: int,
    name: str,
    described: Mapping[str, Any],
    languages: Sequence[str],
    notes: Sequence[str],
    licence: str = "",
    base: str = "",
    before_after: Sequence[Mapping[str, Any]] = (),
    vectors: Sentences | None = None,
) -> str:
    """Markdown, after the hub's metadata. step: of the checkpoint; figures are the last that were
    measured by then. described: config.json, languages: of the texts that the exported model is
    for. notes: what the export said. licence, base (the model that training began from):
    identifiers of the hub. before_after: rows "figure", "before", "after". vectors: the model's own
    way to make sentence vectors; None: means of the last layer.
    """
    until = dataclasses.replace(
        run,
        evaluations=[line for line in run.evaluations if line["step"] <= step],
        metrics=[line for line in run.metrics if line["step"] <= step],
    )
    architecture, embeds = described["architectures"][0], bool(described.get("use_lang_emb"))
    auto, task = next(found for end, found in _TASKS.items() if architecture.endswith(end))
    shape, weights = run.record["model"], run.record.get("weights", {})
    how = f"trained on {', '.join(weights)}" if weights else "exported"
    # The pipelines of the hub give no `langs`.
    sections = [
        _metadata(languages, "" if embeds else task, licence, base),
        f"# {name}",
        (
            f"{architecture}: {shape['layers']} layers of {shape['dim']}, {shape['vocab_size']:,}"
            f" pieces; {how} by xlingjax, checkpoint {step}."
        ),
        _code(auto, task, [*described["lang2id"]] if embeds else (), vectors or Sentences()),
        *([_LANGS] if embeds else []),
        *_section("Objectives", _objectives(run)),
        *_section("Data", _data(run)),
        *_section("Measured", _measured(until)),
        *_section("Before and after", _before_after(before_after)),
        *_section("Training", _training(run, step)),
        *_section("Export", "\n".join(f"- {note}" for note in notes)),
        *_section("Licence", licence or _NONE),
    ]
    return "\n\n".join(sections) + "\n"


def _code(auto: str, task: str, embedded: Sequence[str], vectors: Sentences) -> str:
    """How the model is used, from the folder in which the card lies. embedded: the languages that
    it embeds."""
    langs = ""
    if embedded:
        number = f'model.config.lang2id["{embedded[0]}"]'
        langs = (
            f'\ninputs["langs"] = torch.full_like(inputs["input_ids"], {number})  # of each token'
        )
    pooled = _POOLED[vectors.pooling or "mean"]
    if vectors.normalize:
        pooled += "\nvectors = torch.nn.functional.normalize(vectors, dim=-1)"
    states = "last_hidden_state" if vectors.layer is None else f"hidden_states[{vectors.layer}]"
    prefix = f"{json.dumps(vectors.prefix, ensure_ascii=False)} + " if vectors.prefix else ""
    return _CODE.format(
        auto=auto, read=_READ[task].format(langs=langs, prefix=prefix, states=states, pooled=pooled)
    )  # fmt: skip


def _section(title: str, body: str) -> list[str]:
    return [f"## {title}", body] if body else []


def _metadata(languages: Sequence[str], task: str, licence: str, base: str) -> str:
    values = {
        "language": list(languages),
        "license": licence,
        "base_model": base,
        "library_name": "transformers",
        "pipeline_tag": task,
        "tags": ["xlingjax", "cross-lingual", "multilingual"],
    }
    lines = [
        f"{name}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in values.items()
        if value
    ]
    return "\n".join(["---", *lines, "---"])


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return (
        "\n".join([f"| {' | '.join(header)} |", "|" + "---|" * len(header), *lines])
        if lines
        else ""
    )


def _objectives(run: Run) -> str:
    rows = []
    for stage, settings in run.record.get("stages", {}).items():
        masking = settings.get("masking") or {}
        rate = f"{masking['rate']:g} of the pieces" if masking.get("rate") is not None else ""
        weight = run.record.get("weights", {}).get(stage.split("@")[0], "")
        rows.append(
            (stage, weight, f"{settings.get('batch', '')} x {settings.get('length', '')}", rate)
        )
    return _table(("objective", "weight", "rows x tokens of a batch", "masked"), rows)


def _data(run: Run) -> str:
    rows = []
    for stage, data in run.record["identity"].get("data", {}).items():
        for line in data.get("sampling_table") or ():
            share = line["share"] if isinstance(line.get("share"), int | float) else 0.0
            rows.append(
                (
                    stage,
                    line["name"],
                    f"{line['sentences']:,}",
                    f"{line['tokens']:,}",
                    f"{100 * share:.1f} %",
                )
            )
    return _table(("objective", "language", "sentences", "tokens", "share of the draws"), rows)


def _measured(run: Run) -> str:
    found: Mapping[str, Any] = summarise(run, {}, ())
    rows = [
        (what.format(**found), f"{found[name]:.4f}")
        for name, what in _FIGURES.items()
        if name in found
    ]
    rows += [
        (f"training loss, {name}", f"{loss:.4f}")
        for name, loss in found.get("final_loss", {}).items()
    ]
    return _table(("figure", "value"), rows)


def _before_after(rows: Sequence[Mapping[str, Any]]) -> str:
    cells = [
        ["" if row[name] is None else f"{row[name]:.4f}" for name in ("before", "after")]
        for row in rows
    ]
    return _table(
        ("figure", "before", "after"),
        [(row["figure"], *two) for row, two in zip(rows, cells, strict=True)],
    )


def _training(run: Run, step: int) -> str:
    lines = []
    if optimizer := run.record.get("optimizer"):
        planned = run.record["steps"]
        warmup = OptimizerConfig(**optimizer).warmup(planned)
        done = f"{step:,} of {planned:,} updates" if step != planned else f"{step:,} updates"
        lines.append(
            f"- {done} of {optimizer['name']}, peak rate {optimizer['learning_rate']:g}, "
            f"{optimizer['schedule']} schedule, warm-up of {warmup:,} updates"
        )
    if machine := run.last_start.get("machine"):
        versions = run.last_start.get("versions", {})
        lines.append(
            f"- on {machine}; "
            + ", ".join(f"{name} {version}" for name, version in versions.items())
        )
    if run.config:
        lines.append("- recipe: config.gin in this folder")
    return "\n".join(lines)
