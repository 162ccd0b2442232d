"""The compiled training steps of a run."""

from typing import Any

import jax

from xlingjax.training.feed import Feed, Turn
from xlingjax.training.optimizer import Optimizer, OptimizerConfig
from xlingjax.training.progress import Progress
from xlingjax.training.stages import latest, starts
from xlingjax.training.step import TrainState, make_train_step


class Programs:
    """Compiles a step when it is first needed: one for each set of objectives with their factors,
    each set of parameters that is trained, and each length of rows."""

    def __init__(
        self,
        feed: Feed,
        optimizer: Optimizer,
        config: OptimizerConfig,
        shardings: TrainState,
        progress: Progress,
    ):
        """feed: open; config: the optimizer's; progress: told when a step is compiled."""
        self._progress = progress
        self._frozen_from = starts([config.frozen])
        # The same in every step.
        self._arguments = {
            "config": config,
            "shardings": shardings,
            "model": feed.model,
            "languages": len(feed.languages),
            "optimizer": optimizer,
            "microbatches": feed.microbatches,
        }
        self._compiled: dict[tuple, Any] = {}

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
        shapes = [array.shape for array in jax.tree.leaves(batch)]
        program = (*turn.factors.items(), stage, *shapes)
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
        with self._progress.compiling(turn.label):
            train_step = make_train_step(
                objective=turn.objective,
                stage=stage,
                **self._arguments,
            )
            # Ahead of the call, so that compiling is timed by itself and can be announced.
            return train_step.lower(state, batch, key).compile()
