"""Retrieval and mining: which states of a model they read, what these find, and for retrieval a
table of layers."""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.task import Task, has_gold, read
from xlingjax.evaluation import bucc, tatoeba
from xlingjax.evaluation.tatoeba import accuracy, chosen_layer, predict_layers
from xlingjax.inference.encode import POOLINGS as ALL_POOLINGS
from xlingjax.inference.run import TrainedRun
from xlingjax.inference.sentences import LONGEST, Sentences
from xlingjax.runtime.files import parsed_json, write_json
from xlingjax.runtime.machine import all_agree, is_primary
from xlingjax.runtime.progress import Progress

ALL = "all"
POOLINGS = {"retrieval": "mean", "mining": "first"}
"""XTREME's scripts pool Tatoeba's sentences by the mean and BUCC's by the first token."""
PAPER_LAYERS = {"retrieval": tatoeba.paper_layer, "mining": bucc.paper_layer}
Layers = dict[str, dict[str, dict[str, float]]]
"""{pooling: {language: {layer: accuracy in percent}}}."""


@dataclasses.dataclass(frozen=True)
class States:
    """Which states of a model retrieval or mining reads."""

    layer: int
    """Of the score and the submission: the requested one, else the run's own, else the paper's."""
    pooling: str
    layers: tuple[int, ...]  # all that are measured
    poolings: tuple[str, ...]
    prefix: str = ""
    max_length: int = LONGEST

    @property
    def text(self) -> dict:
        """What of the text is read, where it is not the sentences' first 256 tokens alone."""
        options = {}
        if self.prefix:
            options["prefix"] = self.prefix
        if self.max_length != LONGEST:
            options["max_length"] = self.max_length
        return options

    def said(self) -> str:
        parts = [f"layer {self.layer}", f"pooled by {self.pooling}"]
        if self.prefix:
            parts.append(f"prefix {self.prefix!r}")
        if self.max_length != LONGEST:
            parts.append(f"at most {self.max_length} tokens")
        return ", ".join(parts)


def states(
    kind: str,
    layers: int,
    own: Sentences | None = None,
    requested_layers: Sequence[int | str] = (),
    requested_poolings: Sequence[str] = (),
    prefix: str | None = None,
) -> States:
    """layers: of the model; own: the run's own way to make sentence vectors; prefix: None: the
    run's own. Raises UserError where the model has no such layer."""
    chosen = [chosen_layer(n, layers) for n in requested_layers if n != ALL]
    if ALL in requested_layers:
        chosen = [*range(layers + 1)]
    poolings = requested_poolings
    if ALL in requested_poolings:
        poolings = ALL_POOLINGS
    usual = own or Sentences(PAPER_LAYERS[kind](layers), POOLINGS[kind])
    # One layer that is requested takes the place of the usual one. Several are a table beside it.
    layer = usual.layer
    # A run's own way may leave the layer open, which is the last one.
    if layer is None:
        layer = layers
    if len(chosen) == 1:
        layer = chosen[0]
    pooling = usual.pooling or POOLINGS[kind]
    if len(poolings) == 1:
        pooling = poolings[0]
    if prefix is None:
        prefix = usual.prefix
    # In one order, however they were requested, since a table may be added to.
    measured = tuple(name for name in ALL_POOLINGS if name in poolings or name == pooling)
    return States(
        layer, pooling, tuple(sorted({*chosen, layer})), measured, prefix, usual.max_length
    )


@dataclasses.dataclass
class Search:
    """Finds translations of sentences by their vectors; keeps the accuracy of each layer.

    What a language gave is kept in `found`, a folder: a start after one that died goes on with the
    languages that are left. languages: of the task, to say how far it is.
    """

    run: TrainedRun
    task: Task
    data: str
    reads: States
    found: Path
    languages: Sequence[str]
    layers: Layers = dataclasses.field(default_factory=dict)
    progress: Progress = dataclasses.field(default_factory=lambda: Progress("encoding"))

    def __call__(self, records: Sequence, split: str, language: str) -> Any:
        """Of retrieval the line that each English line finds, of mining the pairs."""
        (bitext,) = records
        number = f"{self.languages.index(language) + 1} of {len(self.languages)} languages"
        self.progress.where = f"{self.task.full_name}, {split}, {language} ({number})"
        path = self.found / f"{split}-{language}.json"
        # By all that it depends on beside the weights, of which the folder is.
        of = hashlib.sha256(repr((self.reads, bitext.source, bitext.target)).encode()).hexdigest()
        kept = {}
        if path.is_file():
            kept = parsed_json(path.read_bytes())
        if all_agree(kept.get("of") == of):
            print(f"{self.progress.where}: found by an earlier start")
        else:
            find = self._mined if self.task.kind == "mining" else self._retrieved
            kept = {"of": of, "found": find(bitext, split, language)}
            if is_primary():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, kept)
        if self.task.kind == "mining":
            return [(source, target) for source, target in kept["found"]]
        lines = kept["found"]
        if has_gold(bitext):
            for pooling, by_layer in lines.items():
                self.layers.setdefault(pooling, {})[language] = {
                    layer: 100 * accuracy(line, bitext) for layer, line in by_layer.items()
                }
        return lines[self.reads.pooling][str(self.reads.layer)]

    def _retrieved(self, bitext: Any, split: str, language: str) -> dict[str, dict[str, list[int]]]:
        # All layers in one pass over the sentences.
        lines = predict_layers(
            self.run,
            bitext,
            language,
            poolings=self.reads.poolings,
            layers=self.reads.layers,
            **self._options,
        )
        return {
            pooling: {str(layer): line for layer, line in by_layer.items()}
            for pooling, by_layer in lines.items()
        }

    @property
    def _options(self) -> dict:
        return {"done": self.progress.add, **self.reads.text}

    def _mined(self, bitext: Any, split: str, language: str) -> Sequence[bucc.Pair]:
        # BUCC's threshold is chosen on dev's gold, as its script does.
        dev = bitext
        if split != "dev":
            dev = read(self.task, self.data, "dev", language)[0]
        return bucc.predict_mining(
            self.run,
            bitext,
            dev,
            language,
            layer=self.reads.layer,
            pooling=self.reads.pooling,
            **self._options,
        ).pairs
