"""Recipes: gin files and what is given beside them, read into the parts of a run.

What recipes bind are plain functions and dataclasses of the library (`config.bindable`); here they
get their gin names. A recipe's public knobs are its macros in CAPITALS: `--gin.TRAIN_STEPS=500`.
"""

import functools
import graphlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gin

from xlingjax import config
from xlingjax.config import foreign
from xlingjax.config.bindings import checked, fits, in_words
from xlingjax.config.durations import Clock, is_duration
from xlingjax.config.gin_files import (
    BINDING,
    IMPORT,
    MACRO,
    Part,
    Statement,
    gin_value,
    macros_of,
    parts_of,
    recipes,
    statements_of,
)
from xlingjax.convert import import_model
from xlingjax.errors import SettingError, UserError, did_you_mean, in_one_line
from xlingjax.runtime.numerals import is_number
from xlingjax.runtime.trust import trusting

FOREIGN = "hf:"
MIXTURES = {"MONO": "MIXTURE_OR_TASK_NAME", "PARALLEL": "TLM_MIXTURE"}


@dataclass(frozen=True)
class Recipe:
    """A recipe, bound: `plan` is train() not yet called, `config` its operative gin text."""

    plan: functools.partial
    corpus: Any
    config: str

    @property
    def bound(self) -> dict[str, Any]:
        return self.plan.keywords

    def require_decay(self) -> None:
        """Raise UserError where the warm-up leaves no step for the decay, before any training."""
        if optimizer := self.bound.get("optimizer"):
            optimizer.decay(self.bound["steps"])


@functools.cache
def registered() -> dict[str, Callable]:
    """Every name a recipe may bind and its function, registered with gin once per process."""
    functions = config.bindable()
    for name, function in functions.items():
        # Not by gin's decorator: the functions' own modules stay free of gin.
        _configurable(name, function)
    return functions


def register(name: str, function: Callable) -> None:
    """One more name for recipes to bind: what workflows read beside a run's own."""
    if name not in registered():
        registered()[name] = function
        _configurable(name, function)


def _configurable(name: str, function: Callable) -> None:
    guard = functools.partial(foreign.require_allowed, function=name)
    gin.external_configurable(checked(function, guard), name, module="xlingjax")


# {what is bound: where, at last}, of the recipe that gin holds, which are the process's own too.
_places: dict[str, str] = {}


def parse_gin(files: Sequence[str], overrides: Sequence[str]) -> None:
    """Read recipes, then `NAME=VALUE` overrides. Raises UserError: a missing file, bad syntax, an
    unknown name, a module that cannot be imported, or that only the file of a run names (see
    `foreign`). Values are checked by what is built."""
    registered()
    # gin keeps its bindings for the whole process: those of the recipe before would hold on.
    gin.clear_config()
    if not files:
        known = ", ".join(recipes())
        raise UserError(f"no recipe: pass --gin-file gin/recipes/NAME.gin (there are {known})")
    parts = list(parts_of(files))
    typed = [_override(override) for override in overrides]
    read = statements_of([*parts, *typed])
    # Before anything of a recipe is bound: nothing is imported of one that is refused.
    foreign.read_statements(read, registered())
    for part in parts:
        _parse(part)
    # Overrides are of macros that the files set.
    macros = [name for name in config_lines() if re.fullmatch(MACRO, name)]
    for part in typed:
        name = part.where.removeprefix("--gin.")
        if "." not in name and name not in macros:
            near = did_you_mean(name.upper(), macros)
            raise UserError(f"{part.where}: this recipe has no macro {name}{near}")
        _parse(part)
    _require_known(read)
    _places.clear()
    for one in read:
        if one.kind == BINDING:
            where = one.where
            _places[one.name] = where if one.part.is_override else f"{where}: {one.name}"
    _count_tokens(macros)
    # Before anything is converted or trained: a mistyped number should not cost that.
    _require_types()
    # Before values are required: an imported model may bring the vocabulary that is lacking.
    import_foreign(macros)
    for text, mixture in MIXTURES.items():
        # The files give way to the SeqIO mixture in their place.
        if {text, mixture} <= {*macros} and _value(mixture) is not None:
            gin.bind_parameter(f"{text}/macro.value", None)
    for macro in macros_of(files):
        if macro.name in macros and _is_required(_value(macro.name)):
            meaning = f" ({macro.meaning})" if macro.meaning else ""
            raise UserError(
                f"{macro.name} is not set and this recipe needs it: pass --gin.{macro.name}=..."
                f"{meaning}"
            )


