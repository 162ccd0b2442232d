"""`xlingjax adapt`: a released model goes on learning on one's own text, and becomes a folder that
`AutoModel` opens.

Everything lies in one folder: `start` (the model as it came), `heldout`, `recipe.gin` (all that was
decided, to be read, changed and run again), `run`, `model` (the export), `adapted.json`. The same
command goes on where it was stopped. Where the training made the model worse on what was held out,
`model` is the first model and `adapted` what became of it.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.config.recipe import bindings, read_recipe
from xlingjax.convert.export_model import export_model, require_exportable
from xlingjax.errors import UserError
from xlingjax.report.run import read_run
from xlingjax.runtime.files import write_json
from xlingjax.runtime.lock import alone_in
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.runtime.records import ANY, read_record
from xlingjax.training.run_record import run_and_checkpoint
from xlingjax.training.workdir import require_empty
from xlingjax.workflows.adapt_prepare import prepare
from xlingjax.workflows.adapt_request import STAND_INS, Request
from xlingjax.workflows.before_after import compared, notes, pairs_of, table, worse
from xlingjax.workflows.launch import launch

RECORD = "adapted.json"
SHOWN = 4
"""Differences that an error names."""


def adapt(
    request: Request,
    output: str,
    machine: RuntimeConfig,
    verify: bool = True,
    language: str = "",
    licence: str = "",
    base: str = "",
    keep_worse: bool = False,
) -> int:
    """The exit status: 0 done; that of the training where it was asked to stop. verify, language,
    licence, base: of `export_model`. keep_worse: `model` is the adapted one even where it is worse
    than the first. Raises UserError."""
    folder = Path(output).absolute()
    if " " in str(folder) or "," in str(folder):
        raise UserError(
            f"--to {folder}: a recipe separates paths by spaces and commas; give another"
        )
    with alone_in(folder, "choose another --to"):
        return _adapted(
            request,
            folder,
            machine,
            {
                "--unverified": not verify,
                "--language": language,
                "--license": licence,
                "--base": base,
                "--keep-worse": keep_worse,
            },
        )


def _adapted(request: Request, folder: Path, machine: RuntimeConfig, export: dict[str, Any]) -> int:
    verify = not export["--unverified"]
    language = export["--language"]
    keep_worse = export["--keep-worse"]
    model = folder / "model"
    files = [*request.included_files, *request.files]
    # What is bound is known without the model and the text, so a folder
    # that was begun with other options is refused at once.
    bound = bindings(files, [*STAND_INS, *request.overrides])
    record = _begun(request, folder, bound)
    if model.is_dir():
        # The model is not written a second time, so options
        # that it lacks would be dropped in silence.
        # Without a word of it the adapted one was written in any case.
        before = {"--keep-worse": True} | record.get("export", export)
        _require_same_export(folder, before, export)
    if "settings" not in record:
        # What cannot be exported is refused before hours of training, not after.
        record |= prepare(
            request, folder, machine, lambda start: require_exportable(start, verify, language)
        )
        # Written when everything is prepared: a record with
        # settings is what tells a later start that it goes on.
        record["bound"] = bound
        write_json(folder / RECORD, record)
    # From the file, which a user may have changed since: it says all that was decided.
    recipe = read_recipe([str(folder / "recipe.gin")], ())
    status = launch(recipe, folder / "run", "pretrain", machine)
    if status:
        return status

    # Kept before the export, whose model card shows it and which may still fail.
    after = read_run(folder / "run")
    rows = compared(read_run(folder / "start"), after)
    pairs = pairs_of(after)
    worsened = worse(rows, pairs)
    record["before_after"] = rows
    record["worse"] = worsened
    if not model.is_dir():
        record["export"] = export
    write_json(folder / RECORD, record)
    if rows:
        print("\n".join([table(rows), *notes(rows, pairs)]))
    else:
        print("nothing was measured: no text was held out")

    base = export["--base"] or _base_of(request.source)
    card = (language, export["--license"], base)
    if worsened and not keep_worse:
        # `model` last: while it is not there, the same command goes on.
        _export(folder, "run", "adapted", verify, card, rows)
        _export(folder, "start", "model", verify, card, ())
        print(
            f"the adapted model is worse than the first: {'; '.join(worsened)}. {model} is the"
            f" first model as it came, {folder / 'adapted'} the adapted one; --keep-worse exports"
            " it all the same; a lower --gin.LEARNING_RATE, fewer steps or more text may help"
        )
    else:
        _export(folder, "run", "model", verify, card, rows)
    if worsened and keep_worse:
        print(f"worse than the first model, and kept (--keep-worse): {'; '.join(worsened)}")
    print(
        f"{model} opens with AutoModel; {folder / 'run' / 'report.html'} shows the run;"
        f" to train it again: xlingjax pretrain --gin_file {folder / 'recipe.gin'} --workdir DIR"
    )
    return 0


def _export(
    folder: Path,
    run: str,
    name: str,
    verify: bool,
    card: tuple[str, str, str],
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """The run `run` of the folder as its model `name`, unless that is there. card: language,
    licence and base of the model card; rows: before and after, of the card."""
    if (folder / name).is_dir():
        return
    print(
        export_model(
            str(folder / run),
            str(folder / name),
            verify,
            *card,
            name=folder.name,
            before_after=rows,
        )
    )


def _base_of(source: str) -> str:
    """The hub's id that a model card names as its base; "": `source` is a folder or a run."""
    if Path(source).exists() or (run_and_checkpoint(source)[0] / "run.json").is_file():
        return ""
    return source


