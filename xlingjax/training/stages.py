"""Values that change during a run: `{0: 0.15, 10000: 0.3}` is 0.15 from step 0, 0.3 from 10,000."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from xlingjax.errors import UserError

STAGES = "stages"  # marks parameters that may change by the step: `Annotated[float, STAGES]`


def is_staged(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and bool(value)
        # By type, since True is an int, too; mappings of languages have texts.
        and all(type(key) is int for key in value)
    )


def starts(values: Iterable[Any]) -> list[int]:
    """The steps at which values change, 0 first. Raises UserError for stages not from 0 on."""
    steps = {0}
    for value in values:
        steps |= _starts(value)
    return sorted(steps)


def _starts(value: Any) -> set[int]:
    if not is_staged(value):
        return {0}
    if min(value) != 0:
        raise UserError(f"stages {dict(value)} must begin at step 0, and no step is below it")
    begins = sorted(value)
    ends = [*begins[1:], float("inf")]
    steps = set(begins)
    for begin, end in zip(begins, ends, strict=True):
        # Stages of a stage, by steps of the run: those outside of it never come.
        for step in _starts(value[begin]):
            if begin < step < end:
                steps.add(step)
    return steps


def latest(begins: Iterable[int], step: int) -> int:
    """Of the steps at which stages begin, the one whose stage is in force at `step`."""
    return max(begin for begin in begins if begin <= step)


def at(value: Any, step: int) -> Any:
    """The value in force at a step. A stage may have stages of its own, by steps of the run too."""
    while is_staged(value):
        value = value[latest(value, step)]
    return value


def staged(
    function: Callable[..., Any], keep: Iterable[str] = (), anew: str = ""
) -> Callable[..., Any]:
    """`function` for arguments that may be stages: its result, or {first step: result}.

    keep: arguments that the function takes as stages itself. anew: the one that differs in each
    stage, by its method `of_stage(first step)`.
    """

    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        of_stages = dict(arguments)
        for name in keep:
            of_stages.pop(name, None)
        steps = starts(of_stages.values())
        results = {}
        for step in steps:
            # A stage is a whole of its own: also of what does not change in it.
            own = arguments | {name: at(value, step) for name, value in of_stages.items()}
            if anew in own and len(steps) > 1:
                own[anew] = own[anew].of_stage(step)
            results[step] = function(**own)
        # Nothing changes: the result itself, so that runs without stages look as they always did.
        return results if len(steps) > 1 else results[0]

    # gin and the checks on macros read the signature, and `wraps` alone would show the plain types.
    call.__signature__ = _with_stages(function, keep)
    return call


def _with_stages(function: Callable[..., Any], keep: Iterable[str] = ()) -> inspect.Signature:
    signature = inspect.signature(function, eval_str=True)
    parameters = [
        parameter
        if parameter.name in keep
        else parameter.replace(annotation=Annotated[parameter.annotation, STAGES])
        for parameter in signature.parameters.values()
    ]
    returned = signature.return_annotation
    if isinstance(function, type):
        # The signature of a class is that of __init__, which returns nothing.
        returned = function
    return signature.replace(parameters=parameters, return_annotation=returned)


def of_last_stage(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` for arguments that may be stages, which it gets as the last of them has it."""

    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        own = {name: at(value, max(starts([value]))) for name, value in arguments.items()}
        return function(**own)

    call.__signature__ = _with_stages(function)
    return call


def stage_name(name: str, start: int) -> str:
    """What the stage of `name` that begins at step `start` is called."""
    return f"{name}@{start}" if start else name


def stage_of(name: str) -> tuple[str, int]:
    """The inverse of `stage_name`."""
    name, _, start = name.partition("@")
    return name, int(start or 0)
