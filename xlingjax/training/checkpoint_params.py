"""The files of a checkpoint, each with a hash, and its parameters, read for another run or mesh.

`checkpoints/STEP/ITEM/hashes.json` names each file of the item with its hash, and is written before
the checkpoint has its name. Hashes of files and not of arrays: a file is the same whatever the mesh
and the number of processes that read it.
"""

import asyncio
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.path import atomicity

from xlingjax.errors import UserError
from xlingjax.model.params import flattened
from xlingjax.runtime.checked_file import Damaged, file_hash, read_index, write_index
from xlingjax.runtime.machine import first_line
from xlingjax.runtime.quiet import forget_abandoned_reads
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.training.run_record import languages_of, vocabulary_of

HASHES = "hashes.json"
_LATE = ("_CHECKPOINT_METADATA", "commit_success.txt")  # written anew when a checkpoint is named
_THREADS = 4  # that read at a time: neither reading nor hashing holds Python's lock


class HashedPath(atomicity.AtomicRenameTemporaryPath):
    """Where Orbax writes a folder until it is whole. Its hashes are there before its name."""

    async def finalize(self) -> None:
        await asyncio.to_thread(write_hashes, Path(self.get()))
        await super().finalize()


def write_hashes(folder: Path) -> None:
    """Writes an item's files' hashes; a step's folder has none, its items do. Raises OSError."""
    if any(folder.glob(f"*/{HASHES}")):
        return
    names = _files(folder)
    with ThreadPoolExecutor(_THREADS) as threads:
        hashes = threads.map(lambda name: file_hash(folder / name), names)
    write_index(folder / HASHES, dict(zip(names, hashes, strict=True)))


def damage(item: Path, process: int = 0, processes: int = 1) -> str:
    """What is wrong with the files of a checkpoint's item; "": nothing. Of several processes each
    looks at its share of the files. Raises OSError where the system does not let it look."""
    try:
        hashes = read_index(item / HASHES)
    except FileNotFoundError:
        return f"{item / HASHES} is missing"
    except Damaged as fault:
        return str(fault)
    names = _files(item)
    for name in sorted(hashes.keys() ^ set(names)):
        return f"{item / name} is missing" if name in hashes else f"{item / name} has no hash"
    share = names[process::processes]
    with ThreadPoolExecutor(_THREADS) as threads:
        found = threads.map(lambda name: file_hash(item / name), share)
        for name, value in zip(share, found, strict=True):
            if value != hashes[name]:
                return f"{item / name} has other bytes than were written"
    return ""


def _files(folder: Path) -> list[str]:
    """Names below the folder. Raises OSError where a folder cannot be read."""

    def refuse(error: OSError) -> None:
        raise error

    names = [
        (Path(parent) / name).relative_to(folder).as_posix()
        for parent, _, files in os.walk(folder, onerror=refuse)
        for name in files
        if name not in (HASHES, *_LATE)
    ]
    return sorted(names)


def load_params(
    path: str | Path,
    params: Any,
    new: Sequence[str] = (),
    vocabulary: Any = None,
    exact: bool = False,
    languages: Sequence[str] = (),
) -> tuple[Any, list[str]]:
    """`params` with the values of the checkpoint that `path` names (see `find_checkpoint`), on the
    shardings of `params`.

    A parameter the checkpoint lacks keeps its value if a regular expression of `new` matches its
    path; those are returned as the second value. `vocabulary`: the hash of the one they are to be
    used with; exact: nothing of the checkpoint may be left behind; languages: those
    of the run's run.json, whose order numbers them. Raises UserError naming every
    other missing parameter, every mismatched shape, another vocabulary, other languages, and an
    unreadable checkpoint.
    """
    model = flattened(params)
    tree = jax.tree.structure(params)
    checkpoint = find_checkpoint(path)
    saved, identity = saved_params(checkpoint)
    require_vocabulary(checkpoint, vocabulary_of(identity), vocabulary)
    require_languages(checkpoint, identity, languages)
    # `match`, from the beginning: a name of a part covers all below it.
    absent = [name for name in model if name not in saved]
    kept = [name for name in absent if any(re.match(pattern, name) for pattern in new)]
    problems = [f"{name} is missing" for name in absent if name not in kept]
    for name, shape in saved.items():
        if name not in model:
            if exact:
                problems.append(f"{name} is not the model's")
        elif shape != model[name].shape:
            problems.append(f"{name}: checkpoint {shape}, model {model[name].shape}")
    if problems:
        raise UserError(
            f"checkpoint {checkpoint} does not fit the model: {'; '.join(problems)}; add --gin-file"
            " gin/models/from_init.gin, or give an encoder to an encoder-decoder as INIT_ENCODER,"
            " INIT_DECODER or both (gin/runs/init_seq2seq.gin)"
        )
    # Read onto the shardings of the model: no host ever holds all of a large one.
    abstract = [
        None
        if name in kept
        else jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
        for name, leaf in model.items()
    ]
    loaded = flattened(read_params(checkpoint, jax.tree.unflatten(tree, abstract)))
    return jax.tree.unflatten(tree, (model | loaded).values()), kept


