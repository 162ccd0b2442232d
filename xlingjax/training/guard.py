"""Stops a run whose updates are skipped time after time, and keeps the batch that did it."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xlingjax.errors import UserError

# Steps whose outcome is not looked at yet. Reading a number that the device finished two steps ago
# does not stall it, and this bounds how far the host can run ahead.
IN_FLIGHT = 2


@dataclass
class Guard:
    """Follows the count of consecutive skipped steps, two steps behind the device."""

    workdir: Path
    limit: int
    say: Callable[[str], None]

    def __post_init__(self):
        self._pending: deque[tuple[int, str, Mapping[str, Any], Any]] = deque()

    def push(
        self,
        step: int,
        objective: str,
        rows: Mapping[str, Mapping[str, np.ndarray]],
        bad_steps: Any,
    ) -> None:
        """rows: {objective: its fields}. bad_steps: a scalar on the device, the skipped steps in a
        row up to this one. Raises UserError when an earlier step reached the limit."""
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
        if bad == 0:
            return
        where = f"step {step} ({objective})"
        why = "a loss or gradient that is not finite, or a norm above optimizer.skip_norm"
        self.say(f"{where}: update skipped for {why} ({bad} in a row)")
        if bad >= self.limit:
            raise UserError(
                f"{where}: {bad} updates in a row skipped for {why}; the batch is in"
                f" {self._save(step, rows)}; lower LEARNING_RATE or CLIP_NORM and start again (to"
                f" go further back, move the newest folders out of {self.workdir / 'checkpoints'})"
            )

    def _save(self, step: int, rows: Mapping[str, Mapping[str, np.ndarray]]) -> Path:
        """Writes this process's rows of the batch; of several objectives as OBJECTIVE.FIELD."""
        suffix = ""
        # Each process has its own rows, and the disk may be shared.
        if jax.process_count() > 1:
            suffix = f"-process-{jax.process_index()}"
        path = self.workdir / f"bad_batch-{step}{suffix}.npz"
        arrays = {}
        for objective, fields in rows.items():
            for field, values in fields.items():
                arrays[field if len(rows) == 1 else f"{objective}.{field}"] = values
        np.savez(path, **arrays)
        return path
