"""`xlingjax data check`, `xlingjax data clean` and `xlingjax data iwslt14`."""

import argparse
import dataclasses
from argparse import Namespace
from typing import Any

from xlingjax.cli.arguments import Parser, text_options
from xlingjax.cli.types import not_negative, place, positive, share
from xlingjax.cli.verb import Verb
from xlingjax.errors import UserError
from xlingjax.runtime.lock import alone_at
from xlingjax.runtime.numerals import is_number, is_whole

# Those of data/beam.py and data/clean: --help has to answer at once.
RUNNERS = ("none", "Direct", "Flink", "Spark", "Dataflow")
UNITS = ("lines", "documents")
KEEP = ("head", "middle", "tail")
# That of evaluation/metrics/moses.py.
MOSES = ("punctuation", "romanian", "diacritics", "tokenise", "hyphens", "compounds", "lowercase")


def options(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        dest="action", metavar="check|clean|iwslt14|moses", required=True, parser_class=Parser
    )
    _check_options(actions)
    _clean_options(actions)
    _iwslt_options(actions)
    _moses_options(actions)


def _check_options(actions: Any) -> None:
    text = (
        "find what is wrong with a corpus, and what a run would read of it; exit 1 when something"
        " must be repaired"
    )
    check = actions.add_parser("check", help=text, description=text)
    text_options(check)
    check.add_argument(
        "--vocabulary",
        metavar="PATH",
        help="adds tokens, epochs per language, unknown pieces, cache size",
    )
    check.add_argument(
        "--length", type=positive, default=256, help="tokens in a row (default %(default)s)"
    )
    check.add_argument(
        "--batch", type=positive, default=64, help="rows in a batch (default %(default)s)"
    )
    check.add_argument(
        "--steps", type=positive, help="steps of the run, for its epochs (default: 1000)"
    )
    check.add_argument(
        "--alpha",
        type=not_negative,
        default=0.7,
        help="languages are drawn by share ** alpha (default %(default)s)",
    )
    check.set_defaults(run_action=_check)


def _clean_options(actions: Any) -> None:
    text = (
        "turn raw files into files that pretrain reads: extract, normalise, split, filter,"
        " deduplicate; an interrupted cleaning goes on when it is called again"
    )
    clean = actions.add_parser("clean", help=text, description=text)
    clean.epilog = "Behind `--` stand Beam's own options: -- --parallelism=8"
    text_options(clean)
    clean.add_argument(
        "--wikipedia",
        nargs="+",
        default=[],
        metavar="GLOB",
        help="dumps: dewiki-20260101-pages-articles.xml.bz2; CODE=GLOB names the language",
    )
    clean.add_argument(
        "--output",
        type=place,
        required=True,
        metavar="FOLDER",
        help="gets mono/, parallel/ and report.json",
    )
    runner_options(clean)
    _step_options(clean)
    clean.set_defaults(run_action=_clean)


def _iwslt_options(actions: Any) -> None:
    text = (
        "IWSLT14 German and English as line-aligned files: train, valid, test as fairseq's"
        " prepare-iwslt14.sh splits them"
    )
    iwslt = actions.add_parser("iwslt14", help=text, description=text)
    iwslt.add_argument("folder", metavar="FOLDER", help="de-en, of the archive de-en.tgz")
    iwslt.add_argument(
        "--output",
        type=place,
        required=True,
        metavar="FOLDER",
        help="gets train.de-en.de, train.de-en.en, valid.*, test.*",
    )
    text = (
        "what is done to every line; fairseq's files: tokenise lowercase (default: the text as it"
        " is)"
    )
    iwslt.add_argument("--moses", nargs="+", choices=MOSES, default=[], metavar="STEP", help=text)
    iwslt.set_defaults(run_action=_iwslt)


