"""The files of sentence-transformers, as its versions 1, 2 and 6 write them: the vectors that
transformers computes by them, from the import to a file of vectors, and the way back."""

import json
import re
import shutil

import numpy as np
import pytest

from xlingjax.cli.main import main
from xlingjax.convert import import_model
from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.inference.run import open_run
from xlingjax.inference.sentences import Sentences
from xlingjax.workflows.launch import sentences_kept

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import small_xlmr  # noqa: E402 - needs transformers

LONGEST = 350
TEXTS = [SENTENCES[0], SENTENCES[2], "x", "  two  spaces ", " ".join(SENTENCES)]
"""The last is longer than LONGEST tokens."""


def modules(*rows):
    """modules.json of (path, kind)s."""
    return [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.{kind}"}
        for n, (path, kind) in enumerate(rows)
    ]


def old_pooling(*on, **more):
    """1_Pooling/config.json of version 2, which names four modes; later ones name two more."""
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    named = {f"pooling_mode_{mode}": mode in on for mode in modes}
    return {"word_embedding_dimension": 24, **named, **more}


PROMPTS = {"query": "query: ", "passage": "passage: "}
POOLING = ("1_Pooling", "models.Pooling")
VERSION_1 = {
    "modules.json": modules(("0_Transformer", "models.Transformer"), POOLING),
    "1_Pooling/config.json": old_pooling("cls_token"),
    "0_Transformer/sentence_roberta_config.json": {"max_seq_length": LONGEST},
}
VERSION_2 = {
    "modules.json": modules(
        ("", "models.Transformer"), POOLING, ("2_Normalize", "models.Normalize")
    ),
    "1_Pooling/config.json": old_pooling("mean_tokens"),
    "sentence_bert_config.json": {"max_seq_length": LONGEST, "do_lower_case": False},
    "config_sentence_transformers.json": {
        "__version__": {"sentence_transformers": "2.7.0", "transformers": "4.39.3"},
        "prompts": PROMPTS,
        "default_prompt_name": "query",
    },
}
VERSION_6 = {
    "modules.json": modules(
        ("", "base.modules.transformer.Transformer"),
        ("1_Pooling", "sentence_transformer.modules.pooling.Pooling"),
        ("2_Normalize", "base.modules.normalize.Normalize"),
    ),
    "1_Pooling/config.json": {"pooling_mode": "mean", "include_prompt": True},
    "2_Normalize/config.json": {"module_input_name": "sentence_embedding"},
    "sentence_bert_config.json": {
        "transformer_task": "feature-extraction",
        "module_output_name": "token_embeddings",
    },
    "tokenizer_config.json": {
        "tokenizer_class": "XLMRobertaTokenizer",
        "model_max_length": LONGEST,
    },
    "config_sentence_transformers.json": {
        "__version__": {"sentence_transformers": "6.2.0", "transformers": "5.23.0"},
        "default_prompt_name": "passage",
        "model_type": "SentenceTransformer",
        "prompts": {"document": "", **PROMPTS},
    },
}
LAYOUTS = {  # files, then what they say: pooling, prefix, length 1, tokens
    "1": (VERSION_1, "first", "", False, LONGEST),
    "2": (VERSION_2, "mean", "query: ", True, LONGEST),
    "6": (VERSION_6, "mean", "passage: ", True, LONGEST),
    "Pooling": ({"1_Pooling/config.json": old_pooling("mean_tokens")}, "mean", "", False, 400),
}


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """An encoder without a head, as transformers saves it."""
    folder = tmp_path_factory.mktemp("released") / "hf"
    small_xlmr.save(folder, "XLMRobertaModel", max_position_embeddings=402)
    return folder


def beside(released, target, files):
    """The model in `target`, in the folder of the first module, and these files."""
    within = "0_Transformer" if files is VERSION_1 else ""
    shutil.copytree(released, target / within, dirs_exist_ok=True)
    for name, value in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(json.dumps(value))
    return target


def run_from(folder, output, *more):
    return main(["import", str(folder), "--to", str(output), "--unverified", *more])


def export_of(run, output):
    return main(["export", str(run), "--to", str(output), "--unverified"])


