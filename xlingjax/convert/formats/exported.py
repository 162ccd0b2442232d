"""A model of ours as what a Hugging Face folder holds: the parameters of the class there, and
beside them those that it has no place for, which our importer reads back."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from xlingjax.convert.formats.family import Family, counted
from xlingjax.convert.formats.hugging_face import (
    DESCRIPTION,
    FAMILIES,
    Foreign,
    description,
    family_of,
)
from xlingjax.convert.formats.names import Differing, difference, places, to_theirs
from xlingjax.convert.formats.seq2seq_form import form_of, formed, unformed
from xlingjax.convert.formats.tensors import Arrays, safetensors
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig
from xlingjax.model.params import flattened, nested

WEIGHTS = "model.safetensors"
BESIDE = "xlingjax.safetensors"
POSITIONS = "embeddings/positions/embedding"  # how the names of tables of positions end
_TABLES = "embeddings/"
_OF_DECODER = "decoder_embeddings/"
_LANGUAGES = "languages/embedding"
_BIAS = "head/bias"


@dataclasses.dataclass(frozen=True)
class Exported:
    described: dict[str, Any]  # config.json
    tensors: Arrays  # model.safetensors: {their name: float32 array}
    beside: Arrays  # xlingjax.safetensors: {our name: float32 array}; or {}
    description: dict[str, Any]  # xlingjax.json

    @property
    def architecture(self) -> str:
        """The class of transformers."""
        return self.described["architectures"][0]

    @property
    def vocabulary_head(self) -> bool:
        """The class has one."""
        return self.architecture.endswith(
            ("ForMaskedLM", "WithLMHeadModel", "ForConditionalGeneration")
        )


def exported(
    config: ModelConfig,
    params: Any,
    vocabulary: Vocabulary,
    languages: Sequence[str] = (),
    labels: Sequence[str] = (),
    released: Mapping[str, Any] = MappingProxyType({}),
) -> Exported:
    """languages: by id; labels: by class; released: what a run began from (`TrainedRun`). Raises
    UserError for a model that no class computes."""
    model_type, has_head = released.get("model_type", ""), released.get("vocabulary_head", True)
    family = _family(config, model_type)
    form = form_of(config)
    params = formed(config, params)
    abstract = build_model(form).abstract()
    names = family.written_names(form)
    described = family.described(form, vocabulary, labels, languages)
    if not has_head:
        abstract.pop("head", None)
        if not family.kind_of(form):
            described["architectures"] = [family.bare]
    table, without = places(names, form, abstract)
    tensors = to_theirs(table, params)
    family.unfold(tensors, form, vocabulary.pad_id)
    flat = flattened(params)
    description = {
        "model": dataclasses.asdict(config),
        "languages": list(languages),
        "labels": list(labels),
        "vocabulary_head": has_head,
    }
    # Cross-attention, word recovery and other heads, lost if only the class's tensors were written.
    beside = {name: np.asarray(flat[name]) for name in without}
    return Exported(described, tensors, beside, description)


def _family(config: ModelConfig, model_type: str = "") -> Family:
    """model_type: of what the model began as, whose classes come first."""
    types = "xlm-roberta xlm roberta-prelayernorm xlm-roberta-xl"
    if config.positions == "rotary":
        types = "modernbert eurobert gte"
    if config.positions == "disentangled":
        types = "deberta-v2"
    if config.decoder_layers:
        types = "prophetnet" if config.streams else "bart m2m_100"
    if config.has_biases:
        types = "mt5 umt5"
    families = [FAMILIES[name] for name in types.split()]
    for family in (FAMILIES["bert"], FAMILIES["distilbert"], *families):
        has_place = not config.num_labels or family.kind_of(config)
        if model_type in family.types and has_place and not family.unfit(config):
            return family
    reasons = []
    for family in families:
        unfit = family.unfit(config)
        if not unfit:
            return family
        reasons.append(f"{family.types[0]} has another {unfit}")
    raise UserError(f"no class of transformers computes model {config.name}: {'; '.join(reasons)}")


def embeds_languages(config: ModelConfig, released: Mapping[str, Any]) -> bool:
    """Whether their class does. Raises UserError for a model that no class computes."""
    return "embeddings/languages" in _family(config, released.get("model_type", "")).modules


def in_language(
    config: ModelConfig, params: Any, read: int, written: int
) -> tuple[ModelConfig, Any]:
    """The model for texts of one language alone (and a decoder that writes one): these rows of the
    language embedding are part of what positions give."""
    flat = {name: np.asarray(value) for name, value in flattened(params).items()}
    if config.decoder_layers and config.decoder_embeddings == "shared" and written != read:
        # Each side then has positions, and so all but the words, of its own.
        config = config.replace(decoder_embeddings="shared_tokens")
        for name in list(flat):
            if name.startswith(_TABLES) and "/tokens/" not in name:
                flat[name.replace(_TABLES, _OF_DECODER, 1)] = flat[name]
    if config.decoder_layers and config.decoder_embeddings != "shared":
        _move_into_positions(flat, _OF_DECODER, written)
    _move_into_positions(flat, _TABLES, read)
    return config.replace(num_languages=0), nested(flat)


def _move_into_positions(flat: Arrays, tables: str, row: int) -> None:
    # Both are added to every token, so one row for all of them can move into the positions.
    positions = f"{tables}positions/embedding"
    flat[positions] = flat[positions] + flat.pop(f"{tables}{_LANGUAGES}")[row]


def without_beside(config: ModelConfig, params: Any, made: Exported) -> tuple[ModelConfig, Any]:
    """(the model that their class computes, its parameters)."""
    # What lies beside has no part in what their class computes.
    plain = config.replace(cross_attention=False, word_recovery=False, paraphrase=False, dan=0)
    if not embeds_languages(config, made.described):
        plain = plain.replace(num_languages=0)
    if any(name.startswith("classifier") for name in made.beside):
        plain = plain.replace(num_labels=0)
    flat = flattened(params)
    kept = {name: flat[name] for name in flattened(build_model(plain).abstract())}
    return plain, nested(kept)


def restored(folder: Path, foreign: Foreign) -> Foreign:
    """`foreign`, read from `folder`, as the model of ours that was exported there; unchanged where
    it was not ours. Raises UserError where the files beside it are of another model."""
    ours = description(folder)
    if not ours:
        return foreign
    config, languages, labels, has_head = ours
    family, _ = family_of(folder)
    form = form_of(config)
    wanted = family.described(form, foreign.vocabulary)
    theirs = family.described(foreign.config, foreign.vocabulary)
    for name in wanted:
        if wanted[name] != theirs.get(name):
            raise UserError(
                f"{folder}: {DESCRIPTION} and config.json describe different models: {name} is"
                f" {wanted[name]!r} and {theirs.get(name)!r}; give files that belong together"
            )
    abstract = build_model(form).abstract()
    leaves = flattened(abstract)
    if not has_head:
        abstract.pop("head", None)
    _, without = places(family.written_names(form), form, abstract)
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
        elif name.endswith(_BIAS) and name not in flat:
            # Of an encoder-decoder that has no bias anywhere the importer makes none.
            params[name] = np.zeros(leaf.shape, np.float32)
        else:
            params[name] = _resized(name, flat[name], leaf, foreign.config, config)
    return dataclasses.replace(
        foreign,
        config=config,
        params=unformed(config, nested(params)),
        languages=languages,
        # The run may not have named its classes; config.json has a name for each.
        labels=labels or foreign.labels,
        vocabulary_head=has_head,
        notes=() if has_head else foreign.notes,
    )


def _resized(
    name: str, value: np.ndarray, leaf: jax.ShapeDtypeStruct, theirs: ModelConfig, ours: ModelConfig
) -> np.ndarray:
    """Ours may count positions from another row, and have other padding behind the words."""
    if name.endswith(POSITIONS):
        return counted(value, theirs.position_offset, ours.position_offset)
    if value.shape == leaf.shape:
        return value
    # Rows behind the words are padding, which training leaves out and no text reads.
    made = np.zeros(leaf.shape, np.float32)
    made[: ours.true_rows] = value[: ours.true_rows]
    return made
