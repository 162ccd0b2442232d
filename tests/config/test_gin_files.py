"""Gin files that cannot be read, and modules that they name: one line with file and line; what came
with a run has no module imported unless it is trusted."""

import json
import sys

import pytest

from xlingjax.cli import main
from xlingjax.config import recipe as recipes
from xlingjax.config.corpus import import_tasks
from xlingjax.config.gin_files import Part, parts_of, statements
from xlingjax.errors import UserError
from xlingjax.runtime.trust import is_trusted, trusting

HEAD = 'include "recipes/xlm_tiny.gin"\nLANGUAGES = "de en"\nVOCABULARY_SIZE = 80\n'


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def said(file="mine.gin", *overrides):
    with pytest.raises(UserError) as error:
        recipes.read_recipe([str(file)], overrides)
    (line,) = str(error.value).splitlines()
    return line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b" \n\n", "mine.gin, line 1: no text in UTF-8: give a gin file"),
        (b"BATCH = 8\nA = '\xe9'\n", "mine.gin, line 2: no text in UTF-8"),
        (b"BATCH = 8\nA = \x00 5\n", "mine.gin, line 2: no text in UTF-8"),
        (
            b"BATCH = 8\nLENGTH = [3\nTRAIN_STEPS = 2\n",
            "mine.gin, line 3: not gin syntax: Expected ','",
        ),
        (b"BATCH = 8\nLENGTH 3\n", "mine.gin, line 2: not gin syntax: Couldn't parse statement"),
        (b"BATCH = 8\nLENGTH = 2 ** 9\n", "mine.gin, line 2: not gin syntax: Expected newline"),
        # Python 3.12 names the line of the bracket, 3.11 that of the end.
        (
            b"BATCH = 8\nLENGTH = [3\n",
            tuple(f"mine.gin, line {n}: not gin syntax: a bracket or string" for n in (2, 3)),
        ),
        (b"A = {[1]: 2}\n", "mine.gin: not gin syntax: unhashable type"),
        (
            b"A = " + b"[" * 3000,
            ("mine.gin: not gin syntax: ", "mine.gin, line 1: not gin syntax: "),
        ),
        (b"A = " + b"9" * 5000 + b"\n", "mine.gin, line 1: not gin syntax: "),
        (b"include 3\n", "mine.gin, line 1: not gin syntax: Expected file path"),
        (b"  include 'none.gin'\n", "mine.gin, line 1: missing file: include 'none.gin'"),
        (b"include 'mine.gin'\n", "mine.gin, line 1: include 'mine.gin' includes itself"),
        (b"\ninclude 'other.gin'\n", "other.gin, line 3: include './mine.gin' includes itself"),
        (b"include 'folder.gin'\n", "mine.gin, line 1: missing file: include 'folder.gin'"),
    ],
)
def test_a_file_that_cannot_be_read(here, content, message):
    (here / "folder.gin").mkdir()
    (here / "other.gin").write_text("# of others\n\ninclude './mine.gin'\n")
    (here / "mine.gin").write_bytes(content)
    assert said().startswith(message)


def test_a_folder_and_a_name_that_none_can_have(here):
    assert said(here).startswith("missing file: no recipe")
    assert said("x" * 5000).startswith("missing file: no recipe")


