"""BERT's layout (multilingual BERT): the same states and logits, the same bits, and what is left
behind is said."""

import shutil

import numpy as np
import pytest

from tests.helpers.foreign_params import params_of
from xlingjax.cli.main import main
from xlingjax.convert.formats.bert import BERT
from xlingjax.convert.formats.hugging_face import read
from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.errors import UserError

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch
from tests.helpers import imported_folders  # noqa: E402

CONFIG = dict(vocab_size=50, hidden_size=24, num_hidden_layers=3, num_attention_heads=4)
CONFIG |= dict(intermediate_size=40, max_position_embeddings=37)
ODD = dict(hidden_size=21, num_hidden_layers=1, num_attention_heads=7, intermediate_size=5)
SHAPES = {"plain": {}, "odd": ODD, "one segment": dict(type_vocab_size=1, layer_norm_eps=1e-3)}


def save(path, kind="BertForMaskedLM", **changes):
    config = transformers.BertConfig(**CONFIG | changes)
    model = foreign.randomised(getattr(transformers, kind)(config))
    model.save_pretrained(path)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bert")
    save(path, "BertForPreTraining")
    return path


def given(batch):
    return foreign.tensors(batch, input_ids="input_ids", attention_mask="pack_ids")


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_the_states_of_every_layer_are_theirs(shape, tmp_path):
    theirs = save(tmp_path, **SHAPES[shape])
    found = params_of(tmp_path)
    assert found.notes == () and found.vocabulary_head
    batch = foreign.batch_of(found.config.vocab_size, 37, pad=0, ends=3)
    states, logits = foreign.states_and_logits(found, batch)
    with torch.no_grad():
        wanted = theirs(**given(batch), output_hidden_states=True)
    valid_BL = batch["pack_ids"] > 0
    foreign.assert_states_are(states, wanted.hidden_states, valid_BL)
    foreign.assert_states_are([logits], [wanted.logits], valid_BL)


def test_the_names_lead_back_to_the_same_bits_and_what_is_left_is_said(folder):
    found, theirs = params_of(folder), foreign.weights(folder)
    assert found.notes == ()
    # Where the row of the first segment went.
    theirs["bert.embeddings.position_embeddings.weight"] += theirs.pop(BERT.segments)[0]
    left = [name for name in theirs if "pooler" in name or "seq_relationship" in name]
    assert len([theirs.pop(name) for name in left]) == 4
    foreign.assert_same_bits(foreign.back(BERT, found), theirs)


@pytest.mark.parametrize(
    ("kind", "labels"), [("SequenceClassification", 5), ("TokenClassification", 4)]
)
def test_classifiers_are_theirs_and_the_pooler_is_part_of_one(kind, labels, tmp_path):
    theirs = save(tmp_path, f"BertFor{kind}", num_labels=labels, classifier_dropout=0.25)
    found = params_of(tmp_path)
    pairs = kind == "SequenceClassification"  # whose second text is of segment 1
    fresh = "the vocabulary head is random"
    assert found.notes[0].startswith(fresh) and found.config.segments == (2 if pairs else None)
    assert found.config.classifier_dropout == 0.25
    batch, more = foreign.batch_of(50, 20, pad=0, ends=3), {}
    if pairs:
        sides_BL = np.broadcast_to(np.arange(20) >= 9, batch["input_ids"].shape)
        batch["sides"] = sides_BL.astype(np.int32)
        more = foreign.tensors(batch, token_type_ids="sides")
    ours = foreign.class_logits(found, batch)
    with torch.no_grad():
        wanted = theirs(**given(batch), **more).logits.numpy()
    assert wanted.shape[-1] == labels
    valid_BL = batch["pack_ids"] > 0 if labels == 4 else slice(None)
    np.testing.assert_allclose(ours[valid_BL], wanted[valid_BL], atol=1e-4)


