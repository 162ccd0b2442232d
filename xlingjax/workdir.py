"""Writing a workdir with trained parameters that did not come from a training there."""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp

from xlingjax.errors import UserError


def write_trained(output: str, record: Mapping[str, Any], step: int | str, params: Any, files: Mapping[str, bytes]):
    """Writes run.json (`record`, with "identity"), `files` and the parameters as checkpoint `step`: whole or not at
    all. Raises UserError where `output` holds something already or cannot be written."""
    with whole(output) as partial:
        target = partial / "checkpoints" / str(step)
        (partial / "run.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        for name, content in files.items():
            (partial / name).write_bytes(content)
        with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as writer:
            writer.save(target / "params", args=ocp.args.StandardSave(params))
        with ocp.Checkpointer(ocp.JsonCheckpointHandler()) as writer:
            writer.save(target / "run", args=ocp.args.JsonSave({"identity": record["identity"]}))


@contextlib.contextmanager
def whole(output: str) -> Iterator[Path]:
    """A folder to write into, which is `output` when all went well and gone when it did not. Raises UserError where
    `output` holds something already or cannot be written."""
    require_empty(output)
    folder = Path(output).absolute()
    partial = folder.with_name(f"{folder.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        if folder.is_dir():  # empty
            folder.rmdir()
        partial.replace(folder)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}; choose another folder") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def require_empty(output: str) -> None:
    """Raise UserError where `output` holds something already."""
    folder = Path(output).absolute()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder} is not empty; choose another folder")
