"""README.md of an exported model: a Hugging Face model card, from what the run's files say."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xlingjax.inference.sentences import Sentences
from xlingjax.report import html
from xlingjax.report.run import Run
from xlingjax.report.summary import headline, summarise
from xlingjax.training.optimizer import OptimizerConfig

_TASKS = {
    "ForMaskedLM": ("AutoModelForMaskedLM", "fill-mask"),
    "WithLMHeadModel": ("AutoModelForMaskedLM", "fill-mask"),
    "Model": ("AutoModel", "feature-extraction"),
    "ForSequenceClassification": ("AutoModelForSequenceClassification", "text-classification"),
    "ForTokenClassification": ("AutoModelForTokenClassification", "token-classification"),
    "ForConditionalGeneration": ("AutoModelForSeq2SeqLM", "text2text-generation"),
    "ForQuestionAnsweringSimple": ("AutoModelForQuestionAnswering", "question-answering"),
    "ForQuestionAnswering": ("AutoModelForQuestionAnswering", "question-answering"),
}


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
    start: str = "",
) -> str:
    """Markdown, after the hub's metadata. step: of the checkpoint; figures are the last that were
    measured by then. described: config.json, languages: of the texts that the exported model is
    for. notes: what the export said. licence, base (the model that training began from):
    identifiers of the hub. before_after: rows "figure", "before", "after". vectors: the model's own
    way to make sentence vectors; None: means of the last layer. start: of a model that writes in
    several languages, the token of one, with which its decoder begins."""
    # Later figures are of other weights than those that were exported.
    until = dataclasses.replace(
        run,
        evaluations=[line for line in run.evaluations if line["step"] <= step],
        metrics=[line for line in run.metrics if line["step"] <= step],
    )
    # What was exported decides, not what was trained: a pretrained run may be an encoder.
    architecture = described["architectures"][0]
    auto, task = next(classes for end, classes in _TASKS.items() if architecture.endswith(end))
    weights = run.record.get("weights", {})
    embedded = list(described["lang2id"]) if described.get("use_lang_emb") else []
    vectors = vectors or Sentences()
    parts = {
        "Data": _data(run),
        "Measured": _measured(until),
        "Before and after": _before_after(before_after),
        "Training": _training(run, step),
    }
    metadata = {
        "language": list(languages),
        "license": licence,
        "base_model": base,
        "library_name": "transformers",
        # The pipelines of the hub give no `langs`.
        "pipeline_tag": "" if embedded else task,
        "tags": ["xlingjax", "cross-lingual", "multilingual"],
    }
    return html.render(
        "card.md",
        # JSON is YAML, and quotes what needs it.
        metadata={name: _json(value) for name, value in metadata.items() if value},
        name=name,
        architecture=architecture,
        shape=run.record["model"],
        how=f"trained on {', '.join(weights)}" if weights else "exported",
        step=step,
        auto=auto,
        task=task,
        embedded=embedded[:1],
        vectors=vectors,
        prefix=_json(vectors.prefix),
        start=start and _json(start),
        parts=parts,
        notes=notes,
        licence=licence,
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Markdown; "" without rows: such a section is left out of the card."""
    lines = [f"| {' | '.join(map(str, row))} |\n" for row in rows]
    head = f"| {' | '.join(header)} |\n|{'---|' * len(header)}\n"
    return (head + "".join(lines)).rstrip() if lines else ""


def _data(run: Run) -> str:
    rows = []
    for stage, data in run.record["identity"].get("data", {}).items():
        for line in data.get("sampling_table") or ():
            counts = f"{line['sentences']:,}", f"{line['tokens']:,}"
            rows.append((stage, line["name"], *counts, f"{html.percent(line['share'])} %"))
    return _table(("objective", "language", "sentences", "tokens", "share of the draws"), rows)


def _measured(run: Run) -> str:
    figures = summarise(run, {}, ())
    rows = [(what, f"{value:.4f}") for what, value in headline(figures)]
    for name, loss in figures.get("final_loss", {}).items():
        rows.append((f"training loss, {name}", f"{loss:.4f}"))
    return _table(("figure", "value"), rows)


def _before_after(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ("figure", "before", "after")
    shown = [["" if row[key] is None else f"{row[key]:.4f}" for key in head[1:]] for row in rows]
    return _table(head, [(row["figure"], *cells) for row, cells in zip(rows, shown, strict=True)])


def _training(run: Run, step: int) -> str:
    lines = []
    optimizer = run.record.get("optimizer")
    if optimizer:
        planned = run.record["steps"]
        # By the plan and not by the step of this checkpoint, since the course was laid out for it.
        warmup = OptimizerConfig(**optimizer).warmup(planned)
        done = f"{step:,} updates" if step == planned else f"{step:,} of {planned:,} updates"
        lines.append(
            f"- {done} of {optimizer['name']}, peak rate {optimizer['learning_rate']:g}, "
            f"{optimizer['schedule']} schedule, warm-up of {warmup:,} updates"
        )
    machine = run.last_start.get("machine")
    if machine:
        versions = run.last_start.get("versions", {})
        named = ", ".join(f"{name} {version}" for name, version in versions.items())
        lines.append(f"- on {machine}; {named}")
    if run.config:
        lines.append("- recipe: config.gin in this folder")
    return "\n".join(lines)
