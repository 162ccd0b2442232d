"""How a model makes the vector of a sentence: of which text, from which layer, pooled how. run.json
keeps it as "sentences"; a model of which nobody said so has none, and each verb its own way."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from xlingjax.errors import UserError

LONGEST = 256  # tokens of a sentence, where nothing says otherwise


@dataclasses.dataclass(frozen=True)
class Sentences:
    layer: int | None = None  # 0: the embeddings; None: the last
    pooling: str | None = "mean"  # see `pooling_weights`; None: not computed here (`unread`)
    prefix: str = ""  # stands before every sentence, as text
    normalize: bool = False  # to length 1
    max_length: int = LONGEST  # tokens of a sentence, with prefix and separators; more are cut
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)  # {name: prefix}
    unread: str = ""

    def of(
        self, layer: int | None = None, pooling: str | None = None, prefix: str | None = None
    ) -> "Sentences":
        """The same with what is given instead. Raises UserError where no pooling is left."""
        if not (pooling or self.pooling):
            raise UserError(
                f"its own sentence vectors are not computed here ({self.unread}); give --pooling"
            )
        # Layer 0 and the prefix "" are choices too, so None alone stands for nothing given.
        if layer is None:
            layer = self.layer
        if prefix is None:
            prefix = self.prefix
        return dataclasses.replace(
            self, layer=layer, pooling=pooling or self.pooling, prefix=prefix
        )

    def said(self) -> str:
        """All but the layer, for people."""
        parts = [f"{self.pooling} of the tokens"]
        if self.prefix:
            parts.append(f"prefix {self.prefix!r}")
        if self.normalize:
            parts.append("of length 1")
        if self.max_length != LONGEST:
            parts.append(f"at most {self.max_length} tokens")
        return ", ".join(parts)


def sentences_of(record: Mapping[str, Any]) -> Sentences | None:
    """A run's, from its run.json: of what was imported, or where it began; None: not told."""
    # A run that began from an imported one has its way in the configuration of its start.
    settings = record.get("sentences") or record.get("config", {}).get("sentences")
    if not settings:
        return None
    return Sentences(**settings)
