"""Every objective as a SeqIO mixture: what `seqio.get_dataset` gives is what the trainer reads."""

import numpy as np
import pytest
import seqio
import tensorflow as tf

from tests.helpers.files import write
from xlingjax.data.rows.draws import Draws
from xlingjax.data.seqio.mixture import mixture_source
from xlingjax.data.seqio.rows import RowConverter, _one_seed
from xlingjax.errors import UserError
from xlingjax.preprocessors.ernie_m import BtmlmFeatures, CamlmFeatures
from xlingjax.preprocessors.noise import Noise
from xlingjax.preprocessors.t5 import SpanCorruptionFeatures
from xlingjax.preprocessors.translation import (
    BackTranslationFeatures,
    DenoisingFeatures,
    TranslationFeatures,
)
from xlingjax.preprocessors.unicoder import ClMlmFeatures, ClpcFeatures, ClwrFeatures
from xlingjax.preprocessors.veco import VecoFeatures, VecoTextFeatures
from xlingjax.preprocessors.xglue import XfnpFeatures
from xlingjax.preprocessors.xlm import ClmFeatures, Masking, MlmFeatures, TlmFeatures
from xlingjax.tasks.objectives import register_objective
from xlingjax.tasks.xlm import register_text

LENGTH = 64
NOISE = Noise(shuffle=3.0, drop=0.1, mask=0.1)
OBJECTIVES = [
    ClmFeatures(),
    MlmFeatures(),
    # Frequencies of the whole text go into its masks.
    MlmFeatures(Masking(subsampling=0.5)),
    MlmFeatures(Masking(validation=True)),
    VecoTextFeatures(),
    BtmlmFeatures(targets=((0, 0.5), (1, 0.5))),
    DenoisingFeatures(NOISE, languages=("de", "en")),
    XfnpFeatures(block=16, span=3),
    SpanCorruptionFeatures(),
    BackTranslationFeatures(pivots=((0, (1,)), (1, (0,)))),
    TlmFeatures(),
    CamlmFeatures(),
    VecoFeatures(),
    ClwrFeatures(),
    ClpcFeatures(),
    ClMlmFeatures(),
    TranslationFeatures(),
]
# Subsampled masks, packed pairs, labels; the others are long.
QUICK = (OBJECTIVES[2], TlmFeatures(), ClpcFeatures())


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """The name of a registered corpus, and its vocabulary."""
    from xlingjax.data.vocabulary.training import train_vocabulary

    root = tmp_path_factory.mktemp("text")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLINGJAX_CACHE", str(root / "cache"))
        lines = {
            "de": ["Der Hund schläft im Haus.", "Die Katze trinkt Milch.", "Es regnet heute."],
            "en": ["The dog sleeps in the house.", "The cat drinks milk.", "It rains today."],
        }
        for code, sentences in lines.items():
            # Numbered, so that no two rows are alike; in documents of eight.
            numbered = []
            for i in range(64):
                numbered.append(f"{i} {sentences[i % 3]} {i * 7 % 10}")
                if i % 8 == 7:
                    numbered.append("")
            content = "\n".join(numbered) + "\n"
            write(root / "mono" / code / "a.txt", content)
            write(root / "parallel" / f"de-en.{code}", content)
        vocabulary = train_vocabulary(
            root / "vocabulary", mono=str(root / "mono"), size=70, character_coverage=1.0,
            threads=1,
        )  # fmt: skip
        # Another name each time that a worker sets up.
        files = {"mono": str(root / "mono"), "parallel": str(root / "parallel")}
        name = register_text(name=f"rows_{root.name}", vocabulary=vocabulary, **files)
        yield name, vocabulary


@pytest.fixture
def register():
    names = []

    def registered(mixture, preprocessor, **given):
        name = f"tested_{len(names)}.{preprocessor.name}"
        names.append(register_objective(mixture, preprocessor, name=name, **given))
        return names[-1]

    yield registered
    for name in names:
        for task in seqio.MixtureRegistry.get(name).tasks:
            seqio.TaskRegistry.remove(task.name)
        seqio.MixtureRegistry.remove(name)


def mixture_of(name, preprocessor):
    return f"{name}.{'text' if preprocessor.sides == 1 else 'pairs'}"


