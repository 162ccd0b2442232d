"""Tasks that SeqIO's and T5's users have: their own preprocessors, features and vocabularies."""

import functools
from pathlib import Path

import pytest
import seqio
import tensorflow as tf

from tests.helpers.files import write
from tests.helpers.records import task_records
from xlingjax.data.seqio.adapters import TextFiles
from xlingjax.data.seqio.mixture import mixture_source
from xlingjax.data.seqio.task_text import lines_of, named_languages
from xlingjax.data.seqio.vocabulary import SeqioVocabulary
from xlingjax.data.text.texts import Text
from xlingjax.errors import UserError
from xlingjax.preprocessors.xlm import ClmFeatures, TlmFeatures

# The model that SeqIO's own tests tokenise with: <pad> 0, </s> 1, <unk> 2.
T5_MODEL = Path(seqio.__file__).parent / "test_data/sentencepiece/sentencepiece.model"
LINES = ["Der Hund schläft im Haus.", "Die Katze trinkt Milch.", "Es regnet heute."] * 5
ENGLISH = ["The dog sleeps in the house.", "The cat drinks milk.", "It rains today."] * 5


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def register(monkeypatch):
    """Registers a task over lines, and forgets it after the test."""
    names = []

    def registered(name, columns, features, preprocessors=()):
        source = columns
        if not isinstance(columns, seqio.DataSource):
            source = seqio.FunctionDataSource(
                lambda split, shuffle_files, seed=None: tf.data.Dataset.from_tensor_slices(columns),
                splits=["train"],
            )
        names.append(name)
        return seqio.TaskRegistry.add(
            name, source=source, preprocessors=list(preprocessors), output_features=features
        )

    yield registered
    for name in names:
        if name in seqio.TaskRegistry.names():
            seqio.TaskRegistry.remove(name)


def feature(vocabulary, **given):
    return seqio.Feature(vocabulary, **given)


def stream(vocabulary, lines):
    ids = []
    for line in lines:
        ids += [*vocabulary.encode(line), vocabulary.eos_id]
    return ids


def test_preprocessors_of_a_task_over_our_files_are_run(register, vocabulary, tmp_path):
    path = write(tmp_path / "de.txt", "\n".join(LINES) + "\n")
    source = TextFiles({"train": [Text(path, "de")]})
    short = seqio.map_over_dataset(lambda one: {"text": tf.strings.substr(one["text"], 0, 9)})
    features = {"text": feature(SeqioVocabulary(vocabulary), add_eos=False)}
    task = register("cut.de", source, features, [short, seqio.preprocessors.tokenize])
    (side,) = task_records(task, "train", vocabulary, languages=["de"]).sides
    cut = [line[:9].strip() for line in LINES]
    assert side.ids.tolist() == stream(vocabulary, cut)
    # The file changes: what was kept of it is not read again.
    write(tmp_path / "de.txt", "Milch.\n")
    task.source._counts.clear()
    (side,) = task_records(task, "train", vocabulary, languages=["de"]).sides
    assert side.ids.tolist() == stream(vocabulary, ["Milch."])


def test_an_ordinary_t5_task_is_tokenised_with_the_runs_vocabulary(register, vocabulary):
    """`targets` alone, T5's vocabulary with its sentinels, and the `</s>` that T5 appends."""
    theirs = seqio.SentencePieceVocabulary(str(T5_MODEL), extra_ids=10)
    features = {"inputs": feature(theirs, required=False), "targets": feature(theirs, add_eos=True)}
    steps = [
        functools.partial(seqio.preprocessors.rekey, key_map={"targets": "text"}),
        seqio.preprocessors.tokenize,
        seqio.CacheDatasetPlaceholder(),
        seqio.preprocessors.append_eos_after_trim,
    ]
    task = register("c4.de", {"text": LINES}, features, steps)
    records = task_records(task, "train", vocabulary, languages=["de", "en"])
    assert records.languages == ("de",)
    assert records.sides[0].ids.tolist() == stream(vocabulary, LINES)
    source = mixture_source(
        "c4.de", ClmFeatures(), batch=1, length=16, languages=["de", "en"], vocabulary=vocabulary,
        shuffle=False, epochs=1,
    )  # fmt: skip
    batch = source.next()
    assert batch["input_ids"][0].tolist() == stream(vocabulary, LINES)[:16]
    assert {*batch["language_ids"][0].tolist()} == {0}
    with pytest.raises(UserError, match=r"SentencePieceVocabulary; say which vocabulary"):
        mixture_source("c4.de", ClmFeatures(), batch=1, length=16)


