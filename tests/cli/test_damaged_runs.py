"""Every file of a run, damaged in any way: each reader refuses it in a line, or leaves it out with
a warning. XLINGJAX_FUZZ_SECONDS=3600 damages for an hour, and asks the verbs themselves."""

import contextlib
import dataclasses
import io
import json
import os
import shutil
import traceback

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.data.conftest import DE, EN, write_lines
from tests.helpers import fake_run
from tests.helpers.damage import damage, files_below, restore, seeded, until
from xlingjax.cli import main
from xlingjax.data.vocabulary.training import train_vocabulary
from xlingjax.errors import UserError
from xlingjax.model.build import build_model
from xlingjax.model.config import preset
from xlingjax.report import build
from xlingjax.report.run import read_run
from xlingjax.report.summary import summarise
from xlingjax.training.checkpoint_params import HashedPath

BY_HAND = "XLINGJAX_FUZZ_SECONDS" in os.environ


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run: what training logs, a vocabulary, a checkpoint."""
    root = tmp_path_factory.mktemp("whole")
    run = fake_run.write_run(root / "run")
    mono = write_lines(root / "mono/de/a.txt", DE + EN)
    train_vocabulary(run, mono=str(mono), size=120, threads=1)
    size = json.loads((run / "vocab.json").read_text())["size"]
    config = preset(
        "tiny", layers=1, dim=16, heads=2, ffn=32, vocab_size=size, max_positions=32,
        num_languages=3,
    )  # fmt: skip
    params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), build_model(config).abstract())
    record = json.loads((run / "run.json").read_text()) | {"model": dataclasses.asdict(config)}
    (run / "run.json").write_text(json.dumps(record))
    for item, handler, args in (
        ("params", ocp.StandardCheckpointHandler(), ocp.args.StandardSave(params)),
        (
            "run",
            ocp.JsonCheckpointHandler(),
            ocp.args.JsonSave({"identity": record["identity"], "progress": {}}),
        ),
    ):
        with ocp.Checkpointer(handler, temporary_path_class=HashedPath) as writer:
            writer.save(run / "checkpoints/40" / item, args=args)
    (run / "best.json").write_text('{"perplexity/mean": {"step": 40, "value": 1.5}}')
    (run / "rows.json").write_text("[]")
    return run


# ---- the readers, in process ---------------------------------------------------------------------


def report(run):
    read = read_run(run)
    summary = build._of_any_shape(read, "figures", lambda: summarise(read, {}, []), {})
    json.dumps(build.figures(read, {}, [], summary))


def opened(run):
    from xlingjax.inference.run import open_run

    open_run(run)


def best(run):
    from xlingjax.inference.run import open_run

    open_run(f"{run}@perplexity/mean")


def resumed(run):
    """What a training reads of its logs when it goes on."""
    from xlingjax.training.checkpoint_paths import checkpoint_steps, read_best, require_not_lost
    from xlingjax.training.stopping import Stopping, StoppingConfig
    from xlingjax.training.tracker import evaluations_at, keep_until

    if not checkpoint_steps(run / "checkpoints"):
        require_not_lost(run)
    read_best(run)
    evaluations_at(run, 20, say=lambda line: None)
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        keep_until(run / name, 20)
    Stopping(StoppingConfig(metric="perplexity/mean", patience=2)).recall(run, 20)


def described(run):
    from xlingjax.inference.sentences import sentences_of
    from xlingjax.training.run_record import labels_of, model_of, read_result, read_run_record

    record = read_run_record(run)
    sentences_of(record)
    labels_of(record)
    list(record["languages"])
    model_of(run)
    read_result(run)


def with_its_page(run):
    build.build_report(run)


READERS = {"report": report, "resume": resumed, "describe": described}
# They take a second each.
SLOW = {"open": opened, "best": best, "page": with_its_page}
VERBS = {
    "encode": ["encode", "RUN", "--language", "de", "--input", "IN", "--to", "OUT/v.npy"],
    "export": ["export", "RUN", "--to", "OUT/export"],
    "average": ["average", "RUN", "--steps", "40", "--to", "OUT/mean"],
    "report": ["report", "RUN"],
    "words": ["words", "RUN", "Hund", "--language", "de"],
    "finetune": ["recipe", "RUN/config.gin"],
    "evaluate": ["evaluate", "RUN"],
}


def said(call, *args):
    """What was printed; a refusal counts as a line. Any other error is a failure."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            call(*args)
        except UserError as error:
            assert "\n" not in str(error)
            print(f"error: {error}")
    return out.getvalue()


def test_a_whole_run_is_read_without_a_word(whole, tmp_path):
    run = tmp_path / "run"
    restore(run, whole)
    for name, read in (READERS | SLOW).items():
        assert said(read, run) == "", name


