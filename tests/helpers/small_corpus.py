"""A corpus of four sentences in two languages, and command lines over it."""

from pathlib import Path

from xlingjax.cli import main

ENGLISH = [
    "The dog sleeps in the house.",
    "My brother reads a long book.",
    "The cat drinks milk.",
    "It rains again.",
]
GERMAN = [
    "Der Hund schläft im Haus.",
    "Mein Bruder liest ein langes Buch.",
    "Die Katze trinkt Milch.",
    "Es regnet wieder.",
]
SMALL = {"model.layers": 1, "model.dim": 16, "model.heads": 2, "model.ffn": 32}
SMALL |= {"BATCH": 8, "LENGTH": 32, "MESH_DATA": 1}
SHORT = {"TRAIN_STEPS": 4, "WARMUP_STEPS": 1, "EVAL_EVERY": 0, "LOG_EVERY": 2}
SHORT["CHECKPOINT_EVERY"] = 2


def write(path: Path, lines) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def build(root: Path) -> None:
    """mono/{de,en}/a.txt, pairs/de-en.{de,en}, heldout, nli, and a vocabulary made by `xlingjax
    vocab`."""
    for code, lines in (("en", ENGLISH), ("de", GERMAN)):
        many = [f"{line} {i}" for i in range(30) for line in lines]
        write(root / "mono" / code / "a.txt", many)
        write(root / "pairs" / f"de-en.{code}", many)
        write(root / "heldout" / f"{code}.txt", lines)
        write(root / "heldout_pairs" / f"de-en.{code}", lines)
        labels = ("entailment", "neutral", "contradiction")
        texts = enumerate(zip(lines * 3, lines[1:] * 4, strict=True))
        rows = [f"{a}\t{b}\t{labels[i % 3]}" for i, (a, b) in texts]
        for split in ("train", "dev", "test"):
            write(root / "nli" / f"{split}-{code}.tsv", rows)
    files = ["--mono", f"{root}/mono", "--parallel", f"{root}/pairs/*"]
    assert main.main(["vocab", *files, "--size", "80", "--to", str(root / "vocab")]) == 0


def options(corpus: Path, **overrides) -> dict:
    files = {"MONO": f"{corpus}/mono", "PARALLEL": f"{corpus}/pairs/*"}
    files["VOCABULARY"] = f"{corpus}/vocab"
    given = {name.replace("__", "."): value for name, value in overrides.items()}
    return files | SMALL | SHORT | given


def arguments(verb: str, recipe: str, bindings: dict, *rest: str) -> list[str]:
    given = [f"--gin.{name}={value}" for name, value in bindings.items()]
    return [verb, "--gin-file", f"gin/recipes/{recipe}.gin", *given, *rest]


def pretrain(corpus: Path, workdir: Path, *rest: str, recipe: str = "xlm_text", **overrides) -> int:
    bindings = options(corpus, **overrides)
    return main.main(arguments("pretrain", recipe, bindings, "--to", str(workdir), *rest))
