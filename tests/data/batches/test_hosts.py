"""The stream does not depend on how many processes or devices read it: one process of 8 devices is
two of 4 and four of 2."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
READ = """
import hashlib, json, sys
import jax
from xlingjax.data.batches.loader import to_global
from xlingjax.data.batches.loader import BatchSettings, file_batches
from xlingjax.data.sampling import Sampling
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.model.partition import MeshConfig, batch_sharding, make_mesh
from xlingjax.preprocessors.xlm import MlmFeatures, TlmFeatures

arguments = json.loads(sys.argv[1])
if arguments["processes"] > 1:
    jax.distributed.initialize(
        arguments["coordinator"], arguments["processes"], arguments["process"]
    )
mesh = make_mesh(MeshConfig(data=8))
rows = {}
for features, same_language in ((MlmFeatures(), False), (TlmFeatures(), True)):
    settings = BatchSettings(
        seed=3,
        sampling=Sampling(same_language=same_language),
        languages=("de", "en", "ru", "zh"),
        data_shards=arguments["shards"],
    )
    source = file_batches(
        features, Vocabulary.load(arguments["vocabulary"]), 16, 64, settings,
        mono=arguments["mono"], parallel=arguments["parallel"],
    )
    source.restore(5)
    for step in range(4):
        batch = to_global(source.next(), batch_sharding(mesh), source.shapes)
        for name, array in batch.items():
            for shard in array.addressable_shards:
                key = f"{features.name} {step} {name} {shard.index[0].start or 0}"
                rows[key] = hashlib.sha256(shard.data.tobytes()).hexdigest()
    source.close()
print("rows", json.dumps(rows))
"""


def read(processes, arguments):
    """{objective, step, field, first row: hash} of all processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        arguments["coordinator"] = f"127.0.0.1:{free.getsockname()[1]}"
    flags = f"--xla_force_host_platform_device_count={8 // processes}"
    started = []
    for process in range(processes):
        given = json.dumps(arguments | {"processes": processes, "process": process})
        variables = {"XLA_FLAGS": flags, "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", **variables}
        command = [sys.executable, "-c", READ, given]
        started.append(
            subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        )
    rows = {}
    for process in started:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        found = json.loads(output.rpartition("rows ")[2])
        assert not {*found} & {*rows}
        rows |= found
    return rows


@pytest.mark.long
def test_one_process_of_eight_devices_is_two_of_four_and_four_of_two(
    corpus, vocabulary_folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path))
    arguments = {
        "vocabulary": str(vocabulary_folder),
        "mono": str(corpus / "mono/*/*.txt"),
        "parallel": str(corpus / "parallel/*"),
        "shards": 1,
    }
    one = read(1, arguments)
    assert len(one) == 2 * 4 * 8 * 8
    # Each host makes the rows of its devices, or all rows.
    for processes, shards in ((2, 8), (4, 8), (2, 1)):
        assert read(processes, arguments | {"shards": shards}) == one
