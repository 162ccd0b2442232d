"""Whole sources over the hand-written corpus: contents, sampling, position, shards."""

import contextlib
import json

import numpy as np
import pytest

from tests.helpers.batches import check_batch
from tests.helpers.hosts import as_host
from tests.helpers.text import file_source
from xlingjax.data.batches.loader import BatchSource
from xlingjax.data.features import batch_hash
from xlingjax.data.sampling import Sampling
from xlingjax.errors import UserError
from xlingjax.preprocessors.ernie_m import BtmlmFeatures, CamlmFeatures
from xlingjax.preprocessors.unicoder import ClMlmFeatures, ClpcFeatures, ClwrFeatures
from xlingjax.preprocessors.veco import VecoFeatures, VecoTextFeatures
from xlingjax.preprocessors.xlm import ClmFeatures, Masking, MlmFeatures, TlmFeatures


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLINGJAX_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def open_source(corpus, vocabulary):
    def make(features=None, **options):
        options = {"batch": 4, "seed": 3, **options}
        mono, parallel = str(corpus / "mono/*/*.txt"), str(corpus / "parallel/*")
        features = MlmFeatures() if features is None else features
        options.setdefault("length", 128 if features.sides == 2 else 32)
        return file_source(features, vocabulary, mono=mono, parallel=parallel, **options)

    return make


def hashes(source, count):
    return [batch_hash(source.next()) for _ in range(count)]


@pytest.mark.parametrize(
    "features", [ClmFeatures(), MlmFeatures(), TlmFeatures()], ids=lambda f: f.name
)
def test_batches_have_the_contracts_fields(open_source, features):
    source = open_source(features)
    assert isinstance(source, BatchSource) and source.languages == ("de", "en", "ru", "zh")
    assert tuple(source.shapes) == features.fields
    for _ in range(3):
        batch = source.next()
        assert set(batch) == set(features.fields)
        check_batch(batch, features.fields, source.shapes)
    json.dumps(source.identity)


def restored(batch):
    """input_ids with the masked tokens put back."""
    ids = batch["input_ids"].copy()
    rows, slots = np.nonzero(batch["masked_weights"])
    ids[rows, batch["masked_positions"][rows, slots]] = batch["masked_targets"][rows, slots]
    return ids


def each(source):
    """The batches of a source that ends."""
    with contextlib.suppress(StopIteration):
        while True:
            yield source.next()


def test_an_epoch_reads_every_token_of_every_stream_once(open_source, vocabulary, corpus):
    source = open_source(batch=1, sampling=Sampling(weights={"de": 1, "en": 0, "ru": 0, "zh": 0}))
    lines = (corpus / "mono/de/small.txt").read_text().splitlines()
    stream = [i for line in lines if line for i in [*vocabulary.encode(line), 1]]
    rows = [tuple(stream[i : i + 32]) for i in range(0, len(stream), 32)]
    orders = []
    for _ in range(2):
        batches = [source.next() for _ in range(len(rows))]
        seen = [tuple(restored(b)[0][b["pack_ids"][0] > 0].tolist()) for b in batches]
        assert sorted(seen) == sorted(rows)
        assert all((b["language_ids"] == 0).all() for b in batches)
        orders.append(seen)
    assert orders[0] != orders[1] and orders[0] != rows
    assert source.identity["sampling_table"][0] == {
        "name": "de", "sentences": 96, "tokens": len(stream), "rows": len(rows), "share": 1.0,
        "epochs_per_1000_steps": round(1000 / len(rows), 4),
    }  # fmt: skip


def test_masks_are_fresh_in_the_second_epoch(open_source):
    source = open_source(batch=1, sampling=Sampling(weights={"de": 0, "en": 0, "ru": 0, "zh": 1}))
    rows = source.identity["sampling_table"][3]["rows"]
    epochs = [{}, {}]
    for epoch in epochs:
        for batch in (source.next() for _ in range(rows)):
            epoch[restored(batch).tobytes()] = batch["masked_positions"].tolist()
    assert epochs[0].keys() == epochs[1].keys()
    same = sum(epochs[0][text] == epochs[1][text] for text in epochs[0])
    assert same <= len(epochs[0]) // 4


def test_pairs_translate_each_other(open_source, vocabulary, corpus):
    features = TlmFeatures(both_orders=False, packing=False, max_pieces=60)
    source = open_source(features, length=128, epochs=1)
    expected = set()
    for codes in (("de", "en"), ("en", "ru"), ("en", "zh")):
        paths = [corpus / f"parallel/{'-'.join(codes)}.{code}" for code in codes]
        number = [source.languages.index(code) for code in codes]
        for lines in zip(*(path.read_text().splitlines() for path in paths), strict=True):
            sides = [vocabulary.encode(line) for line in lines]
            if max(map(len, sides)) <= 60:
                ids = [one for side in sides for one in (1, *side, 1)]
                languages = [
                    n for n, side in zip(number, sides, strict=True) for _ in range(len(side) + 2)
                ]
                expected.add((*ids, -1, *languages))
    seen = []
    for batch in each(source):
        rows = zip(restored(batch), batch["pack_ids"] > 0, batch["language_ids"], strict=True)
        seen += [(*ids[real], -1, *language[real]) for ids, real, language in rows if real.any()]
    assert len(seen) == len(set(seen)) and set(seen) == expected


def test_a_batch_is_of_one_language_and_shares_follow_the_exponent(open_source):
    source = open_source(ClmFeatures(), batch=2, length=16, sampling=Sampling(alpha=0.5))
    table = {row["name"]: row for row in source.identity["sampling_table"]}
    weights = np.sqrt([96, 96, 60, 36])
    share = weights / weights.sum()
    np.testing.assert_allclose([row["share"] for row in table.values()], share, atol=1e-6)
    drawn = np.zeros(4)
    for _ in range(1000):
        batch = source.next()
        (language,) = np.unique(batch["language_ids"][batch["pack_ids"] > 0])
        drawn[language] += 1
    assert abs(drawn - 1000 * share).max() < 4
    assert source.state() == 1000


