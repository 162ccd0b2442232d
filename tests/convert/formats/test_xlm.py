"""XLM of Hugging Face, with language embeddings: the same states and logits, the same bits, what it
lacks refused."""

import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tests.helpers.foreign_params import params_of
from xlingjax.cli.main import main
from xlingjax.convert.formats.hugging_face import read
from xlingjax.convert.formats.xlm import XLM

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch

CODES = ("ar", "de", "zh")
CONFIG = dict(vocab_size=50, emb_dim=24, n_layers=3, n_heads=4, n_langs=3)
CONFIG |= dict(max_position_embeddings=37, lang2id={code: i for i, code in enumerate(CODES)})
SHAPES = {
    "three languages": {},
    "odd": dict(emb_dim=21, n_layers=1, n_heads=7, vocab_size=131, layer_norm_eps=1e-3),
    "no language embedding": dict(use_lang_emb=False),
    "one language": dict(n_langs=1),
}


def save(path, kind="XLMWithLMHeadModel", **changes):
    config = transformers.XLMConfig(**CONFIG | changes)
    model = foreign.randomised(getattr(transformers, kind)(config))
    model.save_pretrained(path)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("xlm")
    save(path)
    return path


def given(batch):
    return foreign.tensors(
        batch, input_ids="input_ids", attention_mask="pack_ids", langs="language_ids"
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_the_states_of_every_layer_are_theirs(shape, tmp_path):
    theirs = save(tmp_path, **SHAPES[shape])
    found = params_of(tmp_path)
    languages = 3 if shape in ("three languages", "odd") else 0
    assert found.config.num_languages == languages and found.vocabulary_head
    batch = foreign.batch_of(found.config.vocab_size, 37, 2, ends=1, languages=max(languages, 1))
    states, logits = foreign.states_and_logits(found, batch)
    with torch.no_grad():
        wanted = theirs(**given(batch), output_hidden_states=True)
    valid_BL = batch["pack_ids"] > 0
    foreign.assert_states_are(states, wanted.hidden_states, valid_BL)
    foreign.assert_states_are([logits], [wanted.logits], valid_BL)


def test_the_names_lead_back_to_the_same_bits(folder):
    foreign.assert_same_bits(foreign.back(XLM, params_of(folder)), foreign.weights(folder))


def test_a_body_without_prefix_is_the_same_and_has_no_bias(folder, tmp_path):
    """As `XLMModel` saves it; its head is the words' table."""
    model = transformers.XLMWithLMHeadModel.from_pretrained(folder)
    model.transformer.save_pretrained(tmp_path)
    found, whole = params_of(tmp_path), params_of(folder)
    assert found.notes[0].startswith("the vocabulary head is the words' alone, without a bias")
    assert not found.vocabulary_head and not found.params["head"]["bias"].any()
    assert whole.params["head"]["bias"][: whole.config.vocab_size].all()
    for name, value in foreign.back(XLM, found).items():
        if not name.startswith("pred_layer."):
            np.testing.assert_array_equal(value, foreign.back(XLM, whole)[name])


@pytest.mark.parametrize(
    ("kind", "labels"), [("SequenceClassification", 5), ("TokenClassification", 4)]
)
def test_classifiers_are_theirs(kind, labels, tmp_path):
    theirs = save(tmp_path, f"XLMFor{kind}", num_labels=labels, summary_first_dropout=0.25)
    found = params_of(tmp_path)
    assert found.config.num_labels == labels
    assert found.config.classifier_dropout == (0.25 if labels == 5 else None)
    batch = foreign.batch_of(50, 20, pad=2, ends=1, languages=3)
    ours = foreign.class_logits(found, batch)
    with torch.no_grad():
        wanted = theirs(**given(batch)).logits.numpy()
    valid_BL = batch["pack_ids"] > 0 if labels == 4 else slice(None)
    np.testing.assert_allclose(ours[valid_BL], wanted[valid_BL], atol=1e-4)


def untied(found):
    found["pred_layer.proj.weight"] = found["transformer.embeddings.weight"] + 1


def twice(found):
    found["embeddings.weight"] = found["transformer.embeddings.weight"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (foreign.changed(gelu_activation=False), "gelu_activation=False is not something"),
        (foreign.reweighted(untied), "pred_layer.proj.weight is not transformer.embeddings.weight"),
        (foreign.reweighted(twice), "are one weight; leave one"),
    ],
)
def test_what_is_broken_or_not_computed_is_said(folder, spoil, message, tmp_path):
    foreign.assert_refused(params_of, folder, spoil, message, tmp_path)


