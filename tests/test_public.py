"""What `xlingjax` gives to Python."""

import subprocess
import sys

import pytest

import xlingjax


@pytest.mark.parametrize("name", xlingjax.__all__)
def test_public_names_are_there(name):
    assert getattr(xlingjax, name).__name__ == name


def test_they_are_imported_when_they_are_used():
    """`import xlingjax` alone costs nothing: TensorFlow takes seconds."""
    code = "import sys, xlingjax; print({'jax', 'tensorflow', 'numpy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
