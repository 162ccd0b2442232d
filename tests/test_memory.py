"""Page faults of large buffers: in 4 kB pages, 100 MiB that the system had taken back fault 25,600 times."""

import os
import subprocess
import sys

import pytest

from xlingjax.memory import huge_pages

FAULTS = """
import os, resource, threading

def faults(work):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def fill():
    b"x" * (100 << 20)

def fill_elsewhere():
    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
"""


def run(program, **variables):
    environment = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"} | variables
    done = subprocess.run([sys.executable, "-c", FAULTS + program], capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr
    return done.stdout.split()


def test_freed_memory_is_kept():
    kept, *later = run("""
from xlingjax.memory import keep_freed_memory
print(keep_freed_memory(), *[faults(fill) for _ in range(3)])
""")
    if kept == "False":
        pytest.skip("this C library has no mallopt")
    assert max(map(int, later[1:])) < 100


def test_a_program_starts_itself_again_with_huge_pages():
    """Once, with its own arguments, keeping what else GLIBC_TUNABLES says; buffers of other threads fault seldom."""
    if not huge_pages():
        pytest.skip("huge pages are the default here, or cannot be had")
    program = """
from xlingjax.memory import restart_with_huge_pages
print("start", flush=True)
restart_with_huge_pages()
print(os.environ["GLIBC_TUNABLES"], faults(fill_elsewhere))
"""
    *starts, tunables, count = run(program, GLIBC_TUNABLES="glibc.malloc.perturb=0")
    assert starts == ["start", "start"]
    assert tunables == "glibc.malloc.perturb=0:glibc.malloc.hugetlb=1"
    assert int(count) < 10_000 < int(run("print(faults(fill_elsewhere))")[0])


def test_where_it_is_set_already_nothing_is_started_again(monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")
    assert huge_pages() == {}