def test_line_ends_and_marks_of_other_systems(here):
    """And a separator of lines of Unicode within a comment, which is no end of a line."""
    text = HEAD + "# a\u2028b\nMODEL = 'mini'\nmlm:\n  batch = 4  # a block\n"
    (here / "mine.gin").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    objective = recipes.read_recipe(["mine.gin"], ()).bound["objectives"][0]
    assert objective.source.shapes["input_ids"] == (4, 64)
    (here / "mine.gin").write_text(f"{text}  length = 0\n")
    assert said().startswith("mine.gin, line 8: mlm.length=0: a number from 1 to 1048576 is")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("  TRAIN_STEP = 5", "this recipe has no macro TRAIN_STEP; did you mean 'TRAIN_STEPS'?"),
        ("Train_Steps = 5", "has no macro Train_Steps; did you mean 'TRAIN_STEPS'?"),
        ("x/TRAIN_STEPS = 5", "has no macro x/TRAIN_STEPS; did you mean 'TRAIN_STEPS'?"),
        ("tml/sampling.alpha = 1", "nothing is read in scope 'tml'"),
        ("retrieval.corpus = 3", "retrieval.corpus=3: Corpus (a reference, @NAME()) is needed"),
        ("train.workdir = 'x'", "'train' has no parameter 'workdir'"),
    ],
)
def test_what_would_be_ignored_in_silence(here, line, message):
    (here / "mine.gin").write_text(f"{HEAD}{line}\n")
    assert said().startswith("mine.gin, line 4: ") and message in said()


def test_statements_are_those_of_gin():
    text = (
        "from a.b import c\nimport d\nt/x.y = [%M, @s/f(),\n  {'k': @g}]\n"
        "x:\n  p = 1\n  q = '''import e\nimport f'''\nM = 3  # import h\n"
    )
    found = [(one.kind, one.name, one.line) for one in statements(Part(text, ""))]
    assert found == [
        ("import", "a.b.c", 1),
        ("import", "d", 2),
        ("binding", "t/x.y", 3),
        ("binding", "x.p", 6),
        ("binding", "x.q", 7),
        ("binding", "M", 9),
    ]
    bound = statements(Part(text, ""))[2]
    assert bound.macros == {"M"} and bound.references == {"s/f", "g"}


# ---- modules -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "content", "message"),
    [
        (
            "nowhere",
            None,
            "cannot be imported: ModuleNotFoundError: No module named 'nowhere' (PYTHONPATH=.",
        ),
        ("one_third", "1 / 0", "cannot be imported: ZeroDivisionError: division by zero ("),
        ("no_python", "def (", "cannot be imported: SyntaxError: invalid syntax (no_python.py, li"),
        ("leaves", "import sys\nsys.exit(3)", "cannot be imported: SystemExit: 3 ("),
        # Not that the module itself is not there.
        ("needs", "import nowhere", "needs cannot be imported: ModuleNotFoundError: No module nam"),
    ],
)
def test_a_module_that_cannot_be_imported(here, module, content, message):
    if content:
        (here / f"{module}.py").write_text(f"{content}\n")
    (here / "mine.gin").write_text(f"{HEAD}import {module}\n")
    assert said().startswith("mine.gin, line 4: ") and message in said()
    with pytest.raises(UserError) as error:
        import_tasks(module)
    assert str(error.value).startswith("TASKS: ") and message in str(error.value)


