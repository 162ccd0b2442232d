"""A coefficient that changes with the step: XLM's `lambda_mlm "0:1,100000:0.1,300000:0"`."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from xlingjax.errors import UserError


@dataclass(frozen=True)
class Ramp:
    """A value that is `values[i]` at step `steps[i]`, linear between two of them and constant after
    the last."""

    steps: tuple[int, ...]
    values: tuple[float, ...]

    @classmethod
    def parse(cls, text: str | float) -> "Ramp":
        """Of "0:1,100000:0.1,300000:0", as XLM writes it, or of one number. Raises UserError for
        anything else."""
        try:
            points = (
                [("0", text)]
                if ":" not in str(text)
                else [point.split(":") for point in text.split(",")]
            )
            steps, values = zip(*((int(step), float(value)) for step, value in points), strict=True)
        except ValueError:
            steps, values = (), ()
        if (
            not steps
            or steps[0] != 0
            or any(a >= b for a, b in zip(steps, steps[1:], strict=False))
        ):
            raise UserError(
                f"ramp {text!r}: write a number, or STEP:VALUE with commas between, steps rising"
                " from 0, as in 0:1,100000:0.1,300000:0"
            )
        return cls(steps, values)

    def at(self, step: Any) -> Any:
        """float32: the value at a step, which may be traced."""
        return jnp.interp(
            step, jnp.array(self.steps, jnp.float32), jnp.array(self.values, jnp.float32)
        )

    def __rmul__(self, factor: float) -> "Ramp":
        return Ramp(self.steps, tuple(factor * value for value in self.values))
