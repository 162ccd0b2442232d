"""The documentation says what the code says: macros, commands, messages, links."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import xlingjax
from xlingjax.cli import main as command_line
from xlingjax.cli.main import main
from xlingjax.config.gin_files import Macro, gin_folder, macros_in, macros_of
from xlingjax.errors import UserError

ROOT = Path(__file__).parents[1]
OWN_RECIPE = ROOT / "docs" / "own-recipe.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LAYERS = ("models", "objectives", "optim", "mesh", "runs")


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# ---- Macros --------------------------------------------------------------------------------------


def files_of_macros() -> list[str]:
    paths = [path for layer in LAYERS for path in sorted((gin_folder() / layer).glob("*.gin"))]
    files = [path.relative_to(gin_folder()).as_posix() for path in paths]
    # It sets what others declare.
    return [file for file in files if file != "runs/smoke.gin"]


@pytest.mark.parametrize("file", files_of_macros())
def test_every_macro_has_a_comment(file):
    text = (gin_folder() / file).read_text(encoding="utf-8")
    assert [macro.name for macro in macros_in(text, file) if not macro.meaning] == []


def test_macros_of_gin_text():
    text = """# A comment above is no macro's.
include "runs/common.gin"
STEPS = %gin.REQUIRED  # how many
ROWS = {"a": [%STEPS, 2],  # the first
        "b # c": "%STEPS"}   # rows; what
                             # they are

# Of the next part.
RATE = 1e-4
train.steps = %STEPS       # no macro
"""
    assert [*macros_in(text, "x.gin")] == [
        Macro("STEPS", "required", "how many", "x.gin"),
        Macro("ROWS", '{"a": [STEPS, 2], "b # c": "%STEPS"}', "rows; what they are", "x.gin"),
        Macro("RATE", "1e-4", "", "x.gin"),
    ]


def test_recipe_prints_each_macro_with_value_meaning_and_file(capsys):
    assert main(["recipe", "xlm_text"]) == 0
    lines = capsys.readouterr().out.splitlines()
    macros = macros_of(["xlm_text"])
    assert len(lines) == len(macros) + 1
    for line, macro in zip(lines[1:], macros, strict=True):
        words = [macro.name, macro.value, macro.meaning, macro.file]
        assert line.split() == " ".join(words).split()


# ---- Own functions -------------------------------------------------------------------------------


def test_the_module_and_recipe_of_the_page_work(tmp_path):
    """In a process of its own, which registers names."""
    text = OWN_RECIPE.read_text(encoding="utf-8")
    for name in ("my_parts.py", "normed.gin"):
        written = re.search(rf"^```\w*\n(# {name}\n.*?)^```", text, re.M | re.DOTALL)[1]
        (tmp_path / name).write_text(written, encoding="utf-8")
    (tmp_path / "read.py").write_text(
        """
import numpy as np
from xlingjax.config.recipe import read_recipe

given = ["MONO=a", "PARALLEL=b", "VOCABULARY=v", "VOCABULARY_SIZE=400", "LANGUAGES=de en"]
recipe = read_recipe(["normed.gin"], [*given, "NORM_SCALE=0.5"])
open("config.gin", "w").write(recipe.config)
for recipe in (recipe, read_recipe(["config.gin"], [], trust=True)):
    [norm] = recipe.bound["evaluators"][1]()
    print(norm.name, norm(None, {"w": np.array([3.0, 4.0])}, 0, None))
"""
    )
    done = subprocess.run(
        [sys.executable, "read.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["weight_norm {'l2': 2.5}"] * 2, done.stderr


# ---- Python --------------------------------------------------------------------------------------


def test_pages_of_python_have_every_public_name():
    pages = [path.read_text("utf-8") for path in (ROOT / "docs" / "api").glob("*.md")]
    public = re.findall(r"^      toc_label: (\w+)$", "\n".join(pages), re.M)
    assert sorted(public) == sorted(xlingjax.__all__)


# ---- Commands ------------------------------------------------------------------------------------


def commands(page: Path) -> list[str]:
    """The commands of xlingjax that stand in its blocks of code, each in one line."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), re.M | re.DOTALL)
    lines = [line for kind, text in fenced if kind in ("", "sh", "bash") for line in joined(text)]
    found = [re.search(r"(?:^|\| |^\s+|\$ )(?:\.venv/bin/)?xlingjax (.+)", line) for line in lines]
    return [one[1] for one in found if one and " ... " not in f"{one[1]} "]  # some left out


def joined(text: str) -> list[str]:
    """Lines of a shell, with those that go on in the next."""
    lines = [""]
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        lines[-1] += line
        if re.sub(r" #.*", "", lines[-1]).count("'") % 2 == 0:
            lines.append("")
    return lines


def words(command: str) -> list[str]:
    """Of the command alone: without a comment, what a shell redirects or sends on, and gin."""
    said = shlex.split(command, comments=True)
    for sign in ("|", "<", ">", "2>", "&&", "||", "&", ";"):
        if sign in said:
            said = said[: said.index(sign)]
    return [word for word in said if not word.startswith("--gin.") and word != "..."]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=named)
def test_commands_are_understood(page):
    for command in commands(page):
        try:
            command_line.parser().parse_args(words(command))
        except UserError as error:
            pytest.fail(f"xlingjax {command}\n{error}")


# ---- Messages ------------------------------------------------------------------------------------


def said_by_the_code() -> str:
    """All its strings, one a line; what differs in a message is a NUL."""
    lines = [(ROOT / "Makefile").read_text(encoding="utf-8")]
    for folder in ("xlingjax", "tasks"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.JoinedStr):
                    parts = [getattr(part, "value", None) for part in node.values]
                    lines.append("".join(x if isinstance(x, str) else "\0" for x in parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    lines.append(node.value)
    return "\n".join(lines)


def test_every_message_that_is_explained_is_one_of_the_code():
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### (.+)$", text, re.M)
    messages = [message for line in headings for message in re.findall(r"`([^`]+)`", line)]
    assert len(messages) > 50
    code = said_by_the_code()
    # "..." and numbers stand for what differs.
    for message in messages:
        parts = re.split(r"\.\.\.|\b\d+\b", message)
        assert re.search("[^\n]*?".join(map(re.escape, parts)), code), message


# ---- Links ---------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_every_page_is_in_the_navigation_of_the_site():
    """`make docs` refuses one that is not."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:")[1]
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    # docs/verbs.py makes those of verbs.
    assert pages | {"verbs/index.md"} == set(re.findall(r"[\w/-]+\.md", nav))
