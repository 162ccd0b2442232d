"""A vocabulary of each layout, for runs that are exported."""

import pytest


@pytest.fixture(scope="session")
def vocabularies(tmp_path_factory):
    pytest.importorskip("transformers")
    from tests.helpers import small_xlmr
    from xlingjax.convert.formats.parity import SENTENCES
    from xlingjax.data.vocabulary.sentencepiece import Vocabulary
    from xlingjax.data.vocabulary.training import train_vocabulary

    folder = tmp_path_factory.mktemp("vocabularies")
    small_xlmr.tokenizer_model(folder)
    (folder / "text.en.txt").write_text("\n".join(SENTENCES * 4) + "\n", encoding="utf-8")
    train_vocabulary(
        folder / "xlm", mono=[f"en={folder / 'text.en.txt'}"], size=270, character_coverage=1.0
    )
    xlmr = Vocabulary.load(folder / "sentencepiece.bpe.model", "xlmr")
    return {"xlmr": xlmr, "xlm": Vocabulary.load(folder / "xlm")}
