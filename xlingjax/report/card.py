"""README.md of an exported model: a Hugging Face model card, from what the run's files say."""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence

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
    described: Mapping,
    languages: Sequence[str],
    notes: Sequence[str],
    licence: str = "",
    base: str = "",
    before_after: Sequence[Mapping] = (),
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
    embedded = list(described["lang2id"]) if described.get("use_lang_emb") else []
    data = run.record["identity"].get("data", {})
    texts = [(stage, line) for stage in data for line in data[stage].get("sampling_table") or ()]
    figures = summarise(until, {}, ())
    optimizer = run.record.get("optimizer")
    # By the plan and not by the step of this checkpoint, since the course was laid out for it.
    warmup = OptimizerConfig(**optimizer).warmup(run.record["steps"]) if optimizer else 0
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
        metadata=metadata,
        json=functools.partial(json.dumps, ensure_ascii=False),
        name=name,
        architecture=architecture,
        step=step,
        auto=auto,
        task=task,
        embedded=embedded[:1],
        vectors=vectors or Sentences(),
        start=start,
        run=run,
        texts=texts,
        summary=figures,
        figures=headline(figures),
        before_after=before_after,
        optimizer=optimizer,
        warmup=warmup,
        notes=notes,
        licence=licence,
    )
