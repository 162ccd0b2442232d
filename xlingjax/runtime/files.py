"""Files that are written whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any) -> None:
    """Write whole or not at all."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    write_text(path, text + "\n")


def write_text(path: Path, text: str) -> None:
    """Write whole or not at all, as UTF-8."""
    # By its process, since several may write one file.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        # Renaming replaces a file at once, so a reader never sees half of one.
        partial.replace(path)
    finally:
        # Only where it could not be written: it has its own name otherwise.
        partial.unlink(missing_ok=True)