def test_pairs_of_inputs_and_targets_in_the_order_of_the_name(register, vocabulary):
    theirs = seqio.SentencePieceVocabulary(str(T5_MODEL))
    features = {"inputs": feature(theirs), "targets": feature(theirs)}
    columns = {"inputs": ENGLISH, "targets": LINES}
    task = register("wmt_en_de", columns, features, [seqio.preprocessors.tokenize])
    records = task_records(task, "train", vocabulary, languages=["de", "en", "ru"])
    assert records.languages == ("en", "de")
    assert records.sides[0].ids.tolist() == stream(vocabulary, ENGLISH)
    assert records.sides[1].ids.tolist() == stream(vocabulary, LINES)
    given = {"batch": 1, "length": 64, "languages": ["de", "en"], "vocabulary": vocabulary}
    with pytest.raises(UserError, match="wmt_en_de cannot feed 'clm', which reads text of one"):
        mixture_source("wmt_en_de", ClmFeatures(), **given)
    source = mixture_source("wmt_en_de", TlmFeatures(), **given)
    assert source.identity["sampling_table"][0]["sentences"] == len(LINES)


@pytest.mark.parametrize(
    ("name", "languages", "message"),
    [
        ("corpus", ("de", "en"), "the language of targets is not known: call the task corpus.de"),
        ("corpus.fr", ("de", "en"), "call the task corpus.fr.de, with languages="),
    ],
)
def test_a_language_that_nothing_names_is_asked_for(register, vocabulary, name, languages, message):
    features = {"targets": feature(SeqioVocabulary(vocabulary), add_eos=False)}
    task = register(name, {"targets": LINES}, features, [seqio.preprocessors.tokenize])
    with pytest.raises(UserError, match=message):
        task_records(task, "train", vocabulary, languages=languages)
    assert task_records(task, "train", vocabulary, languages=["de"]).languages == ("de",)


def test_what_cannot_be_understood_is_refused(register, vocabulary):
    theirs = seqio.SentencePieceVocabulary(str(T5_MODEL))
    features = {"targets": feature(theirs)}
    bare = functools.partial(seqio.preprocessors.tokenize, copy_pretokenized=False)
    columns = {"targets": LINES}
    task = register("bare.de", columns, features, [bare])
    with pytest.raises(UserError, match="bare.de: its ids of 'targets' are of SentencePieceVoc"):
        task_records(task, "train", vocabulary, languages=["de"])

    def reversed_ids(dataset):
        return dataset.map(lambda example: {**example, "targets": example["targets"][::-1]})

    task = register("turned.de", columns, features, [seqio.preprocessors.tokenize, reversed_ids])
    with pytest.raises(UserError, match="since 'reversed_ids' changes its ids afterwards"):
        task_records(task, "train", vocabulary, languages=["de"])


def test_shards_of_files_are_parts_of_their_lines(tmp_path, vocabulary):
    from xlingjax.tasks.xlm import register_text

    write(tmp_path / "mono/de/a.txt", "\n".join(LINES) + "\n")
    write(tmp_path / "mono/de/b.txt", "\n".join(LINES[:4]) + "\n")
    name = register_text(vocabulary=vocabulary, mono=str(tmp_path / "mono"))
    (task,) = seqio.get_mixture_or_task(f"{name}.text").tasks

    def lines(shard_info=None):
        data = task.get_dataset(None, "train", shuffle=False, shard_info=shard_info)
        return [example["text"].tolist() for example in data.as_numpy_iterator()]

    shards = [lines(seqio.ShardInfo(i, 4)) for i in range(4)]
    assert sum(shards, []) == lines() and len(lines()) == 19
    assert [len(shard) for shard in shards] == [4, 5, 5, 5]


