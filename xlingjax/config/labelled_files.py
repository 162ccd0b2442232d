"""A user's labelled files, one per language: a path with {language} where the code stands."""

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from xlingjax.data.text.files import refuse_lost_link
from xlingjax.data.text.names import is_language_code
from xlingjax.errors import UserError


def labelled_files(pattern: str, languages: Sequence[str]) -> dict[str, str]:
    """{language: file} for a path with {language}; languages without a file are left out."""
    if "{language}" not in pattern:
        raise UserError(
            f"labelled files {pattern!r}: write {{language}} where the code stands, as in"
            " nli/test-{language}.tsv"
        )
    found = {}
    for language in languages:
        path = pattern.replace("{language}", language)
        # A run measures the languages of its own that have a test file; few benchmarks have all.
        refuse_lost_link(Path(path))
        if Path(path).is_file():
            found[language] = path
    if not found:
        raise UserError(f"missing file: {pattern} exists for none of {', '.join(languages)}")
    return found


def languages_of_files(patterns: Sequence[str | None]) -> set[str]:
    """The codes that stand for {language} in the names of files that are there, of several such
    paths (None: no path). What may be a word instead of a code, three letters alone, is left out.
    """
    found = set()
    for pattern in filter(None, patterns):
        before, *behind = pattern.split("{language}")
        # The same code wherever {language} stands, which glob cannot say.
        expression = (
            re.escape(before) + "(?P<code>[^/]+)" + "(?P=code)".join(map(re.escape, behind))
        )
        # A folder may be called [v2], which glob would read as a set of letters.
        candidates = "*".join(map(glob.escape, (before, *behind)))
        for path in glob.glob(candidates):
            named = re.fullmatch(expression, path)
            if not named or not is_language_code(named["code"]):
                continue
            refuse_lost_link(Path(path))
            if Path(path).is_file():
                found.add(named["code"])
    return found


def paired_files(pattern: str, languages: Sequence[str], pivot: str) -> dict[str, str]:
    """{language: file} of `languages` and `pivot`. Raises UserError without one of them."""
    beside = [language for language in languages if language != pivot]
    if not beside:
        raise UserError(
            f"labelled files {pattern!r} in {pivot!r} alone: plug-in fine-tuning reads every"
            " example in two languages; name others in TRAIN_LANGUAGES, or set PIVOT"
        )
    files = labelled_files(pattern, (*beside, pivot))
    lacking = [code for code in (*beside, pivot) if code not in files]
    if lacking:
        raise UserError(
            f"missing file: {pattern.replace('{language}', lacking[0])}; plug-in fine-tuning reads"
            " every example in a language of TRAIN_LANGUAGES and in PIVOT, line by line"
        )
    return files
