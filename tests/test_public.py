"""What `xlingjax` gives to Python, and the import paths that documentation once named."""

import importlib
import subprocess
import sys

import pytest

import xlingjax
from xlingjax.runtime.moved import MODULES, NAMES


@pytest.mark.parametrize("name", xlingjax.__all__)
def test_public_names_are_there(name):
    assert getattr(xlingjax, name).__name__ == name


def test_they_are_imported_when_they_are_used():
    """`import xlingjax` alone costs nothing: TensorFlow takes seconds."""
    code = "import sys, xlingjax; print({'jax', 'tensorflow', 'numpy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("old", MODULES)
def test_old_modules_are_the_new_ones(old, monkeypatch):
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(FutureWarning, match=f"{old} is {MODULES[old]} now"):
        module = importlib.import_module(old)
    assert module is importlib.import_module(MODULES[old])
    assert module.__spec__.name == MODULES[old]


@pytest.mark.parametrize("old", NAMES)
def test_old_names_are_the_new_ones(old):
    package, _, name = old.rpartition(".")
    with pytest.warns(FutureWarning, match=f"{old} is"):
        found = getattr(importlib.import_module(package), name)
    assert f"{found.__module__}.{found.__qualname__}" == NAMES[old]


def test_other_names_are_errors():
    with pytest.raises(
        AttributeError, match="'xlingjax.data.labelled' has no attribute 'Questoin'"
    ):
        importlib.import_module("xlingjax.data.labelled").Questoin  # noqa: B018
    with pytest.raises(AttributeError, match="'xlingjax' has no attribute 'opne_run'"):
        xlingjax.opne_run  # noqa: B018
