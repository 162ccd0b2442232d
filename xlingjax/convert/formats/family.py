"""What is known of a family of foreign models, once for both ways: its names, settings and quirks.

A family is an object of a subclass of `Family`, beside the others of its layout in one file of this
folder, and what can be said in tables stands in families.toml. `converted` reads tensors by it;
`exported.py` writes by it.
"""

import dataclasses
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.convert.formats import seq2seq_form
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import Differing, places, to_ours
from xlingjax.convert.formats.tensors import Arrays, Tensors
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig
from xlingjax.model.params import flattened, nested

Modules = Mapping[str, str]
Values = dict[str, Any]
"""Of settings, ours or theirs, by name."""
ORDINARY = {
    name: ModelConfig.__dataclass_fields__[name].default
    for name in (
        *("positions", "window", "norm", "norm_bias", "embedding_norm", "first_norm", "kv_heads"),
        *("attention_bias", "activation", "gated", "ffn_bias", "tied", "classifier_transform"),
        *("head_size", "head_scale", "unseen", "segments"),
    )
}
"""What the layers of most families compute."""
SWITCH = {True: True, False: False}
_TABLES = tomllib.loads(Path(__file__).with_name("families.toml").read_text(encoding="utf-8"))
_ADDED = ("settings", "computed", "modules")  # to those of a table before; others take their place


