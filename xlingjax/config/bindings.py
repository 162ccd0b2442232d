"""What a recipe may bind to a parameter: the names it has, the types it declares. No gin here."""

import collections.abc
import functools
import inspect
import numbers
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from xlingjax.training.stages import STAGES, is_staged

# One value, several of them.
_NAMES: dict[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("True or False", "True or False"),
    str: ("a string in quotes", "strings"),
    Path: ("a string in quotes", "strings"),
    type(None): ("None", "None"),
}
# The default of a spelled-out keyword: whatever the function that gets it has. Not written into a
# run's configuration.
_THEIRS = object()


@dataclass(frozen=True)
class Made:
    """A value that is not there yet: what a function with this return annotation will give."""

    returns: Any


def spelled_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`; for one with `**rest: Unpack[Fields]` (PEP 692) the same with a signature that
    names each field, so that a name it does not have is refused where it is bound."""
    signature = inspect.signature(function, eval_str=True)
    *named, last = signature.parameters.values()
    if last.kind is not inspect.Parameter.VAR_KEYWORD:
        return function
    # The one argument of Unpack[...]: a TypedDict, whose annotations are names and types.
    (fields,) = typing.get_args(last.annotation)
    rest = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=_THEIRS, annotation=annotation
        )
        for name, annotation in typing.get_type_hints(fields).items()
    ]

    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        return function(**arguments)

    call.__signature__ = signature.replace(parameters=[*named, *rest])
    del call.__wrapped__  # gin would look through it
    return call


@functools.cache
def declared(function: Callable[..., Any]) -> inspect.Signature:
    """Its signature, annotations evaluated."""
    return inspect.signature(function, eval_str=True)


def made(function: Callable[..., Any]) -> Made:
    """What a call of `function` will give."""
    # The signature of a class is that of __init__, which returns nothing.
    if isinstance(function, type):
        return Made(function)
    return Made(declared(function).return_annotation)


def needed(value: Any, annotation: Any) -> str:
    """What is needed instead of `value`, in words; "": it fits. value: a literal, `Made`, lists and
    dicts of them."""
    if _fits(value, annotation):
        return ""
    return _in_words(annotation)


def _fits(value: Any, wanted: Any) -> bool:
    origin = typing.get_origin(wanted)
    arguments = typing.get_args(wanted)
    if wanted in (Any, inspect.Parameter.empty):
        return True
    # Before unions: `float | None` may stand within the annotation that allows stages.
    if origin is Annotated:
        if STAGES in arguments:
            return _fits_stages(value, wanted)
        return _fits(value, arguments[0])
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    # Only what the call returns is known, and a union of returns fits if one of them may.
    if isinstance(value, Made):
        return any(_gives(returned, wanted) for returned in _alternatives(value.returns))
    if wanted is None or wanted is type(None):
        return value is None
    # Python counts True as an integer, a recipe does not.
    if wanted in (int, float) and isinstance(value, bool):
        return False
    if wanted is int:
        return isinstance(value, numbers.Integral)
    # A whole number serves as a number: gin reads 1 as an int where a recipe means 1.0.
    if wanted is float:
        return isinstance(value, numbers.Real)
    # Gin has no literal of a path.
    if wanted is Path:
        return isinstance(value, str)
    # A tuple of fixed length, like tuple[float, int], has a type for each place.
    if origin is tuple and Ellipsis not in arguments:
        if not _is_list(value) or len(value) != len(arguments):
            return False
        return all(map(_fits, value, arguments))
    if origin in (tuple, list, collections.abc.Sequence):
        return _is_list(value) and all(_fits(one, arguments[0]) for one in value)
    if origin is collections.abc.Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, arguments[0]) and _fits(one, arguments[1]) for key, one in value.items()
        )
    # No literal is a function or fills a protocol, and isinstance of a plain protocol raises.
    if not isinstance(wanted, type) or _is_protocol(wanted):
        return False
    return isinstance(value, wanted)


def _fits_stages(value: Any, wanted: Any) -> bool:
    """A stage may have stages of its own."""
    if is_staged(value):
        return all(_fits(stage, wanted) for stage in value.values())
    return _fits(value, typing.get_args(wanted)[0])


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_protocol(wanted: type) -> bool:
    return typing.Protocol in wanted.__mro__


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _gives(returned: Any, wanted: Any) -> bool:
    """Whether what a function returns may be what is wanted, by their classes alone."""
    if returned in (Any, inspect.Signature.empty):
        return True
    given = typing.get_origin(returned) or returned
    requested = typing.get_origin(wanted) or wanted
    # What is no class cannot be told here; the call itself will complain.
    if not isinstance(given, type) or not isinstance(requested, type):
        return True
    return _is_protocol(requested) or issubclass(given, requested)


def _in_words(annotation: Any, several: bool = False) -> str:
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if annotation is None:
        return "None"
    if annotation in _NAMES:
        return _NAMES[annotation][several]
    if origin is Annotated:
        return _in_words(arguments[0], several)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(
            # `str | Path` is one thing to a user: a string in quotes.
            dict.fromkeys(_in_words(one, several) for one in arguments)
        )
    if origin is tuple and Ellipsis not in arguments:
        return f"a list of {len(arguments)}: {', '.join(map(_in_words, arguments))}"
    if origin in (tuple, list, collections.abc.Sequence):
        of = _in_words(arguments[0], several=True)
        if several:
            return f"lists of {of}"
        return f"a list of {of}"
    if origin is collections.abc.Mapping:
        return f"{{{_in_words(arguments[0])}: {_in_words(arguments[1])}}}"
    return f"{getattr(annotation, '__name__', annotation)} (a reference, @NAME())"
