import random
from collections import Counter

import pytest

from xlingjax.data.tinyworld import nli, paraphrase, qa
from xlingjax.data.tinyworld.documents import Story, tell
from xlingjax.data.tinyworld.frames import is_held_out
from xlingjax.data.tinyworld.languages.base import language
from xlingjax.data.tinyworld.sampling import Sampler
from xlingjax.data.tinyworld.tokens import UPOS


def test_dev_and_test_are_row_parallel(corpus):
    for task in ("nli", "paraphrase"):
        for part in ("dev", "test"):
            columns = {
                tuple(row[2] for row in corpus.rows(f"{task}/{part}-{code}.tsv"))
                for code in corpus.languages
            }
            assert len(columns) == 1
    for task in ("pos", "ner"):
        blocks = {
            (corpus.root / f"{task}/test-{c}.tsv").read_text("utf-8").count("\n\n")
            for c in corpus.languages
        }
        assert blocks == {59}
    slots = {
        tuple(q["id"] for _, q in corpus.questions(f"qa/test-{code}.json"))
        for code in corpus.languages
    }
    assert len(slots) == 1
    assert {len(corpus.rows(f"titles/test-{code}.tsv")) for code in corpus.languages} == {20}


def test_training_parts_are_english_only(corpus):
    for task in ("nli", "paraphrase", "pos", "ner", "qa", "titles", "questions"):
        assert [p.name.split(".")[0] for p in (corpus.root / task).glob("train-*")] == ["train-en"]


# --- inference ------------------------------------------------------------------------------------


def _texts(examples):
    english = language("en")
    return [
        (e.premise.render(english).text, e.hypothesis.render(english).text, e.label)
        for e in examples
    ]


@pytest.fixture(scope="module")
def inference():
    return {
        "train": _texts(nli.examples(0, "train", 3600)),
        "test": _texts(nli.examples(0, "test", 600)),
    }


def test_labels_are_balanced_within_each_hypothesis(inference):
    for part, size in (("train", 3600), ("test", 600)):
        assert Counter(label for _, _, label in inference[part]) == dict.fromkeys(
            nli.LABELS, size // 3
        )
        labels = {}
        for _, hypothesis, label in inference[part]:
            labels.setdefault(hypothesis, Counter())[label] += 1
        assert all(
            len(set(counts.values())) == 1 and len(counts) == 3 for counts in labels.values()
        )


def test_sentences_are_short(inference):
    for premise, hypothesis, _ in inference["train"] + inference["test"]:
        assert len(premise.split()) <= nli.MAX_WORDS and len(hypothesis.split()) <= nli.MAX_WORDS
        assert premise != hypothesis


def test_the_hypothesis_alone_says_nothing(inference):
    text = pytest.importorskip("sklearn.feature_extraction.text")
    linear = pytest.importorskip("sklearn.linear_model")
    bags = text.CountVectorizer(ngram_range=(1, 2))
    x = bags.fit_transform([hypothesis for _, hypothesis, _ in inference["train"]])
    model = linear.LogisticRegression(max_iter=200).fit(
        x, [label for _, _, label in inference["train"]]
    )
    test = bags.transform([hypothesis for _, hypothesis, _ in inference["test"]])
    assert model.score(test, [label for _, _, label in inference["test"]]) <= 0.40


def test_word_overlap_is_not_enough(inference):
    linear = pytest.importorskip("sklearn.linear_model")

    def overlap(premise, hypothesis):
        p, h = (set(s.lower().strip(".").split()) for s in (premise, hypothesis))
        only_h, only_p = len(h - p), len(p - h)
        return [
            only_h,
            only_p,
            len(p),
            len(h),
            only_h == 0,
            only_p == 0,
            only_h == 1,
            only_p == 1,
            "not" in p,
            "not" in h,
        ]

    x, y = ([overlap(*row[:2]) for row in inference[part]] for part in ("train", "test"))
    labels, wanted = ([row[2] for row in inference[part]] for part in ("train", "test"))
    score = linear.LogisticRegression(max_iter=500).fit(x, labels).score(y, wanted)
    assert (
        0.4 < score < 0.85
    )  # the plain ones (`nli.PLAIN`) are told by overlap and negation, the others are not


