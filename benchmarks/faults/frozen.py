"""Frozen batches (`*.frozen`) that are damaged, or another program's."""

import functools
import gzip
import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults.cases import case
from benchmarks.faults.place import Place, Said, cli, write

GROUP = "frozen batches"
NOT_WHOLE = "mlm.frozen is not a complete file of frozen batches"
ARRAY = "00000000/input_ids.npy"
"""A field of the first batch."""
Members = dict[str, bytes]


@functools.lru_cache(maxsize=1)
def frozen(place: Place) -> bytes:
    """The batches of own.gin, as `freeze` writes them."""
    folder = place.root / "made"
    words = ("--gin_file", place.recipe(6), "--batches", 3)
    said = cli("freeze", *words, "--output", folder)
    if said.status != 0:
        raise SystemExit(f"{said.err}\n{said.out}\n{said.trace}")
    return (folder / "mlm.frozen").read_bytes()


def trained(place: Place) -> Said:
    """`pretrain` on the batches of the folder `frozen`."""
    recipe = place.recipe(6)
    frozen_from = f'corpus.frozen = "{place.root}/frozen"\n'
    recipe.write_text(recipe.read_text() + frozen_from)
    workdir = place.root / "new"
    said = cli("pretrain", "--gin_file", recipe, "--workdir", workdir)
    if said.status == 2 and any(workdir.glob("checkpoints/*")):
        return Said(None, said.out, said.err, "a checkpoint was written")
    return said


def of_file(what: str, needed: str = NOT_WHOLE, status: int = 2) -> Callable:
    """A case: the function is given the file, and leaves another in its place."""

    def add(spoil: Callable[[Path], None]) -> Callable:
        @case(GROUP, what, needed, status, slow=True)
        def run(place: Place) -> Said:
            content = frozen(place)
            spoil(write(place.root / "frozen/mlm.frozen", content))
            return trained(place)

        return spoil

    return add


def of_members(what: str, needed: str = NOT_WHOLE, status: int = 2) -> Callable:
    """A case: the function changes {name of a member: its bytes}."""

    def add(spoil: Callable[[Members], None]) -> Callable:
        @of_file(what, needed, status)
        def run(path: Path) -> None:
            with zipfile.ZipFile(path) as archive:
                members = {x: archive.read(x) for x in archive.namelist()}
            spoil(members)
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, content in members.items():
                    archive.writestr(name, content)

        return spoil

    return add


def _add_cut(what: str, begin: float, end: float) -> None:
    """Bytes from `begin` to `end`, as shares of the file."""

    @of_file(what)
    def spoil(path: Path) -> None:
        content = path.read_bytes()
        size = len(content)
        path.write_bytes(content[int(begin * size) : int(end * size)])


_add_cut("nothing in the file", 0, 0)
_add_cut("its first tenth", 0, 0.1)
_add_cut("its first half", 0, 0.5)
_add_cut("all but its last hundredth", 0, 0.99)
_add_cut("without its first tenth", 0.1, 1)


# ---- the header ----------------------------------------------------------------------------------


def _add_header(what: str, needed: str = NOT_WHOLE, **changes: Any) -> None:
    @of_members(f"a header {what}", needed)
    def spoil(members: Members) -> None:
        header = json.loads(members["header.json"])
        members["header.json"] = json.dumps(header | changes).encode()


def _add_header_text(what: str, content: bytes) -> None:
    @of_members(f"a header {what}")
    def spoil(members: Members) -> None:
        members["header.json"] = content


_add_header_text("that is not JSON", b"{'version': 1}")
_add_header_text("that is not UTF-8", b'{"version": "\xff"}')
_add_header_text("of 100,000 brackets", b"[" * 100_000)
_add_header_text("that is a list", b"[1]")
_add_header("of version 99", "version 99, this program reads 1", version=99)
_add_header("of 10^12 batches", batches=10**12)
_add_header("of -3 batches", batches=-3)
_add_header("of true batches", batches=True)
_add_header("of two hashes for three batches", hashes=["a", "b"])
_add_header("with other hashes", hashes=["a", "b", "c"])
_add_header("with a field that nobody knows", fields=["../../x"])
_add_header("without the fields that MLM reads", fields=["input_ids"])
_add_header("without fields", fields=[])
_add_header("whose languages are a number", languages=3)
_add_header("whose identity is a list", identity=[])
_add_header("whose options are a list", identity={"options": [1]})
_add_header("whose sampling table is a text", identity={"sampling_table": "x"})


@of_members("without a header")
def _no_header(members: Members) -> None:
    del members["header.json"]


# ---- arrays --------------------------------------------------------------------------------------


def _add_array(what: str, descr: str, shape: tuple, bytes_: int) -> None:
    """An `.npy` of this type, shape and so many bytes."""

    @of_members(f"an array of {what}")
    def spoil(members: Members) -> None:
        table = {"descr": descr, "fortran_order": False, "shape": shape}
        text = f"{table}\n".encode()
        start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text))
        members[ARRAY] = start + text + b"\0" * bytes_


