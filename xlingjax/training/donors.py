"""Trained runs that give a new one its weights: what they have, under which names, and how it is
read."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig
from xlingjax.model.params import nested, path_name
from xlingjax.training.checkpoint import find_checkpoint, read_params, saved_params
from xlingjax.training.run_record import read_run_record

MACROS = {
    "embeddings": "INIT_EMBEDDINGS",
    "encoder": "INIT_ENCODER",
    "decoder": "INIT_DECODER",
}
LAYERS = {"encoder": "ENCODER_LAYERS_FROM", "decoder": "DECODER_LAYERS_FROM"}

Layers = str | int | Sequence[int]
Rows = tuple[tuple[Any, Any], ...]


def numbers_of(layers: Layers, macro: str) -> list[int] | None:
    """The numbers of layers, None for "first" and "last". Raises UserError."""
    if layers in ("first", "last"):
        return None
    if isinstance(layers, str):
        numbers = layers.replace(",", " ").split()
    elif isinstance(layers, list | tuple):
        numbers = list(layers)
    else:
        numbers = [layers]
    if not numbers or not all(str(number).isdigit() for number in numbers):
        raise UserError(
            f"{macro}={layers}: give first, last, or numbers of layers from 0 with commas between"
        )
    return [int(number) for number in numbers]


@dataclasses.dataclass(frozen=True)
class Donor:
    """A trained run, as its files describe it."""

    run: str
    checkpoint: Path
    shapes: dict[str, tuple[int, ...]]
    vocabulary: Any
    config: ModelConfig
    languages: tuple[str, ...]

    @classmethod
    def open(cls, run: str) -> "Donor":
        """Reads no parameter. Raises UserError: no such run, no readable checkpoint."""
        record, checkpoint = read_run_record(run), find_checkpoint(run)
        config, languages = ModelConfig(**record["model"]), tuple(record["languages"])
        return cls(str(run), checkpoint, *saved_params(checkpoint), config, languages)

    @property
    def pieces(self) -> int:
        return self.config.vocab_size - self.config.language_tokens

    def source(self, name: str, side: str) -> str | None:
        """What this run calls the parameter `name` of a new model when its encoder or decoder gives
        it; None where it has none."""
        part, _, rest = name.partition("/")
        kind = part.removeprefix("decoder_")
        of_decoder = side == "decoder" and self.config.decoder_layers
        tied = self.config.tied_self_attention and rest.startswith("layers/attention/")
        if part == "decoder":
            names = (
                [f"decoder/{rest}"] if of_decoder and not tied else [f"encoder/{rest}"]
            )
        else:
            names = [f"decoder_{kind}/{rest}"] * bool(of_decoder) + [f"{kind}/{rest}"]
        return next((name for name in names if name in self.shapes), None)

    def layers(self, chosen: Layers, side: str, count: int) -> list[int]:
        """Its `count` layers that the option chooses, numbered within its encoder or decoder.
        Raises UserError."""
        macro, c = LAYERS[side], self.config
        depth = c.decoder_layers if side == "decoder" and c.decoder_layers else c.layers
        if (numbers := numbers_of(chosen, macro)) is None:
            if depth < count:
                raise UserError(
                    f"{MACROS[side]}={self.run} has {depth} layers, the new {side} {count}: say"
                    " which layer each is,"
                    f" {macro}={','.join(str(i * depth // count) for i in range(count))}"
                )
            return (
                list(range(count))
                if chosen == "first"
                else list(range(depth - count, depth))
            )
        if len(numbers) != count or max(numbers) >= depth:
            raise UserError(
                f"{macro}={','.join(map(str, numbers))}: the new {side} has {count} layers,"
                f" {self.run} {depth}; give {count} numbers from 0 to {depth - 1}"
            )
        return numbers


@dataclasses.dataclass(frozen=True)
class Copy:
    """A parameter of the new model that a donor's fills."""

    donor: Donor
    source: str
    rows: Rows | None
    """(ours, theirs) of axis 0, slices or lists; None: all."""
    origin: str
    """Where it comes from, for the log."""
    languages: tuple[range, range] | None = None
    """Rows of the languages, ours and theirs; whose they are is found by the codes."""

    def named(self, languages: Sequence[str]) -> "Copy | None":
        """With the rows of the run's languages that the donor has too; None where nothing is left
        to copy."""
        if self.languages is None:
            return self
        ours, theirs = (
            dict(zip(codes, rows, strict=False))
            for codes, rows in zip(
                (languages, self.donor.languages), self.languages, strict=True
            )
        )
        known = [code for code in languages if code in ours and code in theirs]
        rows, new = (
            self.rows or (),
            ", ".join(code for code in languages if code not in known),
        )
        if not rows and not known:
            return None
        origin = f"{self.origin} ({', '.join(known)}" + (
            f"; random: {new})" if new else ")"
        )
        if self.rows:
            # Behind the pieces of a token table or a bias.
            but = f", but random: {new})" if new else ")"
            origin = f"{self.origin} (language tokens too{but}"
        of_known = tuple([rows[code] for code in known] for rows in (ours, theirs))
        return dataclasses.replace(
            self, rows=(*rows, of_known) if known else rows, origin=origin
        )


def layer_names(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"layer {numbers[0]}"
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"layers {numbers[0]}..{numbers[-1]}"
    return f"layers {', '.join(map(str, numbers))}"


def read(
    taken: dict[str, Copy], ours: dict[str, jax.Array]
) -> dict[str, dict[str, jax.Array]]:
    """{run: {its name of a parameter: array}}, each lying as what it fills does where it divides as
    that does."""
    wanted: dict[str, dict[str, Any]] = {}
    for name, copy in taken.items():
        shape, sharding = copy.donor.shapes[copy.source], ours[name].sharding
        try:
            sharding.shard_shape(shape)
        except ValueError:
            sharding = NamedSharding(sharding.mesh, PartitionSpec())
        one = jax.ShapeDtypeStruct(shape, ours[name].dtype, sharding=sharding)
        wanted.setdefault(copy.donor.run, {})[copy.source] = one
    read = {}
    for run, leaves in wanted.items():
        checkpoint = next(
            copy.donor.checkpoint for copy in taken.values() if copy.donor.run == run
        )
        values = read_params(checkpoint, nested(leaves))
        by_path, _ = jax.tree_util.tree_flatten_with_path(values)
        read[run] = {path_name(path): leaf for path, leaf in by_path}
    return read


def grouped(origins: dict[str, str]) -> Iterator[str]:
    """Lines "GROUP: ORIGIN" of the largest groups of parameters of one origin; what stands together
    has one line."""

    def origins_of(tree: Any) -> set[str]:
        if isinstance(tree, str):
            return {tree}
        return set().union(*map(origins_of, tree.values()))

    def lines(tree: dict[str, Any], above: str) -> Iterator[str]:
        whole: dict[str, list[str]] = {}
        for name, below in tree.items():
            origin = origins_of(below)
            if len(origin) > 1:
                yield from lines(below, f"{above}{name}/")
            else:
                whole.setdefault(*origin, []).append(name)
        for origin, names in whole.items():
            group = ", ".join(names)
            yield (
                f"{above}{group}: {origin}"
                if len(names) == 1 or not above
                else f"{above}{{{group}}}: {origin}"
            )

    yield from lines(nested(origins), "")
