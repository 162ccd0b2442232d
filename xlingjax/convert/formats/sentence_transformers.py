"""sentence-transformers' files, read and written: how a released model makes sentence vectors.

modules.json is the chain of modules (Transformer, Pooling, Normalize ...), each with a folder; the
Pooling's is `1_Pooling/config.json`, a Dense has weights, too; sentence_bert_config.json has the
length, config_sentence_transformers.json the prompts. Versions 1 to 6, whose names differ.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.convert.formats.tensors import Arrays, open_tensors
from xlingjax.data.vocabulary.tokenizer_files import read_object
from xlingjax.errors import UserError
from xlingjax.inference.sentences import Dense, Layers, Sentences
from xlingjax.model.config import ModelConfig
from xlingjax.runtime.files import parsed_json

MODULES = "modules.json"
POOLING = "1_Pooling/config.json"
PROMPTS = "config_sentence_transformers.json"
LENGTH = "sentence_bert_config.json"
"""The first versions name the model in it: sentence_roberta_config.json."""
THEIRS = {"mean": "mean", "cls": "first"}  # {their pooling: ours} of those that are computed here
OLD_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Of versions before 6; there a mode that is not named is off, and mean where none is on."""
NEUTRAL = ("Transformer", "Pooling", "Normalize", "Dropout")  # no effect outside training
ORDER = ("Pooling", "Dense", "Normalize")
ACTIVATIONS = {
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
    "identity": "torch.nn.modules.linear.Identity",
}
"""Of a Dense, by our name."""


def model_folder(folder: Path) -> Path:
    """Where the first module lies: the folder itself, or in first versions `0_Transformer`."""
    is_whole = (folder / "config.json").is_file()
    if not folder.is_dir() or is_whole or not (folder / MODULES).is_file():
        return folder
    (_, first), *_ = _modules(folder)
    return folder / first


def read(
    folder: Path,
    config: ModelConfig,
    layer: int | None = None,
    pooling: str | None = None,
    prefix: str | None = None,
) -> tuple[Sentences | None, list[str]]:
    """(how the model makes sentence vectors, None: not told; what is to be said of it).

    layer, pooling, prefix: instead of what the files say. Where these say what is not computed
    here, and no pooling is given, the result has none. Raises UserError for a file that is not what
    the library writes, or no such layer.
    """
    if layer is not None and not 0 <= layer <= config.layers:
        raise UserError(
            f"--layer {layer}: this model has layers 0 (the embeddings) to {config.layers}"
        )
    room = config.max_positions - config.position_offset
    # Without a list of modules the pooling's usual folder is meant.
    modules = []
    if (folder / MODULES).is_file():
        modules = _modules(folder)
    elif (folder / POOLING).is_file():
        modules = [("Pooling", "1_Pooling")]
    elif (layer, pooling, prefix) == (None, None, None):
        return None, []
    why: list[str] = []
    try:
        length = _length(folder, room, why)
        if not modules:
            sentences = Sentences(layer, pooling or "mean", prefix or "", max_length=length)
            return sentences, [_note(sentences)]
        description = read_object(folder / PROMPTS)
        prompts, default, notes = _prompts(description)
        if prefix is None:
            prefix = default
        mode = _pooling(folder, modules, description, prefix, why)
        dense = _dense(folder, modules, why)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{folder}: its files are not what sentence-transformers writes"
            f" ({type(error).__name__}: {error}); fetch them"
            " again"
        ) from None
    unread = "; ".join(why)
    sentences = Sentences(
        layer,
        pooling or (None if unread else mode),
        prefix,
        "Normalize" in [kind for kind, _ in modules],
        length,
        prompts,
    )
    if not sentences.pooling:
        note = f"sentence vectors: not computed here, since {unread}; --pooling sets others"
        return dataclasses.replace(sentences, unread=unread), [*notes, note]
    sentences = dataclasses.replace(sentences, dense=dense)
    reason = f"its own: {unread}; not computed here" if unread else ""
    return sentences, [*notes, _note(sentences, reason)]


def _note(sentences: Sentences, reason: str = "") -> str:
    layer = f"layer {sentences.layer}" if sentences.layer is not None else "the last layer"
    return f"sentence vectors: {layer}, {sentences.said()}" + (f" ({reason})" if reason else "")


def _modules(folder: Path) -> list[tuple[str, str]]:
    """[(class, folder within)]; a class that is not the library's keeps its whole name."""
    path = folder / MODULES
    modules = []
    try:
        for row in parsed_json(path.read_bytes()):
            kind = str(row["type"])
            # The library has moved its classes between its own modules from version to version.
            if kind.startswith("sentence_transformers."):
                kind = kind.rpartition(".")[2]
            modules.append((kind, str(row["path"])))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is no list of modules with type and path ({error!r}); fetch it again"
        ) from None
    return modules


def _pooling(
    folder: Path,
    modules: Sequence[tuple[str, str]],
    description: Mapping[str, Any],
    prefix: str,
    why: list[str],
) -> str | None:
    """Our name of the pooling. why: gets what of the vectors is not computed here."""
    modes: list[str] = []
    prompted = True
    for kind, path in modules:
        if kind != "Pooling":
            continue
        options = parsed_json((folder / path / "config.json").read_bytes())
        named = options.get("pooling_mode")
        if named is None:
            named = [name for key, name in OLD_KEYS.items() if options.get(key)] or ["mean"]
        modes += [named] if isinstance(named, str) else named
        prompted &= options.get("include_prompt", True)
    mode = THEIRS.get(modes[0]) if len(modes) == 1 else None
    if not mode:
        why.append(f"it pools by {' and '.join(modes) or 'nothing'}")
    known = (*NEUTRAL, *ORDER)
    why += [f"{path or kind} is a module {kind}" for kind, path in modules if kind not in known]
    order = [ORDER.index(kind) for kind, _ in modules if kind in ORDER]
    if order != sorted(order):
        why.append(f"its modules stand in the order {' '.join(kind for kind, _ in modules)}")
    model_type = description.get("model_type") or "SentenceTransformer"
    if model_type != "SentenceTransformer":
        why.append(f"it is a {model_type}")
    if description.get("truncate_dim"):
        why.append(f"its vectors are cut at {description['truncate_dim']} dimensions")
    if prefix and not prompted:
        why.append("the prefix is left out of its pooling")
    return mode


