"""The verbs of trained models: into and out of other programs, and what they make of a text."""

from argparse import Namespace
from pathlib import Path

from xlingjax.cli.machine import MACHINE, machine_of
from xlingjax.cli.types import (
    POOLINGS,
    at_most,
    count,
    not_negative,
    number,
    place,
    positive,
    seed,
    share,
    whole,
)
from xlingjax.cli.verb import (
    CARD,
    FOREIGN,
    LAYER,
    PREFIX,
    RUN,
    UNVERIFIED,
    Verb,
    option,
    require_unread,
    workdir_of,
)
from xlingjax.errors import UserError
from xlingjax.runtime.lock import alone_at

_NEW = option("--to", "a new workdir, for INIT_FROM", place, "DIR", required=True)
_LAYER = option("--layer", f"0: the embeddings (default: {LAYER})", whole, "N")
_POOLING = option("--pooling", "default: the run's own, else mean", choices=POOLINGS)
_PREFIX = option("--prefix", PREFIX, metavar="TEXT")


def plug(args: Namespace) -> int:
    from xlingjax.convert.cross_attention import plug_in, plug_out

    if args.direction == "out":
        require_unread(args, ("source", "seed"), "only plug in reads this")
        print(plug_out(workdir_of(args.run), args.output))
    else:
        print(plug_in(workdir_of(args.run), args.output, args.source, args.seed or 0))
    return 0


def export(args: Namespace) -> int:
    from xlingjax.convert.export_model import export_model

    names = ("verify", "language", "licence", "base", "head")
    given = {name: getattr(args, name) for name in names}
    print(export_model(workdir_of(args.run), args.output, **given))
    return 0


IMPORT = Verb(
    "import",
    "turn a model of another program into a workdir to start from, compared with the original"
    " first",
    "convert.import_model:import_model",
    [
        option(
            "source",
            "its folder, file or hub id",
            # Other verbs name such a model by hf:, so it may be typed here too.
            lambda text: text.removeprefix(FOREIGN),
            "MODEL",
        ),
        option("--to", "a new workdir, for INIT_FROM", place, "DIR", required=True),
        UNVERIFIED,
        option(
            "--pooling",
            "of its sentence vectors (default: what 1_Pooling/config.json and the files beside it"
            " say)",
            choices=POOLINGS,
        ),
        option("--prefix", "of them, before every sentence: 'query: '", metavar="TEXT"),
        option("--layer", "of them, 0: the embeddings (default: the last)", whole, "N"),
    ],
)
EXPORT = Verb(
    "export",
    "write a trained model as a folder that AutoModel or AutoModelForSeq2SeqLM of transformers"
    " opens, compared with it first",
    export,
    [
        option("run", "a run; RUN@STEP, RUN@METRIC", metavar="RUN"),
        option("--to", "a new folder", place, "DIR", required=True),
        option("--head", "which, of a run with heads of several tasks", metavar="TASK", default=""),
        *CARD,
        UNVERIFIED,
    ],
)
AVERAGE = Verb(
    "average",
    "write one model of several checkpoints, of a run or of several runs",
    "convert.average:average",
    [
        option("runs", "workdir of a run; or several RUN, RUN@STEP", metavar="RUN", nargs="+"),
        option("--last", "of its newest N checkpoints (see KEEP_CHECKPOINTS)", positive, "N"),
        option("--steps", "of the checkpoints of these steps", count, "N", nargs="+"),
        option(
            "--method", "mean; ties: of the largest changes since --base", choices=("mean", "ties")
        ),
        option("--base", "of ties: RUN or RUN@STEP that all began with", metavar="RUN"),
        _NEW,
    ],
)
PLUG = Verb(
    "plug",
    "write a trained model with its cross-attention plugged out, or plugged in",
    plug,
    [
        option("direction", choices=("out", "in")),
        RUN,
        _NEW,
        option("--source", "with in: take its cross-attention (else a random one)", metavar="RUN"),
        option("--seed", "with in: of a random one (default 0)", seed),
    ],
)