def _moses_options(actions: Any) -> None:
    text = "the steps of Moses and of the scripts around it on lines: standard input to output"
    moses = actions.add_parser("moses", help=text, description=text)
    moses.add_argument(
        "steps",
        nargs="+",
        choices=MOSES,
        metavar="STEP",
        help=f"{', '.join(MOSES)}; taken in this order",
    )
    moses.add_argument("--language", required=True, metavar="CODE")
    moses.set_defaults(run_action=_moses)


def _step_options(clean: argparse.ArgumentParser) -> None:
    """One per step, in their order."""
    switch(clean, "characters", True, "NFC, without control characters")
    switch(clean, "punctuation", False, "Moses' normalisation of punctuation, as XLM's text has it")
    switch(clean, "sentences", True, "one sentence of monolingual text a line")
    clean.add_argument(
        "--length",
        type=limits,
        default=(1, 5000),
        metavar="MIN,MAX",
        help="characters of a line, or none (default 1,5000)",
    )
    clean.add_argument(
        "--tokens",
        type=limits,
        default=(1, 250),
        metavar="MIN,MAX",
        help="words of a line, or none (default 1,250)",
    )
    clean.add_argument(
        "--script_share",
        type=share,
        default=0.5,
        metavar="SHARE",
        help="of the letters in the script of the language, at least; 0: any (default %(default)s)",
    )
    switch(clean, "copies", True, "leave out pairs whose sides are the same")
    clean.add_argument(
        "--ratio",
        type=number_or_none,
        default=9.0,
        metavar="R",
        help="words of the longer side of a pair over the shorter, at most, or none (default"
        " %(default)s)",
    )
    clean.add_argument(
        "--identify",
        metavar="MODEL",
        help="leave out other languages: a file of fastText, or lid.176.ftz, which the extra clean"
        " brings (default: no)",
    )
    clean.add_argument(
        "--identify_threshold",
        type=share,
        default=0.5,
        metavar="P",
        help="probability of the language, at least (default %(default)s)",
    )
    switch(clean, "exact", True, "leave out repetitions")
    clean.add_argument(
        "--near",
        type=number_or_none,
        default=0.8,
        metavar="SIMILARITY",
        help="leave out what is so similar to an earlier text, or none (default %(default)s)",
    )
    clean.add_argument(
        "--language_model",
        nargs="+",
        default=[],
        metavar="CODE=MODEL",
        help="filter by perplexity: a file of KenLM (.arpa, .bin) or a run",
    )
    clean.add_argument(
        "--keep",
        nargs="+",
        choices=KEEP,
        default=["head", "middle"],
        help="parts by perplexity (default: head middle)",
    )
    clean.add_argument(
        "--percentiles",
        type=two_percentiles,
        default=(30.0, 60.0),
        metavar="A,B",
        help="where head and middle end (default 30,60)",
    )
    clean.add_argument(
        "--unit",
        choices=UNITS,
        default="lines",
        help="what is identified, compared and scored as one text (default %(default)s)",
    )


