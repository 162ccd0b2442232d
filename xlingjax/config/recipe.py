"""Recipes: gin files and what is given beside them, read into the parts of a run. The only file
that imports gin.

What recipes bind are plain functions and dataclasses of the library (`config.bindable`); here they
get their gin names. A recipe's public knobs are its macros in CAPITALS: `--gin.TRAIN_STEPS=500`.
"""

import difflib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gin

import xlingjax
from xlingjax import config
from xlingjax.config.bindings import Made, declared, made, needed
from xlingjax.convert import import_model
from xlingjax.errors import UserError

FOREIGN = "hf:"
_MACRO = re.compile(r"[A-Z][A-Z0-9_]*")


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


def gin_folder() -> Path:
    """The folder of recipes: beside the package in a clone, inside it in an installed wheel."""
    package = Path(xlingjax.__file__).parent
    inside = package / "gin"
    return inside if inside.is_dir() else package.parent / "gin"


def find_gin(name: str, roots: Sequence[Path] = (Path(),)) -> Path | None:
    """The first file of that name; gin/recipes/x.gin, recipes/x.gin, models/tiny.gin and the recipe
    x are found from anywhere. roots: folders that come before xlingjax's own."""
    places = [root / name for root in (*roots, gin_folder().parent, gin_folder())]
    return next(
        (
            path
            for path in (*places, gin_folder() / "recipes" / f"{name}.gin")
            if path.is_file()
        ),
        None,
    )


@functools.cache
def registered() -> dict[str, Callable]:
    """Every name a recipe may bind and the function behind it, registered with gin once per
    process."""
    functions = config.bindable()
    for name, function in functions.items():
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
    plain = re.split(r"[/.]", name)[-1]
    if plain not in registered():
        raise UserError(
            f"'{plain}' is a configurable of gin, which recipes do not know by its types: register"
            f' it with xlingjax.config.recipe.register("{plain}", {plain})'
        )
    return registered()[plain]


def parse_gin(files: Sequence[str], overrides: Sequence[str]) -> None:
    """Read recipes, then `NAME=VALUE` overrides. Raises UserError: a missing file, bad syntax, an
    unknown name."""
    registered()
    gin.clear_config()
    if not files:
        raise UserError(
            "no recipe: pass --gin_file gin/recipes/NAME.gin (there are "
            + ", ".join(recipes())
            + ")"
        )
    texts = [*parts_of(files)]
    for text, where in texts:
        parse_text(text, where)
    macros = macro_names()
    require_read_macros(texts)
    weights = {
        *re.findall(
            r"\.weight = %(\w+)$", gin.config_str() if overrides else "", re.MULTILINE
        )
    }
    for override in overrides:
        key, _, value = override.partition("=")
        where = f"--gin.{key}"
        if _MACRO.fullmatch(key):
            if key not in macros:
                raise UserError(
                    f"{where}: this recipe has no macro {key}{_nearest(key, macros)}"
                )
            value = checked_number(
                where, value, gin.query_parameter(f"{key}/macro.value"), key in weights
            )
        elif "." not in key:
            raise UserError(
                f"{where}: neither a macro (CAPITALS) nor"
                f" NAME.PARAMETER{_nearest(key.upper(), macros)}"
            )
        parse_text(f"{key} = {gin_value(value)}", where)
    require_types(places_of(texts, overrides))
    import_foreign(macros)
    for macro in macros:
        if str(gin.query_parameter(f"{macro}/macro.value")) == "%gin.REQUIRED":
            raise UserError(
                f"{macro} is not set and this recipe needs it: pass"
                f" --gin.{macro}=...{_comment(macro, files)}"
            )
    for line in gin.config_str().splitlines():
        for unknown in set(
            re.findall(rf"(?:= |[\[(,:]\s*)%({_MACRO.pattern})\b", line)
        ) - set(macros):
            raise UserError(
                f"{line.strip()!r} names a macro that no file defines{_nearest(unknown, macros)}"
            )


