"""Wrong partners for paraphrase classification (Unicoder §3.2): a light model finds sentences that
look like a translation and are none.

Three stages per pair of languages, each kept in the output folder and taken up again: the deep
averaging network (`dan/EN-DE/run-MARK/`), the vectors of all sentences (`vectors/` there, in
shards), the table (`EN-DE.tsv`, and in `dan/EN-DE/finished.json` what it was made from). Neither
text nor vectors are in memory as a whole, unless they are few.
"""

import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import numpy as np

from xlingjax.data.batches.loader import BatchSettings, file_batches
from xlingjax.data.store.tokenise import CHUNK_LINES, end_sentences
from xlingjax.data.text.sources import NEGATIVE, find_pairs
from xlingjax.data.text.texts import Pair
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import Stopped, UserError, require_numbers, require_whole
from xlingjax.inference.encode import rows_of
from xlingjax.inference.forward import by_row, compiled
from xlingjax.inference.nearest import LARGEST_EXACT, Rows, chosen_search
from xlingjax.inference.vector_files import ShardedLines, ShardedRows, read_shards, write_shards
from xlingjax.inference.wrong_partners import choose
from xlingjax.model.config import ModelConfig
from xlingjax.model.encoder import Encoder
from xlingjax.objectives.unicoder import DAN
from xlingjax.preprocessors.unicoder import DanFeatures
from xlingjax.runtime.files import replaced, write_json
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.runtime.records import ANY, read_record
from xlingjax.training.checkpoint_params import load_params
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.loop import train
from xlingjax.training.optimizer import OptimizerConfig

# Settings that the network does not depend on.
RETRIEVAL = ("k", "random_share", "search", "lists", "probes")


@dataclass(frozen=True)
class NegativesConfig:
    """How wrong partners are found. dim, width: of the word embeddings and of the two tanh layers.
    k: of the nearest so many one is drawn. random_share: of the sentences that get any other one
    instead. search, lists, probes: see `nearest.chosen_search`."""

    steps: int = 2000
    batch: int = 128
    length: int = 128
    dim: int = 128
    width: int = 256
    learning_rate: float = 2e-3
    k: int = 10
    random_share: float = 0.1
    seed: int = 0
    search: str | None = None
    lists: int | None = None
    probes: int | None = None

    def __post_init__(self):
        sizes = "steps batch length dim width k lists probes"
        require_whole(self, "[1, inf)", sizes, "light model: ")
        require_whole(self, "[0, inf)", "seed", "light model: ")
        require_numbers(self, "(0, inf)", "learning_rate", "light model: ")
        require_numbers(self, "[0, 1]", "random_share", "light model: ")


def write_negatives(
    parallel: Sequence[str],
    vocabulary: Vocabulary,
    output: Path,
    config: NegativesConfig = NegativesConfig(),
    runtime: RuntimeConfig = RuntimeConfig(),
    say: Callable[[str], None] = print,
) -> list[Path]:
    """A table per pair of languages; finished ones of the same text and settings are left as they
    are. Pairs within one language are left out: a paraphrase there is no translation. Raises
    UserError where there are no others, and Stopped."""
    by_languages: dict[tuple[str, ...], list[Pair]] = {}
    # Several files of two languages are one text: wrong partners may come from any of them.
    for pair in find_pairs(parallel):
        if pair.translates:
            by_languages.setdefault(pair.languages, []).append(pair)
    if not by_languages:
        raise UserError(
            f"--parallel {parallel}: every pair has both sides in one language; give it"
            " translations"
        )
    return [
        _of_languages(languages, pairs, vocabulary, output, config, runtime, say)
        for languages, pairs in sorted(by_languages.items())
    ]


def _of_languages(languages, pairs, vocabulary, output, config, runtime, say) -> Path:
    # English first, as the sentence that gets the wrong partner.
    languages = tuple(sorted(languages, key=lambda code: (code != "en", code)))
    name = "-".join(languages)
    table, folder = output / f"{name}.tsv", output / "dan" / name
    # By the content of the files: a table of text that has changed is made anew.
    keys = [[side.key for side in pair.sides] for pair in pairs]
    identity = {"text": keys, "vocabulary": vocabulary.sha256, **asdict(config)}
    stamp = folder / "finished.json"
    if table.is_file() and _made_from(stamp) == identity:
        say(f"{table}: finished before")
        return table
    count = sum(1 for sides in _lines(pairs, languages) if all(sides))
    if count <= config.k:
        raise UserError(
            f"{name}: {count} pairs are too few to find negatives among; {config.k + 1} at least"
        )
    search = chosen_search(config.search, config.lists, config.probes, config.seed, (count, count))
    trained = {name: value for name, value in identity.items() if name not in RETRIEVAL}
    # Other settings of the search alone use the network and vectors that are there.
    mark = hashlib.sha256(json.dumps(trained).encode()).hexdigest()[:16]
    shards = _shards(folder / f"run-{mark}", pairs, languages, vocabulary, config, runtime, say)
    lines = [of_side for of_side, _ in shards]
    vectors: list[Rows] = [of_side for _, of_side in shards]
    where: Path | None = folder
    if search.exact and count**2 <= LARGEST_EXACT:
        vectors = [of_side[:] for of_side in vectors]
        where = None
    written = 0
    table.parent.mkdir(parents=True, exist_ok=True)
    # A table that was cut short would be trained on as it is.
    with replaced(table) as file:
        names = (*languages, NEGATIVE, "similarity", "kind")
        file.write("\t".join(names).encode() + b"\n")
        for i, (j, similarity, kind) in enumerate(choose(lines, vectors, config, search, where)):
            if j >= 0:
                # Without what would end a field or a line of a table.
                found = (lines[0][i], lines[1][i], lines[1][j])
                texts = [" ".join(text.split()) for text in found]
                file.write("\t".join((*texts, f"{similarity:.4f}", f"{kind}\n")).encode())
                written += 1
        # First the old table's stamp: a crash from here on leaves a table without one.
        stamp.unlink(missing_ok=True)
    made = {"search": search.record(count), "pairs": written}
    write_json(stamp, {**identity, "made": made})
    say(f"{table}: {written} of {len(lines[0])} pairs with a negative, {search.said(count)}")
    return table