# ---- a folder that was begun ---------------------------------------------------------------------


def _begun(request: Request, folder: Path, bound: Mapping[str, str]) -> dict[str, Any]:
    """adapted.json of the folder, which is new, or was begun with the same options and gin files
    that bind the same. Raises UserError where they differ."""
    # As JSON gives them back: tuples become lists.
    options = json.loads(json.dumps(dataclasses.asdict(request)))
    path = folder / RECORD
    if not path.is_file():
        require_empty(str(folder))
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, {"asked": options})
        return {"asked": options}
    record = read_record(
        path,
        {"asked": {str: ANY}, "settings?": {str: ANY}, "bound?": {str: ANY}},
        "choose another --to",
    )
    if "settings" not in record:  # nothing was decided yet
        return {"asked": options}
    then = _flags(record["asked"])
    now = _flags(options)
    if "bound" in record:
        # What the gin files bind says more than their names, which may be of other text by now.
        for name in ("--files", "--overrides"):
            then.pop(name, None)
            now.pop(name, None)
        then |= record["bound"]
        now |= bound
    differing = _differing(then, now)
    if differing:
        raise UserError(
            f"{folder} was begun with {differing}; give the old to go on, or another --to"
        )
    return record


def _flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """{option of the command line: value}."""
    flags = {}
    for name, value in options.items():
        if name == "source":
            name = "from"
        flags[f"--{name}"] = value
    return flags


def _require_same_export(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise UserError where the model was exported with other options: it is not written again."""
    differing = _differing(before, now)
    if differing:
        raise UserError(
            f"{folder / 'model'} was written with {differing}; another one: xlingjax export"
            f" {folder / 'run'} --to DIR, with the new options"
        )


def _differing(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The options and names of gin that differ, with both values, in one line; "": none."""
    differences = []
    for name in {**then, **now}:
        before = then.get(name)
        after = now.get(name)
        if before != after:
            differences.append(f"{name} {_said(before)}, now {_said(after)}")
    line = "; ".join(differences[:SHOWN])
    if len(differences) > SHOWN:
        line += f" (and {len(differences) - SHOWN} more)"
    return line


def _said(value: Any) -> str:
    if value in (None, "", []):
        return "nothing"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(value)
