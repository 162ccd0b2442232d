"""Damaged checkpoints, foreign checkpoints, and which ones are kept."""

import builtins
import dataclasses
import errno
import io
import json
import os
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.experimental import multihost_utils

from tests.helpers import tiny_run
from xlingjax.errors import UserError
from xlingjax.objectives.ernie_m import CAMLM
from xlingjax.runtime.checked_file import read_index
from xlingjax.training.checkpoint import CheckpointConfig, Checkpoints
from xlingjax.training.checkpoint_params import damage, saved_params
from xlingjax.training.checkpoint_paths import checkpoint_steps, find_checkpoint, require_not_lost
from xlingjax.training.optimizer import OptimizerConfig
from xlingjax.training.run_record import differences, run_and_checkpoint, run_identity
from xlingjax.training.step import TrainState

IDENTITY = {
    "objectives": ["mlm", "tlm"],
    "model": {"dim": 8},
    "data": {"mlm": {"vocabulary": {"sha256": "abc"}}},
}


def state_at(step):
    scalar = jnp.int32(step)
    params = {"head": {"bias": jnp.full((4,), step, jnp.float32), "frozen": None}}
    return TrainState(scalar, params, (params, ()), jnp.float32(1), scalar, scalar, scalar)


ABSTRACT = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state_at(0)
)


def positions_at(step):
    return {"mlm": step, "tlm": 2 * step}


def write(workdir, steps, config=CheckpointConfig(), values=None, identity=IDENTITY):  # noqa: B008 - frozen
    checkpoints = Checkpoints(workdir, config, identity, print)
    for step in steps:
        progress, scalars = {"tokens_seen": 10 * step}, (values or {}).get(step, {})
        checkpoints.save(step, state_at(step), positions_at(step), progress, scalars)
    checkpoints.close()


def read(workdir, identity=IDENTITY):
    lines = []
    checkpoints = Checkpoints(workdir, CheckpointConfig(), identity, lines.append)
    try:
        return checkpoints.restore(ABSTRACT), lines
    finally:
        checkpoints.close()


def test_round_trip(tmp_path):
    assert read(tmp_path)[0] is None
    write(tmp_path, [3, 5, 9])
    restored, lines = read(tmp_path)
    assert (restored.step, restored.progress, lines) == (9, {"tokens_seen": 90}, [])
    assert restored.positions == positions_at(9)
    assert jax.tree.structure(restored.state) == jax.tree.structure(state_at(9))
    jax.tree.map(np.testing.assert_array_equal, restored.state, state_at(9))
    assert checkpoint_steps(tmp_path / "checkpoints") == [5, 9]


def test_the_state_is_copied_before_the_next_step_takes_its_memory(tmp_path):
    """Saving is asynchronous and the step donates: what is on disk must be the state at the time of
    save()."""
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    state = dataclasses.replace(state_at(1), params={"w": jnp.zeros((512, 1024))})
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(), IDENTITY, print)
    checkpoints.save(1, state, positions_at(1), {}, {})
    value = state.params["w"]
    for _ in range(20):
        value = step(value)
    checkpoints.close()
    abstract = dataclasses.replace(
        ABSTRACT, params={"w": jax.ShapeDtypeStruct((512, 1024), jnp.float32)}
    )
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(), IDENTITY, print)
    np.testing.assert_array_equal(checkpoints.restore(abstract).state.params["w"], 0)
    checkpoints.close()


