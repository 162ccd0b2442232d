"""The files of the library sentence-transformers, which say how a released model makes sentence
vectors, both ways.

modules.json is the chain of modules (Transformer, Pooling, Normalize ...), each with a folder; the
Pooling's is `1_Pooling/config.json`; sentence_bert_config.json has the length,
config_sentence_transformers.json the prompts. Of the library's versions 1 to 6, which name some of
it differently.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError
from xlingjax.inference.sentences import Sentences
from xlingjax.model.config import ModelConfig
from xlingjax.runtime.files import parsed_json

MODULES = "modules.json"
POOLING = "1_Pooling/config.json"
PROMPTS = "config_sentence_transformers.json"
LENGTHS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)
"""As the first module's file was called: the first that is there counts."""
THEIRS = {"mean": "mean", "cls": "first"}
"""{their pooling: ours} of those that are computed here."""
OLD_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Of versions before 6; there a mode that is not named is off, and mean where none is on."""
NEUTRAL = ("Transformer", "Pooling", "Normalize", "Dropout")
"""Dropout does nothing outside training."""


def model_folder(folder: Path) -> Path:
    """Where the first module lies: the folder itself, of the first versions `0_Transformer`
    within."""
    is_whole = (folder / "config.json").is_file()
    if not folder.is_dir() or is_whole or not (folder / MODULES).is_file():
        return folder
    modules = _modules(folder)
    if not modules:
        return folder
    _, first = modules[0]
    return folder / first


def read(
    folder: Path,
    config: ModelConfig,
    layer: int | None = None,
    pooling: str | None = None,
    prefix: str | None = None,
) -> tuple[Sentences | None, list[str]]:
    """(how the released model makes sentence vectors, None: its files do not tell; what is to be
    said of it).

    layer, pooling, prefix: instead of what the files say. Where these say what is not computed
    here, and no pooling is given, the result has none. Raises UserError for a file that is not what
    the library writes, or no such layer.
    """
    if layer is not None and not 0 <= layer <= config.layers:
        raise UserError(
            f"--layer {layer}: this model has layers 0 (the embeddings) to {config.layers}"
        )
    has_modules = (folder / MODULES).is_file()
    is_described = has_modules or (folder / POOLING).is_file()
    if not is_described and (layer, pooling, prefix) == (None, None, None):
        return None, []
    room = config.max_positions - config.position_offset
    length, unread = _length(folder, room)
    # Options for a model that is no sentence encoder by its files: they say all.
    if not is_described:
        sentences = Sentences(layer, pooling or "mean", prefix or "", max_length=length)
        reason = "as the options say"
        if not pooling:
            reason += ", pooled by the mean"
        return sentences, [_note(sentences, reason)]
    # Without a list of modules the pooling's usual folder is meant.
    modules = [("Pooling", "1_Pooling")]
    if has_modules:
        modules = _modules(folder)
    description = _object(folder / PROMPTS) if (folder / PROMPTS).is_file() else {}
    prompts, default, notes = _prompts(folder, description)
    if prefix is None:
        prefix = default
    modes, unread_of_pooling = _pooling(folder, modules, prefix)
    unread = [*_unfit(modules, description), *unread_of_pooling, *unread]
    mode = THEIRS.get(modes[0]) if len(modes) == 1 else None
    if not mode:
        unread.insert(0, f"it pools by {' and '.join(modes) or 'nothing'}")
    normalize = "Normalize" in [kind for kind, _ in modules]
    # All reasons together: a user who mends one would meet the next.
    why = "; ".join(unread)
    sentences = Sentences(layer, mode, prefix, normalize, length, prompts)
    if pooling:
        # The user's choice is computed, whatever stands in the files.
        sentences = dataclasses.replace(sentences, pooling=pooling)
    elif why:
        sentences = dataclasses.replace(sentences, pooling=None, unread=why)
    if sentences.unread:
        notes.append(f"sentence vectors: not computed here, since {why}; --pooling sets others")
    elif why:
        notes.append(_note(sentences, f"its own: {why}; not computed here"))
    else:
        notes.append(_note(sentences))
    similarity = description.get("similarity_fn_name") or "cosine"
    # Of vectors of length 1 dot product and Euclidean distance give the cosine's order.
    if similarity != "cosine" and not normalize:
        notes.append(
            f"its sentence vectors are compared by {similarity}; retrieval and mining here, by"
            " cosine"
        )
    return sentences, notes


def _note(sentences: Sentences, reason: str = "") -> str:
    layer = f"layer {sentences.layer}" if sentences.layer is not None else "the last layer"
    note = f"sentence vectors: {layer}, {sentences.said()}"
    if reason:
        note += f" ({reason})"
    return note


def _modules(folder: Path) -> list[tuple[str, str]]:
    """[(class, folder within)]; a class that is not the library's keeps its whole name."""
    path = folder / MODULES
    modules = []
    try:
        for row in parsed_json(path.read_text(encoding="utf-8")):
            modules.append((_class_name(str(row["type"])), str(row["path"])))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is no list of modules with type and path ({error!r}); fetch it again"
        ) from None
    return modules


def _class_name(kind: str) -> str:
    # The library has moved its classes between its own modules from version to version.
    return kind.rpartition(".")[2] if kind.startswith("sentence_transformers.") else kind


