"""Text in blocks: what a run of one block reads, one of many blocks reads too."""

import contextlib
import functools
import hashlib
import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.files import write
from tests.helpers.hosts import as_host
from tests.helpers.records import pair_records
from tests.helpers.records import whole as records_of
from xlingjax.data import content_hashes
from xlingjax.data.batches.loader import BatchSettings, file_batches
from xlingjax.data.content_hashes import content_hash
from xlingjax.data.rows import plan as planned
from xlingjax.data.rows.plan import RowPlan
from xlingjax.data.sampling import Sampling
from xlingjax.data.store import tokenise
from xlingjax.data.store.entries import cache_root
from xlingjax.data.store.tokenise import text_blocks
from xlingjax.data.text.sources import find_pairs, find_text
from xlingjax.data.text.texts import Text
from xlingjax.errors import UserError
from xlingjax.preprocessors.unicoder import ClpcFeatures, ClwrFeatures
from xlingjax.preprocessors.xlm import MlmFeatures, TlmFeatures

pytestmark = pytest.mark.usefixtures("own_cache")
WORDS = ["Hund", "Katze", "Haus", "Milch", "Buch", "Fluss", "Garten", "Regen", "Sonne", "Zug"]


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(tokenise, "SHARD_LINES", 40)
    # Plans are kept on disk, as those of large texts are.
    monkeypatch.setattr(planned, "FEW_LINES", 1)


def sentences(count, seed=0, blank=7):
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(count):
        words = [str(i), *rng.choice(WORDS, rng.integers(1, 6))]
        lines.append("" if blank and i % blank == blank - 1 else " ".join(words))
    return lines


def text_file(path, lines):
    return write(path, "".join(f"{line}\n" for line in lines))


@pytest.fixture
def pair_files(tmp_path):
    """230 pairs in two files of 130 and 100 lines."""
    for name, count, seed in (("a", 130, 0), ("b", 100, 5)):
        for code, turn in (("de", 1), ("en", -1)):
            lines = [" ".join(line.split()[::turn]) for line in sentences(count, seed)]
            text_file(tmp_path / f"{name}.de-en.{code}", lines)
    return str(tmp_path / "*.de-en.de")


def spelled(vocabulary, lines):
    """The ids of lines as SentencePiece has them, each ended."""
    ids = []
    for line in lines:
        if line:
            ids += [*vocabulary.encode(line), vocabulary.eos_id]
    return ids


def test_blocks_hold_every_line_once_in_order(tmp_path, vocabulary, small_shards):
    """Of a file longer than a shard, of short ones together, and of both."""
    files = {"long": sentences(130), "s1": sentences(9, 1), "s2": sentences(9, 2)}
    for name, lines in files.items():
        text_file(tmp_path / f"{name}.de.txt", lines)
    text = text_blocks(find_text(str(tmp_path / "*.txt")), vocabulary)
    # 130 lines are shards of 40, 40, 40, 10; the last shares a block with the short files.
    assert [block.lines for block in text.blocks] == [40, 40, 40, 30]
    (side,) = records_of(text).sides
    everything = list(itertools.chain(*files.values()))
    assert side.ids.tolist() == spelled(vocabulary, everything)
    lengths = [len(spelled(vocabulary, [line])) for line in files["long"]]
    # A document ends with its file and with nothing else: shards do not part documents.
    assert side.lengths.tolist()[:131] == [*lengths, 0]
    assert text.counts()[vocabulary.eos_id] == text.sentences[0] == side.sentences
    assert text.counts().sum() == side.ids.size


def test_pairs_stay_aligned_and_held_out_lines_are_those_of_one_block(
    pair_files, vocabulary, monkeypatch
):
    pairs = find_pairs(pair_files)
    whole = {held: pair_records(pairs, vocabulary, 0.3, held) for held in (False, True)}
    monkeypatch.setattr(tokenise, "SHARD_LINES", 40)
    for held in (False, True):
        text = text_blocks(pairs, vocabulary, 0.3, held)
        assert len(text.blocks) > (not held)
        for one, other in zip(records_of(text).sides, whole[held].sides, strict=True):
            assert one.ids.tolist() == other.ids.tolist()
            # Shards share blocks with lines of one file alone: breaks stand where files end.
            assert one.lengths.tolist() == other.lengths.tolist()


def test_opening_again_reads_no_token(pair_files, vocabulary, small_shards, monkeypatch):
    pairs = find_pairs(pair_files)
    plan = RowPlan(TlmFeatures(), 48, vocabulary)
    first = plan.open(text_blocks(pairs, vocabulary))

    def fail(*_):
        raise AssertionError("opened a shard")

    monkeypatch.setattr(tokenise, "read_shard", fail)
    monkeypatch.setattr(tokenise, "do", fail)
    again = plan.open(text_blocks(pairs, vocabulary))
    assert again.counts.tolist() == first.counts.tolist() and first.counts.size > 4
    assert again.sizes == first.sizes
    # Another option is another plan.
    with pytest.raises(AssertionError, match="opened a shard"):
        RowPlan(TlmFeatures(both_orders=False), 48, vocabulary).open(text_blocks(pairs, vocabulary))
    # And so is other code.
    monkeypatch.setattr(planned, "code_hash", lambda _: "other")
    with pytest.raises(AssertionError, match="opened a shard"):
        plan.open(text_blocks(pairs, vocabulary))


