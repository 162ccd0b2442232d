"""Recipes: gin files and what is given beside them, read into the parts of a run. The only file
that binds by gin.

What recipes bind are plain functions and dataclasses of the library (`config.bindable`); here they
get their gin names. A recipe's public knobs are its macros in CAPITALS: `--gin.TRAIN_STEPS=500`.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gin

from xlingjax import config
from xlingjax.config import ranges
from xlingjax.config.bindings import Made, declared, made, needed
from xlingjax.config.foreign import bound_in_run, import_modules, require_trusted
from xlingjax.config.gin_files import (
    MACRO,
    Part,
    nearest,
    parts_with_origin,
    places_of,
    recipes,
    require_known_scopes,
    require_read_macros,
    required_comment,
)
from xlingjax.config.overrides import (
    TASKS,
    checked_number,
    one_warmup,
    require_digits,
    require_known_macros,
    tasks_given,
)
from xlingjax.config.statements import gin_value, statements
from xlingjax.convert import import_model
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError, in_one_line
from xlingjax.runtime.trust import trusting

FOREIGN = "hf:"
MIXTURES = {"MONO": "MIXTURE", "PARALLEL": "TLM_MIXTURE"}


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


@functools.cache
def registered() -> dict[str, Callable]:
    """Every name a recipe may bind and the function behind it, registered with gin once per
    process."""
    functions = config.bindable()
    for name, function in functions.items():
        # Not by gin's decorator: the functions' own modules stay free of gin.
        gin.external_configurable(function, name, module="xlingjax")
    return functions


def register(name: str, function: Callable) -> None:
    """One more name for recipes to bind: what workflows read beside a run's own."""
    if name not in registered():
        registered()[name] = function
        gin.external_configurable(function, name, module="xlingjax")


def function_named(name: str) -> Callable:
    """name: as it is bound, "scope/module.name" too. Raises UserError for one that gin alone
    knows."""
    # gin writes names in full where several modules register one.
    plain = re.split(r"[/.]", name)[-1]
    if plain not in registered():
        raise UserError(
            f"'{plain}' is a configurable of gin, which recipes do not know by its types: register"
            f' it with xlingjax.config.recipe.register("{plain}", {plain})'
        )
    return registered()[plain]


def parse_gin(files: Sequence[str], overrides: Sequence[str]) -> None:
    """Read recipes, then `NAME=VALUE` overrides. Raises UserError: a missing file, bad syntax, an
    unknown name, a value of another type or range, a module that cannot be imported, or that only
    the file of a run names (see `foreign`)."""
    registered()
    # gin keeps its bindings for the whole process: those of the recipe before would hold on.
    gin.clear_config()
    if not files:
        known = ", ".join(recipes())
        raise UserError(f"no recipe: pass --gin_file gin/recipes/NAME.gin (there are {known})")
    parts = list(parts_with_origin(files))
    texts = [(part.text, part.where) for part in parts]
    # Before anything of a recipe is bound: nothing is imported of one that is refused.
    import_modules(parts, tasks_given(overrides))
    for text, where in texts:
        parse_text(text, where)
    bound = config_lines()
    # Before overrides are bound: their names are checked against the macros of the files alone.
    macros = [name for name in bound if re.fullmatch(MACRO, name)]
    require_read_macros(texts)
    require_known_scopes(parts, overrides)
    _bind_overrides(overrides, macros, bound)
    bound = config_lines()
    # Before anything is converted: a mistyped number should not cost the import of a model.
    require_types(bound, places_of(texts, overrides))
    _require_trusted_tasks(bound, parts, overrides)
    # Before values are required: an imported model may bring the vocabulary that is lacking.
    import_foreign(macros)
    put_mixtures_in_place(macros)
    _require_values(macros, files)
    require_known_macros(macros, bound)


def _require_trusted_tasks(
    lines: Mapping[str, str], parts: Sequence[Part], overrides: Sequence[str]
) -> None:
    """lines: as of `config_lines`. Raises UserError for modules that register SeqIO tasks and that
    a run's own file alone names: they are imported as those of an `import` are."""
    of_run = bound_in_run(parts)
    given = tasks_given(overrides)
    for bound in lines:
        if not bound.rpartition("/")[2].endswith(TASKS):
            continue
        key, value = _literal(bound)
        if key not in of_run or not isinstance(value, str | list | tuple):
            continue
        for module in split_list(value):
            if module not in given:
                require_trusted(module, of_run[key])


def _bind_overrides(
    overrides: Sequence[str], macros: Sequence[str], lines: Mapping[str, str]
) -> None:
    """lines: as of `config_lines`."""
    weights = set()
    for name, value in lines.items():
        # `1` in a file says nothing of a weight's type, so 0.5 must be allowed where 1 stands.
        if name.endswith(".weight"):
            weights.add(value.removeprefix("%"))
    for override in [*overrides, *one_warmup(overrides, lines)]:
        key, _, value = override.partition("=")
        where = f"--gin.{key}"
        require_digits(where, value)
        if re.fullmatch(MACRO, key):
            if key not in macros:
                near = nearest(key, macros)
                raise UserError(f"{where}: this recipe has no macro {key}{near}")
            before = gin.query_parameter(f"{key}/macro.value")
            value = checked_number(where, value, before, key in weights)
        elif "." not in key:
            raise UserError(
                f"{where}: neither a macro (CAPITALS) nor"
                f" NAME.PARAMETER{nearest(key.upper(), macros)}"
            )
        parse_text(f"{key} = {gin_value(value)}", where)


