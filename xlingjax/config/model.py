"""A run's model: a preset or that of an earlier run, with fields changed."""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from xlingjax.config.bindings import parameter, with_fields
from xlingjax.config.corpus import Corpus
from xlingjax.config.evaluators import Files
from xlingjax.data.text.sources import split_list
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError, require_whole
from xlingjax.model.config import MOST, PRESETS, ModelConfig, preset
from xlingjax.training.run_record import model_of, run_and_checkpoint


def model(
    name: str = "tiny",
    corpus: Corpus | None = None,
    run: str | None = None,
    labels: Files = None,
    task_labels: Mapping[str, Files] | None = None,
    vocab_size: int | None = None,
    language_embedding: bool | None = None,
    classifier: str | None = None,
    layers: int | None = None,
    language_tokens: bool | str = False,
    dtype: str | None = None,
    **overrides: Any,
) -> ModelConfig:
    """A preset, or the model of the pretraining run `run`, with fields changed (see `ModelConfig`).
    name: a preset, or a run whose encoder's shape it is.

    labels: gives the model a classification head; task_labels: {task: labels}, one for each task;
    either leaves the heads of `run` behind. vocab_size: rows of the embedding; default: the size of
    the corpus's vocabulary. language_embedding: whether there is one, with a row for each language
    of the corpus; default: as in the preset or the run, whose own is left behind by False.
    classifier, layers: default: the preset's or the run's; dtype too, in which matrix products run.
    language_tokens: whether a decoder begins with a token of the language, of which there is one
    for each language of the corpus behind the vocabulary's pieces; "both": sources, too (NLLB).
    """
    require_whole({"layers": layers}, f"[0, {MOST['layers']}]", "layers", f"model {name}: ")
    if run:
        base = model_of(run)
    # A preset's name means the preset, whatever folder lies there.
    elif name not in PRESETS and (run_and_checkpoint(name)[0] / "run.json").is_file():
        base = model_of(name).replace(**_ENCODER)
    else:
        base = preset(name)
    if labels or task_labels:
        of_tasks = {task: len(split_list(of)) for task, of in (task_labels or {}).items()}
        # The heads of `run` go together: their rows mean other labels.
        base = base.replace(num_labels=len(split_list(labels)), task_labels=of_tasks or None)
    base = base.replace(
        classifier=classifier or base.classifier,
        layers=base.layers if layers is None else layers,
        dtype=dtype or base.dtype,
    )
    sizes: dict[str, Any] = {}
    # The model of a run has its tokens already, and its vocab_size counts them.
    if language_tokens and not run and corpus is not None:
        both = language_tokens == "both"
        sizes |= {"language_tokens": len(corpus.languages), "source_tokens": both}
    # The table of a run has the rows that it was trained with.
    if not run and (vocab_size is not None or corpus is not None):
        pieces = vocab_size
        if pieces is None:
            pieces = corpus.vocabulary.size
        sizes["vocab_size"] = pieces + sizes.get("language_tokens", 0)
    if language_embedding is False:
        sizes["num_languages"] = 0
    elif (language_embedding or (base.num_languages and not run)) and corpus is not None:
        sizes["num_languages"] = len(corpus.languages)
    return base.replace(**sizes, **overrides)


_UNSET = object()
_ENCODER: dict[str, Any] = dict(
    decoder_layers=0,
    language_tokens=0,
    source_tokens=False,
    tied_self_attention=False,
    streams=0,
    num_labels=0,
    task_labels=None,
    cross_attention=False,
    word_recovery=False,
    paraphrase=False,
    dan=0,
)
"""A model without all that objectives, decoders and heads add to it."""
_OWN = inspect.signature(model).parameters
# Each field spelled out: an unknown name is refused where it is bound. What is left out is the
# preset's or the run's, and is not written into a run's configuration.
model.__signature__ = with_fields(
    model,
    {
        field.name: parameter(field.name, field.type, _UNSET)
        for field in fields(ModelConfig)
        if field.name not in _OWN
    },
)


def check_vocabulary(config: ModelConfig, vocabulary: Vocabulary, path: str) -> None:
    """Raises UserError unless the model has a row for each piece and no more but languages'."""
    pieces = config.vocab_size - config.language_tokens
    if vocabulary.size != pieces:
        than = "more"
        if vocabulary.size < pieces:
            than = "fewer"
        raise UserError(
            f"vocabulary {path} has {vocabulary.size} pieces, {than} than the {pieces} rows of"
            f" model {config.name}: set VOCABULARY_SIZE={vocabulary.size} or give the model's own"
            " vocabulary"
        )


BINDABLE = {"model": model}
