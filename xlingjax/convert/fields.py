"""config.json of another program, read strictly: what is missing or means something else is said, never guessed."""

import json
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError


class Fields:
    """The values of a config.json."""

    def __init__(self, path: Path):
        """Raises UserError for a file that is not there or is no JSON object."""
        self.path = path
        try:
            self.values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}; give the folder of a Hugging Face model") from None
        except ValueError:
            raise UserError(f"{path} is no JSON; fetch it again") from None
        if not isinstance(self.values, dict):
            raise UserError(f"{path} is no JSON object; fetch it again")

    def count(self, name: str) -> int:
        """A number of 1 or more that must be there."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(f"{self.path}: {name}={value!r}; it must be a whole number of at least 1")
        return value

    def rate(self, name: str, default: float) -> float:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"{self.path}: {name}={value!r}; it must be a number")
        return float(value)

    def one_of(self, name: str, meaning: dict[Any, Any], default: Any) -> Any:
        """What the value means to us. Raises UserError for another one."""
        value = self.values.get(name, default)
        if isinstance(value, list | dict) or value not in meaning:
            known = ", ".join(map(repr, meaning))
            raise UserError(f"{self.path}: {name}={value!r} is not something xlingjax computes (it knows {known})")
        return meaning[value]
