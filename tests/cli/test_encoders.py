"""VECO, ERNIE-M and Unicoder from the command line, and what one does with a trained encoder."""

import dataclasses
import json
import os

import jax
import numpy as np
import pytest

from tests.helpers.small_corpus import ENGLISH, GERMAN, arguments, build, options, write
from xlingjax.cli import main
from xlingjax.convert import cross_attention
from xlingjax.data.text.sources import find_pairs
from xlingjax.errors import UserError
from xlingjax.inference.run import open_run
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import bidirectional
from xlingjax.report.run import read_run
from xlingjax.training.checkpoint_params import load_params

# Unicoder's and ERNIE-M's. The files of single objectives are built in test_recipes.py.
ALL = ("mlm", "tlm", "clwr", "clpc", "cl_mlm", "camlm", "btmlm")
PAIRS = [*zip(ENGLISH, GERMAN, strict=True)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("corpus")
    os.environ["XLINGJAX_CACHE"] = str(root / "cache")
    build(root)
    for code, lines in (("en", ENGLISH), ("de", GERMAN)):
        write(root / "documents" / f"de-en.{code}", [*lines, "", *reversed(lines), "", *lines])
        write(root / "align" / f"de-en.{code}", [line.rstrip(".") for line in lines])
    write(root / "align" / "de-en.txt", ["0-0 1-1 2-2", "0-0", "1-1", "0-0"])
    yield root
    del os.environ["XLINGJAX_CACHE"]


def command(verb, corpus, *rest, objective, **overrides):
    bindings = options(corpus, DOCUMENTS=f"{corpus}/documents", **overrides)
    if "cl_mlm" not in objective and "unicoder" not in objective:
        del bindings["DOCUMENTS"]
    words = arguments(verb, "xlm_text", bindings, *rest)
    return [*words, "--gin-file", f"gin/objectives/{objective}.gin"]


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """The workdir of a VECO run with a first phase of two steps."""
    workdir = tmp_path_factory.mktemp("veco") / "run"
    given = {
        "FIRST_PHASE": 2,
        "VECO_RESET_POSITIONS": True,
        "HELDOUT_PAIRS": corpus / "heldout_pairs",
        "HELDOUT_ALIGNMENTS": corpus / "align",
    }
    assert (
        main.main(command("pretrain", corpus, "--to", str(workdir), objective="veco", **given)) == 0
    )
    return workdir


@pytest.mark.long
def test_phases_are_stages_of_one_run(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    terms = {
        step: {key for line in lines if line["step"] == step for key in line if "/loss" in key}
        for step in (2, 4)
    }
    assert terms[2] == {
        f"{name}_plug_in_{side}/loss" for name in ("veco", "veco_text") for side in "xy"
    }
    more = {f"{name}_plug_out_{side}/loss" for name in ("veco", "veco_text") for side in "xy"}
    assert terms[4] == terms[2] | more | {"veco_tlm/loss"}
    record = json.loads((run / "run.json").read_text())
    assert record["model"]["cross_attention"] is True
    assert {name: stage["plug_out"] for name, stage in record["stages"].items()} == {
        "veco": False, "veco@2": True, "veco_text": False, "veco_text@2": True
    }  # fmt: skip
    assert all((stage["batch"], stage["length"]) == (8, 32) for stage in record["stages"].values())
    page = (run / "report.html").read_text()
    assert "False; from step 2: True" in page
    assert "^(?!.*cross_attention); from step 2: none" in page
    rows = page.split("What the objectives read</h2>")[1].split("</section>")[0]
    assert "cross-attention of S to H" in rows and "VECO@2" not in rows
    assert '<bdi lang="de"' in rows and '<bdi lang="en"' in rows


@pytest.mark.long
def test_inspect_shows_the_stages(corpus, tmp_path, capsys):
    given = {"LENGTH": "{0: 96, 2: 128}"}
    out = str(tmp_path)
    words = command("inspect", corpus, "--rows", "1", "--to", out, objective="clpc", **given)
    assert main.main(words) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "96; from step 2: 128" in told and "clpc, row 0" in told and "clpc@2, row 0" in told
    assert (tmp_path / "inspect.html").is_file()


@pytest.mark.long
def test_a_mix_of_two_papers_trains_and_verifies(corpus, tmp_path, capsys):
    def words(verb, *rest):
        given = {
            "HELDOUT_PAIRS": corpus / "heldout_pairs",
            "HELDOUT_TEXT": corpus / "heldout",
            "PROBE_PAIRS": 2,
        }
        given |= {"TRAIN_STEPS": 12, "STAGE_1_STEPS": 6, "CHECKPOINT_EVERY": 12}
        mix = f"--gin.train.objectives=[{', '.join(f'@{name}()' for name in ALL)}]"
        more = ["--gin-file", "gin/objectives/ernie_m.gin", mix]
        return [*command(verb, corpus, *rest, objective="unicoder", **given), *more]

    assert main.main(words("pretrain", "--to", str(tmp_path / "run"))) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(result["metrics"]) == {*ALL} and (result["steps"], result["skipped"]) == (12, 0)
    capsys.readouterr()
    status = main.main(words("verify", "--rows", "1"))
    told = capsys.readouterr().out
    assert status == 0, told
    assert "ok" in told and "leaks" in told and "blind" not in told
    assert all(name in told for name in ALL)


@pytest.mark.long
def test_verify_fails_where_a_mask_leaks(corpus, capsys, monkeypatch):
    from xlingjax.objectives.ernie_m import CAMLM

    monkeypatch.setattr(CAMLM, "attention", lambda self: bidirectional)
    words = command(
        "verify", corpus, "--rows", "2", objective="camlm", CAMLM_LENGTH="{0: 32, 2: 40}"
    )
    assert main.main(words) == 1
    told = capsys.readouterr().out.split("verdict")[1]
    assert "leaks" in told and {"camlm", "camlm@2"} <= {*told.split()}  # every stage by its name


@pytest.mark.long
def test_the_attention_of_a_pair_is_shown(run, tmp_path):
    """VECO, figure 1."""
    words = ["inspect", str(run), "--pair", GERMAN[0], ENGLISH[0], "--languages", "de", "en"]
    pages, out = {}, tmp_path / "out"
    for option in ("--layer 1 --head 2", "", "--reset-positions", "--no-reset-positions"):
        assert main.main([*words, *option.split(), "--to", str(out)]) == 0
        pages[option] = (out / "inspect.html").read_text()
    assert "de-en, cross-attention, layer 1, head 2" in pages["--layer 1 --head 2"]
    # Of the model as it was trained, where nothing else is said.
    assert pages[""] == pages["--reset-positions"] != pages["--no-reset-positions"]


@pytest.mark.parametrize(
    "words, said",
    [
        ("inspect runs/x", "RUN: without --pair a recipe alone is read; leave it out"),
        ("inspect --layer 2", "--layer: without --pair a recipe alone is read; leave it out"),
        ("inspect runs/x --pair a b", "xlingjax inspect RUN --pair"),
        ("inspect runs/x --pair a b --languages de en --gin.LENGTH=8", "a run has its recipe"),
    ],
)
def test_what_is_lacking_for_attention_is_said(words, said, capsys):
    assert main.main(words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.long
def test_encode_align_and_mine(run, corpus, tmp_path, capsys):
    source = str(corpus / "heldout" / "en.txt")
    assert (
        main.main(
            [
                "encode",
                str(run),
                "--input",
                source,
                "--language",
                "en",
                "--to",
                str(tmp_path / "v"),
            ]
        )
        == 0
    )
    assert f"layer {layer_of(run)} (that of the run's retrieval)" in capsys.readouterr().out
    vectors = np.load(tmp_path / "v.npy")
    for code in ("de", "en"):  # two files, not one over the other
        words = [
            "encode",
            str(run),
            "--input",
            str(corpus / "heldout" / f"{code}.txt"),
            "--language",
            code,
        ]
        assert main.main([*words, "--layer", "0", "--to", str(tmp_path / f"w.{code}")]) == 0
    assert not np.array_equal(*(np.load(tmp_path / f"w.{code}.npy") for code in ("de", "en")))
    np.testing.assert_allclose(
        vectors, open_run(run).embed(ENGLISH, "en")[layer_of(run)], atol=1e-5
    )
    words = [
        "align",
        str(run),
        "--languages",
        "de",
        "en",
        "--stem",
        str(corpus / "align" / "de-en"),
    ]
    assert main.main([*words, "--to", str(tmp_path / "a.txt")]) == 0
    assert "alignment error rate" in capsys.readouterr().out
    for code in ("de", "en"):
        write(
            tmp_path / f"own.de-en.{code}",
            (corpus / "align" / f"de-en.{code}").read_text().splitlines(),
        )
    write(tmp_path / "own.de-en.txt", (tmp_path / "a.txt").read_text().splitlines())
    words = ["align", str(run), "--languages", "en", "de", "--stem", str(tmp_path / "own.de-en")]
    assert main.main([*words, "--to", str(tmp_path / "b.txt")]) == 0
    assert "0.0000" in capsys.readouterr().out  # gold links stay in the order of their file's name
    assert links_of(tmp_path / "b.txt") == [
        {(j, i) for i, j in one} for one in links_of(tmp_path / "a.txt")
    ]
    assert links_of(tmp_path / "b.txt") != links_of(tmp_path / "a.txt")
    for end in ("de", "en"):
        (tmp_path / f"own.de-en.{end}").rename(
            tmp_path / f"made-en.{end}"
        )  # a name, not a pair of languages
    (tmp_path / "b.txt").rename(tmp_path / "made-en.txt")
    words = ["align", str(run), "--languages", "en", "de", "--stem", str(tmp_path / "made-en")]
    assert main.main([*words, "--to", str(tmp_path / "c.txt")]) == 0
    assert "0.0000" in capsys.readouterr().out
    assert len((tmp_path / "a.txt").read_text().splitlines()) == 4
    files = [str(corpus / "heldout" / f"{code}.txt") for code in ("de", "en")]
    words = [
        "mine",
        str(run),
        "--languages",
        "de",
        "en",
        "--files",
        *files,
        "--to",
        str(tmp_path / "mined"),
    ]
    assert main.main(words) == 0
    (pair,) = find_pairs(str(tmp_path / "mined.de-en.tsv"))  # a file that PARALLEL reads
    found = list(pair.lines())
    assert (
        0 < len(found) <= 4
        and {a for a, _ in found} <= {*GERMAN}
        and {b for _, b in found} <= {*ENGLISH}
    )


def links_of(path):
    return [
        {tuple(map(int, link.split("-"))) for link in line.split()}
        for line in path.read_text().splitlines()
    ]


def layer_of(run):
    return json.loads((run / "result.json").read_text())["evaluations"]["retrieval"][
        "retrieval_layer"
    ]


@pytest.mark.long
def test_a_plugged_out_model_is_the_encoder_alone(run, corpus, tmp_path, capsys):
    assert main.main(["plug", "out", str(run), "--to", str(tmp_path / "out")]) == 0
    before, after = open_run(run), open_run(tmp_path / "out")
    assert (
        not after.model.config.cross_attention
        and "cross_attention" not in after.params["encoder"]["layers"]
    )
    np.testing.assert_array_equal(before.embed(ENGLISH, "en"), after.embed(ENGLISH, "en"))
    back = [
        "plug",
        "in",
        str(tmp_path / "out"),
        "--to",
        str(tmp_path / "back"),
        "--source",
        str(run),
    ]
    assert main.main(back) == 0
    whole = open_run(tmp_path / "back")
    for a, b in zip(*map(jax.tree.leaves, (before.params, whole.params)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert main.main(["plug", "in", str(tmp_path / "out"), "--to", str(tmp_path / "new")]) == 0
    assert open_run(tmp_path / "new").model.config.cross_attention
    source = str(corpus / "heldout" / "en.txt")
    words = [
        "encode",
        str(tmp_path / "out"),
        "--input",
        source,
        "--language",
        "en",
        "--to",
        str(tmp_path / "v"),
    ]
    assert main.main(words) == 0
    assert (
        f"layer {after.model.config.layers} (the last: no retrieval in a result.json"
        in capsys.readouterr().out
    )
    capsys.readouterr()
    for words, part in (
        (
            ["plug", "out", str(tmp_path / "out"), "--to", str(tmp_path / "x")],
            "no cross-attention to plug out",
        ),
        (["plug", "in", str(run), "--to", str(tmp_path / "x")], "plugged in already"),
        (["plug", "out", str(run), "--to", str(tmp_path / "new")], "is not empty"),
    ):
        assert main.main(words) == 2
        assert part in capsys.readouterr().err


@pytest.mark.long
def test_a_plugged_out_model_is_described_and_evaluated_as_what_it_is(run, tmp_path):
    out, back = tmp_path / "out", tmp_path / "back"
    assert main.main(["plug", "out", str(run), "--to", str(out)]) == 0
    assert main.main(["plug", "in", str(out), "--to", str(back), "--source", str(run)]) == 0
    assert main.main(["evaluate", str(out), "--gin.HELDOUT_PAIRS=None"]) == 0
    whole, plain, again = (json.loads((of / "run.json").read_text()) for of in (run, out, back))
    before, after = open_run(run), open_run(out)
    slot = jax.tree.leaves(before.params["encoder"]["layers"]["cross_attention"])
    assert whole["parameters"] - plain["parameters"] == sum(leaf.size for leaf in slot) > 0
    assert plain["identity"]["model"]["cross_attention"] is False and again == whole
    ((step, values),) = read_run(out).evaluated("alignment")["alignment"]
    assert (
        step == 4 and values["by_layer"] == read_run(run).last("alignment")["by_layer"]
    )  # of H, which is the same
    with pytest.raises(UserError, match="another vocabulary"):
        load_params(out, after.params, vocabulary="0" * 64)


@pytest.mark.long
def test_a_run_is_opened_at_a_checkpoint_and_averaged(run, corpus, tmp_path, capsys):
    first, last = (open_run(f"{run}@{step}").params for step in (2, 4))
    for path in (run, run / "checkpoints" / "4"):
        jax.tree.map(np.testing.assert_array_equal, open_run(path).params, last)
    assert any(
        not np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (first, last)), strict=True)
    )
    assert (
        main.main(["average", str(run), "--steps", "2", "4", "--to", str(tmp_path / "mean")]) == 0
    )
    mean = jax.tree.map(lambda a, b: np.mean([a, b], axis=0), first, last)
    averaged = open_run(tmp_path / "mean")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), averaged.params, mean)
    assert main.main(["evaluate", str(tmp_path / "mean"), "--gin.HELDOUT_PAIRS=None"]) == 0
    source, vectors = str(corpus / "heldout" / "en.txt"), []
    for which in ("@2", "@4", "/checkpoints/2"):
        words = ["--input", source, "--language", "en", "--to", str(tmp_path / "v.npy")]
        assert main.main(["encode", f"{run}{which}", *words]) == 0
        vectors.append(np.load(tmp_path / "v.npy"))
    np.testing.assert_array_equal(vectors[0], vectors[2])
    assert not np.array_equal(vectors[0], vectors[1])


@pytest.mark.long
def test_a_plugged_in_cross_attention_asks_as_it_did_in_its_source(
    run, tmp_path, capsys, monkeypatch
):
    plain, source = str(tmp_path / "plain"), str(tmp_path / "source")
    assert main.main(["plug", "out", str(run), "--to", plain]) == 0

    def changed(**fields):
        """`source`: the run with other fields of its model."""
        trained = open_run(run)
        model = Encoder(trained.model.config.replace(**fields))
        other = dataclasses.replace(trained, model=model)
        monkeypatch.setattr(
            cross_attention,
            "open_run",
            lambda folder: other if folder == source else open_run(folder),
        )

    changed(cross_attention_query="input")
    assert main.main(["plug", "in", plain, "--to", str(tmp_path / "in"), "--source", source]) == 0
    assert [open_run(of).model.config.cross_attention_query for of in (plain, tmp_path / "in")] == [
        "self_attention", "input"
    ]  # fmt: skip
    changed(norm_order="post")
    capsys.readouterr()
    assert main.main(["plug", "in", plain, "--to", str(tmp_path / "x"), "--source", source]) == 2
    error = capsys.readouterr().err
    assert "width or norm_order" in error and not (tmp_path / "x").exists()


def plug_in_command(corpus, run, workdir, **overrides):
    files = {
        f"{split.upper()}_FILES": f"{corpus}/nli/{split}-{{language}}.tsv"
        for split in ("train", "dev", "test")
    }
    given = {
        "INIT_FROM": run,
        **files,
        "TRAIN_LANGUAGES": "de",
        "TRAIN_STEPS": 2,
        "WARMUP_STEPS": 1,
        "BATCH": 8,
    }
    return arguments("finetune", "nli_plug_in_tiny", given | overrides, "--to", str(workdir))


@pytest.mark.long
def test_plug_in_fine_tuning(corpus, run, tmp_path):
    assert main.main(plug_in_command(corpus, run, tmp_path / "nli", LOG_EVERY=1)) == 0
    line, *_ = (
        json.loads(line) for line in (tmp_path / "nli" / "metrics.jsonl").read_text().splitlines()
    )
    assert line["objective"] == "plug_in" and set(line["accuracy_by_language"]) == {"de", "en"}
    result = json.loads((tmp_path / "nli" / "result.json").read_text())
    for name in ("plug_in_dev", "plug_in_test"):
        assert set(result["evaluations"][name]["by_language"]) == {"de", "en"}
    before, after = open_run(run).params, open_run(tmp_path / "nli").params
    assert set(after) == {*before, "classifier"}
    slots = (params["encoder"]["layers"]["cross_attention"] for params in (before, after))
    moved = [np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, slots), strict=True)]
    assert max(moved) > 1e-5  # the cross-attention is fine-tuned with the rest


