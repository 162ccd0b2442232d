"""Where an encoder-decoder starts: which trained runs give which of its parameters, and what stays
random.

XLM's grid of encoders and decoders and its lookup tables (§5.2), XLM-R in both sides, VECO with its
cross-attention (§3.3). A donor is an encoder or an encoder-decoder. Nothing is left out in silence:
every group of parameters has a line that says where it comes from, and a donor that does not fit is
refused.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig
from xlingjax.model.params import path_name
from xlingjax.training.checkpoint import load_params, require_vocabulary
from xlingjax.training.donors import (
    LAYERS,
    MACROS,
    Copy,
    Donor,
    Layers,
    grouped,
    layer_names,
    numbers_of,
    read,
)
from xlingjax.training.run_record import labels_of, read_run_record, task_of_head, vocabulary_of

RANDOM = "random"
SLOT = "decoder/layers/cross_attention/"

# Fields that change what the same weights compute: of the embeddings, and of the layers.
_OF_EMBEDDINGS = ("embedding_norm", "embedding_scale", "position_offset", "norm_eps")
_OF_LAYERS = ("norm_order", "gelu")
_SIZES = ("dim", "heads", "ffn", "streams", "relative_buckets")


@dataclasses.dataclass(frozen=True)
class Initialisation:
    """Runs that give a new one its first weights; each a workdir or a folder checkpoints/STEP.
    None: random."""

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

    def __post_init__(self):
        given = {MACROS[part]: run for part, run in self.parts.items()}
        if self.run and given:
            others = ", ".join(f"{macro}={run}" for macro, run in given.items())
            raise UserError(
                f"INIT_FROM={self.run} gives all weights, and {others} give some; leave out either"
            )
        for part, macro in LAYERS.items():
            layers = getattr(self, f"{part}_layers")
            numbers_of(layers, macro)
            default = Initialisation.__dataclass_fields__[f"{part}_layers"].default
            if layers != default and part not in self.parts:
                raise UserError(
                    f"{macro}={layers} changes nothing without {MACROS[part]}; leave it out or set"
                    " both"
                )
        if self.cross_attention is not None and not self.decoder:
            raise UserError(
                f"INIT_CROSS_ATTENTION={self.cross_attention} changes nothing without INIT_DECODER;"
                " leave it out or set both"
            )

    @property
    def parts(self) -> dict[str, str]:
        """{"embeddings", "encoder", "decoder": its donor} of those that have one."""
        return {part: run for part in MACROS if (run := getattr(self, part))}


class Plan:
    """What is copied from where, found and checked before anything expensive."""

    def __init__(self, initialisation: Initialisation, config: ModelConfig, abstract: Any):
        """abstract: shapes of the new model's parameters. Raises UserError for a donor that does
        not fit."""
        self._config = config
        self._donors = {part: Donor.open(run) for part, run in initialisation.parts.items()}
        if "decoder" in self._donors and not config.decoder_layers:
            raise UserError(
                f"INIT_DECODER={initialisation.decoder}: model {config.name} has no decoder; leave"
                " it out, or set model.decoder_layers"
            )
        chosen = {
            "encoder": initialisation.encoder_layers,
            "decoder": initialisation.decoder_layers,
        }
        counts = {"encoder": config.layers, "decoder": config.decoder_layers}
        for part, donor in self._donors.items():
            self._require_alike(part, donor)
        self._layers = {
            side: self._donors[side].layers(chosen[side], side, counts[side])
            for side in LAYERS
            if side in self._donors
        }
        self._copies: dict[str, Copy | None] = {}
        for path, leaf in jax.tree_util.tree_flatten_with_path(abstract)[0]:
            name = path_name(path)
            found = None
            if not (name.startswith(SLOT) and initialisation.cross_attention is False):
                found = next(self._candidates(name), None)
            if found is None and name.startswith(SLOT) and initialisation.cross_attention:
                raise UserError(
                    f"INIT_CROSS_ATTENTION=True: INIT_DECODER={initialisation.decoder} has no"
                    " cross-attention; give a VECO run or an encoder-decoder, or leave it out"
                )
            self._copies[name] = found and self._copy(name, leaf.shape, *found)

    def _require_alike(self, part: str, donor: Donor) -> None:
        ours = self._config
        theirs = donor.config
        where = f"{MACROS[part]}={donor.run} does not fit the model"
        for field in _OF_EMBEDDINGS if part == "embeddings" else _OF_LAYERS + _OF_EMBEDDINGS:
            a, b = getattr(ours, field), getattr(theirs, field)
            if a != b:
                raise UserError(
                    f"{where}: {field} is {a} here and {b} there; set model.{field}={b}"
                )
        pieces = ours.vocab_size - ours.language_tokens
        if donor.pieces != pieces:
            raise UserError(
                f"{where}: embeddings/tokens/embedding has rows for {pieces} pieces here,"
                f" {donor.pieces} there (shapes {(ours.padded_vocab_size, ours.dim)} and"
                f" {donor.shapes['embeddings/tokens/embedding']}); set VOCABULARY={donor.run}"
            )

    def _candidates(self, name: str) -> Iterator[tuple[str, Donor, str]]:
        """(part of `Initialisation`, its donor, the donor's name of the parameter), best first."""
        shared = self._config.decoder_embeddings
        part, _, rest = name.partition("/")
        whose = {
            "embeddings": ("encoder", "decoder", "embeddings"),
            "decoder_embeddings": ("decoder", "embeddings"),
            "head": ("encoder", "decoder"),
            "decoder_head": ("decoder",),
            "decoder": ("decoder",),
        }.get(part, ("encoder",))
        of_both = (
            shared == "shared"
            or shared == "shared_tokens"
            and (part == "head" or rest.startswith("tokens/"))
        )
        for one in whose:
            if one not in self._donors or (
                one == "decoder" and not part.startswith("decoder") and not of_both
            ):
                continue
            donor, side = self._donors[one], one
            if one == "embeddings":
                side = "decoder" if part == "decoder_embeddings" else "encoder"
            if (source := donor.source(name, side)) is not None:
                yield one, donor, source

    def _copy(
        self, name: str, shape: tuple[int, ...], part: str, donor: Donor, source: str
    ) -> Copy:
        ours = self._config
        theirs = donor.config
        rest = donor.shapes[source]
        origin = donor.run
        rows = None
        languages = None
        if "/layers/" in name:
            stack, numbers = source.split("/")[0], self._layers[part]
            origin = f"{stack} {layer_names(numbers)} of {donor.run}"
            if (
                name.startswith(SLOT)
                and theirs.cross_attention_query == "input"
                and not theirs.decoder_layers
            ):
                origin += ", which asked by the input of their layer there"
            if (
                part == "decoder" and theirs.decoder_layers and stack == "encoder"
            ):  # tied: the last ones
                numbers = [theirs.layers - theirs.decoder_layers + i for i in numbers]
                origin = f"encoder {layer_names(numbers)} of {donor.run} (tied there)"
            rows = ((slice(None), numbers),)
        elif name.endswith("positions/embedding"):
            if rest[0] < shape[0] and rest[1] == shape[1]:
                raise UserError(
                    f"{MACROS[part]}={donor.run} does not fit the model: {name} has shape {shape},"
                    f" {source} there {rest}; set model.max_positions={rest[0]}"
                )
            if rest[0] > shape[0]:
                rows = ((slice(None), slice(shape[0])),)
                origin = f"the first {shape[0]} rows of {donor.run}"
        elif name.endswith("tokens/embedding") or name in ("head/bias", "decoder_head/bias"):
            rows = ((slice(donor.pieces), slice(donor.pieces)),)
            if ours.language_tokens and theirs.language_tokens:
                languages = tuple(range(donor.pieces, c.vocab_size) for c in (ours, theirs))
            elif ours.language_tokens:
                origin = f"{donor.run} (language tokens random)"
        elif name.endswith("languages/embedding"):
            rows, languages = (), (range(ours.num_languages), range(theirs.num_languages))
        if shape[int(rows is not None) :] != rest[int(rows is not None) :]:
            differ = [f for f in _SIZES if getattr(ours, f) != getattr(theirs, f)]
            remedy = [f"model.{f}={getattr(theirs, f)}" for f in differ] or [
                "the model of its run.json"
            ]
            raise UserError(
                f"{MACROS[part]}={donor.run} does not fit the model: {name} has shape {shape},"
                f" {source} there {rest}; set {', '.join(remedy)}"
            )
        return Copy(donor, source, rows, origin, languages)

    def load(
        self, params: Any, languages: Sequence[str], identity: Mapping[str, Any]
    ) -> tuple[Any, str, list[str]]:
        """(`params` with what is given, on their shardings; who gives, in words; a line per group
        of parameters).

        Several processes call it equally. languages: of the new run, index = id; identity: see
        `run_identity`. Raises UserError for a donor of another vocabulary or an unreadable
        checkpoint.
        """
        vocabulary = vocabulary_of(identity)
        for donor in self._donors.values():
            require_vocabulary(donor.checkpoint, donor.vocabulary, vocabulary)
        copies = {
            name: copy and copy.named(tuple(languages)) for name, copy in self._copies.items()
        }
        leaves, tree = jax.tree_util.tree_flatten_with_path(params)
        ours = {path_name(path): leaf for path, leaf in leaves}
        taken = {name: copy for name, copy in copies.items() if copy}
        given = read(taken, ours)

        def fill(ours, given):
            made = {}
            for name, copy in taken.items():
                value = given[copy.donor.run][copy.source]
                for to, of in copy.rows or ():
                    ours[name] = ours[name].at[_index(to)].set(value[_index(of)])
                made[name] = ours[name] if copy.rows is not None else value
            return made

        shardings = {name: ours[name].sharding for name in taken}
        made = jax.jit(fill, out_shardings=shardings)({name: ours[name] for name in taken}, given)
        origins = {name: copy.origin if copy else RANDOM for name, copy in copies.items()}
        if self._config.tied_self_attention:
            origins["decoder/layers/attention"] = "the encoder's (tied_self_attention)"
        named = ", ".join(
            f"{part} of {g.run} (checkpoint {g.checkpoint.name})"
            for part, g in self._donors.items()
        )
        params = jax.tree.unflatten(tree, [made.get(name, leaf) for name, leaf in ours.items()])
        return params, named, [*grouped(origins), *self._left(taken)]

    def _left(self, taken: dict[str, Copy]) -> Iterator[str]:
        """What of the donors of a side stands nowhere in the model."""
        for run in dict.fromkeys(
            donor.run for part, donor in self._donors.items() if part != "embeddings"
        ):
            used = {copy.source for copy in taken.values() if copy.donor.run == run}
            shapes = next(donor.shapes for donor in self._donors.values() if donor.run == run)
            lines = [*grouped({name: "" if name in used else "left" for name in shapes})]
            if left := [line.removesuffix(": left") for line in lines if line.endswith(": left")]:
                yield f"left behind of {run}: {', '.join(left)}"


def _index(rows: Any) -> Any:
    return rows if isinstance(rows, slice) else jax.numpy.array(rows)


def first_weights(
    init_from: Any, config: ModelConfig, abstract: Any, new: Sequence[str]
) -> Callable[[Any, Sequence[str], Mapping[str, Any]], tuple[Any, str, list[str]]] | None:
    """A function like `Plan.load` for what `init_from` names: a path or an `Initialisation`; None
    where it names nothing. Raises UserError for what can be refused before any text is read."""
    if isinstance(init_from, Initialisation):
        if init_from.parts:
            return Plan(init_from, config, abstract).load
        init_from = init_from.run
    if not init_from:
        return None

    def load(
        params: Any, languages: Sequence[str], identity: Mapping[str, Any]
    ) -> tuple[Any, str, list[str]]:
        if config.tells_languages():
            _require_languages(init_from, languages)
        for objective, data in identity["data"].items():
            if "labels" in data:
                require_labels(
                    f"INIT_FROM={init_from}", init_from, data["labels"], task_of_head(objective)
                )
        params, added = load_params(init_from, params, new, vocabulary_of(identity))
        origin = f"{init_from}"
        if added:
            origin += f", new and random: {', '.join(added)}"
        return params, origin, []

    return load


def _require_languages(run: str, languages: Sequence[str]) -> None:
    """Raise UserError where a whole run's language tokens, or rows of its language embedding, would
    become those of other languages."""
    there = read_run_record(run)["languages"]
    if list(languages) != there[: len(languages)]:
        raise UserError(
            f"INIT_FROM={run} has parameters of the languages {' '.join(there)}, and the data"
            f" {' '.join(languages)}, "
            f'numbered otherwise; set LANGUAGES="{" ".join(there)}"'
        )


def require_labels(name: str, run: Any, labels: Sequence[str], task: str | None = None) -> None:
    """Raise UserError where a run's head was trained on other labels than those to learn now, or on
    these in another order: its outputs would stand for the wrong ones. name: how the message names
    the run; task: whose head, of a
    model with several."""
    record = read_run_record(run)
    theirs = labels_of(record, task) if task or record["model"]["num_labels"] else []
    if not theirs or theirs == [*labels]:
        return
    before = _first_four(theirs)
    now = _first_four(labels)
    raise UserError(
        f"{name} has a head{f' of {task}' if task else ''} for the labels {before}, and those to"
        f" learn are {now}: start from the run that it was fine-tuned from"
    )


def _first_four(labels: Sequence[str]) -> str:
    shown = ", ".join(labels[:4])
    if len(labels) > 4:
        return shown + " ..."
    return shown