def _made_from(stamp: Path) -> dict | None:
    """What a table was made from; None: it is not finished."""
    try:
        written = read_record(stamp, {str: ANY}, "remove it: the table is made anew")
    except FileNotFoundError:
        return None
    written.pop("made", None)
    return written


def _lines(pairs: Sequence[Pair], languages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The lines of both sides, in the order of `languages`: several files one after the other."""
    for pair in pairs:
        first, second = (pair.languages.index(code) for code in languages)
        for both in pair.lines():
            yield " ".join(both[first].split()), " ".join(both[second].split())


def _tokenised(
    pairs: Sequence[Pair], languages: Sequence[str], vocabulary: Vocabulary
) -> Iterator[tuple[tuple[str, str], tuple[np.ndarray, np.ndarray]]]:
    """(texts, ids) of the pairs that have tokens on both sides: a mean would be of nothing."""
    lines = _lines(pairs, languages)
    while chunk := list(itertools.islice(lines, CHUNK_LINES)):
        sides = []
        for texts in zip(*chunk, strict=True):
            encoded = vocabulary.encode_lines(list(texts), 2)
            tokens = end_sentences(*encoded, vocabulary.eos_id)
            sides.append(np.split(tokens.ids, np.cumsum(tokens.lengths)[:-1]))
        for texts, first, second in zip(chunk, *sides, strict=True):
            if len(first) and len(second):
                yield texts, (first, second)


def _shards(
    folder, pairs, languages, vocabulary, config, runtime, say
) -> list[tuple[ShardedLines, ShardedRows]]:
    """Lines and vectors of both sides: from disk, or after training the network."""
    if kept := read_shards(folder / "vectors", languages):
        return kept
    model = ModelConfig(
        name="dan",
        # The network is word embeddings and two layers on their mean, so the encoder has none.
        layers=0,
        dim=config.dim,
        # The least that a model may have; without layers none is made.
        heads=1,
        ffn=1,
        vocab_size=vocabulary.size,
        max_positions=config.length,
        dan=config.width,
        dropout=0.0,
        attention_dropout=0.0,
    )
    source = functools.partial(
        file_batches,
        DanFeatures(),
        vocabulary,
        config.batch,
        config.length,
        BatchSettings(seed=config.seed),
        parallel=[str(side.path) for pair in pairs for side in pair.sides],
    )
    result = train(
        workdir=folder,
        model=model,
        objectives=[ObjectiveRun(DAN(), source)],
        steps=config.steps,
        seed=config.seed,
        optimizer=OptimizerConfig(
            learning_rate=config.learning_rate,
            schedule="linear",
            # In proportion, so that a short run has one too.
            warmup_steps=max(1, config.steps // 20),
        ),
        runtime=runtime,
        log_every=max(1, config.steps // 10),
    )
    if result.exit_reason == "preempted":
        raise Stopped(f"{folder}: stopped; the same command goes on")
    encoder = Encoder(model)
    params, _ = load_params(
        folder, jax.jit(encoder.init)(jax.random.key(0)), vocabulary=vocabulary.sha256
    )
    return write_shards(
        folder / "vectors",
        languages,
        _tokenised(pairs, languages, vocabulary),
        lambda chunk, _: averages(encoder, params, [ids for _, ids in chunk], config.length),
        lambda pair: pair[0],
        say,
    )


def averages(
    model: Encoder, params, pairs: Sequence[Sequence[np.ndarray]], length: int
) -> Sequence[np.ndarray]:
    """float32 [pairs, F] of each side, from the ids of both, cut at `length` tokens."""
    first, second = (
        rows_of([ids[:length] for ids in side], 0, 0, len(pairs), length)
        for side in zip(*pairs, strict=True)
    )
    second["sides"] = second["pack_ids"]
    names = ("input_ids", "pack_ids", "sides")
    batch = {name: np.concatenate([first[name], second[name]], axis=1) for name in names}
    return by_row(compiled(Encoder.averages, model, None), params, batch, 512)