class Family:
    """A family that only reads leaves what is said of writing as it is."""

    types: tuple[str, ...] = ()
    """config.json's model_type; the first is written."""
    architectures: Mapping[str, str] = {}
    """{class: its classifier}. The last without one (""), with the vocabulary head, is written."""
    bare = ""
    """The class that is meant where config.json names none."""
    classifier = "xlmr"
    """The one that a model without a classifier may get."""

    settings: Mapping[str, Any] = {}
    """{our setting: theirs}, a count; or (theirs, default), a rate or a switch where that is one;
    with two of theirs, both have it; with a third, {their value: ours}, one of these."""
    fixed: Mapping[str, Any] = {}
    """{their setting: the only value that is computed here}, meant where none is named."""
    computed: Mapping[str, Any] = {}
    """{our setting: the only value that their classes compute}; of `ORDINARY` those that are not
    named, and in no other table, have the value there."""
    free: tuple[str, ...] = ()
    """Settings of `ORDINARY` or `computed` whose value the tensors tell, or `tell`."""
    ids: Mapping[str, str] = {
        "pad_token_id": "pad_id",
        "bos_token_id": "bos_id",
        "eos_token_id": "eos_id",
    }
    """{their setting: the vocabulary's}."""

    body = ""
    """How the names of tensors begin that a bare model has without it."""
    beside: tuple[str, ...] = ()
    """How the names of all other tensors begin."""
    head = ""
    """How the names of the vocabulary head begin; "": it has no weights of its own."""
    modules: Modules = {}
    """{ours: theirs}, with "{n}" for the number of a layer."""
    classifiers: Mapping[str, Modules] = {}
    same_class: Mapping[str, str] = {}
    """{classifier: another one, of `architectures`, whose class computes it, too}."""
    fused: Mapping[str, tuple[str, ...]] = {}
    """{module of theirs: those of `modules` that are its parts, one below the other}."""
    transposed = True
    """Linear layers are [out, in]."""
    tied: Modules = {}
    """{another name of a tensor: the usual one}."""
    ignored: tuple[str, ...] = ()
    """How the names begin of what is left behind."""
    positions = segments = words = ""
    """Tables: the first row of segments becomes part of what positions give; words are of fairseq,
    whose `args` do not tell how many rows they have."""
    segment_rows = 1
    """Of a model that has no segments, in their table."""

    def __init__(self, *names: str):
        """names: of its tables in families.toml, each over those before."""
        own: Values = {}
        for name in names:
            for field, value in _TABLES[name].items():
                own[field] = own.get(field, {}) | value if field in _ADDED else value
        vars(self).update(_filled(own, own.get("body", "")))

    def config_of(self, fields: Fields, name: str) -> ModelConfig:
        """The model that config.json describes. Raises UserError for what is not computed here."""
        # Files of fairseq have no architectures.
        kind = fields.architecture(self.architectures, self.bare) if self.architectures else ""
        ours = {
            **self.computed,
            "classifier": kind or self.classifier,
            "num_labels": self.labels_of(fields, kind),
            **self.read_settings(fields),
        }
        self.tell(fields, ours)
        return ModelConfig(name=name, **ours)

    def tell(self, fields: Fields, ours: Values) -> None:
        """Add to `ours` the settings that config.json tells otherwise than `settings` says. Raises
        UserError as `config_of` does."""

    def read_settings(self, fields: Fields) -> Values:
        """The values of `settings`. Raises UserError for another value of one of `fixed`."""
        for theirs, value in self.fixed.items():
            fields.only(theirs, value)
        values: Values = {}
        for ours, setting in self.settings.items():
            theirs, default, meaning = _whole(setting)
            if meaning:
                values[ours] = fields.one_of(theirs, meaning, default)
            elif isinstance(theirs, tuple):
                values[ours] = fields.same(*theirs)
            elif isinstance(default, float):
                values[ours] = fields.rate(theirs, default)
            else:
                # Without layers a model is a table (`gin/models/static.gin`).
                values[ours] = fields.index(theirs, default, least=int(ours != "layers"))
        return values

    def labels_of(self, fields: Fields, kind: str) -> int:
        if kind == "spans":
            return 2
        return len(fields.labels()) if kind else 0

    def names_of(self, config: ModelConfig) -> Modules:
        """The table of names of a model that may have one of the family's classifiers."""
        modules = self.modules
        if config.num_labels:
            modules = {**modules, **self.classifiers[config.classifier]}
        return modules

    def usual(self, tensors: Tensors) -> Tensors:
        """Each tensor under its name there. Raises UserError for a head that is not tied."""
        tensors = split(self.within(tensors, self.tied), self.fused)
        return folded(tensors, self.positions, self.segments, self.pairs_in(tensors))

    def within(self, tensors: Tensors, tied: Modules) -> Tensors:
        """`renamed`, with `body` before every name that does not begin with it or with one of
        `beside`: a bare model has its tensors without the name that one with a head has for it."""
        whole = (self.body, *self.beside)
        return renamed(
            tensors, lambda name: name if name.startswith(whole) else self.body + name, tied
        )

    def pairs_in(self, tensors: Tensors) -> bool:
        """Whether there is a head that reads pairs, and so the table of segments."""
        return False

    def prepared(self, config: ModelConfig, tensors: Tensors) -> tuple[ModelConfig, Tensors]:
        """`usual`, and the configuration, of which the tensors may tell more."""
        return config, self.usual(tensors)

    def unfit(self, config: ModelConfig) -> str:
        """Why their classes do not compute a model of ours; "": they do."""
        known = {**ORDINARY, **self.computed}
        for name in (*self.settings, *self.free):
            known.pop(name, None)
        others = [differing(config, **known), seq2seq_form.unlike(config)]
        return ", ".join(filter(None, others))

    def kind_of(self, config: ModelConfig) -> str:
        """The classifier that a class has a place for; "": the vocabulary head."""
        has_place = config.num_labels and config.classifier in self.classifiers
        return config.classifier if has_place else ""

    def architecture(self, config: ModelConfig) -> str:
        by_kind = {kind: name for name, kind in self.architectures.items()}
        kind = self.kind_of(config)
        return by_kind[self.same_class.get(kind, kind)]

    def written_names(self, config: ModelConfig) -> Modules:
        """Of the class that `described` names: one with a classifier has no vocabulary head."""
        kind = self.kind_of(config)
        if not kind:
            return self.names_of(config.replace(num_labels=0))
        return {**self.modules_without_head(), **self.classifiers[kind]}

    def modules_without_head(self) -> dict[str, str]:
        # With a dot, since the head's own module is named without one.
        return {
            ours: theirs
            for ours, theirs in self.modules.items()
            if not f"{theirs}.".startswith(self.head or " ")
        }

    def unfold(self, theirs: Arrays, config: ModelConfig, pad_id: int) -> None:
        """Adds what theirs has besides: segments of zeros, and rows before the first position."""
        if self.segments:
            theirs.setdefault(self.segments, np.zeros((self.segment_rows, config.dim), np.float32))
        if self.positions:
            theirs[self.positions] = counted(
                theirs[self.positions], config.position_offset, self.rows_before(pad_id)
            )

    def rows_before(self, pad_id: int) -> int:
        """Rows of their table of positions before that of the first."""
        return 0

    def described(
        self,
        config: ModelConfig,
        vocabulary: Vocabulary,
        labels: Sequence[str] = (),
        languages: Sequence[str] = (),
    ) -> Values:
        """Their config.json. labels: names of the classes, in order; languages: the codes, index =
        id, for classes that embed them."""
        fields: Values = {
            "architectures": [self.architecture(config)],
            "model_type": self.types[0],
            **self.fixed,
        }
        for ours, setting in self.settings.items():
            theirs, default, meaning = _whole(setting)
            value = getattr(config, ours)
            if meaning:
                value = {known: name for name, known in meaning.items()}[value]
            elif value is None:
                value = default
            names = theirs if isinstance(theirs, tuple) else (theirs,)
            fields.update(dict.fromkeys(names, value))
        rows = self.rows_before(vocabulary.pad_id)
        fields |= {
            "vocab_size": config.true_rows,
            "max_position_embeddings": config.max_positions - config.position_offset + rows,
            "dtype": "float32",
        }
        fields |= {name: getattr(vocabulary, ours) for name, ours in self.ids.items()}
        if self.kind_of(config) not in ("", "spans"):
            if len(labels) != config.num_labels:
                labels = [f"LABEL_{i}" for i in range(config.num_labels)]
            fields["id2label"] = {str(i): name for i, name in enumerate(labels)}
            fields["label2id"] = {name: i for i, name in enumerate(labels)}
        return fields | self.more_fields(config)

    def more_fields(self, config: ModelConfig) -> Values:
        """Of config.json, beside what the tables above say."""
        return {}


