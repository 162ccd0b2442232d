import json

import numpy as np
import pytest

from tests.helpers.files import write
from tests.helpers.text import file_source
from xlingjax.data.sampling import Sampling
from xlingjax.errors import UserError
from xlingjax.preprocessors.xlm import ClmFeatures, TlmFeatures
from xlingjax.tasks.xlm import register_source, register_text

DE = ["Der Hund schläft im Haus.", "", "Die Katze trinkt Milch.", "Es regnet heute sehr stark."]
EN = ["The dog sleeps in the house.", "", "The cat drinks milk.", "It rains a lot today."]
LINES = {"de": 20 * DE, "en": 20 * EN}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("text")
    for code, lines in LINES.items():
        whole = "".join(f"{line}\n" for line in lines)
        write(root / "mono" / code / "a.txt", whole)
        write(root / "parallel" / f"de-en.{code}", whole)
        write(root / "held" / code / "h.txt", "".join(f"{line}\n" for line in lines[:8]))
    return root


@pytest.fixture(scope="module")
def vocabulary(folder):
    from xlingjax.data.vocabulary.training import train_vocabulary

    return train_vocabulary(
        folder / "vocabulary", mono=str(folder / "mono"), size=56, character_coverage=1.0, threads=1
    )


def test_registered_text_is_ordinary_seqio(folder, vocabulary):
    import seqio

    arguments = {"vocabulary": vocabulary, "mono": str(folder / "mono"), "name": "plain"}
    arguments |= {"parallel": str(folder / "parallel"), "heldout_mono": str(folder / "held")}
    assert register_text(**arguments) == "plain" and register_text(**arguments) == "plain"
    text, pairs = seqio.get_mixture_or_task("plain.text"), seqio.get_mixture_or_task("plain.pairs")
    assert [task.name for task in text.tasks] == ["plain.text.de", "plain.text.en"]
    assert [task.name for task in pairs.tasks] == ["plain.pairs.de_en"]
    assert text.get_rate(text.tasks[0]) == 60.0 and sorted(text.splits) == ["train", "validation"]
    examples = list(text.tasks[0].get_dataset(None, "train", shuffle=False).as_numpy_iterator())
    expected = [vocabulary.encode(line) for line in LINES["de"]]
    assert [e["text"].tolist() for e in examples] == expected
    held = list(text.tasks[0].get_dataset(None, "validation", shuffle=False).as_numpy_iterator())
    assert len(held) == 8
    pair = next(pairs.get_dataset(None, "train", shuffle=False).as_numpy_iterator())
    assert pair["first"].tolist() == vocabulary.encode(LINES["de"][0])
    assert pair["second"].tolist() == vocabulary.encode(LINES["en"][0])
    with pytest.raises(UserError, match="'plain' is registered for other files"):
        register_text(vocabulary=vocabulary, mono=str(folder / "held"), name="plain")


def test_holdout_splits_the_same_lines_in_seqio_and_in_the_token_cache(folder, vocabulary):
    import seqio

    from tests.helpers.records import task_records

    name = register_text(vocabulary=vocabulary, mono=str(folder / "mono"), holdout=0.5)
    task = seqio.get_mixture_or_task(f"{name}.text").tasks[0]
    for split in ("train", "validation"):
        streamed = [
            i
            for e in task.get_dataset(None, split, shuffle=False)
            for i in ([*e["text"].numpy(), 1] if e["text"].shape[0] else [])
        ]
        cached = task_records(task, split, vocabulary).sides[0]
        assert streamed == cached.ids.tolist() and cached.sentences == 24 + 12 * (split == "train")


def example_source(lines):
    """A SeqIO source that is not ours, as TFDS would be: string features under names of its own."""
    import seqio
    import tensorflow as tf

    def dataset_fn(split, shuffle_files, seed=None):
        return tf.data.Dataset.from_tensor_slices(lines)

    return seqio.FunctionDataSource(dataset_fn, splits=["train"])