@pytest.fixture
def came(here, monkeypatch):
    """A run's folder as it may come from anywhere, and the module that its recipe imports."""

    def write(line, folder="run"):
        (here / folder).mkdir(exist_ok=True)
        (here / folder / "run.json").write_text(json.dumps({}))
        (here / folder / "config.gin").write_text(f"{HEAD}{line}\n")
        return here / folder / "config.gin"

    for name in ("module_of_run", "package_of_run", "package_of_run.part"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (here / "module_of_run.py").write_text("import pathlib\npathlib.Path('imported').touch()\n")
    (here / "package_of_run").mkdir()
    (here / "package_of_run" / "part.py").write_text((here / "module_of_run.py").read_text())
    return write


@pytest.mark.parametrize(
    "line",
    [
        "import module_of_run",
        "  import module_of_run",
        "from package_of_run import part",
        "import package_of_run.part",
        "import os",
        "import xlingjax_of_run",
        "TASKS = 'module_of_run'",
        "pairs/text.tasks = ['module_of_run']",
        "corpus.tasks = 'xlingjax.tasks.xlm module_of_run'",
        "text:\n  tasks = 'module_of_run'",
        "text.tasks = {0: 'xlingjax.tasks.xlm', 9: {0: None, 20: 'module_of_run'}}",
        "A = ['xlingjax.tasks.xlm', 'module_of_run']\nB = [%A]\ntext.tasks = [%B]",
        "of_run = 'module_of_run'\ntext.tasks = %of_run",
        "of_run = ['module_of_run']\ntext.tasks = {0: None, 9: [%of_run]}",
        "include '../evil.gin'",
        "corpus.tasks = @x/macro()\nx/macro.value = 'module_of_run'",
        "corpus.tasks = @x/gin.macro()",
        "corpus.tasks = @x/gin.singleton()\nx/gin.singleton.constructor = @mlm",
        "corpus.mono = 's3://elsewhere/x.de.txt'",
        "MONO = ['de=http://elsewhere/x.de.txt']",
        "INIT_FROM = 'hf:someone/model'",
        "from __gin__ import dynamic_registration",
    ],
)
def test_what_came_with_a_run_imports_nothing(came, here, line):
    (here / "evil.gin").write_text("import module_of_run\n")
    config = came(line)
    (here / "mine.gin").write_text(f"include '{config}'\n")
    for file in (config, "mine.gin"):
        refused = said(file)
        assert "macro is set by NAME" in refused or "--trust" in refused
        assert "line " in refused
    assert not (here / "imported").exists() and not is_trusted()


def test_what_is_trusted_or_named_by_the_user_is_imported(came, here):
    config = came("import package_of_run.part")
    recipes.read_recipe([str(config)], (), trust=True)
    assert (here / "imported").exists() and not is_trusted()
    # The user's own file names it, too.
    config = came("import module_of_run")
    (here / "mine.gin").write_text("import module_of_run\n")
    recipes.read_recipe([str(config), "mine.gin"], ())
    # As a run's own file, what the user sets is what holds.
    config = came("TASKS = 'module_of_run'")
    recipes.read_recipe([str(config)], ["TASKS=None"])
    recipes.read_recipe([str(config)], ["TASKS=module_of_run"])
    # Its own modules, and tasks of benchmarks, which are no modules.
    recipes.read_recipe([str(came("import xlingjax.tasks.xlm"))], ())
    with trusting(True):
        recipes.parse_gin([str(came("import module_of_run"))], ())
    # Whatever lies beside it.
    (here / "run" / "run.json").unlink()
    assert "--trust" in said(came("import package_of_run.part"))


def test_tasks_of_benchmarks_are_no_modules(came):
    config = came("merged_tasks.tasks = 'xglue/xnli xglue/pawsx'")
    recipes.parse_gin([str(config)], ())


def test_the_option_is_asked_for_and_given(came, capsys, here):
    came("import module_of_run")
    assert main.main(["evaluate", "run"]) == 2
    assert "run/config.gin, line 4: this file came with a run, and" in capsys.readouterr().err
    assert main.main(["evaluate", "run", "--trust"]) == 2
    # On with what is wrong next.
    assert "error: no checkpoint in " in capsys.readouterr().err
    assert (here / "imported").exists()


def test_text_of_parts_keeps_its_lines(here):
    (here / "inner.gin").write_text("B = 2\n")
    (here / "outer.gin").write_text("A = 1\ninclude 'inner.gin'\nC = 3\n")
    assert [part.text.rstrip("\n") for part in parts_of(["outer.gin"])] == [
        "A = 1",
        "B = 2",
        "\n\nC = 3",
    ]


@pytest.mark.parametrize("value", ["{", "[1,", "(1", "'''x"])
def test_a_bracket_that_is_not_closed_is_said(value, here, capsys):
    assert (
        main.main(["pretrain", "--gin-file", "xlm_tiny", "--to", "x", f"--gin.MONO={value}"]) == 2
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --gin.MONO: not gin syntax: a bracket or string is never closed")
