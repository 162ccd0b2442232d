"""config.json of another program, read strictly: what is missing or unknown is not guessed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError
from xlingjax.model.config import MOST
from xlingjax.runtime.files import parsed_json


class Fields:
    """The values of a config.json, or those that another file holds."""

    def __init__(self, path: Path, values: dict[str, Any] | None = None):
        """values: instead of the file. Raises UserError where it is missing or no JSON object."""
        self.path = path
        if values is not None:
            self.values = values
            return
        try:
            self.values = parsed_json(path.read_bytes())
        except OSError as error:
            raise UserError(
                f"cannot read {path}: {error.strerror}; give the folder of a Hugging Face model"
            ) from None
        except ValueError:
            raise UserError(f"{path} is no JSON; fetch it again") from None
        if not isinstance(self.values, dict):
            raise UserError(f"{path} is no JSON object; fetch it again")

    def count(self, name: str, default: int | None = None) -> int:
        """A number of 1 or more; without a default it must be there."""
        return self.index(name, default, 1)

    def index(self, name: str, default: int | None = None, least: int = 0) -> int:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UserError(
                f"{self.path}: {name}={value!r}; it must be a whole number of at least {least}"
            )
        return value

    def same(self, name: str, other: str) -> int:
        """The number of both, as one of ours. Raises UserError where they differ."""
        first = self.count(name)
        second = self.count(other)
        if first != second:
            raise UserError(
                f"{self.path}: {name}={first} and {other}={second}; here encoder and decoder have"
                " the same"
            )
        return first

    def architecture(self, known: Mapping[str, Any], default: str) -> Any:
        """What the first of its architectures means to us. Raises UserError for another one."""
        named = self.values.get("architectures") or default
        if isinstance(named, list):
            named = named[0]
        name = str(named)
        if name not in known:
            raise UserError(
                f"{self.path}: architecture {name} is not read (but {', '.join(known)})"
            )
        return known[name]

    def labels(self) -> tuple[str, ...]:
        """Names of its classifier's classes, in order; LABEL_0, ... of `num_labels`, two where it
        does not tell either. Raises UserError where their numbers are not 0, 1, 2, ..."""
        named = self.values.get("id2label")
        if not named:
            count = self.count("num_labels", 2)
            if count > MOST["num_labels"]:
                raise UserError(f"{self.path}: num_labels={count} is more than any model has")
            named = {str(i): f"LABEL_{i}" for i in range(count)}
        numbers = [str(i) for i in range(len(named))]
        if not isinstance(named, dict) or {*named} != {*numbers}:
            raise UserError(
                f"{self.path}: id2label={named!r} does not name the classes 0, 1, 2, ...; repair it"
            )
        return tuple(str(named[i]) for i in numbers)

    def rate(self, name: str, default: float) -> float:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"{self.path}: {name}={value!r}; it must be a number")
        return float(value)

    def one_of(self, name: str, meaning: dict[Any, Any], default: Any) -> Any:
        """What the value means to us. Raises UserError for another one."""
        value = self.values.get(name, default)
        # A list or a table is no key: Python would refuse to look it up.
        if isinstance(value, list | dict) or value not in meaning:
            known = ", ".join(map(repr, meaning))
            raise UserError(
                f"{self.path}: {name}={value!r} is not something xlingjax computes (it knows"
                f" {known})"
            )
        return meaning[value]

    def only(self, name: str, value: Any) -> None:
        """The only value that is computed here, also the default. Raises UserError for another."""
        # Absent is the default of the class, which is what we compute; another
        # value would be computed wrongly and in silence.
        self.one_of(name, {value: value}, value)
