"""A run as a Hugging Face folder: AutoModel and AutoTokenizer open it and give our predictions, and
the way back gives the same bits."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest

from xlingjax.cli.main import main
from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.model.build import build_model
from xlingjax.model.config import preset
from xlingjax.model.params import flattened
from xlingjax.training.optimizer import OptimizerConfig
from xlingjax.training.workdir import write_trained

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import small_xlmr, tiny  # noqa: E402 - needs transformers


def run_of(folder, vocabulary, languages=(), labels=(), **options):
    """A workdir of a model with random weights, large enough that its outputs differ."""
    sizes = dict(
        layers=2,
        dim=24,
        heads=4,
        ffn=40,
        vocab_size=vocabulary.size,
        max_positions=70,
        init_std=0.3,
    )
    config = preset("xlmr_base").replace(**{**sizes, **options})
    params = tiny.params(build_model(config), noise=0.1)
    params = jax.tree.map(lambda x: np.array(x, np.float32), params)
    identity = {
        "model": dataclasses.asdict(config),
        "data": {"x": {"vocabulary": vocabulary.sha256}},
    }
    record = {
        "identity": identity,
        "languages": list(languages),
        "model": identity["model"],
        "labels": list(labels),
    }
    write_trained(str(folder), record, 7, params, vocabulary.files())
    return config, params


def command(verb, source, output, *more):
    return main([verb, str(source), "--to", str(output), *more])


def require_equal(found, wanted, config):
    """Rows of padding do not count."""
    from xlingjax.convert.formats.names import OF_WORDS

    found, wanted = flattened(found), flattened(wanted)
    assert {*found} == {*wanted}
    for name, value in wanted.items():
        rows = slice(config.vocab_size if name.endswith(OF_WORDS) else None)
        np.testing.assert_array_equal(found[name][rows], value[rows], err_msg=name)


HEADS = {
    "ForMaskedLM": {},
    "ForSequenceClassification": dict(classifier="xlmr", num_labels=3),
    "ForTokenClassification": dict(classifier="tagging", num_labels=5),
    "ForQuestionAnswering": dict(classifier="spans", num_labels=2),
}


@pytest.mark.parametrize("head", HEADS)
def test_auto_classes_open_it_and_predict_as_the_run_does(head, vocabularies, tmp_path, capsys):
    from xlingjax.inference.run import open_run
    from xlingjax.model.attention import AttentionSpec
    from xlingjax.model.masks import bidirectional

    labels = ["A", "B", "C"] if head == "ForSequenceClassification" else []
    config, params = run_of(tmp_path / "run", vocabularies["xlmr"], labels=labels, **HEADS[head])
    verified = head in ("ForMaskedLM", "ForQuestionAnswering")
    assert (
        command(
            "export", tmp_path / "run", tmp_path / "hf", *([] if verified else ["--unverified"])
        )
        == 0
    )
    told = capsys.readouterr().out
    assert f"XLMRoberta{head}" in told and ("16 sentences of as many languages" in told) == verified
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    model = getattr(transformers, f"Auto{'ModelFor' + head.removeprefix('For')}").from_pretrained(
        tmp_path / "hf"
    )
    assert model.config.architectures == [f"XLMRoberta{head}"]
    if labels:
        assert model.config.id2label == {0: "A", 1: "B", 2: "C"}
    given = tokenizer(list(SENTENCES[3:5]), padding=True, return_tensors="pt")
    with torch.no_grad():
        found = model.eval()(**given)
    theirs = (
        torch.stack([found.start_logits, found.end_logits], -1)
        if "start_logits" in found
        else found.logits
    )
    valid_BL = given["attention_mask"].numpy()
    ids_BL = given["input_ids"].numpy().astype(np.int32)
    batch = {
        "input_ids": ids_BL, "pack_ids": valid_BL.astype(np.int32),
        "position_ids": np.broadcast_to(np.arange(ids_BL.shape[1], dtype=np.int32), ids_BL.shape),
    }  # fmt: skip
    trained = open_run(tmp_path / "run")
    assert [[0, *trained.vocabulary.encode(text), 2] for text in SENTENCES[3:5]] == [
        row[row != 1].tolist() for row in ids_BL
    ]
    h_BLD = trained.model.encode(trained.params, batch, AttentionSpec(bidirectional))
    if head == "ForMaskedLM":
        g, table_VD, bias_V = trained.model.vocab_head(trained.params, h_BLD)
        ours = (g @ table_VD.T + bias_V)[..., : config.vocab_size]
    else:
        ours = trained.model.classify(trained.params, h_BLD, batch)
    ours, theirs = np.asarray(ours), theirs.numpy()
    if ours.ndim == 3:
        ours, theirs = ours[valid_BL > 0], theirs[valid_BL > 0]
    assert theirs.std() > 0.3
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert command("import", tmp_path / "hf", tmp_path / "again", "--unverified") == 0
    again = open_run(tmp_path / "again")
    require_equal(jax.tree.map(np.asarray, again.params), params, config)
    assert again.model.config == config and again.vocabulary == vocabularies["xlmr"]


def test_a_run_with_the_pieces_of_xlm_prophetnet_comes_back_with_them(
    vocabularies, tmp_path, capsys
):
    """A SentencePiece model does not show that its ids are counted as theirs are."""
    from xlingjax.inference.run import open_run

    vocabulary = Vocabulary(vocabularies["xlmr"].model_bytes, "xprophetnet")
    config, params = run_of(tmp_path / "run", vocabulary)
    assert command("export", tmp_path / "run", tmp_path / "out") == 0, capsys.readouterr().err
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    sentence = SENTENCES[2]
    assert tokenizer(sentence, add_special_tokens=False).input_ids == vocabulary.encode(sentence)
    assert command("import", tmp_path / "out", tmp_path / "again") == 0, capsys.readouterr().err
    again = open_run(tmp_path / "again")
    assert again.vocabulary == vocabulary and again.vocabulary.layout == "xprophetnet"
    for name, found in flattened(again.params).items():
        if "positions" not in name:  # those before the first have no bits to keep
            require_equal({name: found}, {name: flattened(params)[name]}, config)


@pytest.mark.long
def test_what_their_class_has_no_place_for_lies_beside_and_comes_back(
    vocabularies, tmp_path, capsys
):
    from xlingjax.inference.run import open_run

    options = dict(
        cross_attention=True,
        word_recovery=True,
        paraphrase=True,
        dan=6,
        classifier="plug_in",
        num_labels=3,
        num_languages=2,
        language_init="zero",
    )
    config, params = run_of(tmp_path / "run", vocabularies["xlmr"], ["de", "en"], **options)
    assert command("export", tmp_path / "run", tmp_path / "hf") == 0
    told = capsys.readouterr().out
    assert "XLMRobertaForMaskedLM has no place for, in xlingjax.safetensors" in told
    for name in (
        "cross_attention",
        "word_recovery/kernel",
        "paraphrase",
        "dan/in",
        "classifier/out",
        "languages",
    ):
        assert name in told
    assert "the language embedding, of training alone (ERNIE-M), is left out" in told
    assert command("import", tmp_path / "hf", tmp_path / "again", "--unverified") == 0
    again = open_run(tmp_path / "again")
    require_equal(jax.tree.map(np.asarray, again.params), params, config)
    assert again.model.config == config and again.languages == ("de", "en")
    # Without them it is the encoder alone.
    for name in ("xlingjax.safetensors", "xlingjax.json"):
        (tmp_path / "hf" / name).unlink()
    assert command("import", tmp_path / "hf", tmp_path / "bare", "--unverified") == 0
    assert not open_run(tmp_path / "bare").model.config.cross_attention


def test_of_several_heads_one_is_exported_by_name(vocabularies, tmp_path, capsys):
    from xlingjax.inference.run import open_run

    tasks, more = (("pawsx", 2), ("qam", 2)), {"classifier": "xlmr"}
    _, params = run_of(tmp_path / "run", vocabularies["xlmr"], task_labels=tasks, **more)
    path = tmp_path / "run" / "run.json"
    told = json.loads(path.read_text())
    told["identity"]["data"]["classification_qam"] = {"labels": ["No", "Yes"]}
    path.write_text(json.dumps(told))
    for given, message in (
        ([], "--head NAME: name one of the heads of "),
        (["--head", "nc"], "--head nc: "),
    ):
        assert command("export", tmp_path / "run", tmp_path / "hf", *given) == 2
        assert message in capsys.readouterr().err and not (tmp_path / "hf").exists()
    assert (
        command("export", tmp_path / "run", tmp_path / "hf", "--head", "qam", "--unverified") == 0
    )
    assert "the head of qam alone, of pawsx, qam" in capsys.readouterr().out
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf")
    assert model.config.id2label == {0: "No", 1: "Yes"}
    for ours, theirs in (("dense", model.classifier.dense), ("out", model.classifier.out_proj)):
        np.testing.assert_array_equal(
            theirs.weight.detach().numpy().T, params["classifiers"]["qam"][ours]["kernel"]
        )
    assert command("import", tmp_path / "hf", tmp_path / "again", "--unverified") == 0
    again = open_run(tmp_path / "again")
    assert (again.model.config.num_labels, again.model.config.task_labels) == (2, None)
    assert command("export", tmp_path / "again", tmp_path / "more", "--head", "qam") == 2
    assert "(none)" in capsys.readouterr().err


XLM = dict(
    head="tied",
    position_offset=0,
    ffn=96,
    classifier="difference",
    vocab_multiple=1,
    norm_eps=1e-12,
)


@pytest.mark.parametrize(
    ("options", "architecture"),
    [
        (dict(num_languages=3), "XLMWithLMHeadModel"),
        (dict(num_labels=3), "XLMWithLMHeadModel"),
        (dict(num_labels=3, classifier="xlm", num_languages=3), "XLMForSequenceClassification"),
        (dict(num_labels=4, classifier="tagging"), "XLMForTokenClassification"),
    ],
)
def test_a_model_with_xlms_head_is_one_of_their_xlm_classes(
    options, architecture, vocabularies, tmp_path, capsys
):
    from xlingjax.inference.run import open_run

    languages = ["de", "en", "zh"] if "num_languages" in options else []
    config, params = run_of(tmp_path / "run", vocabularies["xlm"], languages, **XLM | options)
    assert command("export", tmp_path / "run", tmp_path / "hf") == 0
    told = capsys.readouterr().out
    assert f"{architecture}, " in told and "largest difference" in told
    assert ("classifier/dense" in told) == (
        architecture == "XLMWithLMHeadModel" and "num_labels" in options
    )
    model = transformers.AutoModel.from_pretrained(tmp_path / "hf")
    assert model.config.architectures == [architecture] and model.config.mask_index == 5
    ids = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")(SENTENCES[2])["input_ids"]
    assert ids == [1, *vocabularies["xlm"].encode(SENTENCES[2]), 1]
    assert command("import", tmp_path / "hf", tmp_path / "again", "--unverified") == 0
    again = open_run(tmp_path / "again")
    require_equal(jax.tree.map(np.asarray, again.params), params, config)
    assert again.model.config == config and list(again.languages) == languages


PRE = dict(norm_order="pre", position_offset=0, norm_eps=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "architecture", "beside"),
    [
        (dict(head="tied"), "Model", ["head/bias"]),  # as `mini` is
        (dict(), "ForMaskedLM", []),
        (
            dict(num_labels=4, classifier="tagging"),
            "ForTokenClassification",
            ["head/bias", "head/dense/kernel"],
        ),
    ],
)
def test_a_pre_layernorm_model_is_one_of_roberta_prelayernorms(
    options, architecture, beside, vocabularies, tmp_path, capsys
):
    from xlingjax.inference.run import open_run

    config, params = run_of(tmp_path / "run", vocabularies["xlm"], **PRE | options)
    assert command("export", tmp_path / "run", tmp_path / "hf") == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    assert f"RobertaPreLayerNorm{architecture}, " in told and "largest difference" in told
    assert ("states of every layer" in told) == (architecture == "Model") and all(
        name in told for name in beside
    )
    assert ("has no place for" in told) == bool(beside)
    model = transformers.AutoModel.from_pretrained(tmp_path / "hf")
    assert type(model).__name__ == "RobertaPreLayerNormModel"
    assert command("import", tmp_path / "hf", tmp_path / "again") == 0, capsys.readouterr().err
    again = open_run(tmp_path / "again")
    require_equal(jax.tree.map(np.asarray, again.params), params, config)
    assert again.model.config == config


@pytest.mark.parametrize(
    "kind", ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"]
)
def test_what_transformers_saves_of_roberta_prelayernorm_is_read(kind, tmp_path, capsys):
    from xlingjax.inference.run import open_run

    small_xlmr.save(tmp_path / "hf", f"RobertaPreLayerNorm{kind}", num_labels=3)
    assert command("import", tmp_path / "hf", tmp_path / "run") == 0, capsys.readouterr().err
    assert "largest difference" in capsys.readouterr().out
    config = open_run(tmp_path / "run").model.config
    assert (config.norm_order, config.position_offset) == ("pre", 2)
    assert (config.head == "tied") == (kind == "Model")


@pytest.mark.parametrize("offset", [0, 5])
def test_positions_are_counted_from_where_they_count_them(offset, vocabularies, tmp_path):
    """XLM's vocabularies have padding 2, so that theirs begin at row 3."""
    from xlingjax.inference.run import open_run

    config, params = run_of(tmp_path / "run", vocabularies["xlm"], position_offset=offset)
    assert (
        command("export", tmp_path / "run", tmp_path / "hf", *(["--unverified"] if offset else []))
        == 0
    )
    told = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert told["max_position_embeddings"] == 70 - offset + 3 and told["pad_token_id"] == 2
    assert command("import", tmp_path / "hf", tmp_path / "again", "--unverified") == 0
    again = open_run(tmp_path / "again")
    params["embeddings"]["positions"]["embedding"][:offset] = 0  # rows that no token has
    require_equal(jax.tree.map(np.asarray, again.params), params, config)
    assert again.vocabulary == vocabularies["xlm"] and again.model.config == config


