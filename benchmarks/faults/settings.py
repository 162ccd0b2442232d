"""Settings and words that are wrong."""

from benchmarks.faults.cases import case
from benchmarks.faults.place import Place, Said, cli, python, write

GROUP = "settings"


def pretrained(place: Place, *lines: str | bytes) -> Said:
    """`pretrain` by own.gin with more lines in it."""
    recipe = place.recipe(6)
    content = recipe.read_bytes()
    for line in lines:
        if isinstance(line, str):
            line = line.encode()
        content += line + b"\n"
    recipe.write_bytes(content)
    words = ("--gin_file", recipe, "--workdir", place.root / "new")
    return cli("pretrain", *words)


def typed(place: Place, *words: object) -> Said:
    """`pretrain` by own.gin with more words."""
    recipe = place.recipe(6)
    workdir = ("--workdir", place.root / "new")
    return cli("pretrain", "--gin_file", recipe, *workdir, *words)


WRONG_LINES = (
    ("a misspelt parameter of an objective", "mlm.bogus = 3", "has no parameter"),
    ('`TRAIN_STEPS = "many"`', 'TRAIN_STEPS = "many"', "a whole number"),
    ("`BATCH = None`", "BATCH = None", "a whole number"),
    ("`BATCH = 1e999`", "BATCH = 1e999", "too large"),
    ("`BATCH = -4`", "BATCH = -4", "a whole number from 1"),
    ("`LENGTH = [3`", "LENGTH = [3", "never closed"),
    ("a module that cannot be imported", "import nowhere.at_all", "No module named"),
    ("a misspelt objective", "train.objectives = [@mlmm()]", "mlmm"),
    ("a misspelt setting", "TRAIN_STEP = 3", "did you mean 'TRAIN_STEPS'"),
    ("a file that is not there", 'include "none.gin"', "none.gin"),
    ("a file that includes itself", 'include "own.gin"', "includes itself"),
    ("a byte that is not UTF-8", b"A = '\xff'", "not valid UTF-8"),
    ("a NUL", b"A = '\0'", "NUL"),
    ("an objective that is no list", "train.objectives = @mlm()", "train.objectives"),
    ("an objective in itself", "mlm.text = @mlm()", "mlm.text"),
    ("a text that matches nothing", 'MONO = "/none/*.txt"', "no monolingual file"),
    ("a vocabulary that is a folder of text", 'VOCABULARY = "{root}/mono"', "vocabulary"),
    ("more steps than a float holds", "TRAIN_STEPS = 99999999999999999999", "needed"),
    ("heads that do not divide", "model.heads = 3", "does not divide"),
    ("rows longer than the positions", "LENGTH = 5000", "5000"),
    ("a language that the text has not", 'LANGUAGES = "de fr"', "lack some of"),
    ("a checkpoint to start from that is not there", 'INIT_FROM = "/none"', "/none"),
)  # fmt: skip
WRONG_WORDS = (
    ("`--gin.mlm.bogus=3`", ["--gin.mlm.bogus=3"], "has no parameter"),
    ("`--gin.BATCH 5`", ["--gin.BATCH", "5"], "without a space"),
    ("`--TRAIN_STEPS=5`", ["--TRAIN_STEPS=5"], "--gin.TRAIN_STEPS=5"),
    ("`--gin.BATCH=`", ["--gin.BATCH="], "BATCH"),
    ("`--gin.=3`", ["--gin.=3"], "--gin."),
    ("`--gin.BATCH=²`", ["--gin.BATCH=²"], "BATCH"),
    ("`--hours nan`", ["--hours", "nan"], "--hours"),
    ("`--hours -1`", ["--hours", "-1"], "--hours"),
    ("`--platform gpux`", ["--platform", "gpux"], "platform"),
    ("a recipe twice, one of them a folder", ["--gin_file", "/tmp"], "folder"),
)  # fmt: skip


def _add_line(what: str, line: str | bytes, needed: str) -> None:
    @case(GROUP, f"own gin file: {what}", needed)
    def run(place: Place) -> Said:
        own = line
        if isinstance(own, str):
            own = own.replace("{root}", str(place.root))
        return pretrained(place, own)


def _add_words(what: str, words: list[str], needed: str) -> None:
    @case(GROUP, f"pretrain {what}", needed)
    def run(place: Place) -> Said:
        return typed(place, *words)


for _one in WRONG_LINES:
    _add_line(*_one)
for _one in WRONG_WORDS:
    _add_words(*_one)


@case(GROUP, "`xlingjax pretrian`", "pretrain")
def _verb(place: Place) -> Said:
    return cli("pretrian")


@case(GROUP, "a gin file that is a folder", "folder")
def _folder(place: Place) -> Said:
    return cli("pretrain", "--gin_file", place.root, "--workdir", "x")


@case(GROUP, "a workdir that is a file", "cannot be written")
def _file_workdir(place: Place) -> Said:
    return cli("pretrain", "--gin_file", place.recipe(6), "--workdir", place.gin)


