"""`evaluate --mixture` on a SeqIO user's own tasks, by metrics of their own."""

import json
import sys

import pytest

from tests.helpers import tiny, written_run
from tests.helpers.files import write
from tests.helpers.sweeping import command
from xlingjax.data.vocabulary.training import train_vocabulary
from xlingjax.inference.generate import Generator
from xlingjax.inference.run import open_run
from xlingjax.model.build import build_model
from xlingjax.model.config import preset
from xlingjax.model.decoding import Decoding

LINES = ["der Hund schläft", "the dog sleeps", "die Katze trinkt Milch", "it rains today"]
# A module as a T5 user writes it: a source, T5's own vocabulary, a postprocessor, metrics.
MODULE = """
from pathlib import Path
import numpy as np, seqio, tensorflow as tf
MODEL = Path(seqio.__file__).parent / "test_data/sentencepiece/sentencepiece.model"
VOCABULARY = seqio.SentencePieceVocabulary(str(MODEL))
LINES = {lines!r}

def source(split, shuffle_files, seed=None):
    return tf.data.Dataset.from_tensor_slices({{"inputs": LINES, "targets": LINES[::-1]}})

def upper(output, example=None, is_target=False):
    return output.upper()

def length(targets, predictions):
    assert targets == [line.upper() for line in LINES[::-1]]
    return {{"letters": np.float32(sum(map(len, predictions)))}}

def likelihood(targets, scores):
    return {{"mean": np.mean(scores)}}

def broken(targets, predictions):
    return {{"x": predictions[0] + 1}}

def add(name, *metrics, vocabulary=VOCABULARY):
    seqio.TaskRegistry.add(
        name, seqio.FunctionDataSource(source, splits=["train", "validation"]),
        preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim],
        output_features=dict.fromkeys(("inputs", "targets"), seqio.Feature(vocabulary)),
        postprocess_fn=upper, metric_fns=metrics,
    )

add("mine.de", length, likelihood)
add("mine.de_en", length, vocabulary=seqio.ByteVocabulary())
add("mine.broken.de", broken)
add("mine.unnamed", length)
add("mine.plain.de")
seqio.MixtureRegistry.add("mine", ["mine.de", "mine.de_en"], default_rate=1.0)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of an encoder-decoder and of an encoder, and a module on the path."""
    import seqio

    root = tmp_path_factory.mktemp("text_to_text")
    write(root / "mono/de/a.txt", "\n".join(LINES) + "\n")
    vocabulary = train_vocabulary(
        root / "v", mono=str(root / "mono"), size=42, character_coverage=1.0, threads=1
    )
    for name, layers in (("both", 1), ("encoder", 0)):
        config = preset(
            "tiny", vocab_size=vocabulary.size, num_languages=2, max_positions=40, layers=1,
            decoder_layers=layers, dim=16, heads=2, ffn=32, init_std=1.0,
        )  # fmt: skip
        params = tiny.params(build_model(config))
        written_run.write(
            root / name, config, params, languages=("de", "en"), vocabulary=vocabulary.sha256
        )
        for file, content in vocabulary.files().items():
            (root / name / file).write_bytes(content)
    module = f"mine_{root.name}"
    write(root / f"{module}.py", MODULE.format(lines=LINES))
    sys.path.insert(0, str(root))
    yield root, module
    sys.path.remove(str(root))
    if module in sys.modules:
        seqio.MixtureRegistry.remove("mine")
        for name in [name for name in seqio.TaskRegistry.names() if name.startswith("mine.")]:
            seqio.TaskRegistry.remove(name)


def evaluate(runs, mixture, *more, run="both"):
    root, module = runs
    words = ["evaluate", root / run, "--mixture", mixture, "--to", root / "out"]
    return command(*words, "--tasks", module, *more)


@pytest.mark.long
def test_a_users_mixture_is_scored_by_its_own_metrics(runs, capsys):
    root, _ = runs
    assert evaluate(runs, "mine", "--gin.TEST_BEAMS=2", "--gin.NO_REPEAT_NGRAM=0") == 0
    printed = capsys.readouterr().out
    (path,) = (root / "out/mixtures/mine").glob("*/scores.json")
    tasks = json.loads(path.read_text())["tasks"]
    assert {name: one["languages"] for name, one in tasks.items()} == {
        "mine.de": ["de", "de"],
        "mine.de_en": ["de", "en"],
    }
    # What the model writes, asked directly.
    run = open_run(root / "both")
    generator = Generator(run.model, run.params, run.vocabulary, run.languages, Decoding(beams=2))
    made = [best.text for best, *_ in generator.generate(LINES, "de", "en")]
    lines = (path.parent / "mine.de_en-validation.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == made and any(made)
    assert tasks["mine.de_en"]["scores"] == {"letters": sum(len(text.upper()) for text in made)}
    forced = generator.score(LINES, LINES[::-1], "de", "de")
    mean = sum(one.log_probability for one in forced) / len(LINES)
    assert tasks["mine.de"]["scores"]["mean"] == pytest.approx(mean, rel=1e-5)
    assert f"mine.de, validation: letters {tasks['mine.de']['scores']['letters']:.2f}" in printed


@pytest.mark.parametrize(
    ("mixture", "more", "said"),
    [
        ("mine.plain.de", [], "task mine.plain.de has no metric_fns"),
        ("nothing", [], "--mixture nothing: no benchmark (xtreme, xglue, xnli, applications) and"),
        ("mine.unnamed", [], "task mine.unnamed: the languages of its inputs and targets are not"),
        ("mine.de", ["--split test"], "has no split test: give one by --split"),
        pytest.param(
            "mine.broken.de",
            [],
            "mine.broken.de: its metrics cannot take the predictions: TypeErr",
            marks=pytest.mark.long,
        ),
        ("mine", [], "encoder can do none of its tasks"),
    ],
)
def test_what_cannot_be_scored_is_one_line(runs, capsys, mixture, more, said):
    run = "encoder" if mixture == "mine" else "both"
    assert evaluate(runs, mixture, *more, run=run) == 2
    lines = capsys.readouterr().err.splitlines()
    found = [line for line in lines if line.startswith(("error", "xlingjax"))] or lines
    assert said in "\n".join(found), found
