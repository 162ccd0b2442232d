"""Write the corpus to a folder: `write(to, seed=0, languages=..., size="demo")`.

    mono/LANG/tinyworld.txt           documents, a sentence per line, blank line between documents
    parallel/tinyworld/aa-bb.{aa,bb}  sentence pairs with English, codes in alphabetical order; with `other_pairs` also
                                      of any two other languages
    parallel/tinyworld/aa-aa.tsv      with `rewordings`: pairs of sentences that say the same in one language
    documents/xx-en.{xx,en}           aligned documents (training text), blank lines in step
    dictionary/xx-en.tsv              word TAB English word
    nli/{train-en,dev-XX,test-XX}.tsv premise TAB hypothesis TAB label; with `train_languages` train-XX; likewise
      paraphrase/*.tsv                sentence TAB sentence TAB 1 or 0
      titles/*.tsv                    text TAB headline
      pos/*.tsv, ner/*.tsv            token TAB tag, blank line between sentences
      qa/*.json                       SQuAD
      questions/*.tsv                 the same: answer, full stop and text TAB question
    heldout/mono/LANG.txt             documents of held-out combinations of concepts
    heldout/parallel/xx-en.{xx,en}    retrieval test: held-out combinations, line n the same in every language
    heldout/novel/xx-en.{xx,en}       the same, each with a concept that no training text names
    heldout/dictionary/xx-en.tsv      the words of those concepts
    alignments/xx-en.txt              gold links i-j of heldout/parallel, token indices from 0, xx first;
      xx-en.{xx,en}                   its tokens, separated by spaces
    manifest.json                     seed, languages, counts, rows and sha256 of each file

The labelled sets' dev and test parts are parallel over the languages, row by row. Nothing outside heldout/, alignments/
and the dev and test parts says a held-out combination or names a held-out concept, but for the truths of the world
("a cat is an animal"), which are everywhere.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path

from xlingjax.errors import UserError

from . import nli, paraphrase, qa, tagging, texts
from .concepts import HELD_OUT, concepts
from .languages.base import ALL, LEXICONS, language

# Sentences per language (mono), pairs and documents per language with English, pairs of any two other languages, pairs
# of two wordings per language, examples per part and language.
DEMO = {
    "mono": 20_000, "pairs": 16_000, "other_pairs": 0, "rewordings": 0, "documents": 150,
    "heldout_mono": 500, "heldout_pairs": 600, "novel_pairs": 200,
    "nli_train": 24_000, "nli_dev": 450, "nli_test": 1_200,
    "paraphrase_train": 6_000, "paraphrase_dev": 200, "paraphrase_test": 600,
    "pos_train": 3_000, "pos_dev": 200, "pos_test": 400,
    "ner_train": 3_000, "ner_dev": 200, "ner_test": 400,
    "qa_train": 1_500, "qa_dev": 100, "qa_test": 200,
    "titles_train": 1_500, "titles_dev": 100, "titles_test": 200,
}  # fmt: skip
_TRAINING = ("mono", "pairs", "other_pairs", "rewordings", "documents")
SIZES = {
    "demo": DEMO,
    "full": {name: n * (5 if name in _TRAINING or name.endswith("_train") else 2) for name, n in DEMO.items()},
}

Files = list[tuple[str, list[str], int]]  # path in the corpus, lines, rows


def available_languages() -> tuple[str, ...]:
    """The codes of the languages that tinyworld can tell, sorted."""
    return tuple(
        code for code in ALL if (LEXICONS / f"{code}.tsv").is_file() and find_spec(f"{__package__}.languages.{code}")
    )


def write(
    to: str | Path,
    *,
    seed: int = 0,
    languages: Sequence[str] = ALL,
    size: str | Mapping[str, int] = "demo",
    train_languages: Sequence[str] = ("en",),
    skew: float = 0.0,
    workers: int = 1,
) -> dict:
    """Write the corpus into the folder `to` and return its manifest.

    The same arguments give the same bytes, whatever `workers` (processes) is. A corpus there before is replaced.

    size: "demo" (20,000 sentences and 16,000 pairs per language), "full" (five times as much), or a dict of counts that
    replaces some of the demo's (names as in `DEMO`; NLI counts are rounded up to multiples of 3). languages: must
    contain "en", the pivot. train_languages: those of the labelled training parts; in several they are parallel, row by
    row (translate-train). skew: how unevenly the running text, its pairs, held-out text and titles use the concepts: 0
    evenly; with 1 each concept keeps company of its own in Zipf's proportion and each person has one life, as in text
    about one world (the other labelled sets stay even). Raises UserError for an unknown language or size, and a skew
    below 0 or above 2.
    """
    codes, counts = _checked(languages, size)
    if unknown := [code for code in train_languages if code not in codes]:
        raise UserError(f"train_languages: {unknown[0]!r} is not one of the corpus's languages: {', '.join(codes)}")
    if not 0 <= skew <= 2:
        raise UserError(f"skew {skew}: 0 (concepts used evenly) to 2; 1 is Zipf's law")
    root = Path(to)
    of = (seed, skew, counts)
    jobs = [partial(part, *of, code) for code in codes for part in _PARTS if code != "en" or part not in _PAIRED]
    others = [code for code in codes if code != "en"]
    jobs += [partial(_other_pairs, *of, *two) for two in combinations(others, 2) if counts["other_pairs"]]
    jobs += [partial(_rewordings, *of, code) for code in codes if counts["rewordings"]]
    jobs += [partial(_labelled, *of, code, "train") for code in sorted(set(train_languages))]
    jobs += [partial(_labelled, *of, code, part) for code in codes for part in ("dev", "test")]
    run = partial(_run, root)
    if workers > 1:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            done = list(pool.map(run, jobs))
    else:
        done = [run(job) for job in jobs]
        _forget()
    files = {path: entry for written in done for path, entry in written}
    return _finish(root, files, {"seed": seed, "languages": list(codes), "skew": skew, "counts": counts})


def _checked(languages: Sequence[str], size: str | Mapping[str, int]) -> tuple[tuple[str, ...], dict[str, int]]:
    known = available_languages()
    if unknown := [code for code in languages if code not in known]:
        raise UserError(f"tinyworld has no language {', '.join(map(repr, unknown))}: choose from {', '.join(known)}")
    if "en" not in languages:
        raise UserError(f"languages {','.join(languages)}: add en, the side that all pairs and training labels have")
    if isinstance(size, str):
        if size not in SIZES:
            raise UserError(f"size {size!r}: choose from {', '.join(SIZES)}")
        return tuple(sorted(set(languages))), dict(SIZES[size])
    if wrong := [name for name, n in size.items() if name not in DEMO or not isinstance(n, int) or n < 0]:
        raise UserError(f"size {wrong[0]!r}: counts are whole numbers named {', '.join(DEMO)}")
    return tuple(sorted(set(languages))), DEMO | dict(size)


def _run(root: Path, job: Callable[[], Files]) -> list[tuple[str, dict]]:
    # Frames and tokens are millions, and never in cycles: looking for cycles among them takes a fifth of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        made = job()
    finally:
        if collecting:
            gc.enable()
    written = []
    for path, lines, rows in made:
        data = "".join(f"{line}\n" for line in lines).encode()
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
        written.append((path, {"rows": rows, "sha256": hashlib.sha256(data).hexdigest()}))
    return written


def _finish(root: Path, files: dict[str, dict], options: dict) -> dict:
    """Remove what an earlier corpus had and this one has not; the manifest comes last: where it is, all is written."""
    manifest = root / "manifest.json"
    if manifest.is_file():
        for path in json.loads(manifest.read_text("utf-8")).get("files", ()):
            if path not in files:
                (root / path).unlink(missing_ok=True)
    told = {"name": "tinyworld", **options, "concepts": len(concepts()), "held_out_concepts": sorted(HELD_OUT),
            "files": {path: files[path] for path in sorted(files)}}  # fmt: skip
    manifest.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return told


# --- running text ----------------------------------------------------------------------------------------------------


def _documents(stories: Iterable[texts.Story], code: str) -> list[str]:
    realiser, lines = language(code), []
    for story in stories:
        lines += [s.text for s in story.render(realiser)] + [""]
    return lines[:-1]


def _mono(seed: int, skew: float, counts: dict[str, int], code: str) -> Files:
    found: Files = []
    parts = ((f"mono/{code}/tinyworld.txt", "train", "mono"), (f"heldout/mono/{code}.txt", "test", "heldout_mono"))
    for path, part, name in parts:
        lines = _documents(texts.stories(f"mono {code}", seed, part, sentences=counts[name], skew=skew), code)
        found.append((path, lines, sum(map(bool, lines))))
    return found


def _parallel(seed: int, skew: float, counts: dict[str, int], code: str) -> Files:
    made = texts.pairs(f"parallel {code}", seed, "train", counts["pairs"], skew)
    pair = "-".join(sorted((code, "en")))
    found = _sides(f"parallel/tinyworld/{pair}", code, made)
    told = texts.stories(f"documents {code}", seed, "train", counts["documents"], skew=skew)
    return found + [(f"documents/{code}-en.{side}", _documents(told, side), len(told)) for side in (code, "en")]


def _sides(stem: str, code: str, made: list[texts.Pair]) -> Files:
    foreign = language(code)
    lines = [p.foreign.render(foreign).text for p in made]
    return [(f"{stem}.{code}", lines, len(made)), (f"{stem}.en", [p.text for p in made], len(made))]


def _other_pairs(seed: int, skew: float, counts: dict[str, int], first: str, second: str) -> Files:
    """Pairs of two languages other than English."""
    made = texts.pairs(f"parallel {first} {second}", seed, "train", counts["other_pairs"], skew)
    stem = f"parallel/tinyworld/{first}-{second}"
    return [
        (f"{stem}.{first}", [p.foreign.render(language(first)).text for p in made], len(made)),
        (f"{stem}.{second}", [p.english.render(language(second)).text for p in made], len(made)),
    ]


def _rewordings(seed: int, skew: float, counts: dict[str, int], code: str) -> Files:
    made = texts.rewordings(f"rewordings {code}", seed, counts["rewordings"], language(code), skew)
    return [(f"parallel/tinyworld/{code}-{code}.tsv", ["\t".join(pair) for pair in made], len(made))]


def _held_out(seed: int, skew: float, counts: dict[str, int], code: str) -> Files:
    made = _held_out_pairs(seed, "test", counts["heldout_pairs"], skew)
    found = _sides(f"heldout/parallel/{code}-en", code, made)
    found += _sides(f"heldout/novel/{code}-en", code, _held_out_pairs(seed, "novel", counts["novel_pairs"], skew))
    foreign, english = language(code), language("en")
    tokens, english_tokens, links = zip(*(texts.alignment(p, foreign, english) for p in made), strict=True)
    sides = ((f".{code}", tokens), (".en", english_tokens), (".txt", links))
    found += [(f"alignments/{code}-en{end}", list(lines), len(lines)) for end, lines in sides]
    for folder, held_out in (("dictionary", False), ("heldout/dictionary", True)):
        words = texts.dictionary(foreign, english, held_out)
        found.append((f"{folder}/{code}-en.tsv", ["\t".join(pair) for pair in words], len(words)))
    return found


@lru_cache(maxsize=4)
def _held_out_pairs(seed: int, split: str, count: int, skew: float) -> list[texts.Pair]:
    return texts.pairs("heldout", seed, split, count, skew)


_PARTS = (_mono, _parallel, _held_out)
_PAIRED = (_parallel, _held_out)


# --- labelled sets ---------------------------------------------------------------------------------------------------

_nli = lru_cache(maxsize=3)(nli.examples)
_paraphrases = lru_cache(maxsize=3)(paraphrase.pairs)
_questions = lru_cache(maxsize=3)(qa.questions)
_tagged = lru_cache(maxsize=6)(tagging.sentences)
_titled = lru_cache(maxsize=3)(texts.stories)


def _forget() -> None:
    for made in (_nli, _paraphrases, _questions, _tagged, _titled, _held_out_pairs):
        made.cache_clear()


def _labelled(seed: int, skew: float, counts: dict[str, int], code: str, part: str) -> Files:
    """One part ("train", "dev", "test") of every labelled set in one language."""
    say = language(code)
    name = f"{part}-{code}"

    def tsv(folder: str, rows: list[tuple[str, str, str]] | list[tuple[str, str]]) -> tuple[str, list[str], int]:
        return f"{folder}/{name}.tsv", ["\t".join(row) for row in rows], len(rows)

    examples = _nli(seed, part, counts[f"nli_{part}"])
    found = [tsv("nli", [(e.premise.render(say).text, e.hypothesis.render(say).text, e.label) for e in examples])]
    pairs = _paraphrases(seed, part, counts[f"paraphrase_{part}"])
    found.append(
        tsv("paraphrase", [(p.first.render(say).text, p.second.render(say).text, str(p.label)) for p in pairs])
    )
    stories = _titled("titles", seed, part, counts[f"titles_{part}"], skew=skew)
    between = " " if say.spaced else ""
    found.append(tsv("titles", [(between.join(s.text for s in story.render(say)), say.sentence(story.cast.title()).text)
                                for story in stories]))  # fmt: skip
    for task in ("pos", "ner"):
        lines, tagged = [], _tagged(task, seed, part, counts[f"{task}_{part}"])
        for line in tagged:
            sentence = line.render(say)
            tags = sentence.pos() if task == "pos" else sentence.ner()
            lines += [f"{token.text}\t{tag}" for token, tag in zip(sentence.tokens, tags, strict=True)] + [""]
        found.append((f"{task}/{name}.tsv", lines[:-1], len(tagged)))
    asked = _questions(seed, part, counts[f"qa_{part}"])
    squad = {"version": "1.1", "data": [q.render(say, f"{part}-{i}") for i, q in enumerate(asked)]}
    found.append((f"qa/{name}.json", [json.dumps(squad, ensure_ascii=False)], len(asked)))
    # The text alone would not tell which of many questions is meant.
    rows = [(f"{answer}{say.full_stop}{between}{text}", question) for text, question, answer in map(qa.plain, squad["data"])]
    found.append(tsv("questions", rows))
    return found