@case(GROUP, "a workdir below a file", "cannot be written")
def _below_file(place: Place) -> Said:
    workdir = place.gin / "run"
    return cli("pretrain", "--gin_file", place.recipe(6), "--workdir", workdir)


# ---- words of the other verbs --------------------------------------------------------------------


def encode(place: Place, *words: object, language: str = "de") -> Said:
    output = ("--output", place.root / "v.npy")
    given = ("--input", place.root / "held/de.txt")
    return cli("encode", place.run, "--language", language, *given, *output, *words)


@case(GROUP, "`encode --language` of no language", "nor a code")
def _no_language(place: Place) -> Said:
    return encode(place, language="klingonisch")


@case(GROUP, "`encode --language` that the run does not know", "none of the run's", 0)
def _other_language(place: Place) -> Said:
    return encode(place, language="fr")


@case(GROUP, "`encode --layer 9` of a model of 1", "has layers 0")
def _layer(place: Place) -> Said:
    return encode(place, "--layer", 9)


@case(GROUP, "`encode RUN@none`", "kept no best checkpoint")
def _no_metric(place: Place) -> Said:
    output = ("--output", place.root / "v.npy", "--language", "de")
    return cli("encode", f"{place.run}@none", "--input", place.gin, *output)


@case(GROUP, "`encode RUN@99`", "has no checkpoint 99")
def _no_step(place: Place) -> Said:
    output = ("--output", place.root / "v.npy", "--language", "de")
    return cli("encode", f"{place.run}@99", "--input", place.gin, *output)


@case(GROUP, "`encode` of an empty file", "empty: no sentence in it")
def _empty(place: Place) -> Said:
    write(place.root / "empty", "")
    return encode(place, "--input", place.root / "empty")


@case(GROUP, "`encode` of a file that is its output", "is the file of --input")
def _same(place: Place) -> Said:
    source = write(place.root / "x.npy", "ein Hund\n")
    return encode(place, "--input", source, "--output", source)


@case(GROUP, "`encode --output` a folder", "is a folder")
def _output_folder(place: Place) -> Said:
    return encode(place, "--output", f"{place.root}/")


@case(GROUP, '`embed("a string")`', "give a list of texts")
def _embed(place: Place) -> Said:
    from xlingjax import open_run

    return python(lambda: open_run(place.run).embed("ein Hund", "de"))


def align(place: Place, picture: int) -> Said:
    words = ("--stem", place.root / "held/de-en", "--languages", "de", "en")
    output = ("--output", place.root / "a.txt", "--picture", picture)
    return cli("align", place.run, *words, *output)


@case(GROUP, "`align --picture 0`", "--picture")
def _picture_0(place: Place) -> Said:
    return align(place, 0)


@case(GROUP, "`align --picture 999` of 40 pairs", "there are pairs 1 to 40")
def _picture_999(place: Place) -> Said:
    return align(place, 999)


@case(GROUP, "`average` of a checkpoint that is not there", "99")
def _average(place: Place) -> Said:
    return cli("average", place.run, "--steps", "3,99", "--output", place.root / "m")


@case(GROUP, "`report` of a folder without a run", "not a run folder")
def _report(place: Place) -> Said:
    return cli("report", place.root / "mono")


@case(GROUP, "`evaluate` of a file", "no run in")
def _evaluate(place: Place) -> Said:
    return cli("evaluate", place.gin)


@case(GROUP, "`export` into a folder that is there", "is not empty")
def _export(place: Place) -> Said:
    return cli("export", place.run, "--to", place.root / "mono")


@case(GROUP, "patterns with spaces in their names", "0 errors", 0)
def _spaces(place: Place) -> Said:
    folder = place.root / "my text, mine/de"
    write(folder / "a b.txt", ["ein Hund", "eine Katze"])
    return cli("data", "check", "--mono", f"{folder}/*.txt")


@case(GROUP, "held-out pairs that are in the training pairs", "NOT HELD OUT", 0)
def _overlap(place: Place) -> Said:
    words = ("--parallel", place.root / "pairs", "--heldout_pairs")
    return cli("data", "check", *words, place.root / "pairs")


@case(GROUP, "a run whose held-out text is in its text", "NOT HELD OUT", 0, slow=True)
def _overlap_of_run(place: Place) -> Said:
    return pretrained(place, f'HELDOUT_TEXT = "{place.root}/mono/de/a.txt"')


@case(GROUP, "a name of a file that is not UTF-8", "is not UTF-8; rename")
def _name(place: Place) -> Said:
    import os

    name = os.fsdecode(os.fsencode(place.root) + b"/caf\xe9.xx.txt")
    write_name = os.fsencode(name)
    with open(write_name, "wb") as file:
        file.write(b"ein \xff Hund\n")
    return cli("data", "check", "--mono", f"de={name}")


@case(GROUP, "a name of a file with an end of line", "an end of line in this name")
def _name_line(place: Place) -> Said:
    path = write(place.root / "a\nerror: b.txt", b"ein \xff Hund\n")
    return cli("vocab", "--mono", f"de={path}", "--size", 50, "--output", place.root / "n")
