"""The token table that a recipe asks for."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers import small_corpus
from xlingjax.config.lsi import lsi_tokens
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError


def test_vectors_are_those_of_the_corpus(tmp_path):
    small_corpus.build(tmp_path)
    vocabulary = Vocabulary.load(tmp_path / "vocab")
    patterns = (f"{tmp_path}/pairs/*",)
    corpus = SimpleNamespace(parallel=patterns, vocabulary=vocabulary)
    rows, said = lsi_tokens(corpus)(5)
    lines = len((tmp_path / "pairs" / "de-en.en").read_text().splitlines())
    assert said == f"token table by LSI of {lines} pairs"
    assert rows.shape == (vocabulary.size, 5)
    # What stands in the text has a direction, and a control token has none.
    assert np.linalg.norm(rows, axis=1).max() == pytest.approx(1, abs=1e-5)
    assert not rows[vocabulary.pad_id].any()


def test_it_may_be_switched_off_and_needs_files_of_pairs():
    assert lsi_tokens(None, run=False) is None
    with pytest.raises(
        UserError, match="LSI_TOKENS=True reads the files of PARALLEL, which is not"
    ):
        lsi_tokens(SimpleNamespace(parallel=()))
