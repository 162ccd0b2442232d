"""Every setting of every recipe and configurable, given what it cannot be: one line that names it,
never a traceback, never silence.

Drawn by a seed, for a few seconds; with XLINGJAX_FUZZ_SECONDS=3600 and `pytest -s` for so long, by
a seed of the clock, which is printed with the counts.
"""

import inspect
import os
import random
import time
import types
import typing
from collections import Counter

import pytest

from xlingjax.config import recipe as recipes
from xlingjax.config.bindings import fits
from xlingjax.errors import UserError
from xlingjax.workflows.bakeoff.runs import Bakeoff
from xlingjax.workflows.tables.table import Table

SECONDS = float(os.environ.get("XLINGJAX_FUZZ_SECONDS", 0))
SEED = time.time_ns() if SECONDS else 0
COUNTS = Counter()


@pytest.fixture(scope="module", autouse=True)
def names():
    recipes.register("bakeoff", Bakeoff)
    recipes.register("table", Table)
    yield recipes.registered()
    print(f"\nseed {SEED}: {dict(COUNTS)}")


def drawn(name, seconds, least):
    """Draws for a share of the time, at least so many."""
    generator = random.Random(f"{SEED} {name}")
    end = time.monotonic() + (SECONDS / 3 or seconds)
    while COUNTS[name] < least or time.monotonic() < end:
        COUNTS[name] += 1
        yield generator


def parameters():
    for name, function in sorted(recipes.registered().items()):
        # Of this project: other tests register functions of their own.
        if function.__module__.startswith("xlingjax."):
            for parameter in inspect.signature(function, eval_str=True).parameters.values():
                yield name, parameter


def plain(annotation):
    """Its alternatives, where all of them are plain types; else nothing is certain."""
    if typing.get_origin(annotation) is typing.Annotated:
        return plain(typing.get_args(annotation)[0])
    found = {annotation}
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        found = {*typing.get_args(annotation)}
    if found <= {int, float, bool, str, type(None)}:
        return found
    return set()


def wrong_type(generator, alternatives):
    """A literal that is none of these plain types."""
    literals = {
        bool: ["True", "False"],
        int: [str(generator.randint(-9, 9999)), "0", "1"],
        float: [repr(generator.uniform(0, 9) + 1e-3), "1e-3", "2.5"],
        str: ['"many"', "'1'", '""', "'x' 'y'", '"²"', '"nan"', "'None'"],
        type(None): ["None"],
        list: ["[]", "[3]", "(1, 2)", "['a', None]", "[[]]"],
        dict: ["{}", "{'a': 1}", "{None: [3]}"],
    }
    fitting = set(alternatives)
    # A whole number serves as a number.
    if float in fitting:
        fitting.add(int)
    kind = generator.choice([kind for kind in literals if kind not in fitting])
    return generator.choice(literals[kind])


def refused(name, path, text, *overrides):
    """The line that building `name`, or the whole recipe, is refused with."""
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        recipes.parse_gin([str(path)], overrides)
        recipes.build(name)
        pytest.fail(f"accepted: {text} {overrides}")
    (line,) = str(error.value).splitlines()
    return line


def test_every_default_is_allowed():
    for name, parameter in parameters():
        value = parameter.default
        if isinstance(value, int | float | str | tuple | dict | None):
            assert fits(value, parameter.annotation), (name, parameter.name)


def test_every_configurable_refuses_another_type(tmp_path):
    path = tmp_path / "mine.gin"
    known = [one for one in parameters() if plain(one[1].annotation)]
    assert len(known) > 300
    for generator in drawn("configurables", 2, len(known)):
        # All of them once, then by chance.
        count = COUNTS["configurables"] - 1
        name, parameter = known[count] if count < len(known) else generator.choice(known)
        key = f"{name}.{parameter.name}"
        value = wrong_type(generator, plain(parameter.annotation))
        if generator.random() < 0.7:
            said = refused(name, path, f"# mine\n{key} = {value}\n")
            assert said.startswith(f"{path}, line 2: "), (key, value, said)
            assert f" {key}=" in said or "too large" in said, (key, value, said)
        else:
            said = refused(name, path, "# mine\n", f"{key}={value}")
            assert said.startswith(f"--gin.{key}"), (key, value, said)
        assert said.endswith(" is needed"), (key, value, said)


SCRAPS = [
    *"[](){}\"'%@=:,.#/\\ \n\t\r\0é²١\u2028\ufeff-+09aZ_",
    "\n\n",
    "'''",
    "%X",
    "@x()",
    "None",
]
LINES = ['include "none.gin"', "import nowhere", "mlm:", "  batch = 3", "x/y = 3", "gin.x = @gin"]


def mutated(generator, text):
    for _ in range(generator.randint(1, 4)):
        place = generator.randrange(len(text) + 1)
        what = generator.random()
        if what < 0.4:
            text = text[:place] + generator.choice(SCRAPS) + text[place:]
        elif what < 0.7:
            text = text[:place] + text[place + generator.randint(1, 9) :]
        elif what < 0.8:
            text = text[:place]
        elif what < 0.9:
            lines = text.splitlines()
            lines.insert(generator.randrange(len(lines) + 1), generator.choice(LINES))
            text = "\n".join(lines)
        else:
            begin = generator.randrange(len(text) + 1)
            text = text[:place] + text[begin : begin + 20] + text[place:]
    return text


def test_damaged_recipes_are_read_or_refused_in_one_line(tmp_path, monkeypatch):
    """Whatever is wrong in it: no other error leaves, and what is read is built."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.gin"
    own = (
        'include "recipes/xlm_tiny.gin"\nLANGUAGES = "de en"  # two\nVOCABULARY_SIZE = 80\n'
        "MASK_RATE = {0: 0.15, 100: 0.3}\nmlm.batch = %BATCH\nmlm:\n  length = 32\n"
        "train.objectives = [@mlm(), @tlm()]\ntlm/sampling.weights = {'de-en': 1}\nALPHA = None\n"
    )
    for generator in drawn("damaged", 2, 20):
        path.write_bytes(mutated(generator, own).encode("utf-8", "surrogatepass"))
        try:
            recipes.read_recipe([str(path)], ())
        except UserError as error:
            assert len(str(error).splitlines()) == 1, path.read_bytes()
        except Exception as error:
            pytest.fail(f"{error!r} of {path.read_bytes()!r}")
        else:
            COUNTS["read"] += 1
