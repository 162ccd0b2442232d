"""The types that a function declares for what recipes bind to its parameters. No gin here."""

import collections.abc
import functools
import inspect
import numbers
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from xlingjax.errors import SettingError
from xlingjax.training.stages import STAGES, is_staged

# One value, several of them.
_NAMES: dict[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("True or False", "True or False"),
    str: ("a string in quotes", "strings"),
    Path: ("a string in quotes", "strings"),
    None: ("None", "None"),
    type(None): ("None", "None"),
}
_UNIONS = (typing.Union, types.UnionType)
_SEQUENCES = (tuple, list, collections.abc.Sequence)


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`; an argument of another type than it declares raises SettingError."""
    signature = inspect.signature(function, eval_str=True)

    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        for name, value in arguments.items():
            annotation = signature.parameters[name].annotation
            if not fits(value, annotation):
                raise SettingError(name, value, in_words(annotation))
        return function(**arguments)

    call.__signature__ = signature
    # gin would look through it, and would not see the signature of `model`.
    del call.__wrapped__
    return call


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value is of a declared type."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if annotation in (Any, inspect.Parameter.empty):
        return True
    if origin is Annotated:
        # A stage may have stages of its own.
        if STAGES in arguments and is_staged(value):
            return all(fits(stage, annotation) for stage in value.values())
        return fits(value, arguments[0])
    if origin in _UNIONS:
        return any(fits(value, one) for one in arguments)
    if annotation in (None, type(None)):
        return value is None
    # Python counts True as an integer, a recipe does not.
    if annotation is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    # A whole number serves as a number.
    if annotation is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    # gin has no literal of a path.
    if annotation is Path:
        return isinstance(value, str | Path)
    if collections.abc.Callable in (annotation, origin):
        return callable(value)
    # A tuple of fixed length, like tuple[float, int], has a type for each place.
    if origin is tuple and Ellipsis not in arguments:
        return _is_list(value) and len(value) == len(arguments) and all(map(fits, value, arguments))
    if origin in _SEQUENCES:
        return _is_list(value) and all(fits(one, arguments[0]) for one in value)
    if origin is collections.abc.Mapping:
        return isinstance(value, Mapping) and all(
            fits(key, arguments[0]) and fits(one, arguments[1]) for key, one in value.items()
        )
    # A plain protocol tells nothing of a value.
    if not isinstance(annotation, type) or typing.Protocol in annotation.__mro__:
        return not isinstance(value, int | float | str | list | tuple | dict | None)
    return isinstance(value, annotation)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def in_words(annotation: Any, several: bool = False) -> str:
    """What a parameter of this type needs: "a list of strings or None"."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if annotation in _NAMES:
        return _NAMES[annotation][several]
    if origin is Annotated:
        return in_words(arguments[0], several)
    if origin in _UNIONS:
        # `str | Path` is one thing to a user: a string in quotes.
        return " or ".join(dict.fromkeys(in_words(one, several) for one in arguments))
    if origin is tuple and Ellipsis not in arguments:
        return f"a list of {len(arguments)}: {', '.join(map(in_words, arguments))}"
    if origin in _SEQUENCES:
        of = in_words(arguments[0], several=True)
        return f"lists of {of}" if several else f"a list of {of}"
    if origin is collections.abc.Mapping:
        return f"{{{in_words(arguments[0])}: {in_words(arguments[1])}}}"
    return f"{getattr(annotation, '__name__', annotation)} (a reference, @NAME())"
