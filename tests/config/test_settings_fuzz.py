"""Every setting of every recipe and configurable, given what it cannot be: one line that names it,
never a traceback, never silence.

Drawn by a seed, for a few seconds; with XLINGJAX_FUZZ_SECONDS=3600 and `pytest -s` for so long, by
a seed of the clock, which is printed with the counts.
"""

import math
import os
import random
import re
import time
import types
import typing
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from xlingjax.config import gin_files, ranges
from xlingjax.config import recipe as recipes
from xlingjax.config.bindings import _THEIRS, declared, needed
from xlingjax.errors import UserError
from xlingjax.workflows.bakeoff import Bakeoff
from xlingjax.workflows.tables.table import Table

SECONDS = float(os.environ.get("XLINGJAX_FUZZ_SECONDS", 0))
SEED = time.time_ns() if SECONDS else 0
GIN = gin_files.gin_folder()
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
            for parameter in declared(function).parameters.values():
                yield name, parameter


def kinds(annotation):
    """The plain types that are somewhere in it: those of entries, too."""
    if typing.get_origin(annotation) is typing.Annotated:
        return kinds(typing.get_args(annotation)[0])
    inner = typing.get_args(annotation)
    if not inner or annotation is Callable or typing.get_origin(annotation) is Callable:
        return {annotation}
    # Whose keys are names, or the steps of stages.
    if typing.get_origin(annotation) is Mapping:
        return kinds(inner[1])
    found = {typing.get_origin(annotation)} - {typing.Union, types.UnionType}
    return found.union(*map(kinds, inner))


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


def out_of_range(generator, name, parameter):
    """A literal of the right type beyond what is allowed; "": there is none."""
    allowed = ranges.range_of(name, parameter.name)
    if isinstance(allowed, ranges.Words):
        return repr(generator.choice(allowed.words) + generator.choice(" xé2"))
    beyond = [str(2**31 + generator.randrange(2**40)), f"-{2**31 + generator.randrange(2**40)}"]
    if int not in plain(parameter.annotation):
        beyond = ["1e999", "-1e999"]
    if math.isfinite(allowed.low):
        beyond.append(f"-{generator.randint(2, 9999)}")
    if math.isfinite(allowed.high):
        beyond.append(str(int(allowed.high) + generator.randint(1, 99)))
    if allowed.above or (allowed.low == 1 and int in plain(parameter.annotation)):
        beyond.append("0")
    if allowed.below:
        beyond.append("1")
    return generator.choice(beyond)


def refused(path, text, *overrides):
    """The line that it is refused with. Fails for one that is not."""
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        recipes.parse_gin([str(path)], overrides)
        pytest.fail(f"accepted: {text} {overrides}")
    (line,) = str(error.value).splitlines()
    return line


def numeric(parameter):
    found = kinds(parameter.annotation)
    return bool(found & {int, float}) and bool not in found


def test_every_number_has_a_range():
    """`ANY` is one, too, where all numbers are meant."""
    lacking = []
    for name, parameter in parameters():
        given = f"{name}.{parameter.name}" in ranges.OWN or parameter.name in ranges.RANGES
        if numeric(parameter) and not given:
            lacking.append(f"{name}.{parameter.name}")
    assert not lacking


def test_every_range_is_of_a_parameter():
    known = {parameter.name for _, parameter in parameters()}
    assert not {*ranges.RANGES} - known
    assert not {*ranges.OWN} - {f"{name}.{one.name}" for name, one in parameters()}


def test_every_default_is_allowed():
    for name, parameter in parameters():
        value = parameter.default
        if value in (parameter.empty, _THEIRS) or callable(value):
            continue
        if not isinstance(value, int | float | str | tuple | dict | None):
            continue
        function = recipes.registered()[name]
        assert not needed(value, parameter.annotation), (name, parameter.name)
        assert not ranges.needed(value, function, name, parameter.name), (name, parameter.name)


# By hand, since what is drawn below is drawn by the table of ranges itself.
WRONG = """
mlm.batch = 0 | mlm.batch = 100000000 | mlm.length = 0 | mlm.length = 2000000 | mlm.chunk = -1
mlm.weight = -1 | mlm.weight = {0: 1, 10: -1} | masking.rate = 0 | masking.rate = 1.5
masking.mask = 1.1 | noise.mask = 1 | noise.poisson = {'de': 11} | text.holdout = 1
noise.unit = 'word' | xfnp.skip = 'run' | xfnp.skip = ''
text.threads = 0 | text.seed = -1 | text.seed = 2147483648 | sampling.alpha = -0.1
sampling.temperature = 0 | sampling.weights = {'de': -1} | optimizer.learning_rate = 0
optimizer.b2 = 1 | optimizer.layer_decay = 0 | optimizer.schedule = 'alternate'
train.schedule = 'linear' | train.steps = -1 | train.microbatches = 0 | checkpoint.keep_last = 0
model.dropout = 1 | model.layers = 0 | model.dtype = 'float31' | mesh.data = 0 | mesh.fsdp = -2
retrieval.limit = -1 | retrieval.poolings = ['men'] | generation_score.max_length = (1.5, -1)
table.seeds = 0 | bakeoff.jobs = 0 | bakeoff.seeds = [0, -1] | swept.epochs = 0
"""
RIGHT = """
mlm.weight = {0: 1, 10: 0} | mlm.chunk = 0 | masking.mask = 1 | masking.rate = {0: 0.1, 9: 0.3}
text.prefetch = 0 | mesh.data = -1 | train.steps = 0 | optimizer.weight_decay = 0
optimizer.schedule = 'inverse_sqrt' | train.schedule = 'summed' | optimizer.layer_decay = 1
generation_score.length_penalty = -1 | model.unroll = 0 | noise.poisson = {'de': 0}
back_translation.factor = '0:1,100:0.5' | checkpoint.every = 0 | bakeoff.seeds = [0, 1]
"""


