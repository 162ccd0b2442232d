"""Recipes: gin files and what is given beside them, read into the parts of a run.

What recipes bind are plain functions and dataclasses of the library (`config.bindable`); here they
get their gin names. A recipe's public knobs are its macros in CAPITALS: `--gin.TRAIN_STEPS=500`.
"""

import functools
import graphlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gin

from xlingjax import config
from xlingjax.config.bindings import checked, fits, in_words
from xlingjax.config.foreign import import_modules, require_trusted_tasks
from xlingjax.config.gin_files import (
    BINDING,
    IMPORT,
    MACRO,
    Part,
    gin_value,
    macros_of,
    nearest,
    parts_of,
    recipes,
    statements,
)
from xlingjax.convert import import_model
from xlingjax.errors import SettingError, UserError, in_one_line
from xlingjax.runtime.numerals import is_number
from xlingjax.runtime.trust import trusting

FOREIGN = "hf:"
MIXTURES = {"MONO": "MIXTURE_OR_TASK_NAME", "PARALLEL": "TLM_MIXTURE"}
WARMUP_STEPS = ("WARMUP_STEPS", "optimizer.warmup_steps")
WARMUP_SHARE = ("WARMUP_SHARE", "optimizer.warmup_share")
"""A macro, and what it is bound to."""


@dataclass(frozen=True)
class Recipe:
    """A recipe with everything bound: `plan` is train() not yet called, `config` its operative gin
    configuration."""

    plan: functools.partial
    corpus: Any
    config: str

    @property
    def bound(self) -> dict[str, Any]:
        return self.plan.keywords

    def require_decay(self) -> None:
        """Raise UserError where the warm-up leaves no step for the decay: a plan of many trainings
        says it of each before the first begins."""
        if optimizer := self.bound.get("optimizer"):
            optimizer.require_decay(self.bound["steps"])


# ---- names ---------------------------------------------------------------------------------------


@functools.cache
def registered() -> dict[str, Callable]:
    """Every name a recipe may bind and the function behind it, registered with gin once per
    process."""
    functions = config.bindable()
    for name, function in functions.items():
        # Not by gin's decorator: the functions' own modules stay free of gin.
        gin.external_configurable(checked(function), name, module="xlingjax")
    return functions


def register(name: str, function: Callable) -> None:
    """One more name for recipes to bind: what workflows read beside a run's own."""
    if name not in registered():
        registered()[name] = function
        gin.external_configurable(checked(function), name, module="xlingjax")


# ---- binding -------------------------------------------------------------------------------------

# {what is bound: where, at last}, of the recipe that gin holds, which are the process's own too.
_places: dict[str, str] = {}


def parse_gin(files: Sequence[str], overrides: Sequence[str]) -> None:
    """Read recipes, then `NAME=VALUE` overrides. Raises UserError: a missing file, bad syntax, an
    unknown name, a module that cannot be imported, or that only the file of a run names (see
    `foreign`), a literal of another type. Ranges are checked by what is built."""
    registered()
    # gin keeps its bindings for the whole process: those of the recipe before would hold on.
    gin.clear_config()
    if not files:
        known = ", ".join(recipes())
        raise UserError(f"no recipe: pass --gin_file gin/recipes/NAME.gin (there are {known})")
    parts = list(parts_of(files))
    typed = [_override(override) for override in overrides]
    # Before anything of a recipe is bound: nothing is imported of one that is refused.
    import_modules(parts, typed)
    for part in parts:
        parse_text(part.text, part.where)
    lines = config_lines()
    # Overrides are of macros that the files set.
    macros = [name for name in lines if re.fullmatch(MACRO, name)]
    typed += [_override(override) for override in _one_warmup(overrides, lines)]
    for part in typed:
        _require_known(part.text.partition(" = ")[0], macros)
        parse_text(part.text, part.where)
    parts += typed
    _require_known_macros(parts)
    _require_known_scopes(parts)
    _places.clear()
    for part, statement in _statements(parts):
        if statement.kind == BINDING:
            _places[statement.name] = part.named(statement.line, statement.name)
    # Before anything is converted or trained: a mistyped number should not cost that.
    _require_types()
    require_trusted_tasks(parts, typed)
    # Before values are required: an imported model may bring the vocabulary that is lacking.
    import_foreign(macros)
    put_mixtures_in_place(macros)
    meanings = {macro.name: macro.meaning for macro in macros_of(files)}
    for macro in macros:
        if _is_required(_value(macro)):
            meaning = f" ({meanings[macro]})" if meanings.get(macro) else ""
            raise UserError(
                f"{macro} is not set and this recipe needs it: pass --gin.{macro}=...{meaning}"
            )


def parse_text(text: str, where: str) -> None:
    """Read gin text. Raises UserError that says where and, of an unknown name, what was probably
    meant."""
    # What is no gin at all is said by its line.
    statements(text, where)
    try:
        gin.parse_config(text)
    except (ValueError, SyntaxError, ImportError, TypeError) as error:
        # gin counts lines within the text; one line needs no number.
        if "\n" in text and (place := re.findall(r"line (\d+)", str(error))):
            where = f"{where}, line {place[-1]}"
        raise UserError(f"{where}: {_cause(error)}") from None