def theirs(folder, texts, pooling, prefix, normalize, longest):
    """What sentence-transformers does, by transformers alone: each text by itself, the mean over
    all of its tokens."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    rows = []
    for text in texts:
        given = tokenizer(
            [(prefix + text).strip()], truncation=True, max_length=longest, return_tensors="pt"
        )
        with torch.no_grad():
            states_LD = model(**given, output_hidden_states=True).hidden_states[-1][0]
        rows.append((states_LD.mean(0) if pooling == "mean" else states_LD[0]).numpy())
    rows = np.stack(rows)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) if normalize else rows


@pytest.mark.parametrize(
    "layout", [pytest.param(name, marks=[pytest.mark.long] * (name != "1")) for name in LAYOUTS]
)
def test_vectors_are_those_of_the_released_model(layout, released, tmp_path, capsys):
    files, *way = LAYOUTS[layout]
    folder = beside(released, tmp_path / "st", files)
    assert run_from(folder, tmp_path / "run") == 0
    told = capsys.readouterr().out
    inner = folder / "0_Transformer" if layout == "1" else folder
    wanted = theirs(inner, TEXTS, *way)
    pooling, prefix, *_ = way
    run = open_run(tmp_path / "run")
    assert len(run.vocabulary.encode(prefix + TEXTS[-1])) > LONGEST > 256
    found = run.embed(TEXTS, "en")
    assert found.shape == (4, 5, 24) and np.std(wanted[:, 0]) > 0.01
    np.testing.assert_allclose(found[-1], wanted, atol=1e-5)
    assert f"sentence vectors: the last layer, {pooling} of the tokens" in told
    assert (repr(prefix) in told) == (prefix != "")


OF_POOLING, OF_ALL = "1_Pooling/config.json", "config_sentence_transformers.json"
LSTM = modules(("", "models.Transformer"), POOLING, ("2_LSTM", "models.LSTM"))
UNREAD = {  # changes of the files of version 2, and what is said
    "it pools by max": (OF_POOLING, old_pooling("max_tokens")),
    "it pools by mean and max": (OF_POOLING, {"pooling_mode": ["mean", "max"]}),
    "it pools by weightedmean": (OF_POOLING, old_pooling(pooling_mode_weightedmean_tokens=True)),
    "the prefix is left out of its": (OF_POOLING, old_pooling("mean_tokens", include_prompt=False)),
    "2_LSTM is a module LSTM": ("modules.json", LSTM),
    "it pools by nothing": ("modules.json", LSTM[:1]),
    "folds the case": ("sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": True}),
    "it is a SparseEncoder": (OF_ALL, {"model_type": "SparseEncoder"}),
    "its vectors are cut at 8 dimensions": (OF_ALL, {"truncate_dim": 8}),
}


@pytest.mark.parametrize("said", UNREAD)
def test_what_is_not_computed_here_is_said_and_never_a_mean(said, released, tmp_path, capsys):
    folder = beside(released, tmp_path / "st", VERSION_2 | dict([UNREAD[said]]))
    assert run_from(folder, tmp_path / "run") == 0
    told = capsys.readouterr().out
    assert "sentence vectors: not computed here, since " in told and said in told


def test_what_is_not_computed_here_is_refused_until_a_pooling_is_given(released, tmp_path, capsys):
    said = "it pools by max"
    folder = beside(released, tmp_path / "st", VERSION_2 | dict([UNREAD[said]]))
    assert run_from(folder, tmp_path / "run") == 0
    capsys.readouterr()
    (tmp_path / "lines.txt").write_text("x\ny\n")
    line = ["encode", str(tmp_path / "run"), "--input", str(tmp_path / "lines.txt")]
    line += ["--language", "en"]
    assert main([*line, "--to", str(tmp_path / "own")]) == 2
    error = capsys.readouterr().err
    assert said in error and error.endswith("give --pooling\n") and error.count("\n") == 1
    assert main([*line, "--to", str(tmp_path / "own"), "--pooling", "mean"]) == 0


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("modules.json", {"0": "Transformer"}, "modules.json is no list of modules"),
        ("1_Pooling/config.json", ["mean"], "not what sentence-transformers writes"),
        ("sentence_bert_config.json", {"max_seq_length": 1}, "cannot have 1 tokens at most"),
    ],
)
def test_files_that_the_library_does_not_write_are_refused(
    name, value, said, released, tmp_path, capsys
):
    folder = beside(released, tmp_path / "st", VERSION_2 | {name: value})
    assert run_from(folder, tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and not (tmp_path / "run").exists()


def test_options_say_what_no_file_says(released, tmp_path, capsys):
    assert run_from(released, tmp_path / "plain") == 0
    assert open_run(tmp_path / "plain").sentences is None
    given = ["--pooling", "first", "--prefix", "query: ", "--layer", "2"]
    assert run_from(released, tmp_path / "run", *given) == 0
    assert open_run(tmp_path / "run").sentences == Sentences(2, "first", "query: ", max_length=400)
    assert run_from(released, tmp_path / "none", "--pooling", "mean", "--layer", "4") == 2
    assert "--layer 4: this model has layers 0 (the embeddings) to 3" in capsys.readouterr().err
    # Of several prompts none is the default: sentence-transformers' `encode` puts none before a
    # text.
    described = {"prompts": PROMPTS, "default_prompt_name": None}
    files = VERSION_2 | {"config_sentence_transformers.json": described}
    folder = beside(released, tmp_path / "st", files)
    assert run_from(folder, tmp_path / "prompts") == 0
    assert "none of them is the default" in capsys.readouterr().out
    assert open_run(tmp_path / "prompts").sentences.prefix == ""
    assert run_from(folder, tmp_path / "query", "--prefix", "query: ") == 0
    assert open_run(tmp_path / "query").sentences == Sentences(
        None, "mean", "query: ", True, LONGEST, PROMPTS
    )


def test_an_import_is_another_when_a_file_of_a_module_is(released, tmp_path, monkeypatch):
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        import_model, "import_apart", lambda folder, run, verify: run_from(folder, run)
    )
    folder = beside(released, tmp_path / "st", VERSION_2)
    first = import_model.imported(str(folder))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(old_pooling("cls_token")))
    assert open_run(import_model.imported(str(folder))).sentences.pooling == "first"
    assert open_run(first).sentences.pooling == "mean"


def test_pretraining_keeps_them_and_fine_tuning_does_not(released, tmp_path):
    """Whether the run begins or goes on."""
    run_from(beside(released, tmp_path / "st", VERSION_2), tmp_path / "start")
    start, workdir = str(tmp_path / "start"), tmp_path / "run"
    kept = sentences_kept(str(workdir), start)
    assert Sentences(**kept["sentences"]) == open_run(start).sentences
    workdir.mkdir()
    (workdir / "run.json").write_text(json.dumps({"config": kept}))
    assert sentences_kept(str(workdir), None) == kept == sentences_kept(str(workdir), "gone")
    (workdir / "run.json").write_text(json.dumps({"config": {}}))
    assert sentences_kept(str(workdir), start) == {}  # it began before, by itself


def test_the_way_back(released, tmp_path, capsys, monkeypatch):
    """The export has the files that every version of the library reads, and its import the same
    sentence vectors."""
    run_from(beside(released, tmp_path / "st", VERSION_2), tmp_path / "run")
    capsys.readouterr()
    assert export_of(tmp_path / "run", tmp_path / "out") == 0
    assert "sentence-transformers opens it: the last layer, mean" in capsys.readouterr().out
    written = {name: json.loads((tmp_path / "out" / name).read_text()) for name in VERSION_2}
    for name in ("modules.json", "sentence_bert_config.json"):
        assert written[name] == VERSION_2[name]
    later = {f"pooling_mode_{mode}": False for mode in ("weightedmean_tokens", "lasttoken")}
    pooling = old_pooling("mean_tokens", include_prompt=True, **later)
    assert written["1_Pooling/config.json"] == pooling
    described = written["config_sentence_transformers.json"]
    assert described["prompts"] == PROMPTS and described["default_prompt_name"] == "query"
    wanted = theirs(tmp_path / "out", TEXTS, "mean", "query: ", True, LONGEST)
    np.testing.assert_allclose(open_run(tmp_path / "run").embed(TEXTS, "en")[-1], wanted, atol=1e-5)
    # The code of the model card, run where it lies.
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.+?)```", card, re.DOTALL)
    names = {}
    monkeypatch.chdir(tmp_path / "out")
    exec(code, names)
    ours = open_run(tmp_path / "run").embed(["Hello, world."], "en")[-1]
    np.testing.assert_allclose(names["vectors"].numpy(), ours, atol=1e-5)
    assert run_from(tmp_path / "out", tmp_path / "again") == 0
    assert open_run(tmp_path / "again").sentences == open_run(tmp_path / "run").sentences


def dense_in(folder, number, activation, weights, bias):
    """A module of `torch.nn.Linear` in the folder."""
    from safetensors.torch import save_file

    named = {
        "in_features": weights.shape[1],
        "out_features": len(weights),
        "bias": bias is not None,
    }
    named["activation_function"] = f"torch.nn.modules.{activation}"
    path = folder / f"{number}_Dense"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(named))
    tensors = {"linear.weight": weights} | ({} if bias is None else {"linear.bias": bias})
    save_file(tensors, path / "model.safetensors")


def test_dense_layers_stand_between_pooling_and_length_in_and_out(released, tmp_path, capsys):
    rows = ("", "models.Transformer"), POOLING, ("2_Dense", "models.Dense")
    rows += ("3_Dense", "models.Dense"), ("4_Normalize", "models.Normalize")
    folder = beside(released, tmp_path / "st", VERSION_2 | {"modules.json": modules(*rows)})
    torch.manual_seed(0)
    first, bias, second = torch.randn(30, 24), torch.randn(30), torch.randn(7, 30)
    dense_in(folder, 2, "activation.Tanh", first, bias)
    dense_in(folder, 3, "linear.Identity", second, None)
    assert run_from(folder, tmp_path / "run") == 0
    assert "mean of the tokens, through dense layers (tanh, identity)" in capsys.readouterr().out
    pooled = theirs(folder, TEXTS, "mean", "query: ", False, LONGEST)
    wanted = torch.tanh(torch.tensor(pooled) @ first.T + bias) @ second.T
    wanted /= wanted.norm(dim=1, keepdim=True)
    run = open_run(tmp_path / "run")
    np.testing.assert_allclose(run.embed(TEXTS, "en")[-1], wanted, atol=1e-5)
    assert run.width == 7
    assert export_of(tmp_path / "run", tmp_path / "out") == 0
    assert run_from(tmp_path / "out", tmp_path / "again") == 0
    again = open_run(tmp_path / "again")
    np.testing.assert_array_equal(again.embed(TEXTS, "en"), run.embed(TEXTS, "en"))
    assert json.loads((tmp_path / "out" / "modules.json").read_text()) == modules(*rows)
    line = ["encode", str(tmp_path / "run"), "--input", str(tmp_path / "lines.txt")]
    (tmp_path / "lines.txt").write_text("x\n\ny\n")
    assert main([*line, "--language", "en", "--to", str(tmp_path / "vectors.npy")]) == 0
    assert np.load(tmp_path / "vectors.npy").shape == (3, 7)
    trim = ["vocab", "trim", line[1], "--mono", f"en={line[3]}", "--to", str(tmp_path / "trimmed")]
    assert main(trim) == 0
    trimmed = open_run(tmp_path / "trimmed").embed(["x", "y"], "en")[-1]
    np.testing.assert_allclose(trimmed, run.embed(["x", "y"], "en")[-1], atol=1e-6)
    (tmp_path / "run" / "sentences.npz").write_bytes(b"PK")
    assert main([*line, "--language", "en", "--to", str(tmp_path / "none.npy")]) == 2
    assert "sentences.npz cannot be read" in capsys.readouterr().err


def test_what_the_library_has_not_is_not_written(released, tmp_path, capsys):
    for number, (given, why) in enumerate((
        (["--pooling", "mean", "--layer", "2"], "layer 2 of 3"),
        (["--pooling", "mean_no_special"], "pooling mean_no_special"),
    )):  # fmt: skip
        run_from(released, tmp_path / f"run{number}", *given)
        out = tmp_path / f"out{number}"
        assert export_of(tmp_path / f"run{number}", out) == 0
        assert f"sentence-transformers has none by {why}" in capsys.readouterr().out
        assert not (out / "modules.json").exists()
    run_from(released, tmp_path / "run", "--pooling", "first", "--prefix", "q: ")
    assert export_of(tmp_path / "run", tmp_path / "out") == 0
    # `encode_query` and `encode_document` ask for these names, and have no prompt without them.
    described = json.loads((tmp_path / "out" / "config_sentence_transformers.json").read_text())
    assert described["prompts"] == {"query": "q: ", "document": "q: "}
    assert described["default_prompt_name"] == "query"
    pooling = json.loads((tmp_path / "out" / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_cls_token"] is True
    rows = json.loads((tmp_path / "out" / "modules.json").read_text())
    assert [row["path"] for row in rows] == ["", "1_Pooling"]
