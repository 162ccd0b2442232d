"""The files of the library sentence-transformers, which say how a released model makes sentence
vectors, both ways.

modules.json is the chain of modules (Transformer, Pooling, Normalize ...), each with a folder; the
Pooling's is `1_Pooling/config.json`; sentence_bert_config.json has the length,
config_sentence_transformers.json the prompts. Of the library's versions 1 to 6, which name some of
it differently.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError
from xlingjax.inference.sentences import Sentences
from xlingjax.model.config import ModelConfig

MODULES, POOLING, PROMPTS = (
    "modules.json",
    "1_Pooling/config.json",
    "config_sentence_transformers.json",
)
LENGTHS = tuple(
    f"sentence_{name}_config.json"
    for name in (
        "bert",
        "roberta",
        "distilbert",
        "camembert",
        "albert",
        "xlm-roberta",
        "xlnet",
    )
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
    if (
        not folder.is_dir()
        or (folder / "config.json").is_file()
        or not (folder / MODULES).is_file()
    ):
        return folder
    return folder / next((path for _, path in _modules(folder)), "")


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
    told = (folder / MODULES).is_file() or (folder / POOLING).is_file()
    if not told and (layer, pooling, prefix) == (None, None, None):
        return None, []
    room = config.max_positions - config.position_offset
    length, unread = _length(folder, room)
    if not told:
        found = Sentences(layer, pooling or "mean", prefix or "", max_length=length)
        return found, [
            _said(
                found, f"as the options say{'' if pooling else ', pooled by the mean'}"
            )
        ]
    modules = (
        _modules(folder) if (folder / MODULES).is_file() else [("Pooling", "1_Pooling")]
    )
    described = _object(folder / PROMPTS) if (folder / PROMPTS).is_file() else {}
    prompts, default, notes = _prompts(folder, described)
    prefix = default if prefix is None else prefix
    modes, more = _pooled(folder, modules, prefix)
    unread = [*_unfit(modules, described), *more, *unread]
    mode = THEIRS.get(modes[0]) if len(modes) == 1 else None
    if not mode:
        unread.insert(0, f"it pools by {' and '.join(modes) or 'nothing'}")
    normalize = any(name == "Normalize" for name, _ in modules)
    why = "; ".join(unread)
    own = None if why else mode
    found = Sentences(
        layer,
        pooling or own,
        prefix,
        normalize,
        length,
        prompts,
        "" if pooling else why,
    )
    if found.unread:
        notes.append(
            f"sentence vectors: not computed here, since {why}; --pooling sets others"
        )
    else:
        notes.append(_said(found, f"its own: {why}; not computed here" if why else ""))
    if (
        similarity := described.get("similarity_fn_name") or "cosine"
    ) != "cosine" and not normalize:
        notes.append(
            f"its sentence vectors are compared by {similarity}; retrieval and mining here, by"
            " cosine"
        )
    return found, notes


def _said(found: Sentences, more: str) -> str:
    layer = "the last layer" if found.layer is None else f"layer {found.layer}"
    return f"sentence vectors: {layer}, {found.said()}" + (f" ({more})" if more else "")


def _modules(folder: Path) -> list[tuple[str, str]]:
    """[(class, folder within)]; a class that is not the library's keeps its whole name."""
    path = folder / MODULES
    try:
        rows = [
            (str(row["type"]), str(row["path"]))
            for row in json.loads(path.read_text(encoding="utf-8"))
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is no list of modules with type and path ({error!r}); fetch it again"
        ) from None
    return [
        (
            kind.rpartition(".")[2]
            if kind.startswith("sentence_transformers.")
            else kind,
            at,
        )
        for kind, at in rows
    ]


def _unfit(
    modules: Sequence[tuple[str, str]], described: Mapping[str, Any]
) -> list[str]:
    """What of the chain is not computed here, in words."""
    found = [
        f"{at or kind} is a module {kind}"
        for kind, at in modules
        if kind not in NEUTRAL
    ]
    kinds = [kind for kind, _ in modules if kind in ("Pooling", "Normalize")]
    if kinds not in (["Pooling"], ["Pooling", "Normalize"]) and not found:
        found.append(f"its modules are {', '.join(kind for kind, _ in modules)}")
    if (
        kind := described.get("model_type") or "SentenceTransformer"
    ) != "SentenceTransformer":
        found.append(f"it is a {kind}")
    if described.get("truncate_dim"):
        found.append(f"its vectors are cut at {described['truncate_dim']} dimensions")
    return found


