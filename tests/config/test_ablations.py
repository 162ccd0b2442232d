"""The papers' ablations as bake-offs: each mix trains what its row of the table says, and each task
starts from it."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.config.test_recipes import write_record
from xlingjax.config import recipe as recipes
from xlingjax.training import schedule
from xlingjax.training.feed import in_stages
from xlingjax.workflows.bakeoff import runs as bakeoff
from xlingjax.workflows.bakeoff.runs import Bakeoff

STEPS = 3000
ON_TEXT = ("mlm", "btmlm", "veco_text", "masked_words")

TABLES = {
    "unicoder_2": {
        "MLM + TLM": "mlm tlm",
        "without word recovery": "cl_mlm clpc mlm tlm",
        "without paraphrase classification": "cl_mlm clwr mlm tlm",
        "without cross-lingual MLM": "clpc clwr mlm tlm",
        "Unicoder": "cl_mlm clpc clwr mlm tlm",
    },
    "ernie_m_6": {
        "exp1: MMLM": "mlm",
        "exp2: MMLM, TLM": "mlm tlm",
        "exp3: MMLM, CAMLM": "camlm mlm",
        "exp4: MMLM + BTMLM, CAMLM": "btmlm camlm mlm",
    },
    "xglue_11": dict.fromkeys(("(1)+(2)+(3)", "(4)", "(1)+(2)+(3)+(4)"), "xdae"),
    "veco_5": {
        "XLM: MLM": "mlm",
        "mBART: MLM": "masked_words",
        "VECO: CA-MLM": "veco_text",
        "XLM: MLM + TLM": "mlm tlm",
        "mBART: MLM + TLM": "masked_translation masked_words",
        "VECO: CA-MLM + TLM": "veco veco_text",
    },
    "veco": {
        "MLM + TLM": "mlm tlm",
        "MLM + TLM, as seldom as in VECO": "mlm tlm",
        "MLM + TLM, positions run on": "mlm tlm",
        "VECO": "veco veco_text",
        "VECO, without plug in": "veco veco_text",
        "VECO, positions restart": "veco veco_text",
        "VECO, positions restart, TLM x 16": "veco veco_text",
    },
    "seq2seq": {
        "xDAE": "xdae",
        "denoising": "denoising",
        "span corruption": "span_corruption",
        "xFNP": "xfnp",
        "mBART": "masked_translation masked_words",
        "VECO": "veco veco_text",
    },
}
"""Name of the bake-off -> mix -> objectives that have turns."""


def configured(name: str, *given: str) -> Bakeoff:
    return recipes.read_part("bakeoff", Bakeoff, [f"gin/recipes/bakeoff_{name}.gin"], [*given])


def without_runs(words):
    """Of a mix, what needs no trained run."""
    return [word for word in words if not word.startswith("INIT_FROM=")]


def read(verb: str, words: list[str], folder: Path) -> recipes.Recipe:
    line = bakeoff.command(verb, words, folder, STEPS)
    files = [value for flag, value in pairwise(line) if flag == "--gin-file"]
    given = [word.removeprefix("--gin.") for word in line if word.startswith("--gin.")]
    return recipes.read_recipe(files, given)


def built(config: Bakeoff, mix: str, languages: str = "de en ru zh") -> dict:
    words = [*config.base, *config.mixes[mix], f"LANGUAGES={languages}", "VOCABULARY_SIZE=4000"]
    return read("pretrain", words, Path("x")).bound


def turns(bound: dict) -> Counter[str]:
    """Steps of each objective."""
    first = [in_stages(entry)[0] for entry in bound["objectives"]]
    names, weights = [run.objective.name for run in first], [run.weight for run in first]
    return Counter(names[i] for step in range(STEPS) for i in schedule.turns(step, 0, weights))


@pytest.mark.parametrize("name", TABLES)
def test_mixes_are_the_rows_of_the_table(name):
    config = configured(name)
    assert list(config.mixes) == list(TABLES[name]) and tuple(config.seeds) == (0,)
    for mix, objectives in TABLES[name].items():
        counted = turns(built(config, mix))
        assert sorted(counted) == objectives.split(), mix
        of_pairs = 1 - sum(counted[of] for of in ON_TEXT) / STEPS
        if name in ("unicoder_2", "ernie_m_6", "veco_5") and len(counted) > 1:
            # What is compared are the tasks, not how many pairs are read.
            assert of_pairs == pytest.approx(0.8, abs=0.01), mix


def test_btmlm_begins_when_camlm_has_had_two_thirds_of_the_steps():
    *_, btmlm = built(configured("ernie_m_6"), "exp4: MMLM + BTMLM, CAMLM")["objectives"]
    assert btmlm.weight == {0: 0, 2001: 1}
    assert in_stages(btmlm)[0].source.settings["placement"] == "behind"


def test_unicoders_batches_have_several_languages_and_mined_partners():
    config = configured("unicoder_2")
    models, mined = set(), set()
    for mix in config.mixes:
        bound = built(config, mix)
        models.add(bound["model"])
        for run in bound["objectives"]:
            settings = in_stages(run)[0].source.settings
            assert not settings["sampling"]["same_language"]
            mined.add(settings.get("mined"))
    # So that the weights begin equal.
    assert len(models) == 1
    assert mined == {None, True}


def test_noises_are_those_of_the_paper():
    """XGLUE §4.1: U(0, 3), 0.1, 10 %, of words; infilling by spans of Poisson(3)."""
    config = configured("xglue_11")
    found = {}
    for mix in config.mixes:
        (run,) = built(config, mix)["objectives"]
        noise = run.source.settings["noise"]
        assert (noise["unit"], noise["poisson"]) == ("words", 3.0)
        found[mix] = [noise[of] for of in ("shuffle", "drop", "mask", "infill")]
    assert found == {
        "(1)+(2)+(3)": [3.0, 0.1, 0.1, 0.0],
        "(4)": [0.0, 0.0, 0.0, 0.3],
        "(1)+(2)+(3)+(4)": [3.0, 0.1, 0.1, 0.3],
    }


def test_encoder_decoders_are_trained_as_their_papers_say_and_alike():
    config = configured("seq2seq")
    for mix in config.mixes:
        bound = built(config, mix)
        run = in_stages(bound["objectives"][0])[0]
        assert bound["model"].layers == 3
        assert bound["model"].decoder_layers == (0 if mix == "VECO" else 3)
        # An encoder has no token of languages to give, and its decoder begins with new ones.
        assert bound["model"].language_tokens == (0 if mix == "VECO" else 4)
        assert run.source.shapes["input_ids"] == (8, 129 if mix == "xFNP" else 128)
        if mix in ("xDAE", "denoising"):
            assert run.source.settings["noise"]["unit"] == "words"
        if mix == "xFNP":
            assert run.objective.skip == "target"


@pytest.mark.parametrize("name", ["veco_5", "seq2seq"])
def test_translation_starts_from_every_mix(name):
    config = configured(name)
    for mix in config.mixes:
        words = config.task_words(mix, "translation", Path("given"))
        encoder, encoder_decoder = "INIT_ENCODER=given" in words, "INIT_FROM=given" in words
        assert encoder != encoder_decoder
        assert encoder == (name == "veco_5" or mix == "VECO"), mix
        bound = read("finetune", [*words, "VOCABULARY_SIZE=4000"], Path("x")).bound
        assert [run.objective.name for run in bound["objectives"]] == ["translation"]
        assert bound["model"].streams == (2 if mix == "xFNP" else 0)
        start = bound["init_from"]
        assert (start.run, start.encoder, start.decoder) == (
            (None, "given", "given") if encoder else ("given", None, None)
        )


@pytest.mark.parametrize("task", ["titles", "questions"])
def test_titles_and_questions_of_veco_come_from_it_on_both_sides(task, tmp_path, monkeypatch):
    """The model is one with a decoder, which the run's is not."""
    words = configured("seq2seq").task_words("VECO", task, Path("run"))
    assert words[-1] == "INIT_FROM=run"
    monkeypatch.chdir(tmp_path)
    write_record(tmp_path / "run", cross_attention=True)
    bound = read("finetune", [*words, "VOCABULARY_SIZE=4000"], Path("x")).bound
    model, start = bound["model"], bound["init_from"]
    assert (model.layers, model.decoder_layers, model.language_tokens) == (3, 3, 8)
    assert (model.dropout, model.dtype, model.streams) == (0.1, "float32", 0)
    assert (start.run, start.encoder, start.decoder) == (None, "run", "run")
    assert [run.objective.name for run in bound["objectives"]] == ["generation"]
