"""The compiled programs of a run: its first state and its steps."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import jax

from xlingjax.training.feed import Feed, Turn
from xlingjax.training.optimizer import Optimizer, OptimizerConfig
from xlingjax.training.stages import latest, starts
from xlingjax.training.step import TrainState, lower_state, make_train_step

THREADS = 2
"""The first state and the first step are compiled beside each other; the rest come behind them."""
AHEAD = 100
"""Steps whose programs are asked for before the first one: a period of most schedules."""


class Programs:
    """Compiles a step for each set of objectives with their factors, each set of parameters that is
    trained, and each length of rows: in threads, while the text is opened, where the shapes of the
    batches are known by then, else when it is first needed."""

    def __init__(
        self,
        feed: Feed,
        optimizer: Optimizer,
        config: OptimizerConfig,
        abstract: TrainState,
        key: jax.Array,
    ):
        """config: the optimizer's; abstract: the state, see `step.abstract_state`; key: the run's
        random key."""
        self._feed = feed
        self._frozen_from = starts([config.frozen])
        self._abstract = abstract
        self._key = key
        # The same in every step.
        self._arguments = {
            "config": config,
            "shardings": jax.tree.map(lambda x: x.sharding, abstract),
            "model": feed.model,
            "optimizer": optimizer,
            "microbatches": feed.microbatches,
        }
        threads = THREADS
        if jax.process_count() > 1:
            # All processes compile in one order.
            threads = 1
        self._threads = ThreadPoolExecutor(threads)
        self._state: Future | None = None
        self._started: dict[tuple, Future] = {}
        self._to_come: dict[tuple, tuple] = {}
        self._compiled: dict[tuple, Any] = {}

    def begin(self, step: int, steps: int, seed: int, schedule: str, new: bool) -> None:
        """Starts to compile what the run from `step` to `steps` needs first. To be called before
        the text is open. new: it needs a first state, too."""
        if step >= steps:
            return
        if new:
            self._state = self._in_thread(self._lowered_state())
        languages = self._feed.languages_before_open()
        if languages is None:
            return
        for one in range(step, min(step + AHEAD, steps)):
            turn = self._feed.turn(one, seed, schedule)
            batch = self._feed.abstract_batch(turn)
            if batch is not None:
                arguments = (turn, one, languages, batch)
                self._to_come.setdefault(self._name(*arguments), arguments)
        self._start_next()

    def random_state(self, seed: int) -> TrainState:
        """A new state, each part made where it lies; the same numbers on every mesh."""
        started = self._state or self._in_thread(self._lowered_state())
        return started.result()(jax.random.key(seed))

    def step(
        self,
        turn: Turn,
        step: int,
        state: TrainState,
        batch: dict[str, Any],
        compiling: Callable[[str], AbstractContextManager],
    ) -> tuple[TrainState, dict[str, Any]]:
        """(next state, sums), see `step.train_step`. step: of the run, the number of this one.
        compiling: opened, with the turn's label, around the wait for a program."""
        arguments = (turn, step, len(self._feed.languages), batch)
        name = self._name(*arguments)
        if name not in self._compiled:
            with compiling(turn.label):
                self._compiled[name] = self._awaited(name, arguments)
        return self._compiled[name](state, batch, self._key)

    def close(self) -> None:
        # What a thread is at cannot be stopped, only what it has not begun.
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _awaited(self, name: tuple, arguments: tuple) -> Any:
        self._to_come.pop(name, None)
        if name not in self._started:
            self._start(name, arguments)
        started = self._started.pop(name)
        # The others meanwhile; where the cache of programs has this one, the run goes on at once.
        while self._to_come and not started.done():
            self._start_next()
        return started.result()

    def _name(self, turn: Turn, step: int, languages: int, batch: Any) -> tuple:
        """What tells one program from another."""
        # One program serves all steps that train the same parameters.
        stage = latest(self._frozen_from, step)
        # The factors are constants of the program, so other factors are another one.
        shapes = [array.shape for array in jax.tree.leaves(batch)]
        return (*turn.factors.items(), stage, languages, *shapes)

    def _start_next(self) -> None:
        name = next(iter(self._to_come), None)
        if name is not None:
            self._start(name, self._to_come.pop(name))

    def _start(self, name: tuple, arguments: tuple) -> None:
        turn, step, languages, batch = arguments
        train_step = make_train_step(
            objective=turn.objective,
            stage=latest(self._frozen_from, step),
            languages=languages,
            **self._arguments,
        )
        # Traced here: only XLA, which does not hold Python up, works in a thread.
        lowered = train_step.lower(self._abstract, batch, self._key)
        self._started[name] = self._in_thread(lowered)

    def _lowered_state(self) -> jax.stages.Lowered:
        return lower_state(
            self._arguments["model"],
            self._arguments["optimizer"],
            self._arguments["config"],
            self._arguments["shardings"],
        )

    def _in_thread(self, lowered: jax.stages.Lowered) -> Future:
        return self._threads.submit(lowered.compile)