@pytest.mark.long
def test_bad_input(corpus, run, tmp_path, capsys):
    def refused(words, *parts):
        assert main.main(words) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert all(part in line for part in parts), line

    work = ("--to", str(tmp_path / "run"))
    refused(
        command("pretrain", corpus, *work, objective="camlm", PARALLEL=None), "camlm", "parallel"
    )
    words = command("pretrain", corpus, *work, objective="cl_mlm")
    flat = [word.replace(f"{corpus}/documents", f"{corpus}/pairs/*") for word in words]
    refused(flat, "cl_mlm", "blank on both sides")
    gaps = tmp_path / "documents"
    for code, blank in (
        ("de", 7),
        ("en", 20),
    ):  # a side that is missing here and there ends no document
        write(
            gaps / f"de-en.{code}",
            ["" if i == blank else f"{line} {i}" for i, line in enumerate(GERMAN * 10)],
        )
    of_gaps = [word.replace(f"{corpus}/documents", str(gaps)) for word in words]
    refused(of_gaps, "blank on both sides")
    write(gaps / "de-en.en", ["Once."])
    refused(of_gaps, "differ in length", "de-en.en has 1;")
    alone = corpus / "pairs" / "fr-fr.tsv"  # no translation
    more = command("pretrain", corpus, *work, objective="btmlm", PARALLEL=alone)
    write(corpus / "mono" / "fr" / "a.txt", ["Il pleut."] * 40)
    write(alone, ["Il pleut.\tLa pluie tombe."] * 40)
    refused(more, "btmlm", "no parallel data")
    (corpus / "mono" / "fr" / "a.txt").unlink()
    alone.unlink()
    source = str(corpus / "heldout" / "en.txt")
    words = ["encode", str(run), "--input", source, "--language", "en", "--to", "x"]
    refused([*words, "--layer", "9"], "--layer 9")
    refused(["mine", "--to", "x"], "mine needs RUN")
    words = ["mine", str(run), "--files", source, source, "--to", str(tmp_path / "m")]
    refused([*words, "--languages", "de", "de"], "--languages de de", "zh_TW")
    refused(["mine", "--negatives", "--to", "x"], "give both")
    words += ["--languages", "de", "en", "--platform", "cpu"]
    refused(words, "--platform: only mine --negatives reads this")
    refused(["plug", "out", str(run), "--to", "x", "--seed", "0"], "--seed: only plug in reads")
