"""Stops a run whose updates are skipped time after time, and keeps the batch that did it; times the
steps meanwhile."""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

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
        self._workdir = workdir
        self._limit = limit
        self._say = say
        self._seconds: Counter[str] = Counter()
        self._timed: Counter[str] = Counter()
        self._ended: float | None = None
        self._pending: deque[_Step] = deque()

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
        ended = None
        if getattr(bad_steps, "is_ready", lambda: False)():
            ended = time.perf_counter()
        self._pending.append(_Step(step, objective, rows, bad_steps, finite, ended))
        # Only here does the host wait, for a step that is behind the ones on their way.
        if len(self._pending) > IN_FLIGHT:
            self._look()

    def drain(self) -> None:
        """Wait for every step pushed so far."""
        while self._pending:
            self._look()
        # Whatever comes now, compiling or evaluating, is no part of the next step.
        self._ended = None

    def seconds_per_step(self) -> dict[str, float]:
        seconds = {}
        for objective, steps in self._timed.items():
            seconds[objective] = self._seconds[objective] / steps
        return seconds

    def _look(self) -> None:
        pending = self._pending.popleft()
        # Here the host waits, if the device has not come so far.
        bad = int(pending.bad_steps)
        self._time(pending.objective, pending.ended or time.perf_counter())
        if bad == 0:
            return
        where = f"step {pending.step} ({pending.objective})"
        why = "a loss or gradient that is not finite"
        remedy = "lower LEARNING_RATE or CLIP_NORM"
        if pending.finite:
            why = "a gradient norm above optimizer.skip_norm"
            remedy += " or raise optimizer.skip_norm"
        self._say(f"{where}: update skipped for {why} ({bad} in a row)")
        # Counted on the device, in a row: one good step begins the count anew.
        if bad >= self._limit:
            path = self._save(pending)
            raise UserError(
                f"{where}: {bad} updates in a row skipped, this one for {why};"
                f" the batch is in {path}; {remedy} and start again (to go further back, move the"
                f" newest folders out of {self._workdir / 'checkpoints'})"
            )

    def _time(self, objective: str, ended: float) -> None:
        # The first step after a pause would count the pause.
        if self._ended is not None:
            self._seconds[objective] += ended - self._ended
            self._timed[objective] += 1
        self._ended = ended

    def _save(self, pending: "_Step") -> Path:
        """Writes this process's rows of the batch; of several objectives as OBJECTIVE.FIELD."""
        suffix = ""
        # Each process has its own rows, and the disk may be shared.
        if jax.process_count() > 1:
            suffix = f"-process-{jax.process_index()}"
        path = self._workdir / f"bad_batch-{pending.step}{suffix}.npz"
        arrays = {}
        for objective, fields in pending.rows.items():
            for field, values in fields.items():
                name = field
                if len(pending.rows) > 1:
                    name = f"{objective}.{field}"
                arrays[name] = values
        np.savez(path, **arrays)
        return path


class _Step(NamedTuple):
    """A step whose outcome is not looked at yet."""

    step: int
    objective: str
    rows: Mapping[str, Mapping[str, np.ndarray]]
    bad_steps: Any
    finite: Any
    ended: float | None
    """When, if it had ended as it was pushed."""
