"""`xlingjax adapt`: from a Hugging Face folder and files of text to a Hugging Face folder, and what
it decides on the way."""

import json
import os
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from xlingjax.cli.main import main
from xlingjax.convert import import_model
from xlingjax.data.check import Findings
from xlingjax.data.holdout import held_out
from xlingjax.errors import UserError
from xlingjax.model.partition import MeshConfig
from xlingjax.workflows.adapt import prepare
from xlingjax.workflows.adapt.held_out import first_lines, heldout_shares, write_heldout
from xlingjax.workflows.adapt.prepare import EVALUATIONS, first_model
from xlingjax.workflows.adapt.request import Request, absolute, default_objectives
from xlingjax.workflows.adapt.trial import steps_within

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import small_xlmr  # noqa: E402 - needs transformers


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLINGJAX_CACHE", str(tmp_path_factory.mktemp("cache")))
        # In this process: half of a run's time would be the start of another one, which
        # test_notebook.py has.
        patch.setattr(
            import_model,
            "import_apart",
            lambda folder, run, verify: import_model.import_model(str(folder), str(run), verify),
        )
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the model `hf`, and pairs, of which one in ten is held out."""
    folder = tmp_path_factory.mktemp("adapt")
    small_xlmr.save(folder / "hf")
    (folder / "hf" / "1_Pooling").mkdir()
    told = {"1_Pooling/config.json": {"pooling_mode": "cls"}}
    told["config_sentence_transformers.json"] = {
        "prompts": {"text": "Tag: "},
        "default_prompt_name": "text",
    }
    for name, value in told.items():
        (folder / "hf" / name).write_text(json.dumps(value))
    words = {"de": ("Wasser", "See", "kalt", "Tag"), "en": ("water", "lake", "cold", "day")}
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 4, (640, 3))
    for language, own in words.items():
        lines = [" ".join(own[i] for i in row) + "." for row in rows]
        (folder / f"de-en.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


SMALL = ["--batch", "8", "--length", "32"]


def words(*parts):
    return ["adapt", *map(str, parts)]


def adapt(place, *more):
    given = [place / "hf", "--to", place / "out", "--parallel", place / "de-en.*"]
    return main(words(*given, "--steps", 4, *SMALL, *more))


@pytest.fixture(scope="module")
def adapted(place):
    assert adapt(place, "--gin.LEARNING_RATE=3e-3", "--license", "mit") == 0
    return place / "out"


@pytest.mark.long
def test_the_folder_opens_and_is_what_was_trained(adapted, monkeypatch):
    from xlingjax.inference.run import open_run

    model = transformers.AutoModelForMaskedLM.from_pretrained(adapted / "model")
    trained, first = open_run(adapted / "run"), open_run(adapted / "start")
    ours = np.asarray(trained.params["encoder"]["layers"]["ffn"]["in"]["kernel"])
    theirs = model.state_dict()["roberta.encoder.layer.2.intermediate.dense.weight"].numpy()
    np.testing.assert_array_equal(ours[2].T, theirs)
    assert (
        np.abs(ours - np.asarray(first.params["encoder"]["layers"]["ffn"]["in"]["kernel"])).max()
        > 1e-4
    )
    assert transformers.AutoTokenizer.from_pretrained(adapted / "model")("water")["input_ids"] == [
        0, *trained.vocabulary.encode("water"), 2,
    ]  # fmt: skip
    card = (adapted / "model" / "README.md").read_text()
    assert 'license: "mit"' in card and "# out" in card
    (code,) = re.findall(r"```python\n(.+?)```", card, re.DOTALL)
    monkeypatch.chdir(adapted / "model")
    exec(code, names := {})
    np.testing.assert_allclose(
        names["vectors"].numpy(), trained.embed(["Hello, world."], "en")[-1], atol=1e-4
    )


@pytest.mark.long
def test_sentence_vectors_stay_those_of_thefirst_model(adapted):
    """Measured by its pooling and with its prefix, before and after, and told to whom opens the
    result."""
    from xlingjax.inference.run import open_run

    own = open_run(adapted / "start").sentences
    assert (own.pooling, own.prefix) == ("first", "Tag: ") and open_run(
        adapted / "run"
    ).sentences == own
    for folder in ("start", "run"):
        lines = map(json.loads, (adapted / folder / "evaluations.jsonl").read_text().splitlines())
        for values in [line["values"] for line in lines if line["name"] == "retrieval"]:
            assert values["prefix"] == "Tag: " and [*values["by_layer"]] == ["first"]
    described = json.loads((adapted / "model" / "config_sentence_transformers.json").read_text())
    assert described["prompts"] == {"text": "Tag: "} and described["default_prompt_name"] == "text"
    assert json.loads((adapted / "model" / "1_Pooling" / "config.json").read_text())[
        "pooling_mode_cls_token"
    ]


@pytest.mark.long
def test_before_and_after_are_measured_on_lines_that_were_not_trained_on(adapted):
    told = json.loads((adapted / "adapted.json").read_text())
    rows = {row["figure"]: (row["before"], row["after"]) for row in told["before_after"]}
    assert {"perplexity de", "perplexity en", "perplexity, mean"} <= {*rows}
    assert any(name.startswith("retrieval") for name in rows)
    before, after = rows["perplexity, mean"]
    assert after < 0.9 * before
    record = json.loads((adapted / "run" / "run.json").read_text())
    table = record["identity"]["data"]["mlm"]["sampling_table"]
    assert told["held_out_share"] == {"text": 0.1, "pairs": 0.1}
    held = (adapted / "heldout" / "text" / "de.txt").read_text().splitlines()
    assert len(held) == held_out(640, 0.1).sum() and all(
        row["sentences"] == 640 - len(held) for row in table
    )
    english = (adapted / "heldout" / "pairs" / "de-en.en").read_text().splitlines()
    assert (
        len(english)
        == len((adapted / "heldout" / "pairs" / "de-en.de").read_text().splitlines())
        == len(held)
    )


@pytest.mark.long
def test_a_model_that_got_worse_is_not_the_one_that_comes_out(adapted, place, tmp_path, capsys):
    """Steps that are far too long: the first model's weights come out, and the others beside."""
    given = ["--mono", str(place / "de-en.*"), "--batch", "8", "--length", "32", "--steps", "2"]
    rate = ["--gin.LEARNING_RATE=1.0", "--gin.WARMUP_STEPS=0", "--unverified"]
    out = tmp_path / "out"
    assert main(["adapt", str(adapted / "run"), "--to", str(out), *given, *rate]) == 0
    said = capsys.readouterr().out
    assert "the adapted model is worse than the first: perplexity, mean" in said
    assert json.loads((out / "adapted.json").read_text())["worse"]
    folders = (place / "out" / "model", out / "model", out / "adapted")
    first, kept, beside = (
        transformers.AutoModelForMaskedLM.from_pretrained(folder).state_dict() for folder in folders
    )
    assert all(torch.equal(first[name], kept[name]) for name in first)
    assert not all(torch.equal(first[name], beside[name]) for name in first)


