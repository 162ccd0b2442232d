"""The templates of launch/, run as they are written; what they call of a cluster is replaced."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.helpers import small_corpus

ROOT = Path(__file__).resolve().parent.parent
LAUNCH = ROOT / "launch"

# What `srun` does: as many processes as the job has tasks, each with SLURM's variables.
SRUN = """#!{python}
import os, subprocess, sys
words = [word for word in sys.argv[1:] if not word.startswith("--kill-on-bad-exit")]
count = int(os.environ["SLURM_NTASKS"])
processes = []
for index in range(count):
    of_task = dict(SLURM_PROCID=str(index), SLURM_LOCALID=str(index))
    of_task["SLURM_STEP_NODELIST"] = "localhost"
    processes.append(subprocess.Popen(words, env=dict(os.environ, **of_task)))
sys.exit(max(process.wait() for process in processes))
"""


@pytest.fixture
def place(tmp_path):
    """A corpus, and a folder of programs that stand before the system's."""
    small_corpus.build(tmp_path)
    (tmp_path / "bin").mkdir()
    program(tmp_path, "xlingjax", f'#!/bin/sh\nexec {sys.executable} -m xlingjax "$@"\n')
    return tmp_path


def program(root, name, text):
    path = root / "bin" / name
    path.write_text(text.format(python=sys.executable) if "{python}" in text else text)
    path.chmod(0o755)


def environment(root, devices, **variables):
    flags = f"--xla_force_host_platform_device_count={devices}"
    path = f"{root / 'bin'}:{os.environ['PATH']}"
    common = {"PATH": path, "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    return {**os.environ, **common, **variables}


def launched(script, root, devices, variables, *words):
    options = dict(env=environment(root, devices, **variables), cwd=root)
    command = ["bash", str(LAUNCH / script), *words]
    return subprocess.run(command, **options, capture_output=True, text=True, check=False)


def settings(root):
    bindings = small_corpus.options(root, MESH_DATA=-1)
    return [f"--gin.{name}={value}" for name, value in bindings.items()]


def losses(workdir):
    lines = (Path(workdir) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"] for line in lines]


def of_one(root):
    """The losses of the same run in one process of 8 devices."""
    words = ["--gin-file", "xlm_text", "--to", str(root / "one"), *settings(root)]
    command = [str(root / "bin" / "xlingjax"), "pretrain", *words]
    subprocess.run(command, env=environment(root, 8), cwd=root, check=True, capture_output=True)
    return losses(root / "one")


@pytest.mark.long
def test_slurms_template_trains_in_two_processes_what_one_trains(place):
    program(place, "srun", SRUN)
    variables = {"RECIPE": "xlm_text", "WORKDIR": str(place / "two"), "SLURM_NTASKS": "2"}
    # JAX takes its port from it.
    variables["SLURM_JOB_ID"] = str(os.getpid())
    done = launched("slurm.sbatch", place, 4, variables, *settings(place))
    assert done.returncode == 0, done.stderr
    assert "2 processes x 4 devices" in (place / "two" / "log.txt").read_text(encoding="utf-8")
    np.testing.assert_allclose(losses(place / "two"), of_one(place), rtol=1e-5)


@pytest.mark.parametrize(("status", "requeued"), [(75, True), (0, False), (1, False)])
def test_what_was_stopped_goes_back_into_slurms_queue(tmp_path, status, requeued):
    (tmp_path / "bin").mkdir()
    program(tmp_path, "srun", f'#!/bin/sh\necho "$@" > {tmp_path}/words\nexit {status}\n')
    program(tmp_path, "scontrol", f'#!/bin/sh\necho "$@" > {tmp_path}/said\n')
    variables = {"RECIPE": "xlm_text", "WORKDIR": "runs/x y", "SLURM_JOB_ID": "17"}
    done = launched("slurm.sbatch", tmp_path, 1, variables, "--gin.MONO=a b")
    assert done.returncode == status
    words = (tmp_path / "words").read_text()
    assert "xlingjax pretrain --gin-file xlm_text --to runs/x y --gin.MONO=a b" in words
    assert (tmp_path / "said").exists() == requeued
    if requeued:
        assert (tmp_path / "said").read_text() == "requeue 17\n"


def test_a_jobsets_pods_find_the_first_of_them():
    jobset = yaml.safe_load((LAUNCH / "jobset.yaml").read_text(encoding="utf-8"))
    [workers] = jobset["spec"]["replicatedJobs"]
    job = workers["template"]["spec"]
    [container] = job["template"]["spec"]["containers"]
    [rule] = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"] == {"containerName": "xlingjax", "operator": "In", "values": [75]}
    given = {one["name"]: one.get("value") for one in container["env"]}
    count = job["parallelism"]
    assert count == job["completions"] == int(given["XLINGJAX_NUM_PROCESSES"])
    # The first pod of the first job, in the subdomain of the set.
    name = jobset["metadata"]["name"]
    host, _, _ = given["XLINGJAX_COORDINATOR"].partition(":")
    assert host == f"{name}-{workers['name']}-0-0.{job['template']['spec']['subdomain']}"
    assert [word.partition("=")[0] for word in container["args"]][:2] == ["--gin-file", "--to"]


# What `gcloud` does: the slice is there at the second look, is taken back in the first training,
# and comes again.
GCLOUD = """#!{python}
import json, sys
from pathlib import Path
here = Path(sys.argv[0]).parent
words = sys.argv[1:]
calls = here / "calls"
with open(calls, "a") as file:
    file.write(json.dumps(words) + "\\n")
state = here / "state"
if "describe" in words:
    if not state.exists():
        sys.exit(1)
    print(state.read_text())
if "create" in words:
    state.write_text("ACTIVE")
if "delete" in words:
    state.unlink()
if any("xlingjax pretrain" in word for word in words):
    trained = here / "trained"
    trained.write_text(trained.read_text() + "x" if trained.exists() else "x")
    if trained.read_text() == "x":
        state.write_text("SUSPENDED")
        sys.exit(255)
"""


def test_a_slice_that_is_taken_back_is_asked_for_again(tmp_path):
    (tmp_path / "bin").mkdir()
    program(tmp_path, "gcloud", GCLOUD)
    variables = {"NAME": "base", "ZONE": "z", "ACCELERATOR": "v5litepod-16", "WAIT": "0"}
    variables |= {"RECIPE": "xlmr_base", "WORKDIR": "/mnt/runs/base"}
    done = launched("tpu_vm.sh", tmp_path, 1, variables, "--gin.MONO=text/*/*.txt")
    assert done.returncode == 0, done.stderr
    calls = [json.loads(line) for line in (tmp_path / "bin" / "calls").read_text().splitlines()]
    assert all(call[:2] == ["compute", "tpus"] and call[-3:-1] == ["--zone", "z"] for call in calls)
    what = [word for call in calls for word in call if word in ("create", "delete", "ssh")]
    assert what == ["create", "ssh", "ssh", "delete", "create", "ssh", "ssh"]
    # The shell of the host expands nothing of it.
    trained = [call for call in calls if any("pretrain" in word for word in call)]
    words = "venv/bin/xlingjax pretrain --gin-file xlmr_base --to /mnt/runs/base"
    assert words + r" --gin.MONO=text/\*/\*.txt " in trained[0]
