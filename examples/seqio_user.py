"""What a user of SeqIO and T5 brings: tasks of one's own, trained on and evaluated by xlingjax.

    python examples/seqio_user.py

It registers two tasks of text and one of pairs as a T5X user writes them, reads rows of an
objective, trains five steps by the public command, evaluates with `seqio.Evaluator` and a metric of
T5, and trains on SeqIO's cache alone. Each row that it prints was checked by an assertion.
TASKS=seqio_user in a recipe imports this file; the text lies in SEQIO_USER_FOLDER.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import seqio
import tensorflow as tf
from t5.evaluation import metrics

import xlingjax.tasks  # noqa: F401  # registers demo.mlm, demo.tlm, ...
from xlingjax import Vocabulary, open_run
from xlingjax.data.seqio.rows import RowConverter
from xlingjax.inference.generate import Generator
from xlingjax.preprocessors.xlm import TlmFeatures
from xlingjax.tasks.objectives import register_objective

FOLDER = Path(os.environ.get("SEQIO_USER_FOLDER") or tempfile.mkdtemp())
os.environ["SEQIO_USER_FOLDER"] = str(FOLDER)
PAIRS = [f"{n} Hunde schlafen im Haus.\t{n} dogs sleep in the house." for n in range(300)]

# The tasks. Bytes stand for any vocabulary: a run tokenises the text anew with its own.
BYTES = seqio.ByteVocabulary()


@seqio.map_over_dataset
def split_pair(line):
    german, english = tf.unstack(tf.strings.split(line, "\t"), 2)
    return {"inputs": german, "targets": english}


def lowered(side):
    @seqio.map_over_dataset
    def lower(pair):
        return {"targets": tf.strings.lower(pair[side], encoding="utf-8")}

    return lower


SOURCE = seqio.TextLineDataSource(
    {"train": f"{FOLDER}/de-en.tsv", "validation": f"{FOLDER}/held.tsv"}
)
for code, side in {"de": "inputs", "en": "targets"}.items():
    seqio.TaskRegistry.add(
        f"lower.{code}",
        source=SOURCE,
        preprocessors=[split_pair, lowered(side), seqio.preprocessors.tokenize],
        output_features={"targets": seqio.Feature(BYTES)},
    )
seqio.MixtureRegistry.add("lower", [("lower.de", 3), ("lower.en", 1)])
seqio.TaskRegistry.add(
    "wmt_de_en",
    source=SOURCE,
    preprocessors=[
        split_pair,
        seqio.preprocessors.tokenize,
        seqio.CacheDatasetPlaceholder(),
        seqio.preprocessors.append_eos_after_trim,
    ],
    output_features={"inputs": seqio.Feature(BYTES), "targets": seqio.Feature(BYTES)},
    metric_fns=[metrics.sequence_accuracy],
)
seqio.add_global_cache_dirs([f"{FOLDER}/cached"])


def run(*words, module="xlingjax"):
    path = os.pathsep.join([str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-m", module, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pretrain(workdir, files, **settings):
    settings |= {"TASKS": "seqio_user", "TLM_MIXTURE": "wmt_de_en", "LANGUAGES": "de en"}
    settings |= {"VOCABULARY": f"{FOLDER}/vocab", "VOCABULARY_SIZE": None, "ALPHA": None}
    settings |= {"LENGTH": 64, "BATCH": 8, "WARMUP_STEPS": 1, "LOG_EVERY": 1}
    settings |= {"model.layers": 1, "model.dim": 32, "model.heads": 2, "model.ffn": 64}
    words = [word for file in files for word in ("--gin-file", f"gin/{file}.gin")]
    words += [f"--gin.{name}={value}" for name, value in settings.items()]
    return run("pretrain", *words, "--to", FOLDER / workdir)


def predict_fn(dataset, model_feature_shapes=None):
    """The run's translations, as the Evaluator wants them: (number, ids)."""
    opened = open_run(FOLDER / "run")
    generator = Generator(opened.model, opened.params, opened.vocabulary, opened.languages)
    examples = list(dataset.as_numpy_iterator())
    lines = [BYTES.decode(one["encoder_input_tokens"].tolist()) for _, one in examples]
    assert sorted(lines) == sorted(pair.split("\t")[0] for pair in PAIRS[:20])
    written = [BYTES.encode(best[0].text)[:64] for best in generator.generate(lines, "de", "en")]
    padded = [ids + [0] * (64 - len(ids)) for ids in written]
    return [(int(number), ids) for (number, _), ids in zip(examples, padded, strict=True)]