def _unfit(modules: Sequence[tuple[str, str]], description: Mapping[str, Any]) -> list[str]:
    """What of the chain is not computed here, in words."""
    unfit = [f"{path or kind} is a module {kind}" for kind, path in modules if kind not in NEUTRAL]
    kinds = [kind for kind, _ in modules]
    chain = [kind for kind in kinds if kind in ("Pooling", "Normalize")]
    if chain not in (["Pooling"], ["Pooling", "Normalize"]) and not unfit:
        # Normalize before Pooling, or twice Pooling, is computed nowhere here.
        unfit.append(f"its modules are {', '.join(kinds)}")
    model_type = description.get("model_type") or "SentenceTransformer"
    if model_type != "SentenceTransformer":
        unfit.append(f"it is a {model_type}")
    if description.get("truncate_dim"):
        unfit.append(f"its vectors are cut at {description['truncate_dim']} dimensions")
    return unfit


def _pooling(
    folder: Path, modules: Sequence[tuple[str, str]], prefix: str
) -> tuple[list[str], list[str]]:
    """(the modes of the pooling, what of it is not computed here)."""
    folders = [path for kind, path in modules if kind == "Pooling"]
    if not folders:
        return [], []
    path = folder / folders[0] / "config.json"
    if not path.is_file():
        raise UserError(f"missing file: {path}, which {MODULES} names; fetch it from the hub too")
    options = _object(path)
    mode = options.get("pooling_mode")
    modes = mode
    if mode is None:
        modes = [name for key, name in OLD_KEYS.items() if options.get(key)]
        modes = modes or ["mean"]
    elif isinstance(mode, str):
        modes = [mode]
    if not isinstance(modes, list) or not all(isinstance(name, str) for name in modes):
        raise UserError(
            f"{path}: pooling_mode is {mode!r}, no name and no list of names; fetch it again"
        )
    unread = []
    if prefix and not options.get("include_prompt", True):
        unread.append("the prefix is left out of its pooling")
    return [name.lower() for name in modes], unread


def _length(folder: Path, room: int) -> tuple[int, list[str]]:
    """(tokens of a sentence at most: what its files say, else what its positions hold; what is not
    computed here)."""
    inner = model_folder(folder)
    unread = []
    path = None
    length = None
    present = [name for name in LENGTHS if (inner / name).is_file()]
    if present:
        path = inner / present[0]
        options = _object(path)
        length = options.get("max_seq_length")
        # Beside the tokenizer's own switch: the library folds the case before it.
        if options.get("do_lower_case"):
            unread.append(f"{path.name} folds the case of its texts")
        if options.get("processing_kwargs"):
            unread.append(f"{path.name} has processing_kwargs")
    if length is None and (inner / "tokenizer_config.json").is_file():
        path = inner / "tokenizer_config.json"
        length = _object(path).get("model_max_length")
    if length is None:
        return room, unread
    if (
        # Fewer than three tokens leave no room for a piece between the separators.
        isinstance(length, bool) or not isinstance(length, int | float) or length < 3
    ):
        raise UserError(f"{path}: a sentence cannot have {length!r} tokens at most; give 3 or more")
    # transformers writes 1e30 where a tokenizer has no limit.
    return int(min(length, room)), unread


def _prompts(folder: Path, description: Mapping[str, Any]) -> tuple[dict[str, str], str, list[str]]:
    """({name: prefix}, the one that every sentence gets, what is to be said)."""
    path = folder / PROMPTS
    named = description.get("prompts") or {}
    default = description.get("default_prompt_name")
    is_table = isinstance(named, dict)
    if not is_table or not all(isinstance(text, str | None) for text in named.values()):
        raise UserError(f"{path}: prompts is {named!r}, no names with their texts; fetch it again")
    prompts = {name: text for name, text in named.items() if text}
    if default is not None and default not in named:
        raise UserError(
            f"{path}: default_prompt_name {default!r} is none of its prompts {[*named]}"
        )
    if default is not None or not prompts:
        return prompts, prompts.get(default, ""), []
    names = ", ".join(f"{name} {text!r}" for name, text in prompts.items())
    note = f"prompts: {names}; none of them is the default, --prefix sets one"
    return prompts, "", [note]


def _object(path: Path) -> dict[str, Any]:
    try:
        content = parsed_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is no JSON ({error}); fetch it again") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is no object with names and values; fetch it again")
    return content


# ---- the way out ---------------------------------------------------------------------------------


def unwritten(own: Sentences, config: ModelConfig) -> str:
    """Why the library's files cannot say it; "": they can."""
    if own.pooling not in THEIRS.values():
        return own.unread or f"pooling {own.pooling}"
    if own.layer not in (None, config.layers):
        return f"layer {own.layer} of {config.layers}"
    return ""


def files(own: Sentences, config: ModelConfig) -> dict[str, Any]:
    """{path: JSON} as every version of the library reads them."""
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    if own.normalize:
        kinds["2_Normalize"] = "Normalize"
    modules = []
    for number, (path, kind) in enumerate(kinds.items()):
        module = {
            "idx": number,
            "name": str(number),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        modules.append(module)
    # Under the old keys, since the versions from 6 on read them, too.
    pooling: dict[str, Any] = {"word_embedding_dimension": config.dim}
    for key, mode in OLD_KEYS.items():
        pooling[key] = THEIRS.get(mode) == own.pooling
    pooling["include_prompt"] = True
    prompts = dict(own.prompts)
    if own.prefix and own.prefix not in prompts.values():
        if prompts:
            prompts["sentence"] = own.prefix
        else:
            # Two of the library's three ways to encode ask for a prompt of one of these names.
            prompts["query"] = own.prefix
            prompts["document"] = own.prefix
    names = [name for name, text in prompts.items() if text == own.prefix]
    default = names[0] if names else None
    return {
        MODULES: modules,
        POOLING: pooling,
        LENGTHS[0]: {"max_seq_length": own.max_length, "do_lower_case": False},
        PROMPTS: {
            "prompts": prompts,
            "default_prompt_name": default,
            "similarity_fn_name": "cosine",
        },
    }
