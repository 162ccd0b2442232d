"""What `make wheel` and `pip install .` give: a package that needs nothing of the clone."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import xlingjax

pytest.importorskip("setuptools", "77", reason="without a network it is built by what is here")
ROOT = Path(__file__).parents[1]
BUILT_OF = ("xlingjax", "tasks", "gin", "pyproject.toml", "setup.py")
BUILT_OF += ("README.md", "LICENSE", "NOTICE")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
NOT_THERE = ("PYTHONPATH", "XLA_FLAGS")  # of the tests, which have eight devices
USE = """
from pathlib import Path

import xlingjax.tasks.registry
import xlingjax.tasks.xlm
from xlingjax.cli.main import main
from xlingjax.config.gin_files import gin_folder, parts_of, recipes

package = Path(xlingjax.__file__).parent
assert gin_folder() == package / "gin" and Path(xlingjax.tasks.__file__).parents[1] == package
for recipe in recipes():
    assert [*parts_of([recipe])]
assert main(["demo", "data", "--languages", "en", "de", "--size", "mono=200", "pairs=200"]) == 0
vocab = ["--mono", "data/mono", "--size", "300", "--character-coverage", "1"]
assert main(["vocab", *vocab, "--to", "vocab"]) == 0
assert main(["start", "data/parallel", "--to", "started"]) == 0
assert Path("started/model/config.json").is_file()
# The recipe is found and read, to the vocabulary that it wants.
assert main(["pretrain", "--gin-file", "xlm_tiny", "--to", "run"]) == 2
"""


def quiet(command, **options):
    """What it says; its status is 0."""
    options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, **options)
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that no build folder is left in the clone."""
    source = tmp_path_factory.mktemp("clone")
    for name in BUILT_OF:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source / name)
    given = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", "dist", "."]
    quiet([*PIP, "wheel", "-q", *given], cwd=source)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.mark.long
def test_it_has_every_file_of_the_package_and_no_other(wheel):
    wanted = set()
    places = {"xlingjax": "xlingjax", "tasks": "xlingjax/tasks", "gin": "xlingjax/gin"}
    for folder, within in places.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                wanted.add(f"{within}/{path.relative_to(ROOT / folder).as_posix()}")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if ".dist-info/" not in name} == wanted
    assert {"xlingjax/gin/objectives/mlm.gin", "xlingjax/report/templates/report.css"} < wanted
    assert wheel.name == f"xlingjax-{xlingjax.__version__}-py3-none-any.whl"


@pytest.mark.long
def test_installed_it_needs_nothing_of_the_clone(wheel, tmp_path):
    """In an environment of its own, with the packages of this one behind it."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    (packages,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    # Folders that a .pth names have no .pth files of their own: a clone installed for editing is
    # not seen from there.
    borrowed = [path for path in sys.path if path.endswith("-packages")]
    (packages / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
    given = ["--no-deps", "--no-index", str(wheel)]
    quiet([*PIP, "--python", str(python), "install", "-q", *given])
    environment = {name: value for name, value in os.environ.items() if name not in NOT_THERE}
    place = {"cwd": tmp_path, "env": environment}
    said = quiet([str(python.with_name("xlingjax")), "--version"], **place)
    assert said == f"xlingjax {xlingjax.__version__}\n"
    assert "xlm_text" in quiet([str(python.with_name("xlingjax")), "recipe"], **place)
    said = quiet([str(python), "-c", USE], **place)
    assert "runs/demo/vocab" in said.splitlines()[-1]
