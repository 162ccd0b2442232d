"""Wrong partners: near, never right, and found again without working twice."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from xlingjax.cli import main
from xlingjax.data.text.sources import find_negatives
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.inference import nearest
from xlingjax.inference.negatives import NegativesConfig, write_negatives
from xlingjax.inference.search import unit_rows
from xlingjax.inference.wrong_partners import choose, normalised
from xlingjax.runtime.shutdown import Shutdown

WORDS = [
    "dog",
    "cat",
    "house",
    "river",
    "bread",
    "green",
    "old",
    "sees",
    "eats",
    "finds",
    "slow",
    "bird",
]
OTHER = [
    "hund",
    "katze",
    "haus",
    "fluss",
    "brot",
    "gruen",
    "alt",
    "sieht",
    "isst",
    "findet",
    "langsam",
    "vogel",
]


def sentences(count, seed=0):
    rng = np.random.default_rng(seed)
    picks = [rng.choice(len(WORDS), rng.integers(3, 6), replace=False) for _ in range(count)]
    return [" ".join(WORDS[i] for i in p) for p in picks], [
        " ".join(OTHER[i] for i in p) for p in picks
    ]


def test_texts_that_differ_in_case_and_punctuation_alone_say_the_same():
    assert (
        normalised("The dog, sleeps!")
        == normalised("the DOG sleeps")
        != normalised("the dog slept")
    )
    assert normalised("他睡了。") == "他睡了"


def test_negatives_are_near_and_never_right():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(200, 8)).astype(np.float32)
    second = first + 0.3 * rng.normal(size=first.shape).astype(np.float32)
    english = [
        f"s {i // 2}" for i in range(200)
    ]  # each sentence stands twice, with another translation
    german = [f"t {i % 150}!" for i in range(200)]
    german[7] = german[6].upper()
    found = [*choose([english, german], [first, second], NegativesConfig(k=3, random_share=0.2))]
    assert len(found) == 200 and {kind for *_, kind in found} == {"hard", "random"}
    for i, (j, similarity, _) in enumerate(found):
        right = {normalised(german[n]) for n in (i // 2 * 2, i // 2 * 2 + 1)}
        assert j >= 0 and normalised(german[j]) not in right
        assert similarity == pytest.approx(
            float(unit_rows(first)[i] @ unit_rows(second)[j]), abs=1e-5
        )
    hard, other = ([s for _, s, kind in found if kind == k] for k in ("hard", "random"))
    assert np.mean(hard) > np.mean(other) + 0.3
    assert 20 <= len(other) <= 60
    assert len({j for j, *_ in found}) > 60


def test_a_sentence_without_any_wrong_partner_has_none():
    vectors = np.eye(4, dtype=np.float32)
    found = choose(
        [["a", "b", "c", "d"], ["x", "x", "X", "x."]], [vectors, vectors], NegativesConfig(k=2)
    )
    assert [*found] == [(-1, 0.0, "")] * 4


def test_the_nearest_wrong_ones_are_found_behind_many_right_or_equal_ones():
    """Line j is nearer to every sentence than line j + 1, and one of k = 3 is drawn."""
    count = 80
    second = np.stack(
        [np.cos(np.arange(count) / 100), np.sin(np.arange(count) / 100)], axis=1
    ).astype(np.float32)
    first = np.tile(np.float32([1, 0]), (count, 1))
    english = ["yes"] * 50 + [f"s {i}" for i in range(50, count)]
    german = [f"ja {j}" for j in range(50)] + ["Nein."] * 20 + [f"t {j}" for j in range(70, count)]
    nearest: dict[int, set[int]] = {0: set(), 60: set(), 79: set()}
    for seed in range(30):
        found = [
            *choose(
                [english, german], [first, second], NegativesConfig(k=3, random_share=0, seed=seed)
            )
        ]
        for i, of in nearest.items():
            of.add(found[i][0])
    # "yes" has 50 translations; "nein" stands 20 times, and counts once.
    assert nearest == {0: {50, 70, 71}, 60: {0, 1, 2}, 79: {0, 1, 2}}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    english, german = sentences(120)
    (folder / "de-en.en").write_text("\n".join([*english[:60], "", *english[60:]]) + "\n")
    (folder / "de-en.de").write_text("\n".join([*german[:60], "", *german[60:]]) + "\n")
    from xlingjax.data.vocabulary.training import train_vocabulary

    train_vocabulary(
        folder / "vocab",
        parallel=str(folder / "de-en.*"),
        size=55,
        threads=1,
        character_coverage=1.0,
    )
    return folder


@pytest.mark.long
def test_a_table_is_written_once_and_every_stage_is_kept(pairs, tmp_path, monkeypatch):
    config = NegativesConfig(steps=60, batch=32, length=32, dim=32, width=32, k=3)
    vocabulary, told = Vocabulary.load(pairs / "vocab"), []

    def run(config=config):
        told.clear()
        return write_negatives(
            [str(pairs / "de-en.*")], vocabulary, tmp_path, config, say=told.append
        )

    (table,) = run()
    lines = [line.split("\t") for line in table.read_text().splitlines()]
    assert table.name == "en-de.tsv" and lines[0] == ["en", "de", "negative", "similarity", "kind"]
    english, german = sentences(120)
    right = dict(zip(english, german, strict=True))
    assert len(lines) == 121
    for x, y, wrong, similarity, kind in lines[1:]:
        assert right[x] == y != wrong and wrong in german and kind in ("hard", "random")
        assert -1 <= float(similarity) <= 1
    shared = [
        len({*y.split()} & {*wrong.split()}) for _, y, wrong, _, kind in lines[1:] if kind == "hard"
    ]
    rng = np.random.default_rng(0)
    chance = [len({*a.split()} & {*german[rng.integers(120)].split()}) for a in german]
    assert np.mean(shared) > np.mean(chance) + 0.5  # they look like the translation

    written = table.read_bytes()
    run()
    assert told == [f"{table}: finished before"]
    table.unlink()
    run()
    assert table.read_bytes() == written and not any("vectors" in line for line in told)
    for retrieval in (
        replace(config, k=5),
        replace(config, random_share=1.0),
    ):  # the network is the same
        run(retrieval)
        assert table.read_bytes() != written and not any("vectors" in line for line in told)
        run()
        assert table.read_bytes() == written
    run(replace(config, seed=1))
    assert any("vectors" in line for line in told)

    move = Path.replace

    def last(path, target):
        if move(path, target) == table:
            raise KeyboardInterrupt

    with (
        monkeypatch.context() as patch,
        pytest.raises(KeyboardInterrupt),
    ):  # written, and no more than that
        patch.setattr(Path, "replace", last)
        run()
    for again in (replace(config, seed=1), config):
        run(again)
        assert told != [f"{table}: finished before"] and (table.read_bytes() == written) == (
            again == config
        )
    (triple,) = find_negatives([str(table)])
    assert triple.languages == ("en", "de", "de") and len(list(triple.lines())) == 120


@pytest.mark.long
def test_asked_to_stop_it_writes_no_table_and_the_same_command_goes_on(
    pairs, tmp_path, monkeypatch
):
    for code, lines in zip(("en", "fr"), sentences(30), strict=True):
        (tmp_path / f"en-fr.{code}").write_text("\n".join(lines) + "\n")
    parallel = [str(pairs / "de-en.*"), str(tmp_path / "en-fr.*")]
    output = tmp_path / "out"
    argv = [
        "mine",
        "--negatives",
        "--parallel",
        *parallel,
        "--vocabulary",
        str(pairs / "vocab"),
        "--steps",
        "4",
    ]
    argv += ["--to", str(output)]
    reached = Shutdown.reached

    def terminated(self, step):
        if step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return reached(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(Shutdown, "reached", terminated)
        assert main.main(argv) == 75
    (run,) = output.glob(
        "dan/*/*"
    )  # of one pair of languages: no other was begun, nor a stamp written
    assert (run.parent.name, (run / "vectors").exists()) == ("en-de", False)
    assert [path.name for path in output.iterdir()] == ["dan"]
    assert main.main(argv) == 0
    assert [s["step"] for s in json.loads((run / "run.json").read_text())["sessions"]] == [0, 2]
    assert json.loads((run / "result.json").read_text())["steps"] == 4
    assert [len(path.read_text().splitlines()) for path in sorted(output.glob("*.tsv"))] == [
        121,
        31,
    ]


@pytest.mark.long
def test_all_lists_choose_as_exact_search_does_and_the_record_says_so(pairs, tmp_path, monkeypatch):
    """Over disk in small blocks; the network and the vectors are those of the exact table."""
    config = NegativesConfig(steps=20, batch=32, length=32, dim=32, width=32, k=3)
    told: list[str] = []

    def run(config):
        told.clear()
        (table,) = write_negatives(
            [str(pairs / "de-en.*")],
            Vocabulary.load(pairs / "vocab"),
            tmp_path,
            config,
            say=told.append,
        )
        record = json.loads((tmp_path / "dan/en-de/finished.json").read_text())
        return table.read_bytes(), record["made"]["search"]

    expected, search = run(config)
    assert search == {"kind": "exact"} and "exact search" in told[-1]
    monkeypatch.setattr(nearest, "BLOCK_BYTES", 1)  # rounded up to what exact search takes at once
    monkeypatch.setattr(nearest, "QUERIES", 50)
    found, search = run(replace(config, search="ivf", lists=9, probes=9))
    # Sentences of the same words in another order are as near, but for the last bit.
    of_both = [
        [line.split(b"\t") for line in table.splitlines()[1:]] for table in (expected, found)
    ]
    assert len(of_both[0]) == 120
    for ours, theirs in zip(*of_both, strict=True):
        assert ours[:2] == theirs[:2] and ours[4] == theirs[4]
        assert sorted(ours[2].split()) == sorted(theirs[2].split())
        assert float(ours[3]) == pytest.approx(float(theirs[3]), abs=2e-4)
    assert (search["kind"], search["lists"], search["probes"]) == ("ivf", 9, 9)
    assert "approximate search (ivf, 9 of 9 lists)" in told[-1]
    few, _ = run(replace(config, search="ivf", lists=9, probes=1))
    assert few != expected
    assert not any("encoded" in line for line in told)
