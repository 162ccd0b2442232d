"""Wrong partners for paraphrase classification (Unicoder §3.2): a light model finds sentences that
look like a translation and are none.

Three stages per pair of languages, each kept in the output folder and taken up again: the deep
averaging network (`dan/EN-DE/run-MARK/`), the vectors of all sentences (`vectors.npz` there), the
table (`EN-DE.tsv`, and in `dan/EN-DE/finished.json` what it was made from).
"""

import functools
import hashlib
import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import numpy as np

from xlingjax.data.blocks import pair_blocks
from xlingjax.data.mixture import BatchSettings
from xlingjax.data.sources import NEGATIVE, find_pairs
from xlingjax.data.texts import Pair
from xlingjax.data.tokens import Tokens
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import Stopped, UserError
from xlingjax.inference.forward import compiled
from xlingjax.inference.search import neighbours, unit_rows
from xlingjax.model.config import ModelConfig
from xlingjax.model.encoder import Encoder
from xlingjax.objectives.unicoder import DAN
from xlingjax.preprocessors.unicoder import DanFeatures
from xlingjax.runtime.files import write_json
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.tasks.xlm import file_batches
from xlingjax.training.checkpoint_params import load_params
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.loop import train
from xlingjax.training.optimizer import OptimizerConfig

# Settings that the network does not depend on.
RETRIEVAL = ("k", "random_share")


@dataclass(frozen=True)
class NegativesConfig:
    """How wrong partners are found. dim, width: of the word embeddings and of the two tanh layers.
    k: of the nearest so many one is drawn. random_share: of the sentences that get any other one
    instead."""

    steps: int = 2000
    batch: int = 128
    length: int = 128
    dim: int = 128
    width: int = 256
    learning_rate: float = 2e-3
    k: int = 10
    random_share: float = 0.1
    seed: int = 0


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
            " translations",
        )
    return [
        _of_languages(
            languages,
            pairs,
            vocabulary,
            output,
            config,
            runtime,
            say,
        )
        for languages, pairs in sorted(by_languages.items())
    ]


def _of_languages(
    languages,
    pairs,
    vocabulary,
    output,
    config,
    runtime,
    say,
) -> Path:
    # English first, as the sentence that gets the wrong partner.
    languages = tuple(sorted(languages, key=lambda code: (code != "en", code)))
    name = "-".join(languages)
    table, folder = output / f"{name}.tsv", output / "dan" / name
    # By the content of the files: a table of text that has changed is made anew.
    keys = []
    for pair in pairs:
        keys.append([side.key for side in pair.sides])
    identity = {"text": keys, "vocabulary": vocabulary.sha256, **asdict(config)}
    stamp = folder / "finished.json"
    if (
        table.is_file()
        and stamp.is_file()
        and json.loads(stamp.read_text(encoding="utf-8")) == identity
    ):
        say(f"{table}: finished before")
        return table
    records = pair_blocks(pairs, vocabulary).records()
    tokens = [
        records.sides[records.languages.index(code)] for code in languages
    ]
    # A line that is blank on one side is no pair, and its mean would be of nothing.
    full = np.flatnonzero((tokens[0].lengths > 0) & (tokens[1].lengths > 0))
    # Each sentence needs k others to choose from.
    sides = []
    for side in _lines(pairs, languages):
        sides.append([side[line] for line in full.tolist()])
    if len(sides[0]) <= config.k:
        raise UserError(
            f"{name}: {len(sides[0])} pairs are too few to find negatives among; {config.k + 1} at"
            " least",
        )
    trained = {
        name: value for name, value in identity.items() if name not in RETRIEVAL
    }
    # Other settings of the search alone use the network and vectors that are there.
    mark = hashlib.sha256(json.dumps(trained).encode()).hexdigest()[:16]
    vectors = _vectors(
        folder / f"run-{mark}",
        pairs,
        tokens,
        full,
        vocabulary,
        config,
        runtime,
        say,
    )
    negatives = choose(sides, vectors, config)
    rows = ["\t".join((*languages, NEGATIVE, "similarity", "kind"))]
    rows += [
        "\t".join(
            (sides[0][i], sides[1][i], sides[1][j], f"{similarity:.4f}", kind),
        )
        for i, (j, similarity, kind) in enumerate(negatives)
        if j >= 0
    ]
    table.parent.mkdir(parents=True, exist_ok=True)
    # A table that was cut short would be trained on as it is.
    partial = table.with_suffix(".partial")
    partial.write_text("\n".join(rows) + "\n", encoding="utf-8")
    # First the old table's stamp: a crash from here on leaves a table without one.
    stamp.unlink(missing_ok=True)
    partial.replace(table)
    write_json(stamp, identity)
    hard = [similarity for _, similarity, kind in negatives if kind == "hard"]
    mean = ""
    if hard:
        mean = f", mean similarity of the hard ones {np.mean(hard):.3f}"
    say(
        f"{table}: {len(rows) - 1} of {len(sides[0])} pairs with a negative{mean}",
    )
    return table


def _lines(pairs: Sequence[Pair], languages: Sequence[str]) -> list[list[str]]:
    """The text of all lines of both sides, in the order of `languages`, as `pair_blocks` counts
    them: several files one after the other, with a blank line behind each."""
    lines: list[list[str]] = [[], []]
    for pair in pairs:
        order = [pair.languages.index(code) for code in languages]
        for both in (*pair.lines(), ("", "")):
            for side, which in zip(lines, order, strict=True):
                side.append(" ".join(both[which].split()))
    return lines


