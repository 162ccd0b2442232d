"""Durations in tokens: the updates that read them."""

import pytest

from xlingjax.config.durations import Clock, is_duration, tokens_of
from xlingjax.config.recipe import bindings
from xlingjax.errors import UserError


def test_numbers_of_tokens():
    assert [
        tokens_of(text) for text in ("1.5B tokens", "600 B tokens", "7K tokens", "30 tokens")
    ] == [
        1_500_000_000,
        600_000_000_000,
        7000,
        30,
    ]
    assert not any(
        map(is_duration, (3, 0.1, None, "tokens", "3B", "B tokens", "-3B tokens", ["3 tokens"]))
    )


def test_an_update_is_the_first_that_has_read_so_many_tokens():
    clock = Clock(8, 64)  # 512 an update
    assert [clock.update(f"{n} tokens") for n in (0, 1, 512, 513, 1024)] == [0, 1, 1, 2, 2]
    assert clock.updates({0: 0.3, "1K tokens": 0.1, 7: 0.2}) == {0: 0.3, 2: 0.1, 7: 0.2}
    assert clock.update(0.1) == 0.1


def test_batches_grow_and_rows_lengthen():
    # 10 updates of 100 tokens, 5 of 200, then 800; rows are longer from update 20 on.
    clock = Clock({0: 10, "1K tokens": 20, "2K tokens": 80}, {0: 10, 20: 40})
    assert clock.spans == [(0, 0, 100), (10, 1000, 200), (15, 2000, 800), (20, 6000, 3200)]
    assert clock.update("6K tokens") == 20
    assert clock.update("12.4K tokens") == 22
    # The last 7,200 tokens before update 22: two of 3,200 and one of 800.
    assert clock.last("7.2K tokens", 22) == 3
    assert clock.last("1T tokens", 22) == 22


RECIPE = ["gin/recipes/mmbert_tiny.gin"]


def test_a_recipe_counts_in_tokens():
    read = bindings(
        RECIPE,
        [
            "BATCH={0: 8, '25K tokens': 16}",
            "TRAIN_STEPS='300K tokens'",
            "WARMUP_STEPS='12.8K tokens'",
            "DECAY_STEPS='51200 tokens'",
            "MASK_RATE={0: 0.3, '100K tokens': 0.1}",
        ],
    )
    # 49 updates of 512 tokens reach 25,000 (25,088); each then reads 1,024.
    assert read["BATCH"] == "{0: 8, 49: 16}"
    assert read["TRAIN_STEPS"] == str(49 + 269)
    assert read["WARMUP_STEPS"] == "25"
    assert read["DECAY_STEPS"] == "50"
    assert read["MASK_RATE"] == f"{{0: 0.3, {49 + 74}: 0.1}}"


@pytest.mark.parametrize(
    ("recipe", "settings", "told"),
    [
        (
            "mmbert_tiny",
            ["BATCH={1: 8}", "TRAIN_STEPS='3K tokens'"],
            "BATCH={1: 8}: to count tokens",
        ),
        (
            "mmbert_tiny",
            ["LEARNING_RATE='3K tokens'"],
            "LEARNING_RATE='3K tokens': a number is needed",
        ),
    ],
)
def test_what_cannot_be_counted_is_told(recipe, settings, told):
    with pytest.raises(UserError, match=told):
        bindings([f"gin/recipes/{recipe}.gin"], settings)


def test_a_file_without_batch_and_length(tmp_path):
    file = tmp_path / "own.gin"
    file.write_text("TRAIN_STEPS = '3K tokens'\ntrain.steps = %TRAIN_STEPS\n")
    told = "own.gin, line 1: TRAIN_STEPS='3K tokens': this recipe has no BATCH to count"
    with pytest.raises(UserError, match=told):
        bindings([str(file)], [])
