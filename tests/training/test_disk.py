"""A disk that is full, or gone, while a run writes: one line, and what was saved stays."""

import errno
import subprocess

import pytest

from tests.helpers import tiny_run
from xlingjax.errors import UserError
from xlingjax.training.checkpoint import explained
from xlingjax.training.checkpoint_paths import checkpoint_steps


@pytest.fixture
def small_disk(tmp_path):
    """small_disk(size): the folder of a file system of so many bytes."""
    mounted = []

    def mount(size):
        folder = tmp_path / "disk"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"nothing can be mounted here: {getattr(error, 'stderr', error)}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        # Lazily: threads of a run that failed may have files open.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def run(folder, **options):
    settings = {"steps": 12, "objectives": ("mlm",), "save_every": 3, **options}
    return tiny_run.run(folder, **settings)


@pytest.mark.long
@pytest.mark.parametrize("room", ["220k", "420k"])
def test_a_full_disk_is_one_line_and_loses_no_checkpoint(small_disk, room, capfd):
    disk = small_disk(room)
    with pytest.raises((UserError, OSError)) as refused:
        run(disk / "run")
    # The command line has the remedy of what is no UserError.
    assert "No space left on device" in str(refused.value) and "\n" not in str(refused.value)
    err = capfd.readouterr().err
    assert "Traceback" not in err and "Exception" not in err, err
    # Of a finished checkpoint nothing is lost, and the run goes on when there is room.
    saved = checkpoint_steps(disk / "run" / "checkpoints")
    subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
    assert run(disk / "run").steps == 12
    sessions = [line["step"] for line in tiny_run.lines(disk / "run")]
    assert sessions == [*range(1, 13)]
    if saved:
        log = (disk / "run" / "log.txt").read_text()
        assert f"weights: checkpoint {saved[-1]} of" in log
    assert not [*(disk / "run").glob("in_use.json*")]


@pytest.mark.parametrize(
    "error, told",
    [
        (ValueError("RESOURCE_EXHAUSTED: Error writing local file"), "No space left"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (ValueError("PERMISSION_DENIED: Permission denied"), "Permission denied"),
    ],
)
def test_why_a_checkpoint_could_not_be_written(error, told, tmp_path):
    said = explained(error, tmp_path)
    assert isinstance(said, UserError) and told in str(said)
    other = ValueError("a fault of the program")
    assert explained(other, tmp_path) is other