def _cause(error: Exception) -> str:
    """What gin's complaint means, without its traceback of the file."""
    message = str(error).splitlines()[0]
    unknown = re.match(r"No configurable matching (?:reference )?'@?([\w./]+)", message)
    if unknown:
        name = unknown[1].split("/")[-1]
        return f"nothing is called {name!r}{nearest(name, list(registered()))}"
    unknown = re.match(r"Configurable '(.+)' doesn't have a parameter named '(.+)'", message)
    if unknown:
        function = registered()[unknown[1].rpartition(".")[2]]
        near = nearest(unknown[2], list(inspect.signature(function).parameters))
        return f"{unknown[1]!r} has no parameter {unknown[2]!r}{near}"
    return message


def _override(override: str) -> Part:
    name, _, value = override.partition("=")
    where = f"--gin.{name}"
    try:
        is_float = any(character.isdigit() for character in value) and float(value) is not None
    except ValueError:
        is_float = False
    # Python alone takes 1_000 and ١٢ for numbers.
    if is_float and not is_number(value.strip()):
        raise UserError(f"{where}={value}: write a finite number, in the digits 0 to 9 alone")
    return Part(f"{name} = {gin_value(value)}", where)


def _require_known(name: str, macros: Sequence[str]) -> None:
    """name: of an override."""
    if re.fullmatch(MACRO, name):
        if name not in macros:
            near = nearest(name, macros)
            raise UserError(f"--gin.{name}: this recipe has no macro {name}{near}")
    elif "." not in name:
        near = nearest(name.upper(), macros)
        raise UserError(f"--gin.{name}: neither a macro (CAPITALS) nor NAME.PARAMETER{near}")


def _one_warmup(overrides: Sequence[str], lines: Mapping[str, str]) -> list[str]:
    """What must be bound too, so that a warm-up in steps that is typed holds: the share of a
    recipe, which would go before it, becomes None. lines: as of `config_lines`. Raises UserError
    where both are typed."""
    typed = dict(override.partition("=")[::2] for override in overrides)
    steps = [name for name in WARMUP_STEPS if name in typed]
    shares = [name for name in WARMUP_SHARE if name in typed]
    given = [name for name in shares if typed[name] != "None"]
    if steps and given:
        raise UserError(
            f"--gin.{steps[0]} and --gin.{given[0]}: both say how long the learning rate warms up;"
            " give one"
        )
    macro, parameter = WARMUP_SHARE
    if not steps or shares or parameter not in lines:
        return []
    if lines[parameter] == f"%{macro}":
        return [f"{macro}=None"]
    return [f"{parameter}=None"]


def _statements(parts: Sequence[Part]) -> Iterator[tuple[Part, Any]]:
    for part in parts:
        for statement in statements(part.text, part.where):
            yield part, statement


def _require_known_macros(parts: Sequence[Part]) -> None:
    """Raises UserError for a macro of a user's file that nothing of this recipe reads, which would
    be ignored in silence; for one that is read and that no file sets; and for one that is defined
    by itself."""
    known = set()
    macros: dict[str, frozenset[str]] = {}
    for part, statement in _statements(parts):
        # A knob of ours that this recipe happens not to read is no slip of the user.
        if statement.is_macro:
            macros[statement.name] = statement.macros
            if part.is_ours:
                known.add(statement.name)
        known.update(statement.macros)
    for part, statement in _statements(parts):
        # Lower case too: `batch = 8` is how a macro is mistyped, and gin takes it without a word.
        if statement.is_macro and statement.name not in known and not part.is_override:
            near = nearest(statement.name.upper(), sorted(known))
            where = part.place(statement.line)
            raise UserError(f"{where}: this recipe has no macro {statement.name}{near}")
        # A constant of a module, %module.NAME, is none.
        for name in sorted(statement.macros - {*macros}):
            if "." not in name:
                where = part.named(statement.line, statement.name)
                near = nearest(name, sorted(macros))
                raise UserError(f"{where}: %{name} names a macro that no file defines{near}")
    try:
        graphlib.TopologicalSorter(macros).prepare()
    except graphlib.CycleError as error:
        raise UserError(f"a macro is defined by itself: {' = '.join(error.args[1])}") from None


def _require_known_scopes(parts: Sequence[Part]) -> None:
    """Raises UserError for a binding of a user's file in a scope that no reference opens, which
    would be ignored in silence."""
    known: set[str] = set()
    bound = []
    for part, statement in _statements(parts):
        # A module may open scopes of its own.
        if statement.kind == IMPORT:
            return
        for reference in statement.references:
            known.update(reference.split("/")[:-1])
        if statement.kind == BINDING and not statement.is_macro:
            scopes = statement.name.split("/")[:-1]
            if part.is_ours:
                known.update(scopes)
            elif not part.is_override:
                bound += [(part, statement, scope) for scope in scopes]
    for part, statement, scope in bound:
        if scope not in known:
            where = part.named(statement.line, statement.name)
            near = nearest(scope, sorted(known))
            raise UserError(f"{where}: nothing is read in scope {scope!r}{near}")