def _pooled(
    folder: Path, modules: Sequence[tuple[str, str]], prefix: str
) -> tuple[list[str], list[str]]:
    """(the modes of the pooling, what of it is not computed here)."""
    at = next((at for kind, at in modules if kind == "Pooling"), None)
    if at is None:
        return [], []
    path = folder / at / "config.json"
    if not path.is_file():
        raise UserError(
            f"missing file: {path}, which {MODULES} names; fetch it from the hub too"
        )
    given = _object(path)
    mode = given.get("pooling_mode")
    if mode is None:
        modes = [name for key, name in OLD_KEYS.items() if given.get(key)] or ["mean"]
    else:
        modes = [mode] if isinstance(mode, str) else mode
    if not isinstance(modes, list) or not all(isinstance(name, str) for name in modes):
        raise UserError(
            f"{path}: pooling_mode is {mode!r}, no name and no list of names; fetch it again"
        )
    left_out = prefix and not given.get("include_prompt", True)
    return [name.lower() for name in modes], (
        ["the prefix is left out of its pooling"] if left_out else []
    )


def _length(folder: Path, room: int) -> tuple[int, list[str]]:
    """(tokens of a sentence at most: what its files say, else what its positions hold; what is not
    computed here)."""
    inner, unread = model_folder(folder), []
    path = next((inner / name for name in LENGTHS if (inner / name).is_file()), None)
    given = _object(path) if path else {}
    if given.get("do_lower_case"):
        unread.append(f"{path.name} folds the case of its texts")
    if given.get("processing_kwargs"):
        unread.append(f"{path.name} has processing_kwargs")
    length = given.get("max_seq_length")
    if length is None and (inner / "tokenizer_config.json").is_file():
        path = inner / "tokenizer_config.json"
        length = _object(path).get("model_max_length")
    if length is None:
        return room, unread
    if isinstance(length, bool) or not isinstance(length, int | float) or length < 3:
        raise UserError(
            f"{path}: a sentence cannot have {length!r} tokens at most; give 3 or more"
        )
    return int(min(length, room)), unread


def _prompts(
    folder: Path, described: Mapping[str, Any]
) -> tuple[dict[str, str], str, list[str]]:
    """({name: prefix}, the one that every sentence gets, what is to be said)."""
    given, default = (
        described.get("prompts") or {},
        described.get("default_prompt_name"),
    )
    if not isinstance(given, dict) or not all(
        isinstance(text, str | None) for text in given.values()
    ):
        raise UserError(
            f"{folder / PROMPTS}: prompts is {given!r}, no names with their texts; fetch it again"
        )
    prompts = {name: text for name, text in given.items() if text}
    if default is not None and default not in given:
        raise UserError(
            f"{folder / PROMPTS}: default_prompt_name {default!r} is none of its prompts {[*given]}"
        )
    if default is not None or not prompts:
        return prompts, prompts.get(default, ""), []
    names = ", ".join(f"{name} {text!r}" for name, text in prompts.items())
    return (
        prompts,
        "",
        [f"prompts: {names}; none of them is the default, --prefix sets one"],
    )


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is no JSON ({error}); fetch it again") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} is no object with names and values; fetch it again")
    return found


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
    kinds = {"": "Transformer", "1_Pooling": "Pooling"} | (
        {"2_Normalize": "Normalize"} if own.normalize else {}
    )
    prompts = dict(own.prompts)
    if own.prefix and own.prefix not in prompts.values():
        # Two of the library's three ways to encode ask for a prompt of one of these names.
        prompts |= (
            {"sentence": own.prefix}
            if prompts
            else dict.fromkeys(("query", "document"), own.prefix)
        )
    name = next((name for name, text in prompts.items() if text == own.prefix), None)
    return {
        MODULES: [
            {
                "idx": i,
                "name": str(i),
                "path": path,
                "type": f"sentence_transformers.models.{kind}",
            }
            for i, (path, kind) in enumerate(kinds.items())
        ],
        POOLING: {
            "word_embedding_dimension": config.dim,
            **{key: THEIRS.get(mode) == own.pooling for key, mode in OLD_KEYS.items()},
            "include_prompt": True,
        },
        LENGTHS[0]: {"max_seq_length": own.max_length, "do_lower_case": False},
        PROMPTS: {
            "prompts": prompts,
            "default_prompt_name": name,
            "similarity_fn_name": "cosine",
        },
    }
