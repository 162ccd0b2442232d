"""The embedded corpus in SeqIO's registries: rows of every objective, the mixes of the papers."""

import subprocess
import sys

import pytest
import seqio

from xlingjax import demo as corpus
from xlingjax.data.seqio.mixture import tasks_of
from xlingjax.data.seqio.rows import RowConverter
from xlingjax.preprocessors.unicoder import ClMlmFeatures
from xlingjax.preprocessors.xlm import MlmFeatures, TlmFeatures
from xlingjax.tasks import demo

LENGTH = 128


@pytest.mark.parametrize("first", ["xlingjax.tasks", "seqio"])
def test_seqio_knows_the_corpus_whichever_is_imported_first(first, tmp_path):
    """And nothing is unpacked before it is read; without SeqIO nothing is imported."""
    second = {"seqio": "xlingjax.tasks", "xlingjax.tasks": "seqio"}[first]
    code = f"import sys, {first}; print({first!r} == 'seqio' or 'seqio' not in sys.modules)\n"
    code += f"import {second}, seqio; print(*seqio.MixtureRegistry.names())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"XLINGJAX_CACHE": str(tmp_path / "cache"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    alone, names = done.stdout.splitlines()
    objectives = {one.name for of_text in demo.OBJECTIVES.values() for one in of_text}
    assert alone == "True"
    assert {f"demo.{name}" for name in {*objectives, *demo.MIXES, "text", "pairs"}} <= {
        *names.split()
    }
    assert not (tmp_path / "cache").exists()


def test_a_recipe_reads_the_text_of_its_own_objective():
    """Of a mixture of objectives; of several that share a text it is read once."""

    def names(mixture, preprocessor=None):
        return [task.name for task in tasks_of(mixture, "train", preprocessor)]

    languages = [f"demo.text.{code}" for code in corpus.LANGUAGES]
    documents = [one for one in names("demo.unicoder") if one.startswith("demo.documents")]
    assert names("demo.xlm", MlmFeatures()) == names("demo.mlm") == names("demo.text") == languages
    assert names("demo.veco", MlmFeatures()) == names("demo.xglue") == languages
    assert (
        names("demo.xlm", TlmFeatures()) == names("demo.pairs") and len(names("demo.pairs")) == 10
    )
    assert names("demo.unicoder", ClMlmFeatures()) == documents and len(documents) == 7


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A corpus of few lines, in place of the whole."""
    from xlingjax.data.vocabulary.training import train_vocabulary

    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path / "cache"))
    sizes = {"mono": 80, "pairs": 80, "other_pairs": 80, "documents": 8}
    corpus.write(tmp_path, sizes=sizes)
    train_vocabulary(
        tmp_path / "vocab", mono=f"{tmp_path}/mono", size=600, character_coverage=1.0, threads=1
    )
    monkeypatch.setattr(demo, "corpus", lambda: tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("mix", sorted(demo.MIXES))
def test_seqio_mixes_the_objectives_of_a_paper(small, mix):
    lengths = {"input_ids": LENGTH}
    data = seqio.get_mixture_or_task(f"demo.{mix}").get_dataset(
        lengths, "train", shuffle=False, num_epochs=None
    )
    batch = next(data.batch(48).as_numpy_iterator())
    assert {*batch["objective_ids"].tolist()} == {*range(len(demo.MIXES[mix]))}
    converter = RowConverter(f"demo.{mix}")
    whole = seqio.get_dataset(f"demo.{mix}", lengths, converter, batch_size=2, verbose=False)
    again = next(whole.as_numpy_iterator())
    assert {name: value.shape[1:] for name, value in again.items()} == {
        name: value.shape[1:] for name, value in batch.items()
    }
    # The rows of an objective are its own, and zeros stand where it has nothing.
    for number, name in enumerate(demo.MIXES[mix]):
        (one,) = [one for of in demo.OBJECTIVES.values() for one in of if one.name == name]
        shapes = one.shapes(1, LENGTH)
        rows = batch["objective_ids"] == number
        for field, values in batch.items():
            if field in shapes:
                own = tuple(slice(size) for size in shapes[field][1:])
                values = values[rows]
                values[(slice(None), *own)] = 0
            elif field != "objective_ids":
                values = values[rows]
            else:
                continue
            assert not values.any(), (name, field)
