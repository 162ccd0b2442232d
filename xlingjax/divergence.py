"""Stops a run whose updates stay non-finite, and keeps the batch that did it."""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xlingjax.errors import UserError

# Steps whose outcome is not looked at yet. Reading a number that the device finished two steps ago does not stall it,
# and this bounds how far the host can run ahead.
IN_FLIGHT = 2


class Guard:
    """Follows the count of consecutive skipped steps, two steps behind the device."""

    def __init__(self, workdir: Path, limit: int, say: Callable[[str], None]):
        self._workdir, self._limit, self._say = workdir, limit, say
        self._pending: deque[tuple[int, str, dict[str, np.ndarray], jax.Array]] = deque()

    def push(self, step: int, objective: str, rows: dict[str, np.ndarray], bad_steps: Any) -> None:
        """`bad_steps`: device scalar, consecutive skipped steps up to this one. Raises UserError when an earlier step
        reached the limit."""
        self._pending.append((step, objective, rows, bad_steps))
        if len(self._pending) > IN_FLIGHT:
            self._look()

    def drain(self) -> None:
        """Wait for every step pushed so far."""
        while self._pending:
            self._look()

    def _look(self) -> None:
        step, objective, rows, bad_steps = self._pending.popleft()
        bad = int(bad_steps)
        if bad:
            self._say(f"step {step} ({objective}): loss or gradient not finite, update skipped ({bad} in a row)")
        if bad >= self._limit:
            suffix = f"-process-{jax.process_index()}" if jax.process_count() > 1 else ""
            path = self._workdir / f"bad_batch-{step}{suffix}.npz"
            np.savez(path, **rows)
            raise UserError(
                f"step {step} ({objective}): {bad} updates in a row skipped because loss or gradient was not finite; "
                f"the batch is in {path}; lower learning_rate or clip_norm, or resume from an earlier checkpoint"
            )
