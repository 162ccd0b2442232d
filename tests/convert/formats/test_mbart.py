"""mBART's folders: SentencePiece's ids as XLM-R's, and the language codes as language tokens."""

import numpy as np
import pytest

from tests.helpers.foreign_params import params_of
from xlingjax.cli.main import main
from xlingjax.convert.formats.bart import CODES
from xlingjax.convert.formats.hugging_face import read
from xlingjax.convert.formats.parity import SENTENCES

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch
from tests.helpers import small_xlmr  # noqa: E402

ODD = ("  two  spaces ", "a\tb\nc", "no\u00a0break\u3000wide", "", " ")
OF_25, OF_50 = CODES


def save(path, tokenizer):
    """A small model in a folder of the files that are on the hub, tokenizer.json as transformers
    makes it."""
    path.mkdir()
    pieces = small_xlmr.tokenizer_model(path)
    made = getattr(transformers, tokenizer).from_pretrained(path)
    made.save_pretrained(path)
    sizes = dict(vocab_size=pieces + 2 + len(CODES[tokenizer]), max_position_embeddings=90)
    config = transformers.MBartConfig(
        **foreign.BART | sizes | dict(encoder_layers=1, decoder_layers=1)
    )
    foreign.randomised(transformers.MBartForConditionalGeneration(config)).save_pretrained(path)
    return made


@pytest.fixture(scope="module", params=CODES)
def saved(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("mbart") / "hf"
    return path, save(path, request.param)


@pytest.fixture(scope="module")
def of_25(tmp_path_factory):
    path = tmp_path_factory.mktemp("mbart") / "hf"
    save(path, OF_25)
    return path


def test_ids_are_theirs(saved):
    """MBart50Tokenizer keeps white space at the ends of a text, MBartTokenizer does no
    normalization; SentencePiece, which both models were trained with, does neither."""
    path, tokenizer = saved
    vocabulary = read(path).vocabulary
    for text in (*SENTENCES, *ODD, "ｆｕｌｌ ①"):
        given = text.strip() if type(tokenizer).__name__ == OF_50 else vocabulary.normalized(text)
        assert vocabulary.encode(text) == tokenizer(given, add_special_tokens=False)["input_ids"], (
            text
        )
    roles = vocabulary.bos_id, vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id
    assert [*roles] == tokenizer.convert_tokens_to_ids(["<s>", "<pad>", "</s>", "<unk>"])


def test_language_codes_and_mask_keep_their_rows(saved):
    path, tokenizer = saved
    found, codes = read(path), CODES[type(tokenizer).__name__]
    assert found.config.language_tokens == len(codes) and {*found.languages} == {
        code[:2] for code in codes
    }
    assert [*found.languages] == sorted(found.languages)
    assert found.config.source_tokens == (codes is CODES[OF_50])
    ours = found.params["embeddings"]["tokens"]["embedding"]
    theirs = foreign.weights(path)["model.shared.weight"]
    for code in codes:
        row = found.vocabulary.size + found.languages.index(code[:2])
        np.testing.assert_array_equal(ours[row], theirs[tokenizer.convert_tokens_to_ids(code)])
    np.testing.assert_array_equal(ours[found.vocabulary.mask_id], theirs[tokenizer.mask_token_id])
    np.testing.assert_array_equal(
        ours[: found.vocabulary.mask_id], theirs[: found.vocabulary.mask_id]
    )
    assert not ours[found.config.vocab_size :].any()


def test_an_import_is_compared_with_its_rows_in_their_order(saved, tmp_path, capsys):
    path, tokenizer = saved
    assert main(["import", str(path), "--to", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert "logits of the next piece: largest difference" in told and "has no tokenizer" not in told
    assert f"{len(CODES[type(tokenizer).__name__])} language codes, a" in told


def test_files_that_do_not_belong_together_are_refused(of_25, tmp_path):
    message = "has 295 rows, its tokenizer 271 pieces and 0 languages: these are not of one model"
    foreign.assert_refused(read, of_25, foreign.changed(vocab_size=295), message, tmp_path)


def test_the_model_alone_has_their_order(of_25):
    table = params_of(of_25).params["embeddings"]["tokens"]["embedding"]
    np.testing.assert_array_equal(table[:296], foreign.weights(of_25)["model.shared.weight"])
