"""`open_run`: a trained model from its workdir, for Python programs."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from xlingjax.data.text.given import require_texts
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.inference.encode import embed_texts
from xlingjax.inference.sentences import Dense, Sentences, dense_of, kept_of, sentences_of
from xlingjax.model.build import build_model
from xlingjax.model.encoder import Encoder
from xlingjax.model.params import flattened
from xlingjax.model.partition import abstract_params
from xlingjax.training.checkpoint_params import load_params
from xlingjax.training.run_record import (
    model_of,
    read_run_record,
    run_and_checkpoint,
    warn_of_changes,
)


@dataclass(frozen=True)
class TrainedRun:
    model: Encoder
    params: Any
    vocabulary: Vocabulary
    languages: tuple[str, ...]
    """Sorted; the index is the language id."""
    mesh: Mesh | None = None
    """That the weights lie on; None: one device."""
    sentences: Sentences | None = None
    """Its own way to make sentence vectors; None: it has none, and they are plain means."""
    dense: Dense | None = None
    """What the sentence vectors go through behind the pooling."""
    released: Mapping = field(default_factory=dict)
    """Of a run that began from an imported model: its "model_type" there, and whether it has a
    "vocabulary_head", of its own or trained here."""

    def embed(
        self,
        sentences: list[str],
        language: str,
        pooling: str | None = None,
        prefix: str | None = None,
        layers: Sequence[int] | None = None,
        cut: list[int] | None = None,
        done: Callable[[int], None] | None = None,
    ) -> np.ndarray:
        """float32 [N+1, S, D]: a vector of each of S sentences at every layer, the embedding output
        first; `layers`: at these only, [len(layers), S, D].

        They are made as `sentences` of the run says, the last layer's being those of the released
        model; pooling (see `pooling_weights`) and prefix instead of its own. Sentences are cut at
        its length (256 tokens where it has none) or at the model's positions, and nothing is said
        of it: two that differ behind it have one vector. cut: a list, which gets the places, from
        0, of those that were cut. done: see `embed_texts`. Raises UserError for texts that are no
        list of strings, for an unknown pooling, for a prefix that leaves no token for a sentence,
        for a run whose own pooling is not computed here and, where the model embeds languages, for
        one that the run never had.
        """
        require_texts(sentences, "sentences")
        way = (self.sentences or Sentences()).of(None, pooling, prefix)
        poolings = (str(way.pooling),)  # `of` has refused a run that has none
        # A tuple: one program is compiled and kept for each choice of layers.
        if layers is not None:
            layers = tuple(layers)
        how = poolings, layers, way.prefix, way.max_length, cut
        (vectors_NSD,) = embed_texts(self, sentences, language, *how, done=done)
        if way.normalize:
            # In place and layer by layer: the vectors may fill the memory.
            for vectors_SD in vectors_NSD:
                norms_S1 = np.linalg.norm(vectors_SD, axis=1, keepdims=True)
                vectors_SD /= np.maximum(norms_S1, 1e-12)
        return vectors_NSD

    @property
    def width(self) -> int:
        """D of its sentence vectors."""
        return len(self.dense.layers[-1][1]) if self.dense else self.model.config.dim

    def in_dtype(self, dtype: str | None) -> "TrainedRun":
        """The run with matrix products in `dtype`; None: its own. Raises UserError: unknown."""
        config = self.model.config
        if dtype in (None, config.dtype):
            return self
        return replace(self, model=build_model(config.replace(dtype=dtype), self.mesh))


def parameters_hash(params: Any) -> str:
    """sha256 (hex) of all parameters, in the order of their names."""
    digest = hashlib.sha256()
    for name, value in sorted(flattened(params).items()):
        # With the names, or two tables of one shape could change places.
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(jax.device_get(value)).tobytes())
    return digest.hexdigest()


def open_run(
    workdir: str | Path, language_embedding: bool = True, mesh: Mesh | None = None
) -> TrainedRun:
    """A run on one device, or laid out on a mesh: "RUN" its newest checkpoint; "RUN@STEP",
    "RUN@METRIC" (the best by a metric of BEST_METRIC) and "RUN/checkpoints/STEP" another.
    language_embedding: False leaves the model's behind, as of one that was of training alone
    (ERNIE-M). Raises UserError: no such run, no readable checkpoint, one that is not of the model
    that the run describes."""
    warn_of_changes(run_and_checkpoint(workdir)[0], ("run.json",))
    record = read_run_record(str(workdir))
    # The copy in the workdir, since the original may have moved or changed.
    vocabulary = Vocabulary.load(run_and_checkpoint(workdir)[0])
    config = model_of(workdir)
    if not language_embedding:
        # The table is then not asked for, and the checkpoint's is left behind.
        config = config.replace(num_languages=0)
    model = build_model(config, mesh)
    params, _ = load_params(
        workdir,
        # Restored to where they are used: a checkpoint names the devices of its training.
        abstract_params(model, mesh),
        # Weights of another vocabulary would be read without a word: the shapes may agree.
        vocabulary=vocabulary.sha256,
        # The table that is left behind lies in the checkpoint, and the model asks for none.
        exact=language_embedding,
        languages=record["languages"],
    )
    sentences = sentences_of(record)
    dense = dense_of(run_and_checkpoint(workdir)[0], sentences)
    own = sentences, dense, kept_of(record, "released") or {}
    return TrainedRun(model, params, vocabulary, tuple(record["languages"]), mesh, *own)