def _require_values(macros: Sequence[str], files: Sequence[str]) -> None:
    """Raises UserError for a macro that a recipe leaves to its user."""
    for macro in macros:
        if str(gin.query_parameter(f"{macro}/macro.value")) == "%gin.REQUIRED":
            raise UserError(
                f"{macro} is not set and this recipe needs it: pass"
                f" --gin.{macro}=...{required_comment(macro, files)}"
            )


def require_types(lines: Mapping[str, str], places: Mapping[str, str]) -> None:
    """lines: as of `config_lines`; places: as of `places_of`. Raises UserError for a value that the
    parameter it is bound to does not declare or allow; of a macro, every parameter that reads
    it."""
    for bound in lines:
        name, _, parameter = bound.rpartition("/")[2].rpartition(".")
        # A macro, which has no type of its own: those that read it are checked.
        if not name:
            continue
        wanted = declared(function_named(name)).parameters[parameter].annotation
        # The message names the macro that a user sets, not the parameter that reads it at last.
        key, value = _literal(bound)
        instead = needed(value, wanted) or ranges.needed(
            value, function_named(name), name, parameter
        )
        if instead:
            reader = ""
            if key != bound:
                reader = f" ({name}.{parameter})"
            where = places.get(key, key)
            raise UserError(f"{where}={lines[key]}: {instead} is needed{reader}")


def _literal(bound: str) -> tuple[str, Any]:
    """(the macro at the end, or `bound` itself; its value, `Made` for what will be called). Raises
    UserError for a macro that is itself."""
    followed = [bound]
    value = gin.query_parameter(bound)
    while macro := re.fullmatch(rf"%({MACRO})", _reference(value)):
        if macro[1] in followed:
            circle = " = ".join([*followed[1:], macro[1]])
            raise UserError(f"{macro[1]} is defined by itself: {circle}")
        followed.append(macro[1])
        value = _macro_value(macro[1])
    return followed[-1], _with_made(value)


def _reference(value: Any) -> str:
    """As it is written, "%NAME" or "@name()"; "": it is a literal."""
    if isinstance(value, gin.config.ConfigurableReference):
        return str(value)
    return ""


def _macro_value(name: str) -> Any:
    try:
        return gin.query_parameter(f"{name}/macro.value")
    except ValueError:
        # No file defines it, which parse_gin says.
        return Made(Any)


def _with_made(value: Any) -> Any:
    if isinstance(value, dict):
        return {_with_made(key): _with_made(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_with_made, value))
    written = _reference(value)
    if macro := re.fullmatch(rf"%({MACRO})", written):
        return _with_made(_macro_value(macro[1]))
    if written.endswith("()"):
        return made(function_named(written.removesuffix("()").removeprefix("@")))
    if written.startswith("@"):
        return Made(Callable)
    if written:
        # A constant of gin: gin.REQUIRED.
        return Made(Any)
    return value


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


def import_foreign(macros: Sequence[str]) -> None:
    """Each macro that is "hf:FOLDER_OR_ID" becomes the workdir of that Hugging Face model; a
    VOCABULARY that is not set is that of INIT_FROM."""
    values = {macro: gin.query_parameter(f"{macro}/macro.value") for macro in macros}
    # Asked before INIT_FROM is replaced; a vocabulary that a recipe sets is never exchanged.
    lacks_vocabulary = str(values.get("VOCABULARY")) == "%gin.REQUIRED"
    for macro, value in values.items():
        if not isinstance(value, str) or not value.startswith(FOREIGN):
            continue
        run = import_model.imported(value.removeprefix(FOREIGN))
        gin.bind_parameter(f"{macro}/macro.value", run)
        if macro == "INIT_FROM" and lacks_vocabulary:
            gin.bind_parameter("VOCABULARY/macro.value", run)


def put_mixtures_in_place(macros: Sequence[str]) -> None:
    """A macro of files is None where the one of a SeqIO mixture in its place is set."""
    for files, mixture in MIXTURES.items():
        if not {files, mixture} <= {*macros}:
            continue
        if gin.query_parameter(f"{mixture}/macro.value") is not None:
            gin.bind_parameter(f"{files}/macro.value", None)


def build(name: str) -> Any:
    """Call configurable `name` with everything bound. Raises UserError where a binding is
    missing."""
    try:
        return gin.get_configurable(name)()
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
        return f"nothing is called {name!r}{nearest(name, registered())}"
    unknown = re.match(r"Configurable '(.+)' doesn't have a parameter named '(.+)'", message)
    if unknown:
        near = _of_its_text(unknown[1], unknown[2])
        if not near:
            parameters = declared(function_named(unknown[1])).parameters
            near = nearest(unknown[2], list(parameters))
        return f"{unknown[1]!r} has no parameter {unknown[2]!r}{near}"
    return message


def _of_its_text(name: str, parameter: str) -> str:
    """What is said of a parameter that an objective does not have and its text has, as objectives
    once had it; "": it is none."""
    of_text = declared(registered()["text"]).parameters
    if parameter not in of_text or not _reads_text(name):
        return ""
    reference = "@text()"
    if f"{name}.text" in config_lines():
        reference = _reference(gin.query_parameter(f"{name}.text"))
    return f"; its text has: {reference.strip('@()')}.{parameter}"


def _reads_text(name: str) -> bool:
    """Whether it is an objective on the run's text."""
    takes = declared(function_named(name)).parameters.get("text")
    # Evaluators have a `text`, too: patterns of files.
    return takes is not None and not needed(made(registered()["text"]), takes.annotation)
