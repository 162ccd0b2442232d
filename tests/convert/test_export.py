"""A run as a Hugging Face folder: AutoModel and AutoTokenizer open it and give our predictions, and
the way back gives the same bits."""

import dataclasses
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers.exported import comes_back, command, require_equal, run_of
from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.inference.run import open_run
from xlingjax.training.optimizer import OptimizerConfig

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch
from tests.helpers import small_xlmr  # noqa: E402 - needs transformers

HEADS = {
    "ForMaskedLM": {},
    "ForSequenceClassification": dict(classifier="xlmr", num_labels=3),
    "ForTokenClassification": dict(classifier="tagging", num_labels=5),
    "ForQuestionAnswering": dict(classifier="spans", num_labels=2),
}


@pytest.mark.parametrize("head", HEADS)
def test_auto_classes_open_it_and_predict_as_the_run_does(head, vocabularies, tmp_path, capsys):
    labels = ["A", "B", "C"] if head == "ForSequenceClassification" else []
    run, folder = tmp_path / "run", tmp_path / "hf"
    config, params = run_of(run, vocabularies["xlmr"], labels=labels, **HEADS[head])
    more = [] if head in ("ForMaskedLM", "ForQuestionAnswering") else ["--unverified"]
    assert command("export", run, folder, *more) == 0
    told = capsys.readouterr().out
    assert f"XLMRoberta{head}" in told
    assert ("16 sentences of as many languages" in told) == (not more)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    auto = getattr(transformers, f"AutoModel{head}")
    model = auto.from_pretrained(folder).eval()
    assert model.config.architectures == [f"XLMRoberta{head}"]
    if labels:
        assert model.config.id2label == {0: "A", 1: "B", 2: "C"}
    given = tokenizer(list(SENTENCES[3:5]), padding=True, return_tensors="pt")
    with torch.no_grad():
        found = model(**given)
    theirs = found.get("logits")
    if theirs is None:
        theirs = torch.stack([found.start_logits, found.end_logits], -1)
    valid_BL = given["attention_mask"].numpy()
    ids_BL = given["input_ids"].numpy().astype(np.int32)
    batch = {
        "input_ids": ids_BL, "pack_ids": valid_BL.astype(np.int32),
        "position_ids": np.broadcast_to(np.arange(ids_BL.shape[1], dtype=np.int32), ids_BL.shape),
    }  # fmt: skip
    trained = open_run(run)
    assert [[0, *trained.vocabulary.encode(text), 2] for text in SENTENCES[3:5]] == [
        row[row != 1].tolist() for row in ids_BL
    ]
    found = SimpleNamespace(config=config, params=trained.params)
    if head == "ForMaskedLM":
        _, ours = foreign.states_and_logits(found, batch)
    else:
        ours = foreign.class_logits(found, batch)
    theirs = theirs.numpy()
    if ours.ndim == 3:
        ours, theirs = ours[valid_BL > 0], theirs[valid_BL > 0]
    assert theirs.std() > 0.3
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    again = comes_back(folder, tmp_path / "again", config, params, "--unverified")
    assert again.vocabulary == vocabularies["xlmr"]


def test_a_run_with_the_pieces_of_xlm_prophetnet_comes_back_with_them(
    vocabularies, tmp_path, capsys
):
    """A SentencePiece model does not show that its ids are counted as theirs are."""
    vocabulary = Vocabulary(vocabularies["xlmr"].model_bytes, "xprophetnet")
    config, params = run_of(tmp_path / "run", vocabulary)
    assert command("export", tmp_path / "run", tmp_path / "out") == 0, capsys.readouterr().err
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    sentence = SENTENCES[2]
    assert tokenizer(sentence, add_special_tokens=False).input_ids == vocabulary.encode(sentence)
    assert command("import", tmp_path / "out", tmp_path / "again") == 0, capsys.readouterr().err
    again = open_run(tmp_path / "again")
    assert again.vocabulary == vocabulary and again.vocabulary.layout == "xprophetnet"
    require_equal(again.params, params, config)


