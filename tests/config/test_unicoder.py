"""Unicoder's recipe on a few sentences in four languages: what a batch of each task holds."""

import contextlib

import pytest

from tests.data.conftest import DE, EN, RU, write_lines
from xlingjax.config import recipe as recipes
from xlingjax.data.vocabulary.training import train_vocabulary

TASKS = ("mlm", "tlm", "clwr", "clpc", "cl_mlm")


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """What the recipe asks for: text, pairs, documents and tables of wrong partners, in files."""
    root = tmp_path_factory.mktemp("unicoder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLINGJAX_CACHE", str(root / "cache"))
        for code, lines in {"de": DE, "en": EN, "ru": RU}.items():
            many = [f"{line} {i}" for i in range(20) for line in lines if line]
            write_lines(root / "text" / code / "a.txt", many)
        for code, lines in {"de": DE, "ru": RU}.items():
            first, second = sorted((code, "en"))
            pairs = [(e, x) for e, x in zip(EN, lines, strict=False) if e and x]
            rows = ["\t".join((first, second, "negative"))]
            for number in range(20):
                for (e, x), (_, other) in zip(pairs, [*pairs[1:], pairs[0]], strict=True):
                    wrong = {"en": f"{e} {number}", code: f"{x} {number}"}
                    right = [wrong[first], wrong[second]]
                    # Of the second side: what another one's translation says, or itself.
                    wrong = {"en": f"{e} {number + 1}", code: f"{other} {number}"}
                    rows.append("\t".join([*right, wrong[second]]))
            write_lines(root / "negatives" / f"{first}-{second}.tsv", rows)
            for side in (first, second):
                lines_of_side = [e if side == "en" else x for e, x in pairs]
                numbered = [f"{line} {i}" for i in range(20) for line in lines_of_side]
                write_lines(root / "pairs" / f"{first}-{second}.{side}", numbered)
                documents = []
                for number in range(20):
                    documents += [*(f"{line} {number}" for line in lines_of_side), ""]
                write_lines(root / "documents" / f"{first}-{second}.{side}", documents)
        vocabulary = root / "vocab"
        train_vocabulary(
            vocabulary, mono=str(root / "text"), parallel=str(root / "pairs"), size=120,
            character_coverage=1.0, threads=1,
        )  # fmt: skip
        yield {
            "MONO": f"{root}/text/*/*.txt",
            "PARALLEL": f"{root}/pairs/*",
            "DOCUMENTS": f"{root}/documents/*",
            "NEGATIVES": f"{root}/negatives/*.tsv",
            "VOCABULARY": vocabulary,
            "INIT_FROM": "run",
            "LANGUAGES": "de en ru",
            "BATCH": 16,
            "LENGTH": 128,
        }


def sources(given, **more):
    """{task: its batches} of the recipe."""
    bound = {**given, **more}
    overrides = [f"{name}={value}" for name, value in bound.items()]
    recipe = recipes.read_recipe(["recipes/unicoder.gin"], overrides)
    return {run.objective.name: run.source for run in recipe.bound["objectives"]}


def languages_of_rows(batch):
    """Of each row its languages; padding has those of number 0 and is passed over."""
    found = []
    for codes, packs in zip(batch["language_ids"], batch["pack_ids"], strict=True):
        found.append(frozenset(codes[packs > 0].tolist()))
    return found


@pytest.mark.parametrize("same", [None, True])
def test_a_batch_of_each_task_holds_several_languages_or_one(given, same):
    """Of MLM the rows of two or three languages, of the others those of both pairs."""
    more = {}
    if same is not None:
        more["SAME_LANGUAGE"] = same
    opened = sources(given, **more)
    assert [*opened] == [*TASKS]
    for name, batches in opened.items():
        every = set()
        with contextlib.closing(batches()) as source:
            assert source.identity["same_language"] is bool(same)
            for _ in range(12):
                rows = languages_of_rows(source.next())
                assert len(rows) == 16 and (len({*rows}) == 1) == bool(same), name
                every |= {*rows}
        singles = {frozenset([code]) for code in range(3)}
        wanted = singles if name == "mlm" else {frozenset([0, 1]), frozenset([1, 2])}
        assert every == wanted, name
