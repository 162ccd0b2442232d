"""The papers' fine-tuning settings, gin/finetuning: each fits the recipe it is for and has the
published numbers."""

import dataclasses
import json

import gin
import pytest

from tests.helpers import toy
from xlingjax.config import gin_files
from xlingjax.config import recipe as recipes
from xlingjax.training.optimizer import learning_rate_schedule

GIN = gin_files.gin_folder()
STEPS = 1000
TEXTS, WORDS, QUESTIONS, GENERATION = "", "runs/tagging.gin", "runs/span_qa.gin", None

# Layer, batch, rate, decay by layer, weight decay, epochs, length: Tables 11 and 12 of ERNIE-M and
# its scripts.
ERNIE_M = {
    "base_xnli": (TEXTS, 32, 5e-5, 0.8, 0, 5, 256),
    "base_xnli_translate_train": (TEXTS, 128, 5e-5, 0.8, 0, 2, 256),
    "base_mlqa": (QUESTIONS, 32, 3e-4, 0.8, 0, 2, 384),
    "base_conll": (WORDS, 8, 4e-4, 0.8, 0.01, 10, 512),
    "base_conll_all": (WORDS, 8, 3e-4, 0.8, 0.01, 10, 512),
    "large_xnli": (TEXTS, 32, 5e-5, 0.8, 0, 5, 256),
    "large_xnli_translate_train": (TEXTS, 128, 5e-5, 0.8, 0, 1, 256),
    "large_mlqa": (QUESTIONS, 32, 8e-5, 0.9, 0, 2, 384),
    "large_conll": (WORDS, 8, 4e-4, 0.8, 0.01, 10, 512),
    "large_conll_all": (WORDS, 8, 3e-4, 0.8, 0.01, 10, 512),
    "large_conll_all_code": (WORDS, 8, 2e-4, 0.9, 0.01, 10, 512),
    "large_pawsx": (TEXTS, 64, 5e-5, 0.9, 0.01, 10, 256),
    "large_pawsx_translate_train": (TEXTS, 64, 7e-5, 0.9, 0.01, 2, 256),
}
SETTINGS = {f"ernie_m_{name}": values for name, values in ERNIE_M.items()} | {
    "xlm_xnli": (TEXTS, 8, 2.5e-5, 1, 0, 12.7, 256),
    "xlm_xnli_paper": (TEXTS, 16, 2e-4, 1, 0, 12.7, 256),
    "unicoder": (TEXTS, 32, 1e-5, 1, 0, 10, 256),
    "xglue": (TEXTS, 32, 5e-6, 1, 0, 10, 256),
    "xglue_paper": (TEXTS, 32, 5e-6, 1, 0, 10, 512),
    "xglue_ner": (WORDS, 32, 5e-6, 1, 0, 20, 256),
    "xglue_pos": (WORDS, 32, 2e-5, 1, 0, 20, 128),
    "xglue_mlqa": (QUESTIONS, 12, 3e-5, 1, 0, 2, 384),
    "xglue_xdae": (GENERATION, 32, 5e-6, 1, 0.01, 10, 512),
    "xglue_xfnp": (GENERATION, 64, 1e-4, 1, 0, 10, 512),
    "veco": (TEXTS, 32, 1e-5, 1, 0, 5, 128),
    "veco_translate_train": (TEXTS, 32, 7e-6, 1, 0, 5, 128),
    "veco_xnli": (TEXTS, 64, 2e-5, 1, 0, 2, 128),
    "veco_squad": (QUESTIONS, 16, 2e-5, 1, 1e-4, 2, 384),
}
# Learning rate, as a share of the peak, at updates 0, 49, 99, 100, 500 and 999 of 1000.
RATES = {
    "ernie_m": (0.01, 0.5, 1, 0.9, 0.5, 0.001),  # a tenth is lost where the warm-up ends
    "xlm": (1, 1, 1, 1, 1, 1),
    "unicoder": (0.01, 0.02213, 0.0345, 0.03475, 0.13375, 0.25725),
    "xglue": (1, 0.951, 0.901, 0.9, 0.5, 0.001),
    "xglue_paper": (0.01, 0.5, 1, 1, 500 / 900, 1 / 900),
    "xglue_xdae": (0.02, 0.044, 0.0685, 0.069, 0.265, 0.5095),
    "xglue_xfnp": (0.001, 0.04995, 0.1, 0.1009, 0.5005, 0.999),
    "veco": (1, 0.951, 0.901, 0.9, 0.5, 0.001),
    "veco_squad": (0.002, 0.1, 0.2, 0.202, 1, 0.002),
}
STRIDES = {"xglue_mlqa": 128, "ernie_m_base_mlqa": 128, "ernie_m_large_mlqa": 128, "veco_squad": 64}