def runner_options(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """default: a runner; None: Direct where Beam is installed."""
    parser.add_argument(
        "--runner",
        choices=RUNNERS,
        default=default,
        help="of Apache Beam; none: this machine without it (default:"
        f" {default or 'Direct where the extra beam is installed'})",
    )
    parser.add_argument(
        "--workers",
        type=positive,
        default=1,
        metavar="N",
        help="processes of --runner Direct (default %(default)s)",
    )
    parser.add_argument("beam", nargs="*", metavar="-- OPTION", help="Beam's own options")


def switch(parser: argparse.ArgumentParser, name: str, default: bool, help: str) -> None:
    """--NAME and --no-NAME."""
    parser.add_argument(
        f"--{name}", action=argparse.BooleanOptionalAction, default=default, help=help
    )


def limits(text: str) -> tuple[int, int] | None:
    if text == "none":
        return None
    low, _, high = text.partition(",")
    if not is_whole(low) or not is_whole(high) or int(low) > int(high):
        raise argparse.ArgumentTypeError(f"{text!r} is not MIN,MAX, like 1,250, or none")
    return int(low), int(high)


def number_or_none(text: str) -> float | None:
    if text == "none":
        return None
    if not is_number(text) or float(text) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, or none")
    return float(text)


def two_percentiles(text: str) -> tuple[float, float]:
    low, _, high = text.partition(",")
    two = is_number(low) and is_number(high)
    if two and 0 <= float(low) <= float(high) <= 100:
        return float(low), float(high)
    raise argparse.ArgumentTypeError(f"{text!r} is not A,B from 0 to 100, like 30,60")


def run(args: Namespace) -> int:
    return args.run_action(args)


def _check(args: Namespace) -> int:
    from xlingjax.data.check import check
    from xlingjax.data.sampling import Sampling
    from xlingjax.data.vocabulary.sentencepiece import Vocabulary
    from xlingjax.preprocessors.xlm import MlmFeatures, TlmFeatures

    vocabulary = None
    if args.vocabulary:
        vocabulary = Vocabulary.load(args.vocabulary)
    findings = check(
        args.mono,
        args.parallel,
        vocabulary,
        readers=(MlmFeatures(), TlmFeatures()),
        batch=args.batch,
        length=args.length,
        steps=args.steps,
        sampling=Sampling(alpha=args.alpha),
    )
    print(findings.text())
    # So that a script stops where something must be repaired.
    if findings.errors:
        return 1
    return 0


def _clean(args: Namespace) -> int:
    from xlingjax.data.beam import NO_RUNNER, has_beam
    from xlingjax.data.clean.settings import CleanSettings
    from xlingjax.workflows.files.clean import CleanRequest, clean, summary

    runner = args.runner
    if runner is None:
        runner = NO_RUNNER
        if has_beam():
            runner = "Direct"
        print(f"--runner {runner}")
    steps = {}
    for field in dataclasses.fields(CleanSettings):
        if field.name in args:
            steps[field.name] = getattr(args, field.name)
    settings = CleanSettings(
        **steps | {"keep": tuple(args.keep)}, language_models=_language_models(args.language_model)
    )
    request = CleanRequest(
        args.output,
        tuple(args.mono),
        tuple(args.parallel),
        tuple(args.wikipedia),
        settings,
        runner,
        args.workers,
        tuple(args.beam),
    )
    with alone_at(args.output):
        print(summary(request, clean(request)))
    return 0


def _iwslt(args: Namespace) -> int:
    from pathlib import Path

    from xlingjax.data.text.iwslt import read_iwslt
    from xlingjax.evaluation.metrics.moses import moses_steps

    languages = ("de", "en")
    steps = [moses_steps(args.moses, code) for code in languages]
    counted = [moses_steps(("tokenise",), code) for code in languages]
    output = Path(args.output)
    found = read_iwslt(args.folder, languages, counted)
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, pairs in found.items():
            for side, language in enumerate(languages):
                lines = [steps[side](pair[side]) + "\n" for pair in pairs]
                path = output / f"{name}.de-en.{language}"
                path.write_text("".join(lines), encoding="utf-8")
            print(f"{output / name}.de-en: {len(pairs):,} pairs")
    except OSError as error:
        raise UserError(
            f"--output {output}: cannot be written ({error.strerror}); choose another folder"
        ) from None
    return 0


def _moses(args: Namespace) -> int:
    from xlingjax.evaluation.metrics.moses import moses_steps
    from xlingjax.workflows.files.translate import texts

    taken = moses_steps(args.steps, args.language)
    for line in texts(None):
        print(taken(line))
    return 0


def _language_models(words: list[str]) -> tuple[tuple[str, str], ...]:
    """Raises UserError: no code, two models of a language."""
    models: dict[str, str] = {}
    for word in words:
        code, is_given, path = word.partition("=")
        if not is_given or not code or not path:
            raise UserError(f"--language_model {word}: write CODE=MODEL, like de=de.arpa.bin")
        if code in models:
            raise UserError(f"--language_model: {code} has two models")
        models[code] = path
    return tuple(sorted(models.items()))


VERB = Verb("data", "look at a corpus before a run, or clean it", options, run)
