"""The grammar of the command line: its verbs and their options. What the verbs do stands in `verbs.py`."""

import argparse

import xlingjax
from xlingjax.errors import UserError

_POOLINGS = ("mean", "mean_no_special", "first")
_NORMALIZATIONS = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")  # SentencePiece's


def parser() -> argparse.ArgumentParser:
    top = _Parser(
        prog="xlingjax", description="Cross-lingual pretraining in JAX.", epilog="xlingjax VERB --help explains a verb."
    )
    top.add_argument("--version", action="version", version=f"xlingjax {xlingjax.__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser)

    def verb(name: str, text: str, recipe: bool = False) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(name=name)
        if recipe:
            sub.add_argument(
                "--gin_file", action="append", default=[], metavar="FILE", help="a recipe; repeat to add bindings"
            )
            sub.epilog = "--gin.MACRO=VALUE and --gin.NAME.PARAMETER=VALUE override the recipe."
            sub.add_argument("--platform", default="", help="cpu, gpu or tpu (default: what JAX finds)")
            sub.add_argument("--devices", type=_positive, metavar="N", help="make the CPU look like N devices")
        return sub

    for name, text in (
        ("pretrain", "train a model by a recipe, or continue where the run in the workdir stopped"),
        ("finetune", "train a pretrained model on labelled examples by a recipe"),
    ):
        sub = verb(name, text, recipe=True)
        sub.add_argument(
            "--workdir",
            required=name == "pretrain",
            metavar="DIR",
            help="where the run lives: checkpoints, logs, report",
        )
        if name == "finetune":
            _sweep(sub)
        sub.add_argument(
            "--coordinator", default="", metavar="HOST:PORT", help="process 0 of several (SLURM and TPU pods need none)"
        )
        sub.add_argument("--num_processes", type=int, default=0, metavar="N", help="of all hosts together")
        sub.add_argument("--process_id", type=int, default=-1, metavar="I", help="of this one, from 0")

    sub = verb("bakeoff", "compare mixes of objectives: the same text, weights and tokens, several seeds", recipe=True)
    sub.add_argument("--workdir", required=True, metavar="DIR", help="where its runs live, and bakeoff.json")

    sub = verb(
        "table", "run the fine-tunings behind a table of a paper, gin/recipes/tables, from your encoders", recipe=True
    )
    sub.add_argument("--data", required=True, metavar="DIR", help="folder of the benchmarks' files")
    sub.add_argument("--to", dest="output", required=True, metavar="DIR", help="a folder ENCODER/ROW for each sweep")

    sub = verb("vocab", "train a SentencePiece vocabulary on a smoothed sample; or extend, trim, transplant a model's")
    _files(sub)
    sub.add_argument("--output", metavar="DIR", help="folder for vocab.model and vocab.json")
    sub.add_argument("--size", type=_positive, default=32_000, help="pieces, special too (default %(default)s)")
    sub.add_argument(
        "--alpha", type=float, default=0.5, help="languages are sampled by share ** alpha (default %(default)s)"
    )
    sub.add_argument("--sentences", type=_positive, default=1_000_000, help="size of the sample (default %(default)s)")
    sub.add_argument(
        "--character_coverage", type=float, default=0.9995, help="share of characters with a piece (%(default)s)"
    )
    sub.add_argument("--model_type", default="unigram", choices=("unigram", "bpe"))
    sub.add_argument("--byte_fallback", action="store_true", help="unknown characters become bytes, not <unk>")
    sub.add_argument("--normalization", default="nmt_nfkc", choices=_NORMALIZATIONS, help="nmt_nfkc_cf folds case")
    sub.add_argument("--seed", type=int, default=0)
    _surgery(sub)

    sub = verb("data", "look at a corpus before a run")
    data = sub.add_subparsers(dest="action", metavar="check", required=True, parser_class=_Parser)
    text = "find what is wrong with a corpus, and what a run would read of it; exit 1 when something must be repaired"
    check = data.add_parser("check", help=text, description=text)
    _files(check)
    check.add_argument(
        "--vocabulary", metavar="PATH", help="adds tokens, epochs per language, unknown pieces, cache size"
    )
    check.add_argument("--length", type=_positive, default=256, help="tokens in a row (default %(default)s)")
    check.add_argument("--batch", type=_positive, default=64, help="rows in a batch (default %(default)s)")
    check.add_argument("--steps", type=_positive, help="steps of the run, for its epochs (default: 1000)")
    check.add_argument(
        "--alpha", type=float, default=0.7, help="languages are drawn by share ** alpha (default %(default)s)"
    )

    sub = verb("tinyworld", "write the embedded multilingual corpus with its labelled sets")
    sub.add_argument("folder", metavar="DIR")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--size", default="demo", help="demo, full, or counts: mono=2000,pairs=1000 (default %(default)s)")
    sub.add_argument("--languages", default="", help="codes separated by commas (default: all)")
    text = "how unevenly running text uses its words: 0 evenly, 1 by Zipf's law, each with company of its own"
    sub.add_argument("--skew", type=float, default=0.0, help=text + " (default %(default)s)")
    text = "of the labelled training sets; several are translations line by line (default: en)"
    sub.add_argument("--train_languages", default="", help=text)
    sub.add_argument("--workers", type=_positive, default=2, metavar="N", help="processes (default %(default)s)")

    sub = verb(
        "inspect",
        "show what a recipe feeds the model: pieces, targets, positions, languages, packing, masks",
        recipe=True,
    )
    sub.add_argument("--rows", type=int, default=2, help="rows shown per objective (default %(default)s)")
    sub.add_argument("--output", default="", metavar="DIR", help="also write HTML and PNG here")

    text = (
        "test on this machine that every prediction of a recipe depends on what its objective promises and nothing else"
    )
    sub = verb("verify", text, recipe=True)
    sub.add_argument("--rows", type=_positive, default=4, help="rows tested per objective (default %(default)s)")

    sub = verb("freeze", "write a recipe's batches to files that train without TensorFlow", recipe=True)
    sub.add_argument("--batches", type=_positive, required=True, metavar="N", help="batches per objective")
    sub.add_argument("--output", required=True, metavar="DIR", help="folder for OBJECTIVE.frozen")

    text = "run evaluators (default: those of the run) on the newest checkpoint of a run; or a benchmark's tasks"
    sub = verb("evaluate", text, recipe=True)
    sub.add_argument("--workdir", metavar="DIR", help="the run whose evaluators run")
    group = sub.add_argument_group("a benchmark, instead of --workdir")
    group.add_argument(
        "--suite", metavar="NAME", help="fine-tune on, or measure, every task that is there: xtreme, xglue"
    )
    group.add_argument(
        "--mixture", metavar="NAME", help="measure a checkpoint as it is on every task that its head fits"
    )
    group.add_argument("--follow", metavar="RUN", help="--mixture on each new checkpoint of a run until it ends")
    group.add_argument("--tasks", nargs="+", metavar="TASK", help="those of the suite (default: all)")
    group.add_argument("--split", metavar="SPLIT", help="of --mixture: dev, test, dev[50%%:] (default: test, else dev)")
    text = "minutes in which a followed run may write nothing (default 60; 0: for ever)"
    group.add_argument("--patience", type=_minutes, metavar="MINUTES", help=text)
    text = "of retrieval and mining (default: the run's own, else the papers'); of retrieval several, or all: a table"
    group.add_argument("--layer", type=_layer, nargs="+", metavar="N", help=text)
    text = "of them (default: the run's own, else mean, of BUCC first)"
    group.add_argument("--pooling", choices=(*_POOLINGS, "all"), nargs="+", metavar="POOLING", help=text)
    text = "of --mixture: the task's labels in the order of the head's outputs, where the model names them LABEL_0, ..."
    group.add_argument("--labels", nargs="+", metavar="LABEL", help=text)
    group.add_argument("--prefix", metavar="TEXT", help="of them, before every sentence (default: the run's own)")
    _sweep(sub, task=False)

    sub = verb("score", "score a benchmark's prediction files, in its submission format, against its gold files")
    sub.add_argument("--suite", required=True, choices=("xtreme", "xglue", "xnli", "applications"))
    sub.add_argument("--predictions", required=True, metavar="DIR", help="TASK/test-CODE.tsv, or TASK/CODE.prediction")
    text = "the benchmark's folder; of xtreme also labels, one per line, in files named as its predictions"
    sub.add_argument("--gold", required=True, metavar="DIR", help=text)
    sub.add_argument("--split", default="test", choices=("dev", "test"), help="of the gold files (default %(default)s)")
    sub.add_argument("--allow-missing", action="store_true", help="score what is there, and say what is not")
    sub.add_argument("--output", default="", metavar="FILE", help="also write everything here, as JSON")

    sub = verb("report", "write report.html and report.json of a run; of sweeps and suites their score card")
    text = "workdir of a run; or folders of cells (--to of finetune and evaluate), which share one card"
    sub.add_argument("workdir", nargs="+", metavar="RUN", help=text)
    sub.add_argument(
        "--compare",
        action="append",
        default=[],
        metavar="[NAME=]RUN",
        help="a run to show beside it (MLM alone, a control)",
    )
    sub.add_argument(
        "--finetuned", action="append", default=[], metavar="RUN", help="a fine-tuning that started from it"
    )
    sub.add_argument("--output", default="", metavar="DIR", help="folder for the files (default: RUN)")
    sub.add_argument("--pictures", default="", metavar="DIR", help="write the figures as PNG files too")

    best = "the run's own, else best of its retrieval, else the last"
    prefix = "text before every sentence, as 'query: ' (default: the run's own)"

    def of_run(sub: argparse.ArgumentParser, output: str, layer: str) -> None:
        sub.add_argument("run", metavar="RUN", help="workdir of a pretraining run")
        sub.add_argument("--output", required=True, metavar="PATH", help=output)
        sub.add_argument("--layer", type=int, metavar="N", help=f"0: the embeddings (default: {layer})")

    sub = verb("encode", "write a vector of every line of a file, float32 in .npy")
    of_run(sub, ".npy is added where it is missing", best)
    sub.add_argument("--input", required=True, metavar="FILE", help="one sentence per line")
    sub.add_argument("--language", required=True, metavar="CODE")
    sub.add_argument("--pooling", choices=_POOLINGS, help="default: the run's own, else mean")
    sub.add_argument("--prefix", metavar="TEXT", help=prefix)

    sub = verb("align", "align the words of translated sentences: Pharaoh lines, and a picture")
    of_run(sub, "the links; the picture is PATH.png", "two thirds of the way up")
    sub.add_argument("--languages", nargs=2, required=True, metavar=("SRC", "TGT"))
    sub.add_argument(
        "--stem", required=True, metavar="STEM", help="files STEM.SRC and STEM.TGT, words with spaces between"
    )
    sub.add_argument("--method", default="itermax", choices=("itermax", "intersection"))
    sub.add_argument("--picture", type=int, default=0, metavar="N", help="draw pair N too")

    sub = verb(
        "mine", "find sentences of two texts that translate each other; or, of pairs, wrong partners to learn from"
    )
    sub.add_argument("run", nargs="?", metavar="RUN", help="workdir of a pretraining run")
    sub.add_argument(
        "--output", required=True, metavar="PATH", help="stem of PATH.SRC-TGT.tsv; with --negatives a folder"
    )
    sub.add_argument("--languages", nargs=2, metavar=("SRC", "TGT"))
    sub.add_argument("--files", nargs=2, metavar=("SRC_FILE", "TGT_FILE"))
    sub.add_argument("--layer", type=int, metavar="N", help=f"0: the embeddings (default: {best})")
    sub.add_argument("--pooling", choices=_POOLINGS, help="default: the run's own, else mean")
    sub.add_argument("--prefix", metavar="TEXT", help=prefix)
    sub.add_argument("--neighbours", type=_positive, metavar="K", help="default 4; with --negatives 10")
    sub.add_argument("--margin", choices=("ratio", "distance", "absolute"), help="default ratio")
    sub.add_argument("--threshold", type=float, help="lowest score kept (default: all)")
    sub.add_argument("--negatives", action="store_true", help="tables for CLPC: sentences that look like a translation")
    sub.add_argument("--parallel", nargs="+", metavar="GLOB", help="with --negatives: the pairs")
    sub.add_argument("--vocabulary", metavar="PATH", help="with --negatives")
    sub.add_argument("--steps", type=_positive, help="with --negatives: of the light model (default 2000)")
    sub.add_argument("--random_share", type=_share, help="with --negatives: share left to chance (default 0.1)")
    sub.add_argument("--seed", type=int, help="with --negatives (default 0)")
    sub.add_argument("--platform", help="with --negatives: cpu, gpu or tpu (default: what JAX finds)")
    sub.set_defaults(devices=None)

    sub = verb("words", "measure the token table as word embeddings: dictionaries, similarity of words")
    sub.add_argument("run", metavar="RUN", help="workdir of a run")
    text = "lines of a word, a tab and its translation (MUSE); repeat"
    sub.add_argument("--dictionary", action="append", default=[], metavar="AA-BB=FILE", help=text)
    text = "lines of a word, a word and a score, tabs between (SemEval-2017 task 2); repeat"
    sub.add_argument("--similarity", action="append", default=[], metavar="AA-BB=FILE", help=text)
    text = "single: words of one piece; mean: all, the mean of their pieces (default %(default)s)"
    sub.add_argument("--pieces", default="single", choices=("single", "mean"), help=text)
    sub.add_argument("--output", default="", metavar="FILE", help="write the figures as JSON too")

    for name, text in (
        ("translate", "translate each line of a file"),
        ("generate", "write a text for each line of a file, in the same language: a title, a question"),
    ):
        sub = verb(name, text)
        sub.add_argument("run", metavar="RUN", help="workdir of a run with a decoder")
        if name == "generate":
            sub.add_argument("--language", metavar="CODE", help="of both; --to and --from are for two languages")
        sub.add_argument("--to", required=name == "translate", metavar="CODE", help="language to write")
        sub.add_argument("--from", dest="source", metavar="CODE", help="of the input (default: a run of two's other)")
        _generation(sub)

    sub = verb("plug", "write a trained model with its cross-attention plugged out, or plugged in")
    sub.add_argument("direction", choices=("out", "in"))
    sub.add_argument("run", metavar="RUN", help="workdir of a pretraining run")
    sub.add_argument("--output", required=True, metavar="DIR", help="a new workdir, for INIT_FROM")
    sub.add_argument("--source", metavar="RUN", help="with in: take its cross-attention (default: a random one)")
    sub.add_argument("--seed", type=int, help="with in: of a random one (default 0)")

    sub = verb("average", "write the mean of several checkpoints of a run as a trained model")
    sub.add_argument("run", metavar="RUN", help="workdir of a run")
    sub.add_argument("--last", type=int, metavar="N", help="of its newest N checkpoints (KEEP_CHECKPOINTS keeps them)")
    sub.add_argument("--steps", type=_steps, default=(), metavar="A,B,C", help="of the checkpoints of these steps")
    sub.add_argument("--output", required=True, metavar="DIR", help="a new workdir, for INIT_FROM")

    sub = verb(
        "import", "turn a model of another program into a workdir to start from, compared with the original first"
    )
    sub.add_argument("--from", dest="source", required=True, metavar="FOLDER_OR_ID", help="its folder, file or hub id")
    sub.add_argument("--to", dest="output", required=True, metavar="DIR", help="a new workdir, for INIT_FROM")
    sub.add_argument("--unverified", action="store_true", help="write it without comparing it with transformers")
    text = "of its sentence vectors (default: what 1_Pooling/config.json and the files beside it say)"
    sub.add_argument("--pooling", choices=_POOLINGS, help=text)
    sub.add_argument("--prefix", metavar="TEXT", help="of them, before every sentence: 'query: '")
    sub.add_argument("--layer", type=int, metavar="N", help="of them, 0: the embeddings (default: the last)")

    text = "go on training a released model on your text, and write it as a folder that AutoModel opens"
    sub = verb("adapt", text, recipe=True)
    sub.add_argument("--from", dest="source", required=True, metavar="MODEL", help="a run, a Hugging Face folder or id")
    sub.add_argument("--to", dest="output", required=True, metavar="DIR", help="new; the same command goes on there")
    _files(sub)
    text = "in turn: mlm tlm camlm btmlm clwr clpc veco (default %(default)s)"
    sub.add_argument("--objectives", default="mlm", metavar="A,B", help=text)
    sub.add_argument("--hours", type=float, metavar="H", help="of training and evaluation, as many steps as fit")
    sub.add_argument("--steps", type=_positive, metavar="N", help="instead of --hours")
    sub.add_argument("--batch", type=_positive, default=32, metavar="N", help="rows of a batch (default %(default)s)")
    sub.add_argument("--length", type=_positive, default=128, metavar="N", help="tokens of a row (default %(default)s)")
    sub.add_argument("--gold", metavar="DIR", help="word alignments, XX-en.txt beside XX-en.XX and XX-en.en")
    sub.add_argument("--language", default="", metavar="CODE", help="of all texts, where the model embeds languages")
    sub.add_argument("--base", default="", metavar="ID", help="hub id of the first model, for the model card")
    sub.add_argument("--license", default="", metavar="ID", help="of the weights, for the model card: apache-2.0")
    sub.add_argument("--unverified", action="store_true", help="export without comparing with transformers")

    sub = verb(
        "export", "write a trained model as a folder that AutoModel of transformers opens, compared with it first"
    )
    sub.add_argument("--from", dest="source", required=True, metavar="RUN", help="a run; RUN@STEP, RUN@METRIC")
    sub.add_argument("--to", dest="output", required=True, metavar="DIR", help="a new folder")
    sub.add_argument("--head", default="", metavar="TASK", help="which, of a run with heads of several tasks")
    sub.add_argument("--format", default="hf", choices=("hf",), help="Hugging Face's (default %(default)s)")
    sub.add_argument("--language", default="", metavar="CODE", help="of all texts, where the model embeds languages")
    sub.add_argument("--license", default="", metavar="ID", help="of the weights, for the model card: apache-2.0")
    sub.add_argument("--base", default="", metavar="ID", help="hub id of the first model, for the model card")
    sub.add_argument("--unverified", action="store_true", help="write it without comparing it with transformers")

    verb("doctor", "check this installation; every finding carries the command that repairs it")
    return top


def _positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _layer(text: str) -> int | str:
    if text != "all" and not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no layer: a whole number from 0, the embeddings, on, or all")
    return text if text == "all" else int(text)


def _minutes(text: str) -> float:
    try:
        if float(text) >= 0:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes, 0 or more")


def _steps(text: str) -> list[int]:
    words = text.replace(",", " ").split()
    if not words or not all(word.isdigit() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of steps like 1000,2000")
    return [int(word) for word in words]


def _share(text: str) -> float:
    try:
        if 0 <= float(text) <= 1:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1")


def _at_most(text: str) -> tuple[float, int]:
    scale, _, more = text.partition(",")
    try:
        return float(scale), int(more)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not A,B, like 1.5,10") from None


class _Parser(argparse.ArgumentParser):
    """Wrong usage is one line too."""

    def error(self, message: str):
        raise UserError(f"{message} (see {self.prog} --help)")


def _sweep(sub: argparse.ArgumentParser, task: bool = True) -> None:
    """Options of fine-tuning on tasks of benchmarks."""
    if task:
        group = sub.add_argument_group("a task of a benchmark, instead of --workdir")
        group.add_argument(
            "--task",
            nargs="+",
            metavar="SUITE/NAME",
            help="xtreme/xnli, xglue/ner ...; its settings are macros of runs/task.gin; several: --strategy multi_task",
        )
    else:
        group = sub
    group.add_argument("--from", dest="source", metavar="RUN", help="the pretrained run; RUN@STEP; hf:FOLDER_OR_ID")
    text = "folder of the benchmark's files; tfds:DIR, sets that TensorFlow Datasets prepared there"
    group.add_argument("--data", metavar="DIR", help=text)
    group.add_argument(
        "--to", dest="output", metavar="DIR", help="cells, predictions and the score card; shared by sweeps"
    )
    group.add_argument(
        "--strategy", nargs="+", metavar="NAME", help="transfer (default), pivot, translate_train, multi_language ..."
    )
    group.add_argument(
        "--languages",
        nargs="+",
        metavar="CODE",
        help="pivots, or targets, of the strategy (default: all); of multi_language sets to train on: en+de en+de+zh",
    )
    group.add_argument("--seeds", type=_positive, metavar="N", help="trainings of each setting (default 1)")
    group.add_argument("--grid", nargs="+", metavar="MACRO=A,B", help="settings to try, the best chosen on dev")
    group.add_argument("--allow-missing", action="store_true", help="go on without files that lack")


def _files(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--mono", nargs="+", default=[], metavar="GLOB", help="monolingual text; CODE=GLOB names its language"
    )
    sub.add_argument(
        "--parallel",
        nargs="+",
        default=[],
        metavar="GLOB",
        help="pairs: [name.]aa-bb.aa beside [name.]aa-bb.bb, .tsv, .jsonl",
    )


def _surgery(vocab: argparse.ArgumentParser) -> None:
    """The verbs behind `vocab`, each from a trained model to a new one. Without one of them it trains a vocabulary."""
    verbs = vocab.add_subparsers(dest="action", metavar="VERB", parser_class=_Parser, title="on trained models")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(name=f"vocab {name}")
        sub.add_argument("--from", dest="source", required=True, metavar="RUN", help="workdir of a run")
        sub.add_argument("--to", dest="output", required=True, metavar="DIR", help="a new workdir, for INIT_FROM")
        _files(sub)
        sub.set_defaults(platform="", devices=None)  # what JAX finds
        return sub

    def rows(sub: argparse.ArgumentParser) -> None:
        text = "new rows: mean of the old pieces that spell it; of pieces in like company; as in an untrained model"
        sub.add_argument(
            "--initialise", default="mean", choices=("mean", "overlap", "random"), help=text + " (default %(default)s)"
        )
        sub.add_argument("--seed", type=int, default=0)

    sub = verb("extend", "add pieces for a new language or script, learnt on its text")
    sub.add_argument("--pieces", type=_positive, required=True, metavar="N", help="how many")
    text = "text of the old languages: nothing is added that would change how it is cut"
    sub.add_argument("--old_mono", nargs="+", default=[], metavar="GLOB", help=text)
    sub.add_argument("--alpha", type=float, default=0.5, help="of several languages, as in vocab (default %(default)s)")
    sub.add_argument("--sentences", type=_positive, default=1_000_000, help="size of the sample (default %(default)s)")
    sub.add_argument(
        "--character_coverage", type=float, default=0.9995, help="share of characters with a piece (%(default)s)"
    )
    rows(sub)

    sub = verb("trim", "drop the pieces that a text does not use, and their rows")
    sub.add_argument("--keep_min_count", type=_positive, default=1, metavar="N", help="occurrences that keep a piece")
    sub.add_argument("--size", type=_positive, metavar="N", help="rows at most; the most frequent pieces stay")
    sub.add_argument("--drop_characters", action="store_true", help="single characters too (default: they stay)")

    sub = verb("transplant", "move a model onto another vocabulary; pieces that both have keep their rows")
    sub.add_argument("--vocabulary", required=True, metavar="PATH", help="folder of vocab.model, or a .model file")
    rows(sub)


def _generation(sub: argparse.ArgumentParser) -> None:
    """What `translate` and `generate` have in common. No defaults here: what is given and not read is refused."""
    sub.add_argument("--input", metavar="FILE", help="a line per text; .gz, .zst too (default: standard input)")
    sub.add_argument(
        "--output", metavar="FILE", help="written as FILE.partial, which goes on if interrupted (default: a pipe)"
    )
    sub.add_argument("--beams", type=_positive, metavar="N", help="1: greedy (default 5; 1 with --temperature)")
    sub.add_argument("--length_penalty", type=float, metavar="P", help="score: log-probability / tokens ** P (1.0)")
    sub.add_argument("--no_repeat_ngram", type=_positive, metavar="N", help="no N tokens in a row twice")
    sub.add_argument("--min_length", type=_positive, metavar="N", help="tokens, the end among them")
    text = "at most A * source tokens + B tokens (default 1.5,10)"
    sub.add_argument("--max_length", type=_at_most, metavar="A,B", help=text)
    sub.add_argument("--n_best", type=_positive, metavar="N", help="N lines for each: number ||| text ||| score")
    sub.add_argument("--temperature", type=float, metavar="T", help="draw tokens instead of searching")
    sub.add_argument("--top_k", type=_positive, metavar="K", help="with --temperature: of the K likeliest")
    sub.add_argument("--seed", type=int, metavar="N", help="with --temperature (default 0)")
    sub.add_argument("--batch_tokens", type=_positive, metavar="N", help="tokens x beams of a batch (default 4096)")
    sub.add_argument("--truncate", action="store_true", help="cut lines that are longer than the model's positions")
    text = "write scores of its lines instead: score, log-probability, tokens"
    sub.add_argument("--score", metavar="FILE", help=text)
    sub.add_argument("--references", metavar="FILE", help="print BLEU, chrF, ROUGE-L and the share in a wrong language")
    sub.add_argument("--platform", default="", help="cpu, gpu or tpu (default: what JAX finds)")
    sub.add_argument("--devices", type=_positive, metavar="N", help="make the CPU look like N devices")