def require_read_macros(texts: Sequence[tuple[str, str]]) -> None:
    """texts: as of `parts_of`. Raises UserError for a macro of a user's file that nothing of this
    recipe reads, which would be ignored in silence."""
    ours = [
        text for text, where in texts if gin_folder() in Path(where).absolute().parents
    ]
    known = {name for text in ours for name in _set_in(text)}
    known |= {
        name
        for text, _ in texts
        for name in re.findall(rf"%({_MACRO.pattern})\b", text)
    }
    known |= {
        name for text, _ in texts for name in re.findall(r"%([a-z]\w*)\b(?!\.)", text)
    }
    for text, where in texts:
        if strange := [
            name
            for name in (*_set_in(text), *_set_in(text, r"[a-z]\w*"))
            if name not in known
        ]:
            line = next(
                n
                for n, row in enumerate(text.splitlines(), 1)
                if re.match(rf"{strange[0]}\s*=", row)
            )
            near = _nearest(strange[0].upper(), sorted(known))
            raise UserError(
                f"{where}, line {line}: this recipe has no macro {strange[0]}{near}"
            )


def places_of(
    texts: Sequence[tuple[str, str]], overrides: Sequence[str]
) -> dict[str, str]:
    """{name that is bound: where, at last}. texts: as of `parts_of`."""
    places = {}
    for text, where in texts:
        for number, line in enumerate(text.splitlines(), 1):
            if bound := re.match(r"([\w./]+)\s*=", line):
                places[bound[1]] = f"{where}, line {number}: {bound[1]}"
    return places | {
        key: f"--gin.{key}"
        for key in (override.partition("=")[0] for override in overrides)
    }


def require_types(places: Mapping[str, str]) -> None:
    """places: as of `places_of`. Raises UserError for a value that the parameter it is bound to
    does not declare; of a macro, every parameter that reads it."""
    lines = config_lines()
    for bound in lines:
        name, _, parameter = bound.rpartition("/")[2].rpartition(".")
        if not name:
            continue
        wanted = declared(function_named(name)).parameters[parameter].annotation
        key, value = _literal(bound)
        if instead := needed(value, wanted):
            reader = "" if key == bound else f" ({name}.{parameter})"
            raise UserError(
                f"{places.get(key, key)}={lines[key]}: {instead} is needed{reader}"
            )


def _literal(bound: str) -> tuple[str, Any]:
    """(the macro at the end, or `bound` itself; its value, `Made` for what will be called). Raises
    UserError for a macro that is itself."""
    followed, value = [bound], gin.query_parameter(bound)
    while macro := re.fullmatch(rf"%({_MACRO.pattern})", _reference(value)):
        if macro[1] in followed:
            raise UserError(
                f"{macro[1]} is defined by itself: {' = '.join([*followed[1:], macro[1]])}"
            )
        followed.append(macro[1])
        value = _macro_value(macro[1])
    return followed[-1], _with_made(value)


def _reference(value: Any) -> str:
    """As it is written, "%NAME" or "@name()"; "": it is a literal."""
    return str(value) if isinstance(value, gin.config.ConfigurableReference) else ""


def _macro_value(name: str) -> Any:
    try:
        return gin.query_parameter(f"{name}/macro.value")
    except ValueError:  # no file defines it, which parse_gin says
        return Made(Any)


def _with_made(value: Any) -> Any:
    if isinstance(value, dict):
        return {_with_made(key): _with_made(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_with_made, value))
    written = _reference(value)
    if macro := re.fullmatch(rf"%({_MACRO.pattern})", written):
        return _with_made(_macro_value(macro[1]))
    if written.endswith("()"):
        return made(function_named(written.removesuffix("()").removeprefix("@")))
    if written.startswith("@"):
        return Made(Callable)
    return Made(Any) if written else value  # a constant of gin: gin.REQUIRED


def _set_in(text: str, name: str = _MACRO.pattern) -> list[str]:
    return re.findall(rf"^({name})\s*=", text, re.MULTILINE)


def bindings(files: Sequence[str], overrides: Sequence[str]) -> dict[str, str]:
    """{name: value} of all that recipes, what they include, and overrides bind. Raises UserError as
    `parse_gin`."""
    parse_gin(files, overrides)
    return config_lines()


def config_lines() -> dict[str, str]:
    """{name: value as it is written} of all that is bound now."""
    lines = gin.config_str(max_line_length=10**6).splitlines()
    return dict(
        line.split(" = ", 1)
        for line in lines
        if " = " in line and not line.startswith("#")
    )


