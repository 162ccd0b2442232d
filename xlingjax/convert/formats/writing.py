"""Our model as a class of Hugging Face's: what the families that can be exported have in common.

Such a family's file has, beside what `reading` asks for:

- `unfit(config)`: why its classes do not compute a model of ours;
- `written_names(config)`, `described(config, vocabulary, labels, languages)`: the names and
  config.json of the class;
- `unfold(theirs, config, pad_id)`: adds what theirs has and ours has not.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from xlingjax.convert.formats.names import Names
from xlingjax.model.config import ModelConfig

Modules = Mapping[str, str]


def differing(config: ModelConfig, **fixed: Any) -> str:
    """The fields that have another value than the one a class knows; "": none."""
    others = []
    for name, value in fixed.items():
        own = getattr(config, name)
        if own != value:
            others.append(f"{name}={own!r}")
    return ", ".join(others)


def kind_of(config: ModelConfig, classifiers: Mapping[str, Modules]) -> str:
    """The classifier that a class has a place for, else "words": the vocabulary head."""
    if config.num_labels and config.classifier in classifiers:
        return config.classifier
    return "words"


def names_of_class(
    config: ModelConfig, modules: Modules, classifiers: Mapping[str, Modules], head: str
) -> Names:
    """A class with a classifier has no vocabulary head. head: how the names of that begin."""
    kind = kind_of(config, classifiers)
    if kind == "words":
        return Names(modules)
    body = {}
    for ours, theirs in modules.items():
        # With a dot, since the head's own module is named without one.
        if not f"{theirs}.".startswith(head):
            body[ours] = theirs
    return Names({**body, **classifiers[kind]})


def classes(config: ModelConfig, labels: Sequence[str]) -> dict[str, Any]:
    """id2label and label2id; LABEL_0, ... where the run does not name as many."""
    names = labels
    if len(labels) != config.num_labels:
        # The names that transformers gives to classes without one.
        names = [f"LABEL_{i}" for i in range(config.num_labels)]
    by_number = {str(i): name for i, name in enumerate(names)}
    return {"id2label": by_number, "label2id": {name: i for i, name in enumerate(names)}}