def each(table):
    return [one.strip() for line in table.strip().splitlines() for one in line.split(" | ")]


@pytest.mark.parametrize("line", each(WRONG))
def test_out_of_range(line, tmp_path):
    said = refused(tmp_path / "mine.gin", f"{line}\n")
    assert "line 1: " in said and said.endswith(("is needed", "?) is needed")), said


@pytest.mark.parametrize("line", each(RIGHT))
def test_in_range(line, tmp_path):
    (tmp_path / "mine.gin").write_text(f"{line}\n", encoding="utf-8")
    recipes.parse_gin([str(tmp_path / "mine.gin")], ())


def test_every_configurable_refuses_what_no_setting_can_be(tmp_path):
    path = tmp_path / "mine.gin"
    known = [one for one in parameters() if plain(one[1].annotation)]
    assert len(known) > 300
    for generator in drawn("configurables", 2, len(known)):
        # All of them once, then by chance.
        count = COUNTS["configurables"] - 1
        name, parameter = known[count] if count < len(known) else generator.choice(known)
        key = f"{name}.{parameter.name}"
        ranged = numeric(parameter) or isinstance(
            ranges.range_of(name, parameter.name), ranges.Words
        )
        if ranged and generator.random() < 0.6:
            value = out_of_range(generator, name, parameter)
        else:
            value = wrong_type(generator, plain(parameter.annotation))
        if generator.random() < 0.7:
            said = refused(path, f"# mine\n{key} = {value}\n")
            assert said.startswith(f"{path}, line 2: "), (key, value, said)
            assert f" {key}=" in said or "too large" in said, (key, value, said)
        else:
            said = refused(path, "# mine\n", f"{key}={value}")
            assert said.startswith(f"--gin.{key}"), (key, value, said)
        because = (" needed", "write a finite number", "a number is too large")
        assert any(one in said for one in because), (key, value, said)


# ---- recipes -------------------------------------------------------------------------------------


def lists_of_files():
    """Every recipe, and every objective and strategy behind one that has what it needs."""
    found = [[path] for path in (GIN / "recipes").rglob("*.gin")]
    found += [["xlm_text", path] for path in (GIN / "objectives").glob("*.gin")]
    sweep = ["optim/adamw_linear.gin", "mesh/data.gin", "runs/task.gin"]
    found += [[*sweep, path] for path in (GIN / "strategies").glob("*.gin")]
    return sorted([*map(str, files)] for files in found)


def readers(lines):
    """{macro: parameters that read it}."""
    found = {}
    for bound in lines:
        name, _, parameter = bound.rpartition("/")[2].rpartition(".")
        # A file of objectives alone reads some that no file of the recipe sets.
        if not name or (macro := recipes._literal(bound)[0]) not in lines or "." in macro:
            continue
        function = recipes.function_named(name)
        if function.__module__.startswith("xlingjax."):
            read = found.setdefault(macro, [])
            read.append((name, declared(function).parameters[parameter]))
    return found


def test_every_macro_refuses_what_it_cannot_be():
    """Of recipes drawn by chance, all macros that a parameter reads."""
    for generator in drawn("recipes", 2, 2):
        files = generator.choice(lists_of_files())
        try:
            recipes.parse_gin(files, [])
        except UserError as error:
            assert "is not set and this recipe needs it" in str(error), files
        lines = recipes.config_lines()
        for macro, read in readers(lines).items():
            name, parameter = generator.choice(read)
            value = "{None: [3]}"
            if numeric(parameter) and plain(parameter.annotation):
                value = out_of_range(generator, name, parameter)
            elif plain(parameter.annotation):
                value = wrong_type(generator, plain(parameter.annotation))
            try:
                with pytest.raises(UserError) as error:
                    recipes.parse_text(f"{macro} = {value}", "here")
                    recipes.require_types(recipes.config_lines(), {macro: "here"})
                    pytest.fail(f"accepted: {files} {macro}={value}")
            finally:
                recipes.parse_text(f"{macro} = {lines[macro]}", "")
            said = str(error.value)
            assert re.fullmatch("here(=.* needed .*|: .*too large)", said), (files, macro, said)
            COUNTS["macros"] += 1


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
