"""What a table of a paper trains beside sweeps: encoders by recipes, rows that are a training by a
recipe, and commands on them.

In their words {NAME} stands for what the table was given under it, or for the run of an encoder;
{data} and {folder} for the folders of the benchmarks' files and of the row; {run} for its training,
{encoder} for the run of the encoder whose row it is.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError
from xlingjax.workflows.jobs.recipe_run import slug
from xlingjax.workflows.table_jobs import FINETUNE_RECIPE, PRETRAIN

OF_ENCODER = {"recipe", "verb", "settings", "from"}
OF_RECIPE = {"recipe", "verb", "settings", "then", "encoders"}
OF_COMMANDS = {"then", "encoders"}
KIND_OF_VERB = {"pretrain": PRETRAIN, "finetune": FINETUNE_RECIPE}
COMMANDS = ("align", "average", "encode", "evaluate", "generate", "mine")
COMMANDS += ("score", "translate", "words")
"""Verbs that may stand in "then"."""
# {language} and {task} are of patterns of files, which recipes fill in themselves.
_PLACEHOLDER = re.compile(r"\{(?!(?:language|task)\})([A-Za-z_]\w*)\}")
_OF_ROW = ("data", "folder", "run", "encoder")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

Row = Mapping[str, Any]


def has_recipe(row: Row) -> bool:
    return "recipe" in row


def has_commands_alone(row: Row) -> bool:
    return "then" in row and not {"recipe", "task"} & {*row}


def is_sweep(row: Row) -> bool:
    """Whether a task of a benchmark is behind the row, and not a recipe or a command."""
    return not has_recipe(row) and not has_commands_alone(row)


def is_of_an_encoder(row: Row) -> bool:
    """Whether the row is there once for each encoder."""
    if is_sweep(row) or "encoders" in row:
        return True
    named = placeholders(_words(row))
    if has_commands_alone(row) and "run" in named:
        return True
    return "encoder" in named


def require_sound(row: Row) -> None:
    """Of a row that is no sweep. Raises UserError for a field that it cannot have or a command that
    cannot be run."""
    fields = OF_COMMANDS
    if has_recipe(row):
        fields = OF_RECIPE
        _require_recipe(row)
    _require_fields(row, fields)
    then = row.get("then", {})
    if not isinstance(then, Mapping):
        raise UserError(f'"then": {then!r} must be {{name: command}}')
    if not then and not has_recipe(row):
        raise UserError('"then" is empty: give {name: command}')
    for label, command in then.items():
        if not isinstance(label, str) or not _LABEL.fullmatch(label):
            raise UserError(
                f'"then", {label!r}: a name is letters, digits, "_", "." and "-": a file is named'
                " by it"
            )
        if not isinstance(command, str):
            raise UserError(f'"then", {label!r}: {command!r} is no command')
        verb = command.split(" ")[0]
        if verb not in COMMANDS:
            raise UserError(f'"then", {label!r}: {verb!r} is not one of {", ".join(COMMANDS)}')
        try:
            shlex.split(command)
        except ValueError as fault:
            raise UserError(f'"then", {label!r}: {fault}') from None


def require_sound_encoders(encoders: Mapping[str, Any]) -> None:
    """Raises UserError for an encoder that is neither a run nor trained by a recipe, and for some
    that start from one another."""
    for name, encoder in encoders.items():
        if isinstance(encoder, str):
            continue
        try:
            if not isinstance(encoder, Mapping):
                raise UserError(f'{encoder!r} is neither a run nor {{"recipe": ...}}')
            _require_recipe(encoder)
            _require_fields(encoder, OF_ENCODER)
            giver = encoder.get("from")
            if giver is not None and giver not in encoders:
                raise UserError(f'"from": {giver!r} is none of the encoders: {", ".join(encoders)}')
        except UserError as fault:
            raise UserError(f"table, encoder {name!r}: {fault}") from None
    in_order(encoders, encoders)


def _require_recipe(row: Row) -> None:
    if not isinstance(row.get("recipe"), str):
        raise UserError('say how it is trained: "recipe": "recipes/NAME.gin"')
    verb = row.get("verb", "pretrain")
    if verb not in KIND_OF_VERB:
        raise UserError(f'"verb": {verb!r} is not one of {", ".join(KIND_OF_VERB)}')
    settings = row.get("settings", [])
    if not isinstance(settings, list | tuple):
        raise UserError(f'"settings": {settings!r} must be a list of gin files and NAME=VALUE')


def _require_fields(row: Row, fields: Iterable[str]) -> None:
    strange = sorted({*row} - {*fields})
    if strange:
        raise UserError(f"{strange[0]!r} is not one of {', '.join(sorted(fields))}")


def _words(row: Row) -> list[str]:
    """All in which a placeholder may stand."""
    return [*row.get("settings", ()), *row.get("then", {}).values()]


def placeholders(words: Iterable[str]) -> list[str]:
    """The names in curly brackets, in order, each once."""
    named: dict[str, None] = {}
    for word in words:
        named.update(dict.fromkeys(_PLACEHOLDER.findall(str(word))))
    return [*named]


def givers(row: Row, encoders: Mapping[str, Any]) -> list[str]:
    """The encoders that a row or an encoder names, in its words or as "from"."""
    named = [name for name in placeholders(_words(row)) if name in encoders]
    if row.get("from"):
        named.insert(0, row["from"])
    return named


def given_names(row: Row, encoders: Mapping[str, Any]) -> list[str]:
    """What a row or an encoder reads of that which the table was given."""
    named = placeholders(_words(row))
    return [name for name in named if name not in encoders and name not in _OF_ROW]


def in_order(encoders: Mapping[str, Any], wanted: Iterable[str]) -> list[str]:
    """Of the wanted encoders and those that they start from, the ones that a recipe trains, givers
    first. Raises UserError where they start from one another."""
    ordered: dict[str, None] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " from ".join([*path[path.index(name) :], name])
            raise UserError(f"table, encoders: {circle}: none can begin")
        if isinstance(encoders[name], str) or name in ordered:
            return
        for giver in givers(encoders[name], encoders):
            visit(giver, (*path, name))
        ordered[name] = None

    for name in wanted:
        visit(name, ())
    return [*ordered]


def filled(word: str, values: Mapping[str, Any]) -> str:
    """The word with its placeholders replaced."""
    return _PLACEHOLDER.sub(lambda found: str(values[found[1]]), word)


def recipe_words(row: Row, values: Mapping[str, Any]) -> list[str]:
    """The options of `pretrain` and `finetune` that say what a row or an encoder trains."""
    words = ["--gin_file", row["recipe"]]
    for setting in row.get("settings", ()):
        word = filled(setting, values)
        # By what is written in the table: a path that is filled in may have any letter.
        if "=" in setting:
            words.append(f"--gin.{word}")
        else:
            words += ["--gin_file", word]
    return words


def command_words(command: str, values: Mapping[str, Any]) -> list[str]:
    """A command of "then" as words, the verb first."""
    # Split before it is filled: a path may have spaces.
    return [filled(word, values) for word in shlex.split(command)]


def unset(row: Row, encoders: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Of what a row and the encoders that it needs read, the names that the table was not given a
    value for. Raises UserError for a name that the table does not know."""
    rows: Sequence[Row] = [row]
    for name in in_order(encoders, givers(row, encoders)):
        rows = [*rows, encoders[name]]
    missing = []
    for one in rows:
        for name in given_names(one, encoders):
            if name not in given:
                known = ", ".join([*given, *encoders, *_OF_ROW])
                raise UserError(f"{{{name}}} is not one of {known}")
            if given[name] is None and name not in missing:
                missing.append(name)
    return missing


def folder_of_encoder(output: str | Path, name: str) -> Path:
    return Path(output) / "encoders" / slug(name)
