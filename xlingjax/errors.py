"""What ends a command without a traceback: bad input that its user can repair; a wish to stop."""

import difflib
import math
import numbers
import re
from collections.abc import Iterable, Mapping
from typing import Any

# EX_TEMPFAIL, "try again later": what a job script looks for to queue the run again.
EXIT_CODE = 75
# What a shell gives for Ctrl-C: 128 and the number of SIGINT.
INTERRUPTED = 130
# What gin appends to what passes through it, line by line, about its own call stack.
_OF_GIN = re.compile(
    r"\n  (In call to configurable '|In file \"|In bindings string line |No values supplied ).*",
    re.DOTALL,
)


class UserError(Exception):
    """Bad input. The message is one line that names the file, line, option or shape and the remedy.

    The command line prints it as `error: <message>` and exits with status 2, without a traceback.
    """


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message on an unknown word: what was probably meant; "": nothing is near."""
    # 0.65 keeps bf16 for bfloat16, and leaves out flash for sdpa.
    near = difflib.get_close_matches(word, list(known), 1, 0.65)
    return f"; did you mean {near[0]!r}?" if near else ""


def meant(word: str, known: Iterable[str]) -> str:
    """As `did_you_mean`; where nothing is near all that there are."""
    known = [*known]
    return did_you_mean(word, known) or f"; there are {', '.join(known) or 'none'}"


def in_one_line(error: UserError) -> str:
    """The message without what gin appends; a user's ends of line are shown as backslash n."""
    message = _OF_GIN.sub("", str(error))
    return "\\n".join(message.splitlines())


class Stopped(Exception):
    """Asked to stop by a signal; what was done is kept, and the same call goes on from there.

    The command line exits with `EXIT_CODE`.
    """


LARGEST = 2**31 - 1  # of whole numbers: what an int32 of JAX and of files holds
LARGEST_BATCH = 2**24
LONGEST_ROW = 2**20  # attention is quadratic in it: a million tokens in a row is a slip of the hand


class SettingError(UserError):
    """A value that a setting cannot have. A recipe that binds it adds the file, line and macro."""

    def __init__(self, name: str, value: Any, needed: str, where: str = ""):
        super().__init__(f"{where}{name}={value!r}: {needed} is needed")
        self.name = name
        self.needed = needed


def require_numbers(settings: Any, interval: str, names: str, where: str = "") -> None:
    """Raises SettingError unless the numbers of these settings lie in `interval`, "[0, 1)".

    settings: a dataclass, or {name: value}. A name may be missing; a value may be a number, a
    collection or a mapping of numbers, or None. True is no number.
    """
    low, high = map(float, interval[1:-1].split(","))
    for name in names.split():
        for number in _numbers(_value(settings, name)):
            # Python counts True as an integer.
            if isinstance(number, bool):
                raise SettingError(name, _value(settings, name), "a number", where)
            highest = high
            if isinstance(number, int) and number > LARGEST:
                highest = min(high, LARGEST)
            holds = low < number if interval[0] == "(" else low <= number
            holds &= number < highest if interval[-1] == ")" else number <= highest
            if not holds or math.isinf(number):
                # That bound itself is a value that it may have.
                of_int = interval if highest == high else f"{interval[:-1]}]"
                needed = _in_words(of_int, low, highest)
                raise SettingError(name, _value(settings, name), needed, where)


def require_whole(settings: Any, interval: str, names: str, where: str = "") -> None:
    """`require_numbers` of settings that are whole numbers."""
    for name in names.split():
        value = _value(settings, name)
        if not all(map(_is_whole, _numbers(value))):
            raise SettingError(name, value, "a whole number", where)
    require_numbers(settings, interval, names, where)


def require_choice(settings: Any, choices: Iterable[str], names: str, where: str = "") -> None:
    """Raises SettingError unless each setting, or item of a list, is one of `choices` or None."""
    choices = list(choices)
    for name in names.split():
        value = _value(settings, name)
        words = value if isinstance(value, list | tuple) else [value]
        wrong = [word for word in words if word is not None and word not in choices]
        if not wrong:
            continue
        needed = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
        if near := did_you_mean(str(wrong[0]), choices):
            needed += f" ({near.removeprefix('; ')})"
        raise SettingError(name, value, needed, where)


def _value(settings: Any, name: str) -> Any:
    if isinstance(settings, Mapping):
        return settings.get(name)
    return getattr(settings, name)


def _numbers(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [number for one in value for number in _numbers(one)]
    if not isinstance(value, numbers.Real):
        return []
    return [value]


def _is_whole(number: Any) -> bool:
    return isinstance(number, numbers.Integral) and not isinstance(number, bool)


def _in_words(interval: str, low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return "a number that is finite"
    if math.isinf(high):
        if interval[0] == "(":
            return f"a number above {low:.9g}"
        return f"a number of {low:.9g} or more"
    limit = f"below {high:.10g}" if interval[-1] == ")" else f"{high:.10g}"
    if interval[0] == "[":
        return f"a number from {low:.9g} to {limit}"
    return f"a number above {low:.9g} and {limit if interval[-1] == ')' else f'at most {limit}'}"