@pytest.mark.long
def test_the_same_command_has_nothing_left_to_do_and_another_is_refused(
    adapted, place, tmp_path, capsys
):
    given = ["--gin.LEARNING_RATE=3e-3", "--license", "mit"]
    assert adapt(place, *given) == 0
    assert "nothing left to do" in capsys.readouterr().out
    (tmp_path / "rate.gin").write_text("MASK_RATE = 0.2\n")
    (tmp_path / "more.gin").write_text('include "rate.gin"\n')
    for more, message in (
        (
            ["--gin.LEARNING_RATE=2e-3"],
            "was begun with LEARNING_RATE 0.003, now 0.002; give the old to go on",
        ),
        (
            [*given, "--gold", str(place)],
            f"was begun with --gold None, now {place}; give the old",
        ),
        (
            [*given, "--gin-file", str(tmp_path / "more.gin")],
            "was begun with MASK_RATE 0.15, now 0.2; give the old",
        ),
        (
            [*given, "--license", "cc0-1.0"],
            "out/model was written with --license mit, now cc0-1.0; another one: xling",
        ),
    ):
        assert adapt(place, *more) == 2
        assert message in (said := capsys.readouterr().err) and said.count("\n") == 1
    (tmp_path / "rate.gin").write_text("MASK_RATE = 0.15\n")
    assert adapt(place, *given, "--gin-file", str(tmp_path / "more.gin")) == 0  # nothing is another


