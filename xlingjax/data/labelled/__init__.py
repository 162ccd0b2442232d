"""Labelled examples: what a record is, the readers of their files, and what a task is."""

from typing import Any

from xlingjax.runtime import moved


def __getattr__(name: str) -> Any:
    return moved.attribute(__name__, name)
