"""Where what is made of text is kept from run to run."""

import os
from pathlib import Path


def cache_root() -> Path:
    """`$XLINGJAX_CACHE`, by default `~/.cache/xlingjax`."""
    root = os.environ.get("XLINGJAX_CACHE")
    if not root:
        root = Path.home() / ".cache" / "xlingjax"
    return Path(root)
