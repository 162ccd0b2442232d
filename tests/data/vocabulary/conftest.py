import pytest
import sentencepiece


@pytest.fixture(scope="session")
def xlmr_model(corpus, tmp_path_factory):
    """A model with XLM-R's SentencePiece ids (unk 0, bos 1, eos 2), as Meta trained theirs."""
    prefix = tmp_path_factory.mktemp("xlmr") / "spm"
    files = [str(path) for path in sorted(corpus.glob("mono/*/*.txt"))]
    sentencepiece.SentencePieceTrainer.train(
        input=files, model_prefix=str(prefix), vocab_size=200, character_coverage=1.0, minloglevel=2
    )
    return prefix.with_suffix(".model")
