"""Links of the optimizer's chain that optax lacks: rates by layer and step, frozen parameters."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from xlingjax.training.parameter_groups import merge, moments_mask, split


class Link(optax.GradientTransformationExtraArgs):
    """A link of the chain that keeps nothing from step to step."""

    @classmethod
    def of(cls, update: Callable[..., Any]) -> "Link":
        """update: (updates, step) -> updates."""

        def update_and_state(updates, state, params=None, *, step, **_):
            return update(updates, step), state

        return cls(lambda params: optax.EmptyState(), update_and_state)


def chain_links(*links: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """`optax.chain`, in whose state a `Link` leaves nothing: checkpoints are the same with and
    without it."""
    chain = optax.chain(*links)
    kept = [number for number, link in enumerate(links) if not isinstance(link, Link)]

    def init(params):
        state = chain.init(params)
        return tuple(state[number] for number in kept)

    def update(updates, state, params=None, **arguments):
        whole = [optax.EmptyState()] * len(links)
        for number, own in zip(kept, state, strict=True):
            whole[number] = own
        updates, whole = chain.update(updates, tuple(whole), params, **arguments)
        return updates, tuple(whole[number] for number in kept)

    return optax.GradientTransformationExtraArgs(init, update)


def frozen_in_stages(
    inner: optax.GradientTransformationExtraArgs, trainable_at: Callable[[int], Any], ever: Any
) -> optax.GradientTransformationExtraArgs:
    """`inner`, whose state is that of the parameters trained at some step (`ever`, a tree of
    bools). What other stages train keeps its value and moments."""

    def init(params):
        return inner.init(split(params, ever)[0])

    def update(updates, state, params, *, stage=0, **arguments):
        now = trainable_at(stage)
        params, _ = split(params, ever)
        # One chain serves all stages, so the others' parameters go through it, with gradient 0.
        gradients = merge(updates, jax.tree.map(jnp.zeros_like, params))
        updates, after = inner.update(gradients, state, params, **arguments)
        # Their moments would shrink with gradient 0.
        after = jax.tree.map(
            lambda new, old, trained: new if trained else old,
            after,
            state,
            moments_mask(state, now),
        )
        # Updates of the others would be 0 and decay: they are dropped, not applied.
        return split(updates, now)[0], after

    return optax.GradientTransformationExtraArgs(init, update)


def scale_by_tree(factors: Any) -> Link:
    """Multiplies each parameter's update with its factor."""

    def update(updates, step):
        return jax.tree.map(lambda u, factor: factor * u, updates, factors)

    return Link.of(update)


def scale_by_rate(rate: Callable[[Any], jax.Array]) -> Link:
    """Multiplies with the learning rate at the step, and turns the direction downhill."""

    def update(updates, step):
        down = -rate(step)
        return jax.tree.map(lambda u: down * u, updates)

    return Link.of(update)


def correct_late_starts(b1: float, b2: float, first_steps: Any) -> Link:
    """Behind Adam: its correction for moments that begin at 0 counts all steps of the run, and
    those of a parameter that is trained from a later step on began there. first_steps: tree of
    numbers."""

    def factor(step, first):
        if first == 0:
            return 1.0
        all_steps = jnp.float32(step + 1)
        # At least 1 where the stage has not begun: its update is dropped, but must not be NaN.
        own = jnp.float32(jnp.maximum(step + 1 - first, 1))
        mean = (1 - b1**all_steps) / (1 - b1**own)
        return mean * jnp.sqrt((1 - b2**own) / (1 - b2**all_steps))

    def update(updates, step):
        return jax.tree.map(lambda u, first: factor(step, first) * u, updates, first_steps)

    return Link.of(update)
