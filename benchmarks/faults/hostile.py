"""Files that want to do harm: programs in pickles, shapes that no memory holds, paths out of the
folder, modules to import."""

import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults.cases import case
from benchmarks.faults.place import Place, Said, cli, python, write

GROUP = "hostile files"


class Program:
    """What unpickling it runs."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def exported(place: Place) -> Path:
    """The run as a folder of Hugging Face."""
    folder = place.root / "model"
    cli("export", place.run, "--to", folder, "--unverified")
    return folder


def imported(place: Place, folder: Path) -> Said:
    """`import` of it; what ran is a fault."""
    words = ("--to", place.root / "imported", "--unverified")
    return unrun(place, cli("import", folder, *words))


def unrun(place: Place, said: Said) -> Said:
    """A fault where a `Program` has run."""
    if (place.root / "ran").exists():
        return Said(None, said.out, said.err, "the program of a pickle has run")
    return said


def of_model(what: str, needed: str = "", status: Any = 2) -> Callable:
    """A case of an import: the function spoils the folder."""

    def add(spoil: Callable[[Place, Path], None]) -> Callable:
        @case(GROUP, f"`import` of {what}", needed, status)
        def run(place: Place) -> Said:
            folder = exported(place)
            spoil(place, folder)
            return imported(place, folder)

        return spoil

    return add


def header(tensors: dict[str, Any]) -> bytes:
    """The beginning of a safetensors file."""
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text


def changed(path: Path, **values: Any) -> None:
    """A JSON file with other values."""
    table = json.loads(path.read_text())
    path.write_text(json.dumps(table | values))


def _encoded(place: Place) -> Said:
    """What `encode` says of the run."""
    return cli(
        "encode",
        place.run,
        "--language",
        "de",
        "--input",
        place.root / "held/de.txt",
        "--output",
        place.root / "v",
    )


# ---- pickles -------------------------------------------------------------------------------------


@of_model("a pytorch_model.bin that is a pickle with a program", "refused")
def _plain_pickle(place: Place, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    program = Program(place.root / "ran")
    write(folder / "pytorch_model.bin", pickle.dumps({"a": program}))


@of_model("a pytorch_model.bin, a zip, with a program", "pytorch_model.bin")
def _zipped_pickle(place: Place, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        program = Program(place.root / "ran")
        archive.writestr("archive/data.pkl", pickle.dumps(program, protocol=2))
        archive.writestr("archive/version", "3\n")


@case(GROUP, "`import` of a model_state.pdparams with a program", "array")
def _paddle(place: Place) -> Said:
    from xlingjax.convert.formats.checkpoints import open_arrays

    path = place.root / "model_state.pdparams"
    write(path, pickle.dumps({"a": Program(place.root / "ran")}))
    return unrun(place, python(lambda: open_arrays(path)))


@case(GROUP, "`import` of a checkpoint (.pt) with a program", "refused")
def _checkpoint(place: Place) -> Said:
    from xlingjax.convert.formats.tensors import unpickled

    path = place.root / "model.pt"
    write(path, pickle.dumps({"model": Program(place.root / "ran")}))
    return unrun(place, python(lambda: unpickled(path, [])))


@case(GROUP, "a .npy of objects with a program, as vectors of `mine`", "Python objects")
def _npy(place: Place) -> Said:
    from xlingjax.inference.vector_files import ShardedRows

    path = place.root / "de-00000.npy"
    program = np.array([Program(place.root / "ran")], object)
    np.save(path, program, allow_pickle=True)
    return unrun(place, python(lambda: ShardedRows([path])))


# ---- shapes --------------------------------------------------------------------------------------


def tensor(shape: list[int], end: int) -> bytes:
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}
    return header({"w": entry})


@of_model("a safetensors header of 2^60 numbers", "no whole safetensors file")
def _huge(place: Place, folder: Path) -> None:
    write(folder / "model.safetensors", tensor([2**30, 2**30], 2**62) + b"\0" * 8)


@of_model("a safetensors header of 2^62 bytes", "no whole safetensors file")
def _long_header(place: Place, folder: Path) -> None:
    write(folder / "model.safetensors", struct.pack("<Q", 2**62) + b"{}")


@of_model("a safetensors header whose shape and bytes differ", "no whole safetensors file")
def _shape(place: Place, folder: Path) -> None:
    write(folder / "model.safetensors", tensor([2**40], 8) + b"\0" * 8)


@of_model("a safetensors header of negative numbers", "no whole safetensors file")
def _negative(place: Place, folder: Path) -> None:
    write(folder / "model.safetensors", tensor([-1], 8) + b"\0" * 8)


@of_model("safetensors of 8 bits, which NumPy has not")
def _eight_bits(place: Place, folder: Path) -> None:
    entry = {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}
    write(folder / "model.safetensors", header({"w": entry}) + b"\0" * 8)


@of_model("a safetensors header with one name twice")
def _twice(place: Place, folder: Path) -> None:
    one = '"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}'
    text = f"{{{one}, {one}}}".encode()
    content = struct.pack("<Q", len(text)) + text + b"\0" * 8
    write(folder / "model.safetensors", content)


@of_model("a config.json of 10^9 x 10^9 numbers")
def _wide(place: Place, folder: Path) -> None:
    changed(folder / "config.json", hidden_size=10**9, emb_dim=10**9)


@of_model("a config.json of 10^8 layers")
def _deep(place: Place, folder: Path) -> None:
    changed(folder / "config.json", num_hidden_layers=10**8, n_layers=10**8)


@of_model("a config.json of -1 layers")
def _minus(place: Place, folder: Path) -> None:
    changed(folder / "config.json", num_hidden_layers=-1, n_layers=-1)


@of_model("a config.json with a list for a number")
def _list(place: Place, folder: Path) -> None:
    changed(folder / "config.json", num_hidden_layers=[1], n_layers=[1])


@of_model("a config.json of 100,000 brackets")
def _brackets(place: Place, folder: Path) -> None:
    write(folder / "config.json", "[" * 100_000)


@of_model("a tokenizer.json of 100,000 brackets")
def _tokenizer(place: Place, folder: Path) -> None:
    for path in [*folder.glob("*token*"), *folder.glob("*.model")]:
        path.unlink()
    write(folder / "tokenizer.json", "[" * 100_000)


@case(GROUP, "a .npy that claims 2^50 rows, as vectors of `mine`", "missing or damaged")
def _rows(place: Place) -> Said:
    from xlingjax.inference.vector_files import ShardedRows

    path = place.root / "de-00000.npy"
    with open(path, "wb") as file:
        shape = {"descr": "<f4", "fortran_order": False, "shape": (2**50, 768)}
        np.lib.format.write_array_header_1_0(file, shape)
    return python(lambda: ShardedRows([path]))


# ---- paths ---------------------------------------------------------------------------------------


def index(folder: Path, name: str) -> None:
    (folder / "model.safetensors").unlink()
    table = {"weight_map": {"w": name}}
    write(folder / "model.safetensors.index.json", json.dumps(table))


@of_model("an index that names ../../x", "outside its own folder")
def _up(place: Place, folder: Path) -> None:
    index(folder, "../../x.safetensors")


@of_model("an index that names /etc/passwd", "outside its own folder")
def _absolute(place: Place, folder: Path) -> None:
    index(folder, "/etc/passwd")


@of_model("an index that names its own folder")
def _dot(place: Place, folder: Path) -> None:
    index(folder, ".")


@of_model("an index that names a folder")
def _folder(place: Place, folder: Path) -> None:
    (folder / "x.safetensors").mkdir()
    index(folder, "x.safetensors")


@of_model("an index that is a list")
def _no_index(place: Place, folder: Path) -> None:
    index(folder, "x")
    write(folder / "model.safetensors.index.json", "[1]")


@case(GROUP, "`data check` of a tar whose entries lead out of the folder", "tar archive", 1)
def _tar(place: Place) -> Said:
    import io
    import tarfile

    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../../etc/x"))
    path = write(place.root / "x.de.txt", made.getvalue())
    return cli("data", "check", "--mono", path)


@case(GROUP, "a run whose languages are paths", "was trained with the languages")
def _languages(place: Place) -> Said:
    changed(place.run / "run.json", languages=["../../x", "en"])
    return _encoded(place)


# ---- what is imported, run or shown --------------------------------------------------------------


@case(GROUP, "`evaluate` of a run whose config.gin imports a module", "--trust")
def _imports(place: Place) -> Said:
    path = place.run / "config.gin"
    path.write_text("import this\n" + path.read_text())
    return cli("evaluate", place.run)


@case(GROUP, "`evaluate` of a run whose config.gin names TASKS", "--trust")
def _tasks(place: Place) -> Said:
    path = place.run / "config.gin"
    path.write_text(path.read_text() + '\nTASKS = "this"\ncorpus.tasks = %TASKS\n')
    return cli("evaluate", place.run)


@case(GROUP, "`evaluate` of a run whose config.gin includes /etc/passwd", "/etc/passwd")
def _includes(place: Place) -> Said:
    path = place.run / "config.gin"
    path.write_text('include "/etc/passwd"\n' + path.read_text())
    return cli("evaluate", place.run)


@case(GROUP, "`encode` by a run with 10^9 x 10^9 numbers in run.json", "does not fit the model")
def _wide_run(place: Place) -> Said:
    path = place.run / "run.json"
    model = json.loads(path.read_text())["model"]
    changed(path, model=model | {"dim": 10**9, "ffn": 4 * 10**9, "heads": 1})
    return _encoded(place)


@case(GROUP, "a run.json of 100,000 brackets", "not valid JSON")
def _nested(place: Place) -> Said:
    write(place.run / "run.json", "[" * 100_000)
    return cli("report", place.run)


@case(GROUP, "an evaluations.jsonl of numbers that no float holds", "evaluations.jsonl", 0)
def _numbers(place: Place) -> Said:
    line = '{"step": 1' + "0" * 5000 + ', "name": "x", "values": {"y": 1e999}}\n'
    write(place.run / "evaluations.jsonl", line)
    return cli("report", place.run)


@case(GROUP, "a rows.html with a script", "rows.html", 0)
def _script(place: Place) -> Said:
    write(place.run / "rows.html", "<script>alert(1)</script>")
    said = cli("report", place.run)
    if "alert(1)" in (place.run / "report.html").read_text():
        return Said(None, said.out, said.err, "the script is in the page")
    return said


@case(GROUP, "a vocab.model that is a loop of links", "vocab.model")
def _loop(place: Place) -> Said:
    path = place.run / "vocab.model"
    path.unlink()
    path.symlink_to(path)
    return encode_of(place)


@case(GROUP, "a checkpoint that is a link to itself", "no checkpoint in")
def _linked(place: Place) -> Said:
    import shutil

    for step in (3, 6):
        path = place.run / f"checkpoints/{step}"
        shutil.rmtree(path)
        path.symlink_to(path)
    return encode_of(place)


def encode_of(place: Place) -> Said:
    return _encoded(place)
