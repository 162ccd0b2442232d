"""Which trained runs give a new one its first weights, as a user says it."""

import dataclasses

from xlingjax.errors import UserError
from xlingjax.training.donors import LAYERS, MACROS, Layers, numbers_of


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
        parts = {}
        for part in MACROS:
            run = getattr(self, part)
            if run:
                parts[part] = run
        return parts
