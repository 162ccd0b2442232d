"""A hook of mkdocs: the pages of verbs and options, made from the command's own parser."""

import argparse
import html
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from mkdocs.structure.files import File

from xlingjax.cli.main import GROUPS, parser

TITLE = "Verbs and options"


def on_config(config):
    """The entry of mkdocs.yml with this title gets a page for each group of `xlingjax --help`."""
    [entry] = [one for part in config.nav for one in _entries(part) if TITLE in one]
    entry[TITLE] = ["verbs/index.md", *({_sentence(title): _page(title)} for title in GROUPS)]
    return config


def on_files(files, config):
    verbs = _verbs(parser())
    overview = [f"# {TITLE}", "The same as `xlingjax VERB --help` prints."]
    for title, group in GROUPS.items():
        names = [name for verb in group for name in verbs if name.split()[0] == verb.name]
        text = [f"# {_sentence(title)}", *(_section(name, verbs[name]) for name in names)]
        files.append(File.generated(config, _page(title), content="\n\n".join(text)))
        overview.append(f"## {_sentence(title)}")
        rows = [
            f"| [`{name}`]({Path(_page(title)).name}#{name.replace(' ', '-')})"
            f" | {_cell(verbs[name].description)} |"
            for name in names
        ]
        overview.append("\n".join(["| Verb | |", "|---|---|", *rows]))
    files.append(File.generated(config, "verbs/index.md", content="\n\n".join(overview)))
    return files


def _entries(section) -> Iterator[dict]:
    """The entries of the navigation, however deep."""
    if isinstance(section, dict):
        yield section
        for below in section.values():
            if isinstance(below, list):
                yield from (one for part in below for one in _entries(part))


def _page(title: str) -> str:
    return f"verbs/{re.sub(r'[^a-z]+', '-', title)}.md"


def _sentence(title: str) -> str:
    return title[0].upper() + title[1:]


def _verbs(above: argparse.ArgumentParser, within: str = "") -> dict:
    """{name: its parser}, those behind a verb too."""
    found = {}
    for action in above._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, one in action.choices.items():
                found |= {f"{within}{name}": one, **_verbs(one, f"{within}{name} ")}
    return found


def _section(name: str, verb: argparse.ArgumentParser) -> str:
    parts = [f"## {name}", verb.description]
    example = re.search(r"example:\n  (.+)", verb.epilog or "")
    if example:
        parts.append(f"```\n{example[1]}\n```")
    groups = {"": []}
    for group in verb._action_groups:
        # The first two are argparse's own: arguments, options.
        title = "" if group in verb._action_groups[:2] else _sentence(group.title)
        shown = [_row(verb, action) for action in group._group_actions if _is_option(action)]
        groups.setdefault(title, []).extend(shown)
    for title, rows in groups.items():
        if rows:
            parts += [f"**{title}**"] * bool(title)
            parts.append("\n".join(["| Option | Meaning |", "|---|---|", *rows]))
    if "--gin." in (verb.epilog or ""):
        parts.append("`--gin.MACRO=VALUE` and `--gin.NAME.PARAMETER=VALUE` override the recipe.")
    return "\n\n".join(parts)


def _is_option(action: argparse.Action) -> bool:
    hidden = (argparse._HelpAction, argparse._SubParsersAction)
    return not isinstance(action, hidden) and action.help != argparse.SUPPRESS


def _row(verb: argparse.ArgumentParser, action: argparse.Action) -> str:
    form = verb._get_formatter()
    if action.option_strings:
        value = form._format_args(action, form._get_default_metavar_for_optional(action))
        said = f"{', '.join(action.option_strings)} {value}".strip()
    else:
        said = form._format_args(action, form._get_default_metavar_for_positional(action))
    needed = " (needed)" if action.required and action.option_strings else ""
    return f"| `{said.replace('|', chr(92) + '|')}` | {_cell(form._expand_help(action))}{needed} |"


def _cell(text: str) -> str:
    return re.sub(r"([|*_`\[\]])", r"\\\1", html.escape(text, quote=False))
