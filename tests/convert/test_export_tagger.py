"""An exported tagger opened by transformers gives each word, at its first piece, the tag that we
predict."""

import pytest

from tests.helpers.exported import command, run_of
from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.data.labelled.records import Tagged
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.evaluation.task.predictions import predict
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.tasks import task_named

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import small_xlmr  # noqa: E402 - needs transformers

UDPOS = task_named("xtreme/udpos")
READING = Reading(length=128)
OURS = {
    "en": "In the year 1987 , 23 % of them ( 7 villages ) had no road ; see page 42 .",
    "de": "Am Dienstag sah Zoë den Fluß , sagte „ Kölner Bürger “ Nr. 7 : 19 € !",
    "fr": "L' école n' est pas loin : 3 ½ km à pied , quelle ﬁerté !",
    "ru": "Q , Щ и 5 рублей : « Юг » — это 12 % всей страны ?",
    "el": "Η Ξένια έφαγε 2 μήλα · ωραία !",
    "ar": "قال إن ﻻ أحد ، في ٢٠١٩ ، يعرف ذلك ؟",
    "hi": "भारत में २२ भाषाएँ हैं ।",
    "th": "ประเทศ ไทย มี กำลัง ใจ 77 จังหวัด ๆ",
    "zh": "我们 在 2019 年 喜欢 北京 ， 不 是 吗 ？",
    "ja": "私 は ﾃﾚﾋﾞ を ㍿ で 見 た 。",
    "ko": "서울 은 1,000 만 명 이 산다 .",
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(the vocabulary, our model and its parameters, the exported folder). XLM-R's normalization;
    few pieces, so that many words begin with a lone mark."""
    from xlingjax.inference.run import open_run

    folder = tmp_path_factory.mktemp("tagger")
    pieces = small_xlmr.sentencepiece_model((*SENTENCES, *OURS.values()), 420)
    vocabulary = Vocabulary(pieces, "xlmr")
    shape = dict(classifier="tagging", num_labels=len(UDPOS.labels), init_std=0.6)
    shape["max_positions"] = READING.length + 2
    run_of(folder / "run", vocabulary, labels=UDPOS.labels, **shape)
    assert command("export", folder / "run", folder / "hf", "--unverified") == 0
    return open_run(folder / "run"), folder / "hf"


@pytest.mark.parametrize("language", OURS)
def test_every_word_has_the_tag_that_transformers_reads_at_its_first_piece(language, exported):
    run, folder = exported
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder).eval()
    assert tuple(model.config.id2label.values()) == UDPOS.labels
    words = tuple(OURS[language].split())
    (tags,) = predict(run, UDPOS, [Tagged(words, ())], language, READING)
    given = tokenizer(list(words), is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        best = model(**given).logits[0].argmax(-1).tolist()
    first = {}
    for column, word in enumerate(given.word_ids()):
        first.setdefault(word, column)
    columns = [first[word] for word in range(len(words))]
    assert tags == [model.config.id2label[best[column]] for column in columns]
    # Some words begin with a lone mark.
    assert any(given.tokens()[column] == "▁" for column in columns)