def _parse(part: Part) -> None:
    """Have gin read a part. Raises UserError that says where, and which name was probably meant."""
    try:
        gin.parse_config(part.text)
    except (ValueError, SyntaxError, ImportError, TypeError) as error:
        # Without its traceback of the file. gin counts lines within the text.
        cause = str(error).splitlines()[0]
        line = re.findall(r"line (\d+)", str(error))
        where = part.place(int(line[-1])) if line else part.where
        if unknown := re.match(r"No configurable matching (?:reference )?'@?([\w./]+)", cause):
            name = unknown[1].split("/")[-1]
            cause = f"nothing is called {name!r}{did_you_mean(name, registered())}"
        elif unknown := re.match(
            r"Configurable '(.+)' doesn't have a parameter named '(.+)'", cause
        ):
            parameters = inspect.signature(registered()[unknown[1].rpartition(".")[2]]).parameters
            near = did_you_mean(unknown[2], parameters)
            cause = f"{unknown[1]!r} has no parameter {unknown[2]!r}{near}"
        raise UserError(f"{where}: {cause}") from None


def _override(override: str) -> Part:
    name, _, value = override.partition("=")
    try:
        is_float = any(character.isdigit() for character in value) and float(value) is not None
    except ValueError:
        is_float = False
    # Python alone takes 1_000 and ١٢ for numbers.
    if is_float and not is_number(value.strip()):
        raise UserError(f"--gin.{name}={value}: write a finite number, in the digits 0 to 9 alone")
    return Part(f"{name} = {gin_value(value)}", f"--gin.{name}")


def _require_known(read: Sequence[Statement]) -> None:
    """Raises UserError for what would be ignored in silence: a macro of a user's file that nothing
    of this recipe reads, a binding in a scope that no reference opens; for a macro that is read and
    that no file sets; and for one that is defined by itself."""
    macros = {one.name: one.macros for one in read if one.is_macro}
    known = {name for one in read for name in one.macros}
    scopes = {scope for one in read for name in one.references for scope in name.split("/")[:-1]}
    # A module may open scopes of its own.
    opens_others = any(one.kind == IMPORT for one in read)
    for one in read:
        # A knob of ours that this recipe happens not to read is no slip of the user.
        if one.part.is_ours:
            known.add(one.name)
            scopes.update(one.name.split("/")[:-1])
    for one in read:
        if one.kind == BINDING and not one.part.is_override:
            # Lower case too: `batch = 8` is how a macro is mistyped, and gin takes it.
            if one.is_macro and one.name not in known:
                near = did_you_mean(one.name.upper(), sorted(known))
                raise UserError(f"{one.where}: this recipe has no macro {one.name}{near}")
            unread = [] if one.is_macro else {*one.name.split("/")[:-1]} - scopes
            if unread and not opens_others:
                raise UserError(f"{one.where}: nothing is read in scope {min(unread)!r}")
        # A constant of a module, %module.NAME, is none.
        for name in sorted(one.macros - {*macros}):
            if "." not in name:
                near = did_you_mean(name, macros)
                raise UserError(f"{one.where}: %{name} names a macro that no file defines{near}")
    try:
        graphlib.TopologicalSorter(macros).prepare()
    except graphlib.CycleError as error:
        raise UserError(f"a macro is defined by itself: {' = '.join(error.args[1])}") from None