def _filled(value: Any, body: str) -> Any:
    """A table with `body` in its names, and tuples for lists."""
    if isinstance(value, dict):
        return {_filled(name, body): _filled(one, body) for name, one in value.items()}
    if isinstance(value, list):
        return tuple(_filled(one, body) for one in value)
    return value.replace("{body}", body) if isinstance(value, str) else value


def _whole(setting: str | tuple) -> tuple[Any, Any, dict[Any, Any]]:
    """(theirs, default or None, {their value: ours} or {})"""
    if isinstance(setting, str):
        return setting, None, {}
    theirs, default, meaning = (*setting, None, None)[:3]
    if isinstance(default, bool) and meaning is None:
        meaning = SWITCH
    return theirs, default, dict(meaning or {})


def differing(config: ModelConfig, **fixed: Any) -> str:
    """The fields that have another value than the one a class knows; "": none."""
    own = {name: getattr(config, name) for name in fixed}
    return ", ".join(f"{name}={own[name]!r}" for name in fixed if own[name] != fixed[name])


def counted(table: np.ndarray, rows: int, wanted: int) -> np.ndarray:
    """Positions with `wanted` instead of `rows` unread rows before the first position's."""
    if rows == wanted:
        return table.copy()
    before = np.zeros((wanted, table.shape[1]), np.float32)
    return np.concatenate([before, table[rows:]])


@dataclasses.dataclass(frozen=True)
class Converted:
    config: ModelConfig
    params: Any
    vocabulary_head: bool  # came with it; else it is random
    notes: tuple[str, ...]  # what was made up


def converted(family: Family, config: ModelConfig, tensors: Tensors) -> Converted:
    """Raises `Differing` for weights that the configuration does not have, UserError for NaN."""
    notes = []
    if wrapped := [name for name in tensors.shapes if unwrapped(name) != name]:
        notes.append(
            f"{len(wrapped)} weights were read without what wraps their names ({wrapped[0]}):"
            " harmless, the weights are the same"
        )
    # First of all: everything below asks by the names in the family's table.
    config, tensors = family.prepared(config, tensors)
    abstract = build_model(config).abstract()
    table, without = places(family.names_of(config), config, abstract, family.transposed)
    # The class of such a checkpoint has no head, or it was saved without the one it had.
    fresh = {name for name in without if name.startswith("head/")}
    if family.head and not _begin(tensors.shapes, family.head):
        fresh.update(_begin([place.ours for place in table], "head/"))
    if fresh:
        what = "the words' alone, without a bias"
        if any(name.endswith("kernel") for name in fresh):
            what = "random"
        notes.append(
            f"the vocabulary head is {what}, since the checkpoint has none: harmless, no other part"
            " reads it and an export has none either, unless words are trained"
        )
    # Only heads may be made up: a body with random parts would look like the model and not be it.
    missing = {*without} - fresh
    if missing:
        raise UserError(
            f"{tensors.origin}: such a model has no {min(missing)}, which {config.name} needs"
        )
    table = [place for place in table if place.ours not in fresh]
    # Shapes are compared before any tensor is read, so a wrong folder fails in no time.
    params = to_ours(table, tensors, _begin(tensors.shapes, family.ignored))
    params.update(_random(fresh, config, abstract))
    return Converted(config, nested(params), not fresh, tuple(notes))


def _begin(names: Iterable[str], start: str | tuple[str, ...]) -> list[str]:
    return [name for name in names if name.startswith(start)]


