"""Parameters by name: a tree of nested dicts as the flat {path on disk: leaf}, and back."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax


def path_name(path: Sequence[Any]) -> str:
    """A key path of nested dicts as on disk: "encoder/layers/ffn/up/kernel"."""
    return jax.tree_util.keystr(tuple(path), simple=True, separator="/")


def path_names(tree: Any) -> list[str]:
    return [*flattened(tree)]


def flattened(tree: Any) -> dict[str, Any]:
    """{path on disk: leaf}."""
    return {path_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dicts from {path on disk: leaf}."""
    tree: dict[str, Any] = {}
    for name, leaf in flat.items():
        *above, last = name.split("/")
        inner = tree
        for part in above:
            inner = inner.setdefault(part, {})
        inner[last] = leaf
    return tree