def test_what_is_written_back_is_read_by_transformers_and_by_us_bit_by_bit(folder, tmp_path):
    from safetensors.numpy import save_file

    found = params_of(folder)
    save_file(foreign.back(XLM, found), tmp_path / "model.safetensors", {"format": "pt"})
    roles = SimpleNamespace(pad_id=2, bos_id=0, eos_id=1, unk_id=3, mask_id=5)
    (tmp_path / "config.json").write_text(json.dumps(XLM.described(found.config, roles, (), CODES)))
    model, told = transformers.XLMWithLMHeadModel.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(told[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    original = transformers.XLMWithLMHeadModel.from_pretrained(folder).state_dict()
    assert all(torch.equal(value, original[name]) for name, value in model.state_dict().items())
    again = params_of(tmp_path)
    assert again.config.replace(name=found.config.name) == found.config
    jax.tree.map(np.testing.assert_array_equal, again.params, found.params)


@pytest.fixture(scope="module")
def spoken(vocabularies, tmp_path_factory):
    """With a vocabulary as `xlingjax vocab` makes it, under its name."""
    path = tmp_path_factory.mktemp("spoken")
    (path / "vocab.model").write_bytes(vocabularies["xlm"].model_bytes)
    save(path, vocab_size=vocabularies["xlm"].size, max_position_embeddings=90)
    return path


def test_a_folder_with_our_vocabulary_is_imported_with_its_languages(spoken, tmp_path, capsys):
    from xlingjax.inference.run import open_run

    assert main(["import", str(spoken), "--to", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert "logits of the pieces: largest difference" in told
    assert "has no tokenizer of transformers" in told
    opened, direct = open_run(tmp_path / "run"), read(spoken)
    assert opened.languages == direct.languages == CODES and opened.model.config == direct.config
    vectors = [opened.embed(["Das Wasser ist kalt."], code)[-1, 0] for code in CODES]
    assert np.abs(vectors[1] - vectors[2]).max() > 0.1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (foreign.changed(lang2id=None), "lang2id=None does not number n_langs=3 languages"),
        (foreign.changed(lang2id={"zh": 0, "ar": 1, "de": 2}), "in alphabetical order"),
    ],
)
def test_a_folder_of_parts_that_differ_is_refused(spoken, spoil, message, tmp_path):
    foreign.assert_refused(read, spoken, spoil, message, tmp_path)


@pytest.fixture(scope="module")
def of_fastbpe(tmp_path_factory):
    """With byte pair codes, as `xlm-mlm-*` have them."""
    from tests.helpers import small_fastbpe
    from xlingjax.convert.formats.parity import SENTENCES

    path = tmp_path_factory.mktemp("fastbpe")
    size = small_fastbpe.write(path, SENTENCES, fold=False)
    for name in ("codes", "vocab"):  # of XLM's own code
        (path / name).unlink()
    save(path, vocab_size=size, max_position_embeddings=90)
    return path


def test_a_folder_of_byte_pair_codes_is_imported_and_exported(of_fastbpe, tmp_path, capsys):
    from xlingjax.inference.run import open_run

    run, out = tmp_path / "run", tmp_path / "hf"
    assert main(["import", str(of_fastbpe), "--to", str(run)]) == 0
    told = capsys.readouterr().out
    assert "no tokenizer of transformers" not in told
    assert "logits of the pieces: largest difference" in told
    text, vocabulary = "Das Wasser ist kalt.", open_run(run).vocabulary
    theirs = transformers.AutoTokenizer.from_pretrained(of_fastbpe)
    ids = vocabulary.encode(text)
    assert ids == theirs(text, add_special_tokens=False)["input_ids"] and 3 not in ids
    assert main(["export", str(run), "--to", str(out)]) == 0
    assert "no tokenizer of transformers" not in capsys.readouterr().out
    assert not (out / "vocab.model").exists()
    assert "call the model with `langs=`" in (out / "README.md").read_text()
    exported = transformers.AutoTokenizer.from_pretrained(out)
    assert type(exported).__name__ == "XLMTokenizer"
    assert exported(text)["input_ids"] == [1, *ids, 1]
    assert read(out).vocabulary == vocabulary
