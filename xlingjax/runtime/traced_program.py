"""What a traced program does, by its shapes: operations of its matrix products, how often it looks
rows up."""

import math
from typing import Any


def dot_flops(program: Any) -> float:
    """Of a (closed) jaxpr, all devices together, a multiply-add is 2: what is recomputed counts as
    often as it is, a loop of known length as often as it turns, other loops once, of branches the
    largest. A kernel of Pallas counts what its author says it costs."""
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
        return max(inside, default=0.0)
    times = 1
    if name == "scan":
        times = params["length"]
    # Its shapes are those of one device.
    if name == "shard_map":
        times = params["mesh"].size
    return times * sum(inside)


def lookups(program: Any, table: tuple[int, ...]) -> int:
    """How often a (closed) jaxpr takes rows from an array of that shape; loops count once."""
    found = 0
    for equation in getattr(program, "jaxpr", program).eqns:
        if equation.primitive.name == "gather":
            found += equation.invars[0].aval.shape == table
        for inside in _programs(equation.params):
            found += lookups(inside, table)
    return found


def _programs(params: dict[str, Any]) -> list[Any]:
    found = []
    for value in params.values():
        for one in value if isinstance(value, list | tuple) else (value,):
            if hasattr(one, "eqns") or hasattr(one, "jaxpr"):
                found.append(one)
    return found
