"""What a run is: the values that must stay the same for it to be continued, its description in
run.json, and what its files were when it ended, in result.json."""

import contextlib
import dataclasses
import functools
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from xlingjax import __version__
from xlingjax.data.fingerprint import code_of
from xlingjax.errors import UserError
from xlingjax.model.build import count_parameters
from xlingjax.model.config import ModelConfig
from xlingjax.runtime.checked_file import hash_of
from xlingjax.runtime.files import parsed_json, write_json
from xlingjax.runtime.machine import of_processes
from xlingjax.runtime.records import ANY, NUMBER, read_record
from xlingjax.training.tracker import scalars

RESULT_FILE = "result.json"
DENSE_FILE = "sentences.npz"
FILES = (
    "run.json",
    "config.gin",
    "best.json",
    "metrics.jsonl",
    "evaluations.jsonl",
    "log.txt",
    "rows.json",
)
"""Those whose lines or values are shown or computed with."""
_HASHES, _HASH = "hashes", "hash"
_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


def write_hashes(workdir: Path) -> None:
    """Puts the hashes of the run's files into result.json, and its own. Raises OSError."""
    path = workdir / RESULT_FILE
    result = parsed_json(path.read_bytes())
    contents = {name: (workdir / name).read_bytes() for name in FILES if (workdir / name).is_file()}
    result[_HASHES] = {name: [len(one), hash_of(one)] for name, one in contents.items()}
    result.pop(_HASH, None)
    write_json(path, result | {_HASH: _hash_of(result)})


def warn_of_changes(workdir: Path, names: Iterable[str] = FILES) -> None:
    """Warns of each of these files, and of result.json, that is not what it was when the run ended.
    Nothing of a run that goes on or is of goes on."""
    try:
        result = parsed_json((workdir / RESULT_FILE).read_bytes())
        own = result.pop(_HASH)
        hashes = {name: (int(size), str(value)) for name, (size, value) in result[_HASHES].items()}
    # What is no result at all its readers refuse.
    except (*_MISSING, ValueError, LookupError, TypeError, AttributeError):
        return
    if own != _hash_of(result):
        _warn(workdir / RESULT_FILE)
        return
    for name in (one for one in names if one in hashes):
        size, value = hashes[name]
        found = None
        with contextlib.suppress(*_MISSING), open(workdir / name, "rb") as file:
            # What was added since is lines of `evaluate`.
            found = hash_of(file.read(size))
        if found != value:
            _warn(workdir / name)


def _hash_of(value: Any) -> str:
    return hash_of(json.dumps(value, sort_keys=True).encode())


# Once a process: a record is read several times.
@functools.lru_cache
def _warn(path: Path) -> None:
    print(
        f"warning: {path} is not what it was when the run ended: edited, damaged or removed since",
        file=sys.stderr,
    )


# Fields that a continued run may change: how fast or noisily it learns, not what parameters are.
FREE_MODEL_FIELDS = (
    "name",
    "dropout",
    "attention_dropout",
    "classifier_dropout",
    "init_std",
    "language_init",
    "dtype",
    "unroll",
    "remat",
    "attention_backend",
)


_REMEDY = "put it back from a copy, or name another run"
RUN = {
    "model?": {str: ANY},
    "languages?": [str],
    "identity?": {"model?": {str: ANY}, "data?": {str: {str: ANY}}},
    "config?": {str: ANY},
    "sentences?": (None, {str: ANY}),
    "labels?": (None, [str]),
    "sessions?": [{str: ANY}],
}
"""run.json, as far as others read it (see `records.misfit`)."""
RESULT = {
    "steps?": int,
    "exit_reason?": str,
    "tokens_seen?": NUMBER,
    "tokens_per_second?": NUMBER,
    "evaluations?": {str: {str: ANY}},
    "best?": {str: {"step": int, "value": NUMBER}},
    "stopped_early?": (None, {str: ANY}),
}
"""result.json, as far as others read it."""

# Fields of an objective that are not switches: how it computes, what follows from its class.
_NO_SWITCHES = ("name", "reads", "coefficients", "chunk")


