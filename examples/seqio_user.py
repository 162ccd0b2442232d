"""What a user of SeqIO and T5 brings, trained on and evaluated by xlingjax.

    python examples/seqio_user.py

It writes a little text, registers a data set of TFDS, a task over plain files and a plain T5 task
of pairs, names them to a recipe, trains five steps with the public command, and evaluates with
`seqio.Evaluator`. Each row that it prints was checked by an assertion, but for what is said to be
skipped: SeqIO's cache is written by Apache Beam, an extra. TASKS=seqio_user in a recipe imports
this file, which registers the tasks of the folder in SEQIO_USER_FOLDER.
"""

import functools
import importlib.util
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import seqio  # noqa: E402
import tensorflow as tf  # noqa: E402

from xlingjax import Vocabulary  # noqa: E402

ANIMALS = {"Hund": "dog", "Katze": "cat", "Vogel": "bird", "Pferd": "horse", "Fisch": "fish"}
VERBS = {"schläft": "sleeps", "trinkt": "drinks", "liest": "reads", "wartet": "waits"}
PLACES = {"im Haus": "in the house", "am Fluss": "at the river", "im Garten": "in the garden"}
PAIRS = [
    (
        f"{number} mal: {animal} {verb} {place}.",
        f"{number} times: {ANIMALS[animal]} {VERBS[verb]} {PLACES[place]}.",
    )
    for number in range(5)
    for animal in ANIMALS
    for verb in VERBS
    for place in PLACES
]
LENGTHS = {"inputs": 64, "targets": 64}


# The tasks, as a T5X user writes them.


def lowered(name):
    @seqio.map_over_dataset
    def lower(example):
        return {**example, name: tf.strings.lower(example[name])}

    return lower


@seqio.map_over_dataset
def split_pair(line):
    sides = tf.strings.split(line, "\t")
    return {"inputs": sides[0], "targets": sides[1]}


def exact_match(targets, predictions):
    hits = sum(one == other for one, other in zip(targets, predictions, strict=True))
    return {"exact_match": 100 * hits / len(targets)}


