"""Files that are written whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any) -> None:
    """Write whole or not at all."""
    # By its process, since several may write one file.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(
        json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n",
        encoding="utf-8",
    )
    # Renaming replaces a file at once, so a reader never sees half of one.
    partial.replace(path)
