"""Which lines are held out: those of long files for ever the same, those of short files
together."""

import numpy as np
import pytest

from tests.helpers.files import write
from tests.helpers.records import pair_records, text_records
from xlingjax.data.holdout import BLOCK, held_out, held_out_of
from xlingjax.data.text.sources import find_pairs, find_text
from xlingjax.errors import UserError
from xlingjax.workflows.adapt.held_out import write_heldout

pytestmark = pytest.mark.usefixtures("own_cache")


def test_whole_blocks_of_the_asked_share():
    mask = held_out(32 * 100 + 5, 0.1)
    blocks = mask[:3200].reshape(100, 32)
    assert set(blocks.sum(axis=1)) == {0, 32} and blocks[:, 0].sum() == 10
    assert not held_out(1000, 0).any()
    assert held_out(32 * 3, 0.5)[::32].tolist() == [False, True, False]
    with pytest.raises(UserError, match="held-out share"):
        held_out(10, 1.0)


def made(folder, counts, language="en", name="{:04}.txt"):
    """Texts of so many lines, each line its own; the last file first."""
    for i, count in reversed([*enumerate(counts)]):
        lines = "".join(f"{i} {line}.\n" for line in range(count))
        write(folder / language / name.format(i), lines)
    return find_text(str(folder / language))


def test_the_lines_of_long_files_are_those_of_every_version(tmp_path):
    """Figures rest on them. Short files beside long ones that give their share are trained on
    alone."""
    files = made(tmp_path, (8056, 1689, 827, 1809))  # those of docs/results.md
    masks = held_out_of(files, (8056, 1689, 827, 1809), 200 / 11960)
    assert np.flatnonzero(np.diff(masks[0], prepend=False, append=False)).tolist() == [
        1888, 1920, 3808, 3840, 5728, 5760, 7648, 7680,
    ]  # fmt: skip
    assert not any(mask.any() for mask in masks[1:])
    (mask,) = held_out_of(files[:1], [289], 0.1)
    assert np.flatnonzero(mask).tolist() == [288]
    (mask,) = held_out_of(files[:1], [288], 0.1)
    assert not mask.any()


@pytest.mark.parametrize(("files", "lines"), [(200, 40), (500, 7), (40, 200), (8, 1000), (300, 1)])
def test_of_short_files_the_share_is_taken_together(files, lines, tmp_path):
    texts = made(tmp_path, [1] * files)
    share = min(0.1, 200 / (files * lines))
    masks = held_out_of(texts, [lines] * files, share)
    total, part = sum(mask.sum() for mask in masks), lines / max(1, round(lines / BLOCK))
    assert abs(total - share * files * lines) <= part + 1 and total > 0
    if lines <= BLOCK * 1.5:
        assert all(mask.all() or not mask.any() for mask in masks)
    again = held_out_of(texts[::-1], [lines] * files, share)[::-1]
    assert all(np.array_equal(a, b) for a, b in zip(masks, again, strict=True))


def test_short_files_beside_one_long_one_count_too(tmp_path):
    texts = made(tmp_path, [1] * 101)
    counts = [1000, *[40] * 100]
    masks = held_out_of(texts, counts, 0.1)
    np.testing.assert_array_equal(masks[0], held_out(1000, 0.1))
    assert sum(mask.sum() for mask in masks[1:]) == 10 * 40


def test_a_pair_and_its_sides_as_text_lose_the_same_lines(tmp_path, vocabulary):
    """Beside other pairs and other text of the same language."""
    for i in range(40):
        for pair in ("de-en", "en-fr"):
            for code in pair.split("-"):
                lines = "".join(f"{code} {pair} {i} {line}\n" for line in range(20 + i))
                write(tmp_path / "pairs" / f"{i % 3}" / f"{i}.{pair}.{code}", lines)
        write(tmp_path / "pairs" / "en" / f"{i}.txt", f"en alone {i}\n" * 30)
    pairs = find_pairs(str(tmp_path / "pairs/[0-9]"))
    pairs = [pair for pair in pairs if pair.languages == ("de", "en")]
    share = {"text": 0.1, "pairs": 0.1}
    patterns = [str(tmp_path / "pairs")]
    write_heldout(patterns, [str(tmp_path / "pairs/[0-9]")], share, tmp_path / "held")
    text, of_pairs = (
        (tmp_path / "held" / name).read_text().splitlines()
        for name in ("text/en.txt", "pairs/de-en.en")
    )
    assert of_pairs and {line for line in text if " de-en " in line} == {*of_pairs}
    # ... and training reads the others.
    english = [text for text in find_text(patterns) if text.language == "en"]
    whole = sum(len([*text.lines()]) for text in english)
    train, held = (text_records(english, vocabulary, 0.1, held=h) for h in (False, True))
    assert train.sides[0].sentences + held.sides[0].sentences == whole
    assert held.sides[0].sentences == len(text)
    train, held = (pair_records(pairs, vocabulary, 0.1, held=h) for h in (False, True))
    whole = sum(20 + i for i in range(40))
    assert held.sides[0].sentences == len(of_pairs) == whole - train.sides[0].sentences
    first = [int(n) for n in vocabulary.encode(of_pairs[0])]
    assert held.sides[1].ids[: len(first)].tolist() == first
