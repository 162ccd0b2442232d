"""Perplexities by a run of ours, for `data clean`."""

import numpy as np
import pytest

from tests.helpers.small_corpus import ENGLISH, build, pretrain
from xlingjax.cli.main import main
from xlingjax.evaluation.perplexity import mask_for_validation, scores, sentence_rows
from xlingjax.inference.run import open_run
from xlingjax.objectives.xlm import CLM, MLM
from xlingjax.workflows.files.clean_model import RunScorer

TEXTS = [*ENGLISH, "The dog drinks milk in the house.", "A long book of a cat " * 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("corpus")
    build(root)
    assert pretrain(root, root / "run") == 0
    return root


@pytest.mark.long
@pytest.mark.parametrize("objective", [MLM(), CLM()])
def test_the_sums_are_those_of_the_evaluator(folder, objective):
    run = open_run(folder / "run")
    scorer = RunScorer(str(folder / "run"), "en")
    scorer._objective = objective
    language = run.languages.index("en")
    for text in TEXTS:
        losses, counts = scorer.losses([text])
        # In a longer row than the scorer's: padding is no matter.
        rows = sentence_rows([text], run.vocabulary, 128, language)
        if isinstance(objective, MLM):
            rows = mask_for_validation(rows, run.vocabulary.mask_id)
        else:
            assert counts[0] == len(run.vocabulary.encode(text)) + 1
        theirs, _ = scores(run.model, run.params, objective, rows, run.languages)
        assert np.exp(losses[0] / counts[0]) == pytest.approx(theirs["en"], rel=1e-4)


@pytest.mark.long
def test_texts_longer_than_a_row_are_cut_and_all_have_a_perplexity(folder):
    scorer = RunScorer(str(folder / "run"), "en")
    losses, counts = scorer.losses([*TEXTS, "The cat drinks milk. " * 200])
    assert (counts > 0).all() and (losses > 0).all()


@pytest.mark.long
def test_a_run_cleans(folder, tmp_path, capsys):
    text = tmp_path / "en.txt"
    text.write_text("".join(f"{line}\n" for line in TEXTS))
    words = ["data", "clean", "--mono", str(text), "--output", str(tmp_path / "out")]
    words += ["--language_model", f"en={folder / 'run'}", "--runner", "none", "--near", "none"]
    assert main([*words, "--keep", "head"]) == 0
    assert "perplexity" in capsys.readouterr().out
    kept = (tmp_path / "out/mono/en/part-00000.txt").read_text().splitlines()
    # Below the 30th of a hundred, of six one.
    assert len(kept) == 1 and kept[0] in [line.strip() for line in TEXTS]
