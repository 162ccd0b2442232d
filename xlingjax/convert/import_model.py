"""`xlingjax import`: a model of another program as a workdir, first compared with transformers."""

import dataclasses
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from xlingjax import __version__
from xlingjax.convert.formats import checkpoints, hugging_face, parity, sentence_transformers
from xlingjax.convert.formats.checkpoints import weights_in
from xlingjax.convert.formats.exported import restored
from xlingjax.data.store.entries import cache_root
from xlingjax.data.vocabulary.tokenizer_files import PROPHETNET
from xlingjax.errors import UserError
from xlingjax.inference.sentences import Dense
from xlingjax.model.build import count_parameters
from xlingjax.runtime.machine import first_line
from xlingjax.training.run_record import DENSE_FILE
from xlingjax.training.workdir import require_empty, write_trained

# Of subfolders too, as the hub matches: 1_Pooling/config.json.
WANTED = ("*.json", "*.model", "*.txt", PROPHETNET, "model*.safetensors")
PICKLES = ("pytorch_model*.bin",)


def import_model(
    source: str,
    output: str,
    verify: bool = True,
    layer: int | None = None,
    pooling: str | None = None,
    prefix: str | None = None,
) -> str:
    """Writes the model in the folder, the file or under the hub id `source` as the workdir
    `output`, for INIT_FROM and `open_run`. Returns what was done. layer, pooling, prefix: of its
    sentence vectors, instead of what its files say. Raises UserError, and writes nothing, where the
    model cannot be read or is not transformers' (`verify`), or `output` holds something."""
    require_empty(output)
    above = located(source)
    # sentence-transformers' first versions keep the model one folder down, and the pooling above.
    folder = weights_in(sentence_transformers.model_folder(above))
    if verify and folder.is_file():
        raise UserError(
            f"{folder}: transformers does not open it, there is nothing to compare with; say"
            " --unverified"
        )
    if folder.is_file():
        ours = foreign = checkpoints.read(folder)
        model_type = ""
    else:
        model_type = hugging_face.family_of(folder)[0].types[0]
        foreign = hugging_face.read(folder)
        ours = restored(folder, foreign)
    sentences, notes = sentence_transformers.read(above, ours.config, layer, pooling, prefix)
    lines = [*ours.notes, *notes]
    if verify:
        # As it was read: transformers knows nothing of what our export put beside it.
        there = foreign.as_there or foreign
        head = there.vocabulary_head
        found = parity.compare(folder, there.config, there.params, foreign.vocabulary, head)
        lines.append(found)
    else:
        lines.append("not compared with transformers (--unverified)")
    # With our fields: what config.json said is needed no more.
    model = dataclasses.asdict(ours.config)
    identity = {"model": model, "data": {"import": {"vocabulary": foreign.vocabulary.sha256}}}
    record = {
        "identity": identity,
        "languages": [*ours.languages],
        "labels": [*ours.labels],
        "model": model,
        "parameters": count_parameters(ours.config),
        "imported": {"from": str(source), "told": lines},
        # A decoder's head is there in any case; of two, the encoder's may not be.
        "released": {
            "model_type": model_type,
            "vocabulary_head": ours.vocabulary_head or bool(ours.config.decoder_layers),
        },
    }
    files = ours.vocabulary.files()
    if sentences:
        record["sentences"] = dataclasses.asdict(sentences)
        if sentences.dense:
            layers = sentence_transformers.dense_layers(above)
            files |= {DENSE_FILE: Dense(sentences.dense, layers).content()}
    # As step 0 of a run, so that every verb reads it like one that was trained here.
    write_trained(output, record, 0, ours.params, files)
    size = f"{ours.config.layers} layers of {ours.config.dim}, {ours.config.vocab_size:,} pieces"
    first = f"{output}: {size}, {record['parameters']:,} parameters, from {folder}"
    return "\n".join([first, *lines])


def imported(source: str, verify: bool = True) -> str:
    """The workdir of the Hugging Face model `source` (folder or hub id) below $XLINGJAX_CACHE,
    where it is imported when it is first asked for, compared with transformers unless `verify` is
    False. Raises UserError."""
    folder = Path()
    if source:
        folder = located(source).resolve()
    if not source or folder.is_file():
        raise UserError(
            f"hf:{source} names no folder and no hub id; a file of another program goes through"
            " `xlingjax import FILE --to RUN --unverified`, and INIT_FROM=RUN"
        )
    # The files of a sentence encoder's modules lie one folder further down.
    paths = (*folder.iterdir(), *folder.glob("*/*"))
    stats = {str(path): path.stat() for path in paths if path.exists()}
    files = [(name, one.st_size, one.st_mtime_ns) for name, one in stats.items()]
    # By version, too, since a later one may read the same files otherwise.
    identity = repr((str(folder), sorted(files), __version__, verify))
    mark = hashlib.sha256(identity.encode()).hexdigest()[:12]
    run = cache_root() / "imported" / f"{folder.name}-{mark}"
    run.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(run.with_suffix(".lock")):
        if not run.is_dir():
            import_apart(folder, run, verify)
    return str(run)


def import_apart(folder: Path, run: Path, verify: bool = True) -> None:
    """`import_model` as a process: here JAX may not begin yet, nor take an accelerator's memory."""
    command = [sys.executable, "-m", "xlingjax", "import", str(folder), "--to", str(run)]
    command += [] if verify else ["--unverified"]
    done = subprocess.run(
        command, env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True
    )
    if done.returncode:
        *before, last = done.stderr.splitlines() or ["error: it says nothing"]
        print("\n".join(before), file=sys.stderr)
        raise UserError(last.removeprefix("error: "))
    print(done.stdout, end="", flush=True)


def located(source: str) -> Path:
    """`source`, or the copy of the hub's model of that id, fetched if need be. Raises UserError."""
    if Path(source).exists():
        return Path(source)
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        raise UserError(
            f"no folder {source}, and fetching it from the hub needs pip install"
            " 'xlingjax[interop]'"
        ) from None
    try:
        # Pickles only where there is nothing else: most models have both.
        folder = Path(snapshot_download(source, allow_patterns=WANTED))
        if not any(folder.glob("model*.safetensors")):
            folder = Path(snapshot_download(source, allow_patterns=(*WANTED, *PICKLES)))
        return folder
    # An id that is none of the hub's is a ValueError, no copy without a way to it an OSError.
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise UserError(
            f"{source}: no such folder, and the hub gives none ({type(error).__name__}:"
            f" {first_line(error)}); a private model wants HF_TOKEN, or fetch it elsewhere"
        ) from None