def test_a_model_that_embeds_languages_is_exported_for_one_of_them(vocabularies, tmp_path, capsys):
    config, params = run_of(tmp_path / "run", vocabularies["xlmr"], ["de", "en"], num_languages=2)
    assert command("export", tmp_path / "run", tmp_path / "hf") == 2
    assert "export it for one of de, en with --language CODE" in capsys.readouterr().err
    assert command("export", tmp_path / "run", tmp_path / "hf", "--language", "fr") == 2
    assert "has the languages de, en" in capsys.readouterr().err
    assert (
        command("export", tmp_path / "run", tmp_path / "hf", "--language", "en") == 0
    )  # compared, too
    from safetensors.numpy import load_file

    positions = load_file(tmp_path / "hf" / "model.safetensors")[
        "roberta.embeddings.position_embeddings.weight"
    ]
    tables = params["embeddings"]
    np.testing.assert_array_equal(
        positions, tables["positions"]["embedding"] + tables["languages"]["embedding"][1]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(norm_order="pre", embedding_norm=False), "embedding_norm=False"),
        (dict(gelu="tanh"), "gelu='tanh'"),
        (dict(head="plain"), "head='plain'"),
        (dict(decoder_layers=1), "head='transform'"),
    ],
)
def test_a_model_that_no_class_computes_is_refused(
    options, message, vocabularies, tmp_path, capsys
):
    run_of(tmp_path / "run", vocabularies["xlmr"], **options)
    assert command("export", tmp_path / "run", tmp_path / "hf") == 2
    assert (
        "no class of transformers computes" in (said := capsys.readouterr().err) and message in said
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_nothing_is_written_where_transformers_computes_something_else(
    vocabularies, tmp_path, capsys, monkeypatch
):
    from xlingjax.convert.formats.xlm_roberta import XLM_ROBERTA

    def described(*given):
        return {**true(*given), "layer_norm_eps": 0.5}

    true = XLM_ROBERTA.described
    run_of(tmp_path / "run", vocabularies["xlmr"])
    monkeypatch.setattr(XLM_ROBERTA, "described", described)
    assert command("export", tmp_path / "run", tmp_path / "hf") == 2
    assert "what xlingjax computes is not what transformers" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def changed(folder, **values):
    path = folder / "xlingjax.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, "model": {**told["model"], **values}}))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda folder: changed(folder, layers=3),
            "describe different models: num_hidden_layers is 3 and 2",
        ),
        (lambda folder: changed(folder, dan=7), "dan/in/bias: wanted 7, found 6"),
        (lambda folder: (folder / "xlingjax.json").write_text("["), "does not describe a model"),
        (
            lambda folder: (folder / "xlingjax.safetensors").unlink(),
            "xlingjax.safetensors is no whole safetensors file",
        ),
    ],
)
def test_what_lies_beside_is_read_strictly(spoil, message, vocabularies, tmp_path, capsys):
    run_of(tmp_path / "run", vocabularies["xlmr"], dan=6)
    assert command("export", tmp_path / "run", tmp_path / "hf", "--unverified") == 0
    spoil(tmp_path / "hf")
    assert command("import", tmp_path / "hf", tmp_path / "again", "--unverified") == 2
    assert message in capsys.readouterr().err and not (tmp_path / "again").exists()


