"""Files of a run that are damaged, missing, or another run's."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.faults.cases import case
from benchmarks.faults.place import STEPS, Place, Said, cli, write

GROUP = "files of a run"
SHAPES = (
    ("a list", b"[1]"),
    ("a number", b"3"),
    ("a string", b'"x"'),
    ("null", b"null"),
    ("a step that is a text", b'{"step": "3", "name": "x", "values": {}}'),
    ("a step that is true", b'{"step": true, "objective": "mlm"}'),
    ("100,000 brackets", b"[" * 100_000),
    ("no JSON", b"{step: 3}"),
)
"""Lines of a .jsonl file that no run writes."""
FOREIGN = (
    ("a list", b"[]"),
    ("null", b"null"),
    ("a text", b'"x"'),
    ("no JSON", b"{"),
    ("empty", b""),
    ("not UTF-8", b'{"steps": "\xff"}'),
)
"""Files of JSON that no run writes."""
Verb = Callable[[Place], Said]


# ---- the verbs, and what else must be true -------------------------------------------------------


def report(place: Place) -> Said:
    return cli("report", place.run)


def evaluate(place: Place) -> Said:
    return cli("evaluate", place.run)


def encode(place: Place, run: str = "") -> Said:
    words = ("--language", "de", "--input", place.root / "held/de.txt")
    output = ("--output", place.root / "v.npy")
    return cli("encode", run or place.run, *words, *output)


def export(place: Place) -> Said:
    to = place.root / "model"
    return cli("export", place.run, "--to", to, "--unverified")


def average(place: Place) -> Said:
    to = place.root / "mean"
    return cli("average", place.run, "--last", 2, "--output", to)


def pretrain(place: Place) -> Said:
    """A run that goes on for two steps."""
    return place.pretrain(steps=STEPS + 2)


VERBS: dict[str, tuple[Verb, str]] = {
    "report": (report, "run/report.json"),
    "evaluate": (evaluate, ""),
    "encode": (encode, "v.npy"),
    "export": (export, "model/model.safetensors"),
    "average": (average, "mean/run.json"),
    "pretrain": (pretrain, ""),
}
"""{verb: (itself, what it makes)}."""


def last_line(place: Place) -> Any:
    """The loss that a run ended with."""
    lines = (place.run / "metrics.jsonl").read_bytes().splitlines()
    line = json.loads(lines[-1])
    return line["step"], line["loss"]


def as_of(
    place: Place, verb: str, spoil: Callable[[Path], Any], like: Callable[[Path], Any]
) -> Said:
    """What a verb says of a spoilt run; a fault where it makes another thing of it than of one that
    is `like`."""
    call, output = VERBS[verb]

    def made() -> Any:
        if verb == "pretrain":
            return last_line(place)
        return (place.root / output).read_bytes()

    like(place.run)
    call(place)
    expected = made()
    place.fresh()
    spoil(place.run)
    said = call(place)
    if said.status == 0 and made() != expected:
        return Said(None, said.out, said.err, "it made another thing of it")
    return said


def whole(run: Path) -> None:
    """As it is."""


def until_3(run: Path) -> None:
    """With its first checkpoint alone."""
    for name in ("checkpoints", "data_state"):
        shutil.rmtree(run / name / "6")


def of_run(
    what: str,
    needed: str,
    status: int = 2,
    verbs: str = "report",
    like: Callable[[Path], Any] | None = None,
) -> Callable:
    """A case for each of the verbs: the function spoils the run's folder. like: what is made must
    be what is made of a run that this has changed."""

    def add(spoil: Callable[[Path], Any]) -> Callable:
        for verb in verbs.split():

            @case(GROUP, f"{what}: `{verb}`", needed, status, slow=True)
            def run(place: Place, verb: str = verb) -> Said:
                if like:
                    return as_of(place, verb, spoil, like)
                spoil(place.run)
                return VERBS[verb][0](place)

        return spoil

    return add


# ---- bytes that are not UTF-8 --------------------------------------------------------------------


def _add_byte(name: str, verbs: str, status: int, needed: str) -> None:
    @of_run(f"a byte that is not UTF-8 in {name}", needed, status, verbs)
    def spoil(run: Path) -> None:
        path = run / name
        content = path.read_bytes()
        # In the second line.
        at = content.index(b"\n") + 3
        path.write_bytes(content[:at] + b"\xff" + content[at:])


_add_byte("metrics.jsonl", "report pretrain", 0, "metrics.jsonl line 2: not UTF-8; left out")
_add_byte(
    "evaluations.jsonl", "report pretrain", 0, "evaluations.jsonl line 2: not UTF-8; left out"
)
_add_byte("log.txt", "report", 0, "log.txt line 2: not UTF-8")
_add_byte("log.txt", "pretrain", 0, "finished at step 8")
_add_byte("rows.html", "report", 0, "rows.html line 2: not UTF-8")
_add_byte("config.gin", "report", 0, "config.gin line 2: not UTF-8")
_add_byte("config.gin", "evaluate", 2, "config.gin, line 2: not valid UTF-8")
_add_byte("config.gin", "average", 2, "config.gin line 2: not UTF-8")
_add_byte("run.json", "report encode export average pretrain", 2, "run.json line 2: not UTF-8")
_add_byte("run.json", "evaluate", 0, "run.json is not what it was")


# ---- lines of another shape ----------------------------------------------------------------------


def _add_shape(name: str, what: str, line: bytes) -> None:
    @of_run(f"a line of {name} that is {what}", f"{name} line 1: ", 0)
    def spoil(run: Path) -> None:
        path = run / name
        path.write_bytes(line + b"\n" + path.read_bytes())


for _what, _line in SHAPES:
    for _name in ("metrics.jsonl", "evaluations.jsonl"):
        _add_shape(_name, _what, _line)


@of_run(
    "lines of every other shape in metrics.jsonl and evaluations.jsonl",
    "metrics.jsonl line 8: not valid JSON; left out",
    0,
    "pretrain",
    like=whole,
)
def _all_shapes(run: Path) -> None:
    lines = b"".join(line + b"\n" for _, line in SHAPES)
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        path = run / name
        path.write_bytes(lines + path.read_bytes())


@of_run("numbers that are texts in a line of metrics.jsonl", "metrics.jsonl line 1: ", 0)
def _texts(run: Path) -> None:
    path = run / "metrics.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    changed = {name: "x" for name in json.loads(first)}
    line = json.dumps(changed | {"step": 2, "objective": "mlm"})
    path.write_text(line + "\n" + "".join(others))


@of_run("values of every other type in evaluations.jsonl", "values of another shape", 0)
def _values(run: Path) -> None:
    path = run / "evaluations.jsonl"
    spoilt = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        for name in record["values"]:
            if name != "kind":
                record["values"][name] = [{"x": None}]
        spoilt.append(json.dumps(record) + "\n")
    path.write_text("".join(spoilt))


# ---- JSON ----------------------------------------------------------------------------------------


def _add_foreign(name: str, verb: str, needed: str, status: int = 2) -> None:
    for what, content in FOREIGN:

        @of_run(f"a {name} that is {what}", needed, status, verb)
        def spoil(run: Path, content: bytes = content) -> None:
            (run / name).write_bytes(content)


_add_foreign("run.json", "encode", "run.json")
_add_foreign("result.json", "report", "result.json")
_add_foreign("best.json", "pretrain", "best.json")


@case(GROUP, "a best.json cut short: `encode RUN@METRIC`", "best.json")
def _best(place: Place) -> Said:
    path = place.run / "best.json"
    path.write_bytes(path.read_bytes()[:20])
    return encode(place, f"{place.run}@perplexity/mean")


@case(GROUP, "a best.json of step 99: `encode RUN@METRIC`", "has no checkpoint 99")
def _best_step(place: Place) -> Said:
    best = {"perplexity/mean": {"step": 99, "value": 1.0}}
    write(place.run / "best.json", json.dumps(best))
    return encode(place, f"{place.run}@perplexity/mean")


def changed(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@of_run("a result.json whose steps are a text", "result.json: steps is")
def _steps(run: Path) -> None:
    changed(run / "result.json", steps="6")


@of_run("a result.json that stopped early in no words", "values of another shape", 0)
def _stopped(run: Path) -> None:
    changed(run / "result.json", stopped_early={"metric": 3})


@of_run("a result.json of other evaluations", "result.json is not what it was", 0, "encode report")
def _evaluations(run: Path) -> None:
    best = {"retrieval": {"layers": "x", "best_layer": [9]}, "perplexity": {}}
    changed(run / "result.json", evaluations=best)


@of_run("a run.json of other types below", "values of another shape", 0)
def _types(run: Path) -> None:
    odd = {"time": 3, "versions": [1], "machine": {"x": 1}, "step": "x"}
    changed(run / "run.json", sessions=[odd], stages=[1], steps="x", shapes=3)


@of_run("a run.json without its model", "run.json: model is missing", 2, "encode average export")
def _no_model(run: Path) -> None:
    path = run / "run.json"
    record = json.loads(path.read_text())
    del record["model"]
    path.write_text(json.dumps(record))


# ---- folders where files are ---------------------------------------------------------------------


def _add_folder(name: str, verbs: str, needed: str, status: int = 2) -> None:
    @of_run(f"a folder named {name}", needed, status, verbs)
    def spoil(run: Path) -> None:
        (run / name).unlink()
        (run / name).mkdir()


_add_folder("metrics.jsonl", "report pretrain", "metrics.jsonl")
_add_folder("evaluations.jsonl", "report evaluate pretrain", "evaluations.jsonl")
_add_folder("config.gin", "report", "config.gin: cannot be read (Is a directory); left out", 0)
_add_folder("config.gin", "evaluate average pretrain", "config.gin")
_add_folder("run.json", "report encode average pretrain", "run.json")
_add_folder("result.json", "report pretrain", "result.json")
_add_folder("best.json", "pretrain", "best.json")
_add_folder("log.txt", "report", "log.txt: cannot be read (Is a directory); left out", 0)
_add_folder("log.txt", "pretrain", "log.txt")
_add_folder("rows.html", "report", "rows.html: cannot be read (Is a directory); left out", 0)
_add_folder("vocab.model", "encode export pretrain", "vocab.model")
_add_folder("report.html", "report", "report.html")
_add_folder("report.json", "report", "report.json")


# ---- another run's files -------------------------------------------------------------------------


def other_run(place: Place, *words: object) -> Path:
    """Another run of the same text; words: how its settings differ."""
    recipe, other = place.recipe(STEPS), place.root / "other"
    cli("pretrain", "--gin_file", recipe, "--workdir", other, *words)
    return other


def other_vocabulary(place: Place) -> Path:
    folder = place.root / "vocabulary"
    words = ("--mono", place.root / "mono/de", "--size", 58)
    cli("vocab", *words, "--output", folder)
    return folder


def _add_vocabulary(verb: str, needed: str, status: int = 2) -> None:
    @case(GROUP, f"the vocabulary of another text: `{verb}`", needed, status, slow=True)
    def run(place: Place) -> Said:
        other = other_vocabulary(place)
        for name in ("vocab.model", "vocab.json"):
            shutil.copy(other / name, place.run)
        return VERBS[verb][0](place)


_add_vocabulary("encode", "another vocabulary")
_add_vocabulary("export", "another vocabulary")


@case(GROUP, "another vocabulary in VOCABULARY: `pretrain`", "belongs to another run", slow=True)
def _other_setting(place: Place) -> Said:
    words = f"--gin.VOCABULARY='{other_vocabulary(place)}'"
    return place.pretrain(words, steps=STEPS + 2)


@case(GROUP, "the run.json of a larger run: `encode`", "does not fit the model", slow=True)
def _larger(place: Place) -> Said:
    other = other_run(place, "--gin.model.dim=64")
    shutil.copy(other / "run.json", place.run)
    return encode(place)


@case(GROUP, "the checkpoints of another run: `pretrain`", "belongs to another run", slow=True)
def _other_checkpoints(place: Place) -> Said:
    other = other_run(place, "--gin.SEED=7")
    for name in ("checkpoints", "data_state"):
        shutil.rmtree(place.run / name)
        shutil.copytree(other / name, place.run / name)
    return pretrain(place)


def _add_from_another(name: str) -> None:
    @case(
        GROUP,
        f"the {name} of another run: `report`",
        "is not what it was when the run ended",
        0,
        slow=True,
    )
    def _run(place: Place) -> Said:
        other = other_run(place, "--gin.SEED=7")
        shutil.copy(other / name, place.run)
        return report(place)


for _name in ("metrics.jsonl", "result.json"):
    _add_from_another(_name)