def _vectors(
    folder,
    pairs,
    tokens,
    full,
    vocabulary,
    config,
    runtime,
    say,
) -> list[np.ndarray]:
    """float32 [lines, F] of both sides: from disk, or after training the network."""
    path = folder / "vectors.npz"
    if path.is_file():
        with np.load(path) as kept:
            return [kept["first"], kept["second"]]
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
    files = []
    for pair in pairs:
        files += [str(side.path) for side in pair.sides]
    source = functools.partial(
        file_batches,
        DanFeatures(),
        vocabulary,
        config.batch,
        config.length,
        BatchSettings(seed=config.seed),
        parallel=files,
    )
    # In proportion, so that a short run has one too.
    warmup = max(1, config.steps // 20)
    result = train(
        workdir=folder,
        model=model,
        objectives=[ObjectiveRun(DAN(), source)],
        steps=config.steps,
        seed=config.seed,
        optimizer=OptimizerConfig(
            learning_rate=config.learning_rate,
            schedule="linear",
            warmup_steps=warmup,
        ),
        runtime=runtime,
        log_every=max(1, config.steps // 10),
    )
    if result.exit_reason == "preempted":
        raise Stopped(f"{folder}: stopped; the same command goes on")
    encoder = Encoder(model)
    params, _ = load_params(
        folder,
        jax.jit(encoder.init)(jax.random.key(0)),
        vocabulary=vocabulary.sha256,
    )
    say(f"{folder}: vectors of {full.size} pairs")
    found = averages(encoder, params, tokens, full, config.length)
    # Ends in .npz, which NumPy would append otherwise.
    partial = folder / "vectors.partial.npz"
    np.savez(partial, first=found[0], second=found[1])
    partial.replace(path)
    return found


def averages(
    model: Encoder,
    params,
    sides: Sequence[Tokens],
    lines: np.ndarray,
    length: int,
    rows: int = 512,
) -> list[np.ndarray]:
    """float32 [lines, F] of each side; a line of more than `length` tokens is cut."""
    ends = [np.cumsum(side.lengths) for side in sides]
    run = compiled(Encoder.averages, model, None)
    found: list[list[np.ndarray]] = [[] for _ in sides]
    for start in range(0, lines.size, rows):
        chosen = lines[start : start + rows]
        batch = {
            name: np.zeros((rows, 2 * length), np.int32)
            for name in ("input_ids", "pack_ids", "sides")
        }
        for number, side in enumerate(sides):
            for row, line in enumerate(chosen.tolist()):
                size = int(side.lengths[line])
                ids = side.ids[ends[number][line] - size : ends[number][line]][
                    :length
                ]
                columns = slice(number * length, number * length + len(ids))
                (
                    batch["input_ids"][row, columns],
                    batch["pack_ids"][row, columns],
                ) = (ids, 1)
                batch["sides"][row, columns] = number
        for vectors, kept in zip(run(params, batch), found, strict=True):
            kept.append(np.asarray(vectors)[: len(chosen)])
    return [np.concatenate(kept) for kept in found]


def choose(
    sides: Sequence[Sequence[str]],
    vectors: Sequence[np.ndarray],
    config: NegativesConfig,
) -> list[tuple[int, float, str]]:
    """(line of the wrong partner, its cosine to the sentence, "hard" or "random") for every line;
    (-1, 0, "") where there is none.

    Never one that says the translation, or the translation of the same sentence elsewhere: compared
    without case, punctuation and spaces. Of lines that say the same the first stands for all.
    """
    # A sentence may stand in the text several times with several right translations.
    said = []
    for side in sides:
        said.append([normalised(text) for text in side])
    of_source: dict[str, set[str]] = {}
    for x, y in zip(*said, strict=True):
        of_source.setdefault(x, set()).add(y)
    # Equal sentences would fill the places of the nearest.
    first_of: dict[str, int] = {}
    for j, y in enumerate(said[1]):
        first_of.setdefault(y, j)
    distinct = np.array([*first_of.values()])
    first, second = (unit_rows(side) for side in vectors)

    def wrong(i: int, lines: np.ndarray) -> list[int]:
        right = of_source[said[0][i]]
        return [j for j in lines.tolist() if said[1][j] not in right]

    nearest = np.full((len(first), config.k), -1)
    left = np.arange(len(first))
    width = config.k + 8
    # Wider for those of which right ones took the places.
    while left.size:
        _, found = neighbours(first[left], second[distinct], width)
        for i, lines in zip(left.tolist(), distinct[found], strict=True):
            candidates = wrong(i, lines)[: config.k]
            nearest[i, : len(candidates)] = candidates
        # All lines were among them.
        if width >= len(distinct):
            break
        left = left[nearest[left, -1] < 0]
        # So that few rounds do, also where a sentence stands in the text hundreds of times.
        width *= 4
    # Drawn in the order of the lines: each draw is the same at every start.
    rng = np.random.default_rng(config.seed)
    chosen = []
    for i in range(len(first)):
        if rng.random() < config.random_share:
            # Twenty draws, since some of them may be right ones.
            kind, candidates = "random", wrong(i, rng.choice(distinct, 20))[:1]
        else:
            kind, candidates = "hard", nearest[i][nearest[i] >= 0].tolist()
        if not candidates:
            chosen.append((-1, 0.0, ""))
            continue
        j = candidates[int(rng.integers(len(candidates)))]
        chosen.append((j, float(first[i] @ second[j]), kind))
    return chosen


def normalised(text: str) -> str:
    """Letters and digits of a text, in one case: texts that differ in nothing else say the same."""
    # NFKC first: full-width letters and ligatures are the same letters.
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in folded if unicodedata.category(c)[0] in "LMN")