def _require_types() -> None:
    """Raise UserError for a literal of another type than the parameter that reads it declares. What
    references give is checked when it is built."""
    lines = config_lines()
    for bound in lines:
        name, _, parameter = bound.rpartition("/")[2].rpartition(".")
        # A macro, whose readers are checked; what gin alone knows declares no types.
        if name not in registered():
            continue
        key = _followed(bound, lines)
        value = _value(key) if key != bound and key in lines else gin.query_parameter(bound)
        annotation = _signature(registered()[name]).parameters[parameter].annotation
        # A reference is shown as @NAME() or %NAME, and strings in quotes.
        literal = not re.search(r"[@%]", re.sub(r"'[^']*'|\"[^\"]*\"", "", repr(value)))
        if literal and not fits(value, annotation):
            raise UserError(_refusal(bound, in_words(annotation), lines))


@functools.cache
def _signature(function: Callable) -> inspect.Signature:
    return inspect.signature(function, eval_str=True)


def _followed(bound: str, lines: Mapping[str, str]) -> str:
    """The macro at the end, or `bound` itself. lines: as of `config_lines`."""
    while macro := re.fullmatch(r"%(\w+)", lines.get(bound, "")):
        bound = macro[1]
    return bound


def _refusal(bound: str, needed: str, lines: Mapping[str, str]) -> str:
    """One line with where the value is written, and what reads it. lines: as of `config_lines`."""
    key = _followed(bound, lines)
    reader = "" if key == bound else f" ({bound.rpartition('/')[2]})"
    return f"{_places.get(key, key)}={lines[key]}: {needed} is needed{reader}"


def _count_tokens(macros: Sequence[str]) -> None:
    """Turn durations in tokens into updates (see `durations`). Raises UserError where the recipe
    has no BATCH and LENGTH to count by."""
    in_tokens = {
        name: value
        for name in macros
        if is_duration(value := _value(name))
        # Stages of anything; of other values it is a mistake, which its reader tells.
        and (isinstance(value, Mapping) or name.endswith(("_STEPS", "_EVERY")))
    }
    if not in_tokens:
        return
    lines = config_lines()
    if lacking := {"BATCH", "LENGTH"} - {*macros}:
        name = min(in_tokens)
        raise UserError(
            f"{_places[name]}={lines[name]}: this recipe has no {min(lacking)} to count tokens by;"
            " give updates"
        )
    clock = Clock(*(_value(_followed(name, lines)) for name in ("BATCH", "LENGTH")))
    # The fall is at the end, where an update may read more tokens than at the beginning.
    end = clock.updates(_value(_followed("TRAIN_STEPS", lines)))
    for name, value in in_tokens.items():
        counted = clock.last(value, end) if name == "DECAY_STEPS" else clock.updates(value)
        gin.bind_parameter(f"{name}/macro.value", counted)


def _value(macro: str) -> Any:
    return gin.query_parameter(f"{macro}/macro.value")


def _is_required(value: Any) -> bool:
    return str(value) == "%gin.REQUIRED"


def import_foreign(macros: Sequence[str]) -> None:
    """A macro "hf:FOLDER_OR_ID" becomes that workdir; a VOCABULARY not set is INIT_FROM's."""
    # Asked before INIT_FROM is replaced; a vocabulary that a recipe sets is never exchanged.
    lacks_vocabulary = "VOCABULARY" in macros and _is_required(_value("VOCABULARY"))
    for macro in macros:
        value = _value(macro)
        if not isinstance(value, str) or not value.startswith(FOREIGN):
            continue
        try:
            foreign.require_allowed(macro, value)
        except SettingError as error:
            raise UserError(_refusal(macro, error.needed, config_lines())) from None
        run = import_model.imported(value.removeprefix(FOREIGN))
        gin.bind_parameter(f"{macro}/macro.value", run)
        if macro == "INIT_FROM" and lacks_vocabulary:
            gin.bind_parameter("VOCABULARY/macro.value", run)


def bindings(files: Sequence[str], overrides: Sequence[str]) -> dict[str, str]:
    """{name: value} that recipes, includes and overrides bind. Raises UserError as `parse_gin`."""
    parse_gin(files, overrides)
    return config_lines()


