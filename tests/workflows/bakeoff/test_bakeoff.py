"""The bake-off runs each cell once, gives every mix its tokens, and loses nothing when it is
stopped."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers.files import write
from xlingjax.cli import main
from xlingjax.data.vocabulary.training import train_vocabulary
from xlingjax.errors import UserError
from xlingjax.runtime.files import write_json
from xlingjax.workflows.bakeoff import page as told
from xlingjax.workflows.bakeoff import runs as bakeoff
from xlingjax.workflows.bakeoff.runs import summary
from xlingjax.workflows.jobs import many, recipe_run

MIXES = {
    "MLM": ["mlm.gin"],
    "MLM + TLM": [
        "both.gin",
        "TLM_WEIGHT=4",
        "STAGE_1_STEPS=0.667*STEPS",
        "CAMLM_WEIGHT={0: 2, 0.5*STEPS: 8}",
    ],
}
TOKENS_A_STEP = {"MLM": 100, "MLM + TLM": 80}
SEED = "--gin.SEED=0"


HASHES = {"de": "a" * 64, "rows": "b" * 64}
"""Of what pretraining and fine-tuning read."""


def evaluated(seed):
    """What a pretraining and its fine-tuning measure."""
    score = 0.5 + 0.01 * seed
    shares = {"0": 0.1, "1": 0.2}
    layers = {n: {"raw_en_to_xx": r, "centred_en_to_xx": 2 * r} for n, r in shares.items()}
    errors = {"0": {"itermax": 0.4}, "1": {"itermax": 0.3}}
    return {
        "retrieval": {"retrieval_mean": score, "by_layer": {"mean": layers}},
        "alignment": {"alignment_error": 0.3, "by_layer": errors},
        "perplexity": {"accuracy_mean": 0.25, "accuracy_by_language": {"de": 0.2, "en": 0.3}},
        "nli_test": {"en": 0.9, "mean_other": score},
    }


@pytest.fixture
def commands(monkeypatch):
    """The commands that were run; each writes the result that its run would."""
    lines = []

    def run(line, **options):
        """The exit status."""
        lines.append(line[3:])
        workdir = Path(line[line.index("--to") + 1])
        bindings = dict(word[6:].split("=", 1) for word in line if word.startswith("--gin."))
        if bindings.get("SEED") == "13":
            options["stdout"].write("error: unlucky\n")
            return 2
        mix, speeds = "MLM", {"mlm": 12.0}
        if "both.gin" in line:
            mix, speeds = "MLM + TLM", {"mlm": 12.0, "tlm": 8.0}
        data = {"mlm": {"text": {name: x for name, x in HASHES.items() if name != "rows"}}}
        if line[3] == "finetune":
            data = {"nli": {"sha256": HASHES["rows"]}}
        workdir.mkdir(parents=True, exist_ok=True)
        write_json(workdir / "run.json", {"identity": {"data": data}})
        result = {
            "exit_reason": "finished",
            "tokens_seen": int(bindings.get("TRAIN_STEPS", 7)) * TOKENS_A_STEP[mix],
            "tokens_per_second": 10.0,
            "tokens_per_second_by_objective": speeds,
            "evaluations": evaluated(int(bindings.get("SEED", 0))),
        }
        # Whole, as a run's: other cells read it meanwhile.
        write_json(workdir / "result.json", result)
        return 0

    class Process:
        def __init__(self, line, **options):
            self.status = run(line, **options)

        def poll(self):
            return self.status

        wait = poll

    # Only the bake-off's own: matplotlib starts a process to find fonts where it has no list of
    # them yet.
    fake = SimpleNamespace(Popen=Process, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr(many, "subprocess", fake)
    return lines


@pytest.fixture
def unread(monkeypatch):
    """Recipes that are not there: their words are their settings."""
    monkeypatch.setattr(recipe_run, "settings_of", "\n".join)


def compare(folder, seeds=(0, 1), **options):
    """Run a bake-off, which says nothing."""
    return bakeoff.run(configured(seeds=seeds, **options), folder, say=lambda line: None)


def configured(**options):
    return bakeoff.Bakeoff(
        **{"base": ["base.gin"], "mixes": MIXES, "seeds": (0, 1), "tokens": 12_000, **options}
    )


NLI = {"nli": ["nli.gin"]}


def test_every_mix_reads_the_same_tokens_and_finished_cells_are_not_run_again(
    commands, unread, tmp_path
):
    found = compare(tmp_path, tasks=NLI)
    assert [cell["figures"]["tokens"] for cell in found["cells"]] == [12_000] * 4
    assert len(commands) == 2 + 4 + 4  # calibration, pretraining, fine-tuning
    both = [line for line in commands if "both.gin" in line and "--gin.SEED=1" in line]
    assert both[0][:1] == ["pretrain"]
    shares = ["TRAIN_STEPS=150", "STAGE_1_STEPS=100", "CAMLM_WEIGHT={0: 2, 75: 8}"]
    assert {f"--gin.{one}" for one in shares} <= {*both[0]}
    tuned = [line for line in commands if line[0] == "finetune"]
    assert all(any(word.startswith("--gin.INIT_FROM=") for word in line) for line in tuned)
    done = len(commands)
    (tmp_path / "cells" / "mlm-1" / "nli" / "result.json").unlink()
    assert compare(tmp_path, tasks=NLI) == found and len(commands) == done + 1
    assert json.loads((tmp_path / "bakeoff.json").read_text())["cells"] == found["cells"]


def test_encoder_decoders_are_compared_by_their_own_recipe(commands, tmp_path, monkeypatch):
    """Whose evaluations read no held-out text: gin itself says what each run may be told."""
    german = "Der Hund schläft im Haus.\nDie Katze trinkt Milch.\n" * 9
    text = write(tmp_path / "mono/de.txt", german)
    # The recipe's own pairs, as `make pretrain` writes them: some mixes read none.
    pairs = tmp_path / "runs/demo/data/parallel"
    write(pairs / "de-en.de", german)
    write(pairs / "de-en.en", "The dog sleeps at home.\nThe cat drinks milk.\n" * 9)
    monkeypatch.chdir(tmp_path)
    train_vocabulary(tmp_path / "vocab", mono=[str(text)], size=40)
    base = ["EVAL_EVERY=0", f"MONO='{text}'", f"VOCABULARY='{tmp_path}/vocab'"]
    words = ["bakeoff", "--gin-file", "gin/recipes/bakeoff_seq2seq.gin"]
    words += ["--to", str(tmp_path / "out"), f"--gin.BASE={base}"]
    mix = "{'spans': ['recipes/xdae_tiny.gin', 'objectives/span_corruption.gin']}"
    words += ["--gin.TASKS={}", "--gin.TASKS_OF={}", "--gin.SEEDS=(0,)", "--gin.TOKENS=12000"]
    assert main.main([*words, f"--gin.MIXES={mix}"]) == 0
    first, whole = commands
    assert "--gin.TRAIN_STEPS=60" in first and "--gin.TRAIN_STEPS=120" in whole
    held_out = [word for word in first if word.startswith("--gin.HELDOUT")]
    assert held_out == ["--gin.HELDOUT_PAIRS=None"]


def test_a_mix_has_words_of_its_own_for_a_task(commands, unread, tmp_path):
    """Nothing but those words says where its run goes, where they say it."""
    words = ["mt.gin", "INIT_ENCODER={encoder}", "A={b}"]
    compare(tmp_path, (0,), tasks=NLI, tasks_of={"MLM + TLM": {"nli": words}})
    cells = tmp_path / "cells"
    first, second = [line[3:] for line in commands if line[0] == "finetune"]
    assert first == ["--gin-file", "nli.gin", f"--gin.INIT_FROM={cells}/mlm-0/pretrain", SEED]
    start = f"--gin.INIT_ENCODER={cells}/mlm_tlm-0/pretrain"
    assert second == ["--gin-file", "mt.gin", start, "--gin.A={b}", SEED]


def test_figures_are_those_of_the_test_set():
    """Of labels accuracy in English and elsewhere, of texts BLEU in the same way, of translations
    BLEU over all directions."""
    bleu = {"bleu_mean": 30.0, "bleu_trained": 60.0, "bleu_others": 20.0}
    tasks = {
        "nli": {"nli_dev": {"en": 0.1}, "nli_test": {"en": 0.9, "mean_other": 0.5}},
        "titles": {"generation_dev": {"bleu_mean": 1.0}, "generation_test": bleu},
        "translation": {"generation_test": {"bleu_mean": 36.0}},
    }
    pretrained = {"tokens_seen": 7, "tokens_per_second": 1.0, "evaluations": {}}
    assert summary(pretrained, tasks)["figures"] == {
        "nli_en": 0.9,
        "nli_other": 0.5,
        "titles_en": 60.0,
        "titles_other": 20.0,
        "translation": 36.0,
        "tokens": 7,
        "tokens_per_second": 1.0,
    }


def test_a_folder_of_other_settings_is_refused(commands, unread, tmp_path):
    """Another learning rate would go on where the old one ended, and old figures would stand for
    the new mix."""
    compare(tmp_path, tasks=NLI)
    done = len(commands)
    other = {**MIXES, "MLM": ["mlm.gin", "LEARNING_RATE=1e-3"]}
    refused = "calibration/mlm was run with other settings.*LEARNING_RATE=1e-3.*delete that"
    with pytest.raises(UserError, match=refused):
        compare(tmp_path, mixes=other, tasks=NLI)
    shutil.rmtree(tmp_path / "calibration" / "mlm")
    shutil.rmtree(tmp_path / "cells" / "mlm-0" / "pretrain")
    refused = "cells/mlm-0/nli was run with other settings.*LEARNING_RATE"
    with pytest.raises(UserError, match=refused):
        compare(tmp_path, (0,), mixes=other, tasks=NLI)
    assert len(commands) == done + 2  # neither the old classifier nor the rest


def test_seeds_of_one_mix_that_read_other_data_are_refused(commands, unread, monkeypatch, tmp_path):
    """Files that changed under the same name: figures of old and new text would stand in one
    table."""

    def refused(run, what):
        match = rf"mlm-1/{run} has read other data than \S*mlm-0/{run} \({what}\)"
        with pytest.raises(UserError, match=match):
            compare(tmp_path, tasks=NLI)

    compare(tmp_path, (0,), tasks=NLI)
    monkeypatch.setitem(HASHES, "de", "d" * 64)
    compare(tmp_path, (0,), tasks=NLI)  # what is finished stays
    done = len(commands)
    for _ in range(2):  # found when all are done, and before anything is begun
        refused("pretrain", "mlm")
        assert len(commands) == done + 4
    monkeypatch.setitem(HASHES, "de", "a" * 64)
    [shutil.rmtree(path) for path in tmp_path.glob("cells/*-1")]
    monkeypatch.setitem(HASHES, "fr", "f" * 64)  # text of another language beside it
    refused("pretrain", "mlm")
    monkeypatch.delitem(HASHES, "fr")
    monkeypatch.setitem(HASHES, "rows", "c" * 64)
    [shutil.rmtree(path) for path in tmp_path.glob("cells/*-1")]
    refused("nli", "nli")


def test_a_row_is_mean_and_deviation_over_seeds():
    figures = [("a", {"x": 1.0, "y": 2.0}), ("a", {"x": 3.0}), ("b", {"x": 5.0, "y": 4.0})]
    means, deviations = told.by_mix([{"mix": mix, "figures": one} for mix, one in figures])
    assert means.at["a", "x"] == 2.0 and means.at["b", "y"] == 4.0
    assert deviations.at["a", "x"] == pytest.approx(2**0.5) and deviations.at["b", "x"] == 0.0
    # Another seed lacks it.
    assert told.shown("y", means.at["a", "y"], 0.0) == "–"


def test_the_page_shows_every_mix_and_its_layers(commands, unread, tmp_path):
    found = compare(tmp_path, tasks=NLI, jobs=2)
    first = found["cells"][0]
    by_layer = {"raw": {"0": 0.1, "1": 0.2}, "centred": {"0": 0.2, "1": 0.4}}
    assert first["by_layer"] == by_layer | {"itermax": {"0": 0.4, "1": 0.3}}
    lines = re.sub(" +", " ", told.write(found, tmp_path).read_text()).splitlines()
    assert lines.count("| mix | 0 | 1 |") == 3 and lines.count("| MLM | 0.400 | 0.300 |") == 1
    row = "| MLM | 0.505 ± 0.007 | 0.300 | 0.250 | 0.900 | 0.505 ± 0.007 | 12,000 | 10 |"
    assert row in lines


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"MIXES": {"a": [], "b": ["TLM_WEIHGT=2"]}}, "mix 'b': --gin.TLM_WEIHGT: this recipe has"),
        (
            {"TASKS_OF": {"VECO": {"nli": ["recipes/nli_tiny.gin", "BATCH=x"]}}},
            "task 'nli' of mix 'VECO': --gin.BATCH='x': a whole number is needed",
        ),
        ({"TASKS_OF": {"VECCO": {"nli": []}}}, "'VECCO' is no mix; there are "),
        ({"TASKS": {"../x": ["recipes/nli_tiny.gin"]}}, "must differ: "),
        ({"SEEDS": (0, 1, 0)}, "and no seed twice"),
        (
            {"MIXES": {"MLM + TLM": [], "mlm_tlm": []}, "TASKS_OF": {}},
            "must differ: MLM + TLM, mlm",
        ),
    ],
)
def test_every_word_is_read_before_anything_is_trained(commands, tmp_path, capsys, given, said):
    words = [f"--gin.{name}={value}" for name, value in given.items()]
    line = ["bakeoff", "--gin-file", "recipes/bakeoff.gin", "--to", str(tmp_path / "out")]
    assert main.main([*line, *words]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert said in error
    assert commands == [] and not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="set bakeoff.tokens"):
        bakeoff.command("pretrain", ["STAGE_1_STEPS=0.5*STEPS"], tmp_path, None)
