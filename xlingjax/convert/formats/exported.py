"""A model of ours as what a Hugging Face folder holds: the parameters of the class there, and
beside them those that it has no place for, which our importer reads back."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xlingjax.convert.formats import roberta_prelayernorm, xlm, xlm_roberta
from xlingjax.convert.formats.hugging_face import Foreign
from xlingjax.convert.formats.names import (
    Differing,
    difference,
    places,
    to_theirs,
)
from xlingjax.convert.formats.tensors import safetensors
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig
from xlingjax.model.params import flattened, nested

# The first that fits is written.
FAMILIES = (xlm_roberta, xlm, roberta_prelayernorm)
WEIGHTS = "model.safetensors"
BESIDE = "xlingjax.safetensors"
DESCRIPTION = "xlingjax.json"
POSITIONS = "embeddings/positions/embedding"
_LANGUAGES = "embeddings/languages/embedding"


@dataclasses.dataclass(frozen=True)
class Exported:
    described: dict[str, Any]
    """config.json."""
    tensors: dict[str, np.ndarray]
    """model.safetensors: {their name: float32 array}."""
    beside: dict[str, np.ndarray]
    """xlingjax.safetensors: {our name: float32 array}; empty: no such file."""
    description: dict[str, Any]
    """xlingjax.json."""

    @property
    def architecture(self) -> str:
        """The class of transformers."""
        return self.described["architectures"][0]

    @property
    def vocabulary_head(self) -> bool:
        """The class has one."""
        return self.architecture.endswith(("ForMaskedLM", "WithLMHeadModel"))


def exported(
    config: ModelConfig,
    params: Any,
    vocabulary: Vocabulary,
    languages: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> Exported:
    """languages: of the run, the index is the language id; labels: of the classes. Raises UserError
    for a model that no class there computes."""
    family = _family(config)
    abstract = build_model(config).abstract()
    table, without = places(family.written_names(config), config, abstract)
    tensors = to_theirs(table, params)
    family.unfold(tensors, config, vocabulary.pad_id)
    flat = flattened(params)
    description = {
        "model": dataclasses.asdict(config),
        "languages": list(languages),
        "labels": list(labels),
        "vocabulary": {
            "layout": vocabulary.layout,
            "sha256": vocabulary.sha256,
        },
    }
    # Cross-attention, word recovery and other heads, lost if only the class's tensors were written.
    beside = {name: np.asarray(flat[name]) for name in without}
    return Exported(
        family.described(config, vocabulary, labels, languages),
        tensors,
        beside,
        description,
    )


def _family(config: ModelConfig) -> Any:
    reasons = []
    for family in FAMILIES:
        unfit = family.unfit(config)
        if not unfit:
            return family
        reasons.append(f"{family.MODEL_TYPE} has another {unfit}")
    raise UserError(
        f"no class of transformers computes model {config.name}: {'; '.join(reasons)}",
    )


def embeds_languages(config: ModelConfig) -> bool:
    """Whether their class does. Raises UserError for a model that no class computes."""
    return "embeddings/languages" in _family(config).MODULES


def in_language(
    config: ModelConfig,
    params: Any,
    row: int,
) -> tuple[ModelConfig, Any]:
    """The model for texts of one language alone: its row of the language embedding is part of what
    positions give."""
    flat = flattened(params)
    # Both are added to every token, so one row for all of them can move into the positions.
    flat[POSITIONS] = (
        np.asarray(flat[POSITIONS]) + np.asarray(flat.pop(_LANGUAGES))[row]
    )
    return config.replace(num_languages=0), nested(flat)


def without_beside(
    config: ModelConfig,
    params: Any,
    made: Exported,
) -> tuple[ModelConfig, Any]:
    """(the model that their class computes, its parameters)."""
    # What lies beside has no part in what their class computes.
    plain = config.replace(
        cross_attention=False,
        word_recovery=False,
        paraphrase=False,
        dan=0,
    )
    if not embeds_languages(config):
        plain = plain.replace(num_languages=0)
    if any(name.startswith("classifier") for name in made.beside):
        plain = plain.replace(num_labels=0)
    flat = flattened(params)
    kept = {
        name: flat[name] for name in flattened(build_model(plain).abstract())
    }
    return plain, nested(kept)


def restored(folder: Path, foreign: Foreign) -> Foreign:
    """`foreign`, read from `folder`, as the model of ours that was exported there; unchanged where
    it was not ours. Raises UserError where the files beside it are of another model."""
    path = folder / DESCRIPTION
    if not path.is_file():
        return foreign
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        config = ModelConfig(**description["model"])
        languages = tuple(map(str, description["languages"]))
        labels = tuple(map(str, description["labels"]))
    except (OSError, ValueError, KeyError, TypeError, UserError) as error:
        raise UserError(
            f"{path} does not describe a model of this version of xlingjax ({error}); delete it to"
            " read the folder without what lies beside transformers' files",
        ) from None
    family = _family(config)
    ours = family.described(config, foreign.vocabulary)
    theirs = family.described(foreign.config, foreign.vocabulary)
    # Either of the two files may have been edited since the export.
    for name in ours:
        if ours[name] != theirs.get(name):
            raise UserError(
                f"{path} and config.json describe different models: {name} is {ours[name]!r} and"
                f" {theirs.get(name)!r}; give files that belong together",
            )
    abstract = build_model(config).abstract()
    _, without = places(family.written_names(config), config, abstract)
    leaves = flattened(abstract)
    # Where nothing lies beside, there is no such file.
    if without:
        beside = safetensors(folder / BESIDE)
        wanted = {name: leaves[name].shape for name in without}
        rows = difference(wanted, beside.shapes)
        if rows:
            raise Differing(str(folder / BESIDE), rows, DESCRIPTION)
    flat = flattened(foreign.params)
    params = {}
    for name, leaf in leaves.items():
        if name in without:
            params[name] = beside.read(name)
        else:
            params[name] = _resized(
                name,
                flat[name],
                leaf,
                foreign.config,
                config,
            )
    return dataclasses.replace(
        foreign,
        config=config,
        params=nested(params),
        languages=languages,
        # The run may not have named its classes; config.json has a name for each.
        labels=labels or foreign.labels,
        # The export was whole, so nothing was made up.
        vocabulary_head=True,
        notes=(),
    )


def _resized(
    name: str,
    value: np.ndarray,
    leaf: jax.ShapeDtypeStruct,
    theirs: ModelConfig,
    ours: ModelConfig,
) -> np.ndarray:
    """Ours may count positions from another row, and have other padding behind the words."""
    if name == POSITIONS and theirs.position_offset != ours.position_offset:
        # No text reads the rows before the first position's.
        before = np.zeros((ours.position_offset, ours.dim), np.float32)
        return np.concatenate([before, value[theirs.position_offset :]])
    if value.shape == leaf.shape:
        return value
    # Rows behind the words are padding, which training leaves out and no text reads.
    made = np.zeros(leaf.shape, np.float32)
    made[: ours.true_rows] = value[: ours.true_rows]
    return made
