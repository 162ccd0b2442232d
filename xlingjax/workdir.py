"""Writing a workdir with trained parameters that did not come from a training there."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp

from xlingjax.errors import UserError


def write_trained(output: str, record: Mapping[str, Any], step: int | str, params: Any, files: Mapping[str, bytes]):
    """Writes run.json (`record`, with "identity"), `files` and the parameters as checkpoint `step`: whole or not at
    all. Raises UserError where `output` holds something already or cannot be written."""
    require_empty(output)
    folder = Path(output).absolute()
    partial = folder.with_name(f"{folder.name}.partial")
    target = partial / "checkpoints" / str(step)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        (partial / "run.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        for name, content in files.items():
            (partial / name).write_bytes(content)
        with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as writer:
            writer.save(target / "params", args=ocp.args.StandardSave(params))
        with ocp.Checkpointer(ocp.JsonCheckpointHandler()) as writer:
            writer.save(target / "run", args=ocp.args.JsonSave({"identity": record["identity"]}))
        if folder.is_dir():  # empty
            folder.rmdir()
        partial.replace(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise UserError(f"cannot write {folder}: {error.strerror or error}; choose another folder") from None


def require_empty(output: str) -> None:
    """Raise UserError where `output` holds something already."""
    folder = Path(output).absolute()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder} is not empty; choose another folder")