def saved_params(checkpoint: Path) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    """({path of a parameter: its shape}, the identity of its run or nothing) of a checkpoint, whose
    files are checked first. Raises UserError when it is damaged or cannot be read."""
    forget_abandoned_reads()
    params, run = checkpoint / "params", checkpoint / "run"
    items = [params, run] if run.is_dir() else [params]
    for item in items:
        if wrong := damage(item):
            raise UserError(
                f"checkpoint {checkpoint} is damaged: {wrong}; name an older one, or move this one"
                " away"
            )
    try:
        # Shapes alone, so that a checkpoint that does not fit is refused before it is read.
        # By the handler, which looks for no description of a whole checkpoint and warns of none.
        metadata = ocp.PyTreeCheckpointHandler().metadata(params)
        shapes = {name: tuple(leaf.shape) for name, leaf in flattened(metadata.tree).items()}
        if run not in items:
            return shapes, {}
        return shapes, ocp.Checkpointer(ocp.JsonCheckpointHandler()).restore(run)["identity"]
    except Exception as error:
        raise unreadable(checkpoint, error) from error


def read_params(checkpoint: Path, abstract: Any) -> Any:
    """The parameters of `abstract`, a tree of `jax.ShapeDtypeStruct` with shardings that may lack
    some or hold None for them. `saved_params` has looked whether they are whole. Raises UserError
    when they cannot be read."""
    forget_abandoned_reads()
    try:
        return ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(
            checkpoint / "params",
            args=ocp.args.PyTreeRestore(
                item=abstract,
                restore_args=ocp.checkpoint_utils.construct_restore_args(abstract),
                # Orbax wants every parameter of the checkpoint otherwise.
                partial_restore=True,
            ),
        )
    except Exception as error:
        raise unreadable(checkpoint, error) from error


def require_languages(checkpoint: Path, identity: Any, languages: Sequence[str]) -> None:
    """Raise UserError where run.json numbers languages in another way than its checkpoint."""
    trained_on = languages_of(identity)
    if languages and isinstance(trained_on, list) and trained_on != [*languages]:
        raise UserError(
            f"checkpoint {checkpoint} was trained with the languages {' '.join(trained_on)}, and"
            f" run.json names {' '.join(languages)}: put the run's own back from a copy"
        )


def require_vocabulary(checkpoint: Path, trained_on: Any, vocabulary: Any) -> None:
    """Raise UserError where both hashes are known and differ."""
    if vocabulary and trained_on and trained_on != vocabulary:
        raise UserError(
            f"checkpoint {checkpoint} was trained on another vocabulary (SHA-256"
            f" {trained_on!s:.12}, this run's {vocabulary!s:.12}), in which the same ids are other"
            " pieces; set VOCABULARY to that run's workdir, which keeps a copy, or put the copy"
            " back"
        )


def unreadable(checkpoint: Path, error: Exception) -> UserError:
    reason = first_line(error)
    return UserError(
        f"checkpoint {checkpoint} is whole and cannot be read ({type(error).__name__}: {reason});"
        " repair that and call it again, or move the checkpoint away"
    )
