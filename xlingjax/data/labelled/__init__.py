"""Labelled examples: what a record is, the readers of their files, and what a task is."""

from typing import Any

from xlingjax.runtime import moved


def __getattr__(name: str) -> Any:
    # Names that stood here in older versions are found where they are now.
    return moved.attribute(__name__, name)
