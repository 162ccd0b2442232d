"""The verbs of text and vocabularies: `vocab`, `data`, `cache`, `demo`."""

import dataclasses
from argparse import BooleanOptionalAction, Namespace
from pathlib import Path

from xlingjax.cli.types import (
    assigned,
    count,
    coverage,
    limits,
    not_negative,
    number_or_none,
    place,
    positive,
    seed,
    share,
    vocabulary_size,
)
from xlingjax.cli.verb import RUN, TEXT, Option, Verb, option, workdir_of
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json, require_folder
from xlingjax.runtime.lock import alone_at


def vocab(args: Namespace) -> int:
    from xlingjax.data.vocabulary.training import format_report, train_vocabulary

    # The verbs behind `vocab` have --to, so argparse cannot require it.
    if not args.output:
        raise UserError("vocab: --to is needed (see xlingjax vocab --help)")
    names = (
        *("mono", "parallel", "size", "alpha", "sentences", "character_coverage"),
        *("model_type", "byte_fallback", "normalization", "sentinels", "seed"),
    )
    with alone_at(args.output):
        train_vocabulary(args.output, **{name: getattr(args, name) for name in names})
        report = parsed_json(Path(args.output, "vocab.json").read_bytes())
    print(format_report(report["languages"]))
    print(f"vocabulary in {args.output}: {report['size']} pieces of at most {args.size}")
    return 0


def extend(args: Namespace) -> int:
    from xlingjax.convert import vocabulary

    names = (
        *("mono", "parallel", "pieces", "old_mono", "initialise", "seed"),
        *("alpha", "sentences", "character_coverage"),
    )
    given = {name: getattr(args, name) for name in names}
    print(vocabulary.extend(workdir_of(args.run), args.output, **given))
    return 0


def _sample(alpha: str) -> list[Option]:
    covered = "share of characters with a piece (%(default)s)"
    return [
        option("--alpha", alpha, not_negative, default=0.5),
        option("--sentences", "size of the sample (default %(default)s)", positive, default=10**6),
        option("--character-coverage", covered, coverage, default=0.9995),
    ]


_RULES = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")
_TO = option("--to", "a new workdir, for INIT_FROM", place, "DIR", required=True)
_ROWS = (
    option(
        "--initialise",
        "new rows: mean of the old pieces that spell it, or as in an untrained model (%(default)s)",
        default="mean",
        choices=("mean", "random"),
    ),
    option("--seed", type=seed, default=0),
)
EXTEND = Verb(
    "extend",
    "add pieces for a new language or script, learnt on its text",
    extend,
    [
        RUN,
        _TO,
        *TEXT,
        option("--pieces", "how many", positive, "N", required=True),
        option(
            "--old-mono",
            "text of the old languages: nothing is added that would change how it is cut",
            nargs="+",
            default=[],
            metavar="GLOB",
        ),
        *_sample("of several languages, as in vocab (default %(default)s)"),
        *_ROWS,
    ],
)
TRIM = Verb(
    "trim",
    "drop the pieces that a text does not use, and their rows",
    "convert.vocabulary:trim",
    [
        RUN,
        _TO,
        *TEXT,
        option("--keep-min-count", "that keep a piece (1)", positive, "N", dest="min_count"),
        option("--size", "rows at most; the most frequent pieces stay", positive, "N"),
        option(
            "--drop-characters",
            "single characters too (default: they stay)",
            action="store_false",
            dest="characters",
        ),
    ],
)
TRANSPLANT = Verb(
    "transplant",
    "move a model onto another vocabulary; pieces that both have keep their rows",
    "convert.vocabulary:transplant",
    [
        RUN,
        _TO,
        *TEXT,
        option("--vocabulary", "folder of vocab.model, or a file", metavar="PATH", required=True),
        *_ROWS,
    ],
)
VOCAB = Verb(
    "vocab",
    "train a SentencePiece vocabulary on a smoothed sample; or extend, trim, transplant a model's",
    vocab,
    [
        *TEXT,
        option("--to", "folder for vocab.model and vocab.json", place, "DIR"),
        option("--size", "pieces at most (%(default)s)", vocabulary_size, default=32000),
        *_sample("languages are sampled by share ** alpha (default %(default)s)"),
        option("--model-type", default="unigram", choices=("unigram", "bpe")),
        option("--byte-fallback", "unknown characters become bytes, not <unk>", bool),
        option("--normalization", "nmt_nfkc_cf folds case", default="nmt_nfkc", choices=_RULES),
        option("--sentinels", "for span corruption (T5 has 100)", count, "N", default=0),
        option("--seed", type=seed, default=0),
    ],
    verbs=[EXTEND, TRIM, TRANSPLANT],
)

