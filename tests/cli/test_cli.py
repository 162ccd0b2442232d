"""The command line: recipes and overrides, runs end to end on a tiny corpus, and one clear line for
every bad input."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.helpers.small_corpus import ENGLISH, GERMAN, arguments, build, options, pretrain, write
from tests.preprocessors.test_span_qa import question, squad
from xlingjax.cli import doctor, main
from xlingjax.cli.examples import EXAMPLES
from xlingjax.config import recipe as recipes
from xlingjax.errors import UserError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("corpus")
    os.environ["XLINGJAX_CACHE"] = str(root / "cache")
    build(root)
    yield root
    del os.environ["XLINGJAX_CACHE"]


@pytest.fixture
def refused(capsys):
    """refused(status, *parts): the command failed with one `error:` line that has all the parts."""

    def check(status: int, *parts: str) -> None:
        assert status == 2
        err = capsys.readouterr().err.strip().splitlines()
        assert len(err) == 1, err
        assert err[0].startswith("error: ")
        for part in parts:
            assert part in err[0], err[0]

    return check


# --- parsing --------------------------------------------------------------------------------------


def test_help_answers_in_under_a_second():
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "xlingjax", "--help"], capture_output=True, text=True, check=True
    )
    assert time.perf_counter() - started < 1.0
    for verb in ("pretrain", "finetune", "vocab", "data", "demo", "inspect", "report", "evaluate"):
        assert f"\n  {verb} " in done.stdout


def test_every_verb_has_an_example_that_can_be_typed():
    def names(verbs, within=""):
        for verb in verbs:
            if verb.verbs:
                yield from names(verb.verbs, f"{within}{verb.name} ")
            if verb.does:
                yield f"{within}{verb.name}"

    assert {*names(main.VERBS)} == {*EXAMPLES}
    for name, words in EXAMPLES.items():
        typed = [word for word in shlex.split(words) if not word.startswith("--gin.")]
        # What a shell does with "<" and ">" the verb does not see.
        if "<" in typed:
            typed = typed[: typed.index("<")]
        args = main.parser().parse_args([*name.split(), *typed])
        assert args.name == name


def test_the_command_alone_prints_help(capsys):
    assert main.main([]) == 0
    printed = capsys.readouterr().out
    assert "from your text to a model:\n  start " in printed


@pytest.mark.parametrize(
    "typed, read",
    [
        ("3", "3"),
        ("1e-4", "1e-4"),
        ("None", "None"),
        ("true", "True"),
        ("data/mono/*.txt", "'data/mono/*.txt'"),
        ("de,en", "'de,en'"),
        ("'quoted'", "'quoted'"),
        ("('a', 'b')", "('a', 'b')"),
        ("it's", '"it\'s"'),
        # What opens no literal is a name, whatever is open in it.
        ("text/(a", "'text/(a'"),
        ("{", "{"),
        ("[1,", "[1,"),
        ("@mlm()", "@mlm()"),
        ("@unknown()", "@unknown()"),
    ],
)
def test_values_are_read_as_a_shell_user_means_them(typed, read):
    assert recipes.gin_value(typed) == read


def test_overrides_reach_the_run(corpus):
    given = {
        "train.seed": 7,
        "TRAIN_STEPS": "1.1e1",
        "MASK_RATE": 0.3,
        "tlm.weight": 3,
        "LANGUAGE_EMBEDDING": True,
    }
    bindings = options(corpus) | given
    recipe = recipes.read_recipe(
        ["gin/recipes/xlm_text.gin"], [f"{k}={v}" for k, v in bindings.items()]
    )
    mlm, tlm = recipe.bound["objectives"]
    assert (recipe.bound["seed"], recipe.bound["steps"], mlm.weight, tlm.weight) == (7, 11, 1.0, 3)
    assert recipe.bound["model"].dim == 16 and recipe.bound["model"].vocab_size == 80
    assert recipe.bound["model"].num_languages == 2 and recipe.corpus.languages == ("de", "en")
    assert "MASK_RATE = 0.3" in recipe.config and "train.seed = 7" in recipe.config
    source = mlm.source()
    assert source.shapes["masked_positions"] == (8, 10)  # ceil(0.3 * 32)
    source.close()


def test_mlm_and_tlm_may_have_weights_of_their_own(corpus):
    """Two objectives draw from different names: each gets the weights bound to it, or those bound
    to both."""
    given = {
        "ALPHA": None,
        "sampling.weights": '{"de": 1, "en": 3}',
        "tlm/sampling.weights": '{"de-en": 1}',
    }
    recipe = recipes.read_recipe(
        ["gin/recipes/xlm_text.gin"], [f"{k}={v}" for k, v in (options(corpus) | given).items()]
    )
    for run, shares in zip(recipe.bound["objectives"], ([0.25, 0.75], [1.0]), strict=True):
        source = run.source()
        assert [row["share"] for row in source.identity["sampling_table"]] == shares
        source.close()
    tlm = ["gin/recipes/xlm_text.gin", "gin/objectives/tlm.gin"]
    recipe = recipes.read_recipe(
        tlm, [f"{k}={v}" for k, v in (options(corpus) | {"sampling.counts": "tokens"}).items()]
    )
    assert "tlm/sampling.counts = 'tokens'" in recipe.config


def test_a_saved_configuration_is_a_recipe_with_the_same_meaning(corpus, tmp_path):
    overrides = [f"{k}={v}" for k, v in options(corpus).items()]
    first = recipes.read_recipe(["gin/recipes/xlm_text.gin"], overrides)
    saved = write(tmp_path / "config.gin", first.config.splitlines())
    again = recipes.read_recipe([saved], [])
    assert again.config == first.config
    assert (
        again.bound["model"] == first.bound["model"]
        and again.bound["optimizer"] == first.bound["optimizer"]
    )


def test_weights_are_any_number_or_stages(corpus, refused):
    """Also where the recipe writes a whole number, as xlm_tiny does."""
    given = options(corpus, MLM_WEIGHT="{0: 1.0, 1000: 0.5}", TLM_WEIGHT=0.5)
    recipe = recipes.read_recipe(
        ["gin/recipes/xlm_tiny.gin"], [f"{k}={v}" for k, v in given.items()]
    )
    assert [run.weight for run in recipe.bound["objectives"]] == [{0: 1.0, 1000: 0.5}, 0.5]
    refused(
        pretrain(corpus, corpus / "never", MLM_WEIGHT="many"),
        "--gin.MLM_WEIGHT='many': a number or {a whole number: a number} is needed",
    )
    refused(
        pretrain(corpus, corpus / "never", BATCH="(8, 8)"),
        "--gin.BATCH=(8, 8): a whole number is needed",
    )


@pytest.mark.parametrize(
    "override, parts",
    [
        ("TRAIN_STEP=3", ["--gin.TRAIN_STEP", "did you mean 'TRAIN_STEPS'"]),
        ("trian.seed=3", ["nothing is called 'trian'", "did you mean 'train'"]),
        ("batch=3", ["--gin.batch", "did you mean 'BATCH'"]),
        ("clm.batch=3", ["--gin.clm.batch changes nothing"]),
        ("BATCH=2.5", ["--gin.BATCH=2.5: a whole number is needed"]),
    ],
)
def test_unknown_macros_and_bindings(corpus, refused, override, parts):
    name, value = override.split("=")
    refused(pretrain(corpus, corpus / "never", **{name.replace(".", "__"): value}), *parts)


def test_a_required_macro_left_open_is_named_with_what_it_means(refused):
    status = main.main(["pretrain", "--gin-file", "gin/recipes/xlm_text.gin", "--to", "never"])
    refused(status, "is not set", "--gin.VOCABULARY=", "(folder that")


@pytest.mark.parametrize("line", ["pretrian", "pretrain", "report", "doctor --gin.SEED=1", "vocab"])
def test_wrong_usage_is_one_line(line, refused):
    refused(main.main(line.split()))


# --- from text to a report ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """A finished pretraining run of 4 steps with checkpoints at 2 and 4."""
    workdir = tmp_path_factory.mktemp("runs") / "mlm_tlm"
    held_out = {"HELDOUT_TEXT": f"{corpus}/heldout", "HELDOUT_PAIRS": f"{corpus}/heldout_pairs"}
    assert pretrain(corpus, workdir, **held_out) == 0
    return workdir


def test_a_run_leaves_its_configuration_identity_and_evaluations(run, corpus):
    record = json.loads((run / "run.json").read_text())
    assert record["languages"] == ["de", "en"]
    assert record["config"]["vocabulary"] == f"{corpus}/vocab"
    assert (run / "vocab.model").read_bytes() == (corpus / "vocab" / "vocab.model").read_bytes()
    assert "TRAIN_STEPS = 4" in (run / "config.gin").read_text()
    names = {
        json.loads(line)["name"] for line in (run / "evaluations.jsonl").read_text().splitlines()
    }
    assert names == {"retrieval", "perplexity", "translation_perplexity", "masked_samples"}


@pytest.mark.long
def test_fine_tuning_and_report(run, corpus, tmp_path, capsys):
    files = {
        f"{split.upper()}_FILES": f"{corpus}/nli/{split}-{{language}}.tsv"
        for split in ("train", "dev", "test")
    }
    bindings = {"INIT_FROM": run, **files, "TRAIN_STEPS": 2, "WARMUP_STEPS": 1, "BATCH": 8}
    tuned = tmp_path / "nli"
    assert main.main(arguments("finetune", "nli_tiny", bindings, "--to", str(tuned))) == 0
    lines = [json.loads(line) for line in (tuned / "evaluations.jsonl").read_text().splitlines()]
    assert {line["name"] for line in lines} == {"nli_dev", "nli_test"}
    assert set(lines[0]["values"]["by_language"]) == {"de", "en"}

    report = [
        "report",
        str(run),
        "--compare",
        f"MLM only={run}",
        "--finetuned",
        str(tuned),
        "--to",
        str(tmp_path),
    ]
    assert main.main(report) == 0
    summary = json.loads((tmp_path / "report.json").read_text())["summary"]
    assert {
        "retrieval_mean",
        "retrieval_mean_mlm_only",
        "nli_en",
        "nli_mean_other",
        "tokens_per_second",
    } <= set(summary)
    assert "nli_mean_other" in capsys.readouterr().out
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.long
def test_fine_tuning_on_answers(run, tmp_path, refused, capsys):
    """Files in SQuAD's layout, contexts longer than a row; then the same run evaluated by another
    metric."""
    stories = {
        "en": "The dog sleeps in the house. It rains again. ",
        "de": "Der Hund schläft im Haus. Es regnet wieder. ",
    }
    for code, story in stories.items():
        asked = [question(story * 2, story.split()[1], id=f"{code}-{i}") for i in range(4)]
        squad(tmp_path / f"train.{code}.json", asked)
        squad(tmp_path / f"test.{code}.json", asked)
    files = {
        "TRAIN_FILES": f"{tmp_path}/train.{{language}}.json",
        "TEST_FILES": f"{tmp_path}/test.{{language}}.json",
    }
    bindings = {
        "INIT_FROM": run,
        **files,
        "DEV_FILES": None,
        "TRAIN_STEPS": 2,
        "WARMUP_STEPS": 1,
        "BATCH": 8,
    }
    bindings |= {"LENGTH": 32, "STRIDE": 8, "MAX_QUESTION": 8}
    tuned = tmp_path / "qa"
    capsys.readouterr()
    assert main.main(arguments("finetune", "qa_tiny", bindings, "--to", str(tuned))) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "training examples" in line]
    assert len(told) == 1 and f"{tmp_path}/test.en.json: 4 of 4 rows are training" in told[0]
    (line,) = [json.loads(line) for line in (tuned / "evaluations.jsonl").read_text().splitlines()]
    assert line["name"] == "qa_test" and set(line["values"]["by_language"]) == {"de", "en"}
    assert all(0 <= line["values"][name] <= 1 for name in ("en", "mean_other_exact_match"))
    assert main.main(["evaluate", str(tuned), "--gin.METRIC=mlqa", "--gin.EVAL_QUESTIONS=2"]) == 0
    last = json.loads((tuned / "evaluations.jsonl").read_text().splitlines()[-1])
    assert last["values"]["metric"] == "mlqa"
    capsys.readouterr()

    squad(tmp_path / "train.en.json", [*asked, question("A long book.", "long", 3, id="n-7")])
    again = arguments("finetune", "qa_tiny", bindings, "--to", str(tmp_path / "again"))
    refused(main.main(again), "train.en.json, question n-7", "'long'", "character 3")
    again = arguments(
        "finetune", "qa_tiny", bindings | {"LENGTH": 11}, "--to", str(tmp_path / "again")
    )
    refused(main.main(again), "LENGTH must be above MAX_QUESTION + 3")


def test_evaluate_repeats_the_runs_own_values(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    assert main.main(["evaluate", str(copy)]) == 0
    last = {}
    for line in (copy / "evaluations.jsonl").read_text().splitlines():
        record = json.loads(line)
        last.setdefault(record["name"], []).append(record)
    for name, (first, second) in last.items():
        assert first["step"] == second["step"] == 4
        if name == "perplexity":
            assert second["values"]["mean"] == pytest.approx(first["values"]["mean"], rel=1e-5)


def test_data_check_finds_what_is_wrong(corpus, tmp_path, capsys):
    good = ["data", "check", "--mono", f"{corpus}/mono", "--parallel", f"{corpus}/pairs/*"]
    assert main.main([*good, "--vocabulary", f"{corpus}/vocab", "--length", "32"]) == 0
    out = capsys.readouterr().out
    assert "0 errors" in out and "de-en" in out and "unknown pieces" in out
    write(tmp_path / "both" / "de-en.en", ["green"])
    (tmp_path / "both" / "de-en.de").write_bytes(b"gr\xfcn\n")
    assert (
        main.main(["data", "check", "--mono", f"{tmp_path}/both", "--parallel", f"{tmp_path}/both"])
        == 1
    )
    out = capsys.readouterr().out
    assert out.count("de-en.de, line 1: ") == 1 and "\n1 error," in out, (
        "said once of a file that is read twice"
    )
    write(tmp_path / "de-en.de", GERMAN)
    write(tmp_path / "de-en.en", ENGLISH[:3])
    assert main.main(["data", "check", "--parallel", f"{tmp_path}/de-en.*"]) == 1
    out = capsys.readouterr().out
    assert "1 error, 0 warnings, 0 notes" in out and "de-en.en" in out


def test_the_demo_corpus_by_counts(tmp_path, refused, capsys):
    argv = ["demo", str(tmp_path), "--languages", "de", "en", "--size"]
    assert main.main([*argv, "mono=3", "pairs=99999"]) == 0
    assert (tmp_path / "mono/de.txt").read_text().count("\n") == 3
    said = capsys.readouterr().out
    assert "de, en; " in said
    refused(main.main([*argv, "mono=few"]), "--size", "'few' is not a whole number")
    refused(main.main([*argv, "mono"]), "--size", "write NAME=COUNT")
    refused(main.main([*argv, "monos=3"]), "no size 'monos'; did you mean 'mono'?")
    argv = ["demo", str(tmp_path), "--languages", "xx", "en"]
    refused(main.main(argv), "no language 'xx'; there are ")


def test_an_interrupt_is_not_a_traceback(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "doctor", interrupted)
    assert main.main(["doctor"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


# --- bad input ------------------------------------------------------------------------------------


def test_missing_files(corpus, refused, tmp_path):
    refused(
        pretrain(corpus, tmp_path, MONO=f"{corpus}/none/*.txt"),
        "missing file",
        f"{corpus}/none/*.txt",
    )
    refused(
        pretrain(corpus, tmp_path, VOCABULARY=f"{corpus}/none"),
        "vocabulary",
        f"{corpus}/none",
        "xlingjax vocab",
    )
    refused(pretrain(corpus, tmp_path, HELDOUT_PAIRS=f"{corpus}/none"), f"{corpus}/none")
    refused(
        pretrain(corpus, tmp_path, INIT_FROM=f"{corpus}/none"), "no checkpoint", f"{corpus}/none"
    )
    refused(main.main(["report", f"{corpus}/none"]), f"{corpus}/none", "--to")
    refused(main.main(["evaluate", f"{corpus}/none"]), f"no run in {corpus}/none", "no config.gin")


def test_workdirs_that_cannot_be_used(corpus, refused, tmp_path, monkeypatch):
    write(tmp_path / "file", ["not a folder"])
    refused(
        pretrain(corpus, tmp_path / "file" / "run"),
        "cannot be written",
        str(tmp_path / "file" / "run"),
    )
    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=1000))
    refused(pretrain(corpus, tmp_path / "run"), "free", "--to")


def test_a_platform_that_is_not_there(corpus, refused, tmp_path):
    refused(pretrain(corpus, tmp_path, "--platform", "gpu"), "gpu", "nvidia-smi")
    # A table asks in a process of its own.
    table = ["table", "xlm_5", "--data", str(tmp_path), "--to", str(tmp_path / "out")]
    refused(
        main.main([*table, "--platform", "gpu"]), "platform 'gpu' is not available", "nvidia-smi"
    )
    refused(pretrain(corpus, tmp_path, "--platform", "quantum"), "quantum", "cpu, gpu, tpu")


@pytest.mark.parametrize("verb", ["pretrain", pytest.param("inspect", marks=pytest.mark.long)])
def test_a_platform_that_jax_is_installed_without(corpus, tmp_path, verb):
    """In a process of its own, since JAX chooses once: one line, and nothing in the new workdir."""
    argv = [*arguments(verb, "xlm_text", options(corpus)), "--platform", "gpu"]
    argv += ["--to", str(tmp_path / "run")] if verb == "pretrain" else []
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "xlingjax", *argv]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert (
        len(errors) == 1
        and "platform 'gpu' is not available" in errors[0]
        and "nvidia-smi" in errors[0]
    )
    assert not (tmp_path / "run").exists()


def test_a_start_with_nothing_to_do_or_refused_leaves_a_finished_run_as_it_is(
    run, corpus, refused, tmp_path
):
    copy = shutil.copytree(run, tmp_path / "copy")
    names = ("run.json", "config.gin", "result.json")
    before = [(copy / name).read_bytes() for name in names]
    refused(pretrain(corpus, copy, ATTENTION="flash", TRAIN_STEPS=6), "flash")
    assert pretrain(corpus, copy, TRAIN_STEPS=2) == 0
    assert [(copy / name).read_bytes() for name in names] == before
    assert "nothing left to do: it has 4 steps of 2" in (copy / "log.txt").read_text()


@pytest.mark.long
def test_a_trained_run_gives_sentence_vectors_in_python(corpus, tmp_path):
    from xlingjax.inference.run import open_run
    from xlingjax.model.masks import bidirectional

    bindings = options(corpus, LANGUAGE_EMBEDDING=True)
    assert (
        main.main(arguments("pretrain", "xlm_text", bindings, "--to", str(tmp_path / "run"))) == 0
    )
    without = open_run(tmp_path / "run", language_embedding=False)
    assert (
        without.model.config.num_languages == 0 and "languages" not in without.params["embeddings"]
    )
    run = open_run(tmp_path / "run")
    assert run.languages == ("de", "en") and run.model.config.num_languages == 2
    assert np.abs(without.embed(GERMAN, "de") - run.embed(GERMAN, "de")).max() > 1e-3
    vectors = run.embed([GERMAN[0], GERMAN[1] * 3], "de", pooling="mean_no_special")
    assert vectors.shape == (run.model.config.layers + 1, 2, run.model.config.dim)
    pieces = run.vocabulary.encode(GERMAN[0])
    ids = np.array([[run.vocabulary.bos_id, *pieces, run.vocabulary.eos_id]])
    row = {"input_ids": ids, "position_ids": np.arange(ids.size)[None], "language_ids": ids * 0}
    row["pack_ids"] = np.ones_like(ids)
    states = run.model.encode(run.params, row, bidirectional)
    np.testing.assert_allclose(vectors[-1, 0], np.asarray(states)[0, 1:-1].mean(0), atol=1e-5)
    with pytest.raises(UserError, match="unknown pooling 'max'"):
        run.embed(GERMAN[:1], "de", pooling="max")
    with pytest.raises(
        UserError, match="missing file: .*run.json; give the workdir of a training run"
    ):
        open_run(tmp_path)