def _dense(folder: Path, modules: Sequence[tuple[str, str]], why: list[str]) -> tuple[str, ...]:
    """Our names of the activations of its Dense modules; () of such as are not computed here. why:
    see `_pooling`."""
    before = len(why)
    ours = {theirs.rpartition(".")[2]: name for name, theirs in ACTIVATIONS.items()}
    activations = []
    for kind, path in modules:
        if kind == "Dense":
            options = parsed_json((folder / path / "config.json").read_bytes())
            activations.append(ours.get(options["activation_function"].rpartition(".")[2], ""))
            if not activations[-1]:
                why.append(f"{path} has the activation {options['activation_function']}")
            for name in ("module_input_name", "module_output_name"):
                if options.get(name, "sentence_embedding") != "sentence_embedding":
                    why.append(f"{path} has {name} {options[name]}")
    return tuple(activations) if len(why) == before else ()


def dense_layers(folder: Path) -> Layers:
    """Of the Dense modules of a folder. Raises UserError."""
    layers = []
    for kind, path in _modules(folder):
        if kind == "Dense":
            tensors = open_tensors(folder / path)
            kernel_DE = tensors.read("linear.weight").T
            bias_E = np.zeros(kernel_DE.shape[1], np.float32)
            if "linear.bias" in tensors.shapes:
                bias_E = tensors.read("linear.bias")
            layers.append((kernel_DE, bias_E))
    return tuple(layers)


def _length(folder: Path, room: int, why: list[str]) -> int:
    """Tokens of a sentence at most, by its files or else positions. why: see `_pooling`."""
    inner = model_folder(folder)
    length = None
    for path in sorted(inner.glob("sentence_*_config.json")):
        options = read_object(path)
        length = options.get("max_seq_length")
        # Beside the tokenizer's own switch: the library folds the case before it.
        if options.get("do_lower_case"):
            why.append(f"{path.name} folds the case of its texts")
    if length is None:
        length = read_object(inner / "tokenizer_config.json").get("model_max_length", room)
    # Fewer than three tokens leave no room for a piece between the separators.
    if length < 3:
        raise ValueError(f"a sentence cannot have {length!r} tokens at most")
    # transformers writes 1e30 where a tokenizer has no limit.
    return int(min(length, room))


def _prompts(description: Mapping[str, Any]) -> tuple[dict[str, str], str, list[str]]:
    """({name: prefix}, the one that every sentence gets, what is to be said)."""
    prompts = {name: text for name, text in (description.get("prompts") or {}).items() if text}
    default = description.get("default_prompt_name")
    if default is not None:
        return prompts, description["prompts"][default] or "", []
    if not prompts:
        return {}, "", []
    note = f"prompts: {prompts}; none of them is the default, --prefix sets one"
    return prompts, "", [note]


def unwritten(own: Sentences, config: ModelConfig) -> str:
    """Why the library's files cannot say it; "": they can."""
    if own.pooling not in THEIRS.values():
        return own.unread or f"pooling {own.pooling}"
    if own.layer not in (None, config.layers):
        return f"layer {own.layer} of {config.layers}"
    return ""


def files(own: Sentences, config: ModelConfig) -> dict[str, Any]:
    """{path: JSON} as every version of the library reads them."""
    kinds = ["Transformer", "Pooling", *("Dense" for _ in own.dense)]
    if own.normalize:
        kinds.append("Normalize")
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else ""}
        | {"type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    # Under the old keys, since the versions from 6 on read them, too.
    pooling: dict[str, Any] = {"word_embedding_dimension": config.dim}
    for key, mode in OLD_KEYS.items():
        pooling[key] = THEIRS.get(mode) == own.pooling
    pooling["include_prompt"] = True
    prompts = dict(own.prompts)
    if own.prefix and own.prefix not in prompts.values():
        # Two of the library's three ways to encode ask for a prompt of one of these names.
        names = ("sentence",) if prompts else ("query", "document")
        prompts |= dict.fromkeys(names, own.prefix)
    default = next((name for name, text in prompts.items() if text == own.prefix), None)
    return {
        MODULES: modules,
        POOLING: pooling,
        LENGTH: {"max_seq_length": own.max_length, "do_lower_case": False},
        PROMPTS: {
            "prompts": prompts,
            "default_prompt_name": default,
            "similarity_fn_name": "cosine",
        },
    }


def dense_files(dense: Dense) -> Iterator[tuple[str, dict[str, Any], Arrays]]:
    """(folder, config.json, tensors) of each of its modules."""
    for number, activation in enumerate(dense.activations):
        kernel_DE, bias_E = dense.layers[number]
        options = {
            "in_features": kernel_DE.shape[0],
            "out_features": kernel_DE.shape[1],
            "bias": True,
            "activation_function": ACTIVATIONS[activation],
        }
        tensors = {"linear.weight": np.ascontiguousarray(kernel_DE.T), "linear.bias": bias_E}
        yield f"{2 + number}_Dense", options, tensors