@pytest.mark.long
def test_an_import_is_used_again_until_its_source_changes(adapted, place, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(
        import_model,
        "import_apart",
        lambda *given: made.append((given[0], given[2])) or given[1].mkdir(),
    )
    first_model(str(place / "hf"), tmp_path / "again")
    assert not made
    copy = tmp_path / "hf"
    shutil.copytree(place / "hf", copy)
    first_model(str(copy), tmp_path / "other")
    os.utime(copy / "config.json", (0, 0))
    first_model(str(copy), tmp_path / "changed")
    first_model(str(copy), tmp_path / "unverified", verify=False)
    assert made == [(copy, True), (copy, True), (copy, False)]


@pytest.mark.long
def test_the_saved_recipe_gives_the_same_weights(adapted, tmp_path):
    import jax

    from xlingjax.inference.run import open_run

    arguments = ["--gin-file", str(adapted / "recipe.gin"), "--to", str(tmp_path / "again")]
    assert main(["pretrain", *arguments, "--gin.train.evaluators=[]"]) == 0
    jax.tree.map(
        np.testing.assert_array_equal,
        open_run(tmp_path / "again").params,
        open_run(adapted / "run").params,
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--objectives", "mlm", "tlx"], "--objectives tlx: no objective; did you mean 'tlm'?"),
        (["--objectives", "mlm", "mlm"], "name at least one, and each once"),
        (["--objectives", "clm"], "--objectives clm: clm is not for an encoder to go on with"),
        (["--objectives", "unicoder", "--parallel", "x"], "unicoder: cl_mlm is not for an encoder"),
        (["--objectives", "mlm", "mlm_tlm"], "and each once: mlm, mlm, tlm"),
        (["--hours", "1"], "give --hours or --steps"),
        (["--parallel", "my pairs/*"], "my pairs/*': a recipe separates patterns by spaces"),
        (["--gin.BATCH=8"], "--gin.BATCH: give --batch instead"),
        (["--gold", "nowhere"], "--gold nowhere: no such folder"),
    ],
)
def test_what_cannot_be_meant_is_refused(more, message, place, tmp_path, capsys):
    given = words(place / "hf", "--to", tmp_path / "out", "--mono", f"de={place / 'de-en.de'}")
    assert main([*given, "--steps", "4", *more]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "out" / "start").exists()
    assert main([*given, "--steps", "4", "--objectives", "tlm"]) == 2
    assert "--objectives tlm needs pairs: give --parallel" in capsys.readouterr().err


