"""How a model makes the vector of a sentence: of which text, from which layer, pooled how. run.json
keeps it as "sentences"; a model of which nobody said so has none, and each verb its own way."""

import dataclasses
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.errors import UserError
from xlingjax.training.run_record import (
    DENSE_FILE,
    model_of,
    read_run_record,
    run_and_checkpoint,
)

LONGEST = 256  # tokens of a sentence, where nothing says otherwise
ACTIVATIONS = {"identity": lambda x: x, "tanh": jnp.tanh, "relu": jax.nn.relu}
Layers = tuple[tuple[np.ndarray, np.ndarray], ...]
"""Dense layers between pooling and length: of each the kernel [D, E] and the bias [E], float32."""


@dataclasses.dataclass(frozen=True)
class Sentences:
    layer: int | None = None  # 0: the embeddings; None: the last
    pooling: str | None = "mean"  # see `pooling_weights`; None: not computed here (`unread`)
    prefix: str = ""  # stands before every sentence, as text
    normalize: bool = False  # to length 1
    max_length: int = LONGEST  # tokens of a sentence, with prefix and separators; more are cut
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)  # {name: prefix}
    # Of the dense layers that pooled states go through (`Dense`), in order.
    dense: tuple[str, ...] = ()
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
        if self.dense:
            parts.append(f"through dense layers ({', '.join(self.dense)})")
        if self.prefix:
            parts.append(f"prefix {self.prefix!r}")
        if self.normalize:
            parts.append("of length 1")
        if self.max_length != LONGEST:
            parts.append(f"at most {self.max_length} tokens")
        return ", ".join(parts)


# By identity, since objectives hold it and must have a hash.
@dataclasses.dataclass(frozen=True, eq=False)
class Dense:
    """What pooled states go through; called on [..., D]."""

    activations: tuple[str, ...]
    layers: Layers

    def __call__(self, x: Any) -> jax.Array:
        for activation, (kernel_DE, bias_E) in zip(self.activations, self.layers, strict=True):
            product = jnp.matmul(x, kernel_DE, precision=jax.lax.Precision.HIGHEST)
            x = ACTIVATIONS[activation](product + bias_E)
        return x

    def content(self) -> bytes:
        """Of the run's `DENSE_FILE`."""
        file = io.BytesIO()
        np.savez(file, *(array for layer in self.layers for array in layer))
        return file.getvalue()


def dense_of(folder: Path, own: Sentences | None) -> Dense | None:
    """What lies beside run.json. Raises UserError where it cannot be read."""
    if own is None or not own.dense:
        return None
    try:
        with np.load(folder / DENSE_FILE) as found:
            arrays = [found[name] for name in found.files]
        return Dense(own.dense, tuple(zip(arrays[::2], arrays[1::2], strict=True)))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{folder / DENSE_FILE} cannot be read ({error}); import the model again"
        ) from None


def width_of(run: str | Path) -> int:
    """D of a run's sentence vectors, by its files."""
    own = sentences_of(read_run_record(run))
    dense = dense_of(run_and_checkpoint(run)[0], own)
    return len(dense.layers[-1][1]) if dense else model_of(run).dim


def sentences_of(record: Mapping[str, Any]) -> Sentences | None:
    """A run's, from its run.json: of what was imported, or where it began; None: not told."""
    settings = kept_of(record, "sentences")
    if not settings:
        return None
    return Sentences(**{**settings, "dense": tuple(settings.get("dense", ()))})


def kept_of(record: Mapping[str, Any], name: str) -> Any:
    # A run that began from an imported one has it in the configuration of its start.
    return record.get(name) or record.get("config", {}).get(name)