def config_lines() -> dict[str, str]:
    """{name: value as it is written} of all that is bound now."""
    lines: dict[str, str] = {}
    name = ""
    # Wide, since gin cuts long values up; not wider, since its rules are as wide.
    for line in gin.config_str(max_line_length=5000).splitlines():
        if line.startswith(("#", "import ", "from ")) or not line:
            continue
        if line.startswith(" "):
            # The value goes on: gin ends a line with a backslash or within brackets.
            before = lines[name].removesuffix("\\")
            lines[name] = f"{before} {line.strip()}".strip()
            continue
        name, _, value = line.partition(" =")
        lines[name] = value.strip()
    return lines


def build(name: str) -> Any:
    """Call configurable `name` with everything bound. Raises UserError where a binding is missing
    or its value is of another type or range than what it is bound to takes."""
    try:
        return gin.get_configurable(name)()
    except SettingError as error:
        raise UserError(_located(error)) from None
    except UserError as error:
        raise UserError(in_one_line(error)) from None
    except RecursionError:
        raise UserError(f"{name}: a reference leads back to what it is bound in") from None
    except (RuntimeError, TypeError) as error:
        # gin complains of REQUIRED and Python of a missing argument, both for the same mistake.
        message = str(error)
        of_gin = re.match(r"Required bindings for `(.+)` not provided in config: \[(.+)\]", message)
        of_python = re.search(
            r"missing (?:a|\d+) required .*?arguments?: (.+)"
            r"[\s\S]*?In call to configurable '(\w+)'",
            message,
        )
        if of_gin:
            name, parameters = of_gin.groups()
        elif of_python:
            parameters, name = of_python.groups()
        else:
            raise
        parameter = re.search(r"\w+", parameters)[0]
        raise UserError(
            f"the recipe does not bind {name}.{parameter}: bind it in a recipe"
        ) from None


def _located(error: SettingError) -> str:
    """The message, with the file, line and macro that bind the value."""
    # gin appends what it called, and says its scopes at the end.
    called = re.search(r"In call to configurable '(\w+)' \(.*\)(?: in scope '(.+)')?", str(error))
    lines = config_lines()
    if called:
        scopes = (called[2] or "").split("/")
        for depth in range(len(scopes), -1, -1):
            bound = "/".join([*filter(None, scopes[:depth]), f"{called[1]}.{error.name}"])
            if bound in lines:
                return _refusal(bound, error.needed, lines)
    return in_one_line(error)


def check_used(overrides: Sequence[str]) -> None:
    """Raises UserError for an override that nothing of the run reads: it would be ignored."""
    # gin's operative configuration holds what the calls have read, and nothing else.
    operative = gin.operative_config_str()
    for override in overrides:
        key = override.partition("=")[0].strip()
        # A scope reads what has none, too.
        read = rf"^(\w+/)?{re.escape(key)} ="
        if not re.search(read, operative, re.MULTILINE):
            raise UserError(f"--gin.{key} changes nothing: this run does not read it; leave it out")


def read_recipe(files: Sequence[str], overrides: Sequence[str], trust: bool = False) -> Recipe:
    """Everything that the files and overrides bind, built, and nothing run. trust: a run's own
    config.gin may have modules imported, which may do anything. Raises UserError."""
    with trusting(trust):
        parse_gin(files, overrides)
    plan = build("train")
    # Training asks each part for its own corpus; verbs beside it need one for the whole run.
    corpus = build("corpus")
    check_used(overrides)
    return Recipe(plan, corpus, gin.operative_config_str())


def read_part(name: str, function: Callable, files: Sequence[str], overrides: Sequence[str]) -> Any:
    """What `function`, bound as `name`, makes of the files and overrides. Raises UserError."""
    # Only the verb that reads it knows the name: elsewhere a recipe that binds it is refused.
    register(name, function)
    parse_gin(files, overrides)
    part = build(name)
    check_used(overrides)
    return part
