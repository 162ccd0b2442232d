"""Words of the command line that were mistyped: one line that says what was probably meant."""

import argparse

import gin
import pytest

from xlingjax.cli import main, types
from xlingjax.config import recipe as recipes
from xlingjax.errors import UserError, in_one_line


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pretrian", "VERB 'pretrian'; did you mean 'pretrain'?"),
        ("data chek", "VERB 'chek'; did you mean 'check'?"),
        ("mine r --search exat", "--search 'exat'; did you mean 'exact'?"),
        ("mine r --search scann", "--search 'scann': choose from exact, ivf"),
        # Not that --to is lacking.
        ("pretrain --gin_file x", "no option --gin_file; did you mean '--gin-file'?"),
        ("pretrain --output_dir w", "no option --output_dir; did you mean '--to'?"),
        ("encode r --layr=3", "no option --layr; did you mean '--layer'?"),
        ("pretrain --TRAIN_STEPS=5", "a setting of the recipe is --gin.TRAIN_STEPS=5 "),
        ("pretrain --TRAIN_STEPS 5", "a setting of the recipe is --gin.TRAIN_STEPS=5 "),
        # It reads no recipe.
        ("encode r --TRAIN_STEPS=5", "no option --TRAIN_STEPS (see"),
        ("pretrain --gin.TRAIN_STEPS 5", "write --gin.TRAIN_STEPS=VALUE, without a"),
    ],
)
def test_what_was_meant_is_said(line, said, capsys):
    assert main.main(line.split()) == 2
    (only,) = capsys.readouterr().err.splitlines()
    assert said in only


def options(parser):
    """All of the verbs below, as they are typed."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from options(below)
        yield from action.option_strings


def test_options_are_written_alike():
    names = {*options(main.parser())}
    assert len(names) > 100 and {"--to", "--gin-file"} <= names
    assert not [name for name in names if "_" in name]
    assert not names & {"--output", "--out", "--workdir", "--save"}


def test_an_option_may_be_cut_short_and_a_value_look_like_one():
    args = main.parser().parse_args(["recipe", "xlm_tiny"])
    assert args.name == "recipe"
    line = ["encode", "r", "--inp", "x", "--lang", "de", "--to", "y", "--prefix", "--a b"]
    args = main.parser().parse_args(line)
    assert (args.source, args.language, args.prefix) == ("x", "de", "--a b")


ODD = ("²", "1_000", "١٢", "nan", "inf", "1e999", "", " 1", "0x10", "−1")
"""What Python's own `int`, `float` or `isdigit` take, or a browser copies, and no user means."""


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (types.positive, {"12": 12}, ("0", "-1", "1e3", "1.0", *ODD)),
        (types.count, {"0": 0, "12": 12}, ("-1", "1e3", "+1", *ODD)),
        (types.seed, {"0": 0, "2147483647": 2147483647}, ("-1", "2147483648", *ODD)),
        (types.whole, {"-1": -1, "3": 3}, ("--1", "1.0", *ODD)),
        (types.number, {"-1.5": -1.5, "1e-3": 1e-3, ".5": 0.5}, ("1.5.0", "e5", *ODD)),
        (types.not_negative, {"0": 0.0, "2.5": 2.5}, ("-1", "soon", *ODD)),
        (types.above_zero, {"0.1": 0.1}, ("0", "-1", *ODD)),
        (types.share, {"0": 0.0, "1": 1.0}, ("1.1", "-0.1", *ODD)),
        (types.layer, {"0": 0, "all": "all"}, ("-1", *ODD)),
        (types.at_most, {"1.5,10": (1.5, 10)}, ("1.5", "inf,10", "1.5,1_0", "1.5,²")),
    ],
)
def test_numbers_are_written_in_plain_digits(kind, good, bad):
    assert {text: kind(text) for text in good} == good
    for text in bad:
        with pytest.raises(argparse.ArgumentTypeError):
            kind(text)


def test_every_option_that_is_a_number_has_a_kind_of_this_project():
    """Python's own would take "1_000" and "nan"."""

    def options(parser):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for one in action.choices.values():
                    yield from options(one)
            yield action

    assert not [one.dest for one in options(main.parser()) if one.type in (int, float)]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("BATCH=1_000", "--gin.BATCH=1_000: write a finite number, in the digits 0 to 9 alone"),
        ("mlm.batch=1_0", "--gin.mlm.batch=1_0: write a finite number"),
        ("LEARNING_RATE=1e999", "write a finite number"),
        ("BATCH=²", "--gin.BATCH='²': a whole number is needed"),
        ("BATCH=١٢", "write a finite number"),
        ("MASK_RATE=nan", "--gin.MASK_RATE='nan': a number is needed"),
    ],
)
def test_numbers_of_settings_too(override, said):
    given = ["LANGUAGES=de en", "VOCABULARY_SIZE=80", override]
    with pytest.raises(UserError) as error:
        recipes.read_recipe(["xlm_tiny"], given)
    assert said in str(error.value)


def test_a_message_is_one_line_and_whole():
    """Ends of line in what was typed are shown, and what gin appends is not."""

    @gin.configurable(module="tests_of_usage")
    def fails():
        raise UserError("../x\ny: no such folder")

    with pytest.raises(UserError) as raised:
        fails()
    assert "In call to configurable" in str(raised.value)
    assert in_one_line(raised.value) == "../x\\ny: no such folder"
    assert in_one_line(UserError("a: b")) == "a: b"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mixture", "nope"], "error: --mixture nope: no benchmark (xtreme, "),
        (["--suite", "glue"], "error: no benchmark 'glue'"),
    ],
)
def test_a_benchmark_that_is_none_is_named_first(capsys, words, message):
    """Before what else is lacking."""
    assert main.main(["evaluate", "a-run", *words]) == 2
    assert capsys.readouterr().err.startswith(message)
