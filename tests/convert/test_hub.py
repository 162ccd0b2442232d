"""What `xlingjax export --push` asks of the hub, and what it refuses before the export. No network:
the hub's client is a stub that notes its calls."""

import sys
from types import SimpleNamespace

import pytest

from xlingjax.cli.main import main
from xlingjax.convert import export_model as exporting

huggingface_hub = pytest.importorskip("huggingface_hub")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The calls that the hub got, and what it raises; a token; an export that writes a folder."""
    calls = []
    state = SimpleNamespace(calls=calls, error=None, exports=0)

    class Stub:
        def create_repo(self, *given, **named):
            if state.error:
                raise state.error
            calls.append(("create_repo", given, named))

        def upload_folder(self, **named):
            calls.append(("upload_folder", (), named))
            return SimpleNamespace(commit_url="https://hub/me/model/commit/1")

    def export(run, output, *given, **named):
        state.exports += 1
        return f"{output}: exported"

    monkeypatch.setattr(huggingface_hub, "HfApi", Stub)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_x")
    monkeypatch.setattr(exporting, "export_model", export)
    return state


def push(name, output="out"):
    return main(["export", "runs/x", "--to", str(output), "--push", name])


def test_the_whole_folder_goes_to_a_private_repository_in_one_commit(hub, tmp_path, capsys):
    assert push("me/model", tmp_path / "out") == 0
    whole = {"repo_id": "me/model", "folder_path": str(tmp_path / "out")}
    assert hub.calls == [
        ("create_repo", ("me/model",), {"private": True, "exist_ok": True}),
        ("upload_folder", (), {**whole, "commit_message": "xlingjax export"}),
    ]
    assert capsys.readouterr().out.endswith("pushed to https://hub/me/model/commit/1\n")


@pytest.mark.parametrize("name", ["model", "me/mo del"])
def test_an_impossible_name_is_refused_before_the_export(name, hub, capsys):
    assert push(name) == 2
    said = capsys.readouterr().err
    assert f"--push {name}: give USER/NAME" in said and not hub.exports


def test_without_a_token_or_the_package_nothing_is_exported(hub, monkeypatch, capsys):
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert push("me/model") == 2
    assert "--push me/model: the hub wants a token: `hf auth login`" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert push("me/model") == 2
    assert "--push me/model needs pip install 'xlingjax[interop]'" in capsys.readouterr().err
    assert not hub.exports


def test_what_the_hub_refuses_is_one_line_and_the_folder_stays(hub, capsys):
    hub.error = OSError("403 Forbidden: no right to write\nRequest ID: 1")
    assert push("me/model") == 2
    said = capsys.readouterr().err
    assert "--push me/model: 403 Forbidden: no right to write; out is whole: `hf up" in said
    assert said.count("\n") == 1 and hub.exports == 1