def test_the_card_says_what_the_runs_files_say(vocabularies, tmp_path):
    run_of(tmp_path / "run", vocabularies["xlmr"], ["de", "en"])
    path = tmp_path / "run" / "run.json"
    told = json.loads(path.read_text())
    told["weights"] = {"mlm": 1.0}
    told |= {
        "steps": 10,
        "optimizer": dataclasses.asdict(OptimizerConfig(warmup_steps=3)),
    }  # the checkpoint is of 7
    told["stages"] = {"mlm": {"batch": 8, "length": 64, "masking": {"rate": 0.3}}}
    line = {
        "name": "de",
        "sentences": 1200,
        "tokens": 34567,
        "rows": 9,
        "share": 0.25,
        "epochs_per_1000_steps": 1.0,
    }
    told["identity"]["data"]["mlm"] = {
        "vocabulary": vocabularies["xlmr"].sha256,
        "sampling_table": [line],
    }
    path.write_text(json.dumps(told))
    (tmp_path / "run" / "config.gin").write_text("train.steps = 7\n")
    lines = [
        {
            "step": step,
            "name": "perplexity",
            "values": {"kind": "perplexity", "mean": mean, "by_language": {}},
        }
        for step, mean in ((5, 12.5), (9, 3.5))
    ]  # the second is later than the checkpoint, 7
    (tmp_path / "run" / "evaluations.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    given = ("--license", "mit", "--base", "xlm-roberta-base", "--unverified")
    assert command("export", tmp_path / "run", tmp_path / "hf", *given) == 0
    card = (tmp_path / "hf" / "README.md").read_text()
    _, metadata, text = card.split("---\n", 2)
    import yaml

    assert yaml.safe_load(metadata) == {
        "language": ["de", "en"],
        "license": "mit",
        "base_model": "xlm-roberta-base",
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["xlingjax", "cross-lingual", "multilingual"],
    }
    assert (
        "- 7 of 10 updates of adamw, peak rate 0.0001, inverse_sqrt schedule, warm-up of 3 updates"
        in text
    )
    assert "| mlm | de | 1,200 | 34,567 | 25.0 % |" in text
    of_words = "of held-out text (of masked words; CLM: of each next word), mean over languages"
    assert f"| perplexity {of_words} | 12.5000 |" in text
    assert "checkpoint 7" in text and "not compared with transformers (--unverified)" in text
    assert (tmp_path / "hf" / "config.gin").read_text() == "train.steps = 7\n"


# ---- its card ------------------------------------------------------------------------------------


def card_of(folder, vocabulary, languages=(), given=(), labels=(), **options):
    """(card, what its code leaves behind, run in the folder of the card)."""
    run_of(folder / "run", vocabulary, languages, labels, **options)
    assert command("export", folder / "run", folder / "elsewhere", "--unverified", *given) == 0
    (folder / "elsewhere").rename(folder / "hf")  # as a folder may be moved
    card = (folder / "hf" / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.+?)```", card, re.DOTALL)
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "hf")
        exec(code, names)
    return card, names


@pytest.mark.parametrize(
    ("layout", "options", "given", "embeds"),
    [
        ("xlmr", dict(num_languages=2), ("--language", "en"), False),
        ("xlm", dict(norm_order="pre", head="tied", position_offset=0), (), False),
        ("xlm", XLM | dict(num_languages=2), (), True),
    ],
)
def test_its_code_gives_the_sentence_vectors_of_the_run(
    vocabularies, tmp_path, layout, options, given, embeds
):
    from xlingjax.inference.run import open_run

    languages = ["de", "en"]
    card, names = card_of(tmp_path, vocabularies[layout], languages, given, **options)
    language = "en" if given else "de"
    ours = open_run(tmp_path / "run").embed(["Hello, world."], language)[-1]
    np.testing.assert_allclose(names["vectors"].numpy(), ours, atol=1e-4)
    if options.get("num_languages"):
        other = "de" if given else "en"
        assert (
            np.abs(open_run(tmp_path / "run").embed(["Hello, world."], other)[-1] - ours).max()
            > 0.01
        )
    assert ("langs" in card) == embeds
    # A pipeline gives no languages.
    assert ("pipeline_tag" in card) == (not embeds)
    assert ('language: ["en"]' if given else 'language: ["de", "en"]') in card


@pytest.mark.parametrize(
    ("layout", "options", "labels"),
    [
        ("xlmr", dict(classifier="xlmr", num_labels=3), ["A", "B", "C"]),
        ("xlmr", dict(classifier="tagging", num_labels=3), ["A", "B", "C"]),
        ("xlmr", dict(classifier="spans", num_labels=2), []),
        ("xlm", XLM | dict(classifier="xlm", num_labels=3, num_languages=2), ["A", "B", "C"]),
        ("xlm", XLM | dict(classifier="tagging", num_labels=3), ["A", "B", "C"]),
    ],
)
def test_its_code_reads_each_kind_of_head(vocabularies, tmp_path, layout, options, labels):
    card, names = card_of(tmp_path, vocabularies[layout], ["de", "en"], (), labels, **options)
    ids = names["inputs"]["input_ids"]
    if options["classifier"] == "spans":
        assert 0 <= names["first"] < ids.shape[1] and 0 <= names["last"] < ids.shape[1]
    elif options["classifier"] == "tagging":
        assert len(names["labels"]) == ids.shape[1] and {*names["labels"]} <= {*labels}
    else:
        assert names["label"] in labels
    assert ("langs" in card) == ("num_languages" in options)


def test_it_does_not_say_that_what_was_only_imported_was_trained(vocabularies, tmp_path):
    card, _ = card_of(tmp_path, vocabularies["xlmr"])
    assert "exported by xlingjax, checkpoint 7" in card and "trained on" not in card