@pytest.mark.long
def test_what_their_class_has_no_place_for_lies_beside_and_comes_back(
    vocabularies, tmp_path, capsys
):
    options = dict(cross_attention=True, word_recovery=True, paraphrase=True, dan=6)
    options |= dict(classifier="plug_in", num_labels=3, num_languages=2, language_init="zero")
    config, params = run_of(tmp_path / "run", vocabularies["xlmr"], ["de", "en"], **options)
    assert command("export", tmp_path / "run", tmp_path / "hf") == 0
    told = capsys.readouterr().out
    assert "XLMRobertaForMaskedLM has no place for, in xlingjax.safetensors" in told
    for name in ("cross_attention", "word_recovery/kernel", "paraphrase", "dan/in", "languages"):
        assert name in told
    again = comes_back(tmp_path / "hf", tmp_path / "again", config, params, "--unverified")
    assert again.languages == ("de", "en")
    # Without them it is the encoder alone.
    for name in ("xlingjax.safetensors", "xlingjax.json"):
        (tmp_path / "hf" / name).unlink()
    assert command("import", tmp_path / "hf", tmp_path / "bare", "--unverified") == 0
    assert not open_run(tmp_path / "bare").model.config.cross_attention


def test_of_several_heads_one_is_exported_by_name(vocabularies, tmp_path, capsys):
    tasks, more = (("pawsx", 2), ("qam", 2)), {"classifier": "xlmr"}
    _, params = run_of(tmp_path / "run", vocabularies["xlmr"], task_labels=tasks, **more)
    path = tmp_path / "run" / "run.json"
    told = json.loads(path.read_text())
    told["identity"]["data"]["classification_qam"] = {"labels": ["No", "Yes"]}
    path.write_text(json.dumps(told))
    assert command("export", tmp_path / "run", tmp_path / "hf") == 2
    assert "--head NAME: name one of the heads of " in capsys.readouterr().err
    more = ("--head", "qam", "--unverified")
    assert command("export", tmp_path / "run", tmp_path / "hf", *more) == 0
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


XLM = dict(head="tied", position_offset=0, ffn=96, classifier="difference")
XLM |= dict(vocab_multiple=1, norm_eps=1e-12)


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
    languages = ["de", "en", "zh"] if "num_languages" in options else []
    config, params = run_of(tmp_path / "run", vocabularies["xlm"], languages, **XLM | options)
    assert command("export", tmp_path / "run", tmp_path / "hf") == 0
    told = capsys.readouterr().out
    assert f"{architecture}, " in told and "largest difference" in told
    left = architecture == "XLMWithLMHeadModel" and "num_labels" in options
    assert ("classifier/dense" in told) == left
    model = transformers.AutoModel.from_pretrained(tmp_path / "hf")
    assert model.config.architectures == [architecture] and model.config.mask_index == 5
    ids = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")(SENTENCES[2])["input_ids"]
    assert ids == [1, *vocabularies["xlm"].encode(SENTENCES[2]), 1]
    again = comes_back(tmp_path / "hf", tmp_path / "again", config, params, "--unverified")
    assert list(again.languages) == languages


PRE = dict(norm_order="pre", position_offset=0, norm_eps=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "architecture", "beside"),
    [
        (dict(head="tied"), "Model", ["head/bias"]),  # as `mini` is
        (dict(), "ForMaskedLM", []),
        (dict(num_labels=4, classifier="tagging"), "ForTokenClassification", ["head/dense/kernel"]),
    ],
)
def test_a_pre_layernorm_model_is_one_of_roberta_prelayernorms(
    options, architecture, beside, vocabularies, tmp_path, capsys
):
    config, params = run_of(tmp_path / "run", vocabularies["xlm"], **PRE | options)
    assert command("export", tmp_path / "run", tmp_path / "hf") == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    assert f"RobertaPreLayerNorm{architecture}, " in told and "largest difference" in told
    assert ("has no place for" in told) == bool(beside) and all(name in told for name in beside)
    model = transformers.AutoModel.from_pretrained(tmp_path / "hf")
    assert type(model).__name__ == "RobertaPreLayerNormModel"
    comes_back(tmp_path / "hf", tmp_path / "again", config, params)


@pytest.mark.parametrize("kind", ["Model", "ForMaskedLM", "ForSequenceClassification"])
def test_what_transformers_saves_of_roberta_prelayernorm_is_read(kind, tmp_path, capsys):
    small_xlmr.save(tmp_path / "hf", f"RobertaPreLayerNorm{kind}", num_labels=3)
    assert command("import", tmp_path / "hf", tmp_path / "run") == 0, capsys.readouterr().err
    assert "largest difference" in capsys.readouterr().out
    config = open_run(tmp_path / "run").model.config
    assert (config.norm_order, config.position_offset) == ("pre", 2)
    assert (config.head == "tied") == (kind == "Model")


