"""Stops a run whose updates are skipped time after time, and keeps the batch that did it; times the
steps meanwhile."""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xlingjax.errors import UserError

# Steps whose outcome is not looked at yet. Reading a number that the device finished two steps ago
# does not stall it, and this bounds how far the host can run ahead.
IN_FLIGHT = 2


class Guard:
    """Follows the count of consecutive skipped steps, two steps behind the device.

    seconds_per_step(): {objective: mean over its steps so far}, each from the end of the step
    before to its own, so that a step for whose batch the device waited counts the waiting. A step
    after a pause is left out.
    """

    def __init__(self, workdir: Path, limit: int, say: Callable[[str], None]):
        if limit < 1:
            raise UserError(
                f"train.max_bad_steps={limit} must be at least 1 (1 stops at the first skipped"
                " step)"
            )
        self._workdir, self._limit, self._say = workdir, limit, say
        self._seconds: Counter[str] = Counter()
        self._timed: Counter[str] = Counter()
        self._ended: float | None = None
        self._pending: deque[
            tuple[int, str, Mapping[str, Any], jax.Array, jax.Array, float | None]
        ] = deque()

    def push(
        self,
        step: int,
        objective: str,
        rows: Mapping[str, Mapping[str, np.ndarray]],
        bad_steps: Any,
        finite: Any,
    ) -> None:
        """rows: {objective: its fields}. Two device scalars: `bad_steps`, consecutive skipped steps
        up to this one, and `finite`, whether its loss and gradient were. Raises UserError when an
        earlier step reached the limit.
        """
        # Where the call itself computes, as it does on CPU, the step has ended by now.
        ended = time.perf_counter() if getattr(bad_steps, "is_ready", lambda: False)() else None
        self._pending.append((step, objective, rows, bad_steps, finite, ended))
        if len(self._pending) > IN_FLIGHT:
            self._look()

    def drain(self) -> None:
        """Wait for every step pushed so far."""
        while self._pending:
            self._look()
        self._ended = (
            None  # whatever comes now, compiling or evaluating, is no part of the next step
        )

    def seconds_per_step(self) -> dict[str, float]:
        return {
            objective: self._seconds[objective] / steps for objective, steps in self._timed.items()
        }

    def _look(self) -> None:
        step, objective, rows, bad_steps, finite, ended = self._pending.popleft()
        bad = int(bad_steps)
        before, self._ended = self._ended, ended or time.perf_counter()
        if before is not None:
            self._seconds[objective] += self._ended - before
            self._timed[objective] += 1
        if bad:
            why = (
                "a gradient norm above optimizer.skip_norm"
                if finite
                else "a loss or gradient that is not finite"
            )
            self._say(f"step {step} ({objective}): update skipped for {why} ({bad} in a row)")
        if bad >= self._limit:
            suffix = f"-process-{jax.process_index()}" if jax.process_count() > 1 else ""
            path = self._workdir / f"bad_batch-{step}{suffix}.npz"
            several = len(rows) > 1
            fields = (
                (f"{name}.{field}" if several else field, of[field])
                for name, of in rows.items()
                for field in of
            )
            np.savez(path, **dict(fields))
            remedy = "lower LEARNING_RATE or CLIP_NORM" + (
                " or raise optimizer.skip_norm" if finite else ""
            )
            raise UserError(
                f"step {step} ({objective}): {bad} updates in a row skipped, this one for {why};"
                f" the batch is in {path}; {remedy} and start again (to go further back, move the"
                f" newest folders out of {self._workdir / 'checkpoints'})"
            )