def import_foreign(macros: Sequence[str]) -> None:
    """Each macro that is "hf:FOLDER_OR_ID" becomes the workdir of that Hugging Face model; a
    VOCABULARY that is not set is that of INIT_FROM."""
    values = {macro: gin.query_parameter(f"{macro}/macro.value") for macro in macros}
    for macro, value in values.items():
        if isinstance(value, str) and value.startswith(FOREIGN):
            run = import_model.imported(value.removeprefix(FOREIGN))
            gin.bind_parameter(f"{macro}/macro.value", run)
            if (
                macro == "INIT_FROM"
                and str(values.get("VOCABULARY")) == "%gin.REQUIRED"
            ):
                gin.bind_parameter("VOCABULARY/macro.value", run)


def checked_number(where: str, value: str, before: Any, weighs: bool = False) -> str:
    """`value`, for a macro that was a number `before` only if it is one, or stages: 1e4 for a whole
    number is
    10000. One that `weighs` an objective may be any number."""
    if (
        isinstance(before, bool)
        or not isinstance(before, int | float)
        or value[:1] in "@%{"
        or value == "None"
    ):
        return value
    before = float(before) if weighs else before
    try:
        number = float(value)
    except ValueError:
        raise UserError(f"{where}={value}: a number is needed, like {before}") from None
    if isinstance(before, int) and number != int(number):
        raise UserError(f"{where}={value}: a whole number is needed, like {before}")
    return str(int(number)) if isinstance(before, int) else value


def build(name: str) -> Any:
    """Call configurable `name` with everything bound. Raises UserError where a binding is
    missing."""
    try:
        built = gin.get_configurable(name)()
    except (RuntimeError, TypeError) as error:
        missing = re.match(
            r"Required bindings for `(.+)` not provided in config: \[(.+)\]", str(error)
        )
        missing = missing or re.match(
            r"(\w+)(?:\.__init__)?\(\) missing \d+ required .* arguments?: (.+)",
            str(error),
        )
        if not missing:
            raise
        parameter = re.search(r"\w+", missing[2])[0]
        names = {one.__name__: name for name, one in registered().items()}
        name = names.get(missing[1], missing[1])
        raise UserError(
            f"the recipe does not bind {name}.{parameter}: bind it in a recipe"
        ) from None
    return built


def check_used(overrides: Sequence[str]) -> None:
    """Raises UserError for an override that nothing of the run has read: it would be ignored in
    silence."""
    operative = operative_config()
    for override in overrides:
        key = override.partition("=")[0].strip()
        if not re.search(
            rf"^(\w+/)?{re.escape(key)} =", operative, re.MULTILINE
        ):  # a scope reads what has none, too
            raise UserError(
                f"--gin.{key} changes nothing: this run does not read it; leave it out"
            )


def read_recipe(files: Sequence[str], overrides: Sequence[str]) -> Recipe:
    """Everything that the files and overrides bind, built, and nothing run. Raises UserError."""
    parse_gin(files, overrides)
    plan, corpus = build("train"), build("corpus")
    check_used(overrides)
    return Recipe(plan, corpus, operative_config())


def read_part(
    name: str, function: Callable, files: Sequence[str], overrides: Sequence[str]
) -> Any:
    """What `function`, bound by recipes under `name`, makes of the files and overrides. Raises
    UserError."""
    register(name, function)
    parse_gin(files, overrides)
    part = build(name)
    check_used(overrides)
    return part


def operative_config() -> str:
    return gin.operative_config_str()


def macro_names() -> list[str]:
    return re.findall(rf"^({_MACRO.pattern}) =", gin.config_str(), re.MULTILINE)


def recipes() -> list[str]:
    return sorted(path.stem for path in (gin_folder() / "recipes").glob("*.gin"))


def gin_value(text: str) -> str:
    """A value typed in a shell, as gin reads it: what is no literal, reference or macro is a string
    and gets quotes."""
    text = text.strip()
    if text.lower() in ("true", "false"):
        return text.capitalize()
    # Numbers of layers, and ramps: gin would read the first number alone.
    if re.fullmatch(r"\d+([ ,]+\d+)+|\d+:[^,]+(,\d+:[^,]+)*", text):
        return repr(text)
    try:
        gin.config.parse_value(text)
    except SyntaxError:
        return repr(text)
    except (
        ValueError
    ):  # a reference to something unknown: gin says so where it is bound
        return text
    return text