def first_seed(task, seed):
    """That of the draws for the first rows of a task."""
    placeholder = [isinstance(one, seqio.CacheDatasetPlaceholder) for one in task.preprocessors]
    with seqio.utils.map_seed_manager(seed + 42 * placeholder.index(True)):
        numbers = tf.data.Dataset.range(1)
        (found,) = seqio.map_over_dataset(lambda number, seed: seed, num_seeds=1)(numbers)
        return int(_one_seed(found)) % (1 << 64)


@pytest.mark.parametrize(
    "preprocessor",
    [
        pytest.param(one, id=f"{one.name}{i}", marks=[pytest.mark.long] * (one not in QUICK))
        for i, one in enumerate(OBJECTIVES)
    ],
)
def test_rows_are_the_trainers_and_masks_are_those_of_their_seed(text, register, preprocessor):
    corpus, vocabulary = text
    source_name = mixture_of(corpus, preprocessor)
    name = register(source_name, preprocessor)
    lengths = {"input_ids": LENGTH}
    plain = mixture_source(source_name, preprocessor, batch=1, length=LENGTH)
    counts = np.bincount([], minlength=vocabulary.size)
    for tasks_of_text in seqio.get_mixture_or_task(source_name).tasks:
        from tests.helpers.records import task_records

        for side in task_records(tasks_of_text, "train", vocabulary).sides:
            counts += np.bincount(side.ids, minlength=vocabulary.size)
    counts[vocabulary.eos_id] += 1
    mask = preprocessor.map(vocabulary, counts, LENGTH)
    tasks = seqio.get_mixture_or_task(name).tasks
    assert len(tasks) == (2 if preprocessor.sides == 1 else 1)
    for index, task in enumerate(tasks):
        rows = list(
            seqio.get_dataset(
                task.name, lengths, RowConverter(name), shuffle=False, seed=7, verbose=False
            ).as_numpy_iterator()
        )
        sizes = [order.size for order in plain.batches.order.orders]
        first, last = sum(sizes[:index]), sum(sizes[: index + 1])
        assert len(rows) == last - first > 2
        # All of this text is planned, read and masked at once.
        draws = Draws(first_seed(task, 7), 0, len(rows))
        expected = mask(plain.batches.reader(np.arange(first, last), draws), draws)
        for number, row in enumerate(rows):
            assert {*row} == {*preprocessor.fields}
            for field, value in row.items():
                np.testing.assert_array_equal(value, expected[field][number], err_msg=field)
                assert value.shape == tuple(plain.shapes[field][1:])
    plain.close()


@pytest.mark.long
def test_seqio_repeats_shards_shuffles_and_mixes_rows(text, register):
    corpus, _ = text
    preprocessor = MlmFeatures()
    name = register(f"{corpus}.text", preprocessor)
    task = seqio.get_mixture_or_task(name).tasks[0]

    def rows(take=None, **given):
        data = task.get_dataset({"input_ids": LENGTH}, "train", **{"seed": 3, **given})
        return list(data.take(take or -1).as_numpy_iterator())

    def tokens(found):
        return sum(int((row["pack_ids"] > 0).sum()) for row in found)

    def spelled(found):
        return sorted(row["masked_targets"].tobytes() for row in found)

    once = rows(shuffle=False)
    # Equal seeds give equal rows and masks, others other masks; shuffling changes the order alone.
    shuffled = rows()
    assert spelled(shuffled) == spelled(once) != spelled(rows(seed=4))
    assert [row["masked_targets"].tobytes() for row in shuffled] != spelled(once)
    assert len(rows(take=len(once) * 2 + 1, num_epochs=None)) == len(once) * 2 + 1
    parts = [rows(shard_info=seqio.ShardInfo(i, 2)) for i in range(2)]
    assert tokens(parts[0]) + tokens(parts[1]) == tokens(once)
    assert min(map(tokens, parts)) > 400
    mixed = seqio.get_dataset(
        name, {"input_ids": LENGTH}, RowConverter(name), num_epochs=None, verbose=False,
        batch_size=8, seed=3,
    )  # fmt: skip
    languages = set()
    for batch in mixed.take(3).as_numpy_iterator():
        assert {k: v.shape for k, v in batch.items()} == preprocessor.shapes(8, LENGTH)
        languages |= {*batch["language_ids"][:, 0].tolist()}
    assert languages == {0, 1}