ENCODE = Verb(
    "encode",
    "write a vector of every line of a file, float32 in .npy",
    "workflows.files.encode:encode",
    [
        RUN,
        option("--to", ".npy is added where it is missing", place, "PATH", required=True),
        _LAYER,
        option("--input", "one sentence per line", metavar="FILE", dest="source", required=True),
        option("--language", metavar="CODE", required=True),
        _POOLING,
        _PREFIX,
    ],
    alone=True,
)
ALIGN = Verb(
    "align",
    "align the words of translated sentences: Pharaoh lines",
    "workflows.files.encode:align",
    [
        RUN,
        option("--to", "the links", place, "PATH", required=True),
        option("--layer", "0: the embeddings (default: two thirds of the way up)", whole, "N"),
        option("--languages", nargs=2, metavar=("SRC", "TGT"), required=True),
        option("--stem", "files STEM.SRC and STEM.TGT, in words", metavar="STEM", required=True),
        option("--method", default="itermax", choices=("itermax", "intersection")),
    ],
    alone=True,
)
WORDS = Verb(
    "words",
    "measure the token table as word embeddings: dictionaries, similarity of words",
    "workflows.files.words:words",
    [
        RUN,
        option(
            "--dictionary",
            "lines of a word, a tab and its translation (MUSE); repeat",
            action="append",
            default=[],
            metavar="AA-BB=FILE",
            dest="dictionaries",
        ),
        option(
            "--similarity",
            "lines of a word, a word and a score, tabs between (SemEval-2017 task 2); repeat",
            action="append",
            default=[],
            metavar="AA-BB=FILE",
            dest="similarities",
        ),
        option(
            "--pieces",
            "single: words of one piece; mean: all, the mean of their pieces (default %(default)s)",
            default="single",
            choices=("single", "mean"),
        ),
        option("--to", "write the figures as JSON too", metavar="FILE"),
    ],
)

# What either use of `mine` reads, and the other refuses.
_OF_RUN = ("run", "languages", "files", "layer", "pooling", "prefix", "margin", "threshold")
_OF_NEGATIVES = ("parallel", "vocabulary", "steps", "random_share", "platform")


def mine(args: Namespace) -> int:
    names = ("layer", "pooling", "prefix", "k", "margin", "threshold")
    if args.negatives:
        names = ("steps", "k", "random_share")
    names = (*names, "search", "lists", "probes", "seed")
    # Hardly any option has a default, since the two uses have not the same.
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.negatives:
        from xlingjax.data.vocabulary.sentencepiece import Vocabulary
        from xlingjax.inference.negatives import NegativesConfig, write_negatives

        require_unread(args, _OF_RUN, "mine --negatives reads pairs and no RUN")
        if not args.parallel or not args.vocabulary:
            raise UserError("mine --negatives reads --parallel pairs by a --vocabulary; give both")
        with alone_at(args.output):
            write_negatives(
                args.parallel,
                Vocabulary.load(args.vocabulary),
                Path(args.output),
                NegativesConfig(**given),
                runtime=machine_of(args),
            )
        return 0
    from xlingjax.workflows.files.mine import mine

    if not args.run or not args.files or not args.languages:
        raise UserError(
            "mine needs RUN, --files SRC_FILE TGT_FILE and --languages SRC TGT (or --negatives)"
        )
    require_unread(args, _OF_NEGATIVES, "only mine --negatives reads this")
    languages = (args.languages[0], args.languages[1])
    with alone_at(f"{args.output}.{'-'.join(languages)}.tsv"):
        print(mine(workdir_of(args.run), args.files, languages, args.output, **given))
    return 0


MINE = Verb(
    "mine",
    "find sentences of two texts that translate each other; or, of pairs, wrong partners to learn"
    " from",
    mine,
    [
        RUN._replace(settings=RUN.settings | {"nargs": "?"}),
        option("--to", "PATH.SRC-TGT.tsv; with --negatives a folder", place, "PATH", required=True),
        option("--languages", nargs=2, metavar=("SRC", "TGT")),
        option("--files", nargs=2, metavar=("SRC_FILE", "TGT_FILE")),
        _LAYER,
        _POOLING,
        _PREFIX,
        option("--neighbours", "default 4; with --negatives 10", positive, "K", dest="k"),
        option("--margin", "default ratio", choices=("ratio", "distance", "absolute")),
        option("--threshold", "lowest score kept (default: all)", number),
        option("--negatives", "tables for CLPC: sentences that look like a translation", bool),
        option("--parallel", "with --negatives: the pairs", nargs="+", metavar="GLOB"),
        option("--vocabulary", "with --negatives", metavar="PATH"),
        option("--steps", "with --negatives: of the light model (default 2000)", positive),
        option("--random-share", "with --negatives: share left to chance (default 0.1)", share),
        option("--seed", "of --negatives, and of the lists of ivf (default 0)", seed),
        option(
            "--search",
            "ivf: approximate, for large texts (default: exact; large texts need a choice)",
            choices=("exact", "ivf"),
        ),
        option("--lists", "of ivf (default: 4 times the root of the lines)", positive, "N"),
        option(
            "--probes", "of ivf: lists that a sentence looks through (default 32)", positive, "N"
        ),
        option("--platform", "with --negatives: cpu, gpu or tpu (default: what JAX finds)"),
    ],
)

