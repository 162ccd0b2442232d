"""XLM-R XL, DistilBERT, DeBERTa, BERT and NLLB go in and come out as the class that they were, and
what is read of none is refused by its name."""

import json

import numpy as np
import pytest

from xlingjax.cli.main import main
from xlingjax.inference.generate import Generator
from xlingjax.inference.run import open_run
from xlingjax.model.decoding import Decoding

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch
from tests.helpers import small_xlmr  # noqa: E402 - needs transformers

DISTIL = dict(dim=24, n_layers=3, n_heads=4, hidden_dim=40, seq_classif_dropout=0.3)
DEBERTA = dict(relative_attention=True, share_att_key=True, position_buckets=16)
DEBERTA |= dict(pos_att_type="p2c|c2p", norm_rel_ebd="layer_norm", position_biased_input=False)
DEBERTA |= dict(type_vocab_size=0)
CASES = {
    "XLMRobertaXLForMaskedLM": {},
    "XLMRobertaXLForSequenceClassification": dict(num_labels=3),
    "XLMRobertaXLModel": {},
    "DistilBertForMaskedLM": DISTIL,
    "DistilBertForSequenceClassification": DISTIL | dict(num_labels=3),
    "DistilBertForQuestionAnswering": DISTIL,
    "DebertaV2ForMaskedLM": DEBERTA,
    "DebertaV2ForSequenceClassification": DEBERTA | dict(num_labels=3),
    "DebertaV2ForTokenClassification": DEBERTA | dict(num_labels=4),
    "BertForSequenceClassification": dict(num_labels=3, type_vocab_size=2),
    "BertModel": {},
    "XLMRobertaModel": {},
}


@pytest.mark.parametrize("kind", CASES)
def test_the_numbers_are_theirs_in_and_out(kind, tmp_path):
    small_xlmr.save(tmp_path / "hf", kind, **CASES[kind])
    said, written = small_xlmr.there_and_back(tmp_path / "hf")
    assert written["architectures"] == [kind]
    assert ("the vocabulary head is" in said) == ("ForMaskedLM" not in kind)
    if "Distil" in kind and "Sequence" in kind:
        assert written["seq_classif_dropout"] == 0.3


def test_a_bare_encoder_that_learns_words_is_written_with_its_head(tmp_path):
    small_xlmr.save(tmp_path / "hf", "XLMRobertaModel")
    small_xlmr.there_and_back(tmp_path / "hf")
    record = tmp_path / "run" / "run.json"
    told = json.loads(record.read_text())
    assert told["released"] == {"model_type": "xlm-roberta", "vocabulary_head": False}
    told["released"]["vocabulary_head"] = True  # as a run of MLM keeps it
    record.write_text(json.dumps(told))
    assert main(["export", str(tmp_path / "run"), "--to", str(tmp_path / "learnt")]) == 0
    written = json.loads((tmp_path / "learnt" / "config.json").read_text())
    assert written["architectures"] == ["XLMRobertaForMaskedLM"]


LANGUAGES = ("ace_Arab", "deu_Latn", "eng_Latn")


def test_nllb_translates_as_transformers_does_in_and_out(tmp_path):
    torch.manual_seed(0)
    (tmp_path / "hf").mkdir()
    pieces = small_xlmr.tokenizer_model(tmp_path / "hf") + 2
    shape = {**foreign.BART, "vocab_size": pieces + 3, "max_position_embeddings": 90}
    config = transformers.M2M100Config(**shape)
    theirs = foreign.randomised(transformers.M2M100ForConditionalGeneration(config))
    theirs.save_pretrained(tmp_path / "hf")
    said, written = small_xlmr.there_and_back(tmp_path / "hf", LANGUAGES)
    assert "3 language codes, ace_Arab to eng_Latn" in said
    assert written["architectures"] == ["M2M100ForConditionalGeneration"]
    run = open_run(tmp_path / "run")
    decoding = Decoding(beams=3, length_penalty=0.0, max_length=(0, 9))
    generator = Generator(run.model, run.params, run.vocabulary, run.languages, decoding)
    lines = ["Das Wasser ist kalt.", "x"]
    ours = [one[0] for one in generator.generate(lines, "deu_Latn", "eng_Latn")]
    never = [*sorted({*run.vocabulary.special_ids} - {2}), pieces, pieces + 1, pieces + 2]
    for line, found in zip(lines, ours, strict=True):
        source = [pieces + 1, *run.vocabulary.encode(line), 2]
        ids = theirs.generate(
            torch.tensor([source]),
            decoder_input_ids=torch.tensor([[2, pieces + 2]]),
            suppress_tokens=never,
            num_beams=3,
            length_penalty=0.0,
            early_stopping=False,
            max_new_tokens=9,
        )
        assert ids[0, 2:].tolist() == [*found.ids]
    scored = generator.score(lines, [one.ids for one in ours], "deu_Latn", "eng_Latn")
    totals = [[one.log_probability for one in some] for some in (scored, ours)]
    np.testing.assert_allclose(*totals, atol=1e-3)
    out = tmp_path / "en"
    command = ["export", str(tmp_path / "run"), "--to", str(out), "--language"]
    assert main([*command, "deu_Latn-eng_Latn"]) == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    assert tokenizer("x")["input_ids"][0] == pieces + 1
    generation = json.loads((out / "generation_config.json").read_text())
    assert (generation["decoder_start_token_id"], generation["forced_bos_token_id"]) == (
        2,
        pieces + 2,
    )


def test_what_nllb_is_trained_on_has_both_languages_tokens():
    from xlingjax.data.rows.targets import begun, decoder_fields_behind

    target = {
        "input_ids": np.array([[0, 7, 8, 2, 0, 9, 2, 1]]),
        "pack_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 0]]),
        "position_ids": np.array([[0, 1, 2, 3, 0, 1, 2, 0]]),
        "language_ids": np.zeros((1, 8), int),
    }
    target = begun(target, np.array([[51] * 4 + [52] * 4]))
    fields = decoder_fields_behind(target, 2, 1)
    assert fields["decoder_ids"].tolist() == [[2, 51, 7, 8, 2, 52, 9, 1]]
    assert fields["decoder_targets"].tolist() == [[51, 7, 8, 2, 52, 9, 2, 0]]
    assert fields["decoder_weights"].tolist() == [[0, 1, 1, 1, 0, 1, 1, 0]]


@pytest.mark.parametrize(
    "kind",
    [
        "xmod",
        "rembert",
        "jina_embeddings_v3",
        "nomic_bert",
        "t5gemma",
        "gemma3_text",
        "qwen3",
    ],
)
def test_what_is_read_of_no_class_is_refused_by_its_name(kind, tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    assert main(["import", str(tmp_path), "--to", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert f"config.json: {kind} is not computed here: it has " in said
    assert said.count("\n") == 1
