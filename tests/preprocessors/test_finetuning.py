import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.errors import UserError
from xlingjax.preprocessors import finetuning as ft


def truncate_token_by_token(first, second, budget):
    """The loop that the closed form stands for."""
    while first + second > budget:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


def pair_row(first, second, vocabulary, length, reset_positions=False):
    """One row of pieces; second: None: a single text."""
    texts = ft.joined([first]), ft.joined([second or []])
    rows = ft.pair_rows(*texts, vocabulary, length, reset_positions, single=second is None)
    return {name: values[0] for name, values in rows.items()}


def test_truncation_takes_from_the_longer_side():
    lengths = [(first, second) for first in range(12) for second in range(12)]
    vocabulary = toy.ToyVocabulary()
    texts = [ft.joined([[20 + side] * pair[side] for pair in lengths]) for side in (0, 1)]
    for budget in range(2, 14):
        ids = ft.pair_rows(*texts, vocabulary, budget + 3)["input_ids"]
        kept = [((row == 20).sum(), (row == 21).sum()) for row in ids]
        assert kept == [truncate_token_by_token(*pair, budget) for pair in lengths]


def test_long_pairs_and_single_texts():
    vocabulary = toy.ToyVocabulary()
    row = pair_row([*range(20, 30)], [31, 32], vocabulary, 8)
    assert row["input_ids"].tolist() == [1, 20, 21, 22, 1, 31, 32, 1]
    row = pair_row([20, 21, 22], None, vocabulary, 4)
    assert row["input_ids"].tolist() == [1, 20, 21, 1] and not row["sides"].any()
    with pytest.raises(
        UserError, match="length 4 leaves no room for a pair between 3 separators: use at least 5"
    ):
        pair_row([20], [21], vocabulary, 4)


def by_hand(first, second, vocabulary, length, reset):
    """One row, token by token."""
    bos, eos = vocabulary.bos_id, vocabulary.eos_id
    between = [] if second is None or (vocabulary.layout == "xlm" and not reset) else [eos]
    ends = 2 if second is None else 3 + len(between)
    a, b = truncate_token_by_token(len(first), len(second or ()), length - ends)
    ids = [bos, *first[:a], eos]
    turn = len(ids)
    if second is not None:
        ids += [*between, *second[:b], eos]
    used = len(ids)
    positions = [*range(turn), *(range(used - turn) if reset else range(turn, used))]
    pads = [0] * (length - used)
    return {
        "input_ids": ids + [vocabulary.pad_id] * len(pads),
        "position_ids": positions + pads,
        "pack_ids": [1] * used + pads,
        "sides": [0] * turn + [1] * (used - turn) + pads,
    }


@pytest.mark.parametrize("layout", ["xlm", "xlmr"])
@pytest.mark.parametrize("reset", [False, True])
def test_all_rows_of_a_file_are_those_of_its_examples_one_by_one(layout, reset):
    vocabulary = toy.ToyVocabulary(layout)
    texts = ["", "a", "a b c d e f g"]
    examples = [ft.Example(a, b, "x") for a in texts for b in (*texts, None)]
    for length in (6, 7, 12):
        made = ft.classification_rows(examples, vocabulary, length, ("y", "x"), 2, reset)
        for row, one in enumerate(examples):
            second = None if one.hypothesis is None else vocabulary.encode(one.hypothesis)
            first = vocabulary.encode(one.premise)
            for name, values in by_hand(first, second, vocabulary, length, reset).items():
                np.testing.assert_array_equal(made[name][row], values, err_msg=name)
        np.testing.assert_array_equal(made["language_ids"], 2 * made["pack_ids"])
        assert made["labels"].tolist() == [1] * len(examples) and made["example_weights"].all()


def test_a_single_text_and_a_text_without_a_label():
    vocabulary = toy.ToyVocabulary()
    examples = [
        ft.Example("a b", "c", "neutral"),
        ft.Example("a b c", None, "entailment"),
        ft.Example("d", None, None),
    ]
    rows = ft.classification_rows(
        examples, vocabulary, 8, ("contradiction", "entailment", "neutral"), 1
    )
    assert (
        rows["input_ids"][1].tolist() == [1, 14, 15, 16, 1, 2, 2, 2] and not rows["sides"][1:].any()
    )
    assert rows["labels"].tolist() == [2, 1, 0] and rows["example_weights"].tolist() == [1, 1, 0]
