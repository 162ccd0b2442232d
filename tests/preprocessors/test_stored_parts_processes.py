"""When parts are made in processes of their own, and what comes of one that fails."""

import dataclasses
import os
import pickle
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.helpers import toy
from tests.preprocessors import test_task
from tests.preprocessors.test_task import XNLI, Hashed
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.preprocessors import stored_parts
from xlingjax.preprocessors.stored_parts import Part, stored
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import Training

folder = test_task.folder


class Pieces(Vocabulary):
    """One whose files are a word."""

    def __init__(self):
        pass

    def files(self):
        return {"vocabulary.txt": b"word"}


@dataclasses.dataclass(frozen=True)
class OfFiles:
    """A part of files, as far as sharing the work out knows it."""

    files: tuple
    held: object = None

    def paths(self):
        return self.files


@pytest.fixture
def shared_out(monkeypatch, tmp_path):
    """(processes, sizes of each part's files, vocabulary, what parts hold, errors) -> the parts
    that were made elsewhere."""

    def share(processes, sizes, vocabulary=None, held=(None, None, None), errors=()):
        monkeypatch.setattr(stored_parts, "MUCH_BYTES", 10)
        monkeypatch.setattr(stored_parts, "default_processes", lambda: processes)
        made = []
        answers = [*errors]

        def in_process(part, job):
            # Beside its part a process finds the vocabulary, and is told where rows go.
            assert (job.parent / "vocabulary.txt").read_bytes() == b"word"
            told, target = pickle.loads(job.read_bytes())
            assert told == part
            made.append(target.name)
            return answers.pop(0) if answers else ""

        monkeypatch.setattr(stored_parts, "_in_process", in_process)
        missing = {}
        for number, of_part in enumerate(sizes):
            files = []
            for size in of_part:
                files.append(tmp_path / f"{number}-{len(files)}")
                files[-1].write_bytes(b"x" * size)
            missing[tmp_path / f"part-{number}"] = OfFiles(tuple(files), held[number])
        stored_parts._make_in_processes(missing, vocabulary or Pieces())
        return sorted(made)

    return share


BOTH = ["part-0", "part-1"]


def test_much_text_of_several_parts_is_shared_out(shared_out):
    assert shared_out(2, [[5], [5]]) == BOTH
    assert shared_out(2, [[1, 4], [2, 3]]) == BOTH
    assert shared_out(8, [[9], [9]]) == BOTH
    assert shared_out(2, [[9], [9], [9]]) == [*BOTH, "part-2"]


def test_what_is_little_or_one_is_made_here(shared_out):
    assert shared_out(2, [[5], [4]]) == []
    assert shared_out(1, [[50], [50]]) == []
    assert shared_out(2, [[50]]) == []
    assert shared_out(2, []) == []
    # Another vocabulary has no files that a process could load.
    assert shared_out(2, [[50], [50]], toy.ToyVocabulary()) == []


def test_a_part_that_no_other_program_can_import_is_made_here(shared_out):
    own = lambda: None  # noqa: E731
    assert shared_out(2, [[50], [50], [50]], held=(None, own, None)) == ["part-0", "part-2"]
    assert shared_out(2, [[50], [50]], held=(own, own)) == []


def test_the_first_fault_is_said(shared_out):
    with pytest.raises(UserError, match="^the second$"):
        shared_out(1 + 1, [[50], [50], [50]], errors=["", "the second", "the third"])


PART = types.SimpleNamespace(shown="xtreme/xnli gold en")


@pytest.mark.parametrize(("status", "fault"), [(0, ""), (-9, "ended with status -9; is the mem")])
def test_a_process_says_what_went_wrong_or_ends_with_a_status(status, fault, monkeypatch, tmp_path):
    asked = []

    def run(command, env, check):
        asked.append((command, env))
        return types.SimpleNamespace(returncode=status)

    monkeypatch.setattr(subprocess, "run", run)
    job = tmp_path / "3.part"
    found = stored_parts._in_process(PART, job)
    assert (fault in found) and bool(found) == bool(fault)
    assert not fault or found.startswith("xtreme/xnli gold en: the process that tokenised it ended")
    (command, env), *_ = asked
    assert command == [sys.executable, "-m", "xlingjax.preprocessors.stored_parts", str(job)]
    assert env["TOKENIZERS_PARALLELISM"] == "false"
    job.with_suffix(".error").write_text("line 3: no label", encoding="utf-8")
    assert stored_parts._in_process(PART, job) == "line 3: no label"


def test_a_process_imports_this_package_before_others(monkeypatch):
    root = str(Path(stored_parts.__file__).parents[2])
    assert Path(root, "xlingjax/preprocessors/stored_parts.py").is_file()
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("LANGUAGE", "de")
    environment = stored_parts._environment()
    assert environment["PYTHONPATH"] == f"{root}{os.pathsep}/elsewhere"
    assert environment["LANGUAGE"] == "de"
    monkeypatch.delenv("PYTHONPATH")
    assert stored_parts._environment()["PYTHONPATH"] == root


def test_a_job_of_a_program_that_cannot_be_imported_is_left(tmp_path):
    job = tmp_path / "1.part"
    job.write_bytes(b"cno_such_module\nPart\n.")
    stored_parts.main(str(job))
    job.write_bytes(b"cxlingjax.errors\nNoSuchError\n.")
    stored_parts.main(str(job))
    assert [*tmp_path.iterdir()] == [job]


# --- Lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("many", "said"), [(30, False), (29, True)])
def test_much_is_worth_a_line(folder, many, said, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path))
    monkeypatch.setattr(stored_parts, "MANY_RECORDS", many)
    part = Part(XNLI, str(folder), Training(), Reading(24), "gold", "en")
    stored([part], Hashed())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == said
    assert not said or lines[0].startswith("xtreme/xnli gold en: tokenising 30 examples into ")


def test_rows_that_are_deleted_while_they_are_made_are_told(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path))
    monkeypatch.setattr(stored_parts, "read_part", lambda place: None)
    part = Part(XNLI, str(folder), Training(), Reading(24), "gold", "en")
    with pytest.raises(UserError, match="rows of xtreme/xnli gold en were deleted while they were"):
        stored([part], Hashed())