@pytest.fixture
def built(tmp_path, monkeypatch):
    """name -> the recipe that the settings complete, where none of its files exist."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    config = dataclasses.asdict(toy.model(layers=3, max_positions=600)[0].config)
    record = {"model": config, "languages": toy.LANGUAGES, "config": {"vocabulary": "vocab"}}
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))

    def build(name):
        layer = SETTINGS[name][0]
        layers = ["runs/finetune.gin", *([layer] if layer and (GIN / layer).is_file() else [])]
        given = [
            "INIT_FROM=run",
            f"TRAIN_STEPS={STEPS}",
            "TRAIN_FILES={language}",
            "TEST_FILES={language}",
        ]
        files = [*layers, "optim/adamw_linear.gin", "mesh/data.gin", f"finetuning/{name}.gin"]
        return recipes.read_recipe(files, [*given, "LABELS=O B-X I-X"]).bound

    return build


def test_the_table_above_is_complete():
    assert {path.stem for path in (GIN / "finetuning").glob("*.gin")} == {*SETTINGS, "ernie_m"}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_the_published_ones_and_fit_their_recipe(name, built):
    _, batch, peak, layer_decay, weight_decay, epochs, length = SETTINGS[name]
    bound = built(name)
    (run,) = bound["objectives"]
    assert run.source.shapes["input_ids"] == (batch, length)
    optimizer = bound["optimizer"]
    assert (optimizer.learning_rate, optimizer.layer_decay) == (peak, layer_decay)
    assert (optimizer.weight_decay, gin.query_parameter("%EPOCHS")) == (weight_decay, epochs)
    longest = max((known for known in RATES if name.startswith(known)), key=len)
    rate = learning_rate_schedule(optimizer, STEPS)
    found = [float(rate(step)) / peak for step in (0, 49, 99, 100, 500, 999)]
    assert found == pytest.approx(RATES[longest], rel=0.02), longest
    assert bound["model"].classifier_dropout == (0.1 if name.startswith("ernie_m") else None)
    if name.startswith("ernie_m") and SETTINGS[name][0] == TEXTS:
        assert bound["model"].classifier == "pooler"
    if SETTINGS[name][0] == WORDS:
        pieces = "all" if name.startswith("ernie_m") else "first"
        assert (bound["model"].classifier, gin.query_parameter("%TAGGED_PIECES")) == (
            "tagging",
            pieces,
        )
    if name in STRIDES:
        assert gin.query_parameter("%STRIDE") == STRIDES[name]


def test_clipping_and_second_moments_are_those_of_the_released_code(built):
    optimizers = {
        name: built(name)["optimizer"]
        for name in ("ernie_m_base_xnli", "xlm_xnli", "xglue", "veco")
    }
    assert {name: (o.name, o.clip_norm, o.b1, o.b2, o.eps) for name, o in optimizers.items()} == {
        "ernie_m_base_xnli": ("adamw", 1.0, 0.9, 0.999, 1e-6),
        "xlm_xnli": ("adam", 0.0, 0.9, 0.999, 1e-8),
        "xglue": ("adamw", 1.0, 0.9, 0.999, 1e-8),
        "veco": ("adamw", 1.0, 0.9, 0.999, 1e-8),
    }
