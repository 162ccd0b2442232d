"""`xlingjax adapt`: a released model learns on one's own text, as a folder for `AutoModel`.

Everything lies in one folder: `start` (the model as it came), `heldout`, `recipe.gin` (all that was
decided, to be read, changed and run again), `run`, `model` (the export), `adapted.json`. The same
command goes on where it was stopped. Where the training made the model worse on what was held out,
`model` is the first model and `adapted` what became of it.
"""

import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlingjax.config.recipe import bindings, read_recipe
from xlingjax.convert.export_model import export_model, require_exportable
from xlingjax.errors import UserError
from xlingjax.report import html
from xlingjax.report.run import read_run
from xlingjax.runtime.files import write_json
from xlingjax.runtime.lock import alone_in
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.runtime.records import ANY, read_record
from xlingjax.training.workdir import require_empty
from xlingjax.workflows.adapt.before_after import compared, pairs_of, worse
from xlingjax.workflows.adapt.prepare import prepare
from xlingjax.workflows.adapt.request import STAND_INS, Request, is_run
from xlingjax.workflows.launch import ended, launch

RECORD = "adapted.json"
SHOWN = 4  # differences that an error names


@dataclasses.dataclass(frozen=True)
class Export:
    """How `model` is written. keep_worse: adapted even if worse; others: see `export_model`."""

    unverified: bool = False
    language: str = ""
    license: str = ""
    base: str = ""
    keep_worse: bool = False


def adapt(
    request: Request, output: str, machine: RuntimeConfig, export: Export | None = None
) -> int:
    """The exit status: 0, or that of a training that was asked to stop. Raises UserError."""
    folder = Path(output).absolute()
    if " " in str(folder) or "," in str(folder):
        raise UserError(
            f"--to {folder}: a recipe separates paths by spaces and commas; give another"
        )
    with alone_in(folder, "choose another --to"):
        return _adapted(request, folder, machine, export or Export())


def _adapted(request: Request, folder: Path, machine: RuntimeConfig, export: Export) -> int:
    record = _begun(request, folder)
    model = folder / "model"
    if model.is_dir():
        # It is not written a second time, so options that it lacks would be dropped in silence.
        differing = _differing(record["export"], _flags(export))
        if differing:
            raise UserError(
                f"{model} was written with {differing}; another one: xlingjax export"
                f" {folder / 'run'} --to DIR, with the new options"
            )
    if "settings" not in record:
        # What cannot be exported is refused before hours of training, not after.
        record |= prepare(
            request,
            folder,
            machine,
            not export.unverified,
            lambda start: require_exportable(start, not export.unverified, export.language),
        )
        # Written when all is prepared: a record with settings tells a later start to go on.
        write_json(folder / RECORD, record)
    recipe = read_recipe([str(folder / "recipe.gin")], ())
    until = None
    if request.hours:
        until = time.monotonic() + record["training_seconds"]
    # A run that ended when its time was over has steps left, and is whole all the same.
    if ended(folder / "run"):
        print("the training has ended: nothing left to do in it")
    elif status := launch(recipe, folder / "run", "pretrain", machine, until):
        return status

    after = read_run(folder / "run")
    rows = compared(read_run(folder / "start"), after)
    worsened = worse(rows, pairs_of(after))
    write_json(
        folder / RECORD,
        record | {"before_after": rows, "worse": worsened, "export": _flags(export)},
    )
    if rows:
        print(html.render("before_after.txt", rows=rows), end="")
    else:
        print("nothing was measured: no text was held out")

    exports = {"model": "run"}
    if worsened and not export.keep_worse:
        # `model` last: while it is not there, the same command goes on.
        exports = {"adapted": "run", "model": "start"}
        print(
            f"the adapted model is worse than the first: {'; '.join(worsened)}. {model} is the"
            f" first model as it came, {folder / 'adapted'} the adapted one; --keep-worse exports"
            " it all the same; a lower --gin.LEARNING_RATE, fewer steps or more text may help"
        )
    elif worsened:
        print(f"worse than the first model, and kept (--keep-worse): {'; '.join(worsened)}")
    base = export.base
    # The hub's id, where the first model is neither a folder nor a run.
    if not (Path(request.source).exists() or is_run(request.source)):
        base = base or request.source
    for name, run in exports.items():
        if (folder / name).is_dir():
            continue
        exported = export_model(
            str(folder / run),
            str(folder / name),
            not export.unverified,
            export.language,
            export.license,
            base,
            name=folder.name,
            before_after=rows if run == "run" else (),
        )
        print(exported)
    print(
        f"{model} opens with AutoModel; {folder / 'run' / 'report.html'} shows the run;"
        f" to train it again: xlingjax pretrain --gin-file {folder / 'recipe.gin'} --to DIR"
    )
    return 0


def _begun(request: Request, folder: Path) -> dict:
    """adapted.json of the folder, which is new, or was begun with the same options and gin files
    that bind the same. Raises UserError where they differ."""
    # What is bound is known without the model and the text, so a folder that was begun with other
    # options is refused at once. It says more than the names of files, which may be of other text
    # by now.
    files = [*request.included_files, *request.files]
    bound = bindings(files, [*STAND_INS, *request.overrides])
    requested = _flags(request) | bound
    for name in ("--files", "--overrides"):
        del requested[name]
    # As JSON gives them back: tuples become lists.
    new = {"requested": json.loads(json.dumps(requested))}
    path = folder / RECORD
    if not path.is_file():
        require_empty(str(folder))
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, new)
        return new
    shape = {
        "requested": {str: ANY},
        "settings?": {str: ANY},
        "training_seconds?": float,
        "export?": {str: ANY},
    }
    record = read_record(path, shape, "choose another --to")
    if "settings" not in record:  # nothing was decided yet
        return new
    differing = _differing(record["requested"], new["requested"])
    if differing:
        raise UserError(
            f"{folder} was begun with {differing}; give the old to go on, or another --to"
        )
    return record


def _flags(options: Any) -> dict:
    """{option of the command line: value} of a dataclass."""
    flags = {}
    for name, value in dataclasses.asdict(options).items():
        flags[f"--{'from' if name == 'source' else name.replace('_', '-')}"] = value
    return flags


def _differing(before: Mapping, now: Mapping) -> str:
    """The first options and names of gin that differ, with both values, in one line; "": none."""
    differences = []
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            differences.append(f"{name} {before.get(name)}, now {now.get(name)}")
    return "; ".join(differences[:SHOWN])