_add_array("2^40 x 2^20 numbers", "<i4", (2**40, 2**20), 256)
_add_array("-2 x -32 numbers", "<i4", (-2, -32), 256)
_add_array("0 x 2^70 numbers", "<i4", (0, 2**70), 0)
_add_array("a shape and bytes that do not agree", "<i4", (2, 32), 255)
_add_array("a shape that is none", "<i4", ("a", 32), 256)
_add_array("a type that is none", "<q4x", (2, 32), 256)
_add_array("objects", "|O", (2, 16), 256)
_add_array("words", "<U1", (2, 32), 256)
_add_array("other numbers", "<i4", (2, 32), 256)
_add_array("one row too many", "<i4", (3, 32), 384)


@of_members("an array of another program")
def _no_array(members: Members) -> None:
    members[ARRAY] = b"GIF89a" * 40


@of_members("an array is missing")
def _missing_array(members: Members) -> None:
    del members[ARRAY]


@of_members("two batches in each other's place")
def _exchanged(members: Members) -> None:
    other = ARRAY.replace("00000000", "00000001")
    members[ARRAY], members[other] = members[other], members[ARRAY]


# ---- bits ----------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    """One bit of the byte at this place."""
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


@of_file("one bit of an array's bytes")
def _bit_of_array(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(ARRAY)
    # Behind the member's own header: 30 bytes and its name.
    start = member.header_offset + 30 + len(ARRAY)
    flip(path, start + member.compress_size // 2)


@of_file("one bit of the header's bytes")
def _bit_of_header(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("header.json")
    start = member.header_offset + 30 + len("header.json")
    flip(path, start + member.compress_size // 2)


@of_file("one bit of a name in the archive's list")
def _bit_of_name(path: Path) -> None:
    flip(path, path.read_bytes().rindex(ARRAY.encode()) + 4)


@of_file("a member that claims 2^32 bytes")
def _bomb(path: Path) -> None:
    content = path.read_bytes()
    # In the list: 46 bytes before the name, the size 24 behind their beginning.
    at = content.rindex(ARRAY.encode()) - 46 + 24
    path.write_bytes(content[:at] + b"\xfe\xff\xff\xff" + content[at + 4 :])


@of_file("a member with a password")
def _password(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.rindex(ARRAY.encode()) - 46 + 8] |= 1
    path.write_bytes(content)


@of_file("a member that is packed in a way of tomorrow")
def _packed(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.rindex(ARRAY.encode()) - 46 + 10] = 99
    path.write_bytes(content)


# ---- other files ---------------------------------------------------------------------------------


@of_file("an .npz")
def _npz(path: Path) -> None:
    with open(path, "wb") as file:
        np.savez(file, input_ids=np.zeros((2, 32), np.int32))


@of_file("a safetensors file")
def _safetensors(path: Path) -> None:
    entry = {"dtype": "I32", "shape": [2, 32], "data_offsets": [0, 256]}
    text = json.dumps({"input_ids": entry}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * 256)


@of_file("itself, packed once more (gzip)")
def _gzip(path: Path) -> None:
    path.write_bytes(gzip.compress(path.read_bytes()))


@of_file("itself in a tar archive")
def _tar(path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        entry = tarfile.TarInfo("mlm.frozen")
        entry.size = path.stat().st_size
        archive.addfile(entry, io.BytesIO(path.read_bytes()))
    # A zip is read from its end, and what is before it passed over.
    path.write_bytes(made.getvalue()[:-2048] + b"\0" * 70_000)


@of_file("a text")
def _text(path: Path) -> None:
    path.write_text("der Hund schläft\n" * 100)


@of_file("a folder")
def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@of_file("a link to itself", "mlm.frozen")
def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@of_file("no file", "frozen/*.frozen; write them with `xlingjax freeze`")
def _none(path: Path) -> None:
    path.unlink()


@case(GROUP, "bytes behind its end", "finished at step 6", 0, slow=True)
def _trailing(place: Place) -> Said:
    return _as_whole(place, lambda content: content + b"\n" * 100)


@case(GROUP, "bytes before its beginning", "finished at step 6", 0, slow=True)
def _leading(place: Place) -> Said:
    return _as_whole(place, lambda content: b"\n" * 100 + content)


def _as_whole(place: Place, change: Callable[[bytes], bytes]) -> Said:
    """A fault where a training is another one than on the file as it was."""
    made = []
    for content in (frozen(place), change(frozen(place))):
        place.fresh()
        write(place.root / "frozen/mlm.frozen", content)
        said = trained(place)
        lines = (place.root / "new/metrics.jsonl").read_text().splitlines()
        made.append([json.loads(line)["loss"] for line in lines])
    if made[0] != made[1]:
        return Said(None, said.out, said.err, f"losses differ: {made}")
    return said
