"""A value that a parameter does not declare, and a name that it does not have, are one line that
says where."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from xlingjax.config import gin_files
from xlingjax.config import recipe as recipes
from xlingjax.config.bindings import checked, fits, in_words
from xlingjax.config.model import model
from xlingjax.errors import SettingError, UserError
from xlingjax.model.config import preset
from xlingjax.training.optimizer import OptimizerConfig
from xlingjax.training.stages import of_last_stage, staged

MINE = """include "recipes/xlm_text.gin"
MONO = "text"
PARALLEL = "pairs"
VOCABULARY = "vocab"
VOCABULARY_SIZE = 400
LANGUAGES = "de en"
"""


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (3, int, ""),
        (3.0, int, "a whole number"),
        (True, int, "a whole number"),
        ("3", int, "a whole number"),
        (None, int, "a whole number"),
        (3, float, ""),
        (True, float, "a number"),
        (1, bool, "True or False"),
        (3, str, "a string in quotes"),
        (["a"], str, "a string in quotes"),
        (None, str | None, ""),
        ("a", Sequence[str], "a list of strings"),
        (("a", 3), Sequence[str], "a list of strings"),
        (("a", "b"), str | Sequence[str] | None, ""),
        ((1.5, 10), tuple[float, int], ""),
        ((1.5, 10, 3), tuple[float, int], "a list of 2: a number, a whole number"),
        ({"a": ["b"]}, Mapping[str, Sequence[str]], ""),
        ({"a": "b"}, Mapping[str, Sequence[str]], "{a string in quotes: a list of strings}"),
        (OptimizerConfig(), OptimizerConfig, ""),
        (OptimizerConfig(), int, "a whole number"),
        (print, Callable[[], int], ""),
        (3, Callable, "Callable (a reference, @NAME())"),
        ([1], Any, ""),
    ],
)
def test_what_is_needed(value, annotation, expected):
    assert fits(value, annotation) == (not expected)
    assert not expected or in_words(annotation) == expected


def test_stages_are_values_of_what_may_be_staged_alone():
    def rate(rate: float, weight: float) -> tuple:
        return rate, weight

    call = checked(staged(rate, keep=("weight",)))
    assert [*call(rate={0: 0.1, 10: {0: 0.2, 20: 0.3}}, weight=1)] == [0, 10, 20]
    with pytest.raises(SettingError, match="rate=.*: a number is needed"):
        call(rate={0: 0.1, 10: {10: 0.2, 20: "x"}}, weight=1)
    with pytest.raises(SettingError, match="weight=.*: a number is needed"):
        call(rate=0.1, weight={0: 0.1})
    assert checked(of_last_stage(rate))(rate=1, weight={0: 1, 9: 2}) == (1, 2)


def test_one_stage_is_none():
    def rate(rate: float, weight: float) -> tuple: return (rate, weight)  # fmt: skip

    one = staged(rate, keep=("weight",))(rate={0: {0: 0.1}}, weight={0: 2})
    assert one == (0.1, {0: 2})


def said(tmp_path, line, *overrides):
    file = tmp_path / "mine.gin"
    file.write_text(f"{MINE}{line}\n", encoding="utf-8")
    with pytest.raises(UserError) as error:
        recipes.read_recipe([str(file)], overrides)
    first, *_ = str(error.value).splitlines()
    return first.replace(str(file), "mine.gin")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'TRAIN_STEPS = "many"',
            "mine.gin, line 7: TRAIN_STEPS='many': a whole number is needed (train.steps)",
        ),
        (
            "TRAIN_STEPS = 1e4",
            "mine.gin, line 7: TRAIN_STEPS=10000.0: a whole number is needed (train.steps)",
        ),
        (
            "STEPS = 3.5\nTRAIN_STEPS = %STEPS",
            "mine.gin, line 7: STEPS=3.5: a whole number is needed (train.steps)",
        ),
        ("text.holdout = '5 %'", "mine.gin, line 7: text.holdout='5 %': a number is needed"),
        (
            "text.hodlout = 0.1",
            "mine.gin, line 7: 'text' has no parameter 'hodlout'; did you mean 'holdout'?",
        ),
        ("mlm.holdout = 0.1", "mine.gin, line 7: 'mlm' has no parameter 'holdout'"),
        ("mlm.text = @sampling()", "mlm.text=@sampling(): TextSource (a reference, @NAME"),
        ("text.stage = 5", "'text' has no parameter 'stage'"),
        (
            "model.dimm = 96",
            "mine.gin, line 7: 'model' has no parameter 'dimm'; did you mean 'dim'?",
        ),
        (
            "tlm/sampling.weights = {'de': 'x'}",
            "tlm/sampling.weights={'de': 'x'}: {a string in quotes: a number} or ",
        ),
        (
            "train.optimizer = @mesh()",
            "mine.gin, line 7: train.optimizer=@mesh(): OptimizerConfig (a reference, @NAME",
        ),
        (
            "train.objectives = @mlm()",
            "mine.gin, line 7: train.objectives=@mlm(): a list of ObjectiveRun ",
        ),
        ("train.objectives = [@camlm()]", "the recipe does not bind camlm.text"),
        ("A = %B\nB = %A\nTRAIN_STEPS = %A", "a macro is defined by itself: A = B = A"),
        (
            "train_steps = 5",
            "mine.gin, line 7: this recipe has no macro train_steps; did you mean 'TRAIN_STEPS'?",
        ),
        (
            "TRAIN_STEPS = many",
            "mine.gin, line 7: not gin syntax: a value is a number, True, False, ",
        ),
        ("import nowhere", "mine.gin, line 7: module nowhere cannot be imported"),
    ],
)
def test_a_line_of_ones_own_file(tmp_path, line, message):
    assert message in said(tmp_path, line)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("mlm.bogus=3", "--gin.mlm.bogus: 'mlm' has no parameter 'bogus'"),
        (
            "mlm.batchh=3",
            "--gin.mlm.batchh: 'mlm' has no parameter 'batchh'; did you mean 'batch'?",
        ),
        (
            "WARMUP_STEPS=many",
            "--gin.WARMUP_STEPS='many': a number is needed (optimizer.warmup_steps)",
        ),
        (
            "HELDOUT_PAIRS=2024",
            "--gin.HELDOUT_PAIRS=2024: a string in quotes or None is needed (",
        ),
        ("FROZEN=embeddings/", "--gin.FROZEN='embeddings/': a list of strings or "),
    ],
)
def test_an_override(tmp_path, override, message):
    assert message in said(tmp_path, "", override)


# Of several kinds: the dict is never meant, and each of the others by some.
WRONG = ("'x y'", "2.5", "None", "{None: [3]}")


def test_a_wrong_value_of_any_macro_is_one_line_and_never_a_traceback():
    text = "\n".join(part.text for part in gin_files.parts_of(["xlm_text"]))
    macros = sorted(set(re.findall(r"= %([A-Z][A-Z0-9_]*)", text)))
    assert len(macros) > 30
    refused = {macro: [value for value in WRONG if refuses(macro, value)] for macro in macros}
    assert all("{None: [3]}" in values for values in refused.values()), refused


def refuses(macro, value):
    given = ["MONO=text", "PARALLEL=pairs", "VOCABULARY=vocab", "LANGUAGES=de en"]
    try:
        recipes.read_recipe(["xlm_text"], [*given, "VOCABULARY_SIZE=400", f"{macro}={value}"])
    except UserError as error:
        assert len(str(error).splitlines()) == 1, error
        return f"--gin.{macro}=" in str(error) and str(error).endswith(")")
    return False


def test_a_configurable_of_gin_alone_is_read(tmp_path, monkeypatch):
    """gin's own decorator does not say which types a function takes."""
    module = "import gin\n\n\n@gin.configurable\ndef of_gin_alone(scale=1.0):\n    return scale\n"
    (tmp_path / "parts_of_gin.py").write_text(module)
    recipe = tmp_path / "mine.gin"
    recipe.write_text(
        'import parts_of_gin\ninclude "recipes/xlm_tiny.gin"\nof_gin_alone.scale = 2.0\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    recipes.parse_gin([str(recipe)], ())
    assert recipes.build("of_gin_alone") == 2.0


def test_the_name_of_a_preset_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mini").mkdir()
    (tmp_path / "mini/run.json").write_text("{}")
    assert model("mini", vocab_size=400) == preset("mini", vocab_size=400)
