"""A released embedding table with more rows than its tokenizer has pieces (multilingual MiniLM,
e5-small): the rows are kept, never predicted, and go out again; special ids are the tokenizer's."""

import json
import shutil

import numpy as np
import pytest

from tests.helpers import small_xlmr
from xlingjax.cli.main import main
from xlingjax.convert.formats.hugging_face import read
from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.inference.run import open_run
from xlingjax.model.build import build_model

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch

SPARE = 35


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """BERT's layout on XLM-R's tokenizer, tokenizer.json alone; config.json has the padding of
    BERT."""
    path = tmp_path_factory.mktemp("e5")
    pieces = small_xlmr.tokenizer_model(path)
    tokenizer = transformers.XLMRobertaTokenizer.from_pretrained(path)
    tokenizer.save_pretrained(path)
    (path / "sentencepiece.bpe.model").unlink()
    sizes = dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40)
    config = transformers.BertConfig(
        vocab_size=pieces + 2 + SPARE, max_position_embeddings=120, pad_token_id=0, **sizes
    )
    model = foreign.randomised(transformers.BertForMaskedLM(config))
    with torch.no_grad():  # theirs would predict nothing else
        model.cls.predictions.bias[-SPARE:] += 100
    model.save_pretrained(path)
    return path


def test_they_are_kept_and_never_predicted(folder):
    found = read(folder)
    config, pieces = found.config, len(transformers.AutoTokenizer.from_pretrained(folder))
    assert (config.vocab_size, config.table_rows) == (pieces, pieces + SPARE)
    assert found.notes[0] == (
        "35 rows of the embedding table have no piece: harmless, they are kept, written by an"
        " export and never predicted"
    )
    table = found.params["embeddings"]["tokens"]["embedding"]
    theirs = foreign.weights(folder)["bert.embeddings.word_embeddings.weight"]
    np.testing.assert_array_equal(table[: pieces + SPARE], theirs)
    assert config.padded_vocab_size == table.shape[0] and not table[pieces + SPARE :].any()


def test_the_loss_and_the_best_ids_leave_them_out(folder):
    """Their logits are the largest by far."""
    from xlingjax.objectives.losses import best_ids, cross_entropy

    found = read(folder)
    model = build_model(found.config)
    h_TD = np.random.default_rng(0).normal(size=(5, 24)).astype(np.float32)
    g_TD, table_VD, bias_V = model.vocab_head(found.params, h_TD)
    logits_TV = np.asarray(g_TD @ table_VD.T + bias_V)
    pieces = found.config.vocab_size
    assert (logits_TV[:, : pieces + SPARE].argmax(-1) >= pieces).all()
    best = np.asarray(best_ids(g_TD, table_VD, bias_V, vocab_size=pieces, chunk=5))
    np.testing.assert_array_equal(best, logits_TV[:, :pieces].argmax(-1))
    targets = np.arange(5, dtype=np.int32)
    shifted = logits_TV[:, :pieces] - logits_TV[:, :pieces].max(-1, keepdims=True)
    wanted = np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(5), targets]
    ones = np.ones(5, np.float32)
    loss = cross_entropy(g_TD, table_VD, bias_V, targets, ones, vocab_size=pieces, chunk=5)
    np.testing.assert_allclose(np.asarray(loss.loss), wanted.sum(), rtol=1e-5)


@pytest.mark.long
def test_in_and_out_again(folder, tmp_path, capsys):
    run, out = str(tmp_path / "run"), tmp_path / "out"
    assert main(["import", str(folder), "--to", run]) == 0
    assert "35 rows of the embedding table" in capsys.readouterr().out
    assert main(["export", run, "--to", str(out)]) == 0
    told = json.loads((out / "config.json").read_text())
    assert told["vocab_size"] == read(folder).config.table_rows
    theirs, ours = (
        transformers.AutoModelForMaskedLM.from_pretrained(path).eval() for path in (folder, out)
    )
    first, last = (transformers.AutoTokenizer.from_pretrained(path) for path in (folder, out))
    states = open_run(run).embed(list(SENTENCES[:4]), "en")
    for i, text in enumerate(SENTENCES[:4]):
        assert first(text)["input_ids"] == last(text)["input_ids"]
        ids = torch.tensor([first(text)["input_ids"]])
        with torch.no_grad():
            wanted, got = (model(ids, output_hidden_states=True) for model in (theirs, ours))
        np.testing.assert_allclose(got.logits.numpy(), wanted.logits.numpy(), atol=1e-4)
        means = torch.stack(wanted.hidden_states)[:, 0].mean(1).numpy()
        np.testing.assert_allclose(states[:, i], means, atol=1e-4)
    again = str(tmp_path / "again")
    assert main(["import", str(out), "--to", again]) == 0
    assert open_run(again).model.config.table_rows == open_run(run).model.config.table_rows


@pytest.mark.parametrize("rows", [-3, 65])
def test_a_table_of_another_tokenizer_is_refused(rows, folder, tmp_path):
    spoil = foreign.changed(vocab_size=read(folder).config.vocab_size + rows)
    message = r"are not of one model; .*resize_token_embeddings\(\d+\)"
    foreign.assert_refused(read, folder, spoil, message, tmp_path)


def test_trimmed_to_the_pieces_of_a_text(folder, tmp_path, capsys):
    """Rows without a piece are left behind."""
    folder = shutil.copytree(folder, tmp_path / "hf")
    run, out = str(tmp_path / "run"), str(tmp_path / "out")
    (tmp_path / "de.txt").write_text(SENTENCES[1] + "\n", encoding="utf-8")
    assert main(["import", str(folder), "--to", run, "--unverified"]) == 0
    assert main(["vocab", "trim", run, "--to", out, "--mono", str(tmp_path / "de.txt")]) == 2
    assert "where the model was released with one, import it with that" in capsys.readouterr().err
    small_xlmr.tokenizer_model(folder)
    run = str(tmp_path / "of_pieces")
    assert main(["import", str(folder), "--to", run, "--unverified"]) == 0
    assert main(["vocab", "trim", run, "--to", out, "--mono", str(tmp_path / "de.txt")]) == 0
    assert "35 rows without a piece left behind" in capsys.readouterr().out
    trimmed, whole = open_run(out), open_run(run)
    assert trimmed.model.config.table_rows is None
    assert trimmed.vocabulary.size < whole.vocabulary.size
    found, wanted = (one.embed([SENTENCES[1]], "de") for one in (trimmed, whole))
    np.testing.assert_allclose(found, wanted, atol=1e-5)