def test_inference_frames_obey_the_split():
    for part, held_out in (("train", False), ("test", True)):
        for e in nli.examples(5, part, 150):
            assert is_held_out(e.premise.frame) == is_held_out(e.hypothesis.frame) == held_out


# --- questions ------------------------------------------------------------------------------------


def test_answers_stand_where_they_are_said_to_stand(corpus):
    for code in corpus.languages:
        for part in ("dev", "test"):
            for context, question in corpus.questions(f"qa/{part}-{code}.json"):
                (answer,) = question["answers"]
                start = answer["answer_start"]
                assert (
                    answer["text"]
                    and context[start : start + len(answer["text"])] == answer["text"]
                )


def test_a_question_has_one_answer():
    for q in qa.questions(1, "train", 60):
        clauses = [c for line in q.story.lines for c in line.frame.parts or (line.frame,)]
        assert not qa.ambiguous(q.frame, clauses)
        doubled = Story(q.story.cast, (*q.story.lines, q.story.lines[q.line]))
        assert qa.ambiguous(q.frame, [line.frame for line in doubled.lines])


def test_all_question_words_are_asked(corpus):
    first = Counter(q["question"].split()[0] for _, q in corpus.questions("qa/train-en.json"))
    assert {"Who", "What", "Where", "When"} <= set(first)


# --- paraphrases, tags, titles --------------------------------------------------------------------


def test_paraphrases_and_negatives_use_the_same_words():
    """Sentences of one pair are made of the same concepts but for the relation word, for both
    labels."""
    english = language("en")
    same_bag = Counter()
    found = paraphrase.pairs(2, "train", 400)
    assert Counter(p.label for p in found) == {0: 200, 1: 200}
    for p in found:
        first, second = (line.render(english).text for line in (p.first, p.second))
        assert first != second
        heads = [
            sorted(np.head for c in f.parts or (f,) for _, np in c.slots)
            for f in (p.first.frame, p.second.frame)
        ]
        assert heads[0] == heads[1]
        same_bag[p.label, p.first.frame.kind] += 1
    kinds = {kind for _, kind in same_bag}
    assert kinds == {"action", "give", "sequence", "compare", "relation", "locate"}
    assert all(same_bag[0, kind] and same_bag[1, kind] for kind in kinds)


def test_tags_are_valid(corpus):
    entities = set()
    for code in corpus.languages:
        for task in ("pos", "ner"):
            for row in corpus.rows(f"{task}/test-{code}.tsv"):
                if row == [""]:
                    continue
                token, tag = row
                assert token and " " not in token
                if task == "pos":
                    assert tag in UPOS
                else:
                    entities.add(tag.split("-")[-1])
                    assert tag == "O" or tag.split("-")[0] in ("B", "I")
    assert {"O", "PER", "LOC", "ORG"} <= entities


@pytest.mark.parametrize(
    "code, begins", [("en", "{}. {}"), ("zh", "{}。{}")]
)  # which writes no spaces
def test_questions_to_write_are_those_asked_each_behind_its_answer(corpus, code, begins):
    rows = []
    for text, asked in corpus.questions(f"qa/test-{code}.json"):
        rows.append([begins.format(asked["answers"][0]["text"], text), asked["question"]])
    assert corpus.rows(f"questions/test-{code}.tsv") == rows and len(rows) == 40


def test_titles_name_what_the_story_is_about():
    story = tell(Sampler(random.Random(4), "train"))
    title, english = story.cast.title(), language("en")
    assert title["agent"].head == story.cast.protagonist
    text = " ".join(s.text for s in story.render(english))
    assert (
        english.lemma(story.cast.protagonist) in text
        and english.lemma(title["object"].head) in text
    )
