"""Where a start's weights come from: the run's own checkpoint, else trained runs that give some or
all of its parameters, else random ones.

XLM's grid of encoders and decoders and its lookup tables (§5.2), XLM-R in both sides, VECO with its
cross-attention (§3.3). A donor is an encoder or an encoder-decoder. Every group of parameters has a
line that says where it comes from, and a donor that does not fit is refused.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from xlingjax.data.store.tokenise import BlockText
from xlingjax.errors import UserError, require_whole
from xlingjax.model.config import ModelConfig
from xlingjax.model.params import flattened, nested
from xlingjax.runtime.numerals import is_whole
from xlingjax.training.checkpoint import Checkpoints, read_branch
from xlingjax.training.checkpoint_params import (
    load_params,
    read_params,
    require_languages,
    require_vocabulary,
    saved_params,
)
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.training.feed import Feed
from xlingjax.training.run_record import (
    labels_of,
    model_of,
    read_run_record,
    require_branch,
    task_of_head,
    vocabulary_of,
)
from xlingjax.training.step import TrainState

MACROS = {"embeddings": "INIT_EMBEDDINGS", "encoder": "INIT_ENCODER", "decoder": "INIT_DECODER"}
LAYERS = {"encoder": "ENCODER_LAYERS_FROM", "decoder": "DECODER_LAYERS_FROM"}

CONSTANT = 32.0  # of a table alone: rows are about 1 long

Layers = str | int | Sequence[int]


def numbers_of(layers: Layers, macro: str) -> list[int] | None:
    """The numbers of layers, None for "first" and "last". Raises UserError."""
    if layers in ("first", "last"):
        return None
    # gin gives a number, a list or a text, by what was typed.
    numbers = str(layers).strip("[]()").replace(",", " ").split()
    if not numbers or not all(map(is_whole, numbers)):
        raise UserError(
            f"{macro}={layers}: give first, last, or numbers of layers from 0 with commas between"
        )
    return list(map(int, numbers))


class Donor:
    """A trained run that gives parameters, as its files describe it."""

    def __init__(self, run: str):
        """Reads no parameter. Raises UserError: no such run, no readable checkpoint."""
        record = read_run_record(run)
        self.run = str(run)
        self.checkpoint = find_checkpoint(run)
        self.shapes, identity = saved_params(self.checkpoint)
        self.vocabulary = vocabulary_of(identity)
        self.config = model_of(run)
        self.pieces = self.config.vocab_size - self.config.language_tokens
        self.languages = tuple(record["languages"])
        require_languages(self.checkpoint, identity, self.languages)

    def source(self, name: str, side: str) -> str | None:
        """What this run calls the parameter `name` of a new model when its encoder or decoder gives
        it; None where it has none."""
        part, _, rest = name.partition("/")
        kind = part.removeprefix("decoder_")
        of_decoder = side == "decoder" and self.config.decoder_layers > 0
        # A tied decoder has no self-attention of its own: the encoder's stands for it.
        tied = self.config.tied_self_attention and rest.startswith("layers/attention/")
        names = [f"{kind}/{rest}"]
        if part == "decoder":
            # An encoder's layers may begin a decoder: they have the same names.
            names = [f"{'decoder' if of_decoder and not tied else 'encoder'}/{rest}"]
        elif of_decoder:
            names.insert(0, f"decoder_{kind}/{rest}")
        return next((name for name in names if name in self.shapes), None)

    def layers(self, chosen: Layers, side: str, count: int, stretched: bool) -> list[int]:
        """`count` layers as chosen, numbered within its encoder or decoder. Raises UserError."""
        macro = LAYERS[side]
        depth = self.config.layers
        if side == "decoder" and self.config.decoder_layers:
            depth = self.config.decoder_layers
        numbers = numbers_of(chosen, macro)
        if numbers is None and depth >= count:
            first = 0 if chosen == "first" else depth - count
            return list(range(first, first + count))
        if numbers is None and stretched:
            return [min(round(i * depth / count), depth - 1) for i in range(count)]
        if numbers is None or len(numbers) != count or max(numbers) >= depth:
            raise UserError(
                f"{MACROS[side]}={self.run} has {depth} layers, the new {side} {count}: set {macro}"
                f" to {count} numbers from 0 to {depth - 1}"
            )
        return numbers


Donated = tuple[str, Donor, str]
"""(part of `Initialisation`, its donor, the donor's name of a parameter)."""


def layer_names(numbers: list[int]) -> str:
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 1 and numbers == [*range(first, last + 1)]:
        return f"layers {first}..{last}"
    return f"layers {', '.join(map(str, numbers))}"


def grouped(origins: Mapping[str, str], above: str = "") -> Iterator[str]:
    """Lines "GROUP: ORIGIN" of the largest groups of parameters of one origin."""
    parts: dict[str, dict[str, str]] = {}
    for name, origin in origins.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = origin
    for part, below in parts.items():
        found = {*below.values()}
        if len(found) == 1:
            yield f"{above}{part}: {found.pop()}"
        else:
            yield from grouped(below, f"{above}{part}/")


@dataclasses.dataclass(frozen=True)
class Initialisation:
    """Runs that give the first weights: workdirs, or folders checkpoints/STEP. None: random."""

    run: str | None = None
    """Gives everything, as `init_from` with a path; none of the others then."""
    embeddings: str | None = None
    """Gives both sides their lookup tables where no other donor does (XLM's EMB)."""
    encoder: str | None = None
    """Gives the encoder, its embeddings and the vocabulary head."""
    decoder: str | None = None
    """Gives the decoder: self-attention, feed-forward and their norms, and embeddings and head
    where these are the decoder's own, or shared and without another donor. Of an encoder-decoder it
    is the decoder that gives."""
    cross_attention: bool | None = None
    """Of `decoder`: None: taken where that run has one (VECO, an encoder-decoder); False: left
    random; True: a run without one is refused."""
    encoder_layers: Layers = "first"
    """The donor's layers that the new ones are: "first", "last" (as many as needed), or numbers
    from 0, "0,3,5"."""
    decoder_layers: Layers = "last"
    tiled: bool = False
    """The encoder may be wider and deeper than its donor: each matrix holds the donor's from its
    middle outwards, again and again, and layers that are not chosen are the donor's, stretched
    (Rae et al. 2021, ModernBERT-large)."""

    def __post_init__(self):
        require_whole(self, "[0, inf)", "encoder_layers decoder_layers", "initialisation: ")
        given = {MACROS[part]: run for part, run in self.parts.items()}
        if self.run and given:
            others = ", ".join(f"{macro}={run}" for macro, run in given.items())
            raise UserError(
                f"INIT_FROM={self.run} gives all weights, and {others} give some; leave out either"
            )
        for part, macro in LAYERS.items():
            numbers_of(getattr(self, f"{part}_layers"), macro)
        # What would change nothing is a mistake.
        fields = Initialisation.__dataclass_fields__
        for macro, name, part in (
            ("ENCODER_LAYERS_FROM", "encoder_layers", "encoder"),
            ("DECODER_LAYERS_FROM", "decoder_layers", "decoder"),
            ("INIT_CROSS_ATTENTION", "cross_attention", "decoder"),
            ("INIT_TILED", "tiled", "encoder"),
        ):
            value = getattr(self, name)
            if value != fields[name].default and part not in self.parts:
                raise UserError(f"{macro}={value} changes nothing without {MACROS[part]}: set both")

    @property
    def parts(self) -> dict[str, str]:
        """{"embeddings", "encoder", "decoder": its donor} of those that have one."""
        return {part: run for part in MACROS if (run := getattr(self, part))}


RANDOM = "random"
SLOT = "decoder/layers/cross_attention/"

# Fields that change what the same weights compute: of the embeddings, and of the layers.
_OF_EMBEDDINGS = ("positions", "embedding_norm", "embedding_scale", "position_offset", "norm")
_OF_EMBEDDINGS += ("norm_eps",)
_OF_LAYERS = ("norm_order", "activation", "gated", "window", "rotary_theta", "local_theta")
Loaded = tuple[Any, str, list[str]]  # (parameters, givers in words, a line for each group)


class Plan:
    """What is copied from where, found and checked before anything expensive."""

    def __init__(self, initialisation: Initialisation, config: ModelConfig, abstract: Any):
        """abstract: the new parameters' shapes. Raises UserError for a donor that does not fit."""
        self._config = config
        self._donors = {part: Donor(run) for part, run in initialisation.parts.items()}
        if "decoder" in self._donors and not config.decoder_layers:
            raise UserError(
                f"INIT_DECODER={initialisation.decoder}: model {config.name} has no decoder; leave"
                " it out, or set model.decoder_layers"
            )
        for part, donor in self._donors.items():
            self._require_alike(part, donor)
        sides = {
            "encoder": (initialisation.encoder_layers, config.layers),
            "decoder": (initialisation.decoder_layers, config.decoder_layers),
        }
        self._tiled = initialisation.tiled
        self._layers = {
            side: self._donors[side].layers(chosen, side, count, self._tiled)
            for side, (chosen, count) in sides.items()
            if side in self._donors
        }
        self._donated: dict[str, Donated] = {}
        for name, leaf in flattened(abstract).items():
            is_cross_attention = name.startswith(SLOT)
            if is_cross_attention and initialisation.cross_attention is False:
                continue
            if donated := next(self._candidates(name), None):
                self._require_shape(name, leaf.shape, donated)
                self._donated[name] = donated
            elif is_cross_attention and initialisation.cross_attention:
                raise UserError(
                    f"INIT_CROSS_ATTENTION=True: INIT_DECODER={initialisation.decoder} has no"
                    " cross-attention; give a VECO run or an encoder-decoder, or leave it out"
                )

    def _require_alike(self, part: str, donor: Donor) -> None:
        ours = self._config
        where = f"{MACROS[part]}={donor.run} does not fit the model"
        fields = _OF_EMBEDDINGS if part == "embeddings" else _OF_LAYERS + _OF_EMBEDDINGS
        for field in fields:
            own, given = getattr(ours, field), getattr(donor.config, field)
            if own != given:
                raise UserError(
                    f"{where}: {field} is {own} here and {given} there; set model.{field}={given}"
                )
        # Tokens of languages are compared by code, later; here only the pieces.
        pieces = ours.vocab_size - ours.language_tokens
        if donor.pieces != pieces:
            raise UserError(
                f"{where}: it has {donor.pieces} pieces, the model {pieces}; set"
                f" VOCABULARY={donor.run}"
            )

    def _candidates(self, name: str) -> Iterator[Donated]:
        """Who has a parameter of the new model, the best first."""
        part, _, rest = name.partition("/")
        givers = {
            "embeddings": ("encoder", "decoder", "embeddings"),
            "decoder_embeddings": ("decoder", "embeddings"),
            "head": ("encoder", "decoder"),
            "decoder_head": ("decoder",),
            "decoder": ("decoder",),
        }.get(part, ("encoder",))
        # Which of the encoder's parameters the decoder reads too, so that its donor may give them.
        shared = self._config.decoder_embeddings
        of_both = shared == "shared"
        if shared == "shared_tokens":
            of_both = part == "head" or rest.startswith("tokens/")
        for giver in givers:
            if giver not in self._donors:
                continue
            if giver == "decoder" and not part.startswith("decoder") and not of_both:
                continue
            # From which side of the donor: an encoder-decoder may have embeddings of each.
            side = giver
            if giver == "embeddings":
                side = "decoder" if part == "decoder_embeddings" else "encoder"
            donor = self._donors[giver]
            source = donor.source(name, side)
            if source is not None:
                yield giver, donor, source

    def _require_shape(self, name: str, shape: tuple[int, ...], donated: Donated) -> None:
        part, donor, source = donated
        rows, _ = self._rows(name, shape, donated, ())
        # Where rows are chosen the numbers of rows may differ, and nothing else.
        first_axis = int(rows is not None)
        given = donor.shapes[source]
        sizes = [*zip(shape[first_axis:], given[first_axis:], strict=True)]
        if any(own < other or (own > other and not self._tiled) for own, other in sizes):
            raise UserError(
                f"{MACROS[part]}={donor.run} does not fit the model: {name} has shape {shape},"
                f" {source} there {given}; set the sizes of the model of its run.json"
            )

    def _rows(
        self, name: str, shape: tuple[int, ...], donated: Donated, languages: Sequence[str]
    ) -> tuple[list[tuple[Any, Any]] | None, str]:
        """([(ours, theirs)] of axis 0 of a parameter, slices or lists, None: all; where it comes
        from, for the log). languages: of the new run."""
        part, donor, source = donated
        theirs = donor.config
        if "/layers/" in name:
            numbers = self._layers[part]
            stack = source.partition("/")[0]
            origin = f"{stack} {layer_names(numbers)} of {donor.run}"
            if part == "decoder" and theirs.decoder_layers and stack == "encoder":
                # The donor's decoder is tied to the last layers of its encoder.
                numbers = [theirs.layers - theirs.decoder_layers + i for i in numbers]
                origin = f"encoder {layer_names(numbers)} of {donor.run} (tied there)"
            return [(slice(None), numbers)], origin
        given = donor.shapes[source][0]
        if name.endswith("positions/embedding") and given != shape[0]:
            if given > shape[0]:
                origin = f"the first {shape[0]} rows of {donor.run}"
            else:
                origin = f"the {given} rows of {donor.run}, again and again"
            # Behind its last position its first one (Beltagy et al. 2020, "Longformer", §5).
            first = theirs.position_offset
            again = [first + (i - first) % (given - first) for i in range(given, shape[0])]
            return [(slice(None), [*range(min(given, shape[0])), *again])], origin
        # Row of the first language, here and there.
        first = 0
        rows: list[tuple[Any, Any]] = []
        if name.endswith("tokens/embedding") or name in ("head/bias", "decoder_head/bias"):
            # Behind the pieces stand language tokens, and rows that fill up, which stay as they
            # are.
            first = donor.pieces
            rows.append((slice(first), slice(first)))
            if not (self._config.language_tokens and theirs.language_tokens):
                return rows, donor.run
        elif not name.endswith("languages/embedding"):
            return None, donor.run
        # By code, since the same language may have another number in either run.
        known = [code for code in languages if code in donor.languages]
        if known:
            ours = [first + languages.index(code) for code in known]
            rows.append((ours, [first + donor.languages.index(code) for code in known]))
        new = [code for code in languages if code not in known]
        names = ", ".join(known) + (f"; random: {', '.join(new)}" if new else "")
        return rows, f"{donor.run} ({names})"

    def load(self, params: Any, languages: Sequence[str], identity: Mapping[str, Any]) -> Loaded:
        """(`params` with what is given, sharded alike; who gives, in words; a line per group).

        Several processes call it equally. languages: of the new run, index = id; identity: see
        `run_identity`. Raises UserError: another vocabulary, an unreadable donor.
        """
        vocabulary = vocabulary_of(identity)
        for donor in self._donors.values():
            require_vocabulary(donor.checkpoint, donor.vocabulary, vocabulary)
        ours = flattened(params)
        origins = dict.fromkeys(ours, RANDOM)
        taken = {}
        abstract: dict[Path, dict[str, Any]] = {}
        for name, donated in self._donated.items():
            rows, origin = self._rows(name, ours[name].shape, donated, languages)
            # No row where a donor has none of the languages.
            if rows != []:
                origins[name] = origin
                _, donor, source = donated
                taken[name] = donor.checkpoint, source, rows
                one = _lying_as(ours[name], donor.shapes[source])
                abstract.setdefault(donor.checkpoint, {})[source] = one
        # Each checkpoint once, whatever it gives: reading is what takes long.
        given = {path: flattened(read_params(path, nested(a))) for path, a in abstract.items()}

        def fill(ours, given):
            filled = {}
            for name, (checkpoint, source, rows) in taken.items():
                theirs = given[checkpoint][source]
                if self._tiled:
                    theirs = tiled(theirs, ours[name].shape, int(rows is not None))
                filled[name] = theirs if rows is None else ours[name]
                for to, of in rows or ():
                    filled[name] = filled[name].at[_index(to)].set(theirs[_index(of)])
            return filled

        replaced = {name: ours[name] for name in taken}
        shardings = {name: leaf.sharding for name, leaf in replaced.items()}
        # Jitted, so that each is made where its parameter lies.
        filled = jax.jit(fill, out_shardings=shardings)(replaced, given)
        if self._config.tied_self_attention:
            origins["decoder/layers/attention"] = "the encoder's (tied_self_attention)"
        givers = [
            f"{part} of {donor.run} (checkpoint {donor.checkpoint.name})"
            for part, donor in self._donors.items()
        ]
        leaves = (ours | filled).values()
        params = jax.tree.unflatten(jax.tree.structure(params), leaves)
        return params, ", ".join(givers), list(grouped(origins))


def tiled(values: jax.Array, shape: Sequence[int], first_axis: int = 0) -> jax.Array:
    """The values again and again to `shape` from `first_axis` on, one copy in the middle."""
    for axis in range(first_axis, values.ndim):
        given, wanted = values.shape[axis], shape[axis]
        if given != wanted:
            places = (jnp.arange(wanted) - (wanted - given) // 2) % given
            values = jnp.take(values, places, axis)
    return values


def _lying_as(ours: jax.Array, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    """A donor's array of this shape, to be read on the devices of the parameter that it fills."""
    sharding: Any = ours.sharding
    try:
        sharding.shard_shape(shape)
    except ValueError:
        # Its number of rows may not divide; whole on each device it is only for now.
        sharding = NamedSharding(sharding.mesh, PartitionSpec())
    return jax.ShapeDtypeStruct(shape, ours.dtype, sharding=sharding)


def _index(rows: Any) -> Any:
    return rows if isinstance(rows, slice) else jnp.array(rows)


TokenVectors = Callable[[Sequence[BlockText], int], tuple[np.ndarray, str]]
"""Of the text that a run reads, of a width: (float32 [pieces, width], where they come from in
words); rows of 0 stay random."""


@dataclasses.dataclass(frozen=True)
class First:
    """What a start begins with."""

    state: TrainState
    weights: str  # where they come from, for the log
    step: int = 0
    tokens_seen: int = 0
    donated: Sequence[str] = ()  # a line per group of parameters that came from donors


def restored(
    checkpoints: Checkpoints, abstract: TrainState, feed: Feed, workdir: Path
) -> First | None:
    """The run's own newest checkpoint, with the sources where it left them; None for a new run."""
    saved = checkpoints.restore(abstract)
    if saved is None:
        return None
    for name, source in feed.sources.items():
        source.restore(saved.positions[name])
    return First(
        saved.state,
        f"checkpoint {saved.step} of {workdir}",
        saved.step,
        saved.progress["tokens_seen"],
    )


def branched(
    run: str, steps: int, abstract: TrainState, feed: Feed, identity: Mapping[str, Any]
) -> First:
    """Another run's checkpoint with its optimizer and step. Objectives go on with the batch at
    which those of the same name stood there, whatever they read; others begin. Raises UserError for
    a checkpoint that does not fit and one that has all of `steps`."""
    checkpoint = find_checkpoint(run)
    name = f"BRANCH_FROM={run}"
    saved = read_branch(checkpoint, abstract, lambda theirs: require_branch(theirs, identity, name))
    if saved.step >= steps:
        raise UserError(f"{name} has {saved.step} steps, the new run {steps}: raise TRAIN_STEPS")
    for stage, source in feed.sources.items():
        source.restore(saved.positions.get(stage, 0))
    weights = f"checkpoint {saved.step} of {run}, whose optimizer and data go on"
    return First(saved.state, weights, saved.step, saved.progress["tokens_seen"])


def new_run(
    state: TrainState,
    seed: int,
    load: Callable[..., Loaded] | None,
    languages: Sequence[str],
    identity: Mapping[str, Any],
    token_vectors: TokenVectors | None = None,
    texts: Sequence[BlockText] = (),
) -> First:
    """A new run, from a random state whose parameters `load` replaces where it is given; without
    it, `token_vectors` of `texts` those of the token table."""
    params = state.params
    weights = f"random (seed {seed})"
    donated: Sequence[str] = ()
    if load is not None:
        params, weights, donated = load(params, languages, identity)
    elif token_vectors is not None:
        params, origin = _with_tokens(params, token_vectors, texts)
        weights += f"; {origin}"
    return First(dataclasses.replace(state, params=params), weights, donated=donated)


def _with_tokens(params: Any, vectors: TokenVectors, texts: Sequence[BlockText]) -> tuple[Any, str]:
    table_VD = params["embeddings"]["tokens"]["embedding"]
    rows_SD, origin = vectors(texts, table_VD.shape[1])
    # The table has rows beyond the vocabulary, and they stay as they are.
    padded_VD = np.pad(rows_SD, ((0, len(table_VD) - len(rows_SD)), (0, 0)))
    alone = "layers" not in params.get("encoder", {})

    def replaced(table_VD: jax.Array, rows_VD: jax.Array) -> jax.Array:
        known_V1 = (rows_VD != 0).any(axis=1, keepdims=True)
        # As long as the random rows are on average: positions and head expect such.
        norm = jnp.linalg.norm(table_VD, axis=1).mean()
        # Of a table alone what is not known says nothing.
        return jnp.where(known_V1, norm * rows_VD, 0 if alone else table_VD)

    made = jax.jit(replaced, out_shardings=table_VD.sharding)
    embeddings = {**params["embeddings"], "tokens": {"embedding": made(table_VD, padded_VD)}}
    if alone:
        embeddings |= _passing(embeddings)
    return {**params, "embeddings": embeddings}, origin


def _passing(embeddings: Mapping[str, Any]) -> dict[str, Any]:
    """Tables and a norm that let the token table through, lengths included, which weigh the pieces
    of a text in its mean. A LayerNorm makes all rows equally long: but with one large constant in
    each, the last column, it divides all by nearly the same number; that column's gain is 0."""
    positions = embeddings["positions"]["embedding"]
    D = positions.shape[1]
    last_D = jnp.arange(D) == D - 1
    # The deviation of D - 1 zeros and the constant.
    deviation = CONSTANT * (D - 1) ** 0.5 / D
    made = {
        "tokens": {"embedding": jnp.where(last_D, 0, embeddings["tokens"]["embedding"])},
        "positions": {"embedding": jnp.broadcast_to(CONSTANT * last_D, positions.shape)},
        "norm": {
            "scale": jnp.where(last_D, 0, deviation),
            "bias": jnp.where(last_D, 0, CONSTANT / D),
        },
    }
    old = {name: embeddings[name] for name in made}
    return jax.tree.map(lambda before, now: jax.device_put(now, before.sharding), old, made)


def first_weights(
    init_from: Any, config: ModelConfig, abstract: Any, new: Sequence[str]
) -> Callable[[Any, Sequence[str], Mapping[str, Any]], Loaded] | None:
    """A function like `Plan.load` for what `init_from` names: a path or an `Initialisation`; None
    where it names nothing. Raises UserError for what can be refused before any text is read."""
    if isinstance(init_from, Initialisation):
        if init_from.parts:
            return Plan(init_from, config, abstract).load
        init_from = init_from.run
    if not init_from:
        return None

    def load(params: Any, languages: Sequence[str], identity: Mapping[str, Any]) -> Loaded:
        # An imported encoder has no parameters of languages, and no list of them.
        if config.tells_languages() and model_of(init_from).tells_languages():
            saved = read_run_record(init_from)["languages"]
            # A run may have fewer languages if they are the donor's first: those keep their ids.
            if list(languages) != saved[: len(languages)]:
                raise UserError(
                    f"INIT_FROM={init_from} has parameters of the languages {' '.join(saved)},"
                    f' numbered otherwise; set LANGUAGES="{" ".join(saved)}"'
                )
        for objective, data in identity["data"].items():
            if "labels" in data:
                require_labels(
                    f"INIT_FROM={init_from}", init_from, data["labels"], task_of_head(objective)
                )
        params, added = load_params(init_from, params, new, vocabulary_of(identity))
        new_ones = f", new and random: {', '.join(added)}" if added else ""
        return params, f"{init_from}{new_ones}", []

    return load


def require_labels(name: str, run: Any, labels: Sequence[str], task: str | None = None) -> None:
    """Raise UserError where a run's head was trained on other labels than those to learn now, or on
    these in another order: its outputs would stand for the wrong ones. name: how the message names
    the run; task: whose head, of a model with several."""
    record = read_run_record(run)
    theirs = labels_of(record, task) if task or model_of(run).num_labels else []
    if not theirs or theirs == [*labels]:
        return
    head = f"a head of {task}" if task else "a head"
    raise UserError(
        f"{name} has {head} for the labels {', '.join(theirs[:4])}, and those to learn are"
        f" {', '.join(labels[:4])}: start from the run that it was fine-tuned from"
    )
