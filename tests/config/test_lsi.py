"""The token table that a recipe asks for."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers import small_corpus
from xlingjax.config.lsi import lsi_tokens
from xlingjax.data.store.tokenise import text_blocks
from xlingjax.data.text.sources import find_pairs
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError


def test_vectors_are_those_of_the_text(tmp_path, monkeypatch):
    small_corpus.build(tmp_path)
    vocabulary = Vocabulary.load(tmp_path / "vocab")
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path / "cache"))
    pairs = text_blocks(find_pairs([f"{tmp_path}/pairs/*"]), vocabulary, holdout=0.25)
    rows, said = lsi_tokens(SimpleNamespace(vocabulary=vocabulary))([pairs], 5)
    lines = len((tmp_path / "pairs" / "de-en.en").read_text().splitlines())
    # What is held out of the training says nothing.
    assert 0 < pairs.lines < lines
    lines = pairs.lines
    assert said == f"token table by LSI of {lines} pairs"
    assert rows.shape == (vocabulary.size, 5)
    # What stands in the text has a direction, and a control token has none.
    lengths = np.linalg.norm(rows, axis=1)
    assert lengths[lengths > 0].mean() == pytest.approx(1, abs=1e-5)
    assert not rows[vocabulary.pad_id].any()


def test_it_may_be_switched_off_and_needs_pairs():
    assert lsi_tokens(None, run=False) is None
    with pytest.raises(UserError, match="no objective reads any as text; set LSI_TOKENS=False"):
        lsi_tokens(SimpleNamespace(vocabulary=SimpleNamespace(size=9, eos_id=2)))([], 4)
