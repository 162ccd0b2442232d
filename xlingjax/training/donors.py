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
from xlingjax.model.params import flattened, nested
from xlingjax.runtime.numerals import is_whole
from xlingjax.training.checkpoint_params import read_params, require_languages, saved_params
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.training.run_record import languages_of, model_of, read_run_record, vocabulary_of

MACROS = {"embeddings": "INIT_EMBEDDINGS", "encoder": "INIT_ENCODER", "decoder": "INIT_DECODER"}
LAYERS = {"encoder": "ENCODER_LAYERS_FROM", "decoder": "DECODER_LAYERS_FROM"}

Layers = str | int | Sequence[int]
Rows = tuple[tuple[Any, Any], ...]


def numbers_of(layers: Layers, macro: str) -> list[int] | None:
    """The numbers of layers, None for "first" and "last". Raises UserError."""
    if layers in ("first", "last"):
        return None
    if isinstance(layers, str):
        # gin gives a number, a list or a text, by what was typed.
        numbers = layers.replace(",", " ").split()
    elif isinstance(layers, list | tuple):
        numbers = list(layers)
    else:
        numbers = [layers]
    if not numbers or not all(map(is_whole, map(str, numbers))):
        raise UserError(
            f"{macro}={layers}: give first, last, or numbers of layers from 0 with commas between"
        )
    return list(map(int, numbers))


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
        # First: it says best that a folder is no run.
        record = read_run_record(run)
        checkpoint = find_checkpoint(run)
        shapes, identity = saved_params(checkpoint)
        vocabulary = vocabulary_of(identity)
        config = model_of(run)
        languages = tuple(record["languages"])
        require_languages(checkpoint, languages_of(identity), languages)
        return cls(str(run), checkpoint, shapes, vocabulary, config, languages)

    @property
    def pieces(self) -> int:
        return self.config.vocab_size - self.config.language_tokens

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
            names = [f"encoder/{rest}"]
            if of_decoder and not tied:
                names = [f"decoder/{rest}"]
        elif of_decoder:
            # Before those that its sides share.
            names.insert(0, f"decoder_{kind}/{rest}")
        for known in names:
            if known in self.shapes:
                return known
        return None

    def layers(self, chosen: Layers, side: str, count: int) -> list[int]:
        """Its `count` layers that the option chooses, numbered within its encoder or decoder.
        Raises UserError."""
        macro = LAYERS[side]
        depth = self.config.layers
        if side == "decoder" and self.config.decoder_layers:
            depth = self.config.decoder_layers
        numbers = numbers_of(chosen, macro)
        if numbers is None:
            if depth < count:
                # For the message: layers spread evenly are a likely choice.
                spread = [str(i * depth // count) for i in range(count)]
                raise UserError(
                    f"{MACROS[side]}={self.run} has {depth} layers, the new {side} {count}: say"
                    f" which layer each is, {macro}={','.join(spread)}"
                )
            if chosen == "first":
                return list(range(count))
            return list(range(depth - count, depth))
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
        our_rows, their_rows = self.languages
        # Either may have fewer rows than languages.
        # By code, since the same language may have another number in either run.
        ours = dict(zip(languages, our_rows, strict=False))
        theirs = dict(zip(self.donor.languages, their_rows, strict=False))
        known = []
        new = []
        for code in languages:
            if code in ours and code in theirs:
                known.append(code)
            else:
                new.append(code)
        rows = self.rows or ()
        if not rows and not known:
            return None
        said = ", ".join(known)
        random = f"; random: {', '.join(new)}"
        if self.rows:
            # Behind the pieces of a token table or a bias.
            said = "language tokens too"
            random = f", but random: {', '.join(new)}"
        if new:
            said += random
        if known:
            of_known = ([ours[code] for code in known], [theirs[code] for code in known])
            rows = (*rows, of_known)
        return dataclasses.replace(self, rows=rows, origin=f"{self.origin} ({said})")


def layer_names(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"layer {numbers[0]}"
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"layers {numbers[0]}..{numbers[-1]}"
    return f"layers {', '.join(map(str, numbers))}"


def read(taken: dict[str, Copy], ours: dict[str, jax.Array]) -> dict[str, dict[str, jax.Array]]:
    """{run: {its name of a parameter: array}}, each lying as what it fills does where it divides as
    that does."""
    wanted: dict[str, dict[str, Any]] = {}
    checkpoints = {}
    for name, copy in taken.items():
        shape = copy.donor.shapes[copy.source]
        sharding = ours[name].sharding
        try:
            sharding.shard_shape(shape)
        except ValueError:
            # The donor's number of rows may not divide; whole on each device it is only for now.
            sharding = NamedSharding(sharding.mesh, PartitionSpec())
        one = jax.ShapeDtypeStruct(shape, ours[name].dtype, sharding=sharding)
        wanted.setdefault(copy.donor.run, {})[copy.source] = one
        # Found once, when the donor was opened: a run that trains on may have a newer one by now.
        checkpoints[copy.donor.run] = copy.donor.checkpoint
    read = {}
    for run, leaves in wanted.items():
        # Each run once, whatever it gives: reading is what takes long.
        read[run] = flattened(read_params(checkpoints[run], nested(leaves)))
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
            if len(names) > 1 and above:
                group = f"{{{group}}}"
            yield f"{above}{group}: {origin}"

    yield from lines(nested(origins), "")
