"""Files that are written whole or not at all."""

import json
from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any) -> None:
    """Write whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(
        json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n",
        encoding="utf-8",
    )
    # Renaming replaces a file at once, so a reader never sees half of one.
    partial.replace(path)
