"""`xlingjax doctor` on made-up installations: two owners of one folder, wrong versions, missing
extras."""

import os
import subprocess
import sys

import jax
import pytest

from xlingjax.cli import doctor


class Distribution:
    """As much of importlib.metadata.Distribution as the doctor reads."""

    def __init__(self, name, *files):
        self.metadata = {"Name": name}
        self._record = "".join(f"{file},sha256=x,1\n" for file in files)

    def read_text(self, name):
        return self._record if name == "RECORD" else None


def test_two_distributions_that_wrote_one_folder_are_named_with_the_repair():
    installed = [
        Distribution("seqio", "seqio/__init__.py", "seqio/utils.py"),
        Distribution("seqio_nightly", "seqio/__init__.py", "seqio/extra.py"),
        Distribution("t5", "t5/__init__.py", "t5/seqio/__init__.py"),
    ]
    (finding,) = doctor.check_shared_packages(installed)
    assert finding.level == "broken"
    assert finding.subject == "folder seqio/"
    assert "seqio and seqio-nightly" in finding.text
    assert finding.repair.startswith(
        "pip uninstall -y seqio-nightly && pip install --force-reinstall --no-deps -c constraints"
    )


def test_namespace_packages_and_nested_folders_are_not_conflicts():
    installed = [
        Distribution("protobuf", "google/protobuf/__init__.py"),
        Distribution(
            "googleapis-common-protos", "google/api/__init__.py", "google/protobuf/__init__.py"
        ),
        Distribution("seqio", "seqio/__init__.py"),
        Distribution("t5", "t5/seqio/__init__.py"),
    ]
    assert list(doctor.check_shared_packages(installed)) == []


def test_this_environment_has_no_shared_folder():
    assert [finding.text for finding in doctor.check_shared_packages()] == []


def test_versions_outside_their_range_and_missing_packages_are_broken():
    findings = {
        f.subject: f
        for f in doctor.check_requirements(
            ["numpy<1", "numpy>=1", "no-such-thing>=2", 'torch>=9; extra == "x"']
        )
    }
    assert "no-such-thing" in findings and "torch" not in findings
    assert findings["no-such-thing"].repair == 'pip install "no-such-thing>=2"'
    assert findings["numpy"].level == "ok"
    _, low = doctor.check_requirements(["numpy<1"])
    assert (
        low.level == "broken" and "outside <1" in low.text and low.repair == 'pip install "numpy<1"'
    )


def test_a_missing_extra_is_a_note_with_its_command():
    findings = {
        f.subject: f
        for f in doctor.check_extras(lambda module: None if module == "apache_beam" else object())
    }
    assert findings["extra beam"].level == "note"
    assert "[beam]" in findings["extra beam"].repair
    assert findings["extra dev"].level == "ok"


def test_an_unwritable_compile_cache_is_broken(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "file"))
        (finding,) = doctor.check_compile_cache()
        assert finding.level == "broken" and str(tmp_path / "file") in finding.text
        assert "JAX_COMPILATION_CACHE_DIR" in finding.repair
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "cache"))
        (finding,) = doctor.check_compile_cache()
        assert finding.level == "ok" and (tmp_path / "cache").is_dir()
        # As in a container whose user has no home.
        jax.config.update("jax_compilation_cache_dir", None)
        monkeypatch.setattr("os.path.expanduser", lambda path: path)
        (finding,) = doctor.check_compile_cache()
        assert finding.level == "broken" and "HOME is not set" in finding.text
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_a_platform_that_jax_is_installed_without_is_broken():
    """In a process of its own, since JAX chooses once."""
    code = "from xlingjax.cli.doctor import check_devices; print(list(check_devices()))"
    environment = {**os.environ, "JAX_PLATFORMS": "cuda", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "level='broken'" in done.stdout and "platform 'cuda' is not available" in done.stdout


@pytest.mark.parametrize("level, status", [("broken", 1), ("note", 0), ("ok", 0)])
def test_exit_status_and_repair_line(level, status):
    lines = []
    finding = doctor.Finding(level, "seqio", "something", "pip install it")
    assert doctor.doctor([lambda: [finding]], lines.append) == status
    assert any("pip install it" in line for line in lines)
    assert lines[-1] == ("1 broken" if status else "all is well")
