"""What the files of a run were when it ended: result.json has their hashes, so that figures which
decay has changed are not shown, and not computed with, in silence. A file that a user has edited
since is told, too, and read as it is."""

import functools
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from xlingjax.runtime.checked_file import hash_of
from xlingjax.runtime.files import parsed_json, write_json

RESULT_FILE = "result.json"
FILES = (
    "run.json",
    "config.gin",
    "best.json",
    "metrics.jsonl",
    "evaluations.jsonl",
    "log.txt",
    "rows.html",
)
"""Those whose lines or values are shown or computed with."""
_HASHES, _HASH = "hashes", "hash"


def sealed(result: Mapping[str, Any], workdir: Path) -> dict[str, Any]:
    """A result with the hashes of the run's files, and with its own."""
    hashes = {}
    for name in FILES:
        path = workdir / name
        if path.is_file():
            content = path.read_bytes()
            hashes[name] = [len(content), hash_of(content)]
    # As it will be read.
    value = parsed_json(json.dumps({**result, _HASHES: hashes}, default=str))
    return value | {_HASH: _hash_of(value)}


def seal(workdir: Path) -> None:
    """Hashes the run's files anew: what was written since result.json was. Raises OSError."""
    path = workdir / RESULT_FILE
    result = parsed_json(path.read_bytes())
    del result[_HASH]
    write_json(path, sealed(result, workdir))


def say_changed(workdir: Path, names: Iterable[str] = FILES) -> None:
    """Warns of each of these files, and of result.json, that is not what it was when the run ended.
    Nothing of a run that goes on."""
    try:
        result = parsed_json((workdir / RESULT_FILE).read_bytes())
        own = result.pop(_HASH)
        hashes = {name: (int(size), str(value)) for name, (size, value) in result[_HASHES].items()}
    # What is no result at all its readers refuse.
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return
    if own != _hash_of(result):
        _warn(workdir / RESULT_FILE)
        return
    for name in names:
        if name in hashes and _differs(workdir / name, *hashes[name]):
            _warn(workdir / name)


def _differs(path: Path, size: int, value: str) -> bool:
    try:
        with open(path, "rb") as file:
            # What was added since is lines of `evaluate`.
            return hash_of(file.read(size)) != value
    except OSError:
        return True


def _hash_of(value: Any) -> str:
    return hash_of(json.dumps(value, sort_keys=True).encode())


# Once a process: a record is read several times.
@functools.lru_cache
def _warn(path: Path) -> None:
    print(
        f"warning: {path} is not what it was when the run ended: edited, damaged or removed since",
        file=sys.stderr,
    )