def test_names_of_converted_tensorflow_weights_are_the_same(folder, tmp_path):
    import jax

    shutil.copytree(folder, tmp_path / "hf")

    def older(found):
        for name in [name for name in found if "LayerNorm" in name]:
            old = name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
            found[old] = found.pop(name)
        found["bert.embeddings.position_ids"] = np.arange(37)[None]
        table = found["bert.embeddings.word_embeddings.weight"]
        found["cls.predictions.decoder.weight"] = table.copy()

    foreign.reweighted(older)(tmp_path / "hf")
    again = params_of(tmp_path / "hf").params
    jax.tree.map(np.testing.assert_array_equal, again, params_of(folder).params)


def untied(found):
    found["cls.predictions.decoder.weight"] = found["bert.embeddings.word_embeddings.weight"] + 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (foreign.changed(is_decoder=True), "is_decoder=True is not something"),
        (
            foreign.reweighted(untied),
            "cls.predictions.decoder.weight is not bert.embeddings.word_embeddings.weight",
        ),
    ],
)
def test_what_is_broken_or_not_computed_is_said(folder, spoil, message, tmp_path):
    foreign.assert_refused(params_of, folder, spoil, message, tmp_path)


def test_it_comes_with_its_wordpiece_and_goes_out_as_it_came(tmp_path, capsys):
    """Positions are counted from row 1 there: padding is 0."""
    imported_folders.bert(tmp_path / "hf")
    assert main(["import", str(tmp_path / "hf"), "--to", str(tmp_path / "run")]) == 0
    assert "logits of the pieces: largest difference" in capsys.readouterr().out
    assert main(["export", str(tmp_path / "run"), "--to", str(tmp_path / "out")]) == 0
    assert "BertForMaskedLM" in capsys.readouterr().out
    first, last = (
        transformers.AutoTokenizer.from_pretrained(tmp_path / name) for name in ("hf", "out")
    )
    theirs, ours = (
        transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / name) for name in ("hf", "out")
    )
    for text in SENTENCES[:3]:
        assert first(text)["input_ids"] == last(text)["input_ids"]
        ids = torch.tensor([first(text)["input_ids"]])
        with torch.no_grad():
            np.testing.assert_allclose(
                ours(ids).logits.numpy(), theirs(ids).logits.numpy(), atol=1e-4
            )


def test_more_pieces_go_out_as_transformers_cuts_them(tmp_path, capsys):
    """From transformers' folder to what AutoTokenizer and AutoModel open: words are one piece, and
    its row is the mean of the old ones."""
    imported_folders.bert(tmp_path / "hf")
    (tmp_path / "de.txt").write_text("der hund rennt\nder hund\n" * 9)
    run, more, out = (str(tmp_path / name) for name in ("run", "more", "out"))
    assert main(["import", str(tmp_path / "hf"), "--to", run]) == 0
    given = ["--mono", str(tmp_path / "de.txt"), "--pieces", "6", "--to", more]
    assert main(["vocab", "extend", run, *given]) == 0
    assert main(["export", more, "--to", out]) == 0
    assert "largest difference" in capsys.readouterr().out
    old, new = (transformers.AutoTokenizer.from_pretrained(path) for path in (tmp_path / "hf", out))
    assert len(new.tokenize("der hund rennt")) < len(old.tokenize("der hund rennt")) - 4
    assert new.tokenize("der hund")[0] == "der"
    table = transformers.AutoModel.from_pretrained(out).embeddings.word_embeddings.weight.detach()
    before = transformers.AutoModel.from_pretrained(tmp_path / "hf").embeddings.word_embeddings
    spelt = before.weight.detach()[old(["der"], add_special_tokens=False)["input_ids"][0]]
    np.testing.assert_allclose(table[new.convert_tokens_to_ids("der")], spelt.mean(0), atol=1e-6)


def test_a_folder_without_a_tokenizer_is_refused(folder):
    with pytest.raises(UserError, match="no sentencepiece.bpe.model in .*, and no other tokenizer"):
        read(folder)