def test_wrong_partners_are_new_whenever_seqio_repeats_the_text(text, register):
    corpus, _ = text
    name = register(f"{corpus}.pairs", ClpcFeatures())
    (task,) = seqio.get_mixture_or_task(name).tasks

    def wrong(seed):
        """Of both epochs the rows that are no translations."""
        lengths = {"input_ids": LENGTH}
        given = {"shuffle": False, "num_epochs": 2, "seed": seed}
        rows = list(task.get_dataset(lengths, "train", **given).as_numpy_iterator())
        spelled = [row["input_ids"].tobytes() for row in rows if not row["labels"]]
        assert len(rows) == 4 * 64 and len(spelled) == 2 * 64
        return spelled[:64], spelled[64:]

    first, second = wrong(3)
    assert wrong(3) == (first, second)
    for other in (second, wrong(4)[0]):
        assert sum(a == b for a, b in zip(first, other, strict=True)) < 8


def test_seqios_own_converter_takes_encoder_decoders(text, register):
    """T5's inputs and targets: whole sentences, as SentencePiece spells them."""
    corpus, vocabulary = text
    name = register(f"{corpus}.pairs", TranslationFeatures())
    data = seqio.get_dataset(
        name, {"inputs": 128, "targets": 128}, seqio.EncDecFeatureConverter(pack=False),
        shuffle=False, verbose=False, seed=0,
    )  # fmt: skip
    sentences = 0
    for example in data.as_numpy_iterator():
        source = [int(i) for i in example["encoder_input_tokens"] if i]
        target = [int(i) for i in example["decoder_target_tokens"] if i]
        said, read = (
            vocabulary.decode([i for i in side if i not in vocabulary.special_ids])
            for side in (source, target)
        )
        # Equal numbers before and behind: they translate each other.
        assert said.split()[0] == read.split()[0] and said.split()[-1] == read.split()[-1]
        assert said != read and target[-1] == vocabulary.eos_id
        sentences += 1
    assert sentences == 128


def test_what_seqio_cannot_be_given_is_said(text, register):
    corpus, _ = text
    name = register(f"{corpus}.text", MlmFeatures())
    task = seqio.get_mixture_or_task(name).tasks[0]
    with pytest.raises(UserError, match=r'mlm: rows need a length: give task_feature_lengths \{"'):
        task.get_dataset(None, "train")
    with pytest.raises(UserError, match=f"{corpus}.text.de cannot feed 'tlm', which reads pairs"):
        register(f"{corpus}.text", TlmFeatures())
    with pytest.raises(UserError, match="'tested_0.mlm' is registered already; choose another"):
        register_objective(f"{corpus}.text", MlmFeatures(), name=name)
    with pytest.raises(UserError, match="has text in en, which languages=de lack: add them"):
        register(f"{corpus}.pairs", TlmFeatures(), languages=["de"])


def test_pairs_of_t5s_are_rows_of_the_runs_vocabulary(text, register):
    """`inputs` and `targets` of another vocabulary are text, and not the rows' own fields."""
    from pathlib import Path

    _, vocabulary = text
    model = Path(seqio.__file__).parent / "test_data/sentencepiece/sentencepiece.model"
    theirs = seqio.Feature(seqio.SentencePieceVocabulary(str(model)))
    columns = {"inputs": ["The dog sleeps."] * 9, "targets": ["Der Hund schläft."] * 9}
    source = seqio.FunctionDataSource(
        lambda split, shuffle_files, seed=None: tf.data.Dataset.from_tensor_slices(columns),
        splits=["train"],
    )
    steps = [seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]
    features = {"inputs": theirs, "targets": theirs}
    seqio.TaskRegistry.add("wmt_en_de", source, preprocessors=steps, output_features=features)
    try:
        preprocessor = TranslationFeatures()
        name = register("wmt_en_de", preprocessor, vocabulary=vocabulary, languages=["de", "en"])
        (task,) = seqio.get_mixture_or_task(name).tasks
        data = task.get_dataset({"inputs": 64, "targets": 64}, "train", shuffle=False)
        read = {"The dog sleeps.": 0, "Der Hund schläft.": 0}
        for example in data.as_numpy_iterator():
            for side in ("inputs", "targets"):
                ids = [i for i in example[side].tolist() if i not in vocabulary.special_ids]
                read[vocabulary.decode(ids)] += 1
        assert min(read.values()) > 0
    finally:
        seqio.TaskRegistry.remove("wmt_en_de")