@pytest.mark.parametrize("offset", [0, 5])
def test_positions_are_counted_from_where_they_count_them(offset, vocabularies, tmp_path):
    """XLM's vocabularies have padding 2, so that theirs begin at row 3."""
    config, params = run_of(tmp_path / "run", vocabularies["xlm"], position_offset=offset)
    more = ["--unverified"] if offset else []
    assert command("export", tmp_path / "run", tmp_path / "hf", *more) == 0
    told = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert told["max_position_embeddings"] == 70 - offset + 3 and told["pad_token_id"] == 2
    again = comes_back(tmp_path / "hf", tmp_path / "again", config, params, "--unverified")
    assert again.vocabulary == vocabularies["xlm"]


def test_a_model_that_embeds_languages_is_exported_for_one_of_them(vocabularies, tmp_path, capsys):
    config, params = run_of(tmp_path / "run", vocabularies["xlmr"], ["de", "en"], num_languages=2)
    assert command("export", tmp_path / "run", tmp_path / "hf") == 2
    assert "export it for one of de, en with --language CODE" in capsys.readouterr().err
    assert command("export", tmp_path / "run", tmp_path / "hf", "--language", "fr") == 2
    assert "has the languages de, en" in capsys.readouterr().err
    # Compared, too.
    assert command("export", tmp_path / "run", tmp_path / "hf", "--language", "en") == 0
    theirs = foreign.weights(tmp_path / "hf")["roberta.embeddings.position_embeddings.weight"]
    positions, languages = (
        params["embeddings"][name]["embedding"] for name in ("positions", "languages")
    )
    np.testing.assert_array_equal(theirs, positions + languages[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(embedding_norm=False), "embedding_norm=False"),
        (dict(activation="gelu_tanh"), "activation='gelu_tanh'"),
        (dict(decoder_layers=1), "head='transform'"),
    ],
)
def test_a_model_that_no_class_computes_is_refused(
    options, message, vocabularies, tmp_path, capsys
):
    run_of(tmp_path / "run", vocabularies["xlmr"], **options)
    assert command("export", tmp_path / "run", tmp_path / "hf") == 2
    said = capsys.readouterr().err
    assert "no class of transformers computes" in said and message in said
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
    told |= {"weights": {"mlm": 1.0}, "steps": 10}  # the checkpoint is of 7
    told["optimizer"] = dataclasses.asdict(OptimizerConfig(warmup_steps=3))
    told["stages"] = {"mlm": {"batch": 8, "length": 64, "masking": {"rate": 0.3}}}
    line = {"name": "de", "sentences": 1200, "tokens": 34567, "rows": 9, "share": 0.25}
    told["identity"]["data"]["mlm"]["sampling_table"] = [{**line, "epochs_per_1000_steps": 1.0}]
    path.write_text(json.dumps(told))
    values = {"kind": "perplexity", "by_language": {}}
    lines = [
        {"step": step, "name": "perplexity", "values": {**values, "mean": mean}}
        for step, mean in ((5, 12.5), (9, 3.5))  # the second is later than the checkpoint
    ]
    evaluations = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "run" / "evaluations.jsonl").write_text(evaluations)
    given = ("--license", "mit", "--base", "xlm-roberta-base", "--unverified")
    assert command("export", tmp_path / "run", tmp_path / "hf", *given) == 0
    _, metadata, text = (tmp_path / "hf" / "README.md").read_text().split("---\n", 2)
    import yaml

    metadata = yaml.safe_load(metadata)
    assert metadata["language"] == ["de", "en"] and metadata["license"] == "mit"
    assert metadata["base_model"] == "xlm-roberta-base"
    assert "- 7 of 10 updates of adamw, peak rate 0.0001, inverse_sqrt schedule" in text
    assert "| mlm | de | 1,200 | 34,567 | 25.0 % |" in text
    assert "mean over languages | 12.5000 |" in text and "3.5000" not in text
    assert "checkpoint 7" in text and "not compared with transformers (--unverified)" in text


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
    languages = ["de", "en"]
    card, names = card_of(tmp_path, vocabularies[layout], languages, given, **options)
    language = "en" if given else "de"
    ours = open_run(tmp_path / "run").embed(["Hello, world."], language)[-1]
    np.testing.assert_allclose(names["vectors"].numpy(), ours, atol=1e-4)
    if options.get("num_languages"):
        other = "de" if given else "en"
        others = open_run(tmp_path / "run").embed(["Hello, world."], other)[-1]
        assert np.abs(others - ours).max() > 0.01
    assert "trained on" not in card and ("langs" in card) == embeds
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
