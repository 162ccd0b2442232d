"""mT5 and umT5: in and out with transformers' numbers, and the same texts as `generate`."""

import json

import numpy as np
import pytest

from xlingjax.cli.main import main
from xlingjax.convert.formats.hugging_face import read
from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.inference.generate import Generator
from xlingjax.inference.run import open_run
from xlingjax.model.decoding import Decoding

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch
from tests.helpers import small_xlmr  # noqa: E402 - needs transformers

# Heads of another width than their share, and sentences longer than most distances.
SHAPE = dict(d_model=24, d_kv=16, d_ff=40, num_layers=3, num_decoder_layers=2, num_heads=2)
SHAPE |= dict(relative_attention_num_buckets=8, relative_attention_max_distance=20)
LINES = [*SENTENCES[:2], " ".join(SENTENCES[:3])]


def save(path, kind, untied):
    path.mkdir()
    ids = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (path / "spiece.model").write_bytes(small_xlmr.sentencepiece_model(**ids))
    named = {"tokenizer_class": "T5Tokenizer", "extra_ids": 3}
    (path / "tokenizer_config.json").write_text(json.dumps(named))
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    # Released ones of mT5 have SentencePiece's file alone.
    if kind == "UMT5":
        tokenizer.save_pretrained(path)
    kind = getattr(transformers, f"{kind}ForConditionalGeneration")
    model = kind(kind.config_class(**SHAPE, vocab_size=len(tokenizer)))
    if untied:
        model.lm_head.weight = torch.nn.Parameter(model.shared.weight.clone())
    foreign.randomised(model)
    # Else a tied head would write what it reads, again and again.
    model.shared.weight.data *= 0.1
    model.save_pretrained(path)
    return model


@pytest.mark.parametrize(("kind", "untied"), [("MT5", True), ("UMT5", False)])
def test_numbers_and_texts_are_theirs_in_and_out(kind, untied, tmp_path, capsys):
    theirs = save(tmp_path / "hf", kind, untied)
    assert main(["import", str(tmp_path / "hf"), "--to", str(tmp_path / "run")]) == 0
    assert main(["export", str(tmp_path / "run"), "--to", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.count("largest difference") == 2
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["architectures"] == [f"{kind}ForConditionalGeneration"]
    assert (written["bos_token_id"], written["decoder_start_token_id"]) == (None, 0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.bos_token is None and tokenizer("x")["input_ids"][-1] == 1

    run = open_run(tmp_path / "run")
    assert run.model.config.tied != untied
    decoding = Decoding(max_length=(0, 24))
    generator = Generator(run.model, run.params, run.vocabulary, run.languages, decoding)
    ours = [one[0] for one in generator.generate(LINES, "", "")]
    never = sorted({*run.vocabulary.special_ids} - {1})
    for line, found in zip(LINES, ours, strict=True):
        given = tokenizer(line, return_tensors="pt")
        ids = theirs.generate(**given, suppress_tokens=never, max_new_tokens=24)
        assert ids[0, 1 : 1 + len(found.ids)].tolist() == [*found.ids]
    assert len({id for one in ours for id in one.ids}) > 2
    scored = generator.score(LINES, [one.ids for one in ours], "", "")
    totals = [[one.log_probability for one in some] for some in (scored, ours)]
    np.testing.assert_allclose(*totals, atol=1e-3)


def test_another_feed_forward_is_refused(tmp_path):
    save(tmp_path / "hf", "MT5", False)
    message = "feed_forward_proj='relu' is not something"
    foreign.assert_refused(
        read, tmp_path / "hf", foreign.changed(feed_forward_proj="relu"), message, tmp_path / "x"
    )