def test_files_of_a_run_damaged_at_random_never_end_in_a_traceback(whole, tmp_path):
    run = tmp_path / "run"
    refused = 0
    failures = []
    for number in until(4):
        draw = seeded(number)
        restore(run, whole)
        files = [path for path in files_below(run) if path.suffix != ".model"]
        # Of a checkpoint there are many.
        if draw.integers(4):
            files = [path for path in files if path.parent == run]
        done = damage(files[draw.integers(len(files))], draw)
        readers = dict(READERS)
        if number % 50 == 49:
            readers |= SLOW
        for name, read in readers.items():
            try:
                refused += "error: " in said(read, run)
            # Whatever else it is: named with its number, so that it can be had again.
            except Exception as error:
                frame = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{frame.filename}:{frame.lineno}"
                failures.append(f"number {number}, {done}, {name}: {error!r} at {place}")
        if BY_HAND and number % 200 == 199:
            for name in VERBS:
                problem = by_verb(name, run, tmp_path)
                if problem:
                    failures.append(f"number {number}, {done}, {name}: {problem}")
    print(f"{number + 1} damages of a run's files, {refused} refusals")
    assert not failures, "\n".join(failures)
    assert refused


def by_verb(name, run, root):
    """What is wrong with how the verb ends; "": nothing."""
    out = root / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    places = {"RUN": str(run), "IN": str(write_lines(root / "in.txt", DE[:2])), "OUT": str(out)}
    words = []
    for word in VERBS[name]:
        for place, path in places.items():
            word = word.replace(place, path)
        words.append(word)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            status = main.main(words)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            return f"{error!r} at {frame.filename}:{frame.lineno}"
    if status not in (0, 2) or (status == 2 and printed.getvalue().count("error: ") != 1):
        return f"status {status}: {printed.getvalue()}"
    return ""


@pytest.mark.parametrize(
    "name, content, line",
    [
        ("rows.json", b"[\xff]", "rows.json line 1: not UTF-8; what the objectives read"),
        ("config.gin", b"A = 1\nB = '\xff'\n", "config.gin: not UTF-8; shown with"),
        ("metrics.jsonl", b"[1]\n", "metrics.jsonl line 1: it is no table; left out"),
        ("metrics.jsonl", b"\xff\n", "metrics.jsonl line 1: not UTF-8; left out"),
        ("evaluations.jsonl", b'{"step": "3"}\n', 'line 1: step is "3"; left out'),
        ("evaluations.jsonl", b"7\n", "evaluations.jsonl line 1: it is no table; left out"),
        ("run.json", b"[]", "run.json: it is no table; restore or remove the file"),
        ("result.json", b'{"steps": "x"}', 'result.json: steps is "x"; restore or remove the file'),
        ("run.json", b"", "run.json: not valid JSON"),
    ],
)  # fmt: skip
def test_the_report_names_a_damaged_file_and_its_line(whole, tmp_path, name, content, line):
    run = tmp_path / "run"
    restore(run, whole)
    (run / name).write_bytes(content)
    printed = said(report, run)
    assert line in printed and printed.count("\n") == 1
    assert printed.startswith(("warning: ", "error: ")) and str(run / name) in printed


def test_a_folder_in_the_place_of_a_file_is_a_line(whole, tmp_path):
    run = tmp_path / "run"
    for name, readers in {
        "metrics.jsonl": (report, resumed),
        "config.gin": (report,),
        "run.json": (described, opened),
        "best.json": (best, resumed),
    }.items():
        restore(run, whole)
        (run / name).unlink()
        (run / name).mkdir()
        for read in readers:
            printed = said(read, run)
            assert str(run / name) in printed and printed.count("\n") == 1, (name, printed)


def test_a_flipped_bit_in_the_vocabulary_is_refused(whole, tmp_path):
    run = tmp_path / "run"
    for name in ("vocab.model", "vocab.json"):
        restore(run, whole)
        content = (run / name).read_bytes()
        # Of the score of a piece, which SentencePiece reads as well as any; of the hash itself.
        at = len(content) // 2 if name == "vocab.model" else content.index(b"sha256") + 12
        (run / name).write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        printed = said(opened, run)
        assert printed.count("\n") == 1 and f"{run / 'vocab.model'} is not" in printed, printed


def test_best_json_cut_short_is_refused_with_its_remedy(whole, tmp_path):
    run = tmp_path / "run"
    restore(run, whole)
    (run / "best.json").write_text('{"perplexity/mean": {"step": 4')
    printed = said(best, run)
    assert f"error: {run / 'best.json'}: not valid JSON" in printed
    assert "remove it: the run's next evaluation begins it anew" in printed