def test_foreign_sources_give_the_same_batches_as_files(folder, vocabulary):
    from xlingjax.data.seqio.mixture import mixture_source

    source = example_source({"content": LINES["de"]})
    register_source("foreign.de", source, ["de"], vocabulary, keys={"text": "content"})
    foreign = mixture_source("foreign.de", ClmFeatures(), batch=2, length=16)
    own = file_source(ClmFeatures(), vocabulary, 2, 16, mono=str(folder / "mono/de/*.txt"))
    for _ in range(3):
        for a, b in zip(foreign.next().values(), own.next().values(), strict=True):
            np.testing.assert_array_equal(a, b)
    keys = {"first": "de", "second": "en"}
    register_source("foreign.pair", example_source(LINES), ["de", "en"], vocabulary, keys=keys)
    pairs = mixture_source("foreign.pair", TlmFeatures(), batch=2, length=128)
    assert pairs.languages == ("de", "en")
    assert pairs.identity["sampling_table"][0]["sentences"] == 60


def test_the_data_of_a_function_is_read_at_every_start(vocabulary, tmp_path, monkeypatch):
    """Nothing tells that it changed, so none of it is kept; a folder named like its split is not
    its file."""
    import seqio

    from xlingjax.data.seqio.mixture import mixture_source

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").mkdir()
    for sentence in ("Der Hund schläft im Haus.", "Die Katze trinkt Milch."):
        register_source("changed.de", example_source({"text": [sentence] * 40}), ["de"], vocabulary)
        source = mixture_source(
            "changed.de", ClmFeatures(), batch=1, length=32, epochs=1, shuffle=False
        )
        expected = ([*vocabulary.encode(sentence), 1] * 40)[:32]
        assert source.next()["input_ids"][0].tolist() == expected
        source.close()
        seqio.TaskRegistry.remove("changed.de")


def test_seqio_caches_are_read(folder, vocabulary, tmp_path):
    import seqio
    import tensorflow as tf

    from xlingjax.data.seqio.mixture import mixture_source

    register_source("cached.de", example_source({"text": LINES["de"]}), ["de"], vocabulary)
    folder = tmp_path / "seqio" / "cached.de"
    folder.mkdir(parents=True)
    sentences = [vocabulary.encode(line) for line in reversed(LINES["de"])]
    with tf.io.TFRecordWriter(str(folder / "train.tfrecord-00000-of-00001")) as writer:
        for ids in sentences:
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
            features = tf.train.Features(feature={"text": feature})
            writer.write(tf.train.Example(features=features).SerializeToString())
    description = {"num_shards": 1, "features": {"text": {"dtype": "int32", "shape": [None]}}}
    (folder / "info.train.json").write_text(json.dumps(description))
    with pytest.raises(UserError, match="cached.de has no SeqIO cache; write it with `seqio_cache"):
        mixture_source("cached.de", ClmFeatures(), batch=1, length=32, use_cached=True)
    (folder / "COMPLETED").touch()
    (folder / "stats.train.json").write_text(json.dumps({"examples": len(sentences)}))
    seqio.set_global_cache_dirs([str(tmp_path / "seqio")])
    try:
        source = mixture_source(
            "cached.de", ClmFeatures(), batch=1, length=32, epochs=1, shuffle=False, use_cached=True
        )
    finally:
        seqio.set_global_cache_dirs([])
    expected = [i for ids in sentences if ids for i in [*ids, 1]][:32]
    assert source.next()["input_ids"][0].tolist() == expected


def test_languages_are_numbered_over_all_files(folder, vocabulary):
    files = {"mono": str(folder / "mono/en/*.txt"), "parallel": str(folder / "parallel")}
    clm = file_source(ClmFeatures(), vocabulary, 2, 16, **files)
    tlm = file_source(
        TlmFeatures(), str(folder / "vocabulary"), 2, 128, sampling=Sampling(alpha=0.0), **files
    )
    assert clm.languages == tlm.languages == ("de", "en")
    batch = clm.next()
    assert set(batch["language_ids"][batch["pack_ids"] > 0].tolist()) == {1}