# What the search alone reads, and --score refuses.
_OF_SEARCH = (
    *("beams", "no_repeat_ngram", "min_length", "max_length", "n_best", "temperature"),
    *("top_k", "seed", "references"),
)


def translate(args: Namespace) -> int:
    """Both `translate` and `generate`: one language may be another, or not."""
    from xlingjax.runtime.machine import start

    # `translate` has no --language.
    language = getattr(args, "language", None)
    source = args.source or language
    target = args.target or language
    if target is None:
        raise UserError("generate: which language? Give --language, or --source and --target")
    if args.name == "translate" and source == target:
        raise UserError(
            f"--source {source} --target {target}: name two languages; within one,"
            " `xlingjax generate` writes"
        )
    if args.score:
        require_unread(args, _OF_SEARCH, "--score searches for nothing")
    if not args.temperature:
        require_unread(args, ("top_k", "seed"), "only drawn tokens read this, see --temperature")
    start(machine_of(args))
    from xlingjax.model.decoding import Decoding
    from xlingjax.workflows.files.translate import Request, write

    names = (
        *("length_penalty", "no_repeat_ngram", "min_length", "max_length"),
        *("n_best", "temperature", "top_k"),
    )
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    # What is drawn or scored is not searched for.
    beams = args.beams or (1 if args.temperature or args.score else 5)
    request = Request(
        args.run,
        source,
        target,
        Decoding(beams=beams, **given),
        args.input,
        args.output,
        args.score,
        args.references,
        args.batch_tokens,
        args.truncate,
        args.seed or 0,
    )
    write(request)
    return 0


_DECODER = option("run", "workdir of a run with a decoder", metavar="RUN")
# No defaults where what is given and not read is refused.
_WRITING = (
    option("--source", "language of the input (default: a run of two's other)", metavar="CODE"),
    option("--input", "a line per text, also compressed (default: a pipe)", metavar="FILE"),
    option("--to", "first FILE.partial, which goes on if interrupted (a pipe)", place, "FILE"),
    option("--beams", "1: greedy (default 5; 1 with --temperature)", positive, "N"),
    option("--length-penalty", "score: log-probability / tokens ** P (1.0)", number, "P"),
    option("--no-repeat-ngram", "no N tokens in a row twice", positive, "N"),
    option("--min-length", "tokens, the end among them", positive, "N"),
    option("--max-length", "at most A * source tokens + B tokens (default 1.5,10)", at_most, "A,B"),
    option("--n-best", "N lines for each: number ||| text ||| score", positive, "N"),
    option("--temperature", "draw tokens instead of searching", not_negative, "T"),
    option("--top-k", "with --temperature: of the K likeliest", positive, "K"),
    option("--seed", "with --temperature (default 0)", seed, "N"),
    option(
        "--batch-tokens", "tokens x beams of a batch (%(default)s)", positive, "N", default=4096
    ),
    option("--truncate", "cut lines that are longer than the model's positions", bool),
    option("--score", "score its lines instead: score, log-probability, tokens", metavar="FILE"),
    option("--references", "print BLEU, chrF, ROUGE-L, share in a wrong language", metavar="FILE"),
    *MACHINE,
)
TRANSLATE = Verb(
    "translate",
    "translate each line of a file",
    translate,
    [_DECODER, option("--target", "language to write", metavar="CODE", required=True), *_WRITING],
    listens=True,
)
GENERATE = Verb(
    "generate",
    "write a text for each line of a file, in the same language: a title, a question",
    translate,
    [
        _DECODER,
        option("--language", "of both; else --source and --target", metavar="CODE"),
        option("--target", "language to write", metavar="CODE"),
        *_WRITING,
    ],
    listens=True,
)