# That of evaluation/metrics/moses.py: --help has to answer at once.
MOSES = ("punctuation", "romanian", "diacritics", "tokenise", "hyphens", "compounds", "lowercase")


def check(args: Namespace) -> int:
    from xlingjax.data.check import check
    from xlingjax.data.sampling import Sampling
    from xlingjax.data.vocabulary.sentencepiece import Vocabulary
    from xlingjax.preprocessors.xlm import MlmFeatures, TlmFeatures

    findings = check(
        args.mono,
        args.parallel,
        Vocabulary.load(args.vocabulary) if args.vocabulary else None,
        readers=(MlmFeatures(), TlmFeatures()),
        batch=args.batch,
        length=args.length,
        steps=args.steps,
        sampling=Sampling(alpha=args.alpha),
    )
    print(findings.text())
    # So that a script stops where something must be repaired.
    return 1 if findings.errors else 0


def clean(args: Namespace) -> int:
    from xlingjax.data.clean.settings import CleanSettings
    from xlingjax.workflows.files.clean import CleanRequest, clean, summary

    fields = dataclasses.fields(CleanSettings)
    settings = CleanSettings(**{field.name: getattr(args, field.name) for field in fields})
    request = CleanRequest(
        args.output,
        tuple(args.mono),
        tuple(args.parallel),
        tuple(args.wikipedia),
        settings,
        args.processes,
    )
    print(summary(request, clean(request)))
    return 0


def iwslt14(args: Namespace) -> int:
    from xlingjax.data.text.iwslt import read_iwslt
    from xlingjax.evaluation.metrics.moses import moses_steps

    languages = ("de", "en")
    steps = [moses_steps(args.moses, code) for code in languages]
    counted = [moses_steps(("tokenise",), code) for code in languages]
    require_folder(args.output)
    output = Path(args.output)
    found = read_iwslt(args.folder, languages, counted)
    output.mkdir(parents=True, exist_ok=True)
    for name, pairs in found.items():
        for side, language in enumerate(languages):
            lines = [steps[side](pair[side]) + "\n" for pair in pairs]
            path = output / f"{name}.de-en.{language}"
            path.write_text("".join(lines), encoding="utf-8")
        print(f"{output / name}.de-en: {len(pairs):,} pairs")
    return 0


def moses(args: Namespace) -> int:
    from xlingjax.evaluation.metrics.moses import moses_steps
    from xlingjax.workflows.files.translate import texts

    taken = moses_steps(args.steps, args.language)
    for line in texts(None):
        print(taken(line))
    return 0


def _switch(name: str, default: bool, help: str) -> Option:
    """--NAME and --no-NAME."""
    return option(f"--{name}", help, action=BooleanOptionalAction, default=default)


