"""How a model makes the vector of a sentence: of which text, from which layer, pooled how. run.json
keeps it as "sentences"; a model of which nobody said so has none, and each verb its own way."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from xlingjax.errors import UserError

LONGEST = 256
"""Tokens of a sentence, where nothing says otherwise."""


@dataclasses.dataclass(frozen=True)
class Sentences:
    layer: int | None = None
    """0: the embeddings; None: the last."""
    pooling: str | None = "mean"
    """See `pooling_weights`; None: it is not computed here, as `unread` says."""
    prefix: str = ""
    """Stands before every sentence, as text."""
    normalize: bool = False
    """To length 1."""
    max_length: int = LONGEST
    """Tokens of a sentence with its prefix, separators among them; what is longer is cut."""
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """{name: prefix} of the released model, for other texts."""
    unread: str = ""

    def of(
        self,
        layer: int | None = None,
        pooling: str | None = None,
        prefix: str | None = None,
    ) -> "Sentences":
        """The same with what is given instead. Raises UserError where no pooling is left."""
        if not (pooling or self.pooling):
            raise UserError(
                f"its own sentence vectors are not computed here ({self.unread}); give --pooling"
            )
        return dataclasses.replace(
            self,
            layer=self.layer if layer is None else layer,
            pooling=pooling or self.pooling,
            prefix=self.prefix if prefix is None else prefix,
        )

    def said(self) -> str:
        """All but the layer, for people."""
        parts = [f"{self.pooling} of the tokens"]
        parts += [f"prefix {self.prefix!r}"] if self.prefix else []
        parts += ["of length 1"] if self.normalize else []
        parts += (
            [f"at most {self.max_length} tokens"] if self.max_length != LONGEST else []
        )
        return ", ".join(parts)


def sentences_of(record: Mapping[str, Any]) -> Sentences | None:
    """Those of a run, from its run.json: what was imported, or where it began; None: it does not
    tell."""
    told = record.get("sentences") or record.get("config", {}).get("sentences")
    return Sentences(**told) if told else None
