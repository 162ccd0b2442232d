"""Writing a workdir with trained parameters that did not come from a training there."""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp

from xlingjax.data.vocabulary.sentencepiece import VOCABULARY_FILES
from xlingjax.errors import UserError
from xlingjax.model.build import count_parameters
from xlingjax.model.config import ModelConfig
from xlingjax.runtime.files import write_json
from xlingjax.runtime.lock import IN_USE, alone_at
from xlingjax.runtime.records import read_text
from xlingjax.training.checkpoint_params import HashedPath
from xlingjax.training.run_record import DENSE_FILE, read_run_record, run_and_checkpoint

_REMEDY = "put it back from a copy, or remove it"


def write_trained(
    output: str, record: Mapping[str, Any], step: int | str, params: Any, files: Mapping[str, bytes]
):
    """Writes run.json (`record`, with "identity"), `files` and the parameters as checkpoint `step`:
    whole or not at all. Raises UserError where `output` holds something already or cannot be
    written."""
    with whole(output) as partial:
        target = partial / "checkpoints" / str(step)
        write_json(partial / "run.json", record)
        for name, content in files.items():
            (partial / name).write_bytes(content)
        # In the items of a run's own checkpoints, so that the same code reads both.
        run = {"identity": record["identity"]}
        for item, handler, args in (
            ("params", ocp.StandardCheckpointHandler(), ocp.args.StandardSave(params)),
            ("run", ocp.JsonCheckpointHandler(), ocp.args.JsonSave(run)),
        ):
            with ocp.Checkpointer(handler, temporary_path_class=HashedPath) as writer:
                writer.save(target / item, args=args)


@contextlib.contextmanager
def whole(output: str) -> Iterator[Path]:
    """A folder to write into, which is `output` when all went well and gone when it did not. Raises
    UserError where `output` holds something already or cannot be written."""
    require_empty(output)
    folder = Path(output).absolute()
    # Beside the folder, so on the same disk: to rename is then one operation.
    partial = folder.with_name(f"{folder.name}.partial")
    with alone_at(folder, "choose another folder"):
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            yield partial
            if folder.is_dir():  # empty
                folder.rmdir()
            partial.replace(folder)
        except OSError as error:
            raise UserError(
                f"cannot write {folder}: {error.strerror or error}; choose another folder"
            ) from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def require_empty(output: str) -> None:
    """Raise UserError where `output` holds something already, or lies among a run's checkpoints."""
    folder = Path(output).absolute()
    run = folder.parent.parent
    if folder.parent.name == "checkpoints" and (run / "run.json").exists():
        raise UserError(f"{folder} lies among the checkpoints of {run}; choose another folder")
    if not folder.exists():
        return
    if not folder.is_dir() or {path.name for path in folder.iterdir()} - {IN_USE}:
        raise UserError(f"{folder} is not empty; choose another folder")


def write_workdir(
    run: str,
    output: str,
    step: int | str,
    params: Any,
    by: str,
    details: dict[str, Any],
    **changed: Any,
):
    """A workdir that INIT_FROM, `open_run` and `xlingjax evaluate` read like that of `run`:
    run.json and config.gin, with fields of the model `changed`, the vocabulary, these parameters as
    its checkpoint `step`. It cannot be continued: optimizer state and data position stay behind.
    by: the verb; details: what run.json says beside. Raises UserError where `output` holds
    something already."""
    require_empty(output)
    source, _ = run_and_checkpoint(run)
    record = read_run_record(run)
    for model in (record["model"], record["identity"]["model"]):
        model.update(changed)
    record |= {"parameters": count_parameters(ModelConfig(**record["model"])), **details}
    # A run that Python started has no recipe, and may have no vocabulary.
    names = (*VOCABULARY_FILES, DENSE_FILE)
    files = {name: (source / name).read_bytes() for name in names if (source / name).is_file()}
    recipe = source / "config.gin"
    if recipe.exists():
        lines = [read_text(recipe, _REMEDY), f"# By `xlingjax {by}`:"]
        lines += [f"model.{field} = {value!r}" for field, value in changed.items()]
        files[recipe.name] = ("\n".join(lines) + "\n").encode()
    write_trained(output, record, step, params, files)