DAMAGES = {
    "no parameters": lambda folder: shutil.rmtree(folder / "params"),
    "empty folder": lambda folder: (shutil.rmtree(folder), folder.mkdir()),
    "garbled identity": lambda folder: [
        f.write_text("{") for f in (folder / "run").iterdir() if f.is_file()
    ],
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_newest_checkpoint_falls_back_and_says_so(tmp_path, kind):
    write(tmp_path, [3, 5])
    DAMAGES[kind](tmp_path / "checkpoints" / "5")
    restored, lines = read(tmp_path)
    assert restored.step == 3 and restored.positions == positions_at(3)
    jax.tree.map(np.testing.assert_array_equal, restored.state, state_at(3))
    assert len(lines) == 1 and lines[0].startswith("checkpoint 5 cannot be read (")
    assert (tmp_path / "checkpoints" / "5.unreadable").exists()
    write(tmp_path, [5])  # the run can write that step again
    assert read(tmp_path)[0].step == 5


def test_never_afresh_over_unreadable_checkpoints(tmp_path):
    write(tmp_path, [3, 5])
    for step in ("3", "5"):
        shutil.rmtree(tmp_path / "checkpoints" / step / "training")
    with pytest.raises(
        UserError,
        match=r"holds 2 checkpoints and none can be read \(step 5: .* never starts afresh",
    ):
        read(tmp_path)
    assert checkpoint_steps(tmp_path / "checkpoints") == [3, 5]  # nothing was touched


def flip(file, bit):
    content = bytearray(file.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    file.write_bytes(content)


def test_a_flipped_bit_in_any_file_of_a_checkpoint_is_told_by_its_name(tmp_path):
    """Of arrays, indices and descriptions alike: where it falls is for no reader to guess."""
    write(tmp_path, [3, 5])
    folder = tmp_path / "checkpoints" / "5"
    files = [
        file
        for file in sorted(folder.glob("*/**/*"))
        # That says in words that all is written.
        if file.is_file() and file.name != "commit_success.txt"
    ]
    assert len({file.parts[-2] for file in files}) > 3
    draw = np.random.default_rng(0)
    for file in files:
        before = file.read_bytes()
        flip(file, int(draw.integers(8 * len(before))))
        if "training" not in file.parts:
            with pytest.raises(UserError, match=f"{folder} is damaged: .*name an older one"):
                saved_params(folder)
        restored, (line,) = read(tmp_path)
        assert restored.step == 3
        assert line.startswith(f"checkpoint 5 cannot be read ({file.parent}") and "\n" not in line
        aside = folder.with_name("5.unreadable")
        (aside / file.relative_to(folder)).write_bytes(before)
        aside.rename(folder)
    assert read(tmp_path)[0].step == 5


@pytest.mark.parametrize(
    "number, place",
    [
        (errno.EMFILE, "params"),
        (errno.EIO, "training/hashes.json"),
        (errno.EACCES, "run"),
        (errno.ESTALE, "params/hashes.json"),
        (errno.ENOMEM, "training"),
        (errno.EINTR, "params"),
    ],
)
def test_what_the_system_refuses_sets_no_checkpoint_aside(number, place, tmp_path, monkeypatch):
    """As a folder that this user may not read, or a limit on open files."""
    write(tmp_path, [3, 5])
    folder = tmp_path / "checkpoints" / "5"
    forbidden = str(folder / place)
    before = sorted(tmp_path.rglob("*"))

    def refusing(function):
        def refuse(path, *arguments, **options):
            if str(path).startswith(forbidden):
                raise OSError(number, os.strerror(number), str(path))
            return function(path, *arguments, **options)

        return refuse

    with monkeypatch.context() as patched:
        patched.setattr(io, "open", refusing(open))
        patched.setattr(builtins, "open", refusing(open))
        patched.setattr(os, "scandir", refusing(os.scandir))
        patched.setattr(os, "listdir", refusing(os.listdir))
        with pytest.raises((OSError, UserError), match=os.strerror(number)):
            read(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
    assert read(tmp_path)[0].step == 5


@pytest.mark.parametrize("error", [MemoryError(), ValueError("[OS error 24: EMFILE ...]")])
def test_what_is_whole_and_cannot_be_read_is_not_set_aside(error, tmp_path, monkeypatch):
    """Its hashes say that it is what was written, whatever TensorStore or Orbax says."""
    write(tmp_path, [3, 5])
    before = sorted(tmp_path.rglob("*"))

    def refuse(*_, **__):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(ocp.CheckpointManager, "restore", refuse)
        with pytest.raises(
            UserError, match=f"5 is whole and cannot be read .{type(error).__name__}"
        ):
            read(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before and read(tmp_path)[0].step == 5


def test_a_run_whose_checkpoints_are_gone_does_not_start_afresh(tmp_path):
    require_not_lost(tmp_path)
    # Killed before its first checkpoint was whole, then ended, then gone on with.
    for name, content, lost in (
        ("run.json", '{"sessions": [{"step": 0}]}', False),
        ("result.json", '{"steps": 9, "exit_reason": "preempted"}', True),
        ("result.json", "[]", False),
        ("run.json", '{"sessions": [{"step": 0}, {"step": 9}]}', True),
    ):
        (tmp_path / name).write_text(content)
        if lost:
            with pytest.raises(UserError, match="saved step 9, and its checkpoints are gone: put"):
                require_not_lost(tmp_path)
        else:
            require_not_lost(tmp_path)


def test_what_else_lies_among_checkpoints_is_none(tmp_path):
    """int() would take digits of other scripts, and Orbax's names are of ASCII alone."""
    write(tmp_path, [3])
    for name in ("x1", "٣", "007", "-4", "1_0"):
        (tmp_path / "checkpoints" / name).mkdir()
    assert checkpoint_steps(tmp_path / "checkpoints") == [3] and read(tmp_path)[0].step == 3
    # Orbax takes this for a later step, and would leave out those before it in silence.
    (tmp_path / "checkpoints" / "1٣").mkdir()
    with pytest.raises(UserError, match=r"checkpoint 8 .* holds one of step 13; move it away"):
        write(tmp_path, [8])


def test_processes_share_the_files_of_a_checkpoint(tmp_path):
    """Between them they see all of them."""
    write(tmp_path, [3])
    item = tmp_path / "checkpoints/3/params"
    for number, name in enumerate(sorted(set(read_index(item / "hashes.json")))):
        flip(item / name, 0)
        seen = [damage(item, process, 2) != "" for process in (0, 1)]
        assert seen == [number % 2 == 0, number % 2 == 1]
        flip(item / name, 0)
    (item / "new").write_text("")
    assert damage(item) == f"{item / 'new'} has no hash"


def test_foreign_checkpoint_is_refused_with_field_and_values(tmp_path):
    """What follows from another vocabulary, other text, is not named beside it."""
    write(tmp_path, [3])
    with pytest.raises(UserError, match=r"model.dim: checkpoint has 8, this run has 16; choose"):
        read(tmp_path, {**IDENTITY, "model": {"dim": 16}})
    data = {"mlm": {"vocabulary": {"sha256": "xyz"}, "text": {"de": "other"}}}
    told = 'data.mlm.vocabulary.sha256: checkpoint has "abc", this run has "xyz"; choose'
    with pytest.raises(UserError, match=told):
        read(tmp_path, {**IDENTITY, "data": data})


def test_the_best_by_each_of_several_metrics(tmp_path):
    """As XGLUE chooses (§4.1): one checkpoint for the supervised language, one for the others."""
    config = CheckpointConfig(
        keep_last=1, keep_best=1, best_metric="bleu/one bleu/others", best_mode="max"
    )
    assert config.kept == 3
    one = {1: 1.0, 2: 8.0, 3: float("nan"), 4: 8.0, 5: 2.0, 6: 3.0}
    others = {1: 2.0, 2: 9.0, 3: 9.5, 4: 1.0, 5: 2.0}
    values = {
        step: {"bleu/one": one[step], "bleu/others": others.get(step, float("nan"))} for step in one
    }
    (tmp_path / "run.json").write_text("{}")
    write(tmp_path, [1, 2, 3], config, values)
    first = json.loads((tmp_path / "best.json").read_text())
    assert first == {
        "bleu/one": {"step": 2, "value": 8.0},
        "bleu/others": {"step": 3, "value": 9.5},
    }
    checkpoints = Checkpoints(tmp_path, config, IDENTITY, print)  # a run that goes on knows them
    checkpoints.restore(ABSTRACT)
    assert checkpoints.best == first
    for step in (4, 5, 6):
        checkpoints.save(step, state_at(step), positions_at(step), {}, values[step])
    checkpoints.close()
    best = json.loads((tmp_path / "best.json").read_text())
    assert best == {"bleu/one": {"step": 4, "value": 8.0}, "bleu/others": {"step": 3, "value": 9.5}}
    folder = tmp_path / "checkpoints"
    assert checkpoint_steps(folder) == [3, 4, 6]
    for name, step in (("bleu/one", 4), ("bleu/others", 3), ("6", 6)):
        assert find_checkpoint(f"{tmp_path}@{name}") == folder / str(step)
    for path in (tmp_path, f"{tmp_path}@bleu/one", folder / "3", folder):
        assert run_and_checkpoint(path)[0] == tmp_path
    for which in ("5", "bleu", "04"):
        told = f"has no checkpoint {which} (there are: 3, 4, 6, bleu/one, bleu/others); name one"
        with pytest.raises(UserError, match=re.escape(told)):
            find_checkpoint(f"{tmp_path}@{which}")
    with pytest.raises(UserError, match="KEEP_BEST=1 needs BEST_METRIC"):
        CheckpointConfig(keep_best=1)


def test_identity_leaves_precision_and_noise_free():
    from tests.training.test_loop import base_config

    def identity(**changes):
        optimizer, camlm = (
            OptimizerConfig(frozen=("x",) if changes else ()),
            CAMLM(chunk=9 if changes else 0),
        )
        return run_identity(base_config(**changes), {}, {"camlm": camlm}, 0, optimizer)

    changed = identity(dropout=0.0, dtype="bfloat16", unroll=1, remat="full", norm_eps=1e-5)
    assert list(differences(identity(), changed)) == [
        ("model.norm_eps", 1e-12, 1e-5),
        ("optimizer.frozen", [], ["x"]),
    ]


def test_orbax_does_not_ask_whether_the_run_is_to_stop(tmp_path, monkeypatch):
    """It asks with the step that it wrote, of which JAX takes it that the process is there."""
    asked = []
    monkeypatch.setattr(
        multihost_utils, "reached_preemption_sync_point", lambda step: asked.append(step)
    )
    tiny_run.run(str(tmp_path), steps=4, objectives=("mlm",))
    assert (tmp_path / "checkpoints/4").is_dir() and not asked