def test_pairs_that_cannot_be_the_text_too_need_text(place, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(place)
    for parallel, message in (
        ("pairs.tsv", "--parallel pairs.tsv: the sides of a table are not read as text"),
        ("de-en.de", "the text of en would be left out: name both"),
    ):
        to = tmp_path / "out"
        assert main(words(place / "hf", "--to", to, "--parallel", parallel, "--steps", 4)) == 2
        assert message in capsys.readouterr().err and not (to / "start").exists()


@pytest.mark.long
def test_a_refusal_binds_no_option_and_what_cannot_be_exported_is_not_trained(
    adapted, place, tmp_path, capsys
):
    """Three letters of a language have to be said with every file."""
    from xlingjax.inference.run import open_run
    from xlingjax.training.workdir import write_workdir

    first = adapted / "start"
    write_workdir(
        str(first),
        str(tmp_path / "other"),
        0,
        open_run(first).params,
        "test",
        {},
        activation="gelu_tanh",
    )
    given = ["--to", str(tmp_path / "out"), "--mono", f"lin={place / 'de-en.de'}", "--batch", "8"]
    assert main(["adapt", str(tmp_path / "other"), *given, "--steps", "2", "--length", "32"]) == 2
    said = capsys.readouterr()
    assert "no class of transformers computes" in said.err and "sentences" not in said.out
    assert main(["adapt", str(first), *given, "--steps", "2"]) == 2
    assert "--length 128: the model has 68 positions" in (said := capsys.readouterr()).err
    assert "sentences" not in said.out
    assert main(["adapt", str(first), *given, "--steps", "2", "--length", "32"]) == 0
    said = capsys.readouterr().out
    assert "perplexity lin" in said and "held out: lin.txt 64 lines" in said
    assert "base_model:" not in (tmp_path / "out" / "model" / "README.md").read_text()


@pytest.mark.long
def test_hours_are_measured_by_a_trial(adapted, place, tmp_path, capsys):
    given = words(adapted / "start", "--to", tmp_path / "out", "--mono", place / "de-en.de")
    more = [*SMALL, "--unverified", "--gin.DTYPE=bfloat16", "--gin.WARMUP_STEPS=2"]
    assert main([*given, "--hours", "0.00001", *more]) == 2
    assert "--hours is too little" in capsys.readouterr().err
    assert main([*given, "--hours", "0.03", *more]) == 0
    out = capsys.readouterr().out
    # The trial's own text, steps and page would be told twice.
    assert "measured in a trial" in out and out.count("finished at step") == 1
    record = json.loads((tmp_path / "out" / "adapted.json").read_text())
    speed = record["speed"]
    left = record["training_seconds"] + speed["seconds_per_evaluation"]
    assert record["settings"]["TRAIN_STEPS"] == steps_within(left, speed, EVALUATIONS)[0]
    # Of a machine that became slower fewer: its time was over.
    done = json.loads((tmp_path / "out" / "run" / "result.json").read_text())
    assert 0 < done["steps"] <= record["settings"]["TRAIN_STEPS"] and left < 108


@pytest.mark.parametrize(
    ("architecture", "modules", "pairs", "wanted"),
    [
        ("XLMRobertaModel", False, ["p"], "distillation"),
        ("XLMRobertaModel", False, [], "mlm"),
        ("ModernBertForMaskedLM", False, ["p"], "mlm"),
        ("BertForMaskedLM", True, ["p"], "distillation"),
    ],
)
def test_what_a_model_was_made_for_is_what_it_learns(
    tmp_path, architecture, modules, pairs, wanted
):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    if modules:
        (tmp_path / "modules.json").write_text("[]")
    assert default_objectives(str(tmp_path), pairs) == (wanted,)


@pytest.mark.parametrize(("head", "wanted"), [(False, "distillation"), (True, "mlm")])
def test_an_imported_run_learns_what_its_folder_would(tmp_path, head, wanted):
    record = {"released": {"model_type": "bert", "vocabulary_head": head}}
    (tmp_path / "run.json").write_text(json.dumps(record))
    assert default_objectives(str(tmp_path), ["p"]) == (wanted,)


def test_heldout_pairs_keep_line_beside_line(tmp_path):
    for language in ("en", "fr"):
        lines = [f"{language} {i}" if i % 5 else "" for i in range(320)]
        (tmp_path / f"en-fr.{language}").write_text("\n".join(lines) + "\n")
    share = {"text": 0.1, "pairs": 0.1}
    written = write_heldout(
        [str(tmp_path / "en-fr.*")], [str(tmp_path / "en-fr.*")], share, tmp_path / "held"
    )
    french = (tmp_path / "held" / "pairs" / "fr-en.fr").read_text().split("\n")[:-1]
    english = (tmp_path / "held" / "pairs" / "fr-en.en").read_text().split("\n")[:-1]
    kept = [i for i in np.flatnonzero(held_out(320, 0.1)) if i % 5]
    assert french == [f"fr {i}" for i in kept] and english == [f"en {i}" for i in kept] and kept
    assert written["fr-en.fr"] == len(kept)


def test_the_sides_of_held_out_pairs_are_cut_at_the_same_lines():
    ours, theirs = "one\u2028and\rone\ntwo\nthree\n", "eins\nzwei\ndrei\n"
    assert first_lines(ours.encode(), 2).decode() == "one\u2028and\rone\ntwo\n"
    assert first_lines(theirs.encode(), 2) == b"eins\nzwei\n"
    assert first_lines(theirs.encode(), 9) == theirs.encode()


def request(**changed):
    given = {"source": "", "mono": ("a",), "parallel": ("b",), "objectives": ("mlm",)}
    given |= {"hours": None, "steps": 1, "batch": 1, "length": 1, "gold": None, "teacher": None}
    return Request(**given | {"files": (), "overrides": ()} | changed)


@pytest.mark.parametrize(("room", "parts"), [(18, 1), (17, 2), (6, 4), (3, None)])
def test_microbatches_are_as_few_as_the_compiler_fits(room, parts, monkeypatch):
    def answer(files, overrides, on):
        count = int(overrides[0].removeprefix("MICROBATCHES="))
        peaks = [8 // count + 2, 16 // count + 2]
        return {"room": room, "programs": [{"error": "", "peak": peak} for peak in peaks]}

    recipe = SimpleNamespace(bound={"mesh": MeshConfig()})
    monkeypatch.setattr(prepare, "read_recipe", lambda *_: recipe)
    monkeypatch.setattr(prepare, "answer", answer)
    if parts:
        assert prepare._microbatches(request(batch=64), "recipe") == parts
    else:
        with pytest.raises(UserError, match="more memory than it has; shorten the rows"):
            prepare._microbatches(request(batch=64), "recipe")


def test_each_kind_of_text_has_its_share_unless_they_are_the_same_files():
    rows = {"text": [{"sentences": 2500}, {"sentences": 10**6}], "pairs": [{"sentences": 10**5}]}
    found = Findings(tables=rows)
    assert heldout_shares(found, request()) == {"text": 200 / 2500, "pairs": 200 / 10**5}
    assert heldout_shares(found, request(mono=())) == {"text": 200 / 2500, "pairs": 200 / 2500}


OFFERED = ("mlm", "tlm", "camlm", "btmlm", "clwr", "clpc", "veco")


def test_what_an_objective_reads_and_adds_is_what_it_declares():
    all_of_them = request(objectives=OFFERED)
    assert {*OFFERED} <= {*all_of_them.known}
    assert all_of_them.names == [*OFFERED[:-1], "veco_text", "veco"]
    adding = [name for name in OFFERED if all_of_them.adds(name)]
    assert adding == ["clwr", "clpc", "veco"]
    of_text = [name for name in all_of_them.names if all_of_them.text_of(name) == "text"]
    assert of_text == ["mlm", "btmlm", "veco_text"]
    for name in OFFERED[1:]:
        with pytest.raises(UserError, match=f"--objectives {name} needs pairs"):
            request(parallel=(), objectives=(name,))


def test_patterns_are_made_absolute_with_their_codes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/x")
    for pattern, wanted in (
        ("text/a=b/*.txt", f"{tmp_path}/text/a=b/*.txt"), ("lin=t.txt", f"lin={tmp_path}/t.txt"),
        ("zh-Hant=~/t", "zh-Hant=/home/x/t"), ("~/t", "/home/x/t"),
    ):  # fmt: skip
        assert absolute(pattern) == wanted
