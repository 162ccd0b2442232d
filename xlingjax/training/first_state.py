"""What a start begins with: the run's own checkpoint, else the weights of other runs, else random
ones."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.data.store.blocks import BlockText
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig
from xlingjax.training.checkpoint import Checkpoints
from xlingjax.training.checkpoint_params import load_params
from xlingjax.training.feed import Feed
from xlingjax.training.initialisation import Initialisation, Loaded, Plan
from xlingjax.training.run_record import labels_of, read_run_record, task_of_head, vocabulary_of
from xlingjax.training.step import TrainState

TokenVectors = Callable[[Sequence[BlockText], int], tuple[np.ndarray, str]]
"""Of the text that a run reads, of a width: (float32 [pieces, width], where they come from in
words); rows of 0 stay random."""


@dataclasses.dataclass(frozen=True)
class First:
    """What a start begins with."""

    state: TrainState
    weights: str
    """Where they come from, for the log."""
    step: int = 0
    tokens_seen: int = 0
    donated: Sequence[str] = ()
    """A line per group of parameters that came from donors."""
    continued: bool = False
    """From the run's own checkpoint."""

    def described(self, parameters: int, steps: int) -> list[str]:
        """What the log says of this start of a run of `steps` steps."""
        left = f"nothing left to do: it has {self.step} steps of {steps}"
        if self.step < steps:
            left = f"steps {self.step} to {steps}"
        of_all = f"weights: {self.weights}; {parameters:,} parameters; {left}"
        return [*self.donated, of_all]

    def session(self, machine: str, mesh: dict[str, int]) -> dict[str, Any]:
        """What run.json says of this start."""
        session = {"step": self.step, "machine": machine, "mesh": mesh, "weights": self.weights}
        if self.donated:
            session["given"] = self.donated
        return session


def restored(
    checkpoints: Checkpoints, abstract: TrainState, feed: Feed, workdir: Path
) -> First | None:
    """The run's own newest checkpoint, with the sources where it left them; None for a new run."""
    saved = checkpoints.restore(abstract)
    if saved is None:
        return None
    for name, source in feed.sources.items():
        source.restore(saved.positions[name])
    return First(
        saved.state,
        f"checkpoint {saved.step} of {workdir}",
        saved.step,
        saved.progress["tokens_seen"],
        continued=True,
    )


def new_run(
    state: TrainState,
    seed: int,
    load: Callable[..., Loaded] | None,
    languages: Sequence[str],
    identity: Mapping[str, Any],
    token_vectors: TokenVectors | None = None,
    texts: Sequence[BlockText] = (),
) -> First:
    """A new run, from a random state whose parameters `load` replaces where it is given; without
    it, `token_vectors` of `texts` those of the token table."""
    if load is None:
        weights = f"random (seed {seed})"
        if token_vectors is not None:
            params, origin = _with_tokens(state.params, token_vectors, texts)
            state = dataclasses.replace(state, params=params)
            weights += f"; {origin}"
        return First(state, weights)
    params, weights, donated = load(state.params, languages, identity)
    state = dataclasses.replace(state, params=params)
    return First(state, weights, donated=donated)


def _with_tokens(params: Any, vectors: TokenVectors, texts: Sequence[BlockText]) -> tuple[Any, str]:
    table_VD = params["embeddings"]["tokens"]["embedding"]
    rows_SD, origin = vectors(texts, table_VD.shape[1])
    # The table has rows beyond the vocabulary, and they stay as they are.
    padded_VD = np.zeros(table_VD.shape, np.float32)
    padded_VD[: len(rows_SD)] = rows_SD

    def replaced(table_VD: jax.Array, rows_VD: jax.Array) -> jax.Array:
        known_V1 = (rows_VD != 0).any(axis=1, keepdims=True)
        # As long as the random rows are on average: positions and head expect such.
        norm = jnp.linalg.norm(table_VD, axis=1).mean()
        return jnp.where(known_V1, norm * rows_VD, table_VD)

    made = jax.jit(replaced, out_shardings=table_VD.sharding)
    embeddings = {**params["embeddings"]}
    embeddings["tokens"] = {"embedding": made(table_VD, padded_VD)}
    return {**params, "embeddings": embeddings}, origin


def first_weights(
    init_from: Any, config: ModelConfig, abstract: Any, new: Sequence[str]
) -> Callable[[Any, Sequence[str], Mapping[str, Any]], Loaded] | None:
    """A function like `Plan.load` for what `init_from` names: a path or an `Initialisation`; None
    where it names nothing. Raises UserError for what can be refused before any text is read."""
    if isinstance(init_from, Initialisation):
        if init_from.parts:
            return Plan(init_from, config, abstract).load
        init_from = init_from.run
    if not init_from:
        return None

    def load(params: Any, languages: Sequence[str], identity: Mapping[str, Any]) -> Loaded:
        saved: Sequence[str] = ()
        if config.tells_languages():
            saved = read_run_record(init_from)["languages"]
            _require_first(init_from, saved, languages)
        for objective, data in identity["data"].items():
            if "labels" in data:
                require_labels(
                    f"INIT_FROM={init_from}", init_from, data["labels"], task_of_head(objective)
                )
        params, added = load_params(
            init_from, params, new, vocabulary_of(identity), languages=saved
        )
        origin = f"{init_from}"
        if added:
            origin += f", new and random: {', '.join(added)}"
        return params, origin, []

    return load


def _require_first(run: str, saved: Sequence[str], languages: Sequence[str]) -> None:
    """Raise UserError where a whole run's language tokens, or rows of its language embedding, would
    become those of other languages."""
    # A run may have fewer languages if they are the donor's first: those keep their ids.
    if list(languages) != saved[: len(languages)]:
        raise UserError(
            f"INIT_FROM={run} has parameters of the languages {' '.join(saved)}, and the data"
            f" {' '.join(languages)}, "
            f'numbered otherwise; set LANGUAGES="{" ".join(saved)}"'
        )


def require_labels(name: str, run: Any, labels: Sequence[str], task: str | None = None) -> None:
    """Raise UserError where a run's head was trained on other labels than those to learn now, or on
    these in another order: its outputs would stand for the wrong ones. name: how the message names
    the run; task: whose head, of a model with several."""
    record = read_run_record(run)
    theirs = []
    if task or record["model"]["num_labels"]:
        theirs = labels_of(record, task)
    if not theirs or theirs == [*labels]:
        return
    before = _first_four(theirs)
    now = _first_four(labels)
    head = "a head"
    if task:
        head = f"a head of {task}"
    raise UserError(
        f"{name} has {head} for the labels {before}, and those to learn are {now}: start from the"
        " run that it was fine-tuned from"
    )


def _first_four(labels: Sequence[str]) -> str:
    shown = ", ".join(labels[:4])
    if len(labels) > 4:
        return shown + " ..."
    return shown
