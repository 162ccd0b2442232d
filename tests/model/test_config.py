import pytest

from xlingjax.errors import UserError
from xlingjax.model.build import count_parameters
from xlingjax.model.config import PRESETS, preset


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("xlm_15", 249.1),
        ("xlm_17", 571.7),
        ("xlm_100", 571.7),
        ("xlmr_base", 278.3),
        ("xlmr_large", 560.1),
        ("xfnp", 616.1),
        ("modernbert_base", 149.7),
        ("mmbert_base", 307.8),
        ("mmbert_small", 140.9),
        ("eurobert_210m", 310.3),
    ],  # fmt: skip
)
def test_presets_have_the_published_number_of_parameters(name, millions):
    assert round(count_parameters(PRESETS[name]) / 1e6, 1) == millions


def test_rows_that_only_fill_the_table_are_not_counted():
    config = preset("tiny", vocab_size=1001, vocab_multiple=1)
    assert count_parameters(config.replace(vocab_multiple=128)) == count_parameters(config)


def test_vocabulary_rows_are_padded():
    assert PRESETS["xlmr_base"].padded_vocab_size == 250_112
    assert preset("tiny", vocab_size=256, vocab_multiple=128).padded_vocab_size == 256


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (dict(heads=5), "heads=5 does not divide dim=192"),
        (
            dict(attention_backend="sdpa"),
            "attention_backend='sdpa': 'xla', 'chunked' or 'flash' is needed",
        ),
        (dict(dropout=1.0), "dropout=1.0: a number from 0 to below 1 is needed"),
        (dict(layers=-1), "layers=-1: a number from 0 to 4096"),
        (dict(position_offset=512), "max_positions=512 leaves no row"),
        (dict(activation="fast"), "activation='fast': 'gelu'"),
        (dict(streams=2), "set decoder_layers"),
        (dict(task_labels={"a/b": 2}), "task 'a/b': a task is a word"),
        (dict(task_labels=(("a", 2), ("a", 3))), "name each task once"),
    ],
)
def test_values_that_do_not_fit_are_refused_in_one_line(overrides, message):
    with pytest.raises(UserError, match=message) as error:
        preset("tiny", **overrides)
    assert "\n" not in str(error.value)


def test_unknown_preset_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'xlmr_base'"):
        preset("xlm_r_base")