def run_identity(
    model: Any, sources: Mapping[str, Any], objectives: Mapping[str, Any], seed: int, optimizer: Any
) -> dict[str, Any]:
    """JSON values that a checkpoint carries. sources, objectives: {stage of an objective: its
    BatchSource, itself}. Not in it, because a continued run may change them: number of steps,
    learning rate, mesh, microbatches, precision."""
    shape = dataclasses.asdict(model)
    # The weights mean the same with any of them, so a continued run may change them.
    for field in FREE_MODEL_FIELDS:
        shape.pop(field, None)
    identity = {
        "seed": seed,
        "model": shape,
        "optimizer": {"name": optimizer.name, "frozen": optimizer.frozen},
        "objectives": sorted(sources),
        # An objective's options change what its checkpoint has learnt, its data what comes next.
        "switches": {name: _switches(objective) for name, objective in objectives.items()},
        "data": {name: source.identity for name, source in sources.items()},
    }
    # As it will be read again: tuples become lists, numbers of steps become texts.
    return json.loads(json.dumps(identity))


def _switches(objective: Any) -> dict[str, Any]:
    # One of a user's own may be any class: its options are not known.
    if not dataclasses.is_dataclass(objective):
        return {}
    fields = _options(objective)
    return {name: value for name, value in fields.items() if name not in _NO_SWITCHES}


def _options(objective: Any) -> dict[str, Any]:
    """Its fields; of dense layers (`inference.sentences.Dense`), which are arrays, the hash."""
    fields = dataclasses.asdict(objective)
    if dense := getattr(objective, "dense", None):
        fields["dense"] = hash_of(dense.content())
    return fields


def vocabulary_of(identity: Mapping[str, Any]) -> Any:
    """The hash of the vocabulary behind a run's batches; None if its sources do not tell."""
    return _of_data(identity, "vocabulary")


def languages_of(identity: Mapping[str, Any]) -> Any:
    """The languages by whose numbers a run's batches were made; None if its sources do not tell."""
    return _of_data(identity, "languages")


def _of_data(identity: Mapping[str, Any], field: str) -> Any:
    data = identity.get("data", {}).values()
    return next((one[field] for one in data if field in one), None)