def gin_values(overrides: Sequence[str]) -> list[str]:
    """NAME=VALUE with every value as gin reads it."""
    pairs = (override.partition("=") for override in overrides)
    return [f"{name}={gin_value(value)}" for name, _, value in pairs]


def parts_of(files: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(gin text, where it stands) of recipes and what they include, as they are to be read. Raises
    UserError for a missing file."""
    for file in files:
        path = find_gin(file)
        if path is None:
            raise UserError(
                f"missing file: no recipe {file!r}{_nearest(Path(file).stem, recipes())}"
            )
        yield from _parts(path)


def _parts(path: Path) -> Iterator[tuple[str, str]]:
    """Includes are followed here, because gin looks for them among Python's packages, and a folder
    of the same name there, which it takes for one, stops it."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: not valid UTF-8 at byte {error.start}: give a gin file, in UTF-8"
        ) from None
    done = 0
    for number, line in enumerate(lines):
        if included := re.match(r"""include\s+["'](.+)["']""", line):
            yield "\n" * done + "\n".join(lines[done:number]), str(path)
            done = number + 1
            found = find_gin(included[1], [path.parent, Path()])
            if found is None:
                raise UserError(
                    f"{path}, line {done}: missing file: include {included[1]!r}; name it from the"
                    f" folder of {path.name}, from here, or from xlingjax's gin/"
                )
            yield from _parts(found)
    yield "\n" * done + "\n".join(lines[done:]), str(path)


def macros_set(files: Sequence[str]) -> set[str]:
    """The macros that recipes, and what they include, set. Raises UserError as `parts_of`."""
    return {name for text, _ in parts_of(files) for name in _set_in(text)}


def parse_text(text: str, where: str) -> None:
    """Read gin text. Raises UserError that says where and, of an unknown name, what was probably
    meant."""
    try:
        gin.parse_config(text)
    except (ValueError, SyntaxError, ImportError) as error:
        names, message = registered(), str(error).splitlines()[0]
        if "\n" in text and (place := re.findall(r"line (\d+)", str(error))):
            where = f"{where}, line {place[-1]}"
        if unknown := re.match(
            r"No configurable matching (?:reference )?'@?([\w./]+)", message
        ):
            name = unknown[1].split("/")[-1]
            message = f"nothing is called {name!r}{_nearest(name, names)}"
        elif unknown := re.match(
            r"Configurable '(.+)' doesn't have a parameter named '(.+)'", message
        ):
            function = names[unknown[1].split(".")[-1]]
            near = _of_its_text(unknown[1], unknown[2])
            if not near:
                near = _nearest(unknown[2], list(declared(function).parameters))
            message = f"{unknown[1]!r} has no parameter {unknown[2]!r}{near}"
        elif message.startswith("malformed node"):
            kinds = "a number, True, False, None, a string in quotes, a list, %MACRO or @name()"
            message = f"not gin syntax: a value is {kinds}"
        elif isinstance(error, SyntaxError):
            message = f"not gin syntax: {message}"
        raise UserError(f"{where}: {message}") from None


def _of_its_text(name: str, parameter: str) -> str:
    """What is said of a parameter that an objective does not have and its text has, as objectives
    once had it; "": it is none."""
    text = registered()["text"]
    takes = declared(function_named(name)).parameters.get("text")
    if takes is None or needed(made(text), takes.annotation):
        return ""
    if parameter not in declared(text).parameters:
        return ""
    reference = "@text()"
    if f"{name}.text" in config_lines():
        reference = _reference(gin.query_parameter(f"{name}.text"))
    return f"; its text has: {reference.strip('@()')}.{parameter}"


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1, 0.5)
    return (
        f"; did you mean {near[0]!r}?"
        if near
        else f"; there are {', '.join(sorted(known))}"
        if known
        else ""
    )


def _comment(macro: str, files: Sequence[str]) -> str:
    """What the recipes, or the files they include, write behind `MACRO = %gin.REQUIRED`."""
    own = [path for file in files if (path := find_gin(file))]
    for path in (*own, *sorted(gin_folder().rglob("*.gin"))):
        found = re.search(
            rf"^{macro}\s*=\s*%gin\.REQUIRED\s*#\s*(.+)$",
            path.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        if found:
            return f" ({found[1].strip()})"
    return ""