def renamed(tensors: Tensors, rename: Callable[[str], str], tied: Mapping[str, str]) -> Tensors:
    """Each tensor under its usual name, and under one. tied: {another name of the same tensor: the
    usual one}. Raises UserError for names that are tied and tensors that are not; for adapters."""
    own: dict[str, str] = {}
    for name in tensors.shapes:
        if ".lora_" in name:
            raise adapter(tensors.origin)
        usual = rename(_today(name))
        if usual in own:
            raise UserError(f"{tensors.origin}: {name} and {own[usual]} are one weight; leave one")
        own[usual] = name
    # A pickle may hold a tied tensor under each of its names, safetensors under any one of them.
    for alias, name in tied.items():
        if alias in own and name in own:
            if not np.array_equal(tensors.fetch(own[alias]), tensors.fetch(own[name])):
                raise UserError(
                    f"{tensors.origin}: {alias} is not {name}; xlingjax has heads tied to the words"
                    " alone"
                )
            del own[alias]
        elif alias in own:
            own[name] = own.pop(alias)
    shapes = {name: tensors.shapes[there] for name, there in own.items()}
    return dataclasses.replace(tensors, shapes=shapes, fetch=lambda name: tensors.fetch(own[name]))


# Of weights that were converted from TensorFlow.
_OLD_PARTS = {"gamma": "weight", "beta": "bias"}
_NORMS = ("LayerNorm", "layer_norm", "layernorm_embedding")


def adapter(origin: Any) -> UserError:
    return UserError(
        f"{origin} is or holds an adapter (LoRA): merge it into its model first (PEFT:"
        " merge_and_unload, then save_pretrained), and import that"
    )


WRAPPERS = (
    r"^(?:(?:module|_orig_mod|_fsdp_wrapped_module)\.)+"
    r"|(?<=\.)_(?:orig_mod|fsdp_wrapped_module|checkpoint_wrapped_module)\."
)
"""What training on several devices and torch.compile put into the names of tensors."""


def unwrapped(name: str) -> str:
    return re.sub(WRAPPERS, "", name)


def _today(name: str) -> str:
    """The name of a tensor as transformers writes it today and renames older ones."""
    start, _, part = unwrapped(name).rpartition(".")
    if part in _OLD_PARTS and start.endswith(_NORMS):
        part = _OLD_PARTS[part]
    return f"{start}.{part}".lstrip(".")


def split(tensors: Tensors, fused: Mapping[str, Sequence[str]]) -> Tensors:
    """Those of modules that hold several, one below the other, as several. fused: {such a module:
    the names of those in it, in its place}."""
    parts: dict[str, tuple[str, int, int]] = {}
    shapes = {}
    for name, shape in tensors.shapes.items():
        # PyTorch's own attention has parameters `in_proj_weight` and `in_proj_bias`.
        *above, module, part = ["", *name.replace(".in_proj_", ".in_proj.").split(".")]
        names = fused.get(module, ())
        if not names or not shape or shape[0] % len(names):
            shapes[name] = shape
            continue
        for number, other in enumerate(names):
            own = ".".join((*above[1:], other, part))
            parts[own] = (name, number, len(names))
            shapes[own] = (shape[0] // len(names), *shape[1:])

    def fetch(name: str) -> np.ndarray:
        if name not in parts:
            return tensors.fetch(name)
        whole, number, count = parts[name]
        return np.split(tensors.fetch(whole), count)[number]

    return dataclasses.replace(tensors, shapes=shapes, fetch=fetch)


def folded(tensors: Tensors, positions: str, segments: str, pairs: bool) -> Tensors:
    """The first row of the table `segments`, that of a text alone, becomes part of what the table
    `positions` gives. pairs: the table stays, as what each segment has beside the first; else every
    token is of that one. Raises `Differing`."""
    shape = tensors.shapes.get(segments)
    beside = tensors.shapes.get(positions)
    if shape is None or beside is None or len(beside) != 2:
        return tensors
    if len(shape) != 2 or shape[0] < 1 or shape[1] != beside[1]:
        raise Differing(tensors.origin, [(segments, (1, beside[1]), shape)])

    def fetch(name: str) -> np.ndarray:
        if name == segments:
            # What the first row gives is part of the positions already.
            return tensors.read(segments) - tensors.read(segments)[0]
        if name != positions:
            return tensors.fetch(name)
        return tensors.read(positions) + tensors.read(segments)[0]

    if pairs and shape[0] > 1:
        return dataclasses.replace(tensors, fetch=fetch)
    shapes = {name: value for name, value in tensors.shapes.items() if name != segments}
    return dataclasses.replace(tensors, shapes=shapes, fetch=fetch)


def _random(fresh: set[str], config: ModelConfig, abstract: Any) -> Arrays:
    # A fixed seed, so that every import of a model gives the same parameters.
    rng = np.random.default_rng(0)
    std = config.init_std or config.dim**-0.5
    params = {}
    for name, leaf in flattened(abstract).items():
        if name not in fresh:
            continue
        if name.endswith(("/kernel", "/embedding")):
            params[name] = rng.normal(0, std, leaf.shape).astype(np.float32)
        else:
            params[name] = np.full(leaf.shape, name.endswith("/scale"), np.float32)
    return params
