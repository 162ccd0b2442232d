"""The compiled training steps of a run."""

import time
from collections.abc import Callable
from typing import Any

import jax

from xlingjax.training.cost import Stopwatch
from xlingjax.training.feed import Turn
from xlingjax.training.guard import Guard
from xlingjax.training.optimizer import OptimizerConfig
from xlingjax.training.stages import latest, starts
from xlingjax.training.step import TrainState, make_train_step


class Programs:
    """Compiles a step when it is first needed: one for each set of objectives with their factors,
    and each set of parameters that is trained."""

    compile_seconds: dict[str, float]
    """By the label of the turn."""

    def __init__(
        self,
        guard: Guard,
        clock: Stopwatch,
        say: Callable[[str], None],
        config: OptimizerConfig,
        **arguments: Any,
    ):
        """arguments: the others of `make_train_step` that are the same in every step."""
        self._guard = guard
        self._clock = clock
        self._say = say
        self._frozen_from = starts([config.frozen])
        self._arguments = {"config": config, **arguments}
        self._compiled: dict[tuple, Any] = {}
        self.compile_seconds = {}

    def step(
        self,
        turn: Turn,
        step: int,
        state: TrainState,
        batch: dict[str, Any],
        key: jax.Array,
    ) -> tuple[TrainState, dict[str, Any]]:
        """(next state, sums), see `step.train_step`. step: of the run, the number of this one."""
        # One program serves all steps that train the same parameters.
        stage = latest(self._frozen_from, step)
        # The factors are constants of the program, so other factors are another one.
        program = (*turn.factors.items(), stage)
        if program not in self._compiled:
            self._compiled[program] = self._compile(
                turn,
                stage,
                state,
                batch,
                key,
            )
        return self._compiled[program](state, batch, key)

    def _compile(self, turn, stage, state, batch, key) -> Any:
        # The steps on their way end before the clock stops: they are training.
        self._guard.drain()
        started = time.perf_counter()
        with self._clock.paused():
            train_step = make_train_step(
                objective=turn.objective,
                stage=stage,
                **self._arguments,
            )
            # Ahead of the call, so that compiling is timed by itself and can be announced.
            compiled = train_step.lower(state, batch, key).compile()
        seconds = time.perf_counter() - started
        self.compile_seconds[turn.label] = seconds
        self._say(f"compiled the {turn.label} step in {seconds:.1f} s")
        return compiled