def _require_types() -> None:
    """Raise UserError for a literal of another type than the parameter that reads it declares. What
    references give is checked when it is built."""
    lines = config_lines()
    for bound in lines:
        name, _, parameter = bound.rpartition("/")[2].rpartition(".")
        function = registered().get(name)
        # A macro, whose readers are checked; what gin alone knows declares no types.
        if function is None:
            continue
        value = gin.query_parameter(bound)
        key = _followed(bound, lines)
        if key != bound and key in lines:
            value = _value(key)
        annotation = _signature(function).parameters[parameter].annotation
        if not _has_reference(value) and not fits(value, annotation):
            raise UserError(_refusal(bound, in_words(annotation), lines))


@functools.cache
def _signature(function: Callable) -> inspect.Signature:
    return inspect.signature(function, eval_str=True)


def _has_reference(value: Any) -> bool:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        return any(map(_has_reference, value))
    return isinstance(value, gin.config.ConfigurableReference)


def _followed(bound: str, lines: Mapping[str, str]) -> str:
    """The macro at the end, or `bound` itself. lines: as of `config_lines`."""
    while macro := re.fullmatch(r"%(\w+)", lines.get(bound, "")):
        bound = macro[1]
    return bound


def _refusal(bound: str, needed: str, lines: Mapping[str, str]) -> str:
    """One line with where the value is written, and what reads it."""
    key = _followed(bound, lines)
    reader = "" if key == bound else f" ({bound.rpartition('/')[2]})"
    return f"{_places.get(key, key)}={lines[key]}: {needed} is needed{reader}"


def _value(macro: str) -> Any:
    return gin.query_parameter(f"{macro}/macro.value")


def _is_required(value: Any) -> bool:
    return str(value) == "%gin.REQUIRED"


def import_foreign(macros: Sequence[str]) -> None:
    """Each macro that is "hf:FOLDER_OR_ID" becomes the workdir of that Hugging Face model; a
    VOCABULARY that is not set is that of INIT_FROM."""
    # Asked before INIT_FROM is replaced; a vocabulary that a recipe sets is never exchanged.
    lacks_vocabulary = "VOCABULARY" in macros and _is_required(_value("VOCABULARY"))
    for macro in macros:
        value = _value(macro)
        if not isinstance(value, str) or not value.startswith(FOREIGN):
            continue
        run = import_model.imported(value.removeprefix(FOREIGN))
        gin.bind_parameter(f"{macro}/macro.value", run)
        if macro == "INIT_FROM" and lacks_vocabulary:
            gin.bind_parameter("VOCABULARY/macro.value", run)


def put_mixtures_in_place(macros: Sequence[str]) -> None:
    """A macro of files is None where the one of a SeqIO mixture in its place is set."""
    for files, mixture in MIXTURES.items():
        if {files, mixture} <= {*macros} and _value(mixture) is not None:
            gin.bind_parameter(f"{files}/macro.value", None)


def bindings(files: Sequence[str], overrides: Sequence[str]) -> dict[str, str]:
    """{name: value} of all that recipes, what they include, and overrides bind. Raises UserError as
    `parse_gin`."""
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


# ---- building ------------------------------------------------------------------------------------


def build(name: str) -> Any:
    """Call configurable `name` with everything bound. Raises UserError where a binding is missing
    or its value is of another type or range than what it is bound to takes."""
    try:
        return gin.get_configurable(name)()
    except SettingError as error:
        raise UserError(_located(error)) from None
    except UserError as error:
        raise UserError(in_one_line(error)) from None
    except (RuntimeError, TypeError) as error:
        # gin complains of REQUIRED and Python of a missing argument, both for the same mistake.
        of_gin = r"Required bindings for `(.+)` not provided in config: \[(.+)\]"
        of_python = r"(\w+)(?:\.__init__)?\(\) missing \d+ required .* arguments?: (.+)"
        message = str(error)
        missing = re.match(of_gin, message) or re.match(of_python, message)
        if not missing:
            raise
        parameter = re.search(r"\w+", missing[2])[0]
        # The message has the name in Python, and a recipe binds `optimizer`, not OptimizerConfig.
        names = {one.__name__: name for name, one in registered().items()}
        name = names.get(missing[1], missing[1])
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
    """Raises UserError for an override that nothing of the run has read: it would be ignored in
    silence."""
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
    """What `function`, bound by recipes under `name`, makes of the files and overrides. Raises
    UserError."""
    # Only the verb that reads it knows the name: elsewhere a recipe that binds it is refused.
    register(name, function)
    parse_gin(files, overrides)
    part = build(name)
    check_used(overrides)
    return part