@pytest.mark.parametrize(
    "features",
    [MlmFeatures(), pytest.param(ClpcFeatures(), marks=pytest.mark.long)],
    ids=lambda f: f.name,
)
def test_batches_of_many_blocks_resume_and_do_not_depend_on_shards(
    tmp_path, pair_files, vocabulary, small_shards, features
):
    mono = str(text_file(tmp_path / "mono.de.txt", sentences(400, 3)))

    def source(**given):
        settings = BatchSettings(seed=3, languages=("de", "en"), **given)
        files = dict(mono=mono, parallel=pair_files)
        return file_batches(features, vocabulary, 8, 48, settings, **files)

    whole = source()
    batches = [whole.next() for _ in range(40)]
    half = source()
    for _ in range(17):
        half.next()
    resumed = source()
    resumed.restore(half.state())
    parts = []
    for number in range(4):
        with as_host(number, 4):
            parts.append(source(data_shards=4))
    for step, batch in enumerate(batches):
        again = resumed.next() if step >= 17 else batch
        rows = [part.next() for part in parts]
        for name, value in batch.items():
            np.testing.assert_array_equal(again[name], value)
            joined = np.concatenate([row[name] for row in rows])
            np.testing.assert_array_equal(joined, value)


def next_or_none(source):
    with contextlib.suppress(StopIteration):
        return source.next()


def test_a_pass_over_many_blocks_reads_every_pair_once(pair_files, vocabulary, small_shards):
    features = ClwrFeatures(packing=False)
    settings = BatchSettings(epochs=1, sampling=Sampling(same_language=False))
    source = file_batches(features, vocabulary, 8, 96, settings, parallel=pair_files)
    found = []
    for batch in iter(functools.partial(next_or_none, source), None):
        rows = zip(batch["input_ids"], batch["sides"], batch["pack_ids"], strict=True)
        for ids, sides, packs in rows:
            if packs.any():
                of_side = [ids[(packs > 0) & (sides == side)].tolist() for side in (0, 1)]
                # `</s> x </s>`, each side begun by the end before it.
                assert all(one[0] == one[-1] == vocabulary.eos_id for one in of_side)
                found.append(tuple(tuple(one[1:]) for one in of_side))
    wanted = []
    for pair in find_pairs(pair_files):
        for first, second in pair.lines():
            if first:
                both = tuple(tuple(spelled(vocabulary, [line])) for line in (first, second))
                wanted.append(both)
    assert sorted(found) == sorted(wanted) and len(wanted) > 150


@pytest.mark.long
def test_processes_write_the_bytes_of_one_and_go_on_where_they_were_killed(
    tmp_path, vocabulary, vocabulary_folder, monkeypatch
):
    lines = [f"{i} Hund" for i in range(2 * tokenise.SHARD_LINES + 11)]
    path = text_file(tmp_path / "de.txt", lines)
    (one,) = tokenise.tokenise([Text(path, "de")], vocabulary, processes=1)
    assert [*one.lines] == [tokenise.SHARD_LINES] * 2 + [11]
    written = {path: path.read_bytes() for path in cache_root().rglob("*.npy")}
    # As a run leaves it that was killed: one shard, half of another, no index.
    shutil.rmtree(cache_root() / "texts")
    kept, half, lost = (cache_root() / "tokens" / name for name in one.shards)
    half.rename(half.with_name(f"{half.name}.partial"))
    shutil.rmtree(lost)
    before = (kept / "ids.npy").stat().st_mtime_ns
    monkeypatch.setattr(tokenise, "FEW_BYTES", 0)
    (again,) = tokenise.tokenise([Text(path, "de")], vocabulary, processes=2)
    assert again == one and (kept / "ids.npy").stat().st_mtime_ns == before
    assert {path: path.read_bytes() for path in cache_root().rglob("*.npy")} == written


def test_a_fault_of_a_part_names_its_line(tmp_path, vocabulary, monkeypatch):
    good = "".join(f"{i} Hund\n" for i in range(tokenise.SHARD_LINES + 3)).encode()
    path = write(tmp_path / "de.txt", good + b"schl\xe4ft\n")
    monkeypatch.setattr(tokenise, "FEW_BYTES", 0)
    line = tokenise.SHARD_LINES + 4
    with pytest.raises(UserError, match=f"de.txt, line {line}: invalid UTF-8"):
        tokenise.tokenise([Text(path, "de")], vocabulary, processes=2)


def test_hashes_are_remembered_from_run_to_run(tmp_path, monkeypatch):
    path = write(tmp_path / "de.txt", "a" * 70000)
    monkeypatch.setattr(content_hashes, "SETTLED_SECONDS", -1)
    made = content_hash(path)
    assert made == hashlib.sha256(b"a" * 70000).hexdigest()
    content_hashes._remembered.cache_clear()
    # What else its file may hold is passed over.
    remembered = Path(content_hashes._file())
    for line in (b"5", b"[[1],2]", b"\xff\xfe", b'["x"', b"{}"):
        remembered.write_bytes(line + b"\n" + remembered.read_bytes())
    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
        assert content_hash(path) == made
    content_hashes._remembered.cache_clear()
