"""Text that is something else, outputs that are none, names of nothing: what verbs are given."""

from collections.abc import Callable

from benchmarks.faults.cases import case
from benchmarks.faults.place import Place, Said, cli, write

GROUP = "texts, outputs and names"


def encoded(
    place: Place, *, text: object = "", run: object = "", output: object = "", more: tuple = ()
) -> Said:
    return cli(
        "encode",
        place.run if run == "" else run,
        "--language",
        "de",
        "--input",
        text or place.root / "held/de.txt",
        "--output",
        place.root / "v" if output == "" else output,
        *more,
    )


def checked(place: Place, *words: object) -> Said:
    return cli("data", "check", *words)


# ---- text that is something else -----------------------------------------------------------------


def _of_records(name: str, content: str, needed: str) -> None:
    @case(GROUP, f"`encode --input {name}`", needed)
    def encode(place: Place) -> Said:
        return encoded(place, text=write(place.root / name, content))

    @case(GROUP, f"`mine --files {name}`", needed)
    def mine(place: Place) -> Said:
        other = write(place.root / name, content)
        held = place.root / "held/de.txt"
        to = ("--output", place.root / "mined")
        languages = ("--languages", "de", "en", "--files", held, other)
        return cli("mine", place.run, *languages, *to)


_of_records("x.jsonl", '{"text": "ja"}\n', "jq -r .text")
_of_records("x.json", '[{"text": "ja"}]\n', "jq -r .text")
_of_records("x.tsv", "1\tja\n2\tnein\n", "cut -f 1")
_of_records("x.csv", "id,text\n1,ja\n", ".csv is not read as text")
_of_records("x.html", "<p>ja</p>\n", ".html is not read as text")


@case(GROUP, "`encode --input` of a folder", "it is a folder")
def _folder(place: Place) -> Said:
    return encoded(place, text=place.root / "held")


@case(GROUP, "`encode` of a line of 600 words", "1 of 2 lines were cut to", 0)
def _cut(place: Place) -> Said:
    text = write(place.root / "long.txt", ["der Hund", "der Hund " * 600])
    return encoded(place, text=text)


@case(GROUP, "`encode --prefix` of 600 words", "--prefix")
def _prefix(place: Place) -> Said:
    return encoded(place, more=("--prefix", "der Hund " * 600))


def _with_link(place: Place) -> None:
    (place.root / "pairs/x.de-en.de").symlink_to("/mnt/gone/de")
    (place.root / "pairs/x.de-en.en").symlink_to("/mnt/gone/en")


@case(GROUP, "`data check` of links that lead nowhere", "leads nowhere", 1)
def _links(place: Place) -> Said:
    _with_link(place)
    return checked(place, "--parallel", place.root / "pairs/*")


@case(GROUP, "`vocab` of links that lead nowhere", "leads nowhere")
def _links_read(place: Place) -> Said:
    _with_link(place)
    to = ("--output", place.root / "v2")
    return cli("vocab", "--parallel", place.root / "pairs/*", *to)


CARRIAGE_RETURNS = "der Hund\rdie Katze\rein Kind\r"


@case(GROUP, "`data check` of lines that end in CR", "end in CR alone", 1)
def _old_mac(place: Place) -> Said:
    write(place.root / "m/de.txt", CARRIAGE_RETURNS.encode())
    return checked(place, "--mono", f"de={place.root}/m/de.txt")


@case(GROUP, "`encode` of lines that end in CR", "end in CR alone")
def _old_mac_read(place: Place) -> Said:
    text = write(place.root / "m.txt", CARRIAGE_RETURNS.encode())
    return encoded(place, text=text)


@case(GROUP, "`data check` of a table with a header of words", "line 1", 0)
def _header(place: Place) -> Said:
    lines = ["source\ttarget", *(f"Hund {i}\tdog {i}" for i in range(20))]
    write(place.root / "t/a.de-en.tsv", lines)
    return checked(place, "--parallel", place.root / "t/*")


@case(GROUP, "`data check` of a name with brackets", "read 2 files", 0)
def _brackets(place: Place) -> Said:
    for code in ("de", "en"):
        lines = [f"{code} {i}" for i in range(20)]
        write(place.root / f"b/a [1].de-en.{code}", lines)
    return checked(place, "--parallel", place.root / "b/a [1].de-en.*")


