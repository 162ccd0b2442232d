"""An exported tagger opened by transformers gives each word, at its first piece, the tag that we
predict."""

import os
from pathlib import Path

import pytest

from xlingjax.convert.formats.parity import SENTENCES
from xlingjax.data.labelled.records import Tagged
from xlingjax.data.labelled.words import read_tagged
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.word_pieces import pieces_of_words
from xlingjax.evaluation.task.predictions import predict
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.tasks import task_named

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")
from tests.convert.test_export import command, run_of  # noqa: E402 - needs transformers

UDPOS = task_named("xtreme/udpos")
DATA = os.environ.get("XLINGJAX_DATA")
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


def sentences_of(language, vocabulary):
    """Real ones (XTREME's udpos), where they are at hand, that fit a row."""
    words = [tuple(OURS[language].split())]
    path = Path(DATA or "/nowhere") / "tasks" / "udpos" / f"dev-{language}.tsv"
    if path.is_file():
        words += [sentence.words for sentence in read_tagged(path)[:24] if len(sentence.words) < 20]
    sizes = [len(pieces_of_words(own, language, vocabulary, apart=True)[0]) for own in words]
    fits = [own for own, size in zip(words, sizes, strict=True) if size <= READING.length - 2]
    assert fits[0] == words[0]
    return [Tagged(own, ()) for own in fits]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(the vocabulary, our model and its parameters, the exported folder). XLM-R's normalization;
    few pieces, so that many words begin with a lone mark."""
    from xlingjax.inference.run import open_run

    folder = tmp_path_factory.mktemp("tagger")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*SENTENCES, *OURS.values()] * 4),
        model_prefix=str(folder / "spm"),
        vocab_size=420,
        character_coverage=1.0,
        normalization_rule_name="nmt_nfkc",
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    vocabulary = Vocabulary.load(folder / "spm.model", "xlmr")
    shape = dict(
        classifier="tagging",
        num_labels=len(UDPOS.labels),
        max_positions=READING.length + 2,
        init_std=0.6,
    )
    run_of(folder / "run", vocabulary, labels=UDPOS.labels, **shape)
    assert command("export", folder / "run", folder / "hf", "--unverified") == 0
    return open_run(folder / "run"), folder / "hf"


@pytest.mark.parametrize("language", OURS)
def test_every_word_has_the_tag_that_transformers_reads_at_its_first_piece(language, exported):
    run, folder = exported
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder).eval()
    assert tuple(model.config.id2label.values()) == UDPOS.labels
    sentences, marked = sentences_of(language, run.vocabulary), 0
    ours = predict(run, UDPOS, sentences, language, READING, batch_size=8)
    for sentence, tags in zip(sentences, ours, strict=True):
        given = tokenizer(list(sentence.words), is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            best = model(**given).logits[0].argmax(-1).tolist()
        first = {}
        for column, word in enumerate(given.word_ids()):
            first.setdefault(word, column)
        theirs = [model.config.id2label[best[first[word]]] for word in range(len(sentence.words))]
        assert tags == theirs, sentence.words
        marked += sum(given.tokens()[first[word]] == "▁" for word in range(len(sentence.words)))
    assert marked, "no word begins with a lone mark: nothing was shown"
    # A random model may find one tag for all words of a single sentence.
    if DATA:
        assert len({tag for tags in ours for tag in tags}) > 1