def main():
    def row(*cells):
        print(f"| {' | '.join(cells)} |", flush=True)

    os.environ.setdefault("XLINGJAX_CACHE", f"{FOLDER}/store")
    FOLDER.joinpath("held.tsv").write_text("\n".join(PAIRS[:20]) + "\n")
    FOLDER.joinpath("de-en.tsv").write_text("\n".join(PAIRS[20:]) + "\n")
    run("vocab", "--parallel", FOLDER / "de-en.tsv", "--size", 80, "--to", FOLDER / "vocab")
    row("tried", "what happens")
    print("|---|---|")

    vocabulary = Vocabulary.load(FOLDER / "vocab")
    register_objective("wmt_de_en", TlmFeatures(), vocabulary=vocabulary, languages=["de", "en"])
    whole = seqio.get_mixture_or_task("wmt_de_en.tlm")
    example = next(whole.get_dataset({"input_ids": 64}, "train").as_numpy_iterator())
    given = {"feature_converter": RowConverter("wmt_de_en.tlm"), "batch_size": 4, "verbose": False}
    data = seqio.get_dataset("wmt_de_en.tlm", {"input_ids": 64}, **given)
    batch = next(data.as_numpy_iterator())
    assert example["input_ids"].shape == (64,) and batch["masked_weights"].sum(axis=1).all()
    row("rows of an objective over one's own task", "the trainer's: " + ", ".join(batch))
    names = [name for name in seqio.MixtureRegistry.names() if name.startswith("demo.")]
    assert {"demo.mlm", "demo.tlm", "demo.ernie_m"} <= {*names}
    row("import xlingjax.tasks", f"{len(names)} mixtures over the embedded corpus")

    files = ["recipes/mt_text", "objectives/span_corruption"]
    objectives = "[@translation(), @span_corruption()]"
    given = {"MIXTURE_OR_TASK_NAME": "lower", "TRAIN_STEPS": 5, "DECODER_LAYERS": 1}
    said = pretrain("run", files, **given, **{"train.objectives": objectives})
    table = said.partition("span_corruption: what is sampled\n")[2].splitlines()[1:3]
    assert [line.split()[4] for line in table] == ["75.00%", "25.00%"] and "step 5/5" in said
    row("pretrain --gin.MIXTURE_OR_TASK_NAME=lower", "five steps, German to English 3 : 1")

    converter = seqio.EncDecFeatureConverter(pack=False)
    evaluator = seqio.Evaluator("wmt_de_en", converter, eval_split="validation")
    scores, _ = evaluator.evaluate(compute_metrics=True, predict_fn=predict_fn)
    (score,) = scores.result()["wmt_de_en"].values()
    row("seqio.Evaluator, t5.evaluation.metrics", f"sequence accuracy {score:.1f}")

    if importlib.util.find_spec("apache_beam") is None:
        row("seqio_cache_tasks, USE_CACHED", "skipped: needs pip install 'xlingjax[beam]'")
        return
    words = f"--module_import=seqio_user --tasks=wmt_de_en --output_cache_dir={FOLDER}/cached"
    run(*words.split(), module="seqio.scripts.cache_tasks_main")
    # The text itself is gone.
    FOLDER.joinpath("de-en.tsv").unlink()
    files = ["recipes/xlm_text", "objectives/tlm"]
    given = {"MONO": None, "USE_CACHED": True, "train.objectives": "[@tlm()]"}
    assert "step 3/3" in pretrain("of_cache", files, TRAIN_STEPS=3, **given)
    row("seqio_cache_tasks, USE_CACHED", "three steps without the text itself")


if __name__ == "__main__":
    main()
