"""The papers' ablations as bake-offs: each mix trains what its row of the table says, and each task
starts from it."""

import os
import shlex
import subprocess
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.config.test_recipes import write_record
from xlingjax.config import recipe as recipes
from xlingjax.config.gin_files import gin_folder
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
    files = [value for flag, value in pairwise(line) if flag == "--gin_file"]
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


def test_mbart_is_classified_on_its_decoder():
    config = configured("veco_5")
    for mix in config.mixes:
        words = config.task_words(mix, "nli", Path("given"))
        assert words[-1] == "INIT_FROM=given"
        assert ("CLASSIFIER=decoder" in words) == mix.startswith("mBART")
        assert ("CLASSIFIER=xlmr" in words) != mix.startswith("mBART")


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


@pytest.mark.parametrize("name", ["unicoder_2", "ernie_m_6"])
def test_the_command_for_captions_in_the_recipes_head_is_one(name):
    """Another `BASE` alone: what the mixes add then fits it, too."""
    head = (gin_folder() / f"recipes/bakeoff_{name}.gin").read_text("utf-8").split("include")[0]
    line = head[head.index("--gin.TASKS") :].replace("\n#", "").replace("FOLDER", "captions")
    given = [word.removeprefix("--gin.") for word in shlex.split(line)]
    config = configured(name, *given)
    assert (config.tasks, config.tasks_of) == ({}, {})
    names = [" ".join(sorted(turns(built(config, mix, "de en")))) for mix in config.mixes]
    # The captions have no documents for CL-MLM.
    assert names == [row.replace("cl_mlm ", "") for row in TABLES[name].values()]
    assert {built(config, mix, "de en")["model"].layers for mix in config.mixes} == {2}


def test_what_vecos_study_changes():
    config = configured("veco")
    seldom = turns(built(config, "MLM + TLM, as seldom as in VECO"))
    # Four steps in five, and one of five terms.
    assert seldom["tlm"] / STEPS == pytest.approx(0.8 / 5, abs=0.002)
    objectives = {mix: built(config, mix)["objectives"][1] for mix in config.mixes}
    restart = {mix: in_stages(run)[0].source.settings for mix, run in objectives.items()}
    assert restart["MLM + TLM"]["reset_positions"]
    assert not restart["MLM + TLM, positions run on"]["reset_positions"]
    found = {mix: in_stages(run)[0].objective for mix, run in objectives.items()}
    whole = found["VECO"]
    assert found["VECO, positions restart"] == replace(whole, reset_positions=True)
    for name in ("VECO, without plug in", "VECO, positions restart, TLM x 16"):
        assert len({*found[name].coefficients.values()}) == (1 if "without" in name else 2)
    assert [*found["VECO, without plug in"].coefficients] == [
        term for term in whole.coefficients if "plug_in" not in term
    ]
    assert found["VECO, positions restart, TLM x 16"].coefficients["veco_tlm"] == 16


def test_the_study_on_captions_is_made_of_mixes_that_train(tmp_path):
    """With a command in place of xlingjax that writes down what it is asked."""
    asked = tmp_path / "asked"
    stub = tmp_path / "xlingjax"
    stub.write_text(f'#!/bin/bash\nprintf "%s\\0" "$@" "" >> {asked}\n', encoding="utf-8")
    stub.chmod(0o755)
    for name in ("train/de-en.de", "train/de-en.en", "test.de", "test.en"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x\n", encoding="utf-8")
    command = ["bash", "benchmarks/veco_study.sh", "train", "test", "out"]
    command[2:] = [str(tmp_path / name) for name in command[2:]]
    subprocess.run(command, check=True, env={**os.environ, "XLINGJAX": str(stub)})
    lines = [line.split("\0") for line in asked.read_text("utf-8").split("\0\0") if line]
    assert [line[0] for line in lines] == ["vocab", "bakeoff", "bakeoff", "bakeoff"]
    mixes = []
    for line in lines[1:]:
        given = [word.removeprefix("--gin.") for word in line if word.startswith("--gin.")]
        config = configured("veco", *given)
        assert not config.tasks and config.tokens == 2_000_000
        for mix, words in config.mixes.items():
            bound = built(replace(config, mixes={mix: without_runs(words)}), mix, "de en")
            assert (bound["model"].layers, bound["model"].dim) == (2, 64)
            mixes.append(mix)
    assert len(mixes) == len({*mixes}) == 27