def register_tasks(folder):
    """wiki.de of TFDS, plain.en of files, wmt_de_en of an ordinary T5 task; the mixture `text`."""
    theirs = seqio.SentencePieceVocabulary(f"{folder}/theirs.model", extra_ids=10)
    feature = seqio.Feature(theirs, add_eos=True)
    monolingual = {"inputs": seqio.Feature(theirs, required=False), "targets": feature}
    seqio.TaskRegistry.add(
        "wiki.de",
        source=seqio.TfdsDataSource("little_wiki:1.0.0", tfds_data_dir=f"{folder}/tfds"),
        preprocessors=[
            functools.partial(seqio.preprocessors.rekey, key_map={"targets": "article"}),
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features=monolingual,
    )
    from xlingjax.data.seqio.adapters import TextFiles
    from xlingjax.data.text.sources import find_text

    # Over files of ours, with a preprocessor of one's own before the tokenizer.
    seqio.TaskRegistry.add(
        "plain.en",
        source=TextFiles({"train": find_text(f"{folder}/mono/en")}),
        preprocessors=[
            functools.partial(seqio.preprocessors.rekey, key_map={"targets": "text"}),
            lowered("targets"),
            seqio.preprocessors.tokenize,
        ],
        output_features=monolingual,
    )
    seqio.TaskRegistry.add(
        "wmt_de_en",
        source=seqio.TextLineDataSource(
            {"train": f"{folder}/pairs.tsv", "validation": f"{folder}/held.tsv"}
        ),
        preprocessors=[
            split_pair,
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features={"inputs": feature, "targets": feature},
        metric_fns=[exact_match],
    )
    seqio.MixtureRegistry.add("text", [("wiki.de", 3), ("plain.en", 1)])
    # Where `seqio_cache_tasks` writes.
    seqio.add_global_cache_dirs([f"{folder}/seqio_cache"])


if FOLDER := os.environ.get("SEQIO_USER_FOLDER"):
    register_tasks(FOLDER)


# The files.


def write_files(folder):
    import sentencepiece
    import tensorflow_datasets as tfds

    german, english = zip(*PAIRS, strict=True)
    (folder / "mono/en").mkdir(parents=True)
    (folder / "mono/en/a.txt").write_text("\n".join(english) + "\n")
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS[20:]))
    (folder / "held.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS[:20]))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(german + english),
        model_prefix=f"{folder}/theirs",
        vocab_size=120,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )

    class LittleWiki(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = tfds.features.FeaturesDict({"article": tfds.features.Text()})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i, sentence in enumerate(german):
                yield i, {"article": sentence}

    tfds.disable_progress_bar()
    LittleWiki(data_dir=f"{folder}/tfds").download_and_prepare()
    (folder / "de.txt").write_text("\n".join(german) + "\n")
    mono = [f"{folder}/mono", f"de={folder}/de.txt"]
    run("vocab", "--mono", *mono, "--size", "80", "--output", f"{folder}/vocab")


def command(*words):
    return [sys.executable, "-m", "xlingjax", *map(str, words)]


def run(*words, **given):
    done = subprocess.run(command(*words), capture_output=True, text=True, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# The rows. Each says what holds now.


def every_objective(folder, vocabulary):
    from xlingjax.data.seqio.rows import RowConverter
    from xlingjax.preprocessors.ernie_m import CamlmFeatures
    from xlingjax.preprocessors.translation import DenoisingFeatures
    from xlingjax.preprocessors.veco import VecoFeatures
    from xlingjax.preprocessors.xlm import MlmFeatures, TlmFeatures
    from xlingjax.tasks.objectives import register_objective

    given = {"vocabulary": vocabulary, "languages": ["de", "en"]}
    for preprocessor in (MlmFeatures(), DenoisingFeatures()):
        register_objective("text", preprocessor, **given)
    for preprocessor in (TlmFeatures(), CamlmFeatures(), VecoFeatures()):
        register_objective("wmt_de_en", preprocessor, **given)
    names = ["text.mlm", "wmt_de_en.tlm", "wmt_de_en.camlm", "wmt_de_en.veco", "text.xdae"]
    assert {*names} <= {*seqio.MixtureRegistry.names()}
    yield ("seqio.get_mixture_or_task of mlm, tlm, camlm, veco, xdae", ", ".join(names))

    batch = first("wmt_de_en.tlm", {"input_ids": 64}, RowConverter(TlmFeatures()), batch_size=4)
    assert batch["input_ids"].shape == (4, 64) and batch["masked_weights"].sum() > 0
    example = first("text.xdae", LENGTHS, seqio.EncDecFeatureConverter(pack=True))
    assert example["encoder_input_tokens"].shape == example["decoder_target_tokens"].shape == (64,)
    yield ("seqio.get_dataset of an objective", "the trainer's fields; `inputs`, `targets` for T5X")

    rows = []
    whole = seqio.get_mixture_or_task("wmt_de_en.tlm").tasks[0]
    for shards in (1, 4):
        shard = seqio.ShardInfo(0, shards)
        data = whole.get_dataset({"input_ids": 64}, "train", shuffle=False, shard_info=shard)
        rows.append(sum(1 for _ in data))
    assert 0 < rows[1] < rows[0] / 2
    yield "shard_info=ShardInfo(0, 4)", f"{rows[1]} of {rows[0]} rows"


def first(mixture, lengths, converter, **given):
    data = seqio.get_dataset(mixture, lengths, converter, verbose=False, **given)
    return next(data.as_numpy_iterator())


def own_preprocessors(folder, vocabulary):
    from xlingjax.data.seqio.task_text import task_text

    def text_of(name):
        task = seqio.TaskRegistry.get(name)
        text = task_text(task, "train", vocabulary, languages=["de", "en"])
        return text.records().sides

    (side,) = text_of("plain.en")
    pieces = [i for i in side.ids.tolist() if i != vocabulary.eos_id]
    assert "times: dog sleeps" in vocabulary.decode(pieces)
    assert vocabulary.decode(pieces).islower()
    yield ("a task over TextFiles with preprocessors of one's own", "they are run")

    for side in text_of("wmt_de_en"):
        ended = side.ids == vocabulary.eos_id
        assert ended.sum() == side.sentences == len(PAIRS) - 20
    yield ("a plain T5 task: seqio.Feature, SentencePieceVocabulary", "read as a pair, de-en")
    yield "a task with append_eos", "one </s> a line"


def many_files(folder, vocabulary):
    from xlingjax.data.store.blocks import text_blocks
    from xlingjax.data.text.sources import find_text

    for i in range(1300):
        (folder / f"many/de/{i}.txt").parent.mkdir(parents=True, exist_ok=True)
        (folder / f"many/de/{i}.txt").write_text(f"{PAIRS[i % len(PAIRS)][0]}\n")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        text = text_blocks(find_text(f"{folder}/many"), vocabulary)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert text.sentences == (1300,)
    yield "1,300 files of one language, 256 may be open", "1,300 sentences"


def benchmarks(folder, vocabulary):
    import seqio_user_t5

    yield from seqio_user_t5.benchmarks(folder, PAIRS[:20])


def t5_preprocessors(folder, vocabulary):
    import seqio_user_t5

    yield from seqio_user_t5.span_corruption(vocabulary, PAIRS)


def recipe(folder, steps, objectives):
    settings = {
        "TASKS": "seqio_user",
        "MIXTURE_OR_TASK_NAME": "text",
        "TLM_MIXTURE": "wmt_de_en",
        "LANGUAGES": "de en",
        "ALPHA": "None",
        "VOCABULARY": f"{folder}/vocab",
        "VOCABULARY_SIZE": "None",
        "TRAIN_STEPS": steps,
        "WARMUP_STEPS": 1,
        "EVAL_EVERY": 0,
        "LOG_EVERY": 1,
        "LENGTH": 64,
        "BATCH": 8,
        "model.layers": 1,
        "model.dim": 32,
        "model.heads": 2,
        "model.ffn": 64,
        "train.objectives": objectives,
    }
    return [f"--gin.{name}={value}" for name, value in settings.items()]


def trained(folder, vocabulary):
    objectives = "gin/objectives/span_corruption.gin"
    files = ["--gin_file", "gin/recipes/mt_text.gin", "--gin_file", objectives]
    settings = recipe(folder, 5, "[@translation(), @span_corruption()]")
    settings.append("--gin.DECODER_LAYERS=1")
    said = run("pretrain", *files, *settings, "--workdir", folder / "run", env=environment(folder))
    assert "step 5/5" in said
    # 3 to 1, as the mixture says.
    table = said.partition("span_corruption: what is sampled\n")[2].splitlines()[1:3]
    shares = {row.split()[0]: row.split()[4] for row in table}
    assert shares == {"de": "75.00%", "en": "25.00%"}, said
    yield (
        "five steps by `xlingjax pretrain --gin.MIXTURE_OR_TASK_NAME=text`",
        "translation and T5's span corruption, 3 : 1",
    )


def environment(folder, **more):
    """For the command: where this file and its folder are."""
    here = str(Path(__file__).resolve().parent)
    path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "SEQIO_USER_FOLDER": str(folder), **more}


def evaluated(folder, vocabulary):
    """The user's own task, its own metric, SeqIO's own converter and vocabulary."""
    from xlingjax import open_run
    from xlingjax.inference.generate import Generator

    opened = open_run(folder / "run")
    generator = Generator(opened.model, opened.params, opened.vocabulary, opened.languages)
    theirs = seqio.TaskRegistry.get("wmt_de_en").output_features["targets"].vocabulary
    read = []

    def predict_fn(dataset, model_feature_shapes=None):
        numbers, lines = [], []
        for number, example in dataset.as_numpy_iterator():
            numbers.append(int(number))
            lines.append(theirs.decode(example["encoder_input_tokens"].tolist()))
        read.extend(lines)
        written = generator.generate(lines, "de", "en")
        ids = [theirs.encode(one[0].text)[:64] for one in written]
        return [
            (number, [*row, *[0] * (64 - len(row))])
            for number, row in zip(numbers, ids, strict=True)
        ]

    evaluator = seqio.Evaluator(
        "wmt_de_en", seqio.EncDecFeatureConverter(pack=False), eval_split="validation"
    )
    found, _ = evaluator.evaluate(compute_metrics=True, predict_fn=predict_fn)
    (score,) = found.result()["wmt_de_en"].values()
    # Of five steps; what the model read are the sentences of the split.
    assert 0 <= score < 100
    assert sorted(read) == sorted(german for german, _ in PAIRS[:20])
    yield ("seqio.Evaluator on one's own task", f"exact match {score:.1f} after five steps")


def cached(folder, vocabulary):
    tried = "seqio_cache_tasks, then USE_CACHED=True"
    if importlib.util.find_spec("apache_beam") is None:
        yield tried, "skipped: SeqIO's cache needs pip install 'xlingjax[beam]'"
        return
    # The module of the command of that name, which is not on every PATH.
    words = [sys.executable, "-m", "seqio.scripts.cache_tasks_main", "--module_import=seqio_user"]
    words += ["--tasks=wmt_de_en", f"--output_cache_dir={folder}/seqio_cache"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "seqio_cache/wmt_de_en/COMPLETED").exists()
    task = seqio.TaskRegistry.get("wmt_de_en")
    lines = task.get_cached_stats("train")["examples"]
    assert lines == len(PAIRS) - 20

    # The text itself is gone, and what was tokenised of it.
    (folder / "pairs.tsv").rename(folder / "away.tsv")
    files = ["--gin_file", "gin/recipes/xlm_text.gin", "--gin_file", "gin/objectives/tlm.gin"]
    settings = recipe(folder, 3, "[@tlm()]")
    settings.append("--gin.USE_CACHED=True")
    environ = environment(folder, XLINGJAX_CACHE=str(folder / "empty"))
    said = run("pretrain", *files, *settings, "--workdir", folder / "cached", env=environ)
    (folder / "away.tsv").rename(folder / "pairs.tsv")
    assert "step 3/3" in said, said
    yield tried, f"{lines} pairs written by Beam; three steps without the text itself"


def a_death(folder, vocabulary):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    words = ["--gin_file", "gin/recipes/xlm_text.gin", *recipe(folder, 10**6, "[@mlm()]")]
    words += ["--workdir", folder / "two", "--coordinator", coordinator, "--num_processes", 2]
    given = {"XLINGJAX_HEARTBEAT": "10"}
    processes = [
        subprocess.Popen(
            command("pretrain", *words, "--process_id", index),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(folder, **given),
        )
        for index in range(2)
    ]
    # Nobody waits for ever.
    watch = threading.Timer(600, lambda: [one.kill() for one in processes])
    watch.start()
    said = ""
    for line in processes[0].stdout:
        said += line
        if line.startswith("step 3/"):
            processes[1].send_signal(signal.SIGKILL)
            break
    said += processes[0].communicate()[0]
    processes[1].communicate()
    watch.cancel()
    last = said.strip().splitlines()[-1]
    assert processes[0].returncode != 0 and "Check failure" not in said
    assert last.startswith("error: process 1 of this run died"), said
    yield "one of two processes dies", last.partition(";")[0]


ROWS = (
    every_objective,
    own_preprocessors,
    many_files,
    benchmarks,
    t5_preprocessors,
    trained,
    evaluated,
    cached,
    a_death,
)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.setdefault("XLINGJAX_CACHE", str(folder / "cache"))
        write_files(folder)
        register_tasks(folder)
        vocabulary = Vocabulary.load(folder / "vocab")
        print("| tried | what happens |\n|---|---|", flush=True)
        for rows in ROWS:
            for tried, happens in rows(folder, vocabulary):
                print(f"| {tried} | {happens} |", flush=True)


if __name__ == "__main__":
    main()