def differences(saved: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(field, saved value, our value) of every difference of two JSON trees; absent is None."""
    if isinstance(saved, dict) and isinstance(ours, dict):
        for key in sorted(saved.keys() | ours.keys()):
            below = f"{path}.{key}" if path else key
            yield from differences(saved.get(key), ours.get(key), below)
    elif saved != ours:
        yield path, saved, ours


def changed_course(workdir: Path, course: Mapping[str, Any]) -> str:
    """What a run that goes on changes of its course, in words; "": nothing, or no record."""
    path = workdir / "run.json"
    if not path.is_file():
        return ""
    saved = read_run_record(workdir)
    changes = differences({name: saved.get(name) for name in course}, dict(course))
    return ", ".join(f"{field} is {now}, was {was}" for field, was, now in changes)


def require_same(saved: dict[str, Any], ours: dict[str, Any], checkpoint: Any) -> None:
    """Raise UserError naming each field that differs with both values."""
    differing = list(differences(saved, ours))
    if not differing:
        return
    if any(".vocabulary" in path for path, _, _ in differing):
        # Texts and tables differ because of it, and would hide it.
        differing = [x for x in differing if ".vocabulary" in x[0] or not x[0].startswith("data.")]
    raise UserError(
        f"{checkpoint} belongs to another run: {_told(differing, 'checkpoint', 'this run')}; choose"
        " another --to (INIT_FROM takes over the parameters), or restore the old setting"
    )


def require_branch(saved: Mapping[str, Any], ours: Mapping[str, Any], name: str) -> None:
    """Raise UserError unless a checkpoint's weights and moments are those of this run: the model,
    the optimizer and the vocabulary; the languages where they number parameters."""
    parts = []
    for identity in (saved, ours):
        part = {field: identity[field] for field in ("model", "optimizer")}
        config = ModelConfig("", **part["model"])
        # A longer context turns by another theta, with the same parameters.
        if config.positions == "rotary":
            free = ("rotary_theta", "rotary_scale", "local_theta", "max_positions")
            part["model"] = {k: v for k, v in part["model"].items() if k not in free}
        part["vocabulary"] = vocabulary_of(identity)
        if config.tells_languages():
            part["languages"] = languages_of(identity)
        parts.append(part)
    if differing := list(differences(*parts)):
        raise UserError(
            f"{name} is of another run: {_told(differing, 'it', 'this run')}; restore the old"
            " setting, or take its parameters alone with INIT_FROM"
        )


def require_alike(ours: Mapping[str, Any]) -> None:
    """Raise UserError, in every process, unless all have these values of JSON; names what differs.
    Each process calls it."""
    first, *others = of_processes(ours)
    for number, theirs in enumerate(others, 1):
        if differing := list(differences(theirs, first)):
            told = _told(differing, f"process {number}", "process 0")
            raise UserError(
                f"the processes are of different runs: {told}; start all of them with the same"
                " settings, text, code and packages"
            )


def _told(differing: Sequence[tuple[str, Any, Any]], one: str, other: str) -> str:
    # A few name the cause; a whole mixture would fill the terminal.
    return "; ".join(
        f"{path}: {one} has {json.dumps(theirs):.80}, {other} has {json.dumps(own):.80}"
        for path, theirs, own in differing[:4]
    )


def require_one_run(runs: Mapping[str, Any], evaluators: Sequence[Any], **settings: Any) -> None:
    """`require_alike` of all known before any text is read. runs: {stage: its `ObjectiveRun`}."""
    if jax.process_count() == 1:
        return
    own = [run.objective for run in runs.values()]
    by_evaluator = {}
    for one in evaluators:
        texts = [(text.languages, text.lines) for text in one.held_out()]
        lines = repr([*texts, *(records for _, records in one.examples())])
        numbers = scalars(getattr(one, "__dict__", {}))
        by_evaluator[one.name] = numbers | {"held_out": hash_of(lines.encode())}
    # Text may lie elsewhere on each host; what it is, is compared when it is opened.
    objectives = {
        name: [{**run.batches.settings, "mono": None}, run.objective] for name, run in runs.items()
    }
    of_run = {
        **settings,
        "objectives": objectives,
        "evaluators": by_evaluator,
        "code": code_of(*own, *evaluators),
        "packages": versions(),
    }
    require_alike(json.loads(json.dumps(of_run, default=_as_json)))


def _as_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # Not its words, which may hold an address in memory.
    return getattr(value, "__qualname__", type(value).__qualname__)


def run_languages(sources: Mapping[str, Any], model: Any) -> tuple[str, ...]:
    """The languages of the run, index = language id. Raises UserError when sources number them
    differently and when the model has too few language embeddings."""
    (first, source), *others = sources.items()
    for name, other in others:
        if other.languages != source.languages:
            raise UserError(
                f"objectives {first} and {name} number languages differently: set LANGUAGES, or"
                " give every mixture the same list"
            )
    if model.num_languages > 1 and len(source.languages) > model.num_languages:
        raise UserError(
            f"the run has {len(source.languages)} languages, model.num_languages is"
            f" {model.num_languages}; raise it"
        )
    return tuple(source.languages)


def check_length(name: str, length: int, model: ModelConfig, positions: int = 0) -> None:
    """Raise UserError when an objective's rows use more positions than the model has. positions:
    0: as many as columns; fewer where they begin anew within a row, more where pseudo tokens have
    their own."""
    room = model.max_positions - model.position_offset
    needed = positions or length
    if needed > room:
        raise UserError(
            f"objective {name}: rows of {length} tokens use {needed} positions and model"
            f" {model.name} has {room}; lower LENGTH (TLM_LENGTH, BTMLM_LENGTH), or for a new model"
            f" set model.max_positions={needed + model.position_offset}"
        )


def required_fields(name: str, reads: Sequence[str], shapes: Mapping[str, Any]) -> dict[str, Any]:
    """The shapes of the fields that an objective reads. Raises UserError for one not there."""
    missing = [field for field in reads if field not in shapes]
    if missing:
        raise UserError(
            f"objective {name} reads {missing[0]!r}; its data source has only"
            f" {', '.join(sorted(shapes))}: use the one of its own features"
        )
    return {field: tuple(shapes[field]) for field in reads}


def schedule_record(
    runs: Mapping[str, Any], weights: Mapping[str, Any], steps: int, mode: str, optimizer: Any
) -> dict[str, Any]:
    """What run.json says of a run's course. runs: {stage of an objective: its `ObjectiveRun`}."""

    def settings(run: Any) -> dict[str, Any]:
        of_objective = _options(run.objective)
        of_objective.pop("name", None)
        return {**run.batches.settings, **of_objective}

    of_optimizer = dataclasses.asdict(optimizer)
    if not of_optimizer["options"]:
        del of_optimizer["options"]
    record = {
        "steps": steps,
        "schedule": mode,
        "weights": dict(weights),
        "optimizer": of_optimizer,
        "stages": {name: settings(run) for name, run in runs.items()},
    }
    # `default`: what an own objective holds may be no JSON, and is only shown.
    return json.loads(json.dumps(record, default=str))


def versions() -> dict[str, str]:
    """Versions of what computes and of what reads the data, as installed."""
    installed = {"python": platform.python_version(), "xlingjax": __version__}
    packages = "jax jaxlib flax optax orbax-checkpoint numpy grain seqio tensorflow"
    packages += " sentencepiece tokenizers"
    for package in packages.split():
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return installed


def write_run(
    workdir: Path, record: Mapping[str, Any], feed: Any, session: Mapping[str, Any]
) -> None:
    """run.json: the newest start's description (`record`, and what the open `Feed` says of it),
    and one entry in "sessions" for every start."""
    model = feed.model.config
    described = {
        "languages": feed.languages,
        "parameters": count_parameters(model),
        "model": dataclasses.asdict(model),
        "shapes": feed.shapes,
    }
    path = workdir / "run.json"
    sessions = []
    # A first start, or a file that was damaged: history is no reason to stop.
    with contextlib.suppress(FileNotFoundError, UserError):
        sessions = read_record(path, RUN, "").get("sessions", [])
    session = {"time": time.strftime("%Y-%m-%d %H:%M:%S"), **session, "versions": versions()}
    write_json(path, {**record, **described, "sessions": [*sessions, session]})


def run_and_checkpoint(path: str | Path) -> tuple[Path, str]:
    """(workdir, which checkpoint) that a RUN names: itself ("" = the newest); RUN@STEP and
    RUN@METRIC, the best by that metric; RUN/checkpoints/STEP. Raises UserError: no RUN."""
    text = str(path)
    path = Path(path)
    if not text or (text.startswith("@") and not path.exists()):
        raise UserError(f"no run is named: {text!r}; give RUN, RUN@STEP or RUN@METRIC")
    before, _, which = text.rpartition("@")
    # The name of a folder may have an "@" of its own.
    if not path.exists() and before and Path(before).is_dir():
        return Path(before), which
    folder = path.absolute()
    for run, step in ((folder.parent, ""), (folder.parent.parent, folder.name)):
        inside = run / "checkpoints" in (folder, folder.parent)
        if inside and (run / "run.json").is_file():
            return run, step
    return path, ""


def read_run_record(run: str | Path) -> dict[str, Any]:
    """run.json of the workdir of a run, which may be named with a checkpoint. Raises UserError when
    it is not there or damaged; a name that it lacks does so when it is asked for."""
    path = run_and_checkpoint(run)[0] / "run.json"
    try:
        record = read_record(path, RUN, _REMEDY)
    except FileNotFoundError:
        remedy = "give the workdir of a training run (INIT_FROM: of a pretraining run)"
        raise UserError(f"missing file: {path}; {remedy}") from None
    for name in ("model", "identity"):
        if name in record:
            record[name] = _Table(record[name], path, f"{name}.")
    return _Table(record, path)


class _Table(dict[str, Any]):
    """A table of run.json: what it lacks is told in one line."""

    def __init__(self, values: Mapping[str, Any], path: Path, within: str = ""):
        super().__init__(values)
        self._where = f"{path}: {within}"

    def __missing__(self, name: str) -> Any:
        raise UserError(f"{self._where}{name} is missing; {_REMEDY}")


def model_of(run: str | Path) -> ModelConfig:
    """The shape of a run's model, from its run.json. Raises UserError."""
    path = run_and_checkpoint(run)[0] / "run.json"
    fields = read_run_record(run)["model"]
    try:
        return ModelConfig(**fields)
    # Of fields that are missing or that this version does not know, and of other types.
    except (TypeError, ValueError, UserError) as error:
        raise UserError(f"{path}: model: {error}; {_REMEDY}") from None


def read_result(workdir: Path) -> dict[str, Any]:
    """result.json of a run; {}: it has not ended. Raises UserError: damaged."""
    warn_of_changes(workdir, ())
    try:
        return read_record(workdir / RESULT_FILE, RESULT, "remove it, and start the run again")
    except FileNotFoundError:
        return {}


# Before the name of a task whose head an objective trains, of a model with several.
_HEAD = "classification_"


def task_of_head(objective: str) -> str | None:
    """The task whose head an objective trains, of a model with several; None: of one."""
    return objective.removeprefix(_HEAD) if objective.startswith(_HEAD) else None


def labels_of(record: Mapping[str, Any], task: str | None = None) -> list[str]:
    """Names of the classes of a run's head, in the order of its outputs, from its run.json; none
    where that does not tell them. task: whose head, of a run with several."""
    sources = record.get("identity", {}).get("data", {})
    if task is not None:
        return list(sources.get(f"{_HEAD}{task}", {}).get("labels", ()))
    told = [record.get("labels"), *(data.get("labels") for data in sources.values())]
    return list(next(filter(None, told), ()))
