"""Import paths that the documentation once named. They work for one version more, with a
warning."""

import importlib
import importlib.abc
import importlib.util
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULES = {
    "xlingjax.convert.hugging_face": "xlingjax.convert.formats.hugging_face",
    "xlingjax.data.benchmark": "xlingjax.data.labelled.task",
    "xlingjax.data.vocabulary_surgery": "xlingjax.data.vocabulary.surgery",
    "xlingjax.evaluation.predictions": "xlingjax.evaluation.submissions",
    "xlingjax.evaluation.scores": "xlingjax.evaluation.metrics.registry",
    "xlingjax.initialisation": "xlingjax.training.initialisation",
    "xlingjax.surgery": "xlingjax.convert.vocabulary",
    "xlingjax.train": "xlingjax.training.loop",
    "xlingjax.trained": "xlingjax.inference.run",
}
NAMES = {
    "xlingjax.data.labelled.Bitext": "xlingjax.data.labelled.records.Bitext",
    "xlingjax.data.labelled.Question": "xlingjax.data.labelled.records.Question",
    "xlingjax.data.token_cache.Records": "xlingjax.data.tokens.Records",
    "xlingjax.data.vocabulary.Vocabulary": "xlingjax.data.vocabulary.sentencepiece.Vocabulary",
}
"""Of modules that are folders now, or have less in them."""


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the module of today for a name of `MODULES`; the last of `sys.meta_path`, asked where
    nothing is found."""

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in MODULES:
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        _warn(spec.name, MODULES[spec.name])
        module = importlib.import_module(MODULES[spec.name])
        # The machinery gives the module it is handed this spec; `exec_module` puts its own back.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        # Last, so that it costs nothing where a module is found.
        sys.meta_path.append(Finder())


def attribute(package: str, name: str) -> Any:
    """For a package's `__getattr__`: what `name` meant there. Raises AttributeError for other
    names."""
    today = NAMES.get(f"{package}.{name}")
    if today is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    _warn(f"{package}.{name}", today)
    module, _, attribute_name = today.rpartition(".")
    return getattr(importlib.import_module(module), attribute_name)


def _warn(old: str, new: str) -> None:
    warnings.warn(
        f"{old} is {new} now; the old name goes with the next version",
        FutureWarning,
        # Past Python's own machinery, to the line that imports.
        stacklevel=6,
    )
