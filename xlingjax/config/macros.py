"""The macros of recipes as their gin files explain them: name, value, the comment behind it."""

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from xlingjax.config.gin_files import find_gin, gin_folder, parts_of
from xlingjax.errors import UserError

REQUIRED = "required"
_SET = re.compile(r"([A-Z][A-Z0-9_]*)\s*=\s*(.+)")
_OBJECTIVES = re.compile(r"^train\.objectives\s*=\s*(\[.*?\])", re.MULTILINE | re.DOTALL)
_NAME = r"[A-Z][A-Z0-9_]*"


@dataclass(frozen=True)
class Macro:
    name: str
    value: str
    """As gin writes it, in one line, but another macro is `OTHER` and not `%OTHER`; `REQUIRED`
    where a recipe does not start without one."""
    meaning: str
    """The comment behind it and those of the indented lines below; "": none."""
    file: str
    written: str = field(default="", compare=False)
    """The value as the file has it."""


def macros_in(text: str, file: str) -> Iterator[Macro]:
    """Those that gin text sets, in its order. Raises UserError for what is not gin syntax."""
    try:
        for statement, comment in _statements(text):
            if found := _SET.fullmatch(statement):
                value = _without_percent(found[2])
                if found[2] == "%gin.REQUIRED":
                    value = REQUIRED
                yield Macro(found[1], value, comment, file, found[2])
    # gin files are read with Python's tokenizer, as gin itself reads them.
    except (tokenize.TokenError, SyntaxError) as error:
        raise UserError(f"{file}: not gin syntax: {error.args[0]}") from None


def macros_of(files: Sequence[str]) -> list[Macro]:
    """Those of recipes and all that they include, by the order in which they are first set. The
    last value wins; where it has no comment, the meaning is the last one written before. Raises
    UserError for a missing file.
    """
    found: dict[str, Macro] = {}
    for text, where in parts_of(files):
        for macro in macros_in(text, _shown(where)):
            before = found.get(macro.name)
            # A recipe that sets a macro of runs/common.gin need not explain it again.
            if before and not macro.meaning:
                macro = replace(macro, meaning=before.meaning)
            found[macro.name] = macro
    return list(found.values())


def set_anew(files: Sequence[str], overrides: Sequence[str]) -> str:
    """One line for each file that changes what the recipes named before it had set, "": none does:
    `objectives/tlm.gin` behind a recipe brings its own `MAX_PIECES`, and ends its other objectives.
    overrides: "NAME=VALUE", which come last of all. Raises UserError for a missing file."""
    overridden = {override.partition("=")[0] for override in overrides}
    lines = []
    before: dict[str, str] = {}
    for file in files:
        here = {macro.name: macro.written for macro in macros_of([file])}
        for text, _ in parts_of([file]):
            for value in _OBJECTIVES.findall(text):
                here["train.objectives"] = value
        changed = [
            f"{name}={value} (was {before[name]})"
            for name, value in here.items()
            if name in before
            and name not in overridden
            and "%gin.REQUIRED" not in (value, before[name])
            and _value(value) != _value(before[name])
        ]
        if changed:
            lines.append(f"note: {file} sets {', '.join(changed)}")
        before |= here
    return "\n".join(lines)


def _value(written: str) -> Any:
    """A literal, however it is written; of what is none, like %BATCH, the text."""
    try:
        return ast.literal_eval(written)
    except (ValueError, SyntaxError):
        return written


def table(file: str) -> str:
    """The macros that one gin file sets, as Markdown: what docs/recipes.md shows of it; "": it sets
    none. file: "runs/common.gin". Raises UserError for a missing file."""
    path = find_gin(file)
    if path is None:
        raise UserError(f"missing file: {file}")
    macros = [*macros_in(path.read_text(encoding="utf-8"), file)]
    rows = [
        f"| `{macro.name}` | {_default(macro.value)} | {_markdown(macro.meaning)} |"
        for macro in macros
    ]
    if not rows:
        return ""
    return "\n".join(["| Macro | Default | Meaning |", "|---|---|---|", *rows])


def _statements(text: str) -> Iterator[tuple[str, str]]:
    """(a statement in one line, the comment behind its last line)."""
    parts: list[tokenize.TokenInfo] = []
    # A statement is given out when the next one begins: comments on lines of their own, indented
    # below it, still belong to it.
    done, comments = "", []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if parts:
                # Of an entry, if more of the value follows.
                comments = [token.string]
            # A comment in the first column belongs to what follows it.
            elif done and token.start[1]:
                comments.append(token.string)
        elif token.type == tokenize.NEWLINE:
            done, parts = _joined(parts), []
        elif token.string.strip() and token.type != tokenize.ENDMARKER:
            if done:
                yield done, _sentence(comments)
                done, comments = "", []
            # The comment was one of an earlier line within
            # brackets, so it explains that entry alone.
            if parts and token.start[0] > parts[-1].end[0]:
                comments = []
            parts.append(token)
    if done:
        yield done, _sentence(comments)


def _joined(tokens: Sequence[tokenize.TokenInfo]) -> str:
    """The tokens as they were spaced; where a line ended, with one space, or none in a bracket."""
    text = ""
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before and before.end[0] == token.start[0]:
            text += " " * (token.start[1] - before.end[1])
        # The comma behind the last entry is a habit of lists over several lines.
        elif before and token.string in ")]}":
            text = text.removesuffix(",")
        elif before and before.string not in "([{":
            text += " "
        text += token.string
    return text


def _sentence(comments: Sequence[str]) -> str:
    return " ".join(comment.lstrip("#").strip() for comment in comments)


def _without_percent(value: str) -> str:
    """`%BATCH` is BATCH; what stands in quotes is left alone."""
    # Quoted text is matched first, so that a percent sign in a pattern or a path stays.
    quoted = r"\"[^\"]*\"|'[^']*'"
    return re.sub(rf"({quoted})|%({_NAME})\b", lambda found: found[1] or found[2], value)


def _default(value: str) -> str:
    if re.fullmatch(r"\"[^\"]+\"", value):
        value = value[1:-1]
    # A plain word reads well without quotes; the name of another macro is set as code.
    if re.fullmatch(r"[\w.+-]+", value) and value not in _names():
        return value
    return f"`{value}`".replace("|", "\\|")


def _markdown(meaning: str) -> str:
    """As Markdown: code stays code, what is set to a macro becomes it, and no character of the rest
    is markup."""
    text = ""
    for part in re.split(r"(`[^`]*`)", meaning):
        if part.startswith("`"):
            text += part
        else:
            text += _plain(part)
    return text.replace("|", "\\|")


def _plain(text: str) -> str:
    def shown(found: re.Match) -> str:
        if found[1] in _names():
            return f"`{found[0]}`"
        return found[0]

    # Before macros get their backquotes, in which a backslash would be shown.
    text = re.sub(r"([*\\])", r"\\\1", text).replace("<", "&lt;")
    return re.sub(rf"\b({_NAME})(=\w+)?\b", shown, text)


@functools.cache
def _names() -> frozenset[str]:
    """Every macro that a gin file of ours sets."""
    names: set[str] = set()
    for path in gin_folder().rglob("*.gin"):
        text = path.read_text(encoding="utf-8")
        names.update(re.findall(rf"^({_NAME})\s*=", text, re.MULTILINE))
    return frozenset(names)


def _shown(where: str) -> str:
    """Of our own files what a recipe calls them: "runs/common.gin"."""
    return where.removeprefix(f"{gin_folder()}/")
