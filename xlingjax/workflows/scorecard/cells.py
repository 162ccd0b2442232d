"""The cells of a folder: scores.json of each training, and which of them are of one training."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError
from xlingjax.runtime.records import ANY, read_record

SCORES = "scores.json"
AS_IT_IS = "as_it_is"  # the strategy of what `evaluate --mixture` measures
TESTS = ("test", "translate_test")  # splits that test: figures of other ones are marked
Cell = dict[str, Any]
_SHAPE = {
    "task": str,
    "strategy": str,
    "variant": {str: str},
    "settings": {str: ANY},
    "seed": ANY,
    "start": {"run": ANY, "sha256": str},
    "select": {"by": ANY, "split": ANY},
    "dev": {"by_language?": {str: ANY}},
    "test": {"split": str, "by_language": {str: ANY}},
}
"""Of scores.json (see `records.misfit`)."""


def read_scores(folder: str | Path) -> list[Cell]:
    """Every scores.json below `folder`. Raises UserError for none, or two of one training."""
    paths = sorted(Path(folder).glob(f"cells/**/{SCORES}"))
    if not paths:
        raise UserError(
            f"{folder}: no cells/**/{SCORES} there; `xlingjax finetune --task` and `evaluate"
            " --suite` write them"
        )
    remedy = "put it back, or delete it and start again: it is measured anew"
    cells = []
    folders = {}
    for path in paths:
        cell = read_record(path, _SHAPE, remedy)
        # By what it says and not by its path: a copied cell would count twice.
        key = (group_key(cell), settings_key(cell), cell["seed"])
        first = folders.setdefault(key, path.parent)
        if first != path.parent:
            raise UserError(
                f"{first} and {path.parent} are of one training of {cell['task']}: delete one of"
                " them, or move it out of cells"
            )
        cells.append(cell)
    return cells


def row_key(cell: Cell) -> tuple[str, ...]:
    """What rows of several variants and languages share. Random weights go by their run's shape."""
    weights = weights_of(cell["start"])
    return (cell["task"], cell["strategy"], cell["test"]["split"], weights, *_chosen_by(cell))


def group_key(cell: Cell) -> tuple[str, ...]:
    """What the settings and seeds of one row have in common."""
    variant = json.dumps(cell["variant"], sort_keys=True)
    return (*row_key(cell), variant, *sorted(cell["test"]["by_language"]))


def settings_key(cell: Cell) -> str:
    return json.dumps(cell["settings"], sort_keys=True)


def _chosen_by(cell: Cell) -> tuple[str, ...]:
    """What chose the checkpoint, and the prefix of sentences: figures of several policies are not
    compared. The models of several targets have a dev set of their own each."""
    select = cell["select"]
    # Models of several targets are one row, each chosen by a dev set in its own language.
    languages = []
    if "TARGET" not in cell["variant"]:
        languages = sorted(cell["dev"].get("by_language", ()))
    limit = str(select.get("limit", ""))
    return (select["by"], select["split"], limit, select.get("prefix", ""), *languages)


def weights_of(start: Mapping[str, str]) -> str:
    """What tells weights apart: their hash, of random ones the run whose shape they have."""
    sha256 = start["sha256"]
    if sha256 in ("", "random"):
        return f"{sha256} {start['run']}"
    return sha256