_ALPHA = "languages are drawn by share ** alpha (default %(default)s)"
CHECK = Verb(
    "check",
    "find what is wrong with a corpus, and what a run would read of it; exit 1 when something must"
    " be repaired",
    check,
    [
        *TEXT,
        option("--vocabulary", "adds tokens, epochs, unknown pieces", metavar="PATH"),
        option("--length", "tokens in a row (default %(default)s)", positive, default=256),
        option("--batch", "rows in a batch (default %(default)s)", positive, default=64),
        option("--steps", "steps of the run, for its epochs (default: 1000)", positive),
        option("--alpha", _ALPHA, not_negative, default=0.7),
    ],
)
CLEAN = Verb(
    "clean",
    "turn raw files into files that pretrain reads: extract, normalise, split, filter,"
    " deduplicate; an interrupted cleaning goes on when it is called again",
    clean,
    [
        *TEXT,
        option(
            "--wikipedia",
            "dumps: dewiki-20260101-pages-articles.xml.bz2; CODE=GLOB names the language",
            nargs="+",
            default=[],
            metavar="GLOB",
        ),
        option("--to", "gets mono/, parallel/, report.json", place, "FOLDER", required=True),
        option("--processes", "of this machine (default %(default)s)", positive, "N", default=1),
        _switch("characters", True, "NFC, without control characters"),
        _switch("punctuation", False, "Moses' normalisation of punctuation, as in XLM's text"),
        _switch("sentences", True, "one sentence of monolingual text a line"),
        option("--length", "characters of a line (1,5000)", limits, "MIN,MAX", default=(1, 5000)),
        option("--tokens", "words of a line (1,250)", limits, "MIN,MAX", default=(1, 250)),
        option(
            "--script-share",
            "of the letters in the script of the language, at least (default %(default)s)",
            share,
            "SHARE",
            default=0.5,
        ),
        _switch("copies", True, "leave out pairs whose sides are the same"),
        option(
            "--ratio",
            "words of the longer side of a pair over the shorter, at most (default %(default)s)",
            number_or_none,
            "R",
            default=9.0,
        ),
        option(
            "--identify",
            "leave out other languages: a file of fastText, or lid.176.ftz of the extra clean",
            metavar="MODEL",
        ),
        option("--identify-threshold", "at least (default %(default)s)", share, "P", default=0.5),
        _switch("exact", True, "leave out repetitions"),
        option(
            "--near",
            "leave out what is so similar to an earlier text, or none (default %(default)s)",
            number_or_none,
            "SIMILARITY",
            default=0.8,
        ),
        option(
            "--unit",
            "what is identified and compared as one text (default %(default)s)",
            choices=("lines", "documents"),
            default="lines",
        ),
    ],
    alone=True,
)
IWSLT14 = Verb(
    "iwslt14",
    "IWSLT14 German and English as line-aligned files: train, valid, test as fairseq's"
    " prepare-iwslt14.sh splits them",
    iwslt14,
    [
        option("folder", "de-en, of the archive de-en.tgz", metavar="FOLDER"),
        option("--to", "gets train.de-en.de, ...", place, "FOLDER", required=True),
        option(
            "--moses",
            "done to every line; fairseq's files: tokenise lowercase (default: the text as it is)",
            nargs="+",
            choices=MOSES,
            default=[],
            metavar="STEP",
        ),
    ],
)
_STEPS = f"{', '.join(MOSES)}; taken in this order"
TAKE_MOSES = Verb(
    "moses",
    "the steps of Moses and of the scripts around it on lines: standard input to output",
    moses,
    [
        option("steps", _STEPS, nargs="+", choices=MOSES, metavar="STEP"),
        option("--language", metavar="CODE", required=True),
    ],
    listens=True,
)
DATA = Verb(
    "data",
    "look at a corpus before a run, or clean it",
    "",
    verbs=[CHECK, CLEAN, IWSLT14, TAKE_MOSES],
)


def cache(args: Namespace) -> int:
    from xlingjax.data.store.entries import cache_root
    from xlingjax.workflows.cache import fill_cache

    # Runs that meanwhile tokenise the same write what is equal, each for itself.
    with alone_at(cache_root() / "tokens", "set XLINGJAX_CACHE to another folder"):
        fill_cache(
            args.mono,
            args.parallel,
            args.vocabulary,
            args.processes,
            args.runner,
            args.workers,
            args.beam,
        )
    return 0


def demo(args: Namespace) -> int:
    from xlingjax.demo import LANGUAGES, write

    require_folder(args.folder, "DIR")
    with alone_at(args.folder, "choose another folder"):
        written = write(args.folder, args.languages or LANGUAGES, dict(args.size))
    languages = ", ".join(written["languages"])
    print(f"demo in {args.folder}: {languages}; {len(written['files'])} files")
    return 0


CACHE = Verb(
    "cache",
    "tokenise a corpus before a run does, in several processes or in Beam",
    cache,
    [
        *TEXT,
        option("--vocabulary", "the run's", metavar="PATH", required=True),
        option("--processes", "of this machine (default: one a core)", positive, "N"),
        option(
            "--runner",
            "of Apache Beam; none: this machine without it (default: none)",
            choices=("none", "Direct", "Flink", "Spark", "Dataflow"),
            default="none",
        ),
        option("--workers", "processes of --runner Direct (default 1)", positive, "N", default=1),
        option("beam", "Beam's own options: -- --parallelism=8", metavar="-- OPTION", nargs="*"),
    ],
)
DEMO = Verb(
    "demo",
    "write the embedded multilingual corpus with its labelled sets",
    demo,
    [
        option("folder", metavar="DIR"),
        option("--languages", "default: all", nargs="+", metavar="CODE"),
        option(
            "--size",
            "at most so many rows of a file, like mono=2000 pairs=1000 nli_train=300",
            assigned("NAME=COUNT, like mono=2000", count),
            "NAME=N",
            nargs="+",
            default=[],
        ),
    ],
)
