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
        points = str(text) if ":" in str(text) else f"0:{text}"
        try:
            pairs = [point.split(":") for point in points.split(",")]
            ramp = cls(tuple(int(a) for a, _ in pairs), tuple(float(b) for _, b in pairs))
        except ValueError:
            ramp = cls((), ())
        # `interp` takes rising steps for granted, and gives anything for others.
        if ramp.steps[:1] != (0,) or [*ramp.steps] != sorted({*ramp.steps}):
            raise UserError(
                f"ramp {text!r}: write a number, or STEP:VALUE with commas between, steps rising"
                " from 0, as in 0:1,100000:0.1,300000:0"
            )
        return ramp

    @classmethod
    def coefficient(cls, text: str | float) -> "float | Ramp":
        """A number where it does not change: a ramp would be looked up at every step."""
        ramp = cls.parse(text)
        return ramp if len(ramp.steps) > 1 else ramp.values[0]

    def at(self, step: Any) -> Any:
        """float32: the value at a step, which may be traced."""
        steps = jnp.array(self.steps, jnp.float32)
        values = jnp.array(self.values, jnp.float32)
        return jnp.interp(step, steps, values)

    def __rmul__(self, factor: float) -> "Ramp":
        # So that factor * coefficient is the same for a number and a ramp.
        return Ramp(self.steps, tuple(factor * value for value in self.values))
