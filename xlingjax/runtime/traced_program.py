"""What a traced program does, by its shapes: operations of its matrix products."""

import math
import re
from collections.abc import Callable
from typing import Any

import jax

_TAKEN = re.compile(r"taken_(\d+)_of_(\d+)")


def taken(times: int, of: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a branch that is taken so often, which `dot_flops` heeds."""

    def branch(*given: Any) -> Any:
        return function(*given)

    branch.__name__ = f"taken_{times}_of_{of}"
    return jax.jit(branch)


def dot_flops(program: Any) -> float:
    """Of a (closed) jaxpr, all devices together, a multiply-add is 2: what is recomputed counts as
    often as it is, a loop of known length as often as it turns, other loops once, of branches the
    largest, unless they tell how often each is `taken`. A kernel of Pallas counts what its author
    says it costs."""
    jaxpr = getattr(program, "jaxpr", program)
    return sum(map(_of_equation, jaxpr.eqns))


def _of_equation(equation: Any) -> float:
    name = equation.primitive.name
    params = equation.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        left = equation.invars[0].aval.shape
        inner = math.prod(left[axis] for axis in contracted)
        [result] = equation.outvars
        return 2.0 * inner * math.prod(result.aval.shape)
    if name == "pallas_call":
        cost = params.get("cost_estimate")
        return float(cost.flops) if cost is not None else 0.0
    inside = [dot_flops(one) for one in _programs(params)]
    if name == "cond":
        shares = [_share(branch) for branch in params["branches"]]
        if all(shares):
            return sum(share * flops for share, flops in zip(shares, inside, strict=True))
        return max(inside, default=0.0)
    times = 1
    if name == "scan":
        times = params["length"]
    # Its shapes are those of one device.
    if name == "shard_map":
        times = params["mesh"].size
    return times * sum(inside)


def _share(branch: Any) -> float:
    """Of the times that a branch is taken; 0: it does not tell."""
    for equation in branch.jaxpr.eqns:
        if found := _TAKEN.search(str(equation.params.get("name", ""))):
            return int(found[1]) / int(found[2])
    return 0.0


def _programs(params: dict[str, Any]) -> list[Any]:
    found = []
    for value in params.values():
        for one in value if isinstance(value, list | tuple) else (value,):
            if hasattr(one, "eqns") or hasattr(one, "jaxpr"):
                found.append(one)
    return found
