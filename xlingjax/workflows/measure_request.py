"""What `xlingjax evaluate --mixture` is to measure, and which states of a model it reads."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from xlingjax.evaluation import bucc, tatoeba
from xlingjax.evaluation.tatoeba import chosen_layer
from xlingjax.inference.encode import POOLINGS as ALL_POOLINGS
from xlingjax.inference.sentences import LONGEST, Sentences

ALL = "all"
POOLINGS = {"retrieval": "mean", "mining": "first"}
"""XTREME's scripts pool Tatoeba's sentences by the mean and BUCC's by the first token."""
PAPER_LAYERS = {"retrieval": tatoeba.paper_layer, "mining": bucc.paper_layer}


@dataclasses.dataclass(frozen=True)
class Request:
    """What the command line says."""

    mixture: str
    """A benchmark, or any mixture or task of SeqIO that `modules` register."""
    source: str
    data: str
    output: str
    tasks: Collection[str] = ()
    """Names within the suite; empty: all."""
    split: str = ""
    """ "": test where it has answers, else dev."""
    allow_missing: bool = False
    layers: Sequence[int | str] = ()
    """Of retrieval and mining; none: the run's own, else the paper's. Several, or "all", are of
    retrieval alone: a table of each layer."""
    poolings: Sequence[str] = ()
    labels: Sequence[str] = ()
    """Of the head, whose own names do not tell: the task's, in the order of the outputs."""
    prefix: str | None = None
    """None: the run's own, else none."""
    modules: Sequence[str] = ()
    """Python modules that register `mixture`, where it is no benchmark."""
    languages: Sequence[str] = ()
    """Of a task of text to text: of its inputs and targets, or of both; none: as it says itself."""

    @property
    def several(self) -> bool:
        """Whether a table of layers or poolings is wanted."""
        if ALL in self.layers or ALL in self.poolings:
            return True
        return len(self.layers) > 1 or len(self.poolings) > 1


@dataclasses.dataclass(frozen=True)
class States:
    """Which states of a model retrieval or mining reads."""

    layer: int
    """Of the score and the submission: the requested one, else the run's own, else the paper's."""
    pooling: str
    layers: tuple[int, ...]
    """All that are measured."""
    poolings: tuple[str, ...]
    prefix: str = ""
    max_length: int = LONGEST

    @property
    def text(self) -> dict[str, Any]:
        """What of the text is read, where it is not the sentences' first 256 tokens alone."""
        options = {}
        for name in ("prefix", "max_length"):
            value = getattr(self, name)
            # The usual is not noted: a cell without the field was read so.
            if value != getattr(States, name):
                options[name] = value
        return options

    def said(self) -> str:
        parts = [f"layer {self.layer}", f"pooled by {self.pooling}"]
        if self.prefix:
            parts.append(f"prefix {self.prefix!r}")
        if "max_length" in self.text:
            parts.append(f"at most {self.max_length} tokens")
        return ", ".join(parts)


def states(request: Request, kind: str, layers: int, own: Sentences | None = None) -> States:
    """layers: of the model; own: the run's own way to make sentence vectors. Raises UserError where
    it has no such layer."""
    if ALL in request.layers:
        requested_layers = [*range(layers + 1)]
    else:
        requested_layers = [chosen_layer(n, layers) for n in request.layers]
    requested_poolings = request.poolings
    if ALL in request.poolings:
        requested_poolings = ALL_POOLINGS
    usual = own or Sentences(PAPER_LAYERS[kind](layers), POOLINGS[kind])

    # One layer that is requested takes the place of the usual one. Several are a table beside it.
    layer = usual.layer
    # A run's own way may leave the layer open, which is the last one.
    if layer is None:
        layer = layers
    if len(requested_layers) == 1:
        layer = requested_layers[0]
    pooling = usual.pooling or POOLINGS[kind]
    if len(requested_poolings) == 1:
        pooling = requested_poolings[0]
    prefix = request.prefix
    if prefix is None:
        prefix = usual.prefix

    measured_layers = tuple(sorted({*requested_layers, layer}))
    # In one order, however they were requested, since a table may be added to.
    measured_poolings = []
    for name in ALL_POOLINGS:
        if name in requested_poolings or name == pooling:
            measured_poolings.append(name)
    return States(
        layer, pooling, measured_layers, tuple(measured_poolings), prefix, usual.max_length
    )