def test_lines_of_files_that_are_cut_otherwise_are_read_anew(register, vocabulary, tmp_path):
    path = write(tmp_path / "de.txt", "\n".join(LINES) + "\n")
    named = [lambda lines: lines.map(lambda line: {"targets": line}), seqio.preprocessors.tokenize]
    features = {"targets": feature(SeqioVocabulary(vocabulary), add_eos=False)}
    for skipped in (0, 2):
        source = seqio.TextLineDataSource({"train": str(path)}, skip_header_lines=skipped)
        task = register("skipped.de", source, features, named)
        (side,) = task_records(task, "train", vocabulary, languages=["de"]).sides
        assert side.ids.tolist() == stream(vocabulary, LINES[skipped:])
        seqio.TaskRegistry.remove("skipped.de")


@pytest.mark.parametrize(
    ("name", "languages", "found"),
    [
        ("mono_it_ca", ["it", "de"], ()),
        ("wmt14_en_de", ["de"], ("de",)),
        ("ted.de_en_fr", ["de", "en"], ()),
        ("my_text.it", ["it", "de"], ("it",)),
        ("mc4.zh_Hant", ["zh", "zh-Hant"], ("zh-Hant",)),
        ("opus100.de_en", ["de", "en", "zh"], ("de", "en")),
    ],
)
def test_a_name_ends_in_its_languages(name, languages, found):
    assert named_languages(name, languages) == found


class Cut:
    def __init__(self, length):
        self.length = length

    def __call__(self, dataset):
        return partly(dataset, self.length)


def partly(dataset, length):
    return dataset.map(lambda one: {"targets": tf.strings.substr(one["targets"], 0, length)})


def closed(length):
    return lambda dataset: partly(dataset, length)


def targets(lines):
    return lines.map(lambda line: {"targets": line})


@pytest.mark.parametrize(
    ("cut", "reads"),
    [(Cut, 2), (lambda length: functools.partial(partly, length=length), 2), (closed, 3)],
    ids=["object", "partial", "closure"],
)
def test_settings_of_a_preprocessor_are_in_the_token_cache(
    register, vocabulary, tmp_path, monkeypatch, cut, reads
):
    """Two preprocessors of one name and one text: lines cut at 3 are not those cut at 9."""
    path = write(tmp_path / "de.txt", "\n".join(LINES) + "\n")
    features = {"targets": feature(SeqioVocabulary(vocabulary), add_eos=False)}
    read = []

    def records_of(length):
        source = seqio.TextLineDataSource({"train": str(path)})
        steps = [targets, cut(length), seqio.preprocessors.tokenize]
        task = register("cut.de", source, features, steps)
        (side,) = task_records(task, "train", vocabulary, languages=["de"]).sides
        seqio.TaskRegistry.remove("cut.de")
        return side.ids.tolist()

    def counted(*given):
        read.append(1)
        return lines_of(*given)

    monkeypatch.setattr("xlingjax.data.seqio.task_text.lines_of", counted)
    for length in (3, 9, 3):
        expected = stream(vocabulary, [line.encode()[:length].decode() for line in LINES])
        assert records_of(length) == expected
    # The third time it was there, but of a closure, which cannot be compared.
    assert len(read) == reads


def test_ids_that_seqio_passes_through_are_the_runs(register, vocabulary):
    ids = [vocabulary.encode(line) for line in LINES]
    ragged = tf.ragged.constant(ids, dtype=tf.int32)

    def read(split, shuffle_files, seed=None):
        rows = tf.data.Dataset.from_tensor_slices(ragged)
        return rows.map(lambda row: {"targets": row})

    source = seqio.FunctionDataSource(read, splits=["train"])
    through = feature(seqio.PassThroughVocabulary(vocabulary.size), add_eos=False)
    task = register("ready.de", source, {"targets": through})
    (side,) = task_records(task, "train", vocabulary, languages=["de"]).sides
    assert side.ids.tolist() == stream(vocabulary, LINES)
    ragged = tf.ragged.constant([[1, vocabulary.size]], dtype=tf.int32)
    with pytest.raises(UserError, match=f"ready.de: id {vocabulary.size} is not one of the voca"):
        task_records(task, "train", vocabulary, languages=["de"])