def test_counts_in_tokens_and_the_mixtures_own_rates(open_source):
    def shares(**options):
        source = open_source(ClmFeatures(), sampling=Sampling(alpha=1.0, **options))
        table = source.identity["sampling_table"]
        return [row["share"] for row in table], [row["tokens"] for row in table]

    by_tokens, tokens = shares(counts="tokens")
    np.testing.assert_allclose(by_tokens, np.array(tokens) / sum(tokens), atol=1e-6)
    by_rates, _ = shares(counts="mixture")
    np.testing.assert_allclose(by_rates, np.array([96, 96, 60, 36]) / 288, atol=1e-6)


@pytest.mark.parametrize(
    "features",
    [
        MlmFeatures(),
        TlmFeatures(),
        VecoFeatures(),
        VecoTextFeatures(),
        CamlmFeatures(),
        CamlmFeatures(layout="slots"),
        BtmlmFeatures(targets=((0, 0.5), (1, 0.3), (2, 0.2))),
        ClwrFeatures(),
        ClpcFeatures(),
        ClMlmFeatures(truncate=False),
    ],
    ids=lambda f: f"{f.name}_{getattr(f, 'layout', '')}".strip("_"),
)
def test_every_objectives_source_continues_bitwise(open_source, features):
    """Whatever its features draw beside masks: languages, places, turns, wrong partners."""
    sampling = Sampling(same_language=features.name == "tlm")
    whole = open_source(features, sampling=sampling)
    before = hashes(whole, 7)
    state = whole.state()
    expected = hashes(whole, 6)
    assert state == 7 and len({*before, *expected}) == 13
    other = open_source(features, sampling=sampling)
    assert other.identity == whole.identity
    hashes(other, 2)
    other.restore(state)
    assert other.state() == state and hashes(other, 6) == expected
    other.restore(0)
    assert hashes(other, 7) == before


def test_objectives_of_one_seed_draw_independently(open_source):
    """MLM and CLM of one run read the rows of the same streams in orders of their own."""
    german = Sampling(weights={"de": 1, "en": 0, "ru": 0, "zh": 0})
    rows = []
    for features in (ClmFeatures(), MlmFeatures()):
        source = open_source(features, batch=8, sampling=german)
        batch = source.next()
        rows.append(batch["input_ids"] if features.name == "clm" else restored(batch))
    assert (rows[0] == rows[1]).all(axis=1).sum() < 3


def test_the_seed_changes_text_and_masks(open_source):
    assert not set(hashes(open_source(), 8)) & set(hashes(open_source(seed=4), 8))


def test_any_number_of_shards_gives_the_same_global_batches(open_source):
    mixed = Sampling(same_language=False)
    whole, cut = (open_source(batch=8, sampling=mixed, data_shards=shards) for shards in (1, 4))
    assert hashes(cut, 3) == hashes(whole, 3)

    def host(index):
        with as_host(index, 2):
            return open_source(batch=8, sampling=mixed, data_shards=4)

    hosts = [host(0), host(1)]
    for one in hosts:  # continues what one host began
        one.restore(whole.state())
    batch, shares = whole.next(), [one.next() for one in hosts]
    assert shares[0]["input_ids"].shape == (4, 32) and hosts[0].shapes["input_ids"] == (8, 32)
    for name, array in batch.items():
        np.testing.assert_array_equal(array, np.concatenate([share[name] for share in shares]))


def test_a_finite_source_reads_everything_once_in_order_and_ends(open_source, vocabulary, corpus):
    source = open_source(MlmFeatures(Masking(validation=True)), epochs=1, shuffle=False)
    rows, languages, batches = [], [], 0
    for batch in each(source):
        batches += 1
        real = batch["pack_ids"].any(axis=1)
        assert (batch["masked_weights"].sum(axis=1) > 0).tolist() == real.tolist()
        rows += restored(batch)[real].tolist()
        languages.append(set(batch["language_ids"][batch["pack_ids"] > 0].tolist()))
    assert all(len(found) == 1 for found in languages)
    table = source.identity["sampling_table"]
    assert len(rows) == sum(row["rows"] for row in table)
    assert batches == sum(-(-row["rows"] // 4) for row in table)
    lines = (corpus / "mono/de/small.txt").read_text().splitlines()
    german = [i for line in lines if line for i in [*vocabulary.encode(line), 1]]
    assert rows[:2] == [german[:32], german[32:64]]


def test_run_languages_may_be_more_than_the_texts(open_source):
    source = open_source(ClmFeatures(), languages=("ar", "de", "en", "ru", "zh"))
    assert source.languages == ("ar", "de", "en", "ru", "zh")
    assert {int(source.next()["language_ids"].max()) for _ in range(30)} <= {1, 2, 3, 4}
    with pytest.raises(UserError, match="run's languages de, en lack some of de, en, ru, zh"):
        open_source(ClmFeatures(), languages=("de", "en"))


def test_clear_errors(open_source, vocabulary, corpus):
    with pytest.raises(UserError, match="6 rows does not divide into 4 data shards"):
        open_source(batch=6, data_shards=4)
    with pytest.raises(UserError, match="no de-en text fits rows of 8 tokens"):
        open_source(TlmFeatures(), length=8)
    with pytest.raises(UserError, match="'tlm' reads pairs; none is given"):
        file_source(TlmFeatures(), vocabulary, 4, 32, mono=str(corpus / "mono/*/*.txt"))
