"""What the tests of sweeps share: a run to start from, the command, what a sweep leaves."""

import dataclasses
import json
import shlex
import shutil

import jax
import orbax.checkpoint as ocp
import pytest

from tests.helpers import official_files
from xlingjax.cli import main
from xlingjax.inference.run import open_run
from xlingjax.model.build import build_model, count_parameters
from xlingjax.model.config import preset
from xlingjax.training.checkpoint_params import HashedPath
from xlingjax.workflows.tasks.sweep import parameters_hash

LANGUAGES = ("de", "en", "ru")


def random_run(root, files, languages=LANGUAGES, **changes):
    """A run with random weights as its checkpoint of step 7, large ones: what is read tells in the
    first state."""
    paths = [files / "told" / "mono" / f"{code}.txt" for code in languages]
    text = [f"{path.stem}={path}" for path in paths if path.exists()]
    made = ["vocab", "--mono", *text, "--size", "300", "--to", str(root / "run")]
    assert main.main(made) == 0
    size = json.loads((root / "run" / "vocab.json").read_text())["size"]
    sizes = {"layers": 1, "dim": 16, "heads": 2, "ffn": 32, "max_positions": 64}
    config = preset("tiny", vocab_size=size, num_languages=0, **sizes)
    changes["vocab_size"] = size + changes.get("language_tokens", 0)
    config = config.replace(**changes)
    params = jax.tree.map(lambda x: 5 * x, jax.jit(build_model(config).init)(jax.random.key(3)))
    record = {"model": dataclasses.asdict(config), "languages": languages}
    record["parameters"] = count_parameters(config)
    (root / "run" / "run.json").write_text(json.dumps(record))
    handler, path = ocp.StandardCheckpointHandler(), root / "run" / "checkpoints" / "7" / "params"
    with ocp.Checkpointer(handler, temporary_path_class=HashedPath) as writer:
        writer.save(path, args=ocp.args.StandardSave(params))
    return root / "run"


def command(*words):
    """The exit status of a command line. A text of several words is split, but for one --gin.NAME,
    whose value may hold blanks."""
    line = []
    for word in words:
        text = str(word)
        whole = not isinstance(word, str) or (text.startswith("--gin.") and " --" not in text)
        line += [text] if whole else shlex.split(text)
    return main.main(line)


SETTINGS = {"LENGTH": "24", "BATCH": "8", "MESH_DATA": "1", "EPOCHS": "2", "DROPOUT": "0"}
SETTINGS |= {"ATTENTION_DROPOUT": "0", "SELECT": "mean", "LEARNING_RATE": "1e-2"}
SETTINGS["KEEP_CHECKPOINTS"] = "2"


def finetune(task, start, files, output, *more):
    data = files / task.partition("/")[0]
    paths = ["--data", data, "--to", output]
    given = str(more)
    settings = [f"--gin.{name}={x}" for name, x in SETTINGS.items() if f"{name}=" not in given]
    return command("finetune", start, "--task", task, *paths, "--allow-missing", *more, *settings)


def refused(capsys, output, message, *words):
    """The command is refused in one line, before anything is trained."""
    assert command(*words, "--to", output) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1
    assert not (output / "cells").exists()


def scores(output, *parts):
    """scores.json of a cell: in its own folder, or by its parts below that of the sweep."""
    folder = output.joinpath("cells", *parts) if parts else output
    return json.loads((folder / "scores.json").read_text())


def mixture(run):
    """What a run's only objective was trained on."""
    (data,) = json.loads((run / "run.json").read_text())["identity"]["data"].values()
    return data["mixture"]


def dev_of(run):
    """{step: values} of a run's dev sets."""
    lines = (run / "evaluations.jsonl").read_text().splitlines()
    return {
        line["step"]: line["values"] for line in map(json.loads, lines) if line["name"] == "dev"
    }


def kill(cell, left, last):
    """Make of a finished cell one that was killed before its checkpoint of `last` was written."""
    run = cell / "run"
    for path in (run / "result.json", *cell.rglob("scores.json")):
        path.unlink()
    for folder in (run / "checkpoints" / str(last), *cell.rglob("predictions")):
        shutil.rmtree(folder)
    best = {"dev/mean": {"step": left, "value": dev_of(run)[left]["mean"]}}
    (run / "best.json").write_text(json.dumps(best))
    assert [path.name for path in (run / "checkpoints").iterdir()] == [str(left)]


def require_gone_on(again, whole, left):
    """The run `again` was started afresh and from its checkpoint `left`, and ended with the weights
    of `whole`."""
    sessions = json.loads((again / "run.json").read_text())["sessions"]
    assert [session["step"] for session in sessions] == [0, left]
    assert sessions[1]["weights"] == f"checkpoint {left} of {again}"
    assert parameters_hash(open_run(again).params) == parameters_hash(open_run(whole).params)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Official files of tiny sets, their test sets with answers."""
    return official_files.write(
        tmp_path_factory.mktemp("files"), LANGUAGES, train=24, dev=12, test=12, hidden=False
    )


@pytest.fixture(scope="module")
def start(tmp_path_factory, files):
    return random_run(tmp_path_factory.mktemp("start"), files)


@pytest.fixture(scope="module")
def swept(start, files, tmp_path_factory):
    """Two seeds of transfer."""
    output = tmp_path_factory.mktemp("swept")
    assert finetune("xtreme/xnli", start, files, output, "--seeds", "2") == 0
    return output