@case(GROUP, "a pattern of HELDOUT_PAIRS with no file", "matches")
def _pattern(place: Place) -> Said:
    pattern = f"{place.root}/held/fr-en.*"
    return cli("evaluate", place.run, f"--gin.HELDOUT_PAIRS={pattern!r}")


@case(GROUP, "`align` of two empty files", "no line with words on both sides")
def _nothing_to_align(place: Place) -> Said:
    for code in ("de", "en"):
        write(place.root / f"e/x.{code}", "")
    words = ("--stem", place.root / "e/x", "--languages", "de", "en")
    return cli("align", place.run, *words, "--output", place.root / "links")


# ---- outputs -------------------------------------------------------------------------------------


def _of_output(output: str, needed: str) -> None:
    @case(GROUP, f'`encode --output "{output}"`', needed)
    def encode(place: Place) -> Said:
        words = ("--language", "de", "--input", place.root / "held/de.txt")
        return cli("encode", place.run, *words, f"--output={output}")


_of_output("", "names no file and no folder")
_of_output("o.npy.gz", "not compressed")
_of_output("/dev/null", "/dev/null")


@case(GROUP, "`average --output` among checkpoints", "among the checkpoints")
def _among(place: Place) -> Said:
    to = ("--output", place.run / "checkpoints/9")
    return cli("average", place.run, "--last", 2, *to)


@case(GROUP, "`vocab` in the place of another", "is replaced", 0)
def _replaced(place: Place) -> Said:
    text = ("--mono", place.root / "mono/de", "--size", "60")
    return cli("vocab", *text, "--output", place.root / "vocab")


def _of_vocabulary(option: str, needed: str) -> None:
    @case(GROUP, f"`vocab {option}`", needed)
    def vocab(place: Place) -> Said:
        text = ("--mono", place.root / "mono", option)
        return cli("vocab", *text, "--output", place.root / "v2")


_of_vocabulary("--size=99999999999", "--size")
_of_vocabulary("--size=1", "--size")
_of_vocabulary("--sentinels=99999999999", "--sentinels")
_of_vocabulary("--character_coverage=0", "--character_coverage")


@case(GROUP, "`vocab` of one line of 800,000 letters", "m/de.txt")
def _one_line(place: Place) -> Said:
    write(place.root / "m/de.txt", "kalo" * 200_000)
    text = ("--mono", f"de={place.root}/m/de.txt", "--size", "50")
    return cli("vocab", *text, "--output", place.root / "v2")


# ---- names of nothing ----------------------------------------------------------------------------


def _of_run(step: str) -> Callable:
    @case(GROUP, f"`encode RUN@{step}`", f"no checkpoint {step} (there are")
    def encode(place: Place) -> Said:
        return encoded(place, run=f"{place.run}@{step}")

    return encode


for _step in ("04", "-1", "3.0"):
    _of_run(_step)


@case(GROUP, "`encode @4`", "no run is named")
def _no_run(place: Place) -> Said:
    return encoded(place, run="@4")


@case(GROUP, '`encode "hf:a b/c"`', "no id of the hub")
def _no_id(place: Place) -> Said:
    return encoded(place, run="hf:a b/c")


@case(GROUP, "`evaluate --mixture nope`", "nope")
def _no_mixture(place: Place) -> Said:
    return cli("evaluate", place.run, "--mixture", "nope")


@case(GROUP, "a value with an end of line", "x\\ny")
def _end_of_line(place: Place) -> Said:
    return cli("evaluate", place.run, "--gin.HELDOUT_PAIRS='../x\\ny'")


# ---- what is remembered --------------------------------------------------------------------------


def _of_memo(line: bytes) -> None:
    @case(GROUP, f"a line {line!r} in the cache's hashes.jsonl", "finished", 0)
    def pretrain(place: Place) -> Said:
        write(place.root / "cache/hashes.jsonl", line + b"\n")
        return place.pretrain(steps=8)


for _line in (b"5", b"null", b"[[1],2]", b"\xff\xfe"):
    _of_memo(_line)
